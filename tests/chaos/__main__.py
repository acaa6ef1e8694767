"""Harms runs of the toy benchmark, seed after seed, and shows a table of faults.

python -m tests.chaos [--seeds 20] [--first 0] [--episodes 40] [--containers]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

_TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(_TESTS), str(_TESTS / "toy"), str(_TESTS / "docker")]
_FOUND = [str(_TESTS / "toy"), str(_TESTS.parent / "src"), str(_TESTS.parent)]
os.environ["PYTHONPATH"] = os.pathsep.join([*_FOUND, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)

from chaos.rig import calm_run, harmed  # noqa: E402
from container_support import build_toy  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument(
        "--first", type=int, default=0, help="which is the first; a seed that failed replays by its number"
    )
    parser.add_argument("--episodes", type=int, default=40, help="of each of the five tasks")
    parser.add_argument("--faults", type=int, default=15, help="in one run, at most")
    parser.add_argument(
        "--containers", action="store_true", help="workers are containers, on the engine of this machine"
    )
    options = parser.parse_args()
    with _image() if options.containers else nullcontext("") as image:
        sys.exit(1 if _failed(options, image) else 0)


def _failed(options: argparse.Namespace, image: str) -> int:
    """Plays all seeds, and returns how many of them failed."""
    console = Console(stderr=True)
    calm = calm_run(options.episodes)
    assert len(calm.rows) == 5 * options.episodes, f"the calm run has {len(calm.rows)} rows"
    faults: Counter[str] = Counter()
    lost = duplicated = different = failed = 0
    for seed in range(options.first, options.first + options.seeds):
        came = harmed(seed, calm, options.episodes, most=options.faults, image=image)
        faults += came.faults
        lost, duplicated, different = lost + came.lost, duplicated + came.duplicated, different + len(came.different)
        console.print(f"seed {seed}: {came.faults.total()} faults, {'well' if came.is_well else 'NOT WELL'}")
        if not came.is_well:
            failed += 1
            console.print(came, markup=False)
    table = Table("fault", "how many")
    for kind, count in sorted(faults.items()):
        table.add_row(kind, str(count))
    table.add_row("all", str(faults.total()))
    console.print(table)
    console.print(f"episodes lost {lost}, duplicated {duplicated}, different {different}; runs that failed {failed}")
    return failed


@contextmanager
def _image() -> Iterator[str]:
    """Builds an image of a worker, and removes it afterwards."""
    name = f"sparring-test/chaos:{os.getpid()}"
    with tempfile.TemporaryDirectory() as context:
        build_toy(name, Path(context))
    try:
        yield name
    finally:
        subprocess.run(["docker", "rmi", "--force", name], capture_output=True, check=False, timeout=60)


if __name__ == "__main__":
    main()
