"""The machine that a program runs on, as far as that is known without asking slowly: nothing is imported or started."""

from __future__ import annotations

import platform
import re
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

_CPUS: Final = Path("/proc/cpuinfo")
_NVIDIA: Final = Path("/proc/driver/nvidia")


def machine() -> dict[str, str]:
    """Returns what is known of this machine and this Python: system, cpu, gpu, driver, cuda, device and so on."""
    found = {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cpu": _cpu(),
        "gpu": _gpus(),
        "driver": _driver(),
        "cuda": _cuda(),
        "device": _device(),
    }
    return {name: value for name, value in found.items() if value}


def _cpu() -> str:
    with suppress(OSError):
        for line in _CPUS.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor()


def _gpus() -> str:
    models = []
    for path in sorted(_NVIDIA.glob("gpus/*/information")):
        with suppress(OSError):
            models += re.findall(r"^Model:\s*(.+?)\s*$", path.read_text(errors="replace"), re.MULTILINE)
    return ", ".join(model if number == 1 else f"{number} × {model}" for model, number in Counter(models).items())


def _driver() -> str:
    with suppress(OSError):
        found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", (_NVIDIA / "version").read_text(errors="replace"))
        return found[1] if found else ""
    return ""


def _cuda() -> str:
    """Returns the version of CUDA that torch was built for, where somebody has imported torch already."""
    return str(getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None) or "")


def _device() -> str:
    """Returns "cuda" where torch, imported already, computes on a GPU in this process; where it only could, nothing."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    used = getattr(cuda, "is_initialized", None)
    return "cuda" if used is not None and used() else ""
