"""Rules of the sentence that a policy is given."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from typing import Final

import numpy as np

from sparring.orchestrator.preflight.evidence import Evidence
from sparring.protos.advice import Hint
from sparring.protos.rules import NotApplicable, broken, expect

_ANOTHER: Final = "Put the red cube on the shelf"


def is_a_sentence(evidence: Evidence) -> None:
    """The instruction is a sentence, and not a task's name."""
    said = evidence.instruction
    _check_that_it_reads(evidence)
    expect(said.strip(), "there is none, and a policy that reads sentences does not know what to do.")
    is_name = len(said.split()) == 1 and re.search(r"[_\d/-]", said)
    expect(
        not is_name and not re.search(r"\w_\w", said),
        f"it is {said!r}: a name. Policies were trained on words with spaces between them; the benchmark's task has an "
        "`instruction` to say them in.",
    )


def is_known(evidence: Evidence) -> None:
    """The instruction is one of the training set's, word by word."""
    _check_that_it_reads(evidence)
    if evidence.data_set is None:
        raise NotApplicable(f"there is no data set to compare with: give {Hint('dataset')}.")
    known = [sentence for sentence in evidence.data_set.sentences if sentence]
    if not known:
        raise NotApplicable("the data set has no sentences.")
    said = evidence.instruction
    if said in known:
        return
    if same := [one for one in known if _plain(one) == _plain(said)]:
        broken(
            f"it is {said!r} and was {same[0]!r} in training: the same words, written otherwise, of which a "
            "tokenizer makes something else. Say it as in training where the task's instruction is written."
        )
    near = max(known, key=lambda one: difflib.SequenceMatcher(None, _plain(one), _plain(said)).ratio())
    raise NotApplicable(
        f"{said!r} is none of the {len(known)} sentences of training; the nearest is {near!r}. If that is the same "
        "task, say it in those words."
    )


def _check_that_it_reads(evidence: Evidence) -> None:
    """Raises NotApplicable, unless the policy reads the sentence."""
    if not _reads(evidence):
        raise NotApplicable("the policy does not read it.")


def _reads(evidence: Evidence) -> bool:
    """Returns whether the policy reads the sentence: by its checkpoint, or by what it answers to another one.

    Raises:
        NotApplicable: If that cannot be told.
    """
    if evidence.checkpoint is not None and evidence.checkpoint.reads_sentences is not None:
        return evidence.checkpoint.reads_sentences
    if evidence.policy.is_foreign:
        return True
    if evidence.ask is None:
        raise NotApplicable("whether the policy reads it is not known.")
    seen = {name: evidence.shown(name) for name in evidence.looked_at}
    answers = [
        evidence.ask(sentence, seen).actions for sentence in (evidence.instruction, _ANOTHER, evidence.instruction)
    ]
    if not np.array_equal(answers[0], answers[2]):
        raise NotApplicable("whether the policy reads it cannot be told: it does not answer the same twice.")
    return not np.array_equal(answers[0], answers[1])


def _plain(sentence: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", sentence.lower()))


RULES: Final[tuple[Callable[[Evidence], None], ...]] = (is_a_sentence, is_known)
