"""`python -m sparring.policy_server`: hosts a policy until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import grpc

from sparring.policy_server.batcher import AUTO, QueueDelay
from sparring.policy_server.policies import known_policies, load_policy
from sparring.policy_server.server import PolicyServer, serve_until
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.net.access import check_certificate, read_token
from sparring.protos.process import keep_freed_memory, stop_with_parent

log = logging.getLogger("sparring.policy_server")


def main(argv: list[str] | None = None) -> None:
    """Parses the command line, serves, and exits with 2 if it was asked for something that cannot be."""
    options = _parser().parse_args(argv)
    keep_freed_memory()
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s", datefmt="%H:%M:%S"
    )
    try:
        if options.list:
            sys.stdout.write(json.dumps(known_policies(_object(options.experts, "--experts"))) + "\n")
            return
        asyncio.run(_serve(options))
    except SparringError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(2 if isinstance(error, UsageError) else 1) from error
    # A policy that never answers holds its thread, and Python would wait for that at exit.
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)


async def _serve(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if options.exit_with_parent:
        stop_with_parent(stop)
    arguments = _object(options.policy_args, "--policy-args")
    experts = _object(options.experts, "--experts")
    token = read_token(options.token_file, flag="--token-file") if options.token_file else ""
    credentials = _credentials(options.tls_cert, options.tls_key)
    server = PolicyServer(
        partial(load_policy, options.policy, arguments, experts=experts),
        name=options.policy,
        arguments=arguments,
        max_batch=options.max_batch,
        max_sessions=options.max_sessions,
        max_queue_delay=options.max_queue_delay,
        token=token,
        credentials=credentials,
        metrics=options.metrics,
    )
    addresses = await server.listen(options.listen or ["127.0.0.1:50051"])
    listening = [str(address) for address in addresses]
    log.info("loading %s; listening at %s", options.policy, ", ".join(listening))
    loaded = False
    try:
        loaded = await _loaded(server, stop)
    finally:
        if not loaded:
            await server.drain(0)
    if not loaded:
        return
    # The one line on stdout is for the program that started this one: where it can be reached.
    metrics = {"metrics": str(server.metrics.address)} if server.metrics else {}
    sys.stdout.write(json.dumps({"listening": listening, **metrics}) + "\n")
    sys.stdout.flush()
    sys.stdout = sys.stderr  # nobody reads on: a policy that prints would fill the pipe, and stop there
    log.info("serving %s at %s", options.policy, ", ".join(listening))
    if server.metrics:
        log.info("metrics at http://%s/metrics", server.metrics.address)
    for address in addresses:
        if token and address.leaves_the_machine and not address.is_encrypted:
            log.warning("the token travels unencrypted to %s; encrypt with --tls-cert and --tls-key", address)
    await serve_until(server, stop, grace=options.grace)


async def _loaded(server: PolicyServer, stop: asyncio.Event) -> bool:
    """Whether the policy was loaded before somebody wanted this program to end."""
    loading, stopping = asyncio.ensure_future(server.load()), asyncio.ensure_future(stop.wait())
    await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if loading.done():
        stopping.cancel()
        loading.result()
        return True
    loading.cancel()  # its thread goes on; main() does not wait for it
    return False


def _credentials(cert: Path | None, key: Path | None) -> grpc.ServerCredentials | None:
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        given, missing = ("--tls-key", "--tls-cert") if cert is None else ("--tls-cert", "--tls-key")
        raise UsageError(f"{given} is given without {missing}; TLS needs both.")
    check_certificate(cert, key)
    return grpc.ssl_server_credentials([(key.read_bytes(), cert.read_bytes())])


def _object(text: str, flag: str) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{flag} {text!r} is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise UsageError(f"{flag} {text!r} is not a JSON object.")
    return read


def _positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


def _queue_delay(text: str) -> QueueDelay:
    if text == AUTO:
        return AUTO
    with suppress(ValueError):
        if 0 <= float(text) < float("inf"):
            return float(text)
    raise argparse.ArgumentTypeError(f"must be seconds, at least 0, or auto, not {text!r}.")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"error: {message}\n")
        raise SystemExit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m sparring.policy_server", description="Hosts a policy over gRPC.")

    def add(*names: str, **settings: Any) -> None:
        parser.add_argument(*names, **settings)

    add("--list", action="store_true", help="print the known policies as JSON and exit")
    add("--policy", default="", help="a shipped policy, an installed one, or module:Class")
    add("--policy-args", default="{}", help="keyword arguments of the policy, a JSON object")
    add("--experts", default="{}", help="what --policy expert means: module:Class by benchmark, a JSON object")
    add("--listen", action="append", help="HOST:PORT or unix:///path; may be given more than once")
    add("--token-file", type=Path, help="file with a secret that every caller must bring; health checks need none")
    add("--tls-cert", type=Path, help="PEM certificate (chain): encrypts --listen HOST:PORT; unix sockets stay plain")
    add("--tls-key", type=Path, help="PEM private key of --tls-cert, without a passphrase")
    add("--max-batch", type=_positive, default=64, help="the most rows in one forward pass")
    add(
        "--max-queue-delay",
        type=_queue_delay,
        default=0.0,
        help="seconds that an observation may wait for a fuller batch; auto: as long as it pays",
    )
    add("--max-sessions", type=_positive, default=256, help="the most sessions at once")
    add("--grace", type=float, default=10.0, help="seconds that running episodes have to end on SIGTERM")
    add("--metrics", default="", help="serve Prometheus metrics at HOST:PORT, or :PORT for every address")
    add("--exit-with-parent", action="store_true", help="stop when standard input closes")
    return parser


if __name__ == "__main__":
    main()
