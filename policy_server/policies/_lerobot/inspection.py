"""What a LeRobot checkpoint asks for beyond being read: code to be run, and files outside of it.

A checkpoint is data, and whoever made it may be nobody you know. LeRobot imports and calls whatever class a processor
names, and passes names from the configuration on to libraries that would run the code they find there. So the files
are looked through first, before LeRobot is imported at all. What cannot be seen in them, because it lies in other
repositories that they name, is stopped where it would run: by `code_guard.py`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final

from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError

CONFIG: Final = "config.json"
ADAPTER_CONFIG: Final = "adapter_config.json"
PROCESSORS: Final = ("policy_preprocessor.json", "policy_postprocessor.json")

MOST_JSON: Final = 8 << 20
"""Bytes of a file that LeRobot writes; the largest that it is known to write have a few hundred thousand."""
_MOST_OTHER_JSON: Final = 256 << 20
"""Bytes of a file that other libraries may read in the folder: a large tokenizer has some thirty million."""

_READ_BY_TRANSFORMERS: Final = (
    "tokenizer_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
    "generation_config.json",
)
_CODE_ON_THE_HUB: Final = {"pi0_fast": "action_tokenizer_name", "wall_x": "action_tokenizer_path"}
"""Families for which LeRobot fetches a tokenizer of actions that is Python code, and the field that names it."""
_STEPS_WITH_CODE: Final = {"action_tokenizer_processor": "action_tokenizer_name"}
"""LeRobot's own steps of which the same is true; they do it unless `trust_remote_code` is false."""
_ADDRESS: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://\S+")
_PARTS: Final = re.compile(r"[/\\]+")
_NOT_READ: Final = re.compile(
    r"(output|log|save|dataset)s?_?(dir|path|root|folder)s?|repo_id|root|_?name_or_path|base_model_name_or_path"
)
"""Fields with paths that loading does not read, or not as anything but safetensors (what an adapter adapts)."""
_TRUST: Final = Hint("policy_arg", "trust", True)
_SHOWN: Final = 100


@dataclass(frozen=True)
class Demand:
    """Something that a checkpoint asks for and that is not granted unasked.

    Attributes:
        where: The file and the field.
        what: What it would do, as the rest of a sentence that begins with it.
    """

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where} {self.what}"


