"""Where and in which precision torch computes, and by which algorithms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from sparring.protos.errors import UsageError

_NO_MEMORY: Final = ("MPS backend out of memory", "STATUS_ALLOC_FAILED", "DefaultCPUAllocator: can't allocate memory")
_DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(name: str) -> Any:
    """Returns the torch device that is meant by `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.

    Raises:
        UsageError: If there is no such device here.
    """
    kind, _, number = str(name).partition(":")
    if kind not in ("auto", "cpu", "cuda", "mps") or (number and (kind != "cuda" or not number.isdigit())):
        raise UsageError(f"unknown device {name!r}; it is auto, cpu, cuda, cuda:N or mps.")
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if kind == "auto":
        return _this_cuda() if cuda else torch.device("mps" if mps else "cpu")
    if kind == "mps" and not mps:
        raise UsageError("the device 'mps' was asked for, but there is none here; use device=auto or device=cpu.")
    if kind == "cuda" and not cuda:
        why = "this torch was built without CUDA" if torch.version.cuda is None else "torch finds no CUDA device"
        raise UsageError(
            f"the device {name!r} was asked for, but {why} (torch {torch.__version__}); use device=auto or device=cpu."
        )
    if kind == "cuda" and number and int(number) >= torch.cuda.device_count():
        raise UsageError(f"the device {name!r} was asked for, but there are {torch.cuda.device_count()} CUDA devices.")
    return _this_cuda() if name == "cuda" else torch.device(name)


def _this_cuda() -> Any:
    # Which device is the current one is a matter of each thread: where a training program has chosen one, the thread
    # that the policy is called in has not.
    cuda: Any = torch.cuda
    return torch.device("cuda", cuda.current_device()) if cuda.is_initialized() else torch.device("cuda")


def dtype_of(name: str, option: str) -> Any:
    """Returns the torch dtype of a name that was given for an option.

    Raises:
        UsageError: If it is none that policies compute in.
    """
    if name not in _DTYPES:
        raise UsageError(f"{option} must be one of {', '.join(_DTYPES)}, not {name!r}.")
    return _DTYPES[name]


def is_out_of_memory(error: RuntimeError) -> bool:
    """Returns whether an error of torch says that there is not enough memory."""
    # Only CUDA's allocator has a class of its own for it, and not even its libraries use that.
    return isinstance(error, torch.cuda.OutOfMemoryError) or any(words in str(error) for words in _NO_MEMORY)


@contextmanager
def deterministic_algorithms() -> Iterator[None]:
    """Uses deterministic algorithms for a while: a program that trains beside it may not have one for all it does."""
    always, benchmark = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False  # it picks kernels by how fast they happen to run
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(always, warn_only=warn_only)
        torch.backends.cudnn.benchmark = benchmark
