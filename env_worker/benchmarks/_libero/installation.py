"""Getting LIBERO ready to import: configuration, assets and init states, without a prompt, a download or torch.

`import libero.libero` asks a question on stdin unless its configuration file exists, and would fetch its meshes from
a hub by itself. Both are settled here, before the first import.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import io
import os
import pickle  # behind an unpickler that knows numpy arrays and nothing else
import stat
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparring.env_worker.assets import cache_folder
from sparring.protos import unreadable
from sparring.protos.errors import SparringError


class LiberoSetupFailed(SparringError):
    """LIBERO, its assets or its files are missing or unusable; the message says what to do."""


def write_config(assets: Path) -> Path:
    """Writes LIBERO's configuration to a folder of our own and names that to LIBERO, here and in child processes.

    Args:
        assets: The assets folder.

    Returns:
        The folder of the installed package, which holds `bddl_files` and `init_files`.

    Raises:
        LiberoSetupFailed: the package is not installed, or there is no safe place for it.
    """
    spec = importlib.util.find_spec("libero")
    if spec is None or spec.origin is None:
        raise LiberoSetupFailed("the libero package is not installed in this Python: run 'sparring env create libero'")
    package = Path(spec.origin).parent / "libero"
    name = hashlib.sha256(f"{package} {assets}".encode()).hexdigest()[:16]
    folder = cache_folder() / "libero-config" / name
    try:
        _write(folder, package, assets)
    except OSError:  # a read-only home, as in a container
        folder = _own_folder(Path(tempfile.gettempdir()) / f"sparring-libero-{os.getuid()}") / name
        _write(folder, package, assets)
    os.environ["LIBERO_CONFIG_PATH"] = str(folder)
    return package


def prepare_libero(assets: Path) -> Path:
    """Makes `libero` importable without side effects and points it at the assets.

    Args:
        assets: The assets folder.

    Returns:
        The folder of the installed package, which holds `bddl_files` and `init_files`.

    Raises:
        LiberoSetupFailed: the package is not installed.
    """
    package = write_config(assets)
    importlib.import_module("sparring.env_worker.benchmarks._libero.robosuite_log")
    libero: Any = importlib.import_module("libero.libero")
    # The configuration's `assets` entry is ignored by get_assets_path(); its cache is not.
    libero._assets_path_cache = str(assets)
    return package


def _own_folder(folder: Path) -> Path:
    """Makes a folder where everybody may write, and returns it.

    Raises:
        LiberoSetupFailed: somebody else has made it, or may write to it: LIBERO would read what they put there.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise LiberoSetupFailed(
            f"{str(folder)!r} is not yours alone, and LIBERO would read its settings from there: remove it, or name "
            "another place for temporary files with TMPDIR."
        )
    return folder


def _write(folder: Path, package: Path, assets: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    entries = {
        "benchmark_root": package,
        "bddl_files": package / "bddl_files",
        "init_states": package / "init_files",
        "datasets": folder / "datasets",
        "assets": assets,
    }
    # Written aside and renamed, so that a process that starts beside this one never reads half a file.
    draft = folder / f"config.yaml.{os.getpid()}"
    draft.write_text("".join(f'{key}: "{value}"\n' for key, value in entries.items()), encoding="utf-8")
    draft.replace(folder / "config.yaml")


def load_init_states(path: Path) -> npt.NDArray[np.float64]:
    """Reads a task's official initial states: one flattened simulator state per row.

    The files are torch zips around a numpy pickle. Only what such a pickle needs may be looked up, so a file that was
    tampered with cannot run code.

    Raises:
        LiberoSetupFailed: the file is missing, damaged or holds something else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            member = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
            states = _NumpyUnpickler(io.BytesIO(archive.read(member))).load()
    except (*unreadable.ARCHIVE, StopIteration, pickle.UnpicklingError) as error:
        raise LiberoSetupFailed(f"cannot read the init states in {path}: {error}") from error
    if not isinstance(states, np.ndarray) or states.ndim != 2 or not len(states):
        raise LiberoSetupFailed(f"{path} does not hold a table of init states")
    return np.asarray(states, np.float64)


class _NumpyUnpickler(pickle.Unpickler):
    """Unpickles a numpy array and nothing else."""

    _ALLOWED = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"refused to load {module_name}.{global_name}")
        # The files were written by numpy 1; numpy 2 moved the module and warns about the old name.
        return super().find_class(module_name.replace("numpy.core", "numpy._core"), global_name)
