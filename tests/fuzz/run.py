"""Feeds the targets with inputs that atheris makes up, guided by what they reach.

    python tests/fuzz/run.py [--runs 200000] [--seed 1] [TARGET ...]

Each target has a process of its own; a failing input is left as a file, and its path is said. Needs
atheris, which has wheels for x86 Linux only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def fuzz(name: str, runs: int, seed: int, corpus: Path) -> None:
    """Becomes a fuzzer of one target; does not return."""
    import atheris

    # Ours only: instrumenting numpy and protobuf costs more than it finds.
    with atheris.instrument_imports(
        include=["sparring.protos", "sparring.policy_server", "sparring.orchestrator", "targets", "strangers"]
    ):
        from targets import TARGETS

    target, seeds = TARGETS[name]
    for number, data in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(data)
    # Four times the longest well-meant message: more finds nothing else, and takes longer.
    longest = 4 * max(map(len, seeds))
    atheris.Setup([sys.argv[0], f"-runs={runs}", f"-seed={seed}", f"-max_len={longest}", str(corpus)], target)
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--runs", type=int, default=200_000, help="inputs of each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)  # for the process that fuzzes
    options = parser.parse_args()
    sys.path[:0] = [str(HERE), str(HERE.parent / "toy"), str(HERE.parent.parent / "src")]
    if options.corpus is not None:
        fuzz(options.targets[0], options.runs, options.seed, options.corpus)
    from targets import TARGETS

    failed = False
    total = 0
    for name in options.targets or TARGETS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="sparring-fuzz-") as corpus:
            ended = subprocess.run(
                [
                    sys.executable,
                    __file__,
                    name,
                    f"--runs={options.runs}",
                    f"--seed={options.seed}",
                    "--corpus",
                    corpus,
                ],
                capture_output=True,
                text=True,
                check=False,
            )
        done = ended.returncode == 0
        failed |= not done
        total += options.runs if done else 0
        line = {"target": name, "inputs": options.runs if done else None, "seconds": round(time.monotonic() - began, 1)}
        sys.stdout.write(json.dumps({**line, "ok": done}) + "\n")
        if not done:
            sys.stdout.write(ended.stderr[-4000:] + "\n")
        sys.stdout.flush()
    sys.stdout.write(json.dumps({"inputs": total, "failed": failed}) + "\n")
    raise SystemExit(int(failed))


if __name__ == "__main__":
    main()
