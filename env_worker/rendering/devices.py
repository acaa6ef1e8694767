"""The devices of a worker while it works: slots are spread over them, and those that kill slots are left alone."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from sparring.env_worker.rendering.choice import Choice
from sparring.env_worker.rendering.device import Device

log = logging.getLogger(__name__)


class RenderDevices:
    """Knows which devices are of use.

    Args:
        choice: What there is.
    """

    def __init__(self, choice: Choice | None = None) -> None:
        self._choice = choice or Choice()
        self._deaths: Counter[Device] = Counter()
        self._left: set[Device] = set()
        self._kept: set[Device] = set()
        """Those that are broken and, being the last, are drawn on all the same."""
        self._warnings = list(self._choice.warnings)

    @property
    def warnings(self) -> Sequence[str]:
        """What whoever evaluates should know: devices that are left alone."""
        return self._warnings

    @property
    def have_changed(self) -> bool:
        """Whether a device was left alone while slots drew on it: others draw now."""
        return bool(self._left)

    def of(self, slot: int) -> Device | None:
        """Returns what a slot is to draw on; None: that is its simulator's own affair."""
        usable = self._usable()
        return usable[slot % len(usable)] if usable else None

    def is_left(self, device: Device | None) -> bool:
        """Returns whether nobody is to draw on a device any more."""
        return device in self._left

    def has_another(self, device: Device | None) -> bool:
        """Returns whether there is something else to draw on."""
        return device is not None and any(other != device for other in (*self._usable(), *self._spare()))

    def died_on(self, device: Device | None, how: str) -> bool:
        """Hears that a slot ended while it drew; returns whether that was the device's doing, as far as one can tell.

        A device is left alone at once where others of its kind are there. The only one has a second chance, because
        what comes after it may have other pixels; and where there is nothing else, it is not left at all.

        Args:
            device: That the slot drew on.
            how: It ended, in words that a sentence goes on with.
        """
        if device is None or (not self.is_left(device) and not self.has_another(device)):
            return False
        self._deaths[device] += 1
        if not self.is_left(device) and (len(self._usable()) > 1 or self._deaths[device] > 1):
            self.leave(device, how)
        return True

    def leave(self, device: Device, why: str) -> bool:
        """Leaves a device alone from now on, if there is something else to draw on; returns whether it is left.

        Args:
            device: That is broken.
            why: One thinks so, in words that a sentence goes on with.
        """
        if self.is_left(device):
            return True
        if self.has_another(device):
            self._left.add(device)
            others = " and ".join(map(str, self._usable()))
            self._warn(f"{device} is left alone: {why}. Slots draw on {others} from then on.")
            return True
        if device not in self._kept:
            self._kept.add(device)
            self._warn(
                f"{device} is not left alone, because there is nothing else to draw on: {why}. What it cannot draw "
                "are errors of episodes."
            )
        return False

    def _warn(self, sentence: str) -> None:
        self._warnings.append(sentence)
        log.warning("%s", sentence)

    def _usable(self) -> list[Device]:
        """Returns what slots are spread over; one at least, if any was chosen, because the last is never left."""
        living = [device for device in self._choice.chosen if device not in self._left]
        return living or self._spare()[:1]

    def _spare(self) -> list[Device]:
        return [device for device in self._choice.spare if device not in self._left]
