"""Inputs that hypothesis makes up: bytes, well-meant messages with something spoilt, and messages of any content."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from sparring.protos import PROTOCOL_VERSION, WORK_PROTOCOL_VERSION
from sparring.protos import evaluation_pb2 as work
from sparring.protos import policy_pb2 as pb

NUMBERS = st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1))
LENGTHS = st.one_of(st.integers(-2, 4), st.integers(-(2**63), 2**63 - 1))
NAMES = st.one_of(st.sampled_from(["", "image", "state", "x" * 257]), st.text(max_size=8))
REALS = st.floats(width=64)

TENSORS = st.builds(
    pb.Tensor,
    dtype=st.integers(0, 14),
    shape=st.lists(LENGTHS, max_size=4),
    raw=st.one_of(st.binary(max_size=40), st.sampled_from([bytes(12), bytes(8), bytes(16)])),
)
SPECS = st.builds(
    pb.TensorSpec,
    name=NAMES,
    dtype=st.integers(0, 14),
    shape=st.lists(LENGTHS, max_size=18),
    any_shape=st.booleans(),
)
OFFERS = st.builds(
    pb.Offer,
    observations=st.lists(SPECS, max_size=4),
    action_low=st.lists(REALS, max_size=4),
    action_high=st.lists(REALS, max_size=4),
    control_hz=REALS,
    control=NAMES,
)
HELLOS = st.builds(
    pb.Hello,
    protocol=st.one_of(st.just(PROTOCOL_VERSION), st.integers(0, 2**32 - 1)),
    client=NAMES,
    benchmark=NAMES,
    offer=OFFERS,
)
STARTS = st.builds(
    pb.EpisodeStart, number=NUMBERS, task=NAMES, index=st.integers(0, 2**32 - 1), seed=NUMBERS, instruction=NAMES
)
OBSERVATIONS = st.builds(
    pb.Observation, episode=NUMBERS, step=NUMBERS, tensors=st.dictionaries(NAMES, TENSORS, max_size=3)
)
REQUESTS = st.one_of(
    st.builds(pb.RolloutRequest, hello=HELLOS),
    st.builds(pb.RolloutRequest, episode_start=STARTS),
    st.builds(pb.RolloutRequest, observation=OBSERVATIONS),
)
NEEDS = st.builds(
    pb.Needs,
    observations=st.lists(SPECS, max_size=3),
    history=st.integers(0, 2**32 - 1),
    action_dim=st.integers(0, 2**32 - 1),
    chunk_length=st.integers(0, 2**32 - 1),
)
RESPONSES = st.one_of(
    st.builds(
        pb.RolloutResponse,
        welcome=st.builds(
            pb.Welcome,
            needs=NEEDS,
            policy=st.builds(pb.PolicyDescription, arguments=st.dictionaries(NAMES, NAMES, max_size=2), needs=NEEDS),
        ),
    ),
    st.builds(
        pb.RolloutResponse,
        chunk=st.builds(
            pb.Chunk,
            episode=st.integers(0, 2),
            step=st.integers(0, 1),
            actions=TENSORS,
            queue_seconds=REALS,
            inference_seconds=REALS,
        ),
    ),
)
SMALL = st.integers(0, 3)
KINDS = st.integers(0, 7)
ACTIVITIES = st.builds(work.SlotActivity, slot=SMALL, task=NAMES, index=SMALL, steps=SMALL)
REGISTERS = st.builds(
    work.Register,
    protocol=st.one_of(st.just(WORK_PROTOCOL_VERSION), st.integers(0, 2**32 - 1)),
    worker=NAMES,
    slots=st.one_of(SMALL, st.integers(0, 2**32 - 1)),
    benchmarks=st.lists(st.one_of(st.just("toy"), NAMES), max_size=3),
    versions=st.dictionaries(NAMES, NAMES, max_size=2),
    host=NAMES,
    membership=NAMES,
    held=st.lists(NUMBERS, max_size=3),
)
RESULTS = st.builds(
    work.Result,
    lease=NUMBERS,
    outcome=KINDS,
    reward_sum=REALS,
    steps=st.integers(0, 2**32 - 1),
    error=NAMES,
    error_kind=KINDS,
    metrics=st.dictionaries(NAMES, REALS, max_size=3),
    video_bytes=NUMBERS,
    recording_bytes=NUMBERS,
)
LOSSES = st.builds(
    work.Lost,
    lease=NUMBERS,
    reason=NAMES,
    policy_unreachable=st.booleans(),
    policy_unanswered=st.booleans(),
    policy_gone=st.booleans(),
    policy_full=st.booleans(),
    policy_changed=st.booleans(),
)
WORK_MESSAGES = st.one_of(
    st.builds(work.WorkerMessage, register=REGISTERS),
    st.builds(work.WorkerMessage, ready=st.builds(work.Ready, slot=SMALL)),
    st.builds(work.WorkerMessage, result=RESULTS),
    st.builds(work.WorkerMessage, lost=LOSSES),
    st.builds(work.WorkerMessage, heartbeat=st.builds(work.Heartbeat, slots=st.lists(ACTIVITIES, max_size=4))),
    st.builds(work.WorkerMessage, refused=st.builds(work.Refused, lease=NUMBERS, reason=NAMES)),
    st.builds(work.WorkerMessage, activity=ACTIVITIES),
    st.builds(
        work.WorkerMessage,
        piece=st.builds(work.Piece, lease=NUMBERS, what=KINDS, content=st.binary(max_size=40)),
    ),
    st.just(work.WorkerMessage()),
)
"""What workers might say; the leases in there are nobody's."""

MESSAGES = st.one_of(REQUESTS, RESPONSES, TENSORS, WORK_MESSAGES).map(lambda message: message.SerializeToString())


@st.composite
def spoilt(draw: Any, whole: bytes) -> bytes:
    """A well-meant message with a few bytes changed, cut out or put in."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        kind = draw(st.sampled_from(["change", "cut", "insert", "repeat"]))
        if kind == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=4))
        elif kind == "cut":
            del data[at : at + draw(st.integers(1, 8))]
        elif kind == "repeat":
            data[at:at] = data[at : at + draw(st.integers(1, 16))]
        elif at < len(data):
            data[at] = draw(st.integers(0, 255))
    return bytes(data)


def inputs(seeds: list[bytes]) -> st.SearchStrategy[bytes]:
    """Anything at all, a good part of it nearly right."""
    return st.one_of(st.binary(max_size=64), MESSAGES, *(spoilt(seed) for seed in seeds), st.sampled_from(seeds))
