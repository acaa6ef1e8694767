"""Weights from files: safetensors, and nothing that runs code when it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import torch

from sparring.policy_server.policies.archives import check_archive
from sparring.protos.errors import UsageError

_TORCH_SUFFIXES: Final = (".pt", ".pth")
_SAVE_HINT: Final = 'save the weights with safetensors.torch.save_file(module.state_dict(), "weights.safetensors")'
_NAMES_SHOWN: Final = 5


def sha256_of(paths: Iterable[Path]) -> str:
    """Returns one hash of the content of some files, in the order given."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def looks_like_pickle(path: Path) -> bool:
    """Returns whether a file that is not safetensors begins as `torch.save` and `pickle.dump` begin theirs."""
    with path.open("rb") as file:
        head = file.read(4)
    return head == b"PK\x03\x04" or head[:1] == b"\x80"


def check_safetensors(path: Path) -> None:
    """Makes sure that a file is whole and is safetensors, without reading the weights.

    Raises:
        UsageError: If it is missing, cut off, a pickle, or something else.
    """
    from safetensors import SafetensorError, safe_open

    check_exists(path)
    try:
        with safe_open(str(path), framework="pt") as file:
            file.keys()
    except (SafetensorError, OSError) as error:
        if looks_like_pickle(path):
            raise UsageError(
                f"{str(path)!r} is a pickle, which may run any code when it is read, where safetensors belong; it is "
                f"not read. Where you trust it: {_SAVE_HINT}."
            ) from error
        raise UsageError(
            f"{str(path)!r} is not a whole safetensors file ({error}); was its download or copy interrupted?"
        ) from error


def check_exists(path: Path) -> None:
    """Raises a `UsageError` where there is no such file."""
    if not path.is_file():
        raise UsageError(f"there is no checkpoint file {str(path)!r}.")


def read_weights(path: Path) -> dict[str, Any]:
    """Reads a state dict from a .safetensors file, or from a .pt or .pth file that holds tensors and nothing else.

    Raises:
        UsageError: If it is missing, not whole, or would run code when it is read.
    """
    check_exists(path)
    if path.suffix in _TORCH_SUFFIXES:
        return _read_torch(path)
    from safetensors.torch import load_file

    check_safetensors(path)
    return dict(load_file(str(path)))


def load_weights(module: torch.nn.Module, path: Path) -> None:
    """Fills a module from a file.

    Raises:
        UsageError: If the file cannot be read, or its weights are not this module's, with the first differences.
    """
    weights = read_weights(path)
    own = module.state_dict()
    if differences := weight_differences(own, weights):
        raise UsageError(
            f"the weights in {str(path)!r} do not fit {type(module).__name__}: {differences}. Was it saved by another "
            "version of the code, or with other settings?"
        )
    module.load_state_dict(weights)


def weight_differences(own: dict[str, Any], found: dict[str, Any]) -> str:
    """Says, as a part of a sentence, what keeps found weights (or shapes) from filling a module; empty if nothing."""
    missing = [name for name in own if name not in found]
    surplus = [name for name in found if name not in own]
    shapes = [
        f"{name} is {tuple(found[name].shape)} and should be {tuple(own[name].shape)}"
        for name in own
        if name in found and tuple(found[name].shape) != tuple(own[name].shape)
    ]
    parts = [("missing: ", missing), ("not known: ", surplus), ("", shapes)]
    return "; ".join(f"{title}{_some(names)}" for title, names in parts if names)


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"


def _read_torch(path: Path) -> dict[str, Any]:
    check_archive(path, path.stat().st_size)  # torch packs nothing
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises UnpicklingError, RuntimeError, EOFError, ... for a file it cannot read
        raise UsageError(
            # Not in torch's words, which say how to run that code.
            f"{str(path)!r} is not whole, or holds more than tensors and might run code ({type(error).__name__}); "
            f"{_SAVE_HINT}."
        ) from error
    if not isinstance(weights, dict) or not all(isinstance(v, torch.Tensor) for v in weights.values()):
        raise UsageError(f"{str(path)!r} is not a state dict, a mapping from names to tensors; {_SAVE_HINT}.")
    return weights
