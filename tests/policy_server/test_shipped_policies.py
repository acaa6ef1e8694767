from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparring.policy_server.chunks import checked_chunk
from sparring.policy_server.policies import load_policy, replay
from sparring.policy_server.policies._pusht.player import PushtPlayer
from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy
from sparring.protos.errors import UsageError
from sparring.protos.spec import Offer

LOW, HIGH = (-1.0, 0.0, -5.0), (1.0, 0.5, 5.0)


def task(name: str = "reach-v3", *, episode: int = 0, low: Sequence[float] = LOW, high: Sequence[float] = HIGH) -> Any:
    offer = Offer({}, action_low=tuple(low), action_high=tuple(high))
    return Instruction("do the task", benchmark="metaworld", name=name, episode=episode, offer=offer)


def play(policy: Policy, seed: int, *, looks: int = 5, about: Instruction | None = None) -> Array:
    """All actions of a few looks, each checked as the server does."""
    about = about or task()
    state = policy.new_session(about, seed)
    chunks = []
    for look in range(looks):
        (chunk,) = policy.act([Observation({}, about, look * policy.spec.chunk_length)], [state])
        chunks.append(checked_chunk(chunk, about.offer.action_dim, policy.spec.chunk_length))
    return np.concatenate(chunks)


# ------------------------------------------------------------------------------------ random and zero


def test_random_is_decided_by_the_seed_alone() -> None:
    policy = load_policy("random", {"chunk": 4})
    first = play(policy, 11)
    play(policy, 12)
    assert play(policy, 11).tobytes() == first.tobytes()
    assert play(load_policy("random", {"chunk": 4}), 11).tobytes() == first.tobytes()
    assert play(policy, 12).tobytes() != first.tobytes()
    assert play(policy, 2**64 - 1).shape == first.shape, "every seed of the contract is one"


def test_random_sessions_do_not_share_their_generator() -> None:
    policy = load_policy("random", {})
    states = [policy.new_session(task(), seed) for seed in (11, 12)]
    looking = [Observation({}, task())] * 2
    rounds = [policy.act(looking, states) for _ in range(5)]
    assert np.concatenate([r[0] for r in rounds]).tobytes() == play(policy, 11).tobytes()
    assert np.concatenate([r[1] for r in rounds]).tobytes() == play(policy, 12).tobytes()


def test_random_fills_the_action_space_and_does_not_leave_it() -> None:
    actions = play(load_policy("random", {"chunk": 50}), 0, looks=40)
    assert (actions >= np.array(LOW)).all()
    assert (actions <= np.array(HIGH)).all()
    spread = (actions.max(0) - actions.min(0)) / (np.array(HIGH) - np.array(LOW))
    assert (spread > 0.95).all()


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (-math.inf, math.inf),
        (0.0, math.inf),
        (-math.inf, 0.0),
        (5.0, math.inf),
        (-math.inf, -5.0),
        (-3.4028234663852886e38, 3.4028234663852886e38),
        (0.0, 0.0),
    ],
)
def test_random_copes_with_every_box(low: float, high: float) -> None:
    actions = play(load_policy("random", {}), 0, about=task(low=[low], high=[high]))
    assert (actions >= low).all()
    assert (actions <= high).all()


@pytest.mark.parametrize("name", ["zero", "random"])
def test_the_blind_can_be_told_to_look_and_to_answer_in_chunks(name: str) -> None:
    policy = load_policy(name, {"chunk": 7, "observations": ["observation.image", "b"], "history": 2})
    assert policy.spec.chunk_length == 7
    assert policy.spec.history == 2
    assert list(policy.spec.named) == ["observation.image", "b"]
    assert policy.spec.action_dim is None
    assert play(policy, 0, looks=2).shape == (14, 3)


def test_zero_is_zero() -> None:
    actions = play(load_policy("zero", {"chunk": 3}), 0)
    assert actions.shape == (15, 3)
    assert not actions.any()


# ------------------------------------------------------------------------------------ replay


