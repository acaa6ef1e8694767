"""Saves the checkpoint that all contenders play: an ACT of LeRobot's own class, as it is made, for one benchmark.

python checkpoint.py metaworld|libero CHUNK FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from checkpoints import IMAGE, STATISTICS, act_config, save
from lerobot.configs.types import FeatureType, PolicyFeature


def main() -> None:
    benchmark, chunk, folder = sys.argv[1:]
    settings = {"chunk_size": int(chunk), "n_action_steps": int(chunk), "dim_model": 256, "dim_feedforward": 1024}
    if benchmark == "metaworld":
        save(act_config(480, (IMAGE,), **settings), Path(folder))
        return
    config = act_config(256, ("observation.images.image", "observation.images.image2"), **settings)
    sizes = {"observation.state": 8, "action": 7}
    config.input_features["observation.state"] = PolicyFeature(FeatureType.STATE, (8,))
    config.output_features["action"] = PolicyFeature(FeatureType.ACTION, (7,))
    wider = {name: {kind: v.repeat(2)[:size] for kind, v in STATISTICS[name].items()} for name, size in sizes.items()}
    save(config, Path(folder), statistics={**STATISTICS, **wider})


if __name__ == "__main__":
    main()
