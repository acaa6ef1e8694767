"""`python -m sparring.protos.net.probe ADDRESS`: exit code 0 if a gRPC server there is serving, else 1 and why."""

from __future__ import annotations

import sys
from typing import Final

import grpc

from sparring.protos.advice import FLAGS
from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address

_SECONDS: Final = 5.0
# grpc.health.v1.HealthCheckResponse{status: SERVING}, as it is on the wire: this is asked every few seconds by a
# process that starts for it, and loading two modules of generated code would be most of its work.
_SERVING: Final = b"\x08\x01"


def probe(address: Address) -> str:
    """Asks the standard health service; returns what is wrong, or nothing."""
    with grpc.insecure_channel(address.target) as channel:
        check: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            answer = check(b"", timeout=_SECONDS)
        except grpc.RpcError as error:
            return f"{address}: {error.details() or error.code().name}"
    return "" if answer == _SERVING else f"{address} answers, and says that it is not serving"


def main() -> None:
    """Probes the address on the command line."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m sparring.protos.net.probe HOST:PORT|unix:///path")
    try:
        address = Address.parse(sys.argv[1])
    except UsageError as error:
        sys.exit(error.told(FLAGS))
    sys.exit(probe(address) or 0)


if __name__ == "__main__":
    main()
