"""A command without arguments, as somebody types who wants to know what there is."""

from __future__ import annotations

import pytest
from support import Sparring


@pytest.mark.parametrize("words", [(), ("protocol",), ("env",), ("check",), ("ls",)])
def test_a_group_of_commands_alone_shows_its_help_and_calls_it_no_error(
    words: tuple[str, ...], usage: Sparring
) -> None:
    done = usage(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: ")
    assert "Commands:" in done.stderr
