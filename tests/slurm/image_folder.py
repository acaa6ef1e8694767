"""An image for Charliecloud, made of what is installed here: a folder with a Python, packages, a shell, libraries."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

from support import ROOT

FOLDERS = ("bin", "dev", "etc", "lib", "lib64", "mnt", "opt", "proc", "sys", "tmp", "usr/local/bin", "var")
FILES = ("etc/passwd", "etc/group", "etc/hosts", "etc/resolv.conf")
PACKAGES = ("grpcio", "protobuf", "numpy", "gymnasium", "cloudpickle", "typing_extensions", "Farama-Notifications")
"""What a worker of the toy benchmark imports."""
PROGRAMS = ("sh", "env")
MARK = "a Python of the image\n"
"""What its Python says when it begins."""
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"


def make_image(folder: Path) -> Path:
    """Makes one with the toy benchmark, in two or three seconds."""
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
    for name in FILES:
        (folder / name).touch()
    local, base = folder / "usr" / "local", Path(sys.base_prefix)
    left_out = shutil.ignore_patterns("__pycache__", "site-packages", "dist-packages", "test", "idlelib", "*.a")
    shutil.copytree(base / "lib" / VERSION, local / "lib" / VERSION, ignore=left_out)
    shutil.copy2(base / "bin" / VERSION, local / "bin" / "python")
    for library in (base / "lib").glob("libpython3*"):
        shutil.copy2(library, local / "lib" / library.name)
    packages = local / "lib" / VERSION / "site-packages"
    packages.mkdir()
    for name in PACKAGES:
        _install(name, packages)
    cache = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "sparring", packages / "sparring", ignore=cache)  # the rooms, and not links to them
    shutil.copytree(ROOT / "tests" / "toy", packages, ignore=cache, dirs_exist_ok=True)
    (packages / "sitecustomize.py").write_text(f"import sys; sys.stderr.write({MARK!r})")
    for name in PROGRAMS:
        shutil.copy2(Path(str(shutil.which(name))).resolve(), folder / "bin" / name)
    _add_libraries(folder)
    return folder


def _install(name: str, packages: Path) -> None:
    for path in distribution(name).files or ():
        source, target = Path(str(path.locate())), packages / path
        if not {"..", "__pycache__", "tests"} & set(path.parts) and source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def _add_libraries(folder: Path) -> None:
    programs = [
        path for path in folder.rglob("*") if path.is_file() and (".so" in path.name or path.parent.name == "bin")
    ]
    told = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False).stdout
    found = re.findall(r"=> (/\S+) \(0x|^\s+(/lib64/\S+) \(0x", told, re.MULTILINE)
    for name in {name for pair in found for name in pair if name and not name.startswith(str(folder))}:
        target = folder / name.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(Path(name).resolve(), target)
