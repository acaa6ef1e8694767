"""A checkpoint is data: checkpoints that would run code, or reach out of their folder, and what becomes of them.

Every one of them would leave a file behind if what it brings were run. That they really would is tested, too: with
`trust=true`, they do.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import act_config, save
from safetensors.torch import save_file
from sessions import alone, load
from test_lerobot_policy import refusal
from tiny_models import LEROBOT, in_cache, smolvla_config, tokenizer

from sparring.policy_server.policies import lerobot as adapter
from sparring.policy_server.policies._lerobot import inspection
from sparring.policy_server.policies._lerobot.checkpoint import open_checkpoint
from sparring.policy_server.policies._lerobot.code_guard import CodeGuard
from sparring.protos.errors import UsageError

PRE, POST = "policy_preprocessor.json", "policy_postprocessor.json"


@pytest.fixture(scope="module")
def harmless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(act_config(32), tmp_path_factory.mktemp("harmless") / "checkpoint")


@pytest.fixture
def folder(harmless: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(harmless, tmp_path / "checkpoint"))


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """What would be there if anything had been run."""
    return tmp_path / "run"


@pytest.fixture
def lerobot_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals come before LeRobot is imported; in here it is, so that it is not asked to be is what can be seen."""
    monkeypatch.setattr(adapter, "import_lerobot", lambda: pytest.fail("LeRobot was asked to load it"))


