"""Whether a folder lies on storage that several machines share, where SQLite cannot be relied on as on a disk."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_SHARED: Final = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "ncpfs", "virtiofs"),
        *("lustre", "gpfs", "mmfs", "beegfs", "panfs", "pvfs2", "orangefs", "wekafs", "glusterfs", "ocfs2", "gfs2"),
        *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph-fuse", "fuse.mfs", "fuse.juicefs", "fuse.s3fs", "fuse.gcsfuse"),
    }
)
_MOUNTS: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(r"\\(\d{3})")


def shared_storage(folder: Path, mounts: Path | None = None) -> str:
    """Returns the kind of shared storage that a folder is on: `nfs4`; empty if it is on a disk, or nobody can tell.

    Args:
        folder: It need not exist yet.
        mounts: Where the kernel says what is mounted, if not where it always does.
    """
    whole = folder.absolute()
    # With a dot at the end: what an automounter has, as on many clusters, is mounted when somebody looks into it.
    here = next((path for path in (whole, *whole.parents) if os.path.exists(f"{path}/.")), Path("/")).resolve()
    try:
        lines = (mounts or _MOUNTS).read_text().splitlines()
    except OSError:
        return ""
    kind = _kind(here, lines)
    return kind if kind in _SHARED else ""


def _kind(folder: Path, lines: Iterable[str]) -> str:
    """Returns the kind of file system whose mount point is nearest; of two at one place, the later hides the other."""
    found, depth = "", -1
    for line in lines:
        about, _, rest = line.partition(" - ")
        fields, kinds = about.split(), rest.split()
        if len(fields) < 5 or not kinds:
            continue
        point = Path(_OCTAL.sub(lambda code: chr(int(code[1], 8)), fields[4]))
        if folder.is_relative_to(point) and len(point.parts) >= depth:
            found, depth = kinds[0], len(point.parts)
    return found
