"""A LeRobot checkpoint on disk or on the hub: found, checked, and loaded without running anything it contains."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import inspect
import io
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from sparring.policy_server.policies._lerobot.inspection import (
    ADAPTER_CONFIG,
    CONFIG,
    PROCESSORS,
    Demand,
    demands_of,
    read_json,
    refuse,
)
from sparring.policy_server.policies._lerobot.light_import import import_all_families, import_light
from sparring.policy_server.policies.checkpoints import check_safetensors, looks_like_pickle, sha256_of
from sparring.protos.errors import UsageError, unknown

WEIGHTS: Final = "model.safetensors"
ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"
_PICKLES: Final = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_HUB_ID: Final = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")
_INSTALL: Final = "pip install 'sparring[lerobot]' (docs/lerobot.md)"


@dataclass(frozen=True)
class Checkpoint:
    """A folder with everything that a policy needs, checked to be whole."""

    folder: Path
    type: str
    adapter: bool
    """Whether the folder holds a PEFT adapter, and the weights it adapts are elsewhere."""

    trusted: Sequence[Demand] = ()
    """What would have been refused, had the user not said that the checkpoint is trusted."""

    @property
    def sha256(self) -> str:
        """One hash of all that decides the policy's numbers: configuration, weights, processors, statistics."""
        names = {CONFIG, WEIGHTS, ADAPTER_CONFIG, ADAPTER_WEIGHTS, *PROCESSORS, *_states_of(self.folder)}
        files = [p for p in self.folder.iterdir() if p.name in names or p.match("policy_p*processor*.safetensors")]
        return sha256_of([*sorted(files), *self._adapted()])

    def _adapted(self) -> list[Path]:
        """Returns the weights that an adapter adapts."""
        base = read_json(self.folder / ADAPTER_CONFIG).get("base_model_name_or_path") if self.adapter else None
        return [open_checkpoint_weights(str(base)) / WEIGHTS] if base else []


def _states_of(folder: Path) -> set[str]:
    """Returns the files that steps of processors have their numbers from, whatever these are called."""
    steps = (step for name in PROCESSORS for step in read_json(folder / name)["steps"])
    return {str(step["state_file"]) for step in steps if step.get("state_file") is not None}


def require_lerobot() -> None:
    """Raises a `UsageError` where LeRobot is not installed."""
    if importlib.util.find_spec("lerobot") is None:
        raise UsageError(f"a LeRobot checkpoint needs LeRobot, which is not installed: {_INSTALL}.")


def import_lerobot(family: str) -> None:
    """Imports what a checkpoint of a family needs of LeRobot, which takes seconds; all of LeRobot takes twice as long.

    Raises:
        UsageError: If something that LeRobot needs is not installed.
    """
    if import_light(family):
        return
    try:
        import lerobot.configs.policies
        import lerobot.policies.factory  # noqa: F401
    except ImportError as error:
        raise UsageError(f"LeRobot does not import ({error}); something it needs is missing: {_INSTALL}.") from error


def open_checkpoint(
    reference: str, *, given: Mapping[str, Any] = MappingProxyType({}), trust: bool = False
) -> Checkpoint:
    """Opens the checkpoint that `lerobot:REFERENCE` means: a folder, or `owner/name[@revision]` on the hub.

    Args:
        reference: The folder, or the hub id.
        given: Fields of its configuration that the user replaces.
        trust: Whether it may ask for code to be run, and for files outside of its folder.

    Raises:
        UsageError: If there is none, it is not whole, or it asks for what it may not.
    """
    folder = Path(reference).expanduser()
    if not folder.is_dir():
        folder = _downloaded(reference)
    # LeRobot's training writes checkpoints/005000/pretrained_model; both folders are what people call the checkpoint.
    if not (folder / CONFIG).exists() and (folder / "pretrained_model" / CONFIG).exists():
        folder = folder / "pretrained_model"
    return _checked(folder, given, trust=trust)


def _downloaded(reference: str) -> Path:
    match = _HUB_ID.fullmatch(reference)
    if Path(reference).expanduser().exists():
        raise UsageError(f"{reference!r} is a file; a LeRobot checkpoint is a folder with {CONFIG} and {WEIGHTS}.")
    if match is None:
        raise UsageError(
            f"there is no folder {reference!r}; a checkpoint is a folder or a hub id like lerobot/act_aloha_sim."
        )
    from huggingface_hub import snapshot_download

    try:
        with _quiet_stdout():
            return Path(
                snapshot_download(
                    match["repository"], revision=match["revision"], allow_patterns=["*.json", "*.safetensors"]
                )
            )
    except Exception as error:  # the hub's own errors, those of whichever HTTP library it uses, and the disk's
        raise UsageError(
            f"there is no folder {reference!r}, and as a hub id it cannot be fetched ({_first_line(error)}). Is the "
            "name right, is the hub reachable, and for a private repository, are you logged in (hf auth login)?"
        ) from error


