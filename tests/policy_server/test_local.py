"""A policy asked in this process, beside the same one behind a server: same answers, same refusals, same sentences."""

from __future__ import annotations

import asyncio
import bdb
import contextlib
import logging
import random
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sample_policies as sample
from sample_policies import SIGNAL, Fragile

from sparring.policy_server.client import PolicyClient, PolicyFailed, PolicyRefused, ServerOptions
from sparring.policy_server.local import LocalPolicy
from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec, TensorSpec
from sparring.policy_server.server import PolicyServer
from sparring.policy_server.session_client import SessionClient
from sparring.protos.errors import UsageError
from sparring.protos.spec import Offer

OFFER = Offer(
    {
        SIGNAL: TensorSpec("float64", (1,)),
        "camera": TensorSpec("uint8", (4, 6, 3)),
        "step": TensorSpec("int64", ()),
    },
    action_low=(-1.0, -0.1),
    action_high=(1.0, 1 / 3),
    control_hz=19.7,
)


@contextlib.contextmanager
def served(policy: Policy, *, benchmark: str = "", offer: Offer = OFFER) -> Iterator[SessionClient]:
    """A session of a real server, which runs in a thread of this process."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(20)

    server = PolicyServer(policy, ServerOptions(policy="sample", policy_args={"a": 1}))
    (address,) = run(server.start(["127.0.0.1:0"]))
    try:
        with PolicyClient(address, timeout=60) as client, client.open(offer, benchmark=benchmark) as session:
            yield session
    finally:
        run(server.drain(0))
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()


@contextlib.contextmanager
def local(policy: Policy, *, benchmark: str = "", offer: Offer = OFFER) -> Iterator[SessionClient]:
    yield LocalPolicy(policy, name="sample", arguments={"a": 1}).open(offer, benchmark=benchmark)


Opened = Callable[..., contextlib.AbstractContextManager[SessionClient]]


class Sampler(Policy):
    """Remembers, samples, and answers with chunks of different lengths and an array that it uses again."""

    def __init__(self, history: int = 1) -> None:
        self.spec = PolicySpec([SIGNAL, "camera", "step"], chunk_length=3, history=history)
        self.told: list[Any] = []
        self._chunk = np.zeros((3, 2), np.float32)

    def new_session(self, task: Instruction, seed: int) -> dict[str, Any]:
        self.told.append((str(task), task.benchmark, task.name, task.episode, task.offer, seed))
        return {"rng": np.random.default_rng(seed), "sum": 0.0}

    def act(self, observations: Sequence[Observation], states: Sequence[dict[str, Any]]) -> Sequence[Array]:
        (observation,), (state,) = observations, states
        for array in observation.values():
            self.told.append(
                (array.dtype.str, array.shape, array.flags.writeable, array.flags.aligned, array.tobytes())
            )
        state["sum"] += float(observation[SIGNAL].sum()) + float(observation["camera"].mean())
        self._chunk[:] = state["rng"].normal(state["sum"], 1.0, (3, 2))
        return [self._chunk[: 1 + observation.step % 3]]


def played(session: SessionClient, history: int = 1) -> list[Any]:
    """Two episodes, with observations that are not contiguous and of odd sizes."""
    seen: list[Any] = []
    chunks = []
    frames = np.random.default_rng(3).integers(0, 255, (history, 6, 4, 3), np.uint8).transpose(0, 2, 1, 3)
    for index in range(2):
        session.start(task="reach", instruction="Reach it", seed=2**63 + index, index=index)
        for step in (0, 1, 5):
            tensors = {
                SIGNAL: np.full((history, 1), step / 3) if history > 1 else np.array([step / 3]),
                "camera": frames if history > 1 else frames[0],
                "step": np.full(history, step) if history > 1 else np.array(step),
            }
            chunk = session.act(tensors, step=step)
            chunks.append(chunk.actions)
            seen.append((chunk.actions.dtype.str, chunk.actions.shape, chunk.actions.flags.writeable, chunk.batch_size))
            assert chunk.policy_seconds >= 0
            assert chunk.transport_seconds >= 0
    return [*seen, *(actions.tobytes() for actions in chunks)]


@pytest.mark.parametrize("history", [1, 3])
def test_the_policy_sees_the_same_and_the_caller_gets_the_same(history: int) -> None:
    results = []
    for opened in (served, local):
        policy = Sampler(history)
        with opened(policy, benchmark="bench") as session:
            # How many sessions there may be is a server's affair; here there is one caller.
            described = replace(session.policy, max_sessions=0)
            results.append((session.needs, described, played(session, history), policy.told))
    assert results[0] == results[1]
    assert not results[1][2][0][2], "over the wire actions are read-only, and so they must be here"
    assert results[1][3][0] == ("Reach it", "bench", "reach", 0, OFFER, 2**63)


@pytest.fixture
def no_logs() -> Iterator[None]:
    """What is logged here has odd words in it, and a report with those cannot be sent by pytest-xdist."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    "signal",
    [sample.RAISE, sample.NAN, sample.WRONG_SHAPE, sample.TOO_LONG, sample.TEXT, sample.RAGGED, sample.LONG_DOUBLE,
     sample.EXIT, sample.WORDY, sample.ODD_WORDS, sample.GRADIENT],
)  # fmt: skip
@pytest.mark.usefixtures("no_logs")
def test_a_policy_that_fails_is_told_of_in_the_same_sentence(signal: int) -> None:
    sentences = []
    for opened in (served, local):
        with opened(Fragile()) as session:
            session.start(task="reach", index=4)
            with pytest.raises(PolicyFailed) as caught:
                session.act({SIGNAL: np.array([float(signal)])}, step=7)
            sentences.append(str(caught.value))
    assert sentences[0] == sentences[1]
    assert re.search(r"\(policy 'sample', step 7\)$", sentences[0]), sentences[0]


