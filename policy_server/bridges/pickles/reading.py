"""Reads pickles by a list of what they may name; nothing is imported, and nothing of theirs is called.

A name stands for a function of ours, which gets what the pickle would have called the original with, or for a class, of
which a `Made` is made: the name and the attributes.
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sparring.policy_server.bridges.arrays import MOST_BYTES, BadMessage
from sparring.policy_server.bridges.pickles.budget import PickleBudget

Call = Callable[[Sequence[Any], PickleBudget], Any]
"""What stands for something that is called: it gets the arguments, and what the message may still take."""

_MOST_CALLS: Final = 4096
"""What is named may be called so often; a tensor takes three."""
_MOST_UNFINISHED: Final = 256
"""Things that are made first and get their content later: arrays and their types."""
_LARGEST_KEY: Final = 2**16
"""Of numbers as keys of a map; large ones can be chosen so that each new one is compared with all before it."""


class NamesTooMuch(BadMessage):
    """A pickle that names something which is on no list."""


@dataclass
class Made:
    """An object of a class that is only known by its name.

    Attributes:
        name: Module and class, with a blank between.
        state: Its attributes.
    """

    name: str
    state: dict[str, Any] = field(default_factory=dict)


class Unfinished:
    """What a pickle makes first, and gives its content later."""

    def finished(self, state: Any) -> Any:
        """Returns what it is with its content."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Named:
    name: str


class PickleReader:
    """Reads pickles.

    Args:
        calls: What each function, or class that is called, stands for, by module and name with a blank between.
        classes: Names of classes that objects may be of.
        resolve: Makes what a persistent id stands for; None: there may be none.
    """

    def __init__(
        self,
        calls: Mapping[str, Call],
        classes: frozenset[str] = frozenset(),
        resolve: Callable[[Sequence[Any]], Any] | None = None,
    ) -> None:
        self._calls = calls
        self._classes = classes
        self._resolve = resolve

    def read(self, data: bytes) -> Any:
        """Returns what a pickle stands for.

        Raises:
            NamesTooMuch: If it names what is on no list.
            BadMessage: If it is no pickle, or too long, or does what none of these does.
        """
        found, length = self.read_first(data)
        if length != len(data):
            raise BadMessage("a pickle with something after its end.")
        return found

    def read_first(self, data: bytes, at: int = 0, budget: PickleBudget | None = None) -> tuple[Any, int]:
        """Returns what the pickle that begins at a place stands for, and where it ends. Nothing is copied.

        Args:
            data: The bytes.
            at: The place.
            budget: What the message that it is a part of may still take; None: it is the message.

        Raises:
            BadMessage: As `read`.
        """
        if len(data) > MOST_BYTES:
            raise BadMessage(f"a pickle of {len(data)} bytes; at most {MOST_BYTES} are read.")
        machine = _Machine(self._calls, self._classes, self._resolve, budget or PickleBudget(_parts))
        try:
            return machine.run(data, at)
        except BadMessage:
            raise
        except Exception as error:  # of bytes that somebody made up
            what = f"{type(error).__name__}{f': {error}' if str(error) else ''}"
            raise BadMessage(f"what is no pickle of this wire ({what[:200]}).") from error


