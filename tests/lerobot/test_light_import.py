"""LeRobot imported without what a checkpoint does not need: the same bits in a process of its own, fewer modules."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lerobot.policies
import numpy as np
import pytest
from checkpoints import act_config, diffusion_config, saving, tdmpc_config, vqbet_config
from support import sampled
from tiny_models import smolvla_config

from sparring.policy_server.policies._lerobot.light_import import import_light
from sparring.policy_server.policies.base import Instruction, Observation
from sparring.policy_server.policies.lerobot import LeRobotPolicy
from sparring.protos.spec import Offer

SIDE = 64
FAMILIES: dict[str, Callable[..., Any]] = {
    "act": lambda: act_config(SIDE),
    "diffusion": lambda: diffusion_config(SIDE),
    "vqbet": lambda: vqbet_config(SIDE),
    "tdmpc": lambda: tdmpc_config(SIDE),
    "smolvla": smolvla_config,
}
LIGHT = {
    "act": {"transformers", "diffusers", "datasets", "accelerate", "peft", "pandas", "pyarrow", "gymnasium"},
    "vqbet": {"transformers", "diffusers", "datasets", "gymnasium"},
    "tdmpc": {"transformers", "diffusers", "datasets", "gymnasium"},
    "diffusion": {"transformers", "datasets", "gymnasium"},
    "smolvla": {"diffusers", "datasets", "gymnasium"},
}
_ACT = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from sparring.policy_server.policies.lerobot import LeRobotPolicy
from test_light_import_answers import answer
policy = LeRobotPolicy(sys.argv[1], threads=1)
names = {name.partition(".")[0] for name in sys.modules}
families = sorted({n.split(".")[2] for n in sys.modules if n.startswith("lerobot.policies.") and "modeling_" in n})
print(json.dumps({"answer": answer(policy), "names": sorted(names), "families": families}))
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    return saving(FAMILIES, tmp_path_factory.mktemp("checkpoints"))


def answer(policy: Any) -> str:
    """The bits of what a policy answers to something that was made up."""
    rng = np.random.default_rng(5)
    history = (policy.spec.history,) if policy.spec.history > 1 else ()
    tensors = {
        name: rng.integers(0, 256, (*history, *need.shape), np.uint8)
        if need.dtype == "uint8"
        else rng.random((*history, *need.shape)).astype(np.float32)
        for name, need in policy.spec.observations.items()
    }
    offer = Offer(observations={}, action_low=(-1.0,) * 4, action_high=(1.0,) * 4)
    task = Instruction("Press a button", offer=offer)
    (chunk,) = policy.act([Observation(tensors, task)], [policy.new_session(task, 7)])
    return chunk.tobytes().hex()


@pytest.mark.parametrize("name", sampled(FAMILIES, "act"))
def test_fewer_modules_and_the_same_bits(name: str, saved: Any, tmp_path: Path) -> None:
    (tmp_path / "test_light_import_answers.py").write_text(_source())
    done = subprocess.run(
        [sys.executable, "-c", _ACT, str(saved(name)), str(tmp_path)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert "imported as a whole" not in done.stderr
    assert not LIGHT[name] & set(told["names"])
    assert set(told["families"]) & set(FAMILIES) == {name}  # there are parts that several families share
    assert told["answer"] == answer(LeRobotPolicy(str(saved(name)), threads=1))


def _source() -> str:
    """The function above, in a module without LeRobot."""
    import inspect

    return (
        "from __future__ import annotations\nfrom typing import Any\nimport numpy as np\n"
        "from sparring.policy_server.policies.base import Instruction, Observation\n"
        "from sparring.protos.spec import Offer\n" + inspect.getsource(answer)
    )


def test_where_somebody_has_imported_lerobot_it_is_left_alone() -> None:
    before = dict(sys.modules)
    assert not import_light("act")
    assert sys.modules["lerobot.policies"] is lerobot.policies is before["lerobot.policies"]


_ALL = """
import sys
from sparring.policy_server.policies._lerobot.light_import import import_all_families, import_light
assert not import_light("no_such_family")
assert import_light(sys.argv[1]), "not light"
from lerobot.configs.policies import PreTrainedConfig
assert sys.argv[1] in PreTrainedConfig.get_known_choices()
import_all_families()
known = set(PreTrainedConfig.get_known_choices())
assert {"act", "diffusion", "smolvla", "pi0", "tdmpc", "vqbet"} <= known, known
import lerobot.policies, lerobot.datasets.lerobot_dataset, lerobot.envs.configs, transformers
assert isinstance(lerobot.policies.ACTConfig, type)
"""


@pytest.mark.everything
def test_what_was_put_off_can_be_had_after_all() -> None:
    done = subprocess.run([sys.executable, "-c", _ALL, "act"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


_GUARD = """
import sys
from sparring.policy_server.policies._lerobot.code_guard import CodeGuard
from sparring.protos.errors import UsageError
with CodeGuard(trust=False, told=print)():
    assert "transformers" not in sys.modules and "diffusers" not in sys.modules
    usual = 15
try:
    with CodeGuard(trust=False, told=print)():
        import transformers.dynamic_module_utils as doors
        assert doors.TIME_OUT_REMOTE_CODE == 0
        from transformers.dynamic_module_utils import get_class_in_module
        get_class_in_module("Evil", "evil.py")
except UsageError as error:
    assert "Evil" in str(error), error
else:
    raise SystemExit("the door was open")
assert doors.TIME_OUT_REMOTE_CODE == usual
from diffusers.utils import dynamic_modules_utils
assert hasattr(dynamic_modules_utils.get_class_in_module, "guarded_by_sparring")
import lerobot.processor.pipeline as pipeline
assert type(pipeline.importlib).__name__ == "_Imports"
"""


def test_doors_close_as_they_are_imported() -> None:
    done = subprocess.run([sys.executable, "-c", _GUARD], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
