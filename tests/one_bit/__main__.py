"""Whether each equality of fast and original simulators has a test that fails when a single bit is another one.

    python -m tests.one_bit [NAME ...]     # all of them: five minutes of CPU; some in LIBERO's and LeRobot's Python

Each line of docs/performance.md's table is a change that is made here, and the test that must not pass with it. In the
end all of these tests are run once more without a change, and must pass. test_one_bit.py makes some of the changes in
`make test-all`, where all tests are run without one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sparring.orchestrator.machine.environments import venvs_folder

LOOPS: Final = "tests/libero/test_control_loop.py"
LIBERO: Final = "tests/libero/test_libero_simulator.py"
BITS: Final = f"{LOOPS}::test_every_bit_is_that_of_liberos_own_environment"
IMAGES: Final = f"{LIBERO}::test_the_same_bits_as_hard_resets_and_rendering_always"
METAWORLD: Final = "tests/env_worker/test_metaworld.py"
DRAWING: Final = "tests/env_worker/test_gym_drawing.py"
PUSHT: Final = "tests/gym/test_pusht.py"
ALOHA: Final = "tests/gym/test_aloha.py::test_it_is_gym_alohas_environment"
SHORTCUTS: Final = "tests/env_worker/test_metaworld_shortcuts.py::test_every_bit_is_metaworlds"

NOTICED_BY: Final[dict[str, str]] = {
    "libero-state": f"{BITS}[libero_object/2-relative]",
    "libero-observation": f"{BITS}[libero_object/2-relative]",
    "libero-reward": f"{BITS}[libero_object/2-relative]",
    "libero-success": f"{BITS}[libero_object/2-relative]",
    "libero-image": f"{IMAGES}[libero_spatial/2-relative]",
    "libero-image-absolute": f"{IMAGES}[libero_spatial/2-absolute]",
    "libero-prepared": f"{LIBERO}::test_what_draws_images_may_be_made_before_the_first_episode",
    "libero-watched": f"{LIBERO}::test_what_is_drawn_for_who_watches_changes_nothing",
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
    "metaworld-reset": f"{SHORTCUTS}[pick-place-v3]",
    "metaworld-after-a-reset": f"{METAWORLD}::test_nothing_is_left_of_the_episode_before[reach-v3]",
    "metaworld-looking": f"{METAWORLD}::test_looking_does_not_change_physics",
    "metaworld-not-looking": f"{METAWORLD}::test_same_bits_as_lerobots_recipe[reach-v3]",
    "metaworld-prepared": f"{METAWORLD}"
    "::test_what_draws_images_may_be_made_before_the_first_episode_and_nothing_is_otherwise[push-v3]",
    "metaworld-rotation": f"{SHORTCUTS}[pick-place-v3]",
    "metaworld-fingers": f"{SHORTCUTS}[pick-place-v3]",
    "metaworld-contacts": "tests/env_worker/test_metaworld_shortcuts.py::test_what_the_pads_touch_is_found_in_arrays",
    "gym-image": f"{DRAWING}::test_on_look_only_what_is_looked_at_is_drawn_and_nothing_else_changes",
    "gym-not-looking": f"{DRAWING}::test_on_look_only_what_is_looked_at_is_drawn_and_nothing_else_changes",
    "pusht-image": f"{PUSHT}::test_it_is_the_environment_that_gymnasium_makes",
    "pusht-state": f"{PUSHT}::test_it_is_the_environment_that_gymnasium_makes",
    "pusht-not-looking": f"{PUSHT}::test_what_nobody_looks_at_is_not_drawn_and_changes_nothing",
    "aloha-image": f"{ALOHA}[AlohaInsertion-v0]",
    "aloha-state": f"{ALOHA}[AlohaInsertion-v0]",
    "filmed-again": "tests/env_worker/test_replay.py::test_a_film_of_a_replay_is_that_of_the_episode",
    "filmed-by-the-way": "tests/env_worker/test_seen_film.py"
    "::test_who_looks_at_every_frame_is_filmed_by_the_way[policy0-20.0-rules0]",
    "replayed": "tests/env_worker/test_replay.py::test_a_replay_is_the_episode",
    "written": "tests/protos/test_wire.py::test_one_tensor_is_the_same_bytes_as_protobufs",
    "framed": "tests/policy_server/test_framed.py::test_a_session_near_by_uses_frames_and_answers_as_gRPC_does",
    "deterministic": "tests/policy_server/test_torch_proof.py"
    "::test_deterministic_mode_holds_whatever_the_kernels_do[a usual one-8]",
    "lerobot-loop": "tests/lerobot/test_own_loop.py::test_a_session_alone_does_what_select_action_does[tiny_rnn]",
    "lerobot-light": "tests/lerobot/test_light_import.py::test_fewer_modules_and_the_same_bits[act]",
    "lerobot-libero": "tests/lerobot/test_libero_parity.py::test_the_same_actions_lead_to_the_same_bits[libero_goal/8]",
}
"""The test that must fail with each change."""

ROOT: Final = Path(__file__).resolve().parent.parent.parent


def tried(name: str) -> tuple[bool, str]:
    """Makes a change; returns whether its test has noticed it, and what pytest said last."""
    ended = _pytest(_python(name), [NOTICED_BY[name]], change=name)
    # Not an error of another kind, and not an empty selection.
    noticed = ended.returncode == 1 and re.search(r"^E +(AssertionError|assert )", ended.stdout, re.MULTILINE)
    return bool(noticed), _last(ended)


def _pytest(python: Path, tests: Sequence[str], *, change: str = "") -> subprocess.CompletedProcess[str]:
    if not python.exists():
        sys.exit(f"there is no {python}: `make env-libero env-lerobot`, or `make test-gym`, makes it")
    command = [str(python), "-m", "pytest", "-q", "-n", "0", "-p", "one_bit.changes", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, *tests],
        cwd=ROOT,
        # By this name, because LeRobot's Python has a package `tests` of somebody else.
        env={**os.environ, "SPARRING_ONE_BIT": change, "PYTHONPATH": str(ROOT / "tests")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def _last(ended: subprocess.CompletedProcess[str]) -> str:
    return " ".join(ended.stdout.strip().splitlines()[-1:])


def _python(name: str) -> Path:
    kind, _, _ = name.partition("-")
    elsewhere = {"lerobot": "lerobot-0.6", "pusht": "packages/gym", "aloha": "packages/gym"}
    environment = elsewhere.get(kind, "libero" if kind.startswith("libero") else "")
    return venvs_folder() / environment / "bin" / "python" if environment else Path(sys.executable)


def main(names: list[str]) -> int:
    unnoticed, right = 0, defaultdict[Path, set[str]](set)
    for name in names or NOTICED_BY:
        noticed, last = tried(name)
        unnoticed += not noticed
        right[_python(name)].add(NOTICED_BY[name])
        sys.stdout.write(f"{name}: {'noticed' if noticed else 'NOT NOTICED'} by {NOTICED_BY[name]} ({last})\n")
        sys.stdout.flush()
    for python, tests in right.items():
        ended = _pytest(python, sorted(tests))
        unnoticed += ended.returncode != 0
        sys.stdout.write(f"without a change, {len(tests)} tests: {_last(ended)}\n")
    return unnoticed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
