"""Whether a row's answer is its own, to the last bit, wherever in a batch it is and whoever is beside it: tried out.

A fixed number of rows is not enough for that. Vectorised kernels compute what is left over at a tensor's end in another
way than the rest, libraries choose by the alignment of a row's memory, and the last bits come out otherwise. Which
kernels do so, at which shapes, depends on the processor and on the number of threads; no list of them would stay true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from sparring.policy_server.policies.base import Array, Instruction, Observation
from sparring.policy_server.policies.torch_batch import TorchSession

EPISODES: Final = 16
"""How many are made up, and how many mixes of them. Even, so that `_mixes` has each of them at every place. Fewer would
find less: a kernel's two ways often agree. Of what a sigmoid computes in the other way, with AVX2 or AVX-512, one in a
hundred numbers comes out otherwise."""

_LOOKS: Final = 2
_ALONE: Final = 3

AskBatch = Callable[[Sequence[Observation], Sequence[TorchSession], int], Sequence[Array]]
"""Makes one forward pass of so many rows, filled up with copies of the last one; returns all answers, also to those."""


class DoesNotFit(Exception):
    """Fewer rows fit in memory than were tried; from now on a pass has as many as do."""


@dataclass(frozen=True)
class RowProof:
    """Plays made-up episodes in batches of a size, and compares every answer bit by bit.

    Their sessions and generators are their own: no episode ever sees them.

    Attributes:
        ask: The policy.
        new_session: Of the policy.
        like: An observation of the kind that is tried; of its tensors only types and shapes count.
        sentences: That rows may have, beside the one of `like`. What a network makes of a sentence alone has as many
            samples as there are sentences.
    """

    ask: AskBatch
    new_session: Callable[[Instruction, int], TorchSession]
    like: Observation
    sentences: Sequence[str] = ()

    def depends_on(self, size: int) -> str:
        """Returns what an answer depends on beside its own episode, in batches of a size; nothing, if on nothing."""
        held: list[Any] = []
        expected: dict[int, list[bytes]] = {}
        for mix in [[0] * size, *_mixes(size)]:
            for episode, row in zip(mix, self._play(mix, size, held), strict=True):
                if expected.setdefault(episode, row) != row:
                    return "where in a batch its row is, and beside whom"
        # As whoever waits alone is answered, with copies beside it; and asked for the second time.
        again = self._play([0], size, held)
        return "" if all(row == expected[0] for row in again) else "when it is asked"

    def is_alike_everywhere(self, size: int) -> bool:
        """Returns whether rows with the sentence of `like` get the same answer at all places: a look at one more."""
        held: list[Any] = []
        return all(len(set(map(tuple, self._play([episode], size, held)))) == 1 for episode in range(_LOOKS))

    def repeats(self) -> bool:
        """Returns whether rows that are computed one by one give the same answers a second time."""
        held: list[Any] = []
        first = [self._play([episode], 1, held) for episode in range(_ALONE)]
        again = [self._play([episode], 1, held) for episode in reversed(range(_ALONE))]
        return first == again[::-1]

    def _play(self, episodes: Sequence[int], size: int, held: list[Any]) -> list[list[bytes]]:
        """Plays the beginning of episodes in one batch; returns the answers of each row, as bits."""
        # Held to the end, so that the tensors of later passes lie elsewhere.
        held.append(torch.empty(64 << (len(held) % 12), dtype=torch.uint8))
        shown = [[self._made_up(episode, look) for look in range(_LOOKS)] for episode in episodes]
        states = [self.new_session(looks[0].task, episode) for episode, looks in zip(episodes, shown, strict=True)]
        rows: list[list[bytes]] = [[] for _ in range(size)]
        for look in range(_LOOKS):
            if look and not any(state.memory for state in states):
                break  # who remembers nothing is asked the same again and again
            answers = self.ask([looks[look] for looks in shown], states, size)
            for row, answer in zip(rows, answers, strict=True):
                row.append(answer.tobytes())
        return rows

    def _made_up(self, episode: int, look: int) -> Observation:
        rng = np.random.default_rng((episode, look))
        tensors = {name: _random(array, rng) for name, array in self.like.items()}
        sentences = [str(self.like.task), *self.sentences]
        return Observation(tensors, said(self.like.task, sentences[episode % len(sentences)]), look)


def said(task: Instruction, sentence: str) -> Instruction:
    """Returns a task in other words."""
    return Instruction(sentence, benchmark=task.benchmark, name=task.name, episode=task.episode, offer=task.offer)


def _mixes(size: int) -> list[list[int]]:
    """Returns batches of made-up episodes. Together they have each episode at every place, among others."""
    ways = [(start, 1 if start % 2 else -1) for start in range(EPISODES)]
    return [[(start + way * place) % EPISODES for place in range(size)] for start, way in ways]


def _random(like: Array, rng: np.random.Generator) -> Array:
    """Returns an array of numbers as they occur. Zeros would do nothing: every way to add them up is right."""
    if like.dtype.kind == "f":
        return rng.random(like.shape).astype(like.dtype)
    highest = 256 if like.dtype == np.uint8 else 2  # an image; else a flag, or the number of something
    return rng.integers(0, highest, like.shape).astype(like.dtype)
