"""Takes out of LIBERO's environment what no LIBERO task uses: most of robosuite's meshes, fonts for PDFs, tests.

Also hf_xet, 12 MB: the hub's files can be downloaded without it (HF_HUB_DISABLE_XET says so to huggingface_hub).

python slim_libero.py SITE_PACKAGES
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

ROBOT = "panda"  # the only robot of LIBERO
GRIPPER = "panda_gripper"
OTHER_RENDERERS = ("bullet_data", "demonstrations", "light_maps")  # for iGibson and NVISII, which are not here
MESHES = (".stl", ".obj", ".mtl", ".dae")


def useless(assets: Path) -> Iterator[Path]:
    """Files and folders of robosuite's assets that nothing here refers to."""
    yield from (assets / name for name in OTHER_RENDERERS)
    yield from (robot for robot in (assets / "robots").iterdir() if robot.is_dir() and robot.name != ROBOT)
    for kind in ("meshes", "obj_meshes"):
        yield from (gripper for gripper in (assets / "grippers" / kind).iterdir() if gripper.name != GRIPPER)
    yield from (assets / "textures").glob("*-4k.jpg")  # for NVISII
    # The same meshes lie there in four formats; the models name the one they use.
    named = {
        Path(file).name for model in assets.rglob("*.xml") for file in re.findall(r'file="([^"]+)"', model.read_text())
    }
    for part in ("robots", "grippers", "mounts"):
        yield from (
            file for file in (assets / part).rglob("*") if file.suffix.lower() in MESHES and file.name not in named
        )


def main() -> None:
    """Removes it all."""
    packages = Path(sys.argv[1])
    tests = [folder for folder in packages.rglob("tests") if folder.is_dir()]
    for path in [
        *useless(packages / "robosuite/models/assets"),
        packages / "fontTools",
        *packages.glob("hf_xet*"),
        *tests,
    ]:
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():  # else its folder has gone already
            path.unlink()


if __name__ == "__main__":
    main()