def edit(file: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def advises_trust(message: str) -> bool:
    return message.count("say trust=True where the policy is made") == 1


class Trap:
    """A pickle that leaves a trace when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


def code(marker: Path) -> str:
    return f"import pathlib\npathlib.Path({str(marker)!r}).touch()\n\n\nclass Anything:\n    pass\n"


def repository(name: str, marker: Path, kinds: dict[str, str], *files: str) -> str:
    """A repository of somebody else in the hub's cache, whose files name code that is beside them."""
    where = in_cache(name)
    (where / "anything.py").write_text(code(marker))
    for file in files:
        about = {"model_type": "anything", "auto_map": {kind: f"anything.{cls}" for kind, cls in kinds.items()}}
        (where / file).write_text(json.dumps(about))
    return name


# ------------------------------------------------------------------------------------ steps of processors


@pytest.mark.parametrize("file", [PRE, POST])
@pytest.mark.parametrize("place", [0, -1])
def test_a_class_is_not_called(folder: Path, marker: Path, file: str, place: int, lerobot_is_not_asked: None) -> None:
    step = {"class": "subprocess.Popen", "config": {"args": ["touch", str(marker)]}}
    edit(folder / file, lambda content: content["steps"].insert(place, step))
    message = refusal(folder)
    assert file in message
    assert "class 'subprocess.Popen', is code to import and call" in message
    assert advises_trust(message)
    assert not marker.exists()


STEPS: dict[str, dict[str, Any]] = {
    "lerobot's own, unregistered": {"class": "lerobot.processor.pipeline.IdentityProcessorStep"},
    "a function of lerobot's": {"class": "lerobot.utils.utils.say", "config": {"text": "hello"}},
    "no name at all": {"registry_name": None, "class": "os.system", "config": {"command": "true"}},
    "a number": {"registry_name": 7, "class": "os.system"},
    "neither": {"config": {}},
    "a module only": {"class": "antigravity.anything"},
    "a tokenizer of actions": {"registry_name": "action_tokenizer_processor"},
    "trust by configuration": {"registry_name": "tokenizer_processor", "config": {"trust_remote_code": True}},
    "a state elsewhere": {"registry_name": "normalizer_processor", "state_file": "../elsewhere.safetensors"},
    "an absolute state": {"registry_name": "normalizer_processor", "state_file": "/etc/hostname"},
    "a path": {"registry_name": "tokenizer_processor", "config": {"tokenizer_name": "/etc"}},
    "a path upwards": {"registry_name": "tokenizer_processor", "config": {"tokenizer_name": "a/../../b"}},
    "a path from home": {"registry_name": "tokenizer_processor", "config": {"tokenizer_name": "~/tokenizer"}},
    "an address": {"registry_name": "tokenizer_processor", "config": {"tokenizer_name": "file:///etc"}},
    "a server": {"registry_name": "tokenizer_processor", "config": {"tokenizer_name": "http://127.0.0.1:9/tokenizer"}},
    "hydra": {"registry_name": "to_batch_processor", "config": {"deep": [{"_target_": "os.system"}]}},
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_steps_that_are_refused(folder: Path, step: dict[str, Any], lerobot_is_not_asked: None) -> None:
    edit(folder / PRE, lambda content: content["steps"].append(step))
    message = refusal(folder)
    assert PRE in message
    assert advises_trust(message)


def test_a_name_that_is_not_registered(folder: Path) -> None:
    edit(folder / PRE, lambda content: content["steps"].append({"registry_name": "os.system", "config": {}}))
    assert "'os.system' not found in registry" in refusal(folder)


def test_whoever_is_trusted_is_and_it_is_said(folder: Path, marker: Path, caplog: pytest.LogCaptureFixture) -> None:
    edit(
        folder / PRE, lambda content: content["steps"].insert(0, {"class": "os.mkdir", "config": {"path": str(marker)}})
    )
    refusal(folder)
    assert not marker.exists()
    refusal(folder, trust=True)  # what os.mkdir returns is no step; but that is seen when it has been called
    assert marker.exists(), "or it would not have been a hostile one"
    assert (
        f"is trusted like your own code. What would be refused otherwise: {PRE}: step 0, class 'os.mkdir'"
        in caplog.text
    )
    assert "the module 'os' is run, because the checkpoint is trusted" in caplog.text
    assert "trust must be true or false" in refusal(folder, trust="perhaps")


def test_a_harmless_one_that_is_trusted(folder: Path) -> None:
    (warning,) = load(folder, trust=True).warnings
    assert "is trusted like your own code" in warning
    assert "nothing that can be seen in its files" in warning
    assert load(folder).warnings == []


def test_a_hub_id_is_no_better(harmless: Path, marker: Path, lerobot_is_not_asked: None) -> None:
    snapshot = in_cache("someone/evil-act")
    shutil.copytree(harmless, snapshot, dirs_exist_ok=True)
    step = {"class": "subprocess.Popen", "config": {"args": ["touch", str(marker)]}}
    edit(snapshot / PRE, lambda content: content["steps"].append(step))
    assert "'subprocess.Popen'" in refusal("someone/evil-act")
    assert not marker.exists()


def test_a_file_that_changes_after_it_was_looked_at(
    folder: Path, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder may be on a disk that others write to: LeRobot's own import is closed as well."""
    step = {"class": "subprocess.Popen", "config": {"args": ["touch", str(marker)]}}
    read = adapter.read_config

    def and_then(*arguments: Any) -> Any:
        edit(folder / PRE, lambda content: content["steps"].append(step))
        return read(*arguments)

    monkeypatch.setattr(adapter, "read_config", and_then)
    message = refusal(folder)
    assert "the module 'subprocess'" in message
    assert advises_trust(message)
    assert not marker.exists()


# ------------------------------------------------------------------------------------ the configuration

FIELDS: dict[str, Any] = {
    "auto_map": {"AutoConfig": "anything.Anything"},
    "_target_": "os.system",
    "trust_remote_code": True,
    "attn_implementation": "someone/kernels:evil",
    "vision_attn_implementation": {"text": "paged|someone/kernels"},
    "vlm_model_name": "/etc",
    "pretrained_backbone_weights": "../../weights.pt",
    "tokenizer_name": "C:\\models\\tokenizer",
}


@pytest.mark.parametrize("depth", [0, 3])
@pytest.mark.parametrize("field", FIELDS)
def test_fields_that_are_refused(folder: Path, field: str, depth: int, lerobot_is_not_asked: None) -> None:
    value = {field: FIELDS[field]}
    for _ in range(depth):
        value = {"inner": [value]}
    edit(folder / "config.json", lambda content: content.update(value))
    message = refusal(folder)
    assert "config.json: " in message
    assert field in message
    assert advises_trust(message)


def test_paths_that_are_only_told_are_fine(folder: Path) -> None:
    """What training, and whoever saved a part of it, left behind; and letters that are no paths."""
    told = {
        "pretrained_path": "/home/someone/base",
        "output_dir": "./tmp/gr00t",
        "dataset_paths": ["/data/a", "/data/b"],
        "vlm_config": {"_name_or_path": "/home/someone/vlm", "separators": ["/", "~", "..."]},
        "tokenizer_name": "someone/tokenizer",
    }
    edit(folder / "config.json", lambda content: content.update(told))
    saved = {"name_or_path": "/home/someone/tokenizer", "added_tokens_decoder": {"1": {"content": "/.."}}}
    (folder / "tokenizer_config.json").write_text(json.dumps(saved))
    assert open_checkpoint(str(folder)).trusted == ()


def test_what_the_user_names_is_the_users(folder: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "vlm")
    edit(folder / "config.json", lambda content: content.update(vlm_model_name=path))
    edit(folder / PRE, lambda content: content["steps"][0].setdefault("config", {}).update(tokenizer_name=path))
    assert "if it is yours, name it with vlm_model_name" in refusal(folder)
    assert open_checkpoint(str(folder), given={"vlm_model_name": path}).trusted == ()


@pytest.mark.parametrize("name", ["evil", "evil.module", "evil.module:Class", "lerobot.policies.act.ACTConfig"])
def test_a_type_is_not_imported(folder: Path, marker: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder.parent / "path"
    package.mkdir()
    (package / "evil.py").write_text(code(marker))
    monkeypatch.syspath_prepend(str(package))
    edit(folder / "config.json", lambda content: content.update(type=name))
    assert "unknown LeRobot policy type" in refusal(folder)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["pi0_fast", "wall_x"])
def test_tokenizers_that_are_code_by_design(folder: Path, name: str, lerobot_is_not_asked: None) -> None:
    edit(folder / "config.json", lambda content: content.update(type=name))
    message = refusal(folder, trust=False)
    assert f"type {name!r} has a tokenizer of actions" in message
    assert advises_trust(message)


def test_code_in_a_repository_that_the_configuration_names(folder: Path, marker: Path) -> None:
    """LeRobot loads this family's encoder with trust_remote_code=True, whatever its name is."""
    kind = "gaussian_actor" if LEROBOT >= (0, 6) else "sac"
    config = json.loads((folder / "config.json").read_text())
    kept = {name: config[name] for name in ("input_features", "output_features", "device", "push_to_hub")}
    name = repository("someone/encoder", marker, {"AutoConfig": "Anything", "AutoModel": "Anything"}, "config.json")
    content = {
        "type": kind,
        **kept,
        "vision_encoder_name": name,
        "dataset_stats": None,
    }
    (folder / "config.json").write_text(json.dumps(content))
    message = refusal(folder)
    assert "someone/encoder" in message
    assert "to be run" in message
    assert advises_trust(message)
    assert not marker.exists()
    with pytest.raises(UsageError):  # what it brings is no encoder
        load(folder, trust=True)
    assert marker.exists(), "or it would not have been a hostile one"


def test_code_of_a_tokenizer(folder: Path, marker: Path) -> None:
    files = ("tokenizer_config.json", "config.json")
    name = repository("someone/tokenizer", marker, {"AutoConfig": "Anything", "AutoTokenizer": "Anything"}, *files)
    edit(
        in_cache(name) / files[0], lambda content: content["auto_map"].update(AutoTokenizer=["anything.Anything", None])
    )
    step = {"registry_name": "tokenizer_processor", "config": {"tokenizer_name": name}}
    edit(folder / PRE, lambda content: content["steps"].append(step))
    assert "cannot be made" in refusal(folder)
    assert not marker.exists()


@pytest.mark.parametrize("file", ["tokenizer_config.json", "processor_config.json", "preprocessor_config.json"])
def test_code_beside_the_checkpoint(folder: Path, marker: Path, file: str, lerobot_is_not_asked: None) -> None:
    tokenizer().save_pretrained(folder)
    (folder / "anything.py").write_text(code(marker))
    (folder / file).write_text(json.dumps({"auto_map": {"AutoTokenizer": ["anything.Anything", None]}}))
    step = {"registry_name": "tokenizer_processor", "config": {"tokenizer_name": str(folder)}}
    edit(folder / PRE, lambda content: content["steps"].append(step))
    assert f"{file}: auto_map" in refusal(folder)
    assert not marker.exists()


@pytest.mark.parametrize("weights", ["pytorch_model.bin", "model.safetensors"])
def test_pickled_weights_of_a_model_underneath(tmp_path: Path, marker: Path, weights: str) -> None:
    """SmolVLA takes its language model from wherever the checkpoint says."""
    folder = save(smolvla_config(), tmp_path / "smolvla")
    other = in_cache(f"someone/{tmp_path.name}")
    shutil.copytree(smolvla_config().vlm_model_name, other, dirs_exist_ok=True)
    (other / "model.safetensors").unlink()
    torch.save({"weight": Trap(marker)}, other / weights)
    edit(folder / "config.json", lambda content: content.update(vlm_model_name=str(other), load_vlm_weights=True))
    refusal(folder)
    assert not marker.exists()


# ------------------------------------------------------------------------------------ adapters


def adapt(folder: Path, **fields: Any) -> None:
    about = {"peft_type": "LORA", "base_model_name_or_path": str(folder), "target_modules": ".*linear1", "r": 4}
    (folder / "adapter_config.json").write_text(json.dumps({**about, **fields}))
    save_file({"nothing": torch.zeros(1)}, folder / "adapter_model.safetensors")


@pytest.mark.parametrize(
    "fields",
    [
        {"auto_mapping": {"parent_library": "evil", "base_model_class": "Anything"}},
        {"auto_mapping": "evil"},
        {"megatron_core": "evil", "megatron_config": {"a": 1}},
        {"megatron_core": "evil"},
        {"corda_config": {"cache_file": "/somewhere/cache.pt"}},
        {"tokenizer_name_or_path": "../tokenizer"},
    ],
    ids=str,
)
def test_adapters_that_are_refused(folder: Path, fields: dict[str, Any], lerobot_is_not_asked: None) -> None:
    adapt(folder, **fields)
    message = refusal(folder)
    assert "adapter_config.json: " in message
    assert advises_trust(message)


def test_the_base_of_an_adapter_is_read_as_safetensors_only(folder: Path, marker: Path) -> None:
    base = folder.parent / "base"
    base.mkdir()
    torch.save({"weight": Trap(marker)}, base / "pytorch_model.bin")
    adapt(folder, base_model_name_or_path=str(base))
    assert "is a pickle" in refusal(folder)
    (base / "pytorch_model.bin").rename(base / "model.safetensors")
    assert "is a pickle" in refusal(folder)
    assert not marker.exists()


# ------------------------------------------------------------------------------------ files


@pytest.mark.parametrize("dump", [torch.save, lambda trap, path: path.write_bytes(pickle.dumps(trap))])
@pytest.mark.parametrize("pattern", ["model.safetensors", "policy_preprocessor*.safetensors"])
def test_pickles_in_the_place_of_weights_and_statistics(folder: Path, marker: Path, pattern: str, dump: Any) -> None:
    (file,) = folder.glob(pattern)
    dump(Trap(marker), file)
    assert f"{file.name!r} is a pickle".replace("'", "") in refusal(folder).replace("'", "")
    assert not marker.exists()


def test_files_that_nobody_asked_for_are_not_read(folder: Path, marker: Path) -> None:
    """Old LeRobot, openpi and others leave statistics and weights of all kinds beside a checkpoint."""
    for name in ("stats.pt", "pytorch_model.bin", "optimizer.pth", "dataset_stats.pkl", "norm_stats.npz"):
        torch.save(Trap(marker), folder / name)
    (folder / "config.yaml").write_text(f"a: !!python/object/apply:os.system ['touch {marker}']\n")
    (folder / "hubconf.py").write_text(code(marker))
    (folder / "modeling_act.py").write_text(code(marker))
    load(folder)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["config.json", PRE, "model.safetensors"])
def test_links_out_of_the_folder(folder: Path, tmp_path: Path, name: str, lerobot_is_not_asked: None) -> None:
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    assert f"{name} is a link to" in refusal(folder)
    assert open_checkpoint(str(folder), trust=True).type == "act"


def test_links_out_of_a_folder_inside(folder: Path, tmp_path: Path, lerobot_is_not_asked: None) -> None:
    """Some families keep parts of a network in folders of their own."""
    (folder / "vae").mkdir()
    (folder / "vae" / "config.json").symlink_to("../config.json")
    assert open_checkpoint(str(folder)).trusted == ()
    (tmp_path / "elsewhere").write_text("{}")
    (folder / "vae" / "weights.json").symlink_to(tmp_path / "elsewhere")
    assert "vae/weights.json is a link to" in refusal(folder)


def test_links_that_stay_inside(folder: Path, tmp_path: Path) -> None:
    """`checkpoints/last` is a link, and so is every file of the hub's cache."""
    (tmp_path / "last").symlink_to(folder)
    (folder / "model.safetensors").rename(folder / "weights")
    (folder / "model.safetensors").symlink_to("weights")
    assert open_checkpoint(str(tmp_path / "last")).type == "act"
    repository = tmp_path / "models--a--b"
    shutil.copytree(folder, repository / "blobs")
    (repository / "snapshots" / "0").mkdir(parents=True)
    for blob in (repository / "blobs").iterdir():
        (repository / "snapshots" / "0" / blob.name).symlink_to(f"../../blobs/{blob.name}")
    assert open_checkpoint(str(repository / "snapshots" / "0")).type == "act"


@pytest.mark.parametrize("name", ["config.json", PRE, "adapter_config.json"])
def test_json_that_is_too_much(folder: Path, name: str, lerobot_is_not_asked: None) -> None:
    with (folder / name).open("w") as file:
        file.truncate(1 << 34)  # bytes that are not there: a file may have any size
    assert f"larger than {inspection.MOST_JSON >> 20} MiB" in refusal(folder)
    (folder / name).write_text("[" * 100_000)
    assert "nested deeper" in refusal(folder)
    (folder / name).write_text('{"a":' * 5_000 + "1" + "}" * 5_000)
    assert "nested deeper" in refusal(folder)


@pytest.mark.parametrize("name", ["tokenizer.json", "vae/config.json"])
def test_json_that_nobody_of_ours_reads_may_be_long_and_not_too_long(folder: Path, name: str) -> None:
    (folder / "vae").mkdir()
    with (folder / name).open("w") as file:
        file.truncate(inspection._MOST_OTHER_JSON)  # bytes that are not there
        assert open_checkpoint(str(folder)).type == "act"
        file.truncate(inspection._MOST_OTHER_JSON + 1)
    assert f"{name} is larger than 256 MiB, which no such file needs to be" in refusal(folder)


def test_names_do_not_reach_the_terminal_or_pass_for_advice(folder: Path, lerobot_is_not_asked: None) -> None:
    evil = "\x1b[2J{{policy_arg.strict=false}}"
    edit(folder / "config.json", lambda content: content.update({evil: {"_target_": evil}}))
    message = refusal(folder)
    assert "\x1b" not in message
    assert "strict=False" not in message
    assert advises_trust(message)


# ------------------------------------------------------------------------------------ the guard itself


def test_torch_reads_weights_only(marker: Path, tmp_path: Path) -> None:
    torch.save({"a": Trap(marker)}, tmp_path / "trap.pt")
    torch.save({"a": torch.ones(2)}, tmp_path / "tensors.pt")
    with CodeGuard(trust=False, told=pytest.fail)():
        assert torch.load(tmp_path / "tensors.pt", weights_only=False)["a"].sum() == 2
    with pytest.raises(UsageError, match=r"the pickle '.*trap\.pt'"), CodeGuard(trust=False, told=pytest.fail)():
        torch.load(tmp_path / "trap.pt", weights_only=False)
    assert not marker.exists()
    torch.load(tmp_path / "trap.pt", weights_only=False)
    assert marker.exists(), "outside of it, all is as ever"


def test_a_refusal_that_a_library_swallows_is_one_all_the_same(marker: Path, tmp_path: Path) -> None:
    from transformers import AutoConfig, dynamic_module_utils

    name = repository("someone/swallowed", marker, {"AutoConfig": "Anything"}, "config.json")
    usual = dynamic_module_utils.TIME_OUT_REMOTE_CODE

    def swallow() -> None:
        assert dynamic_module_utils.TIME_OUT_REMOTE_CODE == 0, "or it would ask at the terminal"
        with pytest.raises(UsageError):
            AutoConfig.from_pretrained(name, trust_remote_code=True)

    with pytest.raises(UsageError, match="someone/swallowed"), CodeGuard(trust=False, told=pytest.fail)():
        swallow()
    assert not marker.exists()
    assert usual == dynamic_module_utils.TIME_OUT_REMOTE_CODE
    told: list[str] = []
    guard = CodeGuard(trust=True, told=told.append)
    with pytest.raises(UsageError), CodeGuard(trust=False, told=pytest.fail)(), guard():
        AutoConfig.from_pretrained(name, trust_remote_code=True)
    assert not marker.exists(), "the least trusting one decides"
    with guard(), pytest.raises(AttributeError):  # it is no configuration
        AutoConfig.from_pretrained(name, trust_remote_code=True)
    assert marker.exists()
    assert any("anything.py" in sentence for sentence in told)


def test_kernels_are_code_too() -> None:
    hub_kernels = pytest.importorskip("transformers.integrations.hub_kernels")
    if not hasattr(hub_kernels, "get_kernel"):
        pytest.skip("this transformers takes them from a package that is not installed")
    with pytest.raises(UsageError, match="someone/kernels"), CodeGuard(trust=False, told=pytest.fail)():
        hub_kernels.get_kernel("someone/kernels")


def test_kernels_of_the_package_itself_are_code_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Some of transformers' networks fetch theirs past the function that the others call."""
    (tmp_path / "kernels.py").write_text("def get_kernel(repo_id):\n    return repo_id\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "kernels", raising=False)
    with pytest.raises(UsageError, match="someone/kernels"), CodeGuard(trust=False, told=pytest.fail)():
        importlib.import_module("kernels").get_kernel("someone/kernels")
    assert importlib.import_module("kernels").get_kernel("someone/kernels") == "someone/kernels"
    monkeypatch.delitem(sys.modules, "kernels")


def test_modules_that_an_adapter_names_are_not_imported_even_if_it_was_not_seen() -> None:
    """Of adapters in other repositories, or of a file that changes after it was looked at."""
    tp_layer = pytest.importorskip("peft.tuners.lora.tp_layer")
    auto = pytest.importorskip("peft.auto")
    for library in (tp_layer, auto):
        with pytest.raises(UsageError, match="the module 'evil'"), CodeGuard(trust=False, told=pytest.fail)():
            library.importlib.import_module("evil")
        assert library.importlib.import_module("json") is json, "outside of it, all is as ever"


def test_what_is_loaded_when_a_policy_first_acts(folder: Path, marker: Path) -> None:
    """Some networks load a part of themselves when they are first called, long after the checkpoint was looked at."""
    from transformers import AutoConfig

    name = repository("someone/late", marker, {"AutoConfig": "Anything"}, "config.json")
    policy = load(folder)
    for part in ("_pre", "_post"):
        usual = getattr(policy, part)

        def late(*arguments: Any, usual: Any = usual) -> Any:
            with contextlib.suppress(UsageError):
                AutoConfig.from_pretrained(name, trust_remote_code=True)
            return usual(*arguments)

        setattr(policy, part, late)
        with pytest.raises(UsageError, match="someone/late"):
            alone(policy, 1)
        setattr(policy, part, usual)
    assert not marker.exists()
