"""The same distribution once more, for another Python: from where its source is, or packed from what is installed here.

No index is asked for it: one that was installed from a file, a folder or a repository may not be there, or another one
may be there under the same name and version. Nor is the file that it came from, which may be gone by now.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, PackagePath, distribution
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from sparring import env_worker
from sparring.protos.installing import OURS

SOURCE: Final = Path(env_worker.__file__).resolve().parent.parent
"""Where sparring's own code is; the checkout's root, if it is one."""
_OF_AN_INSTALLATION: Final = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"})
"""What installers write beside the metadata of a wheel; another installer writes its own."""
_SCRIPTS: Final = ("bin", "Scripts")


def source_checkout() -> Path | None:
    """Returns the folder of sparring's source, if it runs from there: a clone, or an sdist that was unpacked."""
    for folder in (SOURCE, SOURCE.parent.parent):
        if project_of(folder).get("name") == OURS:
            return folder
    return None


def project_of(folder: Path) -> Mapping[str, Any]:
    """Returns what the pyproject.toml of a folder says of the project; nothing if there is none."""
    import tomllib  # read when an environment is made, and not by every run

    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text()).get("project", {})
    except (OSError, tomllib.TOMLDecodeError):
        return {}
    return project if isinstance(project, dict) else {}


def requirement(name: str, extra: str, folder: Path) -> list[str]:
    """Returns what makes pip install the same distribution again, with an extra.

    Args:
        name: Of the distribution, which is installed here.
        extra: Of it; empty: none.
        folder: Where a wheel may be packed for pip to install.
    """
    extras = f"[{extra}]" if extra else ""
    if (source := _editable(name)) is not None:
        return ["-e", f"{source}{extras}"]
    installed = distribution(name)
    if _files(installed) is None:
        return [f"{name}{extras}=={installed.version}"]
    return [f"{name}{extras} @ {pack(installed, folder).as_uri()}"]


def known_by(name: str, extra: str) -> list[str]:
    """Returns what differs as soon as another distribution would be installed by `requirement`."""
    extras = f"[{extra}]" if extra else ""
    if (source := _editable(name)) is not None:
        return ["-e", f"{source}{extras}"]
    installed = distribution(name)
    asked = f"{name}{extras}=={installed.version}"
    if (files := _files(installed)) is None:
        return [asked]
    hashes = sorted((str(path), path.hash.value if path.hash else "") for path in files)
    return [asked, hashlib.sha256(json.dumps(hashes).encode()).hexdigest()]


def pack(installed: Distribution, folder: Path) -> Path:
    """Packs an installed distribution into a wheel: the same files, under the same name, version and tag."""
    files = _files(installed) or []
    information = next(path for path in files if path.name == "WHEEL")
    tag = next(line[5:] for line in information.read_text().splitlines() if line.startswith("Tag: "))
    stem = information.parent.name.removesuffix(".dist-info")
    wheel = folder / f"{stem}-{tag}.whl"
    record = information.parent / "RECORD"
    lines = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            content = Path(str(path.locate())).read_bytes()
            archive.writestr(str(path), content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f'"{path}",sha256={digest},{len(content)}')
        archive.writestr(str(record), "\n".join([*lines, f"{record},,"]) + "\n")
    return wheel


def _editable(name: str) -> Path | None:
    """Returns the folder that a distribution is run from, if it is not copied from there."""
    if name == OURS and (checkout := source_checkout()):
        return checkout
    origin = json.loads(distribution(name).read_text("direct_url.json") or "{}")
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(origin["url"]).path))


def _files(installed: Distribution) -> list[PackagePath] | None:
    """Returns the files that a wheel of an installed distribution has; None: it is not known, or not all are here."""
    files = [path for path in installed.files or () if not _is_left_out(path)]
    whole = any(path.name == "WHEEL" for path in files) and all(_is_here(path) for path in files)
    return files if whole else None


def _is_here(path: PackagePath) -> bool:
    """Returns whether a file is there, and among packages: data that goes elsewhere cannot be put back in a wheel."""
    return ".." not in path.parts and Path(str(path.locate())).is_file()


def _is_left_out(path: PackagePath) -> bool:
    made_by_pip = path.parent.name.endswith(".dist-info") and path.name in _OF_AN_INSTALLATION
    return made_by_pip or "__pycache__" in path.parts or _is_script(path.parts)


def _is_script(parts: Iterable[str]) -> bool:
    """Returns whether it is a command, which is made anew from the entry points."""
    *folders, _ = parts
    return ".." in folders and folders[-1] in _SCRIPTS
