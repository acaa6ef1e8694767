"""The committed stubs, and the style of the .proto files that they come from."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from requirements import skip_or_fail

from sparring.protos.generate import HERE, SOURCES, generate

skip_or_fail(["protoc"], module=True)  # tests are made for what it finds in the files

from grpc_tools import protoc  # noqa: E402

COMMITTED = sorted(HERE.glob("*_pb2*"))
PROTOS = sorted((SOURCES / "sparring" / "protos").glob("*.proto"))


@pytest.fixture
def tools_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


@pytest.mark.usefixtures("tools_on_path")
def test_committed_stubs_are_what_the_proto_files_say(tmp_path: Path) -> None:
    fresh = generate(tmp_path)
    assert [path.name for path in fresh] == [path.name for path in COMMITTED]
    stale = [new.name for new, old in zip(fresh, COMMITTED, strict=True) if new.read_bytes() != old.read_bytes()]
    assert not stale, "run: make protos"


@pytest.mark.parametrize("path", [p for p in COMMITTED if p.suffix == ".py"], ids=lambda p: p.name)
def test_stubs_do_not_demand_a_new_runtime(path: Path) -> None:
    text = path.read_text()
    for demand in ("runtime_version", "GRPC_GENERATED_VERSION", "_registered_method"):
        assert demand not in text


def described() -> Iterator[FileDescriptorProto]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "set"
        names = [str(path.relative_to(SOURCES)) for path in PROTOS]
        assert (
            protoc.main(["protoc", f"-I{SOURCES}", "--include_source_info", f"--descriptor_set_out={target}", *names])
            == 0
        )
        yield from FileDescriptorSet.FromString(target.read_bytes()).file


FILES = list(described())
PARAMETERS = pytest.mark.parametrize("file", FILES, ids=lambda file: Path(file.name).name)

MESSAGE, ENUM, SERVICE = 4, 5, 6
FIELD, VALUE, METHOD = 2, 2, 2


def comments(file: FileDescriptorProto) -> dict[tuple[int, ...], str]:
    return {
        tuple(place.path): (place.leading_comments + place.trailing_comments).strip()
        for place in file.source_code_info.location
    }


def all_messages(file: FileDescriptorProto) -> Iterator[tuple[tuple[int, ...], DescriptorProto]]:
    for index, message in enumerate(file.message_type):
        yield (MESSAGE, index), message
        assert not [nested for nested in message.nested_type if not nested.options.map_entry], "nest no messages"


def is_arm(field: FieldDescriptorProto) -> bool:
    """One of a oneof's messages: its comment stands at the message itself."""
    return field.HasField("oneof_index") and field.type == FieldDescriptorProto.TYPE_MESSAGE


@PARAMETERS
def test_every_field_has_a_comment(file: FileDescriptorProto) -> None:
    said = comments(file)
    silent = [
        f"{message.name}.{field.name}"
        for path, message in all_messages(file)
        for index, field in enumerate(message.field)
        if not is_arm(field) and not said.get((*path, FIELD, index))
    ]
    assert not silent


@PARAMETERS
def test_every_message_with_a_meaning_has_a_comment(file: FileDescriptorProto) -> None:
    """Empty ones, and ones that are a choice of others and nothing more, explain themselves."""
    said = comments(file)
    silent = [
        message.name
        for path, message in all_messages(file)
        if not all(is_arm(field) for field in message.field) and not said.get(path)
    ]
    assert not silent


@PARAMETERS
def test_every_enum_has_a_comment_and_begins_with_unspecified(file: FileDescriptorProto) -> None:
    said = comments(file)
    for index, enum in enumerate(file.enum_type):
        assert said.get((ENUM, index)), f"{enum.name} has no comment"
        first = enum.value[0]
        assert first.number == 0
        prefix = first.name.removesuffix("_UNSPECIFIED")
        assert prefix != first.name, f"{enum.name} begins with {first.name}"
        assert all(value.name.startswith(f"{prefix}_") for value in enum.value)


@PARAMETERS
def test_every_method_has_a_comment(file: FileDescriptorProto) -> None:
    said = comments(file)
    for index, service in enumerate(file.service):
        for number, method in enumerate(service.method):
            assert said.get((SERVICE, index, METHOD, number)), f"{service.name}.{method.name} has no comment"


@PARAMETERS
def test_packages_are_versioned(file: FileDescriptorProto) -> None:
    room = Path(file.name).stem
    assert file.package == f"sparring.{room}.v1"
    assert file.syntax == "proto3"
