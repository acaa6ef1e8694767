"""The record of an episode: defined once, and the wire follows."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import get_args

import pytest

from sparring.protos import evaluation_pb2 as pb
from sparring.protos.record import EpisodeRecord, ErrorKind, Outcome

ATTACHED = {"lease", "video_bytes", "recording_bytes", "missing", "actions", "trace", "traceback", "warnings"}
"""What a result has beside the record."""


def test_the_message_has_the_fields_of_the_record_and_no_others() -> None:
    assert {f.name for f in fields(EpisodeRecord)} == set(pb.Result.DESCRIPTOR.fields_by_name) - ATTACHED


def test_every_field_comes_out_of_the_message_as_it_went_in() -> None:
    record = EpisodeRecord(outcome="error")
    for number, f in enumerate(fields(EpisodeRecord), start=1):
        value = getattr(record, f.name)
        if isinstance(value, dict):
            setattr(record, f.name, {"a": number + 0.1, "b": 0.0})
        elif isinstance(value, float):
            setattr(record, f.name, number + 0.1)
        elif isinstance(value, int):
            setattr(record, f.name, number)
    record.error, record.error_kind = "boom", "limit"
    message = pb.Result.FromString(record.to_message(7).SerializeToString())
    assert message.lease == 7
    assert EpisodeRecord.from_message(message) == record


@pytest.mark.parametrize("kind", get_args(ErrorKind))
def test_kinds_of_errors_are_the_words_of_the_contract(kind: ErrorKind) -> None:
    assert EpisodeRecord.from_message(EpisodeRecord.failed(kind, "boom").to_message(1)).error_kind == kind


def test_the_contract_has_no_other_words() -> None:
    assert len(pb.ErrorKind.values()) == len(get_args(ErrorKind))
    assert len(pb.Outcome.values()) == len(get_args(Outcome)) + 1, "one is unspecified"


def test_an_outcome_that_is_not_known_is_an_error() -> None:
    message = pb.Result.FromString(bytes([2 << 3, 77]))  # as a later release may send
    assert EpisodeRecord.from_message(message).outcome == "error"
    assert EpisodeRecord.from_message(pb.Result()).outcome == "error"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", [f.name for f in fields(EpisodeRecord) if f.default == 0.0 and f.type == "float"])
def test_no_number_that_is_not_finite_gets_to_the_journal(field: str, number: float) -> None:
    record = EpisodeRecord.from_message(EpisodeRecord(outcome="success", **{field: number}).to_message(1))  # type: ignore[arg-type]
    assert (record.outcome, record.error_kind) == ("error", "internal")
    assert all(math.isfinite(value) for value in vars(record).values() if isinstance(value, float))


@pytest.mark.parametrize("broken", [{"reward_sum": math.nan}, {"metrics": {"x": math.inf}}])
def test_numbers_that_are_none_do_not_get_to_the_journal(broken: dict[str, object]) -> None:
    record = EpisodeRecord.from_message(EpisodeRecord(outcome="success", **broken).to_message(1))  # type: ignore[arg-type]
    assert (record.outcome, record.error_kind, record.metrics) == ("error", "internal", {})
