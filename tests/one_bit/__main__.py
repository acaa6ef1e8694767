"""Whether each equality of fast and original simulators has a test that fails when a single bit is another one.

    python -m tests.one_bit [NAME ...]     # all of them: two minutes of CPU; LIBERO's in its own environment

Each line of docs/performance.md's table is a change that is made here, and the test that must not pass with it. All
tests must pass without a change, which is what `make test` says.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.one_bit.changes import CHANGES

from sparring.orchestrator.machine.environments import venvs_folder

LOOPS: Final = "tests/libero/test_control_loop.py"
LIBERO: Final = "tests/libero/test_libero_simulator.py"
BITS: Final = f"{LOOPS}::test_every_bit_is_that_of_liberos_own_environment"
METAWORLD: Final = "tests/env_worker/test_metaworld.py"
SHORTCUTS: Final = "tests/env_worker/test_metaworld_shortcuts.py::test_every_bit_is_metaworlds"

NOTICED_BY: Final[dict[str, str]] = {
    "libero-state": f"{BITS}[libero_object/2-relative]",
    "libero-observation": f"{BITS}[libero_object/2-relative]",
    "libero-reward": f"{BITS}[libero_object/2-relative]",
    "libero-success": f"{BITS}[libero_object/2-relative]",
    "libero-image": f"{LIBERO}::test_the_same_bits_as_hard_resets_and_rendering_always[libero_spatial/2]",
    "libero-prepared": f"{LIBERO}::test_what_draws_images_may_be_made_before_the_first_episode",
    "libero-relative": f"{BITS}[libero_goal/3-relative]",
    "libero-absolute": f"{BITS}[libero_goal/3-absolute]",
    "libero-after-a-reset": f"{BITS}[libero_goal/3-relative]",
    "libero-looking": f"{BITS}[libero_goal/3-relative]",
    "libero-not-looking": f"{BITS}[libero_goal/3-relative]",
    "libero_spatial": f"{BITS}[libero_spatial/5-relative]",
    "libero_object": f"{BITS}[libero_object/2-relative]",
    "libero_goal": f"{BITS}[libero_goal/3-relative]",
    "libero_10": f"{BITS}[libero_10/8-relative]",
    "libero_90": f"{BITS}[libero_90/21-relative]",
    "metaworld-state": f"{SHORTCUTS}[pick-place-v3]",
    "metaworld-observation": f"{SHORTCUTS}[pick-place-v3]",
    "metaworld-reward": f"{SHORTCUTS}[pick-place-v3]",
    "metaworld-success": f"{SHORTCUTS}[pick-place-v3]",
    "metaworld-image": f"{METAWORLD}::test_the_layout_is_lerobots",
    "metaworld-after-a-reset": f"{METAWORLD}::test_nothing_is_left_of_the_episode_before[reach-v3]",
    "metaworld-looking": f"{METAWORLD}::test_looking_does_not_change_physics",
    "metaworld-rotation": f"{SHORTCUTS}[pick-place-v3]",
    "metaworld-fingers": f"{SHORTCUTS}[pick-place-v3]",
    "replayed": "tests/env_worker/test_replay.py::test_a_replay_is_the_episode",
    "written": "tests/protos/test_wire.py::test_one_tensor_is_the_same_bytes_as_protobufs",
    "metaworld-not-looking": f"{METAWORLD}::test_same_bits_as_lerobots_recipe[reach-v3]",
}
"""The test that must fail with each change."""

ROOT: Final = Path(__file__).resolve().parent.parent.parent


def main(names: list[str]) -> int:
    assert NOTICED_BY.keys() == CHANGES.keys()
    unnoticed = []
    for name in names or NOTICED_BY:
        python = venvs_folder() / "libero" / "bin" / "python" if name.startswith("libero") else sys.executable
        command = [str(python), "-m", "pytest", "-q", "-n", "0", "-p", "tests.one_bit.changes"]
        ended = subprocess.run(
            [*command, "-p", "no:cacheprovider", NOTICED_BY[name]],
            cwd=ROOT,
            env={**os.environ, "SPARRING_ONE_BIT": name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        # Not an error of another kind, and not an empty selection.
        noticed = ended.returncode == 1 and re.search(r"^E +(AssertionError|assert )", ended.stdout, re.MULTILINE)
        unnoticed += [] if noticed else [name]
        last = ended.stdout.strip().splitlines()[-1:]
        sys.stdout.write(
            f"{name}: {'noticed' if noticed else 'NOT NOTICED'} by {NOTICED_BY[name]} ({' '.join(last)})\n"
        )
        sys.stdout.flush()
    return len(unnoticed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
