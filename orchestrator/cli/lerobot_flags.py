"""The flags of LeRobot's `lerobot-eval`, and the settings of a run that means the same by them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml

from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.cli.lerobot_environments import CAMERAS, ENVIRONMENTS, FIXED, WITHOUT_EFFECT
from sparring.orchestrator.settings import RunSettings, read_settings
from sparring.orchestrator.settings.yaml_text import read_yaml
from sparring.protos.comma_list import comma_list
from sparring.protos.errors import UsageError, unknown
from sparring.protos.named_file import read_named

_SEE: Final = "See docs/lerobot-eval.md."

_FLAGS: Final = (
    "policy.path",
    "env.type",
    "env.task",
    "env.max_parallel_tasks",
    "env.episode_length",
    "env.obs_type",
    "env.render_mode",
    "eval.n_episodes",
    "eval.batch_size",
    "eval.use_async_envs",
    "seed",
    "output_dir",
    "job_name",
    "rename_map",
    "trust_remote_code",
    "config_path",
    "env.fps",
    "env.multitask_eval",
    "env.disable_env_checker",
    "eval.recording",
    "eval.recording_repo_id",
    "eval.recording_private",
)
"""Beside `policy.ANYTHING`, which goes to the policy."""

_OWN_FLAGS: Final = tuple(dict.fromkeys(flag for kind in ENVIRONMENTS.values() for flag in kind.flags))
"""Those that not all environments have."""

_TEXTS: Final = frozenset(
    (
        "config_path",
        "policy.path",
        "env.type",
        "env.task",
        "env.control_mode",
        "env.obs_type",
        "env.render_mode",
        "env.camera_name",
        "output_dir",
        "job_name",
    )
)
"""Flags whose values are taken as they are: `005000` is the name of a folder, not a number."""

_NOT_TAKEN: Final = {
    "policy.type": "a policy with random weights is of no use here; give --policy.path",
    "policy.discover_packages_path": "install the package instead: LeRobot finds what is installed",
    "env.discover_packages_path": "benchmarks of your own are found by entry points (docs/benchmarks.md)",
    "env.features": "what a benchmark shows is not for the command line to say",
    "env.features_map": "names are mapped by --env.camera_name_mapping and --rename_map",
}
"""Flags that LeRobot has, and why there is no doing what they say."""

FILMED_EPISODES: Final = 10
"""Of each task, as LeRobot films them."""

_SECTIONS: Final = ("policy", "env", "eval")
_DEFAULT_SIDE: Final = 360
_IMAGES: Final = "observation.images."
_MOST_CONFIG: Final = 8 << 20
"""Of a configuration, in bytes; more of a checkpoint's the policy server refuses."""


@dataclass(frozen=True)
class Translated:
    """A run that means what a `lerobot-eval` command line said.

    Attributes:
        settings: Of the run.
        notes: What the user should know about flags that change nothing here.
    """

    settings: RunSettings
    notes: Sequence[str] = field(default_factory=tuple)


def translate(
    arguments: Sequence[str], *, own: Mapping[str, Any] | None = None, now: datetime | None = None
) -> Translated:
    """Returns the run that a command line of `lerobot-eval` asks for.

    Args:
        arguments: After the command's name: `--flag=value` or `--flag value`.
        own: Settings of Sparring's own that win over what follows from the flags.
        now: For the name of the output folder.

    Raises:
        UsageError: If a flag is unknown, missing, or says something that cannot be done here.
    """
    flags = _read(arguments)
    if flags.get("config_path"):
        flags = {**_read_file(Path(flags["config_path"])), **flags}
    kind = _required(flags, "env.type")
    if kind not in ENVIRONMENTS:
        raise unknown("--env.type", kind, ENVIRONMENTS, hint=_SEE)
    _check(flags, kind)
    path = _required(flags, "policy.path")
    episodes = _integer(flags, "eval.n_episodes", 50, least=1)
    values: dict[str, Any] = {
        "benchmark": kind,
        "task": _tasks(flags, kind),
        "benchmark_arg": _benchmark_arguments(flags, kind),
        "episodes": episodes,
        "seed": _integer(flags, "seed", 1000, least=0),
        "max_steps": _max_steps(flags, kind),
        "policy": _policy(flags, path),
        "policy_arg": _policy_arguments(flags, kind, path),
        "slots": _slots(flags, episodes),
        "max_parallel_tasks": _integer(flags, "env.max_parallel_tasks", 0, least=0),
        "video": f"first:{FILMED_EPISODES}",
        "video_names": "lerobot",
        "output": _output(flags, kind, path, now or datetime.now()),
    }
    own = own or {}
    if not own.keys() & {"policy", "policy_server"}:
        # As in LeRobot, images are shown in whatever size they have; unlike there, it is said.
        values["policy_arg"].setdefault("any_resolution", "warn")
    for name, value in own.items():
        values[name] = {**values[name], **value} if name in ("policy_arg", "benchmark_arg") else value
    known = ENVIRONMENTS[kind]
    vain = {flag: why for flag, (_, why) in {**WITHOUT_EFFECT, **known.without_effect}.items()} | dict(known.vain)
    notes = [f"--{flag} changes nothing here: {why}" for flag, why in vain.items() if flag in flags]
    return Translated(read_settings(values), notes)


