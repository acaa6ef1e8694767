"""Frames for who watches an episode: drawn while they look and not otherwise, and nothing else is any different."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image
from toy_benchmark import Toy, ToySettings, ToySimulator
from toy_policies import Forward

from sparring.env_worker.benchmark import Simulator, Task
from sparring.env_worker.episode import live_frames
from sparring.env_worker.episode.live_frames import FrameRequest, png
from sparring.env_worker.episode.session import Session
from sparring.env_worker.rendering import mark
from sparring.env_worker.worker.outbox import Outbox
from sparring.env_worker.worker.player import Player
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies.base import Policy
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.spec import Offer, PolicySpec, TensorSpec
from sparring.protos.tensor import Array

ASSIGNMENT = pb.Assignment(benchmark="toy", video_fps=20.0)
LEASE = pb.Lease(lease=7, task="short", index=0, seed=1000, keep_actions=True)
TIMES = ("seconds", "physics_s", "render_s", "policy_s", "transport_s")


class Sessions:
    """Of a policy in this process."""

    def __init__(self, policy: Policy) -> None:
        self._policy = LocalPolicy(policy, name="toy")

    def session_for(self, offer: Offer) -> Session:
        return self._policy.open(offer)

    def end(self) -> None:
        pass


class Looks(Forward):
    """Looks at images, at one step in four."""

    def __init__(self) -> None:
        super().__init__()
        self.spec = PolicySpec({"image": TensorSpec("uint8", (16, 16, 3))}, action_dim=1, chunk_length=4)


class Shown(Toy):
    """Keeps its simulators, to see how often they were asked for a snapshot."""

    def __init__(self, raises: bool = False) -> None:
        self.made: list[Any] = []
        self._raises = raises

    def make(self, task: Task, settings: ToySettings) -> Simulator:
        simulator = ToySimulator(task.name, settings)
        drawn = simulator.snapshot

        def snapshot() -> Array | None:
            self.made.append(simulator)
            if self._raises:
                with simulator.meter.image():
                    raise OSError("there is no screen")
            return drawn()

        simulator.snapshot = snapshot  # type: ignore[method-assign]
        return simulator


@pytest.fixture(autouse=True)
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_frames, "_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(live_frames, "_PAUSE", 0.0)


def played(benchmark: Toy, request: FrameRequest | None, policy: Any = Forward) -> pb.Result:
    player = Player(benchmark, ToySettings(), Sessions(policy()), frames=request)
    result = player.play(LEASE, ASSIGNMENT).result
    for name in TIMES:
        result.ClearField(name)  # type: ignore[arg-type] # a name of one of its fields
    return result


def test_nothing_is_drawn_for_nobody_and_what_is_drawn_changes_nothing() -> None:
    frames: list[tuple[str, int, int, bytes]] = []
    alone = played(Toy(), None)
    benchmark, request = Shown(), FrameRequest(lambda *frame: frames.append(frame))
    assert played(benchmark, request) == alone
    assert (frames, benchmark.made) == ([], [])
    request.ask(60.0)
    assert played(benchmark, request) == alone, "the record has no more renders, and no renderer"
    assert [frame[:3] for frame in frames] == [("short", 0, step) for step in range(alone.steps + 1)]
    assert len(benchmark.made) == alone.steps + 1
    shade = np.asarray(Image.open(io.BytesIO(frames[3][3])))
    assert (shade.shape, set(shade.flat)) == ((24, 16, 3), {24}), "what the camera sees after three steps"


def test_what_the_policy_sees_anyway_is_not_drawn_again() -> None:
    frames: list[Any] = []
    benchmark, request = Shown(), FrameRequest(lambda *frame: frames.append(frame))
    alone = played(benchmark, request, Looks)
    request.ask(60.0)
    assert played(benchmark, request, Looks) == alone
    assert 0 < len(benchmark.made) == alone.steps + 1 - alone.round_trips, "once where the policy does not look"
    assert len(frames) == alone.steps + 1


def test_a_simulator_that_cannot_draw_spoils_no_episode(caplog: pytest.LogCaptureFixture) -> None:
    frames: list[Any] = []
    benchmark, request = Shown(raises=True), FrameRequest(lambda *frame: frames.append(frame))
    request.ask(60.0)
    assert played(benchmark, request) == played(Toy(), None)
    assert len(benchmark.made) == 1, "it is not tried again"
    assert frames == []
    assert caplog.messages == ["short #0 cannot be shown live: OSError: there is no screen"]
    assert mark._mark.value == mark.IDLE


def test_who_asks_once_is_shown_something_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(live_frames.time, "monotonic", lambda: now)
    monkeypatch.setattr(live_frames, "_EVERY_SECONDS", 0.5)
    monkeypatch.setattr(live_frames, "_PAUSE", 9.0)
    request = FrameRequest(lambda *frame: None)
    assert not request.is_due()
    request.ask(20.0)
    assert request.is_due()
    request.shown(3.0)
    assert not request.is_due(), "not twice at the same moment"
    now = 100.5
    assert request.is_due(), "the first frame has made what draws, and says nothing of the next"
    request.shown(1.0)
    now = 109.4
    assert not request.is_due(), "what draws slowly has a tenth of the time, and not all of it"
    now = 109.6
    assert request.is_due()
    now = 120.1
    assert not request.is_due()


@pytest.mark.parametrize("shape", [(1, 1, 3), (24, 16, 3), (480, 640, 3), (7, 1500, 3)])
def test_a_png_is_the_image(shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    stride = -(-max(shape) // 512)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(png(image)))), image[::stride, ::stride])


def test_what_is_no_image_is_none() -> None:
    for wrong in (np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8)):
        with pytest.raises(ValueError, match="no image of three colours"):
            png(wrong)


def test_frames_wait_one_of_each_slot() -> None:
    sent: list[tuple[int, int]] = []

    async def write(message: pb.WorkerMessage) -> None:
        sent.append((message.frame.slot, message.frame.steps))

    async def test() -> None:
        outbox = Outbox()
        for slot, steps in ((0, 1), (0, 2), (1, 3)):
            outbox.put(pb.WorkerMessage(frame=pb.Frame(slot=slot, steps=steps)))
        await outbox.send_next(write)
        outbox.put(pb.WorkerMessage(frame=pb.Frame(slot=0, steps=4)))
        await outbox.send_next(write)
        await outbox.send_next(write)
        assert sent == [(0, 1), (1, 3), (0, 4)]
        outbox.put(pb.WorkerMessage(frame=pb.Frame(slot=0)))
        assert outbox.keep_owed() == set(), "another stream hears of what is seen then"
        outbox.put(pb.WorkerMessage(frame=pb.Frame(slot=0, steps=5)))
        await outbox.send_next(write)
        assert sent[-1] == (0, 5)

    asyncio.run(test())