@pytest.fixture
def tape(tmp_path: Path) -> str:
    path = tmp_path / "actions.npz"
    tapes = {
        "metaworld/reach-v3/0": np.arange(12.0).reshape(6, 2),
        "metaworld/reach-v3/1": -np.arange(6.0).reshape(3, 2),
    }
    np.savez(path, **tapes)  # type: ignore[arg-type]
    return str(path)


def replayed(policy: Policy, episode: int, step: int) -> list[list[float]]:
    about = task(episode=episode, low=(-1, -1), high=(1, 1))
    (chunk,) = policy.act([Observation({}, about, step)], [policy.new_session(about, 0)])
    values: list[list[float]] = checked_chunk(chunk, 2, policy.spec.chunk_length).tolist()
    return values


def test_replay_answers_a_step_with_what_was_recorded_from_that_step_on(tape: str) -> None:
    policy = load_policy("replay", {"file": tape, "chunk": 2})
    assert policy.spec.action_dim == 2
    assert replayed(policy, 0, 0) == [[0, 1], [2, 3]]
    assert replayed(policy, 0, 3) == [[6, 7], [8, 9]]
    assert replayed(policy, 1, 0) == [[0, -1], [-2, -3]]


def test_replay_repeats_the_last_action_after_the_end(tape: str) -> None:
    policy = load_policy("replay", {"file": tape, "chunk": 4})
    assert replayed(policy, 0, 4) == [[8, 9], [10, 11]]
    for step in (5, 6, 500):
        assert set(map(tuple, replayed(policy, 0, step))) == {(10, 11)}


def test_replay_refuses_episodes_with_another_seed_than_the_recorded_one(tmp_path: Path) -> None:
    about = {"benchmark": "metaworld", "task": "reach-v3", "index": 1, "seed": 4001}
    np.savez(tmp_path / "0001.npz", actions=np.zeros((3, 2)), about=np.frombuffer(json.dumps(about).encode(), np.uint8))
    policy = load_policy("replay", {"file": str(tmp_path)})
    instruction = task(episode=1)
    assert len(policy.new_session(instruction, 4001).actions) == 3
    with pytest.raises(UsageError, match=r"seed 4001, and this one has 1001; .*: seed=4000\."):
        policy.new_session(instruction, 1001)


def test_replay_does_not_know_episodes_that_were_not_recorded(tape: str) -> None:
    policy = load_policy("replay", {"file": tape})
    with pytest.raises(UsageError, match="metaworld/reach-v3/2"):
        policy.new_session(task(episode=2), 0)


def _archive(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _npy(array: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _spoilt() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.npy", b"not an array")
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not an archive",
        _archive(a=np.zeros((3, 2)))[:-40],
        _archive(),
        _archive(a=np.zeros(3)),
        _archive(a=np.zeros((2, 3, 4))),
        _archive(a=np.zeros((0, 4))),
        _archive(a=np.zeros((4, 0))),
        _archive(a=np.zeros((3, 2)), b=np.zeros((3, 4))),
        _archive(a=np.array([["left", "right"]])),
        _npy(np.zeros((3, 2))),
        _spoilt(),
    ],
    ids=[
        "empty", "text", "cut short", "no arrays", "one axis", "three axes", "no steps", "no dimensions",
        "two sizes", "words", "npy", "no arrays inside",
    ],
)  # fmt: skip
def test_replay_refuses_files_that_hold_no_recording(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"bad\.npz"):
        load_policy("replay", {"file": str(path)})


def test_replay_refuses_pickles_and_does_not_run_them(tmp_path: Path) -> None:
    struck = tmp_path / "struck"

    class Trap:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
            return Path.touch, (struck,)

    path = tmp_path / "trap.npz"
    np.savez(path, **{"metaworld/reach-v3/0": np.array([[Trap()]], dtype=object)})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"trap\.npz"):
        load_policy("replay", {"file": str(path)})
    assert not struck.exists()


