"""A report as Markdown: what goes into a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sparring.protos.plain_text import plain

_MOST_TASKS: Final = 200
_MOST_ERRORS: Final = 20
_SPECIAL: Final = "\\`*_{}[]<>#|!~@"


def report_markdown(content: dict[str, Any]) -> str:
    """Returns the report in short: headline, tables of groups and tasks, errors, and what made it."""
    return "\n".join(_lines(content)) + "\n"


def _lines(content: dict[str, Any]) -> Iterator[str]:
    overall = content["overall"]
    yield f"# {_text(content['title'])}"
    yield ""
    told = _headline(content)
    yield f"{told}, {content['recorded']} of {content['planned']} episodes, {content['status']}."
    if overall["errors"] and overall["worst_case"] is not None:
        yield ""
        cases = _between(overall["worst_case"], overall["best_case"])
        yield (
            f"{overall['errors']} episodes ended in an error and are not counted: {cases} if all were failures, "
            "or successes."
        )
    for sentence in content["cautions"]:
        yield ""
        yield f"> {_text(sentence)}"
    yield ""
    yield from _table(content, content["tasks"], "task")
    names = {task["name"] for task in content["tasks"]}
    groups = [group for group in content["groups"] if group["name"] not in names]
    if groups:
        yield ""
        yield from _table(content, groups, "group")
    if content["errors"]:
        yield ""
        yield "| n | kind | error |"
        yield "|---:|---|---|"
        errors = sorted(content["errors"], key=lambda error: -error["n"])
        for error in errors[:_MOST_ERRORS]:
            yield f"| {error['n']} | {_text(error['kind'])} | {_text(error['sentence'])} |"
        if len(errors) > _MOST_ERRORS:
            yield f"| | | and {len(errors) - _MOST_ERRORS} more |"
    policy = content["policy"]
    yield ""
    if policy is not None and policy["checkpoint_sha256"]:
        yield f"checkpoint sha256 {_text(policy['checkpoint_sha256'])}"
        yield ""
    if content["command"]:
        command = " ".join(plain(content["command"]).split())
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", command)), default=0))  # longer than any inside
        yield from (f"{fence}sh", command, fence)


def _headline(content: dict[str, Any]) -> str:
    overall = content["overall"]
    if content["metric"] == "return":
        mean = overall["return"]
        return "no return" if mean is None else f"**mean return {_number(mean['mean'])}**{_interval(mean)}"
    if overall["success_rate"] is None:
        return "no success rate"
    return f"**{100 * overall['success_rate']:.1f} % success** (95 % interval {_between(*overall['interval'])})"


def _table(content: dict[str, Any], summaries: Sequence[dict[str, Any]], what: str) -> Iterator[str]:
    by_return = content["metric"] == "return"
    yield f"| {what} | n | errors | {'return' if by_return else 'success'} | 95 % interval |"
    yield "|---|---:|---:|---:|---|"
    for summary in summaries[:_MOST_TASKS]:
        if by_return:
            mean = summary["return"]
            value = "–" if mean is None else _number(mean["mean"])
            interval = "–" if mean is None or mean["interval"] is None else " – ".join(map(_number, mean["interval"]))
        else:
            rate = summary["success_rate"]
            value = "–" if rate is None else f"{100 * rate:.1f} %"
            interval = "–" if rate is None else _between(*summary["interval"])
        yield f"| {_text(summary['name'])} | {summary['n']} | {summary['errors']} | {value} | {interval} |"
    if len(summaries) > _MOST_TASKS:
        yield f"| and {len(summaries) - _MOST_TASKS} more | | | | |"


def _interval(mean: dict[str, Any]) -> str:
    return "" if mean["interval"] is None else f" (95 % interval {' – '.join(map(_number, mean['interval']))})"


def _between(low: float, high: float) -> str:
    return f"{100 * low:.1f} – {100 * high:.1f} %"


def _number(value: float) -> str:
    return f"{value:.4g}"


def _text(text: str) -> str:
    """Returns a text as text: names of tasks and errors may have anything in them."""
    escaped = "".join(f"\\{character}" if character in _SPECIAL else character for character in plain(text))
    return " ".join(escaped.split())
