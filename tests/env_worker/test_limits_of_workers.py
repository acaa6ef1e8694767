"""What a worker draws, tries, plays and waits for at most: what just fits, and what is one more."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sparring.env_worker.compliance import episodes
from sparring.env_worker.episode import live_frames
from sparring.env_worker.rendering import probe, renderer
from sparring.env_worker.rendering.probe import NotDrawn
from sparring.env_worker.worker import replicas
from sparring.env_worker.worker.replicas import PolicyServers
from sparring.policy_server.client import Offer, PolicyFull
from sparring.protos.net.address import Address
from sparring.protos.rules import NotApplicable


@pytest.mark.parametrize("side", [0, 1])
def test_the_sides_of_a_picture_that_is_shown_live(side: int) -> None:
    def shown(pixels: int) -> tuple[int, int]:
        shape = [2, 2]
        shape[side] = pixels
        width, height = Image.open(io.BytesIO(live_frames.png(np.zeros((*shape, 3), np.uint8)))).size
        return height, width

    most = live_frames._MOST_PIXELS
    assert shown(most)[side] == most
    assert shown(most + 1)[side] == most // 2 + 1, "every second pixel"


def test_the_bytes_of_a_picture_that_is_shown_live(monkeypatch: pytest.MonkeyPatch) -> None:
    image = np.zeros((4, 4, 3), np.uint8)
    size = len(live_frames.png(image))
    for most, shown in ((size, 1), (size - 1, 0)):
        monkeypatch.setattr(live_frames, "MAX_FRAME", most)
        frames: list[bytes] = []

        def show(task: str, index: int, steps: int, content: bytes, frames: list[bytes] = frames) -> None:
            frames.append(content)

        request = live_frames.FrameRequest(show, lambda: True)
        simulator: Any = SimpleNamespace(camera="image")
        live_frames.LiveFrames(simulator, request, "short", 0).on_reset({"image": image})
        assert len(frames) == shown


def python_that(says: str, folder: Path) -> Path:
    file = folder / "python"
    file.write_text(f"#!/bin/sh\nprintf '%s\\n' '{says}'\n")
    file.chmod(0o755)
    return file


def test_devices_that_are_known(tmp_path: Path) -> None:
    most = probe._MOST_DEVICES
    assert probe.count_devices(python_that(str(most), tmp_path)) == most
    assert probe.count_devices(python_that(str(most + 1), tmp_path)) == most


def test_what_a_driver_says() -> None:
    for length in (probe._MOST_SAID, probe._MOST_SAID + 1):
        tried = probe._read_drawn("x" * length)
        assert isinstance(tried, NotDrawn)
        assert tried.reason.endswith(repr("x" * probe._MOST_SAID))


def test_the_name_of_a_renderer(monkeypatch: pytest.MonkeyPatch) -> None:
    most = renderer.MAX_NAME
    monkeypatch.setattr(renderer, "_loaded", lambda _: SimpleNamespace())
    monkeypatch.setattr(renderer, "_pointer", lambda *_: lambda: 1)
    for length in (most, most + 1):
        monkeypatch.setattr(renderer, "_strings", lambda *_, length=length: iter(["x" * length]))
        assert renderer.current_renderer() == "x" * most


class Full:
    """A policy server that is full."""

    address = Address.parse("127.0.0.1:1")

    def open(self, offer: Offer, **hello: Any) -> Any:
        raise PolicyFull("the server is full.")

    def close(self) -> None:
        pass


def test_the_pause_before_a_place_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("sparring.env_worker.worker.replicas.time.sleep", slept.append)
    here: Any = Full()
    servers = PolicyServers([here.address], home=0, timeout=0.1, connect=lambda _: here)
    for _ in range(7):
        with pytest.raises(PolicyFull):
            servers.open(Offer({}, (-1.0,), (1.0,)), benchmark="", client="test")
    longest = replicas._LONGEST_PAUSE
    assert slept == [longest / 16, longest / 8, longest / 4, longest / 2, longest, longest, longest]


class Ending:
    """A simulator of one step: an episode of it ends at its limit."""

    offers = Offer({}, (-1.0,), (1.0,))

    def __init__(self, limit: int) -> None:
        self.max_steps = limit
        self.steps = 0

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def reset(self, **_: Any) -> None:
        self.steps = 0

    def step(self, action: Any, **_: Any) -> Any:
        self.steps += 1
        return SimpleNamespace(terminated=False, truncated=self.steps >= self.max_steps)


def test_steps_that_are_played_to_see_the_end_of_an_episode() -> None:
    def check(limit: int) -> int:
        simulator = Ending(limit)
        subject: Any = SimpleNamespace(
            simulator=lambda: simulator, task=SimpleNamespace(max_steps=0), episodes=[SimpleNamespace(seed=1, index=0)]
        )
        episodes.episodes_end_in_time(subject)
        return simulator.steps

    assert check(episodes._LONGEST) == episodes._LONGEST
    with pytest.raises(NotApplicable, match=r"max_steps is 2001; 2000 are played at most"):
        check(episodes._LONGEST + 1)
