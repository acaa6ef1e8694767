from __future__ import annotations

import hashlib
import logging
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support import ROOT

from sparring.policy_server.chunks import checked_chunk
from sparring.policy_server.errors import PolicyFailed
from sparring.policy_server.policies import load_policy
from sparring.policy_server.policies.base import Array, Instruction, Observation
from sparring.policy_server.policies.torch import Batch, TorchPolicy, choose_device
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.spec import Offer, PolicySpec, TensorSpec

STATE = "observation.state"
IMAGE = "observation.image"
OFFER = Offer({}, action_low=(-1.0,) * 3, action_high=(1.0,) * 3)
TASK = Instruction("Reach a goal position", benchmark="metaworld", name="reach-v3", offer=OFFER)


def look(value: float | Array, step: int = 0, name: str = STATE) -> Observation:
    array = np.full((5,), value, np.float32) if isinstance(value, float | int) else value
    array.flags.writeable = False  # as they come from the wire
    return Observation({name: array}, TASK, step)


class Probe(TorchPolicy):
    """Answers with what a function makes of the batch, and keeps the sizes of the batches it got."""

    spec = PolicySpec({STATE: TensorSpec("float32", (5,))}, action_dim=3, chunk_length=2)

    def __init__(self, function: Any = None, **options: Any) -> None:
        super().__init__(**{"device": "cpu", **options})
        self.function = function or (lambda batch: batch[STATE][:, :3])
        self.sizes: list[int] = []

    def forward(self, batch: Batch) -> Any:
        self.sizes.append(len(batch))
        return self.function(batch)


def rows(policy: TorchPolicy, observations: Sequence[Observation], seeds: Sequence[int] | None = None) -> list[Array]:
    states = [policy.new_session(TASK, seed) for seed in seeds or range(len(observations))]
    return list(policy.act(observations, states))


# ------------------------------------------------------------------------------------ stacking


def test_rows_are_stacked_and_answers_are_chunks() -> None:
    policy = Probe(lambda batch: torch.stack([batch[STATE][:, :3], batch[STATE][:, :3] + 1], dim=1))
    first, second = rows(policy, [look(1.0), look(2.0)])
    assert first.tolist() == [[1, 1, 1], [2, 2, 2]]
    assert second.tolist() == [[2, 2, 2], [3, 3, 3]]
    assert policy.sizes == [2]


def test_one_action_is_a_chunk_of_one() -> None:
    (answer,) = rows(Probe(), [look(0.5)])
    assert checked_chunk(answer, 3, 1).tolist() == [[0.5, 0.5, 0.5]]


def test_rows_of_different_shapes_get_a_pass_each_and_keep_their_places() -> None:
    # A spec that leaves shapes open takes several benchmarks at once.
    policy = Probe(lambda batch: batch[IMAGE].float().mean(dim=(1, 2), keepdim=False)[:, :1].repeat(1, 3))
    images = [np.full((side, side, 3), side, np.uint8) for side in (4, 8, 4, 8)]
    answers = rows(policy, [look(image, name=IMAGE) for image in images])
    assert [answer[0, 0] for answer in answers] == [4, 8, 4, 8]
    assert policy.sizes == [2, 2]


def test_rows_of_different_groups_get_a_pass_each_and_keep_their_places() -> None:
    class Shy(Probe):
        def group(self, observation: Observation) -> bool:
            return bool(observation[STATE][0] > 0)

    policy = Shy()
    answers = rows(policy, [look(value) for value in (1.0, -1.0, 2.0, -2.0, 3.0)])
    assert [answer[0, 0] for answer in answers] == [1, -1, 2, -2, 3]
    assert policy.sizes == [3, 2]


def test_a_batch_knows_its_tasks_and_steps() -> None:
    seen: list[Any] = []

    def forward(batch: Batch) -> Any:
        seen.append((list(batch.tasks), batch.tasks[0].name, batch.steps))
        return batch[STATE][:, :3]

    rows(Probe(forward), [look(0.0, step=7), look(0.0, step=9)])
    assert seen == [(["Reach a goal position"] * 2, "reach-v3", [7, 9])]


def test_forward_runs_in_inference_mode_and_integers_stay_what_they_are() -> None:
    def forward(batch: Batch) -> Any:
        assert torch.is_inference_mode_enabled()
        assert batch[IMAGE].dtype == torch.uint8
        return batch[IMAGE].to(batch.dtype).mean(dim=(1, 2))

    (answer,) = rows(Probe(forward, dtype="bfloat16"), [look(np.full((2, 2, 3), 3, np.uint8), name=IMAGE)])
    assert answer.dtype == np.float32
    assert answer.tolist() == [[3, 3, 3]]


