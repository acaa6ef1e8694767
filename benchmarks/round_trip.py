"""Round trips per second: two 256×256 images and a state to a policy that does nothing, and a chunk of actions back.

Ours is the whole real path (client, session, batcher, codec, in processes of their own), against openpi-client and a
server like openpi's, and against a bare unix socket as the floor. The contenders take turns, round after round.

    python benchmarks/round_trip.py [--rounds 5] [--seconds 2] [--clients 1 8]
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Final

from common import conclude, show
from contenders import CLIENTS, SERVERS

START_SECONDS: Final = 120.0
BASELINE: Final = "openpi"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a turn")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8], help="client processes at once")
    options = parser.parse_args()
    if importlib.util.find_spec("openpi_client") is None:
        raise SystemExit("openpi-client is not installed; benchmarks/README.md says how.")

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sparring-bench-")))
        addresses: dict[str, str] = {}
        for serve in SERVERS:
            addresses |= stack.enter_context(serve(folder))
        teams = {name: _Team(name, address, max(options.clients)) for name, address in addresses.items()}
        for team in teams.values():
            stack.callback(team.dismiss)

        rates: dict[tuple[str, int], list[float]] = defaultdict(list)
        for _ in range(options.rounds):
            for clients in options.clients:
                for name, team in teams.items():
                    rates[name, clients].append(team.rate(clients, options.seconds))

    _report(list(teams), options.clients, {key: median(values) for key, values in rates.items()})


def _report(names: list[str], clients: list[int], rates: dict[tuple[str, int], float]) -> None:
    ratios = {(name, n): rates[name, n] / rates[BASELINE, n] for name in names for n in clients}
    show(
        "round trips per second (median over rounds), and how many times openpi's",
        ["", *(f"{n} client{'s' * (n > 1)}" for n in clients)],
        [[name, *(f"{rates[name, n]:,.0f}  ({ratios[name, n]:.2f}×)" for n in clients)] for name in names],
    )
    conclude(
        "round_trip",
        target="sparring not slower than openpi, with 1 client and with 8",
        met=all(ratios["sparring (unix)", n] >= 1 and ratios["sparring (tcp)", n] >= 1 for n in clients),
        rates={name: {n: rates[name, n] for n in clients} for name in names},
        ratios={name: {n: ratios[name, n] for n in clients} for name in names},
    )


class _Team:
    """The client processes of one contender; they stay connected from round to round."""

    def __init__(self, name: str, address: str, size: int) -> None:
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(size)]
        self._pipes = [ours for ours, _ in pipes]
        self._processes = [
            context.Process(target=_client, args=(name, address, theirs), daemon=True) for _, theirs in pipes
        ]
        for process in self._processes:
            process.start()
        for pipe in self._pipes:
            _receive(pipe)  # it is connected and warm

    def rate(self, clients: int, seconds: float) -> float:
        """Round trips per second of so many clients together."""
        start = time.monotonic() + 0.1
        for pipe in self._pipes[:clients]:
            pipe.send((start, start + seconds))
        return sum(_receive(pipe) for pipe in self._pipes[:clients]) / seconds

    def dismiss(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


def _receive(pipe: Connection) -> float:
    if not pipe.poll(START_SECONDS):
        raise SystemExit(f"a client did not answer within {START_SECONDS:g} s.")
    return float(pipe.recv())


def _client(name: str, address: str, pipe: Connection) -> None:
    ask = CLIENTS[name](address)
    for _ in range(50):
        ask()
    pipe.send(0)
    while True:
        start, end = pipe.recv()
        time.sleep(max(0.0, start - time.monotonic()))
        count = 0
        while time.monotonic() < end:
            ask()
            count += 1
        pipe.send(count)


if __name__ == "__main__":
    main()