def _checked(folder: Path, given: Mapping[str, Any], *, trust: bool) -> Checkpoint:
    if not (folder / CONFIG).is_file():
        pickles = [p.name for p in folder.iterdir() if p.suffix in _PICKLES]
        found = f"it has {', '.join(sorted(p.name for p in folder.iterdir())[:8]) or 'no files'}"
        if pickles:
            found = f"{pickles[0]} is a pickle, which may run any code when it is read, and is not read"
        raise UsageError(f"{str(folder)!r} is no LeRobot checkpoint, or only half of one: no {CONFIG}; {found}.")
    config = read_json(folder / CONFIG)
    if not isinstance(config.get("type"), str):
        raise UsageError(f"{str(folder / CONFIG)!r} does not say which type of policy it is for; LeRobot writes it.")
    demands = demands_of(folder, given)
    if not trust:
        refuse(folder, demands)
    adapter = (folder / ADAPTER_CONFIG).is_file() or bool(config.get("use_peft"))
    weights = folder / (ADAPTER_WEIGHTS if adapter else WEIGHTS)
    if not weights.exists():
        raise _no_weights(folder, weights)
    check_safetensors(weights)
    for name in PROCESSORS:
        _check_processor(folder, name)
    return Checkpoint(folder, config["type"], adapter, tuple(demands))


def _no_weights(folder: Path, weights: Path) -> UsageError:
    for path in sorted(folder.iterdir()):
        if path.suffix in _PICKLES and path.is_file() and looks_like_pickle(path):
            return UsageError(
                f"{str(path)!r} is a pickle, which may run any code when it is read, where {weights.name} belongs; it "
                "is not read. LeRobot's save_pretrained() writes safetensors."
            )
    return UsageError(f"the checkpoint {str(folder)!r} has no {weights.name}; was it written or copied to the end?")


def _check_processor(folder: Path, name: str) -> None:
    if not (folder / name).is_file():
        raise UsageError(
            f"the checkpoint {str(folder)!r} has no {name}. If it was saved by LeRobot before 0.4, convert it with "
            f"python -m lerobot.processor.migrate_policy_normalization --pretrained-path {folder}; "
            "else it was not written or copied to the end."
        )
    steps = read_json(folder / name).get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise UsageError(f"{str(folder / name)!r} has no list of steps; LeRobot writes one.")
    for step in steps:
        if "state_file" in step:
            check_safetensors(folder / str(step["state_file"]))


def processor_steps(checkpoint: Checkpoint, name: str) -> dict[str, Mapping[str, Any]]:
    """Reads the settings of a processor's steps, by the names they are registered with."""
    return {
        str(step.get("registry_name", "")): step.get("config") or {}
        for step in read_json(checkpoint.folder / name)["steps"]
    }


def require_steps(checkpoint: Checkpoint) -> None:
    """Imports more of LeRobot, if its processors have steps that are not its family's: whose they are is not known."""
    from lerobot.processor.pipeline import ProcessorStepRegistry

    known = {"", *ProcessorStepRegistry.list()}
    if any(step not in known for name in PROCESSORS for step in processor_steps(checkpoint, name)):
        import_all_families()


def read_config(checkpoint: Checkpoint, overrides: Mapping[str, Any]) -> Any:
    """Reads LeRobot's configuration of the policy, and replaces some of its fields.

    Raises:
        UsageError: If the type or a field is not known, or a value is not possible.
    """
    from lerobot.configs.policies import PreTrainedConfig

    with contextlib.suppress(ImportError):  # policies that people have installed beside LeRobot
        from lerobot.utils.import_utils import register_third_party_plugins

        register_third_party_plugins()
    if checkpoint.type not in PreTrainedConfig.get_known_choices():
        import_all_families()
    choices = PreTrainedConfig.get_known_choices()
    if checkpoint.type not in choices:
        known = ", ".join(sorted(choices))
        raise unknown("LeRobot policy type", checkpoint.type, choices, hint=f"This LeRobot knows: {known}.")
    fields = [field.name for field in dataclasses.fields(choices[checkpoint.type])]
    for name in overrides:
        if name.split(".")[0] not in fields:
            raise unknown(f"argument of a LeRobot policy of type {checkpoint.type!r}:", name, fields)
    arguments = [f"--{name}={v if isinstance(v, str) else json.dumps(v)}" for name, v in overrides.items()]
    complaint = io.StringIO()
    try:
        with _quiet_stdout(), contextlib.redirect_stderr(complaint), _no_leftovers():
            config: Any = PreTrainedConfig.from_pretrained(checkpoint.folder, cli_overrides=arguments)
    except (Exception, SystemExit) as error:  # draccus raises many kinds, and exits where argparse does
        given = ", ".join(f"{k}={v!r}" for k, v in overrides.items() if k != "device")
        said = complaint.getvalue().strip().splitlines()
        why = said[-1] if isinstance(error, SystemExit) and said else _first_line(_first_cause(error))
        raise UsageError(
            f"the configuration in {str(checkpoint.folder)!r} cannot be used{f' with {given}' if given else ''}: {why}"
        ) from error
    config.pretrained_path = checkpoint.folder
    return config


