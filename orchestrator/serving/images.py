"""Whether a policy that is still being loaded will look at images: a glance at what is known of it before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from sparring.orchestrator.settings import RunSettings

_LEROBOT: Final = "lerobot:"
_CONFIGS: Final = ("config.json", "pretrained_model/config.json")
_MOST: Final = 1 << 20
"""Bytes of a configuration; what is larger is none."""


def looks_at_images(settings: RunSettings) -> bool:
    """Returns whether images will be wanted, as far as can be known: by the policy, or by films.

    Workers then have ready what draws them. A wrong answer costs time or memory, and nothing else: of a class of the
    user's own, or a policy that is served elsewhere, nothing is known, and the answer is no. Films of failures, or of
    successes, may never come: what draws them is made with the first one, unless they are filmed live.
    """
    output = settings.output
    live = output.video_live or not output.actions
    if output.video != "none" and (live or output.video not in ("failures", "successes")):
        return True
    name = settings.policy.name or ""
    if name.startswith(_LEROBOT):
        return _lerobot_looks(name.removeprefix(_LEROBOT))
    named = settings.policy.arguments.get("observations", ())
    return isinstance(named, list) and any("image" in str(observation) for observation in named)


def _lerobot_looks(reference: str) -> bool:
    """Returns whether a checkpoint's configuration has images; yes, if it is on a hub: hardly any has none."""
    folder = Path(reference).expanduser()
    if not folder.is_dir():
        return True
    for config in (folder / name for name in _CONFIGS):
        try:
            if config.stat().st_size <= _MOST:
                return _has_images(json.loads(config.read_text()))
        except (OSError, ValueError, RecursionError):  # whoever loads it says what is wrong with it
            continue
    return False


def _has_images(config: Any) -> bool:
    features = config.get("input_features") if isinstance(config, dict) else None
    found = features.values() if isinstance(features, dict) else ()
    return any(isinstance(feature, dict) and feature.get("type") == "VISUAL" for feature in found)
