"""Harms runs of the toy benchmark, seed after seed, and shows a table of faults.

python -m tests.chaos [--seeds 20] [--first 0] [--episodes 40]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from pathlib import Path

_TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(_TESTS), str(_TESTS / "toy")]
_FOUND = [str(_TESTS / "toy"), str(_TESTS.parent / "src"), str(_TESTS.parent)]
os.environ["PYTHONPATH"] = os.pathsep.join([*_FOUND, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)

from chaos.rig import calm_run, harmed  # noqa: E402
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
    options = parser.parse_args()
    console = Console(stderr=True)
    calm = calm_run(options.episodes)
    assert len(calm.rows) == 5 * options.episodes, f"the calm run has {len(calm.rows)} rows"
    faults: Counter[str] = Counter()
    lost = duplicated = different = failed = 0
    for seed in range(options.first, options.first + options.seeds):
        came = harmed(seed, calm, options.episodes, most=options.faults)
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
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
