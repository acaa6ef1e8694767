from __future__ import annotations

import importlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparring.policy_server.policies import known_policies, load_policy
from sparring.protos.errors import CodeBroken, UsageError

NUMBERS = itertools.count()

WHOLE = """
from sparring.policy_server.policies.base import Policy, PolicySpec

class Helper:
    pass

class MyPolicy(Policy):
    def __init__(self, *, gain=1.0):
        if gain < 0:
            raise ValueError(f"a gain of {gain} makes no sense")
        self.gain = gain
        self.spec = PolicySpec(action_dim=2)

    def act(self, observations, states):
        return [[[self.gain] * 2]] * len(observations)
"""

Module = Callable[[str], str]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Module:
    """Writes a module into the current folder, where a user's own lies, and returns its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(source: str) -> str:
        name = f"users_module_{next(NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(source)
        return name

    return write


def refusal(name: str, arguments: dict[str, Any] | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        load_policy(name, arguments or {})
    return str(caught.value)


def test_a_class_in_the_current_folder_is_found_and_gets_its_arguments(module: Module) -> None:
    policy: Any = load_policy(f"{module(WHOLE)}:MyPolicy", {"gain": 2.5})
    assert policy.gain == 2.5


def test_a_class_need_not_derive_from_policy(module: Module) -> None:
    source = WHOLE.replace("(Policy)", "") + "\n    def new_session(self, task, seed):\n        return None\n"
    assert load_policy(f"{module(source)}:MyPolicy", {}).spec.action_dim == 2


def test_a_function_that_makes_a_policy_will_do(module: Module) -> None:
    name = module(WHOLE + "\ndef make(*, loud):\n    return MyPolicy(gain=10.0 if loud else 0.1)\n")
    policy: Any = load_policy(f"{name}:make", {"loud": True})
    assert policy.gain == 10.0


@pytest.mark.parametrize(("typo", "meant"), [("randon", "random"), ("experts", "expert"), ("zeros", "zero")])
def test_a_misspelt_name_is_answered_with_the_nearest(typo: str, meant: str) -> None:
    message = refusal(typo)
    assert repr(typo) in message
    assert repr(meant) in message
    assert "module:Class" in message


def test_every_known_policy_has_a_line() -> None:
    assert {"expert", "random", "zero", "replay", "module:Class"} <= known_policies().keys()
    assert all(known_policies().values())


@pytest.mark.usefixtures("module")
def test_a_module_that_does_not_exist() -> None:
    message = refusal("no_such_module_anywhere:Policy")
    assert "'no_such_module_anywhere'" in message
    assert "PYTHONPATH" in message


@pytest.mark.parametrize(
    "file", ["mine.py:MyPolicy", "./mine.py:MyPolicy", "folder/mine.py:MyPolicy", "./mine:MyPolicy"]
)
def test_a_file_is_no_module(file: str) -> None:
    assert "mine:MyPolicy, from the folder that it is in" in refusal(file)


@pytest.mark.usefixtures("module")
def test_a_name_that_is_only_half_there() -> None:
    assert "''" in refusal(":MyPolicy")
    refusal("json:")


def test_a_module_that_needs_something_that_is_not_installed(module: Module) -> None:
    name = module("import an_absent_dependency\n" + WHOLE)
    message = refusal(f"{name}:MyPolicy")
    assert "'an_absent_dependency'" in message
    assert repr(name) in message
    assert "not installed" in message


def test_a_package_that_lacks_a_part_of_its_own_is_not_said_to_be_missing_itself(
    tmp_path: Path, module: Module
) -> None:
    name = module("")
    package = tmp_path / f"{name}_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "policy.py").write_text(f"from {package.name} import absent_part\n" + WHOLE)
    (package / "other.py").write_text(f"import {package.name}.absent_part\n" + WHOLE)
    assert "absent_part" in refusal(f"{package.name}.policy:MyPolicy")
    assert "absent_part" in refusal(f"{package.name}.other:MyPolicy")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def broken(:\n", "SyntaxError"),
        ("raise RuntimeError('CUDA is not here')", "CUDA is not here"),
        ("from numpy import no_such_thing", "no_such_thing"),
    ],
)
def test_a_module_that_does_not_import(module: Module, source: str, said: str) -> None:
    name = module(source)
    with pytest.raises(UsageError, match=said) as caught:
        load_policy(f"{name}:MyPolicy", {})
    assert name in str(caught.value)


def test_a_class_that_does_not_exist_is_answered_with_those_that_do(module: Module) -> None:
    message = refusal(f"{module(WHOLE)}:MyPolice")
    assert "'MyPolice'" in message
    assert "'MyPolicy'" in message
    assert "PolicySpec" not in message, "what the module only imports is no suggestion"


@pytest.mark.parametrize("base", ["(Policy)", ""])
def test_a_policy_without_act(module: Module, base: str) -> None:
    source = WHOLE.replace("(Policy)", base).replace("def act", "def react")
    assert "act()" in refusal(f"{module(source)}:MyPolicy")


def test_a_policy_without_new_session(module: Module) -> None:
    assert "new_session()" in refusal(f"{module(WHOLE.replace('(Policy)', ''))}:MyPolicy")


@pytest.mark.parametrize("spec", ["pass", "self.spec = None", "self.spec = {'action_dim': 2}"])
def test_a_policy_without_a_spec(module: Module, spec: str) -> None:
    source = WHOLE.replace("self.spec = PolicySpec(action_dim=2)", spec)
    assert "`spec`" in refusal(f"{module(source)}:MyPolicy")


def test_a_constructor_that_raises(module: Module) -> None:
    with pytest.raises(UsageError, match=r"gain=-1.*ValueError: a gain of -1 makes no sense"):
        load_policy(f"{module(WHOLE)}:MyPolicy", {"gain": -1})


def test_arguments_that_the_policy_does_not_take(module: Module) -> None:
    with pytest.raises(UsageError, match=r"unknown argument of the policy .*: 'gian'. Did you mean 'gain'"):
        load_policy(f"{module(WHOLE)}:MyPolicy", {"gian": 1})
    with pytest.raises(UsageError) as caught:
        load_policy("expert", {"lok": ["camera"]}, experts={"toy": "toy_policies:Forward"})
    assert str(caught.value) == "unknown argument of the policy 'expert': 'lok'. Did you mean 'look'?"


@pytest.mark.parametrize(
    "arguments",
    [{"chunk": 0}, {"chunk": "many"}, {"chunk": 1.5}, {"observations": "observation.image"}, {"history": 0}],
    ids=str,
)
def test_arguments_that_make_no_sense_are_bad_usage(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        load_policy("zero", arguments)
    assert repr(next(iter(arguments.values()))) in str(caught.value)


@pytest.mark.parametrize(
    "spec",
    ["PolicySpec(action_dim=2.5)", "PolicySpec(action_dim='2')", "PolicySpec({'a': TensorSpec('floaty')})"],
)
def test_a_spec_that_cannot_be_told_to_clients_is_bad_usage(module: Module, spec: str) -> None:
    source = WHOLE.replace("PolicySpec\n", "PolicySpec, TensorSpec\n", 1).replace("PolicySpec(action_dim=2)", spec)
    with pytest.raises(UsageError):
        load_policy(f"{module(source)}:MyPolicy", {})


@pytest.mark.parametrize(
    ("module_name", "advice"),
    [
        ("torch", ": pip install 'sparring[torch]'"),
        ("metaworld_expert", ": pip install 'sparring[metaworld]'"),
        ("blind", ""),
    ],
)
def test_what_a_policy_of_ours_lacks_is_advised_if_an_extra_brings_it(
    monkeypatch: pytest.MonkeyPatch, module_name: str, advice: str
) -> None:
    def lacking(name: str) -> Any:
        raise ModuleNotFoundError("No module named 'simulator'", name="simulator")

    monkeypatch.setattr(importlib, "import_module", lacking)  # whatever such a module imports is installed here
    with pytest.raises(UsageError) as refused:
        load_policy(f"sparring.policy_server.policies.{module_name}:Class", {})
    assert str(refused.value).endswith(f"needs 'simulator', which is not installed{advice}.")
    assert not isinstance(refused.value, CodeBroken), "our own frames help nobody: no traceback is kept of it"


def test_a_file_without_a_class_is_told_from_a_name() -> None:
    said = refusal("my_module.py")
    assert "'my_module.py' is the name of a file" in said
    assert "my_module:Class" in said


def test_a_lerobot_checkpoint_without_lerobot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lerobot", None)  # as where it is not installed
    for name in [name for name in sys.modules if name.startswith("lerobot.")]:
        monkeypatch.delitem(sys.modules, name)
    message = refusal("lerobot:some/checkpoint")
    assert "needs LeRobot, which is not installed: pip install 'sparring[lerobot]'" in message


def test_a_lerobot_checkpoint_without_a_name() -> None:
    assert "names no checkpoint" in refusal("lerobot:")
    assert "give lerobot:FOLDER" in refusal("lerobot")


@pytest.mark.parametrize("where", ["import", "constructor"])
def test_a_policy_that_calls_exit_is_a_sentence(module: Module, where: str) -> None:
    """Programs that were made policies of parse a command line of their own, and exit where they do not like it."""
    quits = "raise SystemExit(2)"
    source = WHOLE + f"\n{quits}\n" if where == "import" else WHOLE.replace("self.gain = gain", quits)
    said = refusal(f"{module(source)}:MyPolicy")
    assert "SystemExit: 2" in said


# ------------------------------------------------------------------------------------ the current folder


def test_nothing_but_a_users_own_module_is_looked_for_in_the_current_folder(module: Module) -> None:
    """It may be a checkpoint's, or one of downloads: a module there would be imported in the place of a library."""
    here = os.getcwd()
    sys.path[:] = [path for path in sys.path if path not in ("", here)]
    load_policy("zero", {})
    assert "not installed" in refusal("lerobot:somewhere") or "no folder" in refusal("lerobot:somewhere")
    assert here not in sys.path
    load_policy(f"{module(WHOLE)}:MyPolicy", {})
    assert here in sys.path


@pytest.mark.processes
def test_a_server_that_is_started_in_a_hostile_folder(tmp_path: Path) -> None:
    for name in ("grpc", "numpy", "google", "logging"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')\n")
    command = [sys.executable, "-P", "-m", "sparring", "serve", "--policy", "zero", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert "listening" in server.stdout.readline()
        finally:
            server.kill()
    assert not (tmp_path / "run").exists()


def test_a_wire_that_nobody_speaks_is_no_module() -> None:
    with pytest.raises(UsageError, match=r"unknown wire of a policy's address: 'opnpi'\. Did you mean 'openpi'"):
        load_policy("opnpi://gpu-box:8000", {})
