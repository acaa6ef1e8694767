"""Holds a policy server against the rules, for `sparring check policy-server`: a line of JSON for each.

python -m sparring.policy_server.compliance --help
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from sparring.policy_server.compliance import reached, verdicts_of
from sparring.policy_server.compliance.wire import DEADLINE, Way
from sparring.protos.advice import FLAGS
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.net.access import Identity, read_ca, read_token


def main() -> None:
    """Parses the command line, checks, and exits with 2 if it was asked for something that cannot be."""
    parser = argparse.ArgumentParser(prog="python -m sparring.policy_server.compliance", description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--token-file", type=Path)
    parser.add_argument("--ca", type=Path)
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument("--benchmark", default="")
    parser.add_argument("--task", default="")
    parser.add_argument("--seconds", type=float, default=DEADLINE)
    options = parser.parse_args()
    try:
        token = read_token(options.token_file, flag="--token-file") if options.token_file else ""
        ca = read_ca(options.ca, flag="--ca").decode() if options.ca else ""
        identity = Identity.read(options.tls_cert, options.tls_key, flags=("--tls-cert", "--tls-key"))
        way = Way(options.address, token, ca, options.seconds, identity)
        with reached(way, benchmark=options.benchmark, task=options.task) as target:
            for verdict in verdicts_of(target):
                sys.stdout.write(json.dumps(asdict(verdict)) + "\n")
                sys.stdout.flush()
    except SparringError as error:
        sys.stderr.write(f"error: {error.told(FLAGS)}\n")
        raise SystemExit(2 if isinstance(error, UsageError) else 1) from error


if __name__ == "__main__":
    main()
