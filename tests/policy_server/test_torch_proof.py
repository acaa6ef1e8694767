"""Deterministic mode is tried out before it is relied on: at every place, in every company, bit by bit."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support import ROOT, has_cpu_capability
from test_torch_policy import IMAGE, STATE, TASK, Network, Probe, look, rows

from sparring.policy_server.policies.base import Array, Observation
from sparring.policy_server.policies.torch import Batch, NotRepeatable
from sparring.policy_server.policies.torch_proof import said
from sparring.protos.advice import FLAGS, render
from sparring.protos.spec import PolicySpec

WIDE = PolicySpec([STATE], action_dim=3)


def in_company(policy: Probe, films: Array, name: str = STATE) -> tuple[Array, Array]:
    """Plays sessions one after the other, and again in random company; returns the answers of both."""
    rng = np.random.default_rng(0)
    alone = []
    for film in films:
        state = policy.new_session(TASK, 0)
        alone.append([policy.act([look(seen.copy(), name=name)], [state])[0] for seen in film])
    states = [policy.new_session(TASK, 0) for _ in films]
    mixed: list[list[Array]] = [[] for _ in films]
    while waiting := [i for i in rng.permutation(len(films)) if len(mixed[i]) < len(films[i])]:
        chosen = waiting[: rng.integers(1, len(waiting) + 1)]
        shown = [look(films[i][len(mixed[i])].copy(), name=name) for i in chosen]
        for index, answer in zip(chosen, policy.act(shown, [states[i] for i in chosen]), strict=True):
            mixed[index].append(answer)
    return np.asarray(alone), np.asarray(mixed)


class Net(Probe):
    """A network of which kernels at some shapes compute rows in different ways, on most processors."""

    def __init__(self, make: Callable[[], torch.nn.Module], **options: Any) -> None:
        super().__init__(lambda batch: self.network(batch[STATE]), **options)
        self.spec = WIDE
        torch.manual_seed(0)
        self.network = self.place(make())


NETWORKS: dict[str, tuple[int, Callable[[], torch.nn.Module]]] = {
    # What is left over at the tensor's end, after whole vectors, is computed by the scalar form of the function.
    "elements left over": (40, lambda: torch.nn.Sequential(torch.nn.Linear(40, 40), torch.nn.SiLU())),
    "a power left over": (40, lambda: Power()),
    # Rows of an odd number of bytes are aligned in different ways.
    "rows out of line": (333, lambda: torch.nn.Linear(333, 4)),
    "many threads": (
        4096,
        lambda: torch.nn.Sequential(torch.nn.Linear(4096, 13000), torch.nn.GELU(approximate="tanh")),
    ),
    "a usual one": (
        39,
        lambda: torch.nn.Sequential(torch.nn.Linear(39, 256), torch.nn.ReLU(), torch.nn.Linear(256, 4)),
    ),
}


class Power(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x.abs() ** 1.7


@pytest.mark.parametrize(
    ("name", "pad_to"),
    [
        # 53 million weights, which take many seconds.
        pytest.param(name, pad_to, marks=[pytest.mark.everything] if name == "many threads" else [])
        for name in NETWORKS
        for pad_to in (3, 8)
    ],
)
def test_deterministic_mode_holds_whatever_the_kernels_do(name: str, pad_to: int) -> None:
    width, make = NETWORKS[name]
    policy = Net(make, deterministic=True, pad_to=pad_to)
    films = np.random.default_rng(1).normal(size=(5, 8, width)).astype(np.float32)
    alone, mixed = in_company(policy, films)
    assert mixed.tobytes() == alone.tobytes()
    assert bool(policy.warnings) == (1 in policy.sizes), "rows are computed one by one exactly if it is said"


def test_deterministic_mode_holds_with_a_memory() -> None:
    def step(batch: Batch) -> Any:
        actions, hidden = network(batch[IMAGE], batch.recall("hidden", torch.zeros(128)))
        batch.remember("hidden", hidden)
        return actions

    torch.manual_seed(0)
    policy = Probe(step, deterministic=True, pad_to=3)
    network = policy.place(Network())
    films = np.random.default_rng(0).integers(0, 255, (4, 4, 25, 25, 3), np.uint8)
    alone, mixed = in_company(policy, films, IMAGE)
    assert mixed.tobytes() == alone.tobytes()
    assert bool(policy.warnings) == (1 in policy.sizes)


PLACES = {
    "where it is": lambda batch: batch[STATE][:, :3] + 1e-6 * torch.arange(len(batch))[:, None],
    "the last is another": lambda batch: torch.cat([batch[STATE][:-1, :3], batch[STATE][-1:, :3] + 1e-6]),
    "its company": lambda batch: batch[STATE][:, :3] / batch[STATE].max(),
}


@pytest.mark.parametrize("name", PLACES)
def test_rows_that_depend_on_others_are_computed_one_by_one_and_it_is_said(name: str) -> None:
    policy = Probe(PLACES[name], deterministic=True, pad_to=4)
    policy.warm_up()
    policy.sizes.clear()
    films = np.random.default_rng(1).random((6, 5, 5)).astype(np.float32)
    alone, mixed = in_company(policy, films)
    assert mixed.tobytes() == alone.tobytes()
    assert set(policy.sizes) == {1}
    (warning,) = policy.warnings
    assert "rows are computed one by one and not 4 at a time" in warning
    assert "the last bits of an answer depend on where in a batch its row is, and beside whom" in warning
    assert "--policy-arg pad_to=1" in render(warning, FLAGS)


@pytest.mark.parametrize("pad_to", [1, 4])
def test_what_is_not_repeatable_is_refused(pad_to: int) -> None:
    asked = 0

    def count(batch: Batch) -> Any:
        nonlocal asked
        asked += 1
        return torch.full((len(batch), 3), float(asked))

    for function in (count, lambda batch: torch.randn(len(batch), 3)):
        with pytest.raises(NotRepeatable, match=r"asked the same twice, one row at a time.*batch\.randn"):
            Probe(function, deterministic=True, pad_to=pad_to).warm_up()
        open_spec = Probe(function, deterministic=True, pad_to=pad_to)
        open_spec.spec = WIDE
        open_spec.warm_up()
        with pytest.raises(NotRepeatable):
            rows(open_spec, [look(0.5)])
    Probe(lambda batch: batch.randn(3), deterministic=True, pad_to=pad_to).warm_up()


def test_each_kind_of_rows_is_tried_when_it_is_first_seen_and_decided_by_itself() -> None:
    def forward(batch: Batch) -> Any:
        (image,) = batch.values()
        place = torch.arange(len(batch))[:, None] if image.shape[1] == 8 else 0
        return image.float().mean(dim=(1, 2)) + 0.25 * place

    policy = Probe(forward, deterministic=True, pad_to=3)
    policy.spec = PolicySpec([IMAGE], action_dim=3)
    policy.warm_up()
    assert policy.sizes == [], "the spec does not say what to make up"
    images = {side: look(np.full((side, side, 3), 2, np.uint8), name=IMAGE) for side in (4, 8)}
    rows(policy, [images[4]])
    assert set(policy.sizes) == {3}
    rows(policy, [images[8]])
    policy.sizes.clear()
    answers = rows(policy, [images[8], images[4], images[8], images[4]])
    assert sorted(policy.sizes) == [1, 1, 3], "what the one kind needs is not done to the other"
    assert np.ptp(answers) == 0


def test_rows_that_nothing_can_be_made_up_for_are_computed_one_by_one() -> None:
    def picky(batch: Batch) -> Any:
        if bool((batch[STATE] != 7.0).any()):
            raise ValueError("seven or nothing")
        return batch[STATE][:, :3]

    policy = Probe(picky, deterministic=True, pad_to=4)
    policy.warm_up()
    assert policy.warnings == [], "an episode may show what it wants to see"
    rows(policy, [look(7.0)] * 3)
    assert policy.sizes[-3:] == [1, 1, 1]
    assert "could not be tried out" in policy.warnings[0]
    assert "ValueError: seven or nothing" in policy.warnings[0]


def test_copies_that_fill_up_a_batch_are_looked_at_all_the_time() -> None:
    """What is made up is not all that there is: here it is never larger than one."""

    def forward(batch: Batch) -> Any:
        place = torch.arange(len(batch))[:, None]
        return batch[STATE][:, :3] + torch.where(batch[STATE][:, :1] > 1, 1e-3 * place, 0.0)

    policy = Probe(forward, deterministic=True, pad_to=4)
    policy.warm_up()
    rows(policy, [look(0.5)] * 2)
    assert policy.warnings == []
    rows(policy, [look(2.0)] * 4)
    assert policy.warnings == [], "without a copy there is nothing to see"
    rows(policy, [look(2.0)] * 3)
    (warning,) = policy.warnings
    assert "What was computed before may depend on who shared a batch" in warning
    policy.sizes.clear()
    rows(policy, [look(2.0)] * 3)
    assert policy.sizes == [1, 1, 1]


def test_no_episode_and_no_generator_notices_that_it_was_tried() -> None:
    def forward(batch: Batch) -> Any:
        batch.remember("looks", [(kept or 0) + 1 for kept in batch.recalled("looks")])
        return batch.randn(3) + batch[STATE][:, :3]

    policy = Probe(forward, deterministic=True, pad_to=4)
    state = policy.new_session(TASK, 3)
    before = (random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().tolist())
    (answer,) = policy.act([look(0.0)], [state])
    assert len(policy.sizes) > 30, "it was tried"
    assert before == (random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().tolist())
    np.testing.assert_array_equal(answer, torch.randn(1, 3, generator=torch.Generator().manual_seed(3)).numpy())
    assert state.memory == {"looks": 1}


def test_sentences_of_other_lengths_are_in_the_company() -> None:
    """Networks leave out their mask where no sentence of a batch needs one."""

    class Masking(Probe):
        trial_sentences = ("go", "pick up the red mug that is on the table", "too long")

    def forward(batch: Batch) -> Any:
        if "too long" in batch.tasks:
            raise ValueError("no sentence is so long")
        masked = len({len(task) for task in batch.tasks}) > 1
        return batch[STATE][:, :3] + (1e-6 if masked else 0.0)

    policy = Masking(forward, deterministic=True, pad_to=4)
    policy.warm_up()
    assert "beside whom" in policy.warnings[0]

    class Apart(Masking):
        def group(self, observation: Observation) -> str:
            return str(observation.task)

    apart = Apart(forward, deterministic=True, pad_to=4)
    apart.warm_up()
    assert apart.warnings == [], "rows that never share a batch need not be tried in one"


def test_each_sentence_is_looked_at_for_itself() -> None:
    """What a network makes of a sentence does not depend on anything that could be made up."""

    def forward(batch: Batch) -> Any:
        differs = torch.tensor(
            [[1e-3 * row if task == "Press a button" else 0.0] for row, task in enumerate(batch.tasks)]
        )
        return batch[STATE][:, :3] + differs

    policy = Probe(forward, deterministic=True, pad_to=3)
    policy.warm_up()
    assert policy.warnings == []
    tasks = [said(TASK, sentence) for sentence in ("Open a door", "Press a button", "Open a door", "Press a button")]
    policy.sizes.clear()
    states = [policy.new_session(task, 0) for task in tasks]
    answers = policy.act([Observation(look(0.5).tensors, task) for task in tasks], states)
    assert np.ptp(answers) == 0
    assert policy.sizes[-3:] == [3, 1, 1]
    assert "for some sentences" in policy.warnings[0]


def test_inputs_lie_where_torch_has_its_tensors() -> None:
    """Numpy's lie at any multiple of 16 bytes, and how MKL multiplies, and rounds, depends on such things."""
    seen: set[int] = set()

    def forward(batch: Batch) -> Any:
        seen.add(batch[STATE].data_ptr() % 64)
        return batch[STATE][:, :3]

    policy = Probe(forward)
    kept = [rows(policy, [look(float(i))] * (i % 7 + 1)) for i in range(50)]
    assert len(kept) == 50
    assert seen == {0}


@pytest.mark.everything
@pytest.mark.processes
@pytest.mark.parametrize(("capability", "threads"), [("default", 1), ("avx2", 2), ("avx512", 1)])
def test_on_other_processors_and_with_other_threads(capability: str, threads: int) -> None:
    if not has_cpu_capability(capability):
        pytest.skip(f"this processor has no {capability}")
    # Threads that spin while they wait take each other's processor where others compute, too: minutes, not seconds.
    kind = {"ATEN_CPU_CAPABILITY": capability, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    files = [f"tests/policy_server/{name}" for name in ("test_torch_policy.py", "test_torch_proof.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "deterministic", *files],
        cwd=ROOT, env={**os.environ, **kind},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    assert " 0 passed" not in done.stdout
