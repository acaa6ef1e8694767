"""Prints what a pyproject.toml asks for, with the extras named: the images' dependency layer is made from nothing else.

python requirements.py pyproject.toml metaworld,torch
"""

import sys
import tomllib
from pathlib import Path


def main() -> None:
    """Writes one requirement a line, or says which extra does not exist."""
    path, *extras = sys.argv[1:]
    project = tomllib.loads(Path(path).read_text())["project"]
    known = project["optional-dependencies"]
    lines = list(project["dependencies"])
    for extra in filter(None, ",".join(extras).split(",")):
        if extra not in known:
            sys.exit(f"error: there is no extra {extra!r}; there are: {', '.join(known)}")
        lines += known[extra]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
