"""Commands as somebody types them who is new here: without arguments, or with a list as in a sentence."""

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
    commands = done.stderr.partition("Commands:")[2]
    assert "..." not in commands, "what they do is not cut off"


def test_a_list_with_a_space_after_its_comma_is_told_as_such(usage: Sparring) -> None:
    done = usage("run", "--benchmark", "toy", "--task", "short,", "long", "--policy", "random")
    assert done.returncode == 2
    assert done.stderr == "error: Got unexpected extra argument (long). A list has no space after its commas.\n"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--task", "short", "long"), " Several values are one word, with commas in between, as in --task short,long"),
        (("--policy-arg", "gain", "2"), " --policy-arg takes KEY=VALUE, as in --policy-arg gain=2"),
        (("--policy-arg", "gain=2", "3"), ""),
        (("--task", "--output", "there"), " --task has no value: --output was taken for it."),
        (("--seed", "-1", "there"), ""),
        (("--view", "--debug", "there"), ""),
    ],
)
def test_none_or_two_words_where_a_flag_takes_one_are_told_as_such(
    words: tuple[str, ...], hint: str, usage: Sparring
) -> None:
    done = usage("run", "--benchmark", "toy", "--policy", "random", *words)
    assert done.returncode == 2
    assert done.stderr == f"error: Got unexpected extra argument ({words[-1]}){'.' if hint else ''}{hint}\n"