def refuse(folder: Path, demands: list[Demand]) -> None:
    """Raises a `UsageError` that names the first of the demands and says how to load the checkpoint all the same."""
    if not demands:
        return
    more = f" (and {len(demands) - 1} more like it)" if len(demands) > 1 else ""
    raise UsageError(
        f"the checkpoint {str(folder)!r} is refused: {demands[0]}{more}. A checkpoint is data, and nothing in it is "
        f"run. If you trust whoever made it as you trust your own code, say {_TRUST} (docs/lerobot.md)."
    )


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        UsageError: If it is none, or too large to be one that belongs in a checkpoint.
    """
    try:
        # As LeRobot opens it, in this machine's own encoding: both must read the same.
        with path.open() as file:
            text = file.read(MOST_JSON + 1)
        content = json.loads(text) if len(text) <= MOST_JSON else None
    except RecursionError:
        raise UsageError(f"{str(path)!r} is nested deeper than anything that LeRobot writes; it is not read.") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{str(path)!r} cannot be read as JSON ({error}); was it written to the end?") from error
    if len(text) > MOST_JSON:
        raise UsageError(
            f"{str(path)!r} is larger than {MOST_JSON >> 20} MiB; LeRobot writes no such thing, and it is not read."
        )
    if not isinstance(content, dict):
        raise UsageError(f"{str(path)!r} is not a JSON object.")
    return content


def demands_of(folder: Path, given: Mapping[str, Any]) -> list[Demand]:
    """Looks a checkpoint's files through for code to run and for ways out of its folder.

    Args:
        folder: The checkpoint.
        given: Fields of the configuration that the user has replaced; what the checkpoint says there does not count,
            and what the user says is the user's.
    """
    demands = [*_links(folder), *_large(folder)]
    named = {value for value in given.values() if isinstance(value, str)}
    config = {name: value for name, value in read_json(folder / CONFIG).items() if name not in given}
    config.pop("pretrained_path", None)  # where training started; replaced by the checkpoint's own folder
    demands += _family(config, given)
    demands += _fields(folder, CONFIG, config, named)
    for name in PROCESSORS:
        if (folder / name).is_file():
            processor = read_json(folder / name)
            demands += _steps(name, processor.get("steps"))
            demands += _fields(folder, name, processor, named)
    for name in (ADAPTER_CONFIG, *_READ_BY_TRANSFORMERS):
        if (folder / name).is_file():
            demands += _fields(folder, name, read_json(folder / name), named)
    return demands


def _links(folder: Path) -> Iterator[Demand]:
    """Finds links to files elsewhere. The hub's cache is made of links, from a snapshot to the repository's blobs."""
    real = _real(folder)
    inside = [real, *([real.parents[1] / "blobs"] if real.parent.name == "snapshots" else [])]
    for path in _files(folder):
        if path.is_symlink() and not any(_real(path).is_relative_to(root) for root in inside):
            name = _plain(str(path.relative_to(folder)))
            yield Demand(name, f"is a link to {_shown(str(_real(path)))}, outside of the checkpoint")


def _large(folder: Path) -> Iterator[Demand]:
    for path in _files(folder):
        if path.suffix == ".json" and path.is_file() and path.stat().st_size > _MOST_OTHER_JSON:
            name = _plain(str(path.relative_to(folder)))
            yield Demand(name, f"is larger than {_MOST_OTHER_JSON >> 20} MiB, which no such file needs to be")


def _files(folder: Path) -> list[Path]:
    """Returns what is in a checkpoint, and in its folders: some families keep parts of a network there."""
    found = sorted(folder.iterdir())
    for part in [path for path in found if path.is_dir() and not path.is_symlink()]:
        with suppress(OSError):  # what cannot be listed here cannot be read here either
            found += sorted(part.iterdir())
    return found


def _family(config: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[Demand]:
    field = _CODE_ON_THE_HUB.get(str(config.get("type")))
    if field is not None and given.get(field, config.get(field, "")) is not None:
        tokenizer = _shown(given.get(field) or config.get(field) or "LeRobot's default")
        yield Demand(
            f"{CONFIG}: type {config['type']!r}",
            f"has a tokenizer of actions ({field}: {tokenizer}) that is Python code, which LeRobot fetches and runs",
        )


def _steps(name: str, steps: Any) -> Iterator[Demand]:
    """Finds the steps that are named by a class: LeRobot imports any module and calls anything in it."""
    for number, step in enumerate(steps if isinstance(steps, list) else []):
        if not isinstance(step, dict):
            continue
        where = f"{name}: step {number}"
        registered = step.get("registry_name")
        if not isinstance(registered, str):
            called = _shown(step.get("class", registered))
            yield Demand(
                f"{where}, class {called},", "is code to import and call, not a step that LeRobot has registered"
            )
        elif registered in _STEPS_WITH_CODE:
            field = _STEPS_WITH_CODE[registered]
            tokenizer = _shown((step.get("config") or {}).get(field) if isinstance(step.get("config"), dict) else None)
            yield Demand(f"{where}, {registered!r},", f"runs the Python code of a tokenizer ({field}: {tokenizer})")
        state = step.get("state_file")
        if state is not None and (not isinstance(state, str) or state != PurePosixPath(state).name or "\\" in state):
            yield Demand(f"{where}, state_file {_shown(state)},", "is not the name of a file in the checkpoint")


def _fields(folder: Path, name: str, content: Mapping[str, Any], named: set[str]) -> Iterator[Demand]:
    """Finds fields that name code, wherever they are, and paths that lead out of the checkpoint."""
    left: list[tuple[str, str, Any]] = [("", "", content)]
    while left:
        where, key, value = left.pop()
        if isinstance(value, dict):
            left += [(f"{where}.{inner}".lstrip("."), str(inner), value[inner]) for inner in reversed(value)]
        elif isinstance(value, list):
            left += [(f"{where}[{i}]", key, element) for i, element in reversed(list(enumerate(value)))]
        said = _code(key, value)
        read_here = name not in _READ_BY_TRANSFORMERS  # which has paths of where it was saved, and tokens like "/"
        if not said and read_here and isinstance(value, str) and value not in named and _leads_out(folder, key, value):
            yours = (
                f"; if it is yours, name it with {Hint('policy_arg', key)}" if (name, where) == (CONFIG, key) else ""
            )
            said = f"leads out of the checkpoint{yours}"
        if said:
            yield Demand(f"{name}: {_plain(where)}={_shown(value)}", said)


def _code(key: str, value: Any) -> str:
    """Says what a field would make somebody run; nothing, if it would not."""
    if not value:
        return ""
    if key in ("auto_map", "_target_", "custom_pipelines", "custom_generate"):
        return "names Python code to be imported"
    if key == "trust_remote_code":
        return "asks to run Python code of the repositories that the checkpoint names"
    if "attn_implementation" in key or "attention_implementation" in key:
        return "names a kernel to fetch and run" if "/" in str(value) else ""
    if key == "megatron_config" or (key == "megatron_core" and value != "megatron.core"):
        return "names a module to import"
    if key == "auto_mapping":
        library = str(value.get("parent_library") or "lerobot") if isinstance(value, dict) else "?"
        package = library.partition(".")[0]
        known = package in ("lerobot", "transformers") or package.startswith("lerobot_")
        return "" if known else "names a module to import"
    return ""


def _leads_out(folder: Path, key: str, value: str) -> bool:
    """Returns whether a text is a path out of the checkpoint, or an address. A hub id, `owner/name`, is none."""
    if _NOT_READ.fullmatch(key) or len(value) == 1:
        return False
    if _ADDRESS.fullmatch(value):  # transformers would fetch it, whatever it is
        return True
    if value.startswith("~") or PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute():
        return not any(_real(Path(value)).is_relative_to(root) for root in (_real(folder), _hub_cache()))
    return ".." in _PARTS.split(value)


def _real(path: Path) -> Path:
    """Returns where a path leads, through links; whatever it is made of."""
    try:
        return Path(os.path.realpath(os.path.expanduser(path)))
    except ValueError:  # a zero byte
        return Path("/")


def _hub_cache() -> Path:
    from huggingface_hub.constants import HF_HUB_CACHE

    return _real(Path(HF_HUB_CACHE))


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return repr(_plain(text) + ("..." if len(text) > _SHOWN else ""))


def _plain(text: str) -> str:
    """Returns some of a text, without what a terminal would obey and what a sentence of ours would have as a hint."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[:_SHOWN])
    return shown.replace("{{", "{ {").replace("}}", "} }")