def test_half_precision_and_autocast() -> None:
    types: list[Any] = []

    def forward(batch: Batch) -> Any:
        product = policy.layer(batch[STATE])
        types.append((batch[STATE].dtype, product.dtype))
        return product

    for options in ({"dtype": "bfloat16"}, {"autocast": "bfloat16"}, {}):
        policy: Any = Probe(forward, **options)
        policy.layer = policy.place(torch.nn.Linear(5, 3))
        assert not policy.layer.training
        rows(policy, [look(1.0)])
    bfloat16, float32 = torch.bfloat16, torch.float32
    assert types == [(bfloat16, bfloat16), (float32, bfloat16), (float32, float32)]


@pytest.mark.parametrize("returned", [torch.zeros(3), torch.zeros(3, 3), [[0.0] * 3] * 2, None], ids=str)
def test_a_forward_that_returns_something_else(returned: Any) -> None:
    with pytest.raises(SparringError, match="got 2 rows and returned"):
        rows(Probe(lambda batch: returned), [look(0.0), look(0.0)])


def test_nan_is_not_hidden() -> None:
    good, bad = rows(Probe(), [look(0.0), look(float("nan"))])
    checked_chunk(good, 3, 1)
    with pytest.raises(PolicyFailed, match="nan in dimension 0 of action 0"):
        checked_chunk(bad, 3, 1)


@pytest.mark.everything
def test_compiled_modules_answer_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # The default backend needs a C++ tool chain and a minute; this one is compiled by the same machinery, into Python.
    compiler, shapes = torch.compile, []
    monkeypatch.setattr(
        torch, "compile", lambda module, dynamic: shapes.append(dynamic) or compiler(module, backend="eager")
    )
    layer = torch.nn.Linear(5, 3)
    plain: Any = Probe(lambda batch: plain.layer(batch[STATE]))
    plain.layer = plain.place(layer)
    compiled: Any = Probe(lambda batch: compiled.layer(batch[STATE]), compile=True)
    compiled.layer = compiled.place(layer)
    assert compiled.layer is not layer
    assert shapes == [True], "batches come in all sizes"
    np.testing.assert_array_equal(rows(plain, [look(1.0)]), rows(compiled, [look(1.0)]))


# ------------------------------------------------------------------------------------ memory and random numbers


def test_each_session_has_its_own_memory() -> None:
    def forward(batch: Batch) -> Any:
        total = batch.recall("total", torch.zeros(3)) + batch[STATE][:, :3]
        batch.remember("total", total)
        return total

    policy = Probe(forward)
    one, two = policy.new_session(TASK, 1), policy.new_session(TASK, 2)
    policy.act([look(1.0)], [one])
    policy.act([look(10.0), look(1.0)], [two, one])
    first, second = policy.act([look(1.0), look(10.0)], [one, two])
    assert (first[0, 0], second[0, 0]) == (3, 20)


def test_memory_may_be_of_any_kind() -> None:
    def forward(batch: Batch) -> Any:
        counts = [(kept or 0) + 1 for kept in batch.recalled("looks")]
        batch.remember("looks", counts)
        return torch.tensor(counts)[:, None].expand(-1, 3)

    policy = Probe(forward, deterministic=True, pad_to=4)
    state = policy.new_session(TASK, 0)
    for expected in (1, 2, 3):
        assert policy.act([look(0.0)], [state])[0][0, 0] == expected
    with pytest.raises(SparringError, match="2 values for 3 rows"):
        rows(Probe(lambda batch: batch.remember("x", [1, 2])), [look(0.0)] * 3)


def test_random_numbers_are_the_episodes_and_nobody_elses() -> None:
    policy = Probe(lambda batch: batch.randn(2, 3))
    alone = [policy.new_session(TASK, seed) for seed in (5, 6)]
    expected = [[policy.act([look(0.0)], [state])[0] for _ in range(3)] for state in alone]
    assert not np.array_equal(expected[0], expected[1])
    together = [policy.new_session(TASK, seed) for seed in (5, 6)]
    torch.randn(100)  # the global generator has no part in it
    order = ([0], [1, 0], [1], [1, 0])
    drawn: list[list[Array]] = [[], []]
    for indices in order:
        answers = policy.act([look(0.0)] * len(indices), [together[i] for i in indices])
        for index, answer in zip(indices, answers, strict=True):
            drawn[index].append(answer)
    np.testing.assert_array_equal(drawn, expected)
    generator = torch.Generator().manual_seed(5)
    np.testing.assert_array_equal(expected[0][0], torch.randn(2, 3, generator=generator).numpy())
    rows(Probe(lambda batch: batch.rand(3)), [look(0.0)], [2**64 - 1])


