"""Text of others, made fit for a terminal."""

from __future__ import annotations

import logging

import pytest

from sparring.protos.advice import FLAGS, RenderedFormatter
from sparring.protos.plain_text import plain


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("red: \x1b[31m", "red: \\x1b[31m"),
        ("title: \x1b]0;pwned\x07", "title: \\x1b]0;pwned\\x07"),
        ("\x9b31m and \x7f", "\\x9b31m and \\x7f"),
        ("over\rwritten\x08", "over\\x0dwritten\\x08"),
        ("txt.\u202eexe", "txt.\\u202eexe"),
        ("two\n\tlines, and ünïcödé: 机器人", "two\n\tlines, and ünïcödé: 机器人"),
    ],
)
def test_control_characters_are_written_out_and_nothing_else_is(text: str, told: str) -> None:
    assert plain(text) == told


def test_log_lines_are_plain() -> None:
    record = logging.LogRecord("x", logging.INFO, "x", 1, "worker %s left", ("\x1b[2J",), None)
    assert RenderedFormatter(FLAGS).format(record) == "worker \\x1b[2J left"
