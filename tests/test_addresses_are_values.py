"""An address is parsed by protos/net/address.py; nobody else cuts such text, or glues it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rooms import ROOMS, code_files, tree_of
from support import ROOT

# Text that looks like an address to this check, and is none.
EXCEPTIONS = {
    ROOT / "protos" / "net" / "address.py": "the one place",
    ROOT / "env_worker" / "hub.py": "the address of a web server",
    ROOT / "env_worker" / "benchmarks" / "_gym" / "registration.py": "module:Environment-v0",
    ROOT / "policy_server" / "bridges" / "wires.py": "which addresses are of foreign servers",
    ROOT / "policy_server" / "policies" / "_lerobot" / "inspection.py": "web addresses in a checkpoint's configuration",
    ROOT / "orchestrator" / "trackers" / "secrets.py": "a secret in any URL",
    ROOT / "orchestrator" / "launchers" / "ray" / "cluster.py": "a scheme of Ray's own, which is refused",
}

CUTTERS = {"partition", "rpartition", "split", "rsplit", "startswith", "removeprefix", "removesuffix", "find", "strip"}
PATTERNS = {"compile", "match", "fullmatch", "search", "sub", "split", "findall", "finditer"}
SCHEME = re.compile(r"(unix|unix-abstract|tls|tcp|dns):|://")


def takes_apart(method: ast.Attribute) -> bool:
    return method.attr in (PATTERNS if ast.unparse(method.value) == "re" else CUTTERS)


def cuts(source: str) -> Iterator[str]:
    """Places where an address is taken apart, or put together, as text."""
    for node in ast.walk(tree_of(source)):
        texts: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and takes_apart(node.func):
            texts = [*node.args[:1]]
            cut = [text.value for text in texts if isinstance(text, ast.Constant)]
            if (node.func.attr in ("rpartition", "rsplit") and cut == [":"]) or cut == ["[]"]:
                yield f"line {node.lineno}: {ast.unparse(node)}"
                continue
        elif isinstance(node, ast.Compare) and any(isinstance(operator, ast.In) for operator in node.ops):
            texts = [node.left]
        elif isinstance(node, ast.JoinedStr):
            # "unix://{path}" is glue; a scheme in the middle of a sentence is advice.
            texts = node.values[:1] if len(node.values) > 1 else []
            ends = [t for t in texts if isinstance(t, ast.Constant) and re.search(r"(^|\s)\w+:(//)?$", str(t.value))]
            texts = [text for text in ends if SCHEME.search(str(text.value))]
        constants = [inner.value for text in texts for inner in ast.walk(text) if isinstance(inner, ast.Constant)]
        if any(isinstance(value, str) and SCHEME.search(value) for value in constants):
            yield f"line {node.lineno}: {ast.unparse(node)}"


@pytest.mark.parametrize("room", ROOMS)
def test_no_address_is_cut_as_text(room: str) -> None:
    for path in code_files():
        if path.is_relative_to(ROOT / room) and path not in EXCEPTIONS:
            assert not list(cuts(path.read_text())), f"{path}: use sparring.protos.net.address"


@pytest.mark.parametrize(
    "wrong",
    [
        'host, _, port = address.rpartition(":")',
        'address.rsplit(":", 1)',
        'if address.startswith("unix:"): pass',
        'if address.startswith(("tls://", "unix:")): pass',
        'path = address.removeprefix("unix://")',
        'host.strip("[]")',
        'if "://" in address: pass',
        'address = f"unix://{path}"',
        'scheme = address.split("://")[0]',
        'if re.match(r"(?!grpc|tcp|unix)[a-z]+://", address): pass',
        'SCHEME = re.compile(rf"({names})://.*")',
    ],
)
def test_the_check_sees_cutting(wrong: str) -> None:
    assert list(cuts(wrong))


@pytest.mark.parametrize("right", ['f"at {address}"', 'kind, _, number = name.partition(":")', 'f"{a}, or tls://HOST"'])
def test_the_check_leaves_others_alone(right: str) -> None:
    assert not list(cuts(right))


def test_exceptions_are_needed() -> None:
    for path in EXCEPTIONS:
        if path.exists():  # the downloader may go
            assert list(cuts(Path(path).read_text())), f"{path} needs no exception any more"