def test_a_pass_that_fails_leaves_no_trace() -> None:
    fails = True

    def forward(batch: Batch) -> Any:
        drawn = batch.randn(3)
        batch.remember("count", [1] * len(batch))
        if fails:
            raise ValueError("no")
        return drawn

    policy = Probe(forward)
    state = policy.new_session(TASK, 3)
    with pytest.raises(ValueError, match="no"):
        policy.act([look(0.0)], [state])
    assert state.memory == {}
    fails = False
    (answer,) = policy.act([look(0.0)], [state])
    np.testing.assert_array_equal(answer, torch.randn(1, 3, generator=torch.Generator().manual_seed(3)).numpy())


# ------------------------------------------------------------------------------------ deterministic mode


class Network(torch.nn.Module):
    """All that a policy usually is: convolution, attention, recurrence, normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Sequential(
            torch.nn.Conv2d(3, 32, 5, 2), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3)
        )
        self.attention = torch.nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
        self.cell = torch.nn.GRUCell(64, 128)
        self.head = torch.nn.Linear(128, 3)

    def forward(self, image: Any, hidden: Any) -> tuple[Any, Any]:
        tokens = self.convolution(image.float().permute(0, 3, 1, 2) / 255).flatten(2).transpose(1, 2)
        hidden = self.cell(self.attention(tokens).mean(1), hidden)
        return self.head(hidden), hidden


class Recurrent(Probe):
    def __init__(self, **options: Any) -> None:
        super().__init__(self._step, **options)
        torch.manual_seed(0)
        self.network = self.place(Network())

    def _step(self, batch: Batch) -> Any:
        assert torch.are_deterministic_algorithms_enabled()
        actions, hidden = self.network(batch[IMAGE], batch.recall("hidden", torch.zeros(128)))
        batch.remember("hidden", hidden)
        return actions


@pytest.mark.parametrize("pad_to", [1, 4])
def test_in_deterministic_mode_no_row_depends_on_its_neighbours(pad_to: int) -> None:
    rng = np.random.default_rng(0)
    films = rng.integers(0, 255, (5, 6, 24, 24, 3), np.uint8)  # five sessions of six looks
    policy = Recurrent(deterministic=True, pad_to=pad_to)
    alone = []
    for film in films:
        state = policy.new_session(TASK, 0)
        alone.append([policy.act([look(image.copy(), name=IMAGE)], [state])[0] for image in film])
    states = [policy.new_session(TASK, 0) for _ in films]
    mixed: list[list[Array]] = [[] for _ in films]
    while any(len(answers) < 6 for answers in mixed):
        waiting = [i for i in rng.permutation(5) if len(mixed[i]) < 6]
        chosen = waiting[: rng.integers(1, len(waiting) + 1)]
        observations = [look(films[i][len(mixed[i])].copy(), name=IMAGE) for i in chosen]
        for index, answer in zip(chosen, policy.act(observations, [states[i] for i in chosen]), strict=True):
            mixed[index].append(answer)
    assert np.asarray(mixed).tobytes() == np.asarray(alone).tobytes()
    assert set(policy.sizes) == {pad_to} or (policy.warnings and policy.sizes[-1] == 1)
    assert not torch.are_deterministic_algorithms_enabled(), "that is for its passes, and for nobody else's"


def test_padding_takes_nothing_from_anybodys_generator() -> None:
    padded = rows(Probe(lambda b: b.randn(3), deterministic=True, pad_to=4), [look(0.0)] * 6, range(6))
    usual = rows(Probe(lambda b: b.randn(3)), [look(0.0)] * 6, range(6))
    np.testing.assert_array_equal(padded, usual)


# ------------------------------------------------------------------------------------ out of memory


def hungry(most: int) -> Any:
    def forward(batch: Batch) -> Any:
        drawn = batch.randn(3)
        batch.remember("looks", [(kept or 0) + 1 for kept in batch.recalled("looks")])
        if len(batch) > most:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return drawn

    return forward


def test_out_of_memory_halves_the_batch_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    policy = Probe(hungry(3))
    states = [policy.new_session(TASK, seed) for seed in range(10)]
    with caplog.at_level(logging.WARNING):
        answers = policy.act([look(0.0)] * 10, states)
    assert policy.sizes == [10, 5, 2, 2, 2, 2, 2]
    assert "batch of 10; going on with at most 5" in caplog.text
    assert "batch of 5; going on with at most 2" in caplog.text
    np.testing.assert_array_equal(answers, rows(Probe(lambda b: b.randn(3)), [look(0.0)] * 10, range(10)))
    assert {state.memory["looks"] for state in states} == {1}, "what did not fit was not remembered"
    policy.sizes.clear()
    policy.act([look(0.0)] * 4, states[:4])
    assert policy.sizes == [2, 2], "what did not fit once is not tried again"


def test_out_of_memory_in_deterministic_mode(caplog: pytest.LogCaptureFixture) -> None:
    policy = Probe(hungry(3), deterministic=True, pad_to=8)
    with caplog.at_level(logging.WARNING):
        assert len(rows(policy, [look(0.0)] * 3)) == 3
    assert policy.sizes[:2] == [8, 4]
    assert set(policy.sizes[2:]) == {2}
    assert "pad_to=2" in caplog.text


def test_out_of_memory_on_the_way_to_the_device() -> None:
    class Narrow(Probe):
        def _on_device(self, arrays: Sequence[Array]) -> Any:
            if len(arrays) > 2:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return super()._on_device(arrays)

    policy = Narrow()
    assert [answer[0, 0] for answer in rows(policy, [look(float(i)) for i in range(5)])] == [0, 1, 2, 3, 4]
    assert policy.sizes == [2, 2, 1]


@pytest.mark.parametrize(
    "words",
    [
        "MPS backend out of memory (MPS allocated: 17 GB)",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
    ],
)
def test_a_lack_of_memory_has_many_names(words: str) -> None:
    def forward(batch: Batch) -> Any:
        if len(batch) > 1:
            raise RuntimeError(words)
        return batch[STATE][:, :3]

    policy = Probe(forward)
    rows(policy, [look(0.0)] * 2)
    assert policy.sizes == [2, 1, 1]


def test_not_even_one_fits() -> None:
    with pytest.raises(SparringError, match="not enough memory on cpu for one observation"):
        rows(Probe(hungry(0)), [look(0.0)] * 2)


# ------------------------------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "cuda"}, "'cuda' was asked for, but"),
        ({"device": "cuda:1"}, "'cuda:1' was asked for, but"),
        ({"device": "mps"}, "'mps' was asked for, but there is none here"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"device": "cpu:1"}, "unknown device 'cpu:1'"),
        ({"dtype": "float8"}, "dtype must be one of float32, bfloat16, float16, not 'float8'"),
        ({"autocast": "half"}, "autocast must be one of"),
        ({"pad_to": 0}, "pad_to must be"),
    ],
    ids=str,
)
def test_options_that_cannot_be(options: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # also on machines that have it
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UsageError, match=said):
        Probe(**options)


def test_auto_takes_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto").type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto").type == "cuda"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1") == torch.device("cuda:1")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    for name in ("auto", "cuda"):
        assert choose_device(name) == torch.device("cuda:1"), "the one that this program has chosen, in every thread"
    with pytest.raises(UsageError, match="there are 2 CUDA devices"):
        choose_device("cuda:2")


def test_a_torch_policy_without_forward() -> None:
    with pytest.raises(UsageError, match=r"Lacking lacks forward\(\)"):
        type("Lacking", (TorchPolicy,), {})()


# ------------------------------------------------------------------------------------ checkpoints


class Loader(Probe):
    def __init__(self, path: Path) -> None:
        super().__init__(lambda batch: self.layer(batch[STATE]))
        self.layer = self.load(torch.nn.Linear(5, 3), path)


@pytest.fixture
def weights() -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in torch.nn.Linear(5, 3).named_parameters()}


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_a_checkpoint_is_loaded_and_hashed(tmp_path: Path, weights: dict[str, Any], suffix: str) -> None:
    path = tmp_path / f"weights.{suffix}"
    save_file(weights, path) if suffix == "safetensors" else torch.save(weights, path)
    policy = Loader(path)
    assert torch.equal(policy.layer.weight, weights["weight"])
    assert policy.checkpoint_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


class Trap:
    """A pickle that leaves a trace when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pt", "weights.bin", "weights.pkl"])
