"""The base class of torch policies: a user writes a spec and `forward(batch)`, the rest comes with it."""

from __future__ import annotations

import logging
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numpy as np
import torch

from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy
from sparring.policy_server.policies.checkpoints import load_weights, sha256_of
from sparring.policy_server.policies.torch_batch import Batch, TorchSession, zero_observation
from sparring.protos.advice import Advice, Hint
from sparring.protos.errors import SparringError, UsageError

__all__ = ["Batch", "TooManyRows", "TorchPolicy", "TorchSession", "choose_device"]

log = logging.getLogger(__name__)

M = TypeVar("M", bound=torch.nn.Module)

_NO_MEMORY: Final = ("MPS backend out of memory", "STATUS_ALLOC_FAILED", "DefaultCPUAllocator: can't allocate memory")
_DTYPES: Final = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class TooManyRows(Exception):
    """Raised by a `forward` that cannot take so many rows at once; it is called again with at most `most`."""

    def __init__(self, most: int, why: str) -> None:
        super().__init__(f"{why}; going on with at most {most}")
        self.most = most


class TorchPolicy(Policy):
    """Stacks observations, moves them to the device, runs `forward` on them, and keeps each session's memory apart.

    A subclass has a `spec`, a constructor that makes its modules and passes `**options` on to this one, and
    `forward`. Every option is a `--policy-arg`.

    Args:
        device: `auto` (CUDA, else MPS, else the CPU), `cpu`, `cuda`, `cuda:N` or `mps`.
        dtype: Of weights and of floating-point observations: `float32`, or for half precision `bfloat16`, `float16`.
        autocast: Instead of half-precision weights: let torch compute in `bfloat16` or `float16` where it is safe.
        compile: Compile the modules that are given to `place` or `load`.
        deterministic: A row's answer never depends on which rows share its batch: every forward pass has the same
            number of rows, `pad_to`, filled up with copies, and torch uses deterministic algorithms only.
        pad_to: Rows of a forward pass in deterministic mode. It is part of what decides the last bits of the results;
            with 1 every row is computed alone.
        threads: Threads that torch computes with on the CPU; 0 leaves it to torch.
    """

    casts_observations: bool = True
    """Whether floating-point observations are brought to `dtype`; not where processors of the policy's own do that."""

    in_training: bool = False
    """Whether its modules are trained in this very process, which `evaluate()` says. What they keep of a pass (caches)
    may then be needed for gradients, which torch refuses for what was made in inference mode."""

    def __init__(
        self,
        *,
        device: str = "auto",
        dtype: str = "float32",
        autocast: str = "",
        compile: bool = False,
        deterministic: bool = False,
        pad_to: int = 8,
        threads: int = 0,
    ) -> None:
        if type(self).forward is TorchPolicy.forward:
            raise UsageError(f"{type(self).__name__} lacks forward(); docs/policies.md shows one that is whole.")
        self.device: Any = choose_device(device)
        self.dtype: Any = _dtype(dtype, "dtype")
        self.deterministic = deterministic
        self._autocast = _dtype(autocast, "autocast") if autocast else None
        self._compile = compile
        if not isinstance(pad_to, int) or pad_to < 1:
            raise UsageError(f"pad_to must be a whole number of at least 1, not {pad_to!r}.")
        self._pad_to = pad_to
        self.warnings: list[str] = []
        self._most_rows = 0
        """The most rows that fit in memory, once too many were tried; 0: not known to be limited."""
        if threads:
            torch.set_num_threads(threads)
        if deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS asks for, before its first use

    def forward(self, batch: Batch) -> Any:
        """Returns the actions for a batch: a tensor of shape (rows, length, action_dim), or (rows, action_dim).

        Called in inference mode, with every tensor on the device. `len(batch)` may be larger than the number of
        sessions that are waiting: rows that only fill up are copies, and their answers are dropped.
        """
        raise NotImplementedError

    def place(self, module: M) -> M:
        """Makes a module ready for `forward`: on the device, in the dtype, in eval mode, compiled if asked for."""
        module.to(device=self.device, dtype=self.dtype)
        module.eval().requires_grad_(False)
        if not self._compile:
            return module
        # With a fixed batch shape a kernel per shape is best; otherwise batches have any size, and one kernel must do.
        return cast(M, torch.compile(module, dynamic=None if self.deterministic else True))

    def load(self, module: M, path: str | Path) -> M:
        """Fills a module from a checkpoint file and places it; the file's hash is saved with the results.

        Raises:
            UsageError: If the file is missing, is not safetensors, or has other weights than the module.
        """
        load_weights(module, Path(path))
        self.checkpoint_sha256 = sha256_of([Path(path)])
        return self.place(module)

    def warm_up(self) -> None:
        """Makes a forward pass on zeros, where the spec says what they must look like: the first is the slow one."""
        zeros = zero_observation(self.spec)
        if zeros is None:
            return
        try:
            self.act([zeros], [self.new_session(zeros.task, 0)])
        except Exception as error:  # noqa: BLE001  # a user's forward may want more than zeros: a sentence it knows
            log.info("not warmed up, as the policy does not answer to zeros: %s: %s", type(error).__name__, error)

    def warn(self, sentence: str) -> None:
        """Says something that whoever evaluates this policy should know: in the log, and among the run's warnings."""
        log.warning("%s", Advice(sentence))
        self.warnings.append(sentence)

    def new_session(self, task: Instruction, seed: int) -> TorchSession:
        return TorchSession(task, seed)

    def group(self, observation: Observation) -> Hashable:
        """Returns the group of a row. Rows of different groups never share a batch, where they would see each other."""
        return None

    def act(self, observations: Sequence[Observation], states: Sequence[TorchSession]) -> Sequence[Array]:
        answers: list[Array | None] = [None] * len(observations)
        for rows in self._alike(observations):
            while rows:
                size = self._rows_at_once(len(rows))
                now, rows = rows[:size], rows[size:]
                for row, answer in zip(now, self._answer(observations, states, now), strict=True):
                    answers[row] = answer
        return answers  # type: ignore[return-value]  # every row is in one group

    def _alike(self, observations: Sequence[Observation]) -> list[list[int]]:
        """Returns rows of one group whose tensors have the same names, types and shapes: those can be stacked."""
        groups: dict[Any, list[int]] = {}
        for row, observation in enumerate(observations):
            kind = tuple((name, array.dtype.str, array.shape) for name, array in observation.items())
            groups.setdefault((self.group(observation), kind), []).append(row)
        return list(groups.values())

    def _rows_at_once(self, waiting: int) -> int:
        most = self._most_rows or waiting
        return min(waiting, most, self._pad_to) if self.deterministic else min(waiting, most)

    def _answer(
        self, observations: Sequence[Observation], states: Sequence[TorchSession], rows: Sequence[int]
    ) -> Sequence[Array]:
        """Makes one forward pass, or several smaller ones where it does not fit in memory."""
        size = len(rows)
        if self.deterministic:
            size = min(self._pad_to, self._most_rows or self._pad_to)
        try:
            return self._pass([observations[row] for row in rows], [states[row] for row in rows], size)
        except TooManyRows as refusal:
            self.warn(f"{refusal}.")
            self._most_rows = refusal.most
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
            if size == 1:
                raise SparringError(
                    f"there is not enough memory on {self.device} for one observation; half precision "
                    f"({Hint('policy_arg', 'dtype', 'bfloat16')}) takes half of it."
                ) from error
            self._halve(size)
        # Out of the except block: its traceback holds on to the tensors that did not fit.
        self._free_memory()
        answers: list[Array] = []
        while len(answers) < len(rows):
            part = rows[len(answers) : len(answers) + self._most_rows]  # which a part may halve again
            answers += self._answer(observations, states, part)
        return answers

    def _pass(self, observations: Sequence[Observation], states: Sequence[TorchSession], size: int) -> Sequence[Array]:
        batch = Batch(
            self._stacked(observations, size),
            states,
            [observation.task for observation in observations],
            [observation.step for observation in observations],
            size=size,
            device=self.device,
            dtype=self.dtype,
        )
        with self._computing():
            actions = self._as_arrays(self.forward(batch), batch)
        batch.keep()
        return actions

    def _halve(self, size: int) -> None:
        self._most_rows = size // 2
        shape = f" (the fixed shape is that from now on; pad_to={self._most_rows} gives the same numbers throughout)"
        self.warn(
            f"out of memory on {self.device} with a batch of {size}; going on with at most {self._most_rows}"
            f"{shape if self.deterministic else ''}."
        )

    def _free_memory(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Applies all that holds for a forward pass, and for nothing else in this process."""
        autocast = torch.autocast(self.device.type, dtype=self._autocast) if self._autocast else nullcontext()
        deterministic = _deterministic() if self.deterministic else nullcontext()
        with torch.no_grad() if self.in_training else torch.inference_mode(), autocast, deterministic:
            yield

    def _stacked(self, observations: Sequence[Observation], size: int) -> Mapping[str, Any]:
        filled = [*observations, *[observations[-1]] * (size - len(observations))]
        return {name: self._on_device([o[name] for o in filled]) for name in observations[0]}

    def _on_device(self, arrays: Sequence[Array]) -> Any:
        if self.device.type == "cuda":
            # Straight into memory that the GPU can fetch by itself, so that the copy runs beside the computation.
            like = torch.from_numpy(np.empty((0,), arrays[0].dtype))
            pinned = torch.empty((len(arrays), *arrays[0].shape), dtype=like.dtype, pin_memory=True)
            np.stack(arrays, out=pinned.numpy())
            tensor = pinned.to(self.device, non_blocking=True)
        else:
            tensor = torch.from_numpy(np.stack(arrays)).to(self.device)
        return tensor.to(self.dtype) if self.casts_observations and tensor.is_floating_point() else tensor

    def _as_arrays(self, actions: Any, batch: Batch) -> Sequence[Array]:
        if not isinstance(actions, torch.Tensor) or actions.ndim not in (2, 3) or len(actions) != len(batch):
            what = tuple(actions.shape) if isinstance(actions, torch.Tensor) else type(actions).__name__
            raise SparringError(
                f"forward() got {len(batch)} rows and returned {what}; "
                "it returns a tensor of shape (rows, length, action_dim) or (rows, action_dim)."
            )
        chunks = actions if actions.ndim == 3 else actions[:, None]
        # Half precision is the policy's own business; everybody else has float32 at least.
        plain = chunks.detach().to("cpu", torch.promote_types(chunks.dtype, torch.float32)).numpy()
        return list(plain[: batch.sessions_waiting])


def choose_device(name: str) -> Any:
    """Returns the torch device that is meant by `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.

    Raises:
        UsageError: If there is no such device here.
    """
    kind, _, number = str(name).partition(":")
    if kind not in ("auto", "cpu", "cuda", "mps") or (number and (kind != "cuda" or not number.isdigit())):
        raise UsageError(f"unknown device {name!r}; it is auto, cpu, cuda, cuda:N or mps.")
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if kind == "auto":
        return _this_cuda() if cuda else torch.device("mps" if mps else "cpu")
    if kind == "mps" and not mps:
        raise UsageError("the device 'mps' was asked for, but there is none here; use device=auto or device=cpu.")
    if kind == "cuda" and not cuda:
        why = "this torch was built without CUDA" if torch.version.cuda is None else "torch finds no CUDA device"
        raise UsageError(
            f"the device {name!r} was asked for, but {why} (torch {torch.__version__}); use device=auto or device=cpu."
        )
    if kind == "cuda" and number and int(number) >= torch.cuda.device_count():
        raise UsageError(f"the device {name!r} was asked for, but there are {torch.cuda.device_count()} CUDA devices.")
    return _this_cuda() if name == "cuda" else torch.device(name)


def _this_cuda() -> Any:
    # Which device is the current one is a matter of each thread: where a training program has chosen one, the thread
    # that the policy is called in has not.
    cuda: Any = torch.cuda
    return torch.device("cuda", cuda.current_device()) if cuda.is_initialized() else torch.device("cuda")


def _dtype(name: str, option: str) -> Any:
    if name not in _DTYPES:
        raise UsageError(f"{option} must be one of {', '.join(_DTYPES)}, not {name!r}.")
    return _DTYPES[name]


def _is_out_of_memory(error: RuntimeError) -> bool:
    # Only CUDA's allocator has a class of its own for it, and not even its libraries use that.
    return isinstance(error, torch.cuda.OutOfMemoryError) or any(words in str(error) for words in _NO_MEMORY)


@contextmanager
def _deterministic() -> Iterator[None]:
    """Uses deterministic algorithms for a while: a program that trains beside it may not have one for all it does."""
    always, benchmark = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False  # it picks kernels by how fast they happen to run
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(always, warn_only=warn_only)
        torch.backends.cudnn.benchmark = benchmark
