"""Tracebacks of users' code: one file for each that differs, and sentences that refer to it."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from sparring.policy_server.calls import PolicyCalls
from sparring.policy_server.errors import PolicyFailed
from sparring.policy_server.policies.base import Instruction, Policy
from sparring.protos.errors import SparringError
from sparring.protos.spec import Offer, PolicySpec
from sparring.protos.tracebacks import CALLERS, LONGEST, Tracebacks, cause_of, located, references, traceback_of


def raised(said: object, *, elsewhere: bool = False) -> BaseException:
    try:
        if elsewhere:
            raise ValueError(said)
        raise ValueError(said)
    except ValueError as error:
        return error


def kept(tracebacks: Tracebacks, error: BaseException, whose: str = "policy") -> str:
    return tracebacks.keep(whose, f"it raised {error}", traceback_of(error))


def test_one_file_for_each_that_differs(tmp_path: Path) -> None:
    tracebacks = Tracebacks(tmp_path)
    first = kept(tracebacks, raised("17 of 0x7f00"))
    assert first == kept(tracebacks, raised("18 of 0x7f08")), "raised in the same place"
    other = kept(tracebacks, raised("17 of 0x7f00", elsewhere=True))
    assert other != first
    assert kept(tracebacks, raised("17 of 0x7f00"), "simulator") not in (first, other)
    assert len(list((tmp_path / "errors").iterdir())) == 3
    (name,) = references(f"it raised. ({first})")
    text = (tmp_path / name).read_text()
    assert text.startswith("it raised 17 of 0x7f00\nThe first time: 20")
    assert text.endswith("ValueError: 17 of 0x7f00\n")
    assert f'File "{__file__}"' in text


def test_what_we_were_dealing_with_meanwhile_is_none_of_it() -> None:
    """A batch has failed, and its rows are tried one by one: the same row has the same traceback in any company."""
    alone = traceback_of(raised("boom"))
    try:
        raise SparringError("the batch failed.")
    except SparringError:
        assert traceback_of(raised("boom")) == alone
    try:
        raise KeyError("their own")
    except KeyError:
        assert "During handling" in traceback_of(raised("boom"))


@pytest.mark.parametrize(
    "text", ["\n" * LONGEST, " \n" * (LONGEST // 2), 'File "", line 1' * (LONGEST // 15), "a" * LONGEST]
)
def test_what_looks_like_a_traceback_to_nobody_takes_no_time(tmp_path: Path, text: str) -> None:
    began = time.process_time()
    Tracebacks(tmp_path).keep("simulator", "it raised.", text)
    assert time.process_time() - began < 1, "a worker that means harm would hold up the run"


def test_a_text_with_references_says_where_they_are() -> None:
    said = "it raised (step 0; traceback: errors/policy-0123abcd.txt) and errors/other.txt"
    assert references(said) == ["errors/policy-0123abcd.txt"]
    assert located(said, Path("outputs/x")) == said.replace("errors/p", "outputs/x/errors/p")


def test_what_is_kept_has_bounds_and_no_control_characters(tmp_path: Path) -> None:
    tracebacks = Tracebacks(tmp_path)
    (name,) = references(kept(tracebacks, raised("\x1b[2J" + "x" * 3 * LONGEST)))
    text = (tmp_path / name).read_text().split("\n\n", 1)[1]
    assert len(text) < LONGEST + 200
    assert "characters are left out here" in text
    assert "\x1b" not in text


def test_no_more_than_a_hundred_files(tmp_path: Path) -> None:
    tracebacks = Tracebacks(tmp_path)
    for number in range(110):
        tracebacks.keep("simulator", "it raised", f'  File "a.py", line {number}, in f\nValueError\n')
    assert len(list((tmp_path / "errors").iterdir())) == 100


def test_without_a_folder_it_is_logged_once_and_said_where(caplog: pytest.LogCaptureFixture) -> None:
    tracebacks = Tracebacks(elsewhere="in the policy server's log")
    assert {kept(tracebacks, raised(n)) for n in range(3)} == {"traceback: in the policy server's log"}
    assert caplog.text.count("Traceback (most recent call last)") == 1
    assert kept(Tracebacks(), raised(0)) == ""


@pytest.mark.parametrize("module", CALLERS)
def test_what_calls_users_code_is_where_it_is_said_to_be(module: str) -> None:
    assert find_spec(module) is not None  # one that was moved would show up in everybody's tracebacks


def test_only_what_somebody_raised_has_one() -> None:
    ours = SparringError("a sentence.")
    assert cause_of(ours) is None
    theirs = raised("boom")
    ours.__cause__ = SparringError("another.")
    ours.__cause__.__cause__ = theirs
    assert cause_of(ours) is theirs
    assert cause_of(theirs) is theirs


class Fails(Policy):
    spec = PolicySpec({}, action_dim=1)

    def new_session(self, task: Instruction, seed: int) -> None:
        raise LookupError("x" * 5000)


def test_a_policys_traceback_begins_in_its_own_code_and_is_not_in_the_sentence(tmp_path: Path) -> None:
    calls = PolicyCalls(Fails(), name="m:Fails", tracebacks=Tracebacks(tmp_path))
    with pytest.raises(PolicyFailed) as failed:
        calls.new_session(Instruction("go", offer=Offer({}, (0.0,), (1.0,))), 0)
    sentence = failed.value.sentence
    assert sentence.startswith("the policy's new_session() raised LookupError: xxx")
    assert "File" not in sentence
    assert len(sentence) < 1500, "it fits into the status of a stream, with what comes last"
    (name,) = references(sentence)
    assert sentence.endswith(f"... (policy 'm:Fails'; traceback: {name})")
    frames = [line for line in (tmp_path / name).read_text().splitlines() if line.startswith("  File")]
    assert len(frames) == 1
    assert "in new_session" in frames[0]