@pytest.mark.parametrize("how", [torch.save, lambda thing, path: path.write_bytes(pickle.dumps(thing))])
def test_a_pickle_is_not_read(tmp_path: Path, name: str, how: Any) -> None:
    how({"weight": Trap(tmp_path / "sprung")}, tmp_path / name)
    with pytest.raises(UsageError, match=r"might run code|is a pickle") as caught:
        Loader(tmp_path / name)
    assert "save_file" in str(caught.value)
    assert not (tmp_path / "sprung").exists()


def test_a_torch_file_that_was_packed_is_not_unpacked(tmp_path: Path, weights: dict[str, Any]) -> None:
    torch.save(weights, tmp_path / "plain.pt")
    path = tmp_path / "packed.pt"
    with zipfile.ZipFile(tmp_path / "plain.pt") as plain, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in plain.namelist():
            packed.writestr(name, plain.read(name) + bytes(1 << 20))
    with pytest.raises(UsageError, match=r"packed\.pt.* would unpack to \d+"):
        Loader(path)


def test_a_pickle_of_plain_tensors_does_not_pass_for_safetensors(tmp_path: Path, weights: dict[str, Any]) -> None:
    torch.save(weights, tmp_path / "weights.safetensors")
    with pytest.raises(UsageError, match="is a pickle"):
        Loader(tmp_path / "weights.safetensors")


