from __future__ import annotations

from sparring.protos.errors import SparringError, UsageError, unknown

TASKS = [f"{verb}-{thing}-v3" for verb in ("push", "pull", "open", "close") for thing in ("door", "drawer", "window")]


def test_the_nearest_names_are_suggested() -> None:
    assert str(unknown("task", "reech-v3", ["reach-v3", "push-v3", "assembly-v3"])).startswith(
        "unknown task 'reech-v3'. Did you mean 'reach-v3'"
    )


def test_few_names_are_listed_when_none_is_near() -> None:
    assert str(unknown("policy", "xyzzy", ["zero", "random"])) == "unknown policy 'xyzzy'. Known: random, zero."


def test_many_names_are_not_listed_but_the_hint_is_given() -> None:
    many = [*TASKS, "one-more"]
    message = str(unknown("task", "qqqqqqq", many, hint="See: sparring ls tasks."))
    assert message == "unknown task 'qqqqqqq'. See: sparring ls tasks."


def test_no_names_at_all_is_said() -> None:
    assert str(unknown("class", "Mine", [])) == "unknown class 'Mine'. Known: none."


def test_at_most_three_are_suggested_and_none_twice() -> None:
    message = str(unknown("task", "open-door-v2", TASKS * 2))
    assert message.count("open-door-v3") == 1
    assert message.count(" or ") == 2


def test_it_is_a_usage_error() -> None:
    error = unknown("task", "a", [])
    assert isinstance(error, UsageError)
    assert isinstance(error, SparringError)