def load_module(checkpoint: Checkpoint, config: Any, *, strict: bool) -> Any:
    """Loads the policy with its weights, in eval mode, on the configuration's device.

    Raises:
        UsageError: If the weights are not those of the configuration, or something that the type needs is missing.
    """
    from lerobot.policies.factory import get_policy_class
    from lerobot.policies.pretrained import PreTrainedPolicy

    if hasattr(config, "pretrained_backbone_weights") and strict:
        config.pretrained_backbone_weights = None  # every weight comes from the checkpoint; nothing to download first
    try:
        kind: Any = get_policy_class(config.type)
        # Families with a loader of their own (pi0, X-VLA, GR00T, ...) rename weights in it, and say what must be there.
        own_loader = kind.from_pretrained.__func__ is not PreTrainedPolicy.from_pretrained.__func__
        options = {"strict": strict} if not own_loader or (not strict and _takes_strict(kind)) else {}
        with _quiet_stdout():
            if checkpoint.adapter:
                return _adapted(kind, checkpoint, config, options, strict=strict)
            return _loaded(kind, checkpoint.folder, config, options, strict=strict)
    except UsageError:
        raise
    except ImportError as error:
        raise UsageError(
            f"a LeRobot policy of type {config.type!r} needs something that is not installed ({error}); "
            f"pip install 'lerobot[{config.type}]' brings what it needs."
        ) from error
    except (
        Exception
    ) as error:  # torch and LeRobot raise RuntimeError, KeyError, ValueError, ... for weights that differ
        raise UsageError(
            f"the weights in {str(checkpoint.folder)!r} do not fit its {CONFIG} ({_summary(error)}). Are both of the "
            "same training run, and is this LeRobot as new as the one that saved them? (strict=false takes what fits.)"
        ) from error


def _takes_strict(kind: Any) -> bool:
    return "strict" in inspect.signature(kind.from_pretrained).parameters


def _loaded(kind: Any, folder: Path, config: Any, options: Mapping[str, Any], *, strict: bool) -> Any:
    """Returns what `from_pretrained` returns, if it has loaded the weights.

    Some of LeRobot's loaders (pi0, pi0.5, pi0-FAST) print that they could not, and return the random weights that a
    network begins with. An evaluation of those would look like one of a policy that has learned nothing.
    """
    outcomes: list[Exception | None] = []

    def load_state_dict(self: Any, *arguments: Any, **keywords: Any) -> Any:
        try:
            result = kind.load_state_dict(self, *arguments, **keywords)
        except Exception as error:
            outcomes.append(error)
            raise
        outcomes.append(None)
        return result

    # Through a class of its own, so that LeRobot's stays as it is.
    namespace = {"load_state_dict": load_state_dict, "config_class": kind.config_class, "name": kind.name}
    watched: Any = type(kind.__name__, (kind,), namespace)
    module = watched.from_pretrained(str(folder), config=config, **options)
    if type(module) is watched:
        object.__setattr__(module, "__class__", kind)
    if outcomes and outcomes[-1] is not None:
        raise outcomes[-1]
    if not outcomes and strict:
        raise RuntimeError("LeRobot's loader has not loaded them; what it says is in the log")
    return module


def _adapted(kind: Any, checkpoint: Checkpoint, config: Any, options: Mapping[str, Any], *, strict: bool) -> Any:
    try:
        from peft import PeftConfig, PeftModel
    except ImportError as error:
        raise UsageError(
            f"{str(checkpoint.folder)!r} is a PEFT adapter, and peft is not installed: pip install peft."
        ) from error
    adapter = PeftConfig.from_pretrained(str(checkpoint.folder))
    base = adapter.base_model_name_or_path
    if not base:
        raise UsageError(f"the adapter in {str(checkpoint.folder)!r} does not say which checkpoint it adapts.")
    whole = open_checkpoint_weights(str(base))
    policy = _loaded(kind, whole, config, options, strict=strict)
    return PeftModel.from_pretrained(policy, str(checkpoint.folder), config=adapter).eval()


def open_checkpoint_weights(reference: str) -> Path:
    """Returns the folder of the weights that an adapter adapts; checked to be safetensors."""
    folder = Path(reference).expanduser()
    if not folder.is_dir():
        folder = _downloaded(reference)
    if not (folder / WEIGHTS).exists():
        raise _no_weights(folder, folder / WEIGHTS)
    check_safetensors(folder / WEIGHTS)
    return folder


@contextlib.contextmanager
def _quiet_stdout() -> Iterator[None]:
    """Hides what LeRobot prints while it loads: a policy server's stdout is for the program that started it."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


@contextlib.contextmanager
def _no_leftovers() -> Iterator[None]:
    """Removes the temporary file that LeRobot writes the configuration to and leaves: it is in a folder of our own."""
    usual = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="sparring-config-") as folder:
        tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = usual


def _first_cause(error: BaseException) -> BaseException:
    """Returns what draccus only says that it could not do anything with."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _summary(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return " ".join(lines[:4])[:400] if lines else type(error).__name__
