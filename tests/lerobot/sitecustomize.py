"""Imported by every Python that has this folder on its path: the policy servers that tests start."""

import lerobot_on_311  # noqa: F401
import torchvision_on_cpu  # noqa: F401
