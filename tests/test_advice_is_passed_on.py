"""Who passes one of our errors on passes its sentence on, with its hints: in `str()` they are in Python's words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from rooms import ROOMS, code_files, tree_of
from support import ROOT


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: tree_of(path.read_text()) for path in code_files()}


@cache
def our_errors() -> frozenset[str]:
    """Names of SparringError and of all that derive from it."""
    classes = [node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    bases = [(node.name, {ast.unparse(base).rpartition(".")[2] for base in node.bases}) for node in classes]
    known, before = {"SparringError"}, 0
    while len(known) > before:
        before = len(known)
        known |= {name for name, of in bases if known & of}
    return frozenset(known)


def rendered(tree: ast.AST) -> Iterator[str]:
    """Places where an error of ours that was caught becomes text that is rendered."""
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None or handler.type is None:
            continue
        caught = {n.id if isinstance(n, ast.Name) else getattr(n, "attr", "") for n in ast.walk(handler.type)}
        ours = bool(caught & our_errors())
        text = ast.unparse(handler)
        asked = any(f"isinstance({handler.name}, {name})" in text for name in our_errors())
        if not ours and not asked:
            continue
        for node in (inner for statement in handler.body for inner in ast.walk(statement)):
            if ours and isinstance(node, ast.FormattedValue) and ast.unparse(node.value) == handler.name:
                yield f"line {node.lineno}: {{{handler.name}}}"
            if (ours or asked) and ast.unparse(node) == f"str({handler.name})":
                yield f"line {node.lineno}: str({handler.name})"


FLAG = re.compile(r"(?<![\w`=-])--[a-z][a-z-]+")
COMMAND = re.compile(r"(sparring|python|pip|docker|srun|systemctl) [^`;)]*$")
"""Of what can be typed as it stands, with its flags: anybody may be told that, whatever they use."""


def flags_in_errors(tree: ast.AST) -> Iterator[str]:
    """Places where an error that is raised names a flag, which not everybody has who reads it."""
    for error in (node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None):
        texts = [node for node in ast.walk(error) if isinstance(node, ast.JoinedStr)]
        inside = {id(part) for text in texts for part in text.values}
        alone = [n for n in ast.walk(error) if isinstance(n, ast.Constant) and id(n) not in inside]
        said = ["".join(v.value if isinstance(v, ast.Constant) else "X" for v in text.values) for text in texts]
        for sentence in (*said, *(constant.value for constant in alone if isinstance(constant.value, str))):
            for flag in FLAG.finditer(sentence):
                if not COMMAND.search(sentence[: flag.start()]):
                    yield f"line {error.lineno}: {flag[0]}"


@pytest.mark.parametrize("room", ROOMS)
def test_errors_of_the_lower_rooms_name_settings_and_no_flags(room: str) -> None:
    """But for those of programs, which have the flags that they name."""
    programs = [
        path for path in trees() if path.is_relative_to(ROOT / "orchestrator" / "cli") or "__main__" in path.stem
    ]
    own = {path: tree for path, tree in trees().items() if path.is_relative_to(ROOT / room) and path not in programs}
    found = [f"{path}, {place}" for path, tree in own.items() for place in flags_in_errors(tree)]
    assert not found, "use Hint('setting'): the command says flags, evaluate() says keyword arguments"


def test_the_check_sees_a_flag() -> None:
    assert list(flags_in_errors(ast.parse("raise UsageError(f'give {x} another with --listen.')")))
    assert list(flags_in_errors(ast.parse("raise UsageError('leave out --embed')")))
    assert not list(flags_in_errors(ast.parse("raise UsageError(f'start it: `sparring serve --listen {x}`')")))
    assert not list(flags_in_errors(ast.parse("log.info('more with --listen')")))


def test_our_errors_are_known() -> None:
    assert {"UsageError", "SpecMismatch", "PolicyDenied", "RunStopped", "LaunchFailed"} <= our_errors()
    assert "StreamEnded" not in our_errors()


@pytest.mark.parametrize("room", ROOMS)
def test_errors_are_passed_on_with_their_hints(room: str) -> None:
    own = {path: tree for path, tree in trees().items() if path.is_relative_to(ROOT / room)}
    found = [f"{path}, {place}" for path, tree in own.items() for place in rendered(tree)]
    assert not found, "use .sentence to pass an error on, or .told(dialect) to show it"


@pytest.mark.parametrize(
    "wrong",
    [
        "try: f()\nexcept UsageError as e:\n    raise RunStopped(str(e)) from e",
        "try: f()\nexcept (OSError, errors.PolicyRefused) as e:\n    say(f'at last: {e}')",
        "try: f()\nexcept Exception as e:\n    return str(e) if isinstance(e, SparringError) else repr(e)",
    ],
)
def test_the_check_sees_text_that_is_rendered_too_early(wrong: str) -> None:
    assert list(rendered(ast.parse(wrong)))


@pytest.mark.parametrize(
    "right",
    [
        "try: f()\nexcept UsageError as e:\n    raise RunStopped(e.sentence) from e",
        "try: f()\nexcept UsageError as e:\n    say(e.told(FLAGS))",
        "try: f()\nexcept OSError as e:\n    say(f'{e}')",
    ],
)
def test_the_check_leaves_others_alone(right: str) -> None:
    assert not list(rendered(ast.parse(right)))
