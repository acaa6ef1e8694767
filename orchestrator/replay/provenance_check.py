"""Where results come from, as run.json tells it: whether the journal, from which it was made, has the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sparring.orchestrator.results.document import RunDocument
from sparring.orchestrator.results.finite import finite
from sparring.orchestrator.results.makers import Maker

_OF_THE_POLICY: Final = ("name", "arguments", "checkpoint_sha256")


def provenance_problems(document: RunDocument, meta: Mapping[str, Any], makers: Mapping[int, Maker]) -> Iterator[str]:
    """Says in sentences where run.json tells of another policy, other versions or other machines than the journal.

    What the journal does not have, as after a salvage, is not held against it.

    Args:
        document: Of a run that has come to an end.
        meta: Notes of the journal.
        makers: Of the journal.
    """
    identity = meta.get("identity")
    noted = identity.get("policy") if isinstance(identity, Mapping) else None
    told = None if document.policy is None else document.policy.model_dump(mode="json")
    if told is not None and isinstance(noted, Mapping):
        for name in _OF_THE_POLICY:
            if name in noted and _same_kind(told[name]) != _same_kind(noted[name]):
                yield f"run.json tells of another policy than the journal: {name}."
    for what, here in (("versions", document.versions), ("machines", document.machines)):
        if what in meta and meta[what] != here:
            yield f"run.json tells of other {what} than the journal."
    if {int(number): maker for number, maker in document.makers.items()} != makers:
        yield "run.json tells of other makers of episodes than the journal: workers, versions or programs."


def _same_kind(fact: Any) -> Any:
    """Returns a fact so that no hash and an empty one are equal: those of a policy without a checkpoint."""
    return finite(fact) or None
