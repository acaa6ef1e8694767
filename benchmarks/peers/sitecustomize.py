"""Imported by every Python that against_peers.py starts: what is counted there, and what lets LeRobot import here."""

import lerobot_on_311  # noqa: F401
import noted  # noqa: F401
import torchvision_on_cpu  # noqa: F401