@pytest.mark.parametrize("as_folder", [False, True])
def test_replay_does_not_unpack_more_than_a_machine_has(tmp_path: Path, as_folder: bool) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("actions.npy", bytes(1 << 20))
    # Without writing gigabytes: what the directory at its end says of the size.
    directory = bytearray(path.read_bytes())
    at = directory.rindex(b"PK\x01\x02") + 24
    directory[at : at + 4] = (3 << 30).to_bytes(4, "little")
    path.write_bytes(directory)
    with pytest.raises(UsageError, match=r"bomb\.npz.* would unpack to 3221225472"):
        load_policy("replay", {"file": str(tmp_path if as_folder else path)})


@pytest.mark.parametrize("as_folder", [False, True])
def test_replay_unpacks_as_much_as_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_folder: bool) -> None:
    actions = np.zeros((50, 4), np.float32)
    about = json.dumps({"benchmark": "metaworld", "task": "reach-v3", "index": 0, "seed": 1}).encode()
    path = tmp_path / "large.npz"
    if as_folder:  # what the policy saw is not unpacked
        np.savez(path, actions=actions, about=np.frombuffer(about, np.uint8), **{"observation.image": np.zeros(9999)})
    else:
        np.savez(path, **{"metaworld/reach-v3/0": actions})  # type: ignore[arg-type]
    with zipfile.ZipFile(path) as archive:
        size = sum(member.file_size for member in archive.infolist() if "image" not in member.filename)
    monkeypatch.setattr(replay, "_MOST_BYTES", size)
    given = {"file": str(tmp_path if as_folder else path)}
    load_policy("replay", given)
    monkeypatch.setattr(replay, "_MOST_BYTES", size - 1)
    with pytest.raises(UsageError, match=rf"large\.npz.* would unpack to {size}, where {size - 1} are the most"):
        load_policy("replay", given)


def test_replay_says_what_to_give_when_there_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"with file=\.\.\. where the policy is made"):
        load_policy("replay", {"file": str(tmp_path / "none.npz")})


# ------------------------------------------------------------------------------------ expert


METAWORLD = {"metaworld": "sparring.policy_server.policies.metaworld_expert:MetaworldExpert"}


def test_the_expert_is_metaworld_s_own() -> None:
    from metaworld import policies

    ours = load_policy("expert", {}, experts=METAWORLD)
    state_of_a_scene = np.random.default_rng(0)
    for name in sorted(policies.ENV_POLICY_MAP):
        about = task(name, low=[-1] * 4, high=[1] * 4)
        state, theirs = ours.new_session(about, 0), policies.ENV_POLICY_MAP[name]()
        for step in range(20):
            seen = state_of_a_scene.uniform(-0.3, 0.9, 39)
            read_only = np.frombuffer(seen.tobytes())
            (chunk,) = ours.act([Observation({"environment_state": read_only}, about, step)], [state])
            assert chunk.shape == (1, 4)
            np.testing.assert_array_equal(chunk[0], theirs.get_action(seen.copy()), err_msg=f"{name} step {step}")


def test_the_expert_knows_no_task_but_metaworld_s() -> None:
    policy = load_policy("expert", {}, experts=METAWORLD)
    with pytest.raises(UsageError, match="juggle-v3"):
        policy.new_session(task("juggle-v3"), 0)


def test_the_expert_needs_to_know_whose() -> None:
    with pytest.raises(UsageError, match="benchmark="):
        load_policy("expert", {})
    with pytest.raises(UsageError, match=r"no scripted expert for the benchmark 'chess'.*sparring ls policies"):
        load_policy("expert", {}, experts={**METAWORLD, "chess": ""})


@pytest.mark.parametrize("far", [3e7, np.inf, np.nan])
def test_pushts_expert_plans_no_way_to_what_is_not_on_its_table(far: float) -> None:
    """A way has a point for each of its pixels: far enough, they would take all memory."""
    with pytest.raises(ValueError, match="is not on the table of PushT"):
        PushtPlayer().act(np.array([far, 10.0]), np.zeros((8, 2)))