def test_an_episode_that_cannot_be_started_is_the_policys_failure() -> None:
    with local(Fragile()) as session, pytest.raises(PolicyFailed, match="no such thing can be started"):
        session.start(task="unstartable")


def refusal(opened: Opened, what: str) -> str:
    policy = Fragile()
    if what == "offer":
        with pytest.raises(PolicyRefused) as caught, opened(policy, offer=Offer({}, (0.0,), (1.0,))):
            pass
        return str(caught.value)
    with opened(policy) as session:
        if what != "no start":
            session.start(task="reach")
        tensors = {
            "no start": {SIGNAL: np.zeros(1)},
            "names": {"other": np.zeros(1)},
            "type": {SIGNAL: np.zeros(1, np.float32)},
            "shape": {SIGNAL: np.zeros((2, 1))},
            "step": {SIGNAL: np.zeros(1)},
        }[what]
        if what == "step":
            session.act(tensors, step=3)
        with pytest.raises(PolicyRefused) as caught:
            session.act(tensors, step=3)
    return str(caught.value)


@pytest.mark.parametrize("what", ["offer", "no start", "names", "type", "shape", "step"])
def test_what_does_not_fit_is_refused_in_the_same_words(what: str) -> None:
    assert refusal(local, what) == refusal(served, what)


def test_a_spec_is_of_the_benchmark_and_what_it_raises_ends_the_run() -> None:
    class Picky(Fragile):
        def spec_for(self, benchmark: str) -> PolicySpec:
            if benchmark == "other":
                raise KeyError(benchmark)
            return PolicySpec(["camera"], chunk_length=9)

    with local(Picky(), benchmark="bench") as session:
        assert session.needs == PolicySpec({"camera": OFFER.observations["camera"]}, action_dim=2, chunk_length=9)
    with pytest.raises(PolicyRefused, match="spec_for"), local(Picky(), benchmark="other"):
        pass


@pytest.mark.parametrize("opened", [local, served])
def test_a_spec_may_refuse_a_benchmark_with_any_error_of_ours(opened: Opened) -> None:
    class Choosy(Fragile):
        def spec_for(self, benchmark: str) -> PolicySpec:
            raise UsageError(f"I was not made for {benchmark}.")

    with pytest.raises(PolicyRefused, match="I was not made for bench"), opened(Choosy(), benchmark="bench"):
        pass


@pytest.mark.parametrize("kind", [KeyboardInterrupt, bdb.BdbQuit])
def test_what_the_user_does_is_not_the_policys_failure(kind: type[BaseException]) -> None:
    class Stopped(Fragile):
        def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
            raise kind

    with local(Stopped()) as session:
        session.start()
        with pytest.raises(kind):
            session.act({SIGNAL: np.zeros(1)}, step=0)


def test_a_policy_may_run_an_event_loop_of_its_own() -> None:
    class Async(Fragile):
        def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
            async def answer() -> Array:
                await asyncio.sleep(0)
                return np.ones((1, 2))

            return [asyncio.run(answer())]

    with local(Async()) as session:
        session.start()
        assert session.act({SIGNAL: np.zeros(1)}, step=0).actions.tolist() == [[1.0, 1.0]]


def test_the_policys_global_random_numbers_are_its_own() -> None:
    class Careless(Fragile):
        """Draws from generators that everybody in the process shares."""

        def __init__(self) -> None:
            np.random.seed(1)
            random.seed(1)

        def act(self, observations: Sequence[Observation], states: Sequence[Any]) -> Sequence[Array]:
            return [np.array([[np.random.uniform(), random.random()]])]

    def drawn(between: Callable[[], Any]) -> list[Any]:
        policy = LocalPolicy(lambda: Careless(), name="careless")
        session = policy.open(OFFER)
        session.start()
        answers = []
        for step in range(3):
            between()
            answers.append(session.act({SIGNAL: np.zeros(1)}, step=step).actions.tolist())
        return answers

    np.random.seed(5)
    first = np.random.uniform(size=4)
    np.random.seed(5)
    seen: list[float] = []
    undisturbed = drawn(lambda: None)
    disturbed = drawn(lambda: seen.append(np.random.uniform()))
    assert undisturbed == disturbed
    assert undisturbed[0] != undisturbed[1], "it must not draw the same again and again"
    assert seen == first[:3].tolist(), "nobody else may notice"


def test_what_was_done_is_counted_as_a_server_counts() -> None:
    policy = LocalPolicy(Fragile(), name="sample")
    session = policy.open(OFFER)
    session.start()
    session.act({SIGNAL: np.zeros(1)}, step=0)
    with pytest.raises(PolicyFailed):
        session.act({SIGNAL: np.array([float(sample.RAISE)])}, step=1)
    stats = policy.stats()
    assert (stats.episodes, stats.observations, dict(stats.batches), dict(stats.errors)) == (
        1,
        2,
        {1: 2},
        {"policy": 1},
    )


def test_a_warm_up_that_fails_is_wrong_usage() -> None:
    class Cold(Fragile):
        def warm_up(self) -> None:
            raise RuntimeError("no kernel")

    with pytest.raises(UsageError, match="'cold' failed in its warm-up: RuntimeError: no kernel"):
        LocalPolicy(Cold(), name="cold")
