"""LeRobot's own asynchronous policy server (of LeRobot 0.6.1 and 0.4.4) as a policy of ours."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from async_servers import policy_server
from checkpoints import act_config, save
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from sessions import film, looks

from sparring.policy_server.errors import PolicyFailed, PolicyUnreachable
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies import load_policy
from sparring.protos.errors import UsageError
from sparring.protos.spec import Offer, TensorSpec
from sparring.protos.tensor import Array

CAMERAS = ("observation.images.image", "observation.images.image2")
STATE = "observation.state"
SHOWN = looks(*CAMERAS)
OFFER = Offer(SHOWN, action_low=(-1.0,) * 4, action_high=(1.0,) * 4)
LAYOUT: dict[str, Any] = {"images": {name: name for name in CAMERAS}, "states": {STATE: STATE}, "dtype": "float32"}
PLAY = 6
SENTENCE = "Reach a goal position"


def test_this_is_the_version() -> None:
    assert version("lerobot") in ("0.4.4", "0.6.1")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(act_config(64, CAMERAS), tmp_path_factory.mktemp("act") / "checkpoint")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Any, int]]:
    with policy_server(tmp_path) as served:
        yield served


def load(port: int, checkpoint: Path | str, **arguments: Any) -> LocalPolicy:
    given = {
        **LAYOUT,
        "instruction": "task",
        "play": PLAY,
        "timeout": 10,
        "unpickle": True,
        "policy_type": "act",
        "checkpoint": str(checkpoint),
        **arguments,
    }
    address = f"lerobot-async://127.0.0.1:{port}"
    return LocalPolicy(lambda: load_policy(address, given), name=address)


def by_lerobot(
    folder: Path, frame: Mapping[str, Array], *, cameras: Sequence[str] = CAMERAS, play: int = PLAY
) -> Array:
    """What LeRobot's own policy answers to a frame, without any server."""
    policy = get_policy_class("act").from_pretrained(folder)
    pre, post = make_pre_post_processors(policy.config, pretrained_path=str(folder))
    seen = {name: torch.from_numpy(frame[name]).permute(2, 0, 1)[None].float() / 255 for name in cameras}
    with torch.inference_mode():
        chunk = policy.predict_action_chunk(pre({**seen, STATE: torch.from_numpy(frame[STATE])[None], "task": ""}))
        return np.stack([post(chunk[:, step]).numpy()[0] for step in range(play)])


def test_its_answers_are_those_of_the_checkpoint_and_belong_to_what_was_shown(
    server: tuple[Any, int], checkpoint: Path
) -> None:
    _, port = server
    session = load(port, checkpoint).open(OFFER, benchmark="mine")
    answers = []
    for episode in range(2):
        session.start(instruction=SENTENCE, seed=episode)
        for look, frame in enumerate(film(episode, 3, SHOWN)):
            answers.append(session.act(frame, step=PLAY * look).actions)
            assert np.array_equal(answers[-1], by_lerobot(checkpoint, frame))
    assert len({answer.tobytes() for answer in answers}) == 6


@pytest.mark.parametrize(
    ("benchmark", "ours", "theirs", "numbers"),
    [
        ("aloha", "observation.images.top", "observation.images.top", 14),
        ("pusht", "observation.image", "observation.images.image", 2),
    ],
)
def test_what_a_checkpoint_of_a_benchmark_is_shown_need_not_be_said(
    server: tuple[Any, int], tmp_path: Path, benchmark: str, ours: str, theirs: str, numbers: int
) -> None:
    from lerobot.configs.types import FeatureType, PolicyFeature

    config = act_config(64, (theirs,))
    config.input_features[STATE] = PolicyFeature(FeatureType.STATE, (numbers,))
    config.output_features["action"] = PolicyFeature(FeatureType.ACTION, (numbers,))
    size = {name: torch.full((numbers,), value) for name, value in (("mean", 0.0), ("std", 0.5))}
    checkpoint = save(config, tmp_path / "checkpoint", statistics={STATE: size, "action": size})
    shown = {ours: TensorSpec("uint8", (64, 64, 3)), STATE: TensorSpec("float32", (numbers,))}
    given = {"timeout": 10, "unpickle": True, "policy_type": "act", "checkpoint": str(checkpoint)}
    address = f"lerobot-async://127.0.0.1:{server[1]}"
    session = LocalPolicy(lambda: load_policy(address, given), name=address).open(
        Offer(shown, action_low=(-1.0,) * numbers, action_high=(1.0,) * numbers), benchmark=benchmark
    )
    session.start(instruction=SENTENCE, seed=0)
    (frame,) = film(0, 1, shown)
    answer = session.act(frame, step=0).actions
    known = by_lerobot(checkpoint, {theirs: frame[ours], STATE: frame[STATE]}, cameras=(theirs,), play=len(answer))
    assert answer.shape == (8 if benchmark == "pusht" else 10, numbers)
    assert np.array_equal(answer, known)


