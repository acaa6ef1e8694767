"""The reference of the protocols, from the comments of the .proto files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tables import code, prose, table

_INTRODUCTION = """# Protocols

Two gRPC services: a slot asks a policy what to do, and a worker asks the orchestrator for episodes. This page is made
from the comments in `protos/`. `sparring check policy-server HOST:PORT` holds a server of yours against the first.
"""

_RULER: Final = re.compile(r"^//\s*-{5,}.*$")
_OPEN: Final = re.compile(r"^\s*(message|enum|service|oneof)\s+(\w+)\s*\{(\s*\})?")
_MEMBER: Final = re.compile(r"^\s*((?:repeated |optional )?[\w.]+(?:<[^>]+>)?)\s+(\w+)\s*=\s*(\d+)\s*;")
_VALUE: Final = re.compile(r"^\s*(\w+)\s*=\s*(\d+)\s*;")
_RPC: Final = re.compile(r"^\s*rpc\s+(\w+)\s*\((.+?)\)\s*returns\s*\((.+?)\)\s*[;{]")


@dataclass
class Member:
    """A field, a value or a call.

    Attributes:
        name: Of it.
        kind: Type of a field; what a call takes and returns; empty for a value.
        number: On the wire; empty for a call.
        said: Its comment.
        choice: The `oneof` that it is part of.
    """

    name: str
    kind: str
    number: str
    said: str
    choice: str = ""


@dataclass
class Definition:
    """A message, an enum or a service."""

    kind: str
    name: str
    said: str
    members: list[Member] = field(default_factory=list)


@dataclass
class Proto:
    """A .proto file: what it says first, its package, and its definitions."""

    said: str
    package: str
    definitions: list[Definition]


def protos_page(paths: Sequence[Path]) -> str:
    """Returns the page."""
    parts = [_INTRODUCTION]
    for proto in map(read, paths):
        parts += [f"## {proto.package}", _introduction(proto.said)]
        for definition in proto.definitions:
            parts += _part(definition)
    return "\n\n".join(parts) + "\n"


def _introduction(comment: str) -> str:
    """The comment at the top of a file as Markdown: paragraphs, lists of rules, and tables of codes."""
    parts = []
    for part in re.split(r"\n\s*\n", comment):
        if re.match(r" +\d+\. ", part):
            rules = [" ".join(rule.split()) for rule in re.split(r"\n(?= +\d+\. )", part)]
            parts.append("\n".join(re.sub(r"^(\d+)\. ", r"- **\1.** ", prose(rule)) for rule in rules))
        elif codes := re.findall(r"^ {2}([A-Z_]+) +(.+(?:\n {6,}.+)*)", part, re.MULTILINE):
            parts.append(
                table(("status", "meaning"), [(code(name), prose(" ".join(said.split()))) for name, said in codes])
            )
        else:
            parts.append(prose(" ".join(part.split())))
    return "\n\n".join(parts)


def _part(definition: Definition) -> Iterator[str]:
    yield f"### {definition.name}\n\n*{definition.kind}*"
    if definition.said:
        yield prose(definition.said)
    if not definition.members:
        yield "It is empty."
        return
    match definition.kind:
        case "service":
            yield table(
                ("call", "takes and returns", "meaning"),
                [(code(m.name), code(m.kind), prose(m.said)) for m in definition.members],
            )
        case "enum":
            yield table(
                ("value", "number", "meaning"), [(code(m.name), m.number, prose(m.said)) for m in definition.members]
            )
        case _:
            rows = [
                (
                    code(m.name),
                    code(m.kind),
                    m.number,
                    prose(f"one of {m.choice}: {m.said}" if m.choice else m.said).rstrip(": "),
                )
                for m in definition.members
            ]
            yield table(("field", "type", "number", "meaning"), rows)


def read(path: Path) -> Proto:
    """Reads a .proto file; comments stand above what they are about, or behind it and on the lines below."""
    lines = path.read_text().splitlines()
    said, package = "", ""
    definitions: list[Definition] = []
    above: list[str] = []
    choice, last = "", None
    inside: list[str] = []
    for line in lines:
        before, _, comment = line.partition("//")
        comment = comment.removeprefix(" ").rstrip()
        if not before.strip():
            if not line.strip():
                above, last = [], None
            elif _RULER.match(line.strip()):
                above = []
            elif last is not None and len(before) > 8:  # it goes on below the comment behind a field
                last.said = f"{last.said} {comment}"
            else:
                above.append(comment)
            continue
        last = None
        if line.startswith("syntax"):
            said = _first(lines)
        elif found := re.match(r"package ([\w.]+);", line):
            package = found[1]
        elif found := _OPEN.match(before):
            kind, name, empty = found.groups()
            if kind == "oneof":
                choice = name
            else:
                definitions.append(Definition(kind, name, " ".join(above)))
            if not empty:
                inside.append(kind)
        elif before.strip().startswith("}"):
            if inside.pop() == "oneof":
                choice = ""
        elif found := _RPC.match(before):
            takes, returns = found[2], found[3]
            definitions[-1].members.append(
                Member(found[1], f"{takes} → {returns}", "", " ".join([*above, comment]).strip())
            )
        elif not before.strip().startswith(("reserved ", "option ", "import ")):
            found = _MEMBER.match(before) or _VALUE.match(before)
            if found is None:
                raise ValueError(f"{path}: {line!r} is not understood")
            kind, name, number = found.groups() if len(found.groups()) == 3 else ("", *found.groups())
            last = Member(name, kind, number, " ".join([*above, comment]).strip(), choice)
            definitions[-1].members.append(last)
        above = []
    return Proto(said, package, definitions)


def _first(lines: Sequence[str]) -> str:
    """The comment at the top of the file."""
    top = []
    for line in lines:
        if not line.startswith("//"):
            break
        top.append(line.removeprefix("//").removeprefix(" "))
    return "\n".join(top)
