"""Hints in sentences: written, passed on as text, and read again in other words."""

from __future__ import annotations

import logging
import pickle

import pytest

from sparring.protos.advice import FLAGS, PYTHON, Advice, Hint, RenderedFormatter, hints_in, render, shortened, together
from sparring.protos.errors import SparringError, UsageError

SIZE = Hint("benchmark_arg", "resolution", 224)
CONTROL = Hint("benchmark_arg", "control", "absolute")
NAME = Hint("rename", "observation.images.top", "observation.image")


@pytest.mark.parametrize(
    ("hint", "notation", "flags", "python"),
    [
        (
            SIZE,
            "{{benchmark_arg.resolution=224}}",
            "--benchmark-arg resolution=224",
            'benchmark_arg={"resolution": 224}',
        ),
        (
            NAME,
            '{{rename.observation.images.top="observation.image"}}',
            "--rename observation.images.top=observation.image",
            'rename={"observation.images.top": "observation.image"} where the policy is made',
        ),
        (Hint("policy_ca"), "{{policy_ca}}", "--policy-ca", "ca="),
        (Hint("launcher", value="docker"), '{{launcher="docker"}}', "--launcher docker", 'launcher="docker"'),
        (Hint("video", value=True), "{{video=true}}", "--video", "video=True"),
        (Hint("benchmark_arg", "x"), "{{benchmark_arg.x}}", "--benchmark-arg x=...", 'benchmark_arg={"x": ...}'),
        (
            Hint("policy_arg", "dtype", "bfloat16"),
            '{{policy_arg.dtype="bfloat16"}}',
            "--policy-arg dtype=bfloat16",
            'dtype="bfloat16" where the policy is made',
        ),
        (
            Hint("rename", "a }}, b=", "{{c}} d"),
            '{{rename."a }}, b="="{{c}} d"}}',
            "--rename 'a }}, b='='{{c}} d'",
            'rename={"a }}, b=": "{{c}} d"} where the policy is made',
        ),
    ],
)
def test_a_hint_in_a_sentence(hint: Hint, notation: str, flags: str, python: str) -> None:
    assert str(hint) == notation
    text = f"try {hint}, or not."
    assert hints_in(text) == [hint]
    assert render(text, FLAGS) == f"try {flags}, or not."
    assert render(text, PYTHON) == f"try {python}, or not."


def test_hints_that_go_together_are_said_together() -> None:
    text = f"try {together([NAME, SIZE, CONTROL, SIZE])}:"
    assert hints_in(text) == [NAME, SIZE, CONTROL, SIZE]
    assert render(text, FLAGS) == (
        "try --rename observation.images.top=observation.image --benchmark-arg resolution=224 "
        "--benchmark-arg control=absolute:"
    )
    assert render(text, PYTHON) == (
        'try benchmark_arg={"resolution": 224, "control": "absolute"} and '
        'rename={"observation.images.top": "observation.image"} where the policy is made:'
    )
    assert together([]) == ""


@pytest.mark.parametrize(
    "text", ["", "{{", "}}", "{{ name }}", "{{name", "{{a.=1}}", "{{a=}}", "{{a=1, }}", "{{Ä}}", "{a}", "{{a=1,b=2}}"]
)
def test_what_only_looks_like_a_hint_is_left_as_it_is(text: str) -> None:
    assert render(text, FLAGS) == text
    assert hints_in(text) == []


def test_a_hint_is_found_behind_what_only_looks_like_one() -> None:
    assert render("{{{policy_ca}} {{x {{policy_ca}}", FLAGS) == "{--policy-ca {{x --policy-ca"


def test_an_error_is_read_in_python_and_passed_on_as_it_is() -> None:
    error = UsageError(f"give {SIZE}.")
    assert str(error) == f"{error}" == 'give benchmark_arg={"resolution": 224}.'
    assert error.sentence == "give {{benchmark_arg.resolution=224}}."
    assert error.hints == [SIZE]
    assert error.told(FLAGS) == "give --benchmark-arg resolution=224."
    again = SparringError(error.sentence)
    assert again.told(FLAGS) == error.told(FLAGS)
    again.dialect = PYTHON
    assert again.told(FLAGS) == str(error), "who has said for whom it is knew better"
    assert pickle.loads(pickle.dumps(error)).sentence == error.sentence


def test_a_text_is_not_cut_in_the_middle_of_a_hint() -> None:
    text = f"give {SIZE} and more"
    for length in range(len(text) + 1):
        kept = shortened(text, length)
        assert text.startswith(kept)
        assert len(kept) <= length
        assert "{{" not in kept or hints_in(kept) == [SIZE]
    assert shortened("a {{ b", 5) == "a {{ "


def test_log_lines_are_told_in_the_words_of_their_reader() -> None:
    def record() -> logging.LogRecord:
        args = (UsageError(f"give {SIZE}."), Advice(f"or {CONTROL}"), 3)
        return logging.LogRecord("sparring", logging.WARNING, "", 1, "%s %s (%d)", args, None)

    assert (
        record().getMessage() == 'give benchmark_arg={"resolution": 224}. or benchmark_arg={"control": "absolute"} (3)'
    )
    shown = record()
    told = RenderedFormatter(FLAGS).format(shown)
    assert told == "give --benchmark-arg resolution=224. or --benchmark-arg control=absolute (3)"
    assert shown.getMessage() == record().getMessage(), "whoever else handles it has words of their own"


def test_a_log_line_that_cannot_be_formatted_takes_nobody_down(capsys: pytest.CaptureFixture[str]) -> None:
    log, handler = logging.Logger("somebody else's"), logging.StreamHandler()
    handler.setFormatter(RenderedFormatter(FLAGS))
    log.addHandler(handler)
    log.warning("%d steps", "many")
    assert "--- Logging error ---" in capsys.readouterr().err, "as logging itself tells it"


def test_brackets_without_end_are_no_hint() -> None:
    text = "{{benchmark_arg=" + 5000 * "["
    assert render(text, FLAGS) == text


def test_a_setting_of_yes_or_no_is_a_flag_of_its_own_on_the_command_line() -> None:
    said = f"{Hint('actions', value=False)} {Hint('in_process', value=True)}"
    assert render(said, FLAGS) == "--no-actions --in-process"
    assert render(str(Hint("actions", value=False)), PYTHON) == "actions=False"
