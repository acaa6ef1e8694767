"""Plain dataclasses as messages and back: a field of the one is written to its namesake in the other."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

Writer = Callable[[Any, Any], None]
Reader = Callable[[Any], Any]


def codecs(kind: type[Any], message: Descriptor) -> Mapping[str, tuple[Writer, Reader]]:
    """Returns how each field of a dataclass is written to a message, and read from one.

    Raises:
        KeyError: If the message lacks a field of that name.
    """
    return {field.name: _codec(message.fields_by_name[field.name]) for field in fields(kind)}


def _codec(place: FieldDescriptor) -> tuple[Writer, Reader]:
    name = place.name
    if place.enum_type is not None:
        words = _words(place.enum_type)
        numbers = {word: number for number, word in words.items()}
        return (
            lambda message, word: setattr(message, name, numbers[word]),
            # A number that a later release sends means as little as none.
            lambda message: words.get(getattr(message, name), ""),
        )
    if place.message_type is not None:  # a map
        return (
            lambda message, values: getattr(message, name).update(values),
            lambda message: dict(getattr(message, name)),
        )
    return lambda message, value: setattr(message, name, value), lambda message: getattr(message, name)


def _words(enum: EnumDescriptor) -> dict[int, str]:
    """Returns the values of an enum as words: OBSERVE_ON_DEMAND is "on-demand", and unspecified the empty one."""
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
    words = {value.number: value.name.removeprefix(prefix).lower().replace("_", "-") for value in enum.values}
    return {**words, 0: ""}
