"""How much a policy server may say of itself and ask for, and how much of a policy is read: from both sides."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sparring.policy_server import commit, session_client
from sparring.policy_server.client import Offer
from sparring.policy_server.session_client import Description, PolicyProgram
from sparring.protos import policy_pb2 as pb
from sparring.protos.errors import SparringError
from sparring.protos.limits import MAX_HISTORY
from sparring.protos.spec import PolicySpec, SpecMismatch, TensorSpec, check_settled
from sparring.protos.tensor import MAX_TENSOR_BYTES

TOO_MUCH = "too many parts, or parts with names that are too long or no text"


def test_the_parts_of_its_program() -> None:
    def said(parts: int) -> pb.Program:
        half = parts // 2
        files = {str(number): "0" for number in range(half)}
        return pb.Program(files=files, packages={str(number): "1" for number in range(parts - half)})

    most = session_client._MOST_ENTRIES
    assert len(PolicyProgram.from_message(said(most)).files) == most // 2
    with pytest.raises(SparringError, match=TOO_MUCH):
        PolicyProgram.from_message(said(most + 1))


@pytest.mark.parametrize("field", ["commit", "package", "files"])
def test_their_names(field: str) -> None:
    def said(text: str) -> pb.Program:
        return pb.Program(**{field: {text: "0"} if field == "files" else text})  # type: ignore[arg-type]

    PolicyProgram.from_message(said("x" * session_client._LONGEST))
    for text in ("x" * (session_client._LONGEST + 1), "\x1b[2J"):
        with pytest.raises(SparringError, match=TOO_MUCH):
            PolicyProgram.from_message(said(text))


def test_all_that_it_says() -> None:
    needs = PolicySpec({}, action_dim=1).to_message()
    most = session_client._LONGEST_DESCRIPTION
    room = most - pb.PolicyDescription(name="x" * most, needs=needs).ByteSize()
    fits = pb.PolicyDescription(name="x" * (most + room), needs=needs)
    assert fits.ByteSize() == most
    assert Description.from_message(fits).name == fits.name
    fits.name += "x"
    with pytest.raises(SparringError, match="4,194,304 are the most"):
        Description.from_message(fits)


def test_the_steps_that_it_asks_to_be_shown() -> None:
    offer = Offer({"position": TensorSpec("float64", (1,))}, action_low=[-1.0], action_high=[1.0])

    def asking(history: int) -> PolicySpec:
        return PolicySpec({"position": TensorSpec("float64", (1,))}, action_dim=1, chunk_length=1, history=history)

    check_settled(asking(MAX_HISTORY), offer)
    with pytest.raises(SpecMismatch, match="at most 4096 are kept"):
        check_settled(asking(MAX_HISTORY + 1), offer)


def test_the_bytes_of_all_that_it_asks_to_be_shown_at_once() -> None:
    spec = TensorSpec("uint8", (MAX_TENSOR_BYTES // 4,))
    offer = Offer({"image": spec}, action_low=[-1.0], action_high=[1.0])

    def asking(history: int) -> PolicySpec:
        return PolicySpec({"image": spec}, action_dim=1, chunk_length=1, history=history)

    check_settled(asking(4), offer)
    with pytest.raises(SpecMismatch, match=r"it asks for the last 5 of 'image', .*more than a message holds"):
        check_settled(asking(5), offer)


def test_changed_files_that_are_read_to_compare_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "a"]):
        (tmp_path / "a").write_bytes(bytes(100))
        subprocess.run(["git", *command], cwd=tmp_path, check=True, timeout=30)
    (tmp_path / "a").touch()
    monkeypatch.setattr(commit, "_MOST_BYTES", 100)
    assert not commit.commit_of(tmp_path, []).modified
    monkeypatch.setattr(commit, "_MOST_BYTES", 99)
    assert commit.commit_of(tmp_path, []).modified, "what is not read may have changed"