def _read(arguments: Sequence[str]) -> dict[str, Any]:
    """Flags and their values; values are YAML, as LeRobot reads them."""
    flags: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("--") or argument == "--":
            raise UsageError(f"{argument!r} is not a flag; lerobot-eval takes --flag=value. {_SEE}")
        name, equals, text = argument[2:].partition("=")
        _known(name)
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise UsageError(f"--{name} has no value.")
            text = rest.pop(0)
        try:
            flags[name] = text if name in _TEXTS and text != "null" else read_yaml(text)
        except (yaml.YAMLError, RecursionError) as error:
            raise UsageError(f"the value of --{name} cannot be read: {text!r:.300}.") from error
    return flags


def _read_file(path: Path) -> dict[str, Any]:
    """Reads the flags that a configuration file of LeRobot's stands for, YAML or JSON."""
    try:
        content = read_yaml(read_named(path, _MOST_CONFIG).decode())  # JSON is YAML, too
    except OSError as error:
        raise UsageError(f"--config_path {str(path)!r} cannot be read: {error.strerror}.") from error
    except RecursionError:
        raise UsageError(f"--config_path {str(path)!r} is nested too deep.") from None
    except (yaml.YAMLError, ValueError) as error:  # no text
        raise UsageError(f"--config_path {str(path)!r} is neither YAML nor JSON: {error}") from error
    if not isinstance(content, dict):
        raise UsageError(f"--config_path {str(path)!r} does not hold settings by name.")
    flags: dict[str, Any] = {}
    for name, value in content.items():
        inner = value if name in _SECTIONS and isinstance(value, dict) else None
        flags |= {str(name): value} if inner is None else {f"{name}.{key}": held for key, held in inner.items()}
    for name in flags:
        _known(name)
    return flags


def _known(name: str) -> None:
    if name in _NOT_TAKEN:
        raise UsageError(f"--{name} is not taken here: {_NOT_TAKEN[name]}.")
    if name.startswith("policy.") and len(name) > len("policy."):
        return  # a setting of the checkpoint's own configuration: the policy knows which there are
    if name not in (*_FLAGS, *_OWN_FLAGS):
        ours = "" if "." in name else "Flags of `sparring run` stand after a lone --. "
        raise unknown("flag", f"--{name}", [f"--{flag}" for flag in (*_FLAGS, *_OWN_FLAGS)], hint=ours + _SEE)


def _check(flags: Mapping[str, Any], kind: str) -> None:
    known = ENVIRONMENTS[kind]
    limits = {**FIXED, **WITHOUT_EFFECT, **known.fixed, **known.without_effect}
    for flag in flags:
        if flag in _OWN_FLAGS and flag not in known.flags:
            whose = " or ".join(name for name, other in ENVIRONMENTS.items() if flag in other.flags)
            raise UsageError(f"--{flag} is for --env.type={whose}; LeRobot has no use for it with {kind}.")
        allowed, why = limits.get(flag, (None, ""))
        if allowed is not None and flags[flag] not in allowed:
            wanted = " or ".join(json.dumps(value) for value in allowed)
            raise UsageError(f"--{flag} can only be {wanted} here: {why}.")


def _required(flags: Mapping[str, Any], flag: str) -> str:
    if flags.get(flag) in (None, ""):
        raise UsageError(f"--{flag} is missing.")
    return str(flags[flag])


def _integer(flags: Mapping[str, Any], flag: str, default: int, *, least: int) -> int:
    value = flags.get(flag, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"--{flag} must be a whole number of at least {least}, not {json.dumps(value, default=str)}.")
    return value


def _mapping(flags: Mapping[str, Any], flag: str) -> dict[str, str]:
    value = flags.get(flag) or {}
    if not isinstance(value, dict) or not all(isinstance(x, str) for pair in value.items() for x in pair):
        raise UsageError(f'--{flag} must map names to names, like \'{{"one": "other"}}\', not {value!r}.')
    return value


def _tasks(flags: Mapping[str, Any], kind: str) -> str:
    task = flags.get("env.task", ENVIRONMENTS[kind].task)
    if not isinstance(task, str) or not task.strip():
        raise UsageError(f"--env.task is missing; see: sparring ls tasks --benchmark {kind}")
    ids = flags.get("env.task_ids")
    if ids is None:
        return task
    if not isinstance(ids, list) or not ids or not all(type(number) is int and number >= 0 for number in ids):
        raise UsageError(f"--env.task_ids must be a list of numbers, like [0,3], not {ids!r}.")
    suites = comma_list(task)
    if any("/" in suite for suite in suites):
        raise UsageError(f"--env.task {task!r} names single tasks already; leave out --env.task_ids, or name suites.")
    return ",".join(f"{suite}/{number}" for suite in suites for number in sorted(set(ids)))


