"""The base class of torch policies: a user writes a spec and `forward(batch)`, the rest comes with it."""

from __future__ import annotations

import logging
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch

from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy
from sparring.policy_server.policies.checkpoints import load_weights, sha256_of
from sparring.policy_server.policies.torch_batch import Batch, TorchSession, answers_of, zero_observation
from sparring.policy_server.policies.torch_device import (
    choose_device,
    deterministic_algorithms,
    dtype_of,
    is_out_of_memory,
)
from sparring.policy_server.policies.torch_proof import DoesNotFit, RowProof, said
from sparring.protos.advice import Advice, Hint
from sparring.protos.errors import SparringError, UsageError

__all__ = ["Batch", "NotRepeatable", "TooManyRows", "TorchPolicy", "TorchSession", "choose_device"]

log = logging.getLogger(__name__)

M = TypeVar("M", bound=torch.nn.Module)


class TooManyRows(Exception):
    """Raised by a `forward` that cannot take so many rows at once; it is called again with at most `most`."""

    def __init__(self, most: int, why: str) -> None:
        super().__init__(f"{why}; going on with at most {most}")
        self.most = most


class NotRepeatable(UsageError):
    """A policy in deterministic mode gives other answers when it is asked the same again."""


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
            number of rows, `pad_to`, filled up with copies, and torch uses deterministic algorithms only. Whether that
            is enough here is tried out before the first answer; if not, rows are computed one by one.
        pad_to: Rows of a forward pass in deterministic mode. It is part of what decides the last bits of the results;
            with 1 every row is computed alone.
        threads: Threads that torch computes with on the CPU; 0 leaves it to torch.
    """

    casts_observations: bool = True
    """Whether floating-point observations are brought to `dtype`; not where processors of the policy's own do that."""

    in_training: bool = False
    """Whether its modules are trained in this very process, which `evaluate()` says. What they keep of a pass (caches)
    may then be needed for gradients, which torch refuses for what was made in inference mode."""

    trial_sentences: Sequence[str] = ()
    """For trying it out in deterministic mode, and for its warm-up (the first one): sentences that it may be given at
    the same time, short and long. Without any, the warm-up has an empty sentence."""

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
        self.dtype: Any = dtype_of(dtype, "dtype")
        self.deterministic = deterministic
        self._autocast = dtype_of(autocast, "autocast") if autocast else None
        self._compile = compile
        if not isinstance(pad_to, int) or pad_to < 1:
            raise UsageError(f"pad_to must be a whole number of at least 1, not {pad_to!r}.")
        self._pad_to = pad_to
        self.warnings: list[str] = []
        self._most_rows = 0
        """The most rows that fit in memory, once too many were tried; 0: not known to be limited."""
        self._sizes: dict[tuple[Hashable, str | None, int], int] = {}
        """Rows of a pass in deterministic mode: by their kind, their sentence (or whatever it is: None), and the fixed
        number of rows that was tried out."""
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
        """Makes a forward pass on zeros, where the spec says what they must look like: the first is the slow one.

        In deterministic mode it is also tried out there how many rows a pass may have.

        Raises:
            NotRepeatable: If, in deterministic mode, it is not.
        """
        zeros = zero_observation(self.spec, self.trial_sentences[0] if self.trial_sentences else "")
        if zeros is None:
            return
        try:
            if self.deterministic:
                self._prove(self._kind(zeros), zeros)
            self.act([zeros], [self.new_session(zeros.task, 0)])
        except NotRepeatable:
            raise
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
        kinds = [self._kind(observation) for observation in observations]
        rows = list(range(len(observations)))
        while rows:
            alike = [row for row in rows if kinds[row] == kinds[rows[0]]]
            now, size = self._of_one_pass(kinds[rows[0]], alike, observations)
            try:
                made = self._ask([observations[row] for row in now], [states[row] for row in now], size)
            except DoesNotFit:
                continue
            if self.deterministic:
                self._watch(kinds[rows[0]], made[len(now) - 1 :])
            for row, answer in zip(now, made, strict=False):
                answers[row] = answer
            rows = [row for row in rows if row not in now]
        return answers  # type: ignore[return-value]  # every row was in a pass

    def _kind(self, observation: Observation) -> Hashable:
        """Returns a row's group, and names, types and shapes of its tensors: rows of one kind can be stacked."""
        tensors = tuple((name, array.dtype.str, array.shape) for name, array in observation.items())
        return (self.group(observation), tensors)

    def _of_one_pass(
        self, kind: Hashable, alike: Sequence[int], observations: Sequence[Observation]
    ) -> tuple[Sequence[int], int]:
        """Returns which of the rows of a kind are next, and how many rows their pass has."""
        if not self.deterministic:
            size = min(len(alike), self._most_rows or len(alike))
            return alike[:size], size
        fixed = 0
        while fixed != self._fixed_size:  # which may turn out to be too large
            fixed = self._fixed_size
            sizes = [self._size(kind, observations[row]) for row in alike]
        return [row for row, size in zip(alike, sizes, strict=True) if size == sizes[0]][: sizes[0]], sizes[0]

    def _size(self, kind: Hashable, like: Observation) -> int:
        """Returns how many rows a pass with this one has, in deterministic mode."""
        try:
            self._prove(kind, like)
        except NotRepeatable:
            raise
        except Exception as error:  # noqa: BLE001  # a user's forward may raise anything where it is shown anything
            self._one_by_one(
                kind,
                "whether larger batches give a row the same bits could not be tried out: the policy does not answer to "
                f"rows that were made up ({type(error).__name__}: {error})",
            )
        size = self._fixed_size
        return min(self._sizes[kind, None, size], self._sizes.get((kind, str(like.task), size), 1))

    @property
    def _fixed_size(self) -> int:
        return min(self._pad_to, self._most_rows or self._pad_to)

    def _prove(self, kind: Hashable, like: Observation) -> None:
        """Finds out, once for each kind of rows and each sentence, whether they may share passes of the fixed size.

        By kind and sentence, because a row must not be computed in another way by what others came before it.

        Args:
            kind: Of the rows.
            like: One of them.

        Raises:
            NotRepeatable: If even alone a row's answer is not always the same.
            Exception: Whatever the policy raises when it is shown rows that were made up.
        """
        while (kind, str(like.task), size := self._fixed_size) not in self._sizes:
            with suppress(DoesNotFit):  # then with the number that does
                if (kind, None, size) not in self._sizes:
                    why = self._tried_out(kind, like, size)
                    self._sizes[kind, None, size] = self._sizes[kind, str(like.task), size] = size
                    if why:
                        self._one_by_one(kind, f"on {self._processor} the last bits of an answer depend on {why}")
                if (kind, str(like.task), size) in self._sizes or self._sizes[kind, None, size] == 1:
                    return
                alike = RowProof(self._ask, self.new_session, like).is_alike_everywhere(size)
                self._sizes[kind, str(like.task), size] = size
                if not alike:
                    why = "where in a batch its row is, for some sentences, whose rows these are"
                    self._one_by_one(
                        kind, f"on {self._processor} the last bits of an answer depend on {why}", str(like.task)
                    )

    def _tried_out(self, kind: Hashable, like: Observation, size: int) -> str:
        """Returns on what a row's answer depends in batches of a size, beside the row; nothing, if on nothing."""
        spoken = {s: Observation(like.tensors, said(like.task, s)) for s in self.trial_sentences}
        others = [sentence for sentence, row in spoken.items() if self._kind(row) == kind]
        proof, why = RowProof(self._ask, self.new_session, like, others), ""
        while size > 1:
            try:
                why = proof.depends_on(size)
                break
            except DoesNotFit:
                raise
            except Exception as error:
                if not proof.sentences:
                    raise
                # The last one is long, and it may know no sentences but its own.
                fewer = others[:-1] if proof.sentences == others else []
                log.info("tried out with %d other sentences: %s: %s", len(fewer), type(error).__name__, error)
                proof = replace(proof, sentences=fewer)
        if (size == 1 or why) and not proof.repeats():
            raise NotRepeatable(
                "deterministic mode cannot be kept: asked the same twice, one row at a time, this policy gives "
                "different answers. What it draws must come from batch.randn, batch.rand or batch.generators, and what "
                "it remembers must go through batch.remember (docs/policies.md)."
            )
        return why

    def _watch(self, kind: Hashable, alike: Sequence[Array]) -> None:
        """Looks whether a row and the copies that fill up a batch got the same answer.

        What is made up cannot be everything that a policy will see, and this costs nothing.
        """
        bits = alike[0].tobytes()
        if all(answer.tobytes() == bits for answer in alike[1:]):
            return
        self._one_by_one(
            kind,
            "a row and its copies in the same batch got answers that differ in the last bits, though none did when it "
            "was tried out. What was computed before may depend on who shared a batch",
        )

    def _one_by_one(self, kind: Hashable, why: str, sentence: str | None = None) -> None:
        """Computes rows of a kind, or those of it with a sentence, one by one from now on, and says so."""
        rows, self._sizes[kind, sentence, self._fixed_size] = self._fixed_size, 1
        if rows == 1:
            return
        warning = (
            f"in deterministic mode, rows are computed one by one and not {rows} at a time: {why}. "
            f"{Hint('policy_arg', 'pad_to', 1)} gives the numbers of one by one throughout (docs/policies.md)."
        )
        if warning not in self.warnings:
            self.warn(warning)

    @property
    def _processor(self) -> str:
        if self.device.type != "cpu":
            return str(self.device)
        return f"this processor ({torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads)"

    def _ask(self, observations: Sequence[Observation], states: Sequence[TorchSession], size: int) -> Sequence[Array]:
        """Makes one forward pass of so many rows; returns all answers, also to those that only fill up.

        Raises:
            DoesNotFit: If it has to be fewer rows. Nothing has happened then.
        """
        try:
            return self._pass(observations, states, size)
        except TooManyRows as refusal:
            if size == 1:
                raise SparringError(f"forward() refused a batch of one: {refusal}.") from refusal
            self.warn(f"{refusal}.")
            self._most_rows = max(1, min(refusal.most, size - 1))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if size == 1:
                raise SparringError(
                    f"there is not enough memory on {self.device} for one observation; half precision "
                    f"({Hint('policy_arg', 'dtype', 'bfloat16')}) takes half of it."
                ) from error
            self._halve(size)
        # Out of the except block: its traceback holds on to the tensors that did not fit.
        self._free_memory()
        raise DoesNotFit

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
            actions = answers_of(self.forward(batch), rows=len(batch))
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
        deterministic = deterministic_algorithms() if self.deterministic else nullcontext()
        with torch.no_grad() if self.in_training else torch.inference_mode(), autocast, deterministic:
            yield

    def _stacked(self, observations: Sequence[Observation], size: int) -> Mapping[str, Any]:
        filled = [*observations, *[observations[-1]] * (size - len(observations))]
        return {name: self._on_device([o[name] for o in filled]) for name in observations[0]}

    def _on_device(self, arrays: Sequence[Array]) -> Any:
        like = torch.from_numpy(np.empty((0,), arrays[0].dtype))
        if self.device.type == "cuda":
            # Straight into memory that the GPU can fetch by itself, so that the copy runs beside the computation.
            pinned = torch.empty((len(arrays), *arrays[0].shape), dtype=like.dtype, pin_memory=True)
            np.stack(arrays, out=pinned.numpy())
            tensor = pinned.to(self.device, non_blocking=True)
        else:
            # In memory of torch's own: numpy's lies anywhere, and by that libraries choose how they multiply.
            tensor = torch.empty((len(arrays), *arrays[0].shape), dtype=like.dtype)
            np.stack(arrays, out=tensor.numpy())
            tensor = tensor.to(self.device)
        return tensor.to(self.dtype) if self.casts_observations and tensor.is_floating_point() else tensor
