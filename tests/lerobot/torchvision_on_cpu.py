"""Lets torchvision's public wheel import beside a CPU build of torch, in the tests' environment only.

The wheel on PyPI is compiled for a CUDA torch. Beside a CPU torch its extension does not load, which torchvision itself
puts up with, until it describes two operators of that extension (`nms` and `qnms`) that nobody has declared. Declared
here, without an implementation, they let the Python part import: LeRobot's policies take their ResNets and transforms
from it, and those are torchvision's own code, unchanged. Nothing that LeRobot runs here calls the two.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_kept: list[Any] = []  # a library's declarations live as long as the object


class _BeforeTorchvision(MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name == "torchvision":
            sys.meta_path.remove(self)
            _declare()


def _declare() -> None:
    import torch

    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    try:
        ctypes.CDLL(str(Path(spec.origin).parent / "_C.so"))
    except OSError:  # does not load: the operators are missing
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(operator + _SIGNATURE)
        _kept.append(library)


sys.meta_path.insert(0, _BeforeTorchvision())
