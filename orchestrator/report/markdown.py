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
    yield f"# {_text(content['title'])}"
    yield ""
    wholes = content["overall_by"] or [{"name": "", **content["overall"]}]
    told = "; ".join(_headline(whole, content["metric"]) for whole in wholes)
    yield f"{told}, {content['recorded']} of {content['planned']} episodes, {content['status']}."
    for whole in wholes:
        if whole["errors"] and whole["worst_case"] is not None:
            yield ""
            cases = _between(whole["worst_case"], whole["best_case"])
            yield (
                f"{whole['errors']} episodes{_by(whole)} ended in an error and are not counted: {cases} if all were "
                "failures, or successes."
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
        alike: dict[int, int] = {}  # what differs only in numbers is told once
        for error in content["errors"]:
            alike[error["alike"]] = alike.get(error["alike"], 0) + error["n"]
        told_once = [{**content["errors"][first], "n": n} for first, n in alike.items()]
        errors = sorted(told_once, key=lambda error: -error["n"])
        for error in errors[:_MOST_ERRORS]:
            yield f"| {error['n']} | {_text(error['kind'])} | {_text(error['sentence'])} |"
        if len(errors) > _MOST_ERRORS:
            yield f"| | | and {len(errors) - _MOST_ERRORS} more |"
    policy = content["policy"]
    if content["protocols"]:
        yield ""
        yield from map(_protocol, content["protocols"])
    yield ""
    if policy is not None and policy["checkpoint_sha256"]:
        yield f"checkpoint sha256 {_text(policy['checkpoint_sha256'])}"
        yield ""
    given = dict.fromkeys(execution["command"] for execution in content["executions"] if execution["command"])
    if given:
        commands = [" ".join(plain(command).split()) for command in given]
        ticks = re.findall("`+", "".join(commands))
        fence = "`" * max(3, 1 + max(map(len, ticks), default=0))  # longer than any inside
        yield from (f"{fence}sh", *commands, fence)


def _headline(whole: dict[str, Any], metric: str) -> str:
    by = _by(whole)
    if metric == "return":
        mean = whole["return"]
        return f"no return{by}" if mean is None else f"**mean return{by} {_number(mean['mean'])}**{_interval(mean)}"
    if whole["success_rate"] is None:
        return f"no success rate{by}"
    return f"**{100 * whole['success_rate']:.1f} % success{by}** (95 % interval {_between(*whole['interval'])})"


def _by(whole: dict[str, Any]) -> str:
    return f" by {_text(whole['name'])}" if whole["name"] else ""


def _protocol(protocol: dict[str, Any]) -> str:
    changed = f", but for {', '.join(protocol['changed'])}" if protocol["changed"] else ""
    said = f"{protocol['of']}: protocol {protocol['name']}@{protocol['version']}{changed}, sha256 {protocol['sha256']}"
    return f"- {_text(said)}"


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