class _Machine:
    """The stack and the memory of one pickle."""

    def __init__(
        self,
        calls: Mapping[str, Call],
        classes: frozenset[str],
        resolve: Callable[[Sequence[Any]], Any] | None,
        budget: PickleBudget,
    ) -> None:
        self._calls = calls
        self._classes = classes
        self._resolve = resolve
        self._budget = budget
        self._stack: list[Any] = []
        self._marks: list[int] = []
        """Where lists, tuples and maps of any length begin on the stack."""
        self._memo: dict[int, Any] = {}
        self._places: dict[int, tuple[Unfinished, list[int]]] = {}
        """Where in the memory things are that have no content yet, by their identity."""
        self._unfinished = self._called = 0

    def run(self, data: bytes, at: int) -> tuple[Any, int]:
        before = at
        for op, argument, position in _operations(data, at):
            self._budget.take(1, read=position - before)
            before = position
            if op.name == "STOP":
                (found,) = self._stack
                self._budget.take_whole(found)
                return found, position + 1
            if op.name in _VALUES:
                self._stack.append(argument)
            elif op.name in _CONSTANTS:
                self._stack.append(_CONSTANTS[op.name]())
            elif op.name not in _IGNORED:
                step = getattr(self, f"_{op.name.lower()}", None)
                if step is None:
                    raise BadMessage(f"a pickle with a step that none of this wire has: {op.name}.")
                step(argument)
        raise BadMessage("a pickle without an end.")

    def _mark(self, _: Any) -> None:
        self._marks.append(len(self._stack))

    def _to_mark(self) -> list[Any]:
        at = self._marks.pop()
        found = self._stack[at:]
        del self._stack[at:]
        return found

    def _append(self, _: Any) -> None:
        item = self._stack.pop()
        _checked(self._stack[-1], list).append(item)

    def _appends(self, _: Any) -> None:
        items = self._to_mark()
        _checked(self._stack[-1], list).extend(items)

    def _setitem(self, _: Any) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        _checked(self._stack[-1], dict)[_key(key)] = value

    def _setitems(self, _: Any) -> None:
        items = self._to_mark()
        target = _checked(self._stack[-1], dict)
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[_key(key)] = value

    def _tuple(self, _: Any) -> None:
        self._stack.append(tuple(self._to_mark()))

    def _tuple1(self, _: Any) -> None:
        self._last(1)

    def _tuple2(self, _: Any) -> None:
        self._last(2)

    def _tuple3(self, _: Any) -> None:
        self._last(3)

    def _last(self, count: int) -> None:
        if len(self._stack) < count:
            raise ValueError("a tuple of more than there is")
        self._stack[-count:] = [tuple(self._stack[-count:])]

    def _memoize(self, _: Any) -> None:
        self._binput(len(self._memo))

    def _binput(self, where: int) -> None:
        self._memo[where] = kept = self._stack[-1]
        if isinstance(kept, Unfinished):
            self._places.setdefault(id(kept), (kept, []))[1].append(where)

    _long_binput = _put = _binput

    def _binget(self, where: int) -> None:
        self._stack.append(self._memo[where])

    _long_binget = _get = _binget

    def _global(self, name: str) -> None:
        if name not in self._calls and name not in self._classes:
            raise NamesTooMuch(
                f"a pickle that names {name.replace(' ', '.')[:100]!r}, which nothing of this wire needs: somebody "
                "may want to have code run here. Nothing of it was."
            )
        self._stack.append(_Named(name))

    def _stack_global(self, _: Any) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._global(f"{_checked(module, str)} {_checked(name, str)}")

    def _reduce(self, _: Any) -> None:
        arguments, named = self._stack.pop(), self._stack.pop()
        call = self._calls.get(_checked(named, _Named).name)
        if call is None:
            raise BadMessage(f"a pickle that calls {named.name[:100]!r}.")
        self._called += 1
        if self._called > _MOST_CALLS:
            raise BadMessage(f"a pickle with more than {_MOST_CALLS} calls.")
        self._budget.take_whole(_checked(arguments, tuple))
        self._stack.append(call(arguments, self._budget))

    def _newobj(self, _: Any) -> None:
        arguments, named = self._stack.pop(), self._stack.pop()
        name = _checked(named, _Named).name
        if name not in self._classes or arguments != ():
            raise BadMessage(f"a pickle that makes an object of {name[:100]!r}.")
        self._stack.append(Made(name))

    def _build(self, _: Any) -> None:
        state, target = self._stack.pop(), self._stack[-1]
        if isinstance(target, Made):
            self._budget.take(len(_checked(state, dict)))
            target.state.update(state)
            return
        self._unfinished += 1
        if self._unfinished > _MOST_UNFINISHED:
            raise BadMessage(f"a pickle with more than {_MOST_UNFINISHED} arrays.")
        self._budget.take_whole(state)
        finished = _checked(target, Unfinished).finished(state)
        self._stack[-1] = finished
        for where in self._places.pop(id(target), (target, []))[1]:
            if self._memo[where] is target:
                self._memo[where] = finished

    def _binpersid(self, _: Any) -> None:
        if self._resolve is None:
            raise BadMessage("a pickle with a persistent id.")
        identity = _checked(self._stack.pop(), tuple)
        self._budget.take_whole(identity)
        self._stack.append(self._resolve(identity))


_VALUES: Final = frozenset(
    [
        *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
        *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    ]
)
_CONSTANTS: Final[Mapping[str, Callable[[], Any]]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}
_IGNORED: Final = frozenset(["PROTO", "FRAME"])


def _operations(data: bytes, at: int) -> Iterator[tuple[Any, Any, int]]:
    file = io.BytesIO(data)
    file.seek(at)
    for op, argument, position in pickletools.genops(file):
        assert position is not None, "as for files that can be sought in"
        yield op, argument, position


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind and not (isinstance(value, kind) and issubclass(kind, Unfinished)):
        raise ValueError(f"{type(value).__name__}, where {kind.__name__} was due")
    return value


def _key(value: Any) -> Any:
    """Returns a key of a map; others than these can take forever to be hashed."""
    if type(value) not in (str, int):
        raise ValueError(f"a key of the type {type(value).__name__}")
    if isinstance(value, int) and not 0 <= value < _LARGEST_KEY:
        raise ValueError("a large number as a key")
    return value


def _parts(value: Any) -> Collection[Any]:
    """Returns what is in a thing that was read; keys of maps are text and small numbers."""
    if isinstance(value, (list, tuple)):
        return value
    found = value.state if isinstance(value, Made) else value
    return found.values() if isinstance(found, dict) else ()
