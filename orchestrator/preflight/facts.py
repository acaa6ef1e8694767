"""What is known of a policy's training: names, shapes and statistics of what it saw and did."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from sparring.orchestrator.preflight.reading import reading
from sparring.orchestrator.results.files import read_bytes
from sparring.protos.errors import UsageError
from sparring.protos.tensor import Array

ACTION: Final = "action"
OBJECTS: Final = "environment_state"
"""In the name of what is known of the scene, as LeRobot has it, beside what is known of the robot."""
FeatureKind = Literal["image", "numbers", "action"]

_KINDS: Final[Mapping[str, FeatureKind]] = {"VISUAL": "image", "STATE": "numbers", "ENV": "numbers", "ACTION": "action"}
_DTYPES: Final = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "|u1"}
_PREPROCESSOR, _POSTPROCESSOR = "policy_preprocessor.json", "policy_postprocessor.json"
_NORMALIZERS: Final = ("normalizer_processor", "unnormalizer_processor")
_READERS: Final = (
    *("tokenizer_processor", "smolvla_new_line_processor", "pi0_new_line_processor", "wall_x_task_processor"),
    *("pi05_prepare_state_tokenizer_processor_step", "pi0_fast_prepare_state_tokenizer_processor_step"),
    *("groot_n1_7_vlm_encode_v1", "groot_eagle_encode_v3", "eo1_conversation_template_processor"),
    "molmoact2_pack_inputs",
)
"""Steps that do something with the sentence."""
_RESIZING: Final = (
    *("resize_imgs_with_padding", "image_resolution", "resize_shape"),
    *("image_size", "image_resize_shape", "resize_images_to"),
)
"""What kinds of policies call the size that they bring images to."""
_WITHOUT_SENTENCES: Final = ("act", "diffusion", "vqbet", "tdmpc", "sac", "gaussian_actor")
_AS_SHOWN: Final = (*_WITHOUT_SENTENCES, "multi_task_dit")
"""Kinds that take images as they are, unless they say a size."""
_MOST_JSON: Final = 8 << 20
_MOST_STATISTICS: Final = 16 << 20


@dataclass(frozen=True)
class Feature:
    """Something that a policy was shown, or did, in its training.

    Attributes:
        name: As the checkpoint or the data set calls it.
        kind: What it is.
        shape: Of images: height, width, channels. Empty: that is not known.
        statistics: By LeRobot's names (mean, std, min, max, q01, q99), flat; of images by channel.
        normalisation: What is done with the statistics, as LeRobot calls it; empty: that is not known.
    """

    name: str
    kind: FeatureKind
    shape: tuple[int, ...] = ()
    statistics: Mapping[str, Array] = field(default_factory=dict)
    normalisation: str = ""


@dataclass(frozen=True)
class CheckpointFacts:
    """What a LeRobot checkpoint says of its training.

    Attributes:
        folder: The checkpoint.
        features: Of inputs and outputs, by name.
        reads_sentences: Whether it reads the task's sentence; None: its kind is not known here.
        resizes: Whether it brings images to a size of its own; None: its kind is not known here.
        data_set: Its data set, if it is inside the checkpoint's folder; None: it is not.
        named: A data set elsewhere on this machine that its training wrote down. Checkpoints are strangers' files, so
            that one is read only if the user names it; None: there is none.
    """

    folder: Path
    features: Mapping[str, Feature]
    reads_sentences: bool | None
    resizes: bool | None
    data_set: Path | None
    named: Path | None = None

    def __str__(self) -> str:
        return "the checkpoint"


def read_checkpoint(folder: Path) -> CheckpointFacts:
    """Reads what a LeRobot checkpoint says of its training; nothing in it is run.

    Raises:
        UsageError: If its files cannot be read.
    """
    config = read_object(folder / "config.json")
    modes: dict[str, str] = {}
    files: dict[str, None] = {}  # in their order, each once
    statistics: dict[str, dict[str, Array]] = {}
    listed = [read_object(folder / name).get("steps") for name in (_PREPROCESSOR, _POSTPROCESSOR)]
    steps = [step for some in listed if isinstance(some, list) for step in some if isinstance(step, dict)]
    for step in steps:
        if step.get("registry_name") in _NORMALIZERS:
            said = mapping(step, "config", folder)
            modes |= {str(kind): str(mode) for kind, mode in mapping(said, "norm_map", folder).items()}
            if file := step.get("state_file"):
                files.setdefault(Path(str(file)).name)
    for file in files:
        statistics = {**_by_feature(read_tensors(folder / file)), **statistics}
    features = {}
    known = {**mapping(config, "input_features", folder), **mapping(config, "output_features", folder)}
    for name in known:
        said = mapping(known, name, folder, needed=True)
        kind = _KINDS.get(str(said.get("type")), "numbers")
        shape = shape_of(said, name, folder)
        if kind == "image" and len(shape) == 3:
            shape = (shape[1], shape[2], shape[0])
        features[name] = Feature(name, kind, shape, statistics.get(name, {}), modes.get(str(said.get("type")), ""))
    reads = any(str(step.get("registry_name")) in _READERS for step in steps)
    resizes = any(config.get(name) for name in _RESIZING)
    kind_of_policy = str(config.get("type"))
    named = _trained_on(folder)
    inside = named is not None and named.resolve().is_relative_to(folder.resolve())
    return CheckpointFacts(
        folder=folder,
        features=features,
        reads_sentences=reads or (False if kind_of_policy in _WITHOUT_SENTENCES else None),
        resizes=resizes or (False if kind_of_policy in _AS_SHOWN else None),
        data_set=named if inside else None,
        named=None if inside else named,
    )


def _trained_on(folder: Path) -> Path | None:
    file = folder / "train_config.json"
    if not file.is_file():
        return None
    root = mapping(read_object(file), "dataset", folder).get("root")
    return Path(str(root)) if root and (Path(str(root)) / "meta" / "info.json").is_file() else None


def mapping(content: Mapping[str, Any], key: str, folder: Path, *, needed: bool = False) -> Mapping[str, Any]:
    """Returns what a JSON object has under a key; nothing, where there is nothing and it is not needed.

    Raises:
        UsageError: If it is no JSON object.
    """
    found = content.get(key)
    if found is None and not needed:
        return {}
    if not isinstance(found, dict):
        raise UsageError(f"{str(folder)!r} cannot be read: its {key!r} is no JSON object, but {str(found)[:40]!r}.")
    return found


def shape_of(said: Mapping[str, Any], name: str, folder: Path) -> tuple[int, ...]:
    """Returns the shape of a feature; empty, where none is said.

    Raises:
        UsageError: If it is none.
    """
    shape = said.get("shape") or []
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise UsageError(f"{str(folder)!r} cannot be read: the shape of {name!r} is {str(shape)[:40]!r}.")
    return tuple(shape)


def _by_feature(tensors: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    found: dict[str, dict[str, Array]] = {}
    for name, array in tensors.items():
        feature, _, statistic = name.rpartition(".")
        found.setdefault(feature, {})[statistic] = np.ravel(array).astype(np.float64)
    return found


def read_object(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        UsageError: If it is none.
    """
    with reading(repr(str(path))):
        content = json.loads(read_bytes(path, _MOST_JSON).decode())
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
        return content


def read_tensors(path: Path) -> dict[str, Array]:
    """Reads a small safetensors file without torch and its library: a length, a JSON header, and plain numbers.

    Raises:
        UsageError: If it is none.
    """
    with reading(f"{str(path)!r}, a file of safetensors,"):
        content = read_bytes(path, _MOST_STATISTICS)
        (size,) = struct.unpack("<Q", content[:8])
        header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
        found, left = {}, len(data)
        for name, about in header.items():
            if name != "__metadata__" and about["dtype"] in _DTYPES:
                begin, end = about["data_offsets"]
                left -= end - begin
                if not 0 <= begin <= end or left < 0:  # the same bytes in many tensors would fill the memory
                    raise ValueError("its tensors overlap")
                found[name] = np.frombuffer(data[begin:end], _DTYPES[about["dtype"]]).reshape(about["shape"])
        return found