def test_checkpoints_that_are_missing_cut_off_or_of_something_else(tmp_path: Path, weights: dict[str, Any]) -> None:
    path = tmp_path / "weights.safetensors"
    with pytest.raises(UsageError, match="there is no checkpoint file"):
        Loader(path)
    save_file(weights, path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(UsageError, match=r"not a whole safetensors file.*interrupted"):
        Loader(path)
    save_file({"weight": torch.zeros(3, 4), "offset": torch.zeros(3)}, path)
    with pytest.raises(UsageError) as caught:
        Loader(path)
    for part in ("missing: bias", "not known: offset", "weight is (3, 4) and should be (3, 5)"):
        assert part in str(caught.value)
    torch.save([torch.zeros(3)], tmp_path / "weights.pt")
    with pytest.raises(UsageError, match="not a state dict"):
        Loader(tmp_path / "weights.pt")


# ------------------------------------------------------------------------------------ the rest of the house


def test_nobody_but_a_torch_policy_imports_torch() -> None:
    code = (
        "import sys, sparring.policy_server.__main__, sparring.policy_server.server, sparring.policy_server.client\n"
        "from sparring.policy_server.policies import load_policy, known_policies\n"
        "load_policy('zero', {}); known_policies()\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False).returncode == 0


def test_a_torch_policy_is_found_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "a_torch_policy.py").write_text(
        "from sparring.policy_server.policies.torch import TorchPolicy\n"
        "from sparring.protos.spec import PolicySpec\n"
        "class Mine(TorchPolicy):\n"
        "    spec = PolicySpec(['observation.state'], action_dim=3)\n"
        "    def forward(self, batch):\n"
        "        return batch['observation.state'][:, :3]\n"
    )
    policy = load_policy("a_torch_policy:Mine", {"device": "cpu", "deterministic": False})
    assert isinstance(policy, TorchPolicy)
    with pytest.raises(UsageError, match="device 'gpu'"):
        load_policy("a_torch_policy:Mine", {"device": "gpu"})


# ------------------------------------------------------------------------------------ warm-up


def test_the_first_pass_is_made_before_anybody_waits_for_it() -> None:
    seen: list[Any] = []

    def watch(batch: Batch) -> Any:
        seen.append({name: (tuple(tensor.shape), tensor.dtype, float(tensor.sum())) for name, tensor in batch.items()})
        return torch.zeros(len(batch), 3)

    policy = Probe(watch)
    policy.spec = PolicySpec(
        {STATE: TensorSpec(None, (5,)), IMAGE: TensorSpec("uint8", (8, 8, 3))}, action_dim=3, history=2
    )
    policy.warm_up()
    assert seen == [{STATE: ((1, 2, 5), torch.float32, 0.0), IMAGE: ((1, 2, 8, 8, 3), torch.uint8, 0.0)}]


def test_warming_up_has_the_shape_of_what_comes_after_it() -> None:
    policy = Probe(deterministic=True, pad_to=4)
    policy.warm_up()
    rows(policy, [look(1.0)])
    assert set(policy.sizes) == {4}


def test_nothing_is_made_up_where_the_spec_is_open() -> None:
    policy = Probe()
    policy.spec = PolicySpec([STATE], action_dim=3)
    policy.warm_up()
    assert policy.sizes == []


def test_a_policy_that_wants_more_than_zeros_starts_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(batch: Batch) -> Any:
        raise SparringError("an unknown sentence")

    with caplog.at_level(logging.INFO, logger="sparring"):  # whose own level a test before may have set
        Probe(refuse).warm_up()
    assert "an unknown sentence" in caplog.text
