"""What a training program finds as it left it, though a policy was made or evaluated in its process."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, Final

import numpy as np

_DEPTH: Final = 4
_LONGEST: Final = 1000
"""Containers with more in them are data, such as a replay buffer, and are not searched for modules."""


@contextmanager
def preserved_rng() -> Iterator[None]:
    """Puts the global random generators of Python, numpy and torch back where they were.

    Training then draws what it would have drawn without the evaluation.

    Not for a thread beside one that draws: the other would draw the same numbers twice.
    """
    put_back = saved_rng()
    try:
        yield
    finally:
        put_back()


def saved_rng() -> Callable[[], None]:
    """Returns what puts the global random generators of Python, numpy and torch back to where they are now."""
    back = [_python(), _numpy(), *_torch()]

    def put_back() -> None:
        for one in back:
            one()

    return put_back


def _python() -> Callable[[], None]:
    state = random.getstate()
    return lambda: random.setstate(state)


def _numpy() -> Callable[[], None]:
    state = np.random.get_state()  # the very generator that others use
    return lambda: np.random.set_state(state)


def _torch() -> list[Callable[[], None]]:
    torch: Any = sys.modules.get("torch")  # never imported here; who draws from it has imported it
    if torch is None:
        return []
    cpu = torch.get_rng_state()
    back: list[Callable[[], None]] = [lambda: torch.set_rng_state(cpu)]
    if torch.cuda.is_initialized():
        cuda = torch.cuda.get_rng_state_all()
        back.append(lambda: torch.cuda.set_rng_state_all(cuda))
    if torch.backends.mps.is_available():
        mps = torch.mps.get_rng_state()
        back.append(lambda: torch.mps.set_rng_state(mps))
    return back


@contextmanager
def evaluation_mode(policy: object) -> Iterator[None]:
    """Turns off what torch modules do in training only (dropout, batch statistics), and on again what was on.

    Modules are found in the policy's attributes, in containers, and in what it wraps. Torch policies among all that
    are told whether they are in training: what their modules keep of a pass must be of use there.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None:
        yield
        return
    found = list(_within(policy))
    roots = _roots([thing for thing in found if isinstance(thing, torch.nn.Module)])
    modes = [(module, module.training) for root in roots for module in root.modules()]
    trained = any(parameter.requires_grad for root in roots for parameter in root.parameters())
    # Who has no such policy need not import their class.
    kind = getattr(sys.modules.get("sparring.policy_server.policies.torch"), "TorchPolicy", ())
    told = [thing for thing in found if trained and isinstance(thing, kind)]
    try:
        for thing in told:
            thing.in_training = True
        for root in roots:
            root.eval()
        yield
    finally:
        for thing in told:
            thing.in_training = False
        for module, training in modes:  # outer ones first, as train() goes inwards
            if module.training != training:
                module.train(training)  # not the mere flag: adapters take apart again what they merged for eval()
                module.training = training


def _roots(modules: list[Any]) -> list[Any]:
    """Returns the modules that are not parts of others."""
    parts = {id(part) for module in modules for part in module.modules() if part is not module}
    return [module for module in modules if id(module) not in parts]


def _within(policy: object) -> Iterator[Any]:
    """Yields an object and what it holds, each once: attributes, contents of containers, and what those hold."""
    seen: dict[int, Any] = {}
    waiting: deque[tuple[Any, int]] = deque([(policy, 0)])
    while waiting:
        thing, depth = waiting.popleft()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing  # held, so that nothing else gets its address
        yield thing
        if depth < _DEPTH:
            waiting.extend((inner, depth + 1) for inner in _held_by(thing))


def _held_by(thing: Any) -> list[Any]:
    if isinstance(thing, (list, tuple, set, frozenset, deque)):
        return list(thing) if len(thing) <= _LONGEST else []
    if isinstance(thing, dict):
        return list(thing.values()) if len(thing) <= _LONGEST else []
    if isinstance(thing, (type, ModuleType, FunctionType)):
        return []
    held = getattr(thing, "__dict__", None)
    return list(held.values()) if isinstance(held, dict) else []
