"""Which images a change touches: file names on standard input, a JSON list for a workflow's matrix on standard output.

git diff --name-only main | python docker/changed_images.py
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

IMAGES = sorted(path.name.removesuffix(".Dockerfile") for path in Path(__file__).parent.glob("*.Dockerfile"))
# Every image holds the whole of sparring; what is only ever imported in some of them is listed here.
ONLY_IN = {
    "env_worker/benchmarks/_libero/": ("libero",),
    "env_worker/benchmarks/libero.py": ("libero",),
    "env_worker/benchmarks/aloha.py": ("aloha",),
    "env_worker/benchmarks/metaworld.py": ("metaworld",),
    "env_worker/benchmarks/pusht.py": ("pusht",),
    "env_worker/environments/aloha/": ("aloha",),
    "env_worker/environments/libero/": ("libero",),
    "env_worker/environments/pusht/": ("pusht",),
    "docker/slim_libero.py": ("libero",),
    "docker/compile_libero.py": ("libero",),
    "policy_server/policies/": ("policy-server",),
    "orchestrator/": ("orchestrator",),
    **{f"docker/{image}.Dockerfile": (image,) for image in IMAGES},
    **{f"docker/constraints/{image}.txt": (image,) for image in IMAGES},
    **{f"docker/requirements/{image}.txt": (image,) for image in IMAGES},
}
ROOMS = (
    "src/",
    "protos/",
    "policy_server/",
    "env_worker/",
    "pyproject.toml",
    ".dockerignore",
    "docker/",
    ".github/workflows/images.yml",
)


def images_of(file: str) -> Sequence[str]:
    """The images that a file decides about."""
    for path, images in ONLY_IN.items():
        if file.startswith(path):
            return images
    return IMAGES if file.startswith(ROOMS) else ()


def main() -> None:
    """Prints the list; `--all` instead of file names gives all images."""
    files = sys.stdin.read().split("\n")
    touched = set(IMAGES) if "--all" in files else {image for file in files for image in images_of(file)}
    sys.stdout.write(json.dumps(sorted(touched)) + "\n")


if __name__ == "__main__":
    main()
