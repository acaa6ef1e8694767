"""Regenerates the stubs beside the .proto files: `make protos`.

The pinned grpcio-tools is old on purpose: stubs made by a new one refuse old runtimes, while these
run on every runtime from then to now, and benchmark images pin what they must.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parent / "src"
"""Where packages are: protobuf knows files by their paths below it, so ours are called after `sparring`."""
TOOLS_VERSION = "1.62.3"


def generate(destination: Path) -> list[Path]:
    """Writes the stubs of all .proto files below `destination` and returns their paths."""
    from importlib.metadata import version

    from grpc_tools import protoc

    if version("grpcio-tools") != TOOLS_VERSION:
        raise SystemExit(f"stubs are made with grpcio-tools {TOOLS_VERSION}, {version('grpcio-tools')} is installed.")
    sources = sorted(str(path.relative_to(SOURCES)) for path in (SOURCES / "sparring" / "protos").glob("*.proto"))
    outputs = [f"--{kind}_out={destination}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    if protoc.main(["protoc", f"-I{SOURCES}", *outputs, *sources]) != 0:
        raise SystemExit("protoc failed, see above.")
    return sorted((destination / "sparring" / "protos").glob("*_pb2*"))


if __name__ == "__main__":
    generate(SOURCES)
    sys.stdout.write("stubs regenerated\n")