def test_the_checkpoint_is_loaded_once_for_many_episodes_and_again_by_a_server_that_was_started_again(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = film(0, 1, SHOWN)[0]
    loaded: list[str] = []
    with policy_server(tmp_path) as (servicer, port):
        from lerobot.async_inference import policy_server as module

        monkeypatch.setattr(module, "get_policy_class", lambda name: loaded.append(name) or get_policy_class(name))
        session = load(port, checkpoint).open(OFFER, benchmark="mine")
        for episode in range(3):
            session.start(instruction=SENTENCE, seed=episode)
            session.act(frame, step=0)
        assert loaded == ["act"]
        assert servicer.actions_per_chunk == PLAY
    with pytest.raises(PolicyUnreachable, match="went away in the middle of an episode"):
        session.act(frame, step=PLAY)
    with policy_server(tmp_path, port):
        session.start(instruction=SENTENCE, seed=3)
        assert np.array_equal(session.act(frame, step=0).actions, by_lerobot(checkpoint, frame))
    assert loaded == ["act", "act"]


def test_what_its_policy_raises_is_a_failure_with_where_to_look(server: tuple[Any, int], checkpoint: Path) -> None:
    servicer, port = server
    session = load(port, checkpoint).open(OFFER, benchmark="mine")
    session.start(instruction=SENTENCE, seed=0)
    servicer.policy.predict_action_chunk = lambda observation: 1 / 0
    with pytest.raises(PolicyFailed, match=r"gave no actions\. Its policy may have raised"):
        session.act(film(0, 1, SHOWN)[0], step=0)


def test_a_checkpoint_that_it_cannot_load_is_a_failure_with_its_own_words(server: tuple[Any, int]) -> None:
    session = load(server[1], "/no/such/checkpoint").open(OFFER, benchmark="mine")
    with pytest.raises(PolicyFailed, match="no/such/checkpoint"):
        session.start(instruction=SENTENCE, seed=0)


def test_a_policy_that_takes_too_long_is_late_and_its_answer_is_nobody_elses(
    server: tuple[Any, int], checkpoint: Path
) -> None:
    servicer, port = server
    session = load(port, checkpoint, timeout=1).open(OFFER, benchmark="mine")
    first, second = film(0, 2, SHOWN)
    session.start(instruction=SENTENCE, seed=0)
    go_on = threading.Event()
    usual = servicer.policy.predict_action_chunk

    def slowly(observation: Any) -> Any:
        assert go_on.wait(20)
        return usual(observation)

    servicer.policy.predict_action_chunk = slowly
    with pytest.raises(PolicyFailed, match="did not answer within 1 s"):
        session.act(first, step=0)
    go_on.set()
    session.start(instruction=SENTENCE, seed=1)
    assert np.array_equal(session.act(second, step=0).actions, by_lerobot(checkpoint, second))


def test_actions_for_an_earlier_observation_are_not_played(server: tuple[Any, int], checkpoint: Path) -> None:
    servicer, port = server
    session = load(port, checkpoint).open(OFFER, benchmark="mine")
    frame = film(0, 1, SHOWN)[0]
    session.start(instruction=SENTENCE, seed=0)
    usual, asked = servicer._predict_action_chunk, []

    def earlier_first(observation: Any) -> Any:
        from lerobot.async_inference.helpers import TimedAction

        asked.append(observation.get_timestep())
        if len(asked) > 1:
            return usual(observation)
        servicer.observation_queue.put(observation)
        return [TimedAction(observation.get_timestamp() - 1, observation.get_timestep() - 1, torch.zeros(4))]

    servicer._predict_action_chunk = earlier_first
    assert np.array_equal(session.act(frame, step=0).actions, by_lerobot(checkpoint, frame))
    assert len(asked) == 2


def test_an_answer_that_would_run_code_is_refused_and_nothing_is_run(
    server: tuple[Any, int], checkpoint: Path, tmp_path: Path
) -> None:
    servicer, port = server
    session = load(port, checkpoint).open(OFFER, benchmark="mine")
    session.start(instruction=SENTENCE, seed=0)
    touched = tmp_path / "touched"

    class Evil:
        def __reduce__(self) -> Any:
            return touched.touch, ()

    servicer._predict_action_chunk = lambda observation: [Evil()]
    with pytest.raises(PolicyFailed, match="which nothing of this wire needs"):
        session.act(film(0, 1, SHOWN)[0], step=0)
    assert not touched.exists()


@pytest.mark.parametrize(
    ("without", "said"), [("unpickle", "pickles.*unpickle=True"), ("checkpoint", "checkpoint="), ("policy_type", "act")]
)
def test_it_is_off_until_the_user_says_so_and_says_what(without: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load(1, **{"checkpoint": "x", without: False if without == "unpickle" else ""})


def test_it_has_one_client_at_a_time_whom_others_wait_for(checkpoint: Path) -> None:
    with pytest.raises(UsageError, match="at most 1 clients"):
        load(1, checkpoint, clients=2)


def test_a_server_of_something_else_is_told_apart(tmp_path: Path, checkpoint: Path) -> None:
    from concurrent import futures

    import grpc

    other = grpc.server(futures.ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    with pytest.raises(UsageError, match=r"no lerobot-async server answers.*UNIMPLEMENTED"):
        load(port, checkpoint)
    other.stop(None)
