"""What a network carries beside its weights: taken out of it, put back into it, and made anew for every session."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

Kept = Mapping[Any, Mapping[str, Any]]
"""By module: its plain attributes, and its buffers by the key of `_BUFFERS`."""

_BUFFERS: Final = "_buffers"
_NETWORK: Final = frozenset(vars(torch.nn.Module())) | {"_is_hf_initialized", "_compiled_call_impl"}
"""What torch itself keeps on every module: parameters, submodules, hooks, the mode."""
_SHARED_KINDS: Final = frozenset({"PreTrainedConfig", "PretrainedConfig", "PreTrainedTokenizerBase", "ProcessorMixin"})
"""Classes, by name, of LeRobot's and transformers' objects that are large or many, and remember nothing."""
_DEPTH: Final = 4


class ModuleState:
    """All that a network keeps on its modules, at any depth, except for weights.

    One network does the work of many sessions: before a row, what its session kept is put into it; after the row, it is
    taken out. A new session gets copies of what the network had when it was loaded. Networks that plain
    attributes hold (loaded when the policy is first called) are weights, too, and are shared.

    Args:
        network: As it was loaded, before it is called for the first time.
    """

    def __init__(self, network: Any) -> None:
        self._network = network
        self._elsewhere: dict[Any, None] = {}
        """Modules that are not registered as parts of the network; a dict, for its order."""
        self._find_elsewhere()
        self.shared: list[str] = []
        """What could not be copied, such as a lock, and is the same object in all sessions."""
        self._as_loaded = self._copied({module: _own(module) for module in self._modules()})

    def fresh(self) -> None:
        """Makes the network what it was when it was loaded, with objects of its own."""
        self.put(self._copied(self._as_loaded))

    def put(self, kept: Kept) -> None:
        """Makes the network remember what was kept, and nothing else."""
        for module in self._modules():
            if module not in kept:
                continue  # loaded after this was kept: it has what it was loaded with
            attributes = dict(kept[module])
            for name in [name for name in vars(module) if name not in _NETWORK and name not in attributes]:
                del vars(module)[name]
            module._buffers.clear()
            module._buffers.update(attributes.pop(_BUFFERS))
            vars(module).update(attributes)

    def take(self) -> Kept:
        """Returns what the network remembers now. It stays as it is if something else is put next."""
        self.adopt()
        return {module: _own(module) for module in self._modules()}

    def adopt(self) -> None:
        """Lets every session to come have the networks that were loaded while the policy was at work."""
        known = len(self._elsewhere)
        self._find_elsewhere()
        if len(self._elsewhere) == known:
            return
        loaded = {
            n: v for n, v in _own(self._network).items() if n != _BUFFERS and next(_networks(v), None) is not None
        }
        self._as_loaded[self._network] |= self._copied({self._network: loaded})[self._network]
        for module in self._modules():
            if module not in self._as_loaded:
                self._as_loaded |= self._copied({module: _own(module)})

    def _find_elsewhere(self) -> None:
        registered = set(self._network.modules())
        for name, value in vars(self._network).items():
            if name not in _NETWORK:
                found = dict.fromkeys(m for network in _networks(value) for m in network.modules())
                self._elsewhere |= {module: None for module in found if module not in registered}

    def _modules(self) -> list[Any]:
        return [*self._network.modules(), *self._elsewhere]

    def _copied(self, state: Kept) -> dict[Any, dict[str, Any]]:
        # One memo for all of them: what two modules share, two modules of a session share.
        memo: dict[int, Any] = {}
        for module in self._modules():
            memo[id(module)] = module
            memo |= {id(parameter): parameter for parameter in module._parameters.values()}
        copies: dict[Any, dict[str, Any]] = {}
        for module, attributes in state.items():
            copies[module] = {}
            for name, value in attributes.items():
                try:
                    copies[module][name] = value if _is_shared(value) else copy.deepcopy(value, memo)
                except Exception:  # noqa: BLE001  # locks, handles of libraries: anything may refuse
                    copies[module][name] = value
                    if (where := f"{type(module).__name__}.{name}") not in self.shared:
                        self.shared.append(where)
        return copies


class Changes:
    """Notices which attributes of an object are changed while it works, in place or by assignment."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._before = {name: _content(value) for name, value in _own(module).items()}

    def names(self) -> set[str]:
        """Returns the attributes that are not what they were. Those that hold networks are no memory, and left out."""
        now = {
            name: _content(value) for name, value in _own(self._module).items() if next(_networks(value), None) is None
        }
        return {name for name, content in now.items() if self._before.get(name) != content}


def _own(module: Any) -> dict[str, Any]:
    attributes = {name: value for name, value in vars(module).items() if name not in _NETWORK}
    return {**attributes, _BUFFERS: dict(module._buffers)}


def _is_shared(value: Any) -> bool:
    return any(kind.__name__ in _SHARED_KINDS for kind in type(value).__mro__)


def _content(value: Any, depth: int = _DEPTH) -> Any:
    """Returns something that differs when a value is another, or has other things in it, and keeps those alive."""
    if depth and isinstance(value, dict):
        return [(key, _content(inner, depth - 1)) for key, inner in value.items()]
    if depth and isinstance(value, (list, tuple, deque)):
        return [_content(inner, depth - 1) for inner in value]
    if depth and _is_plain_object(value):
        return [_Same(value), _content(vars(value), depth - 1)]
    return _Same(value)


def _is_plain_object(value: Any) -> bool:
    if isinstance(value, (torch.nn.Module, torch.Tensor, type)) or _is_shared(value):
        return False
    return isinstance(getattr(value, "__dict__", None), dict)


class _Same:
    """Equal to another one of the same object, and while it is there nothing else can have that object's address."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same):
            return False
        plain = isinstance(self.value, (bool, int, float, str)) and type(self.value) is type(other.value)
        return bool(self.value == other.value) if plain else self.value is other.value

    __hash__ = None  # type: ignore[assignment]


def _networks(value: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """Returns the modules in a value: itself, in containers, or as attributes of plain objects."""
    if isinstance(value, torch.nn.Module):
        yield value
    elif depth and not isinstance(value, torch.Tensor):
        inner: Any = ()
        if isinstance(value, dict):
            inner = value.values()
        elif isinstance(value, (list, tuple, set, deque)):
            inner = value
        elif _is_plain_object(value):
            inner = vars(value).values()
        for one in list(inner):
            yield from _networks(one, depth - 1)