def _benchmark_arguments(flags: Mapping[str, Any], kind: str) -> dict[str, Any]:
    if length := ENVIRONMENTS[kind].episode_length:
        return {"max_steps": _integer(flags, "env.episode_length", length, least=1)}
    if kind != "libero":
        return {}
    height = _integer(flags, "env.observation_height", _DEFAULT_SIDE, least=1)
    width = _integer(flags, "env.observation_width", _DEFAULT_SIDE, least=1)
    if height != width:
        raise UsageError(
            f"--env.observation_height={height} and --env.observation_width={width} differ; images are square here."
        )
    control = flags.get("env.control_mode", "relative")
    if control not in ("relative", "absolute"):
        raise UsageError(f"--env.control_mode must be relative or absolute, not {control!r}.")
    return {"resolution": height, "control": control}


def _max_steps(flags: Mapping[str, Any], kind: str) -> int:
    if kind != "libero" or flags.get("env.episode_length") is None:
        return 0
    steps = _integer(flags, "env.episode_length", 0, least=1)
    for task in get_benchmark(kind).tasks(_tasks(flags, kind)):
        if steps > task.max_steps:
            raise UsageError(
                f"--env.episode_length={steps} is more than the {task.max_steps} steps that {task.group} has; "
                "episodes can be made shorter here, not longer."
            )
    return steps


def _policy(flags: Mapping[str, Any], path: str) -> str:
    revision = flags.get("policy.pretrained_revision")
    if revision is None:
        return f"lerobot:{path}"
    if Path(path).expanduser().exists() or "@" in path:
        raise UsageError(
            f"--policy.pretrained_revision={revision} is for a checkpoint on the hub, by its bare name; "
            f"--policy.path={path} is none. Leave it out."
        )
    return f"lerobot:{path}@{revision}"


def _policy_arguments(flags: Mapping[str, Any], kind: str, path: str) -> dict[str, Any]:
    arguments = {
        flag.removeprefix("policy."): value
        for flag, value in flags.items()
        if flag.startswith("policy.") and flag not in ("policy.path", "policy.pretrained_revision")
    }
    looks_at = _checkpoint(path).get("input_features")
    renamed = {
        name: offered
        for name, offered in _names(flags, kind).items()
        # A camera that the checkpoint does not look at may have any name.
        if name != offered and (not isinstance(looks_at, dict) or name in looks_at)
    }
    return {**arguments, "rename": renamed} if renamed else arguments


def _names(flags: Mapping[str, Any], kind: str) -> dict[str, str]:
    """Returns what the policy calls each observation: LeRobot names cameras first, then maps names of observations."""
    names = dict(ENVIRONMENTS[kind].observations)
    for camera, name in _mapping(flags, "env.camera_name_mapping").items():
        if camera not in CAMERAS:
            raise unknown("camera in --env.camera_name_mapping:", camera, CAMERAS)
        offered = CAMERAS[camera]
        names = {_IMAGES + name if ours == offered else known: ours for known, ours in names.items()}
    renames = _mapping(flags, "rename_map")
    for name in renames:
        if name not in names:
            raise unknown("observation in --rename_map:", name, names)
    return {renames.get(name, name): offered for name, offered in names.items()}


def _slots(flags: Mapping[str, Any], episodes: int) -> int | str:
    """Simulators at once: LeRobot has a batch of them for each of its parallel tasks."""
    batch = _integer(flags, "eval.batch_size", 0, least=0)
    parallel = max(1, _integer(flags, "env.max_parallel_tasks", 1, least=0))
    return "auto" if batch == 0 else min(batch, episodes) * parallel


def _output(flags: Mapping[str, Any], kind: str, path: str, now: datetime) -> Path:
    if flags.get("output_dir"):
        return Path(str(flags["output_dir"]))
    # Of a checkpoint on the hub, which is not fetched for that, the type is not known here: its name must do.
    policy = _checkpoint(path).get("type") or Path(path.partition("@")[0]).name
    job = str(flags.get("job_name") or f"{kind}_{policy}")
    return Path("outputs/eval") / f"{now:%Y-%m-%d}" / f"{now:%H-%M-%S}_{job}"


def _checkpoint(path: str) -> dict[str, Any]:
    """Reads the configuration in a checkpoint's folder; nothing, if there is none to be read."""
    for folder in (Path(path).expanduser(), Path(path).expanduser() / "pretrained_model"):
        try:
            with (folder / "config.json").open() as file:
                config = json.loads(file.read(_MOST_CONFIG))
        except (OSError, ValueError, RecursionError):  # the policy server says what is wrong with it
            continue
        if isinstance(config, dict):
            return config
    return {}
