"""Keeps libraries from running code that comes with weights and tokenizers, for as long as a checkpoint is in use.

LeRobot passes `trust_remote_code=True` on in many places, for names that a checkpoint may choose: what such a
repository holds is Python code that transformers would fetch and run. Nothing of that can be seen in the checkpoint,
so it is stopped where it would happen, at the few functions through which every such import goes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError

_DOORS: Final = (
    # What brings a module from a repository, and what runs it: either may be called with what the other left behind.
    ("transformers.dynamic_module_utils", "get_cached_module_file"),
    ("transformers.dynamic_module_utils", "get_class_in_module"),
    ("diffusers.utils.dynamic_modules_utils", "get_cached_module_file"),
    ("diffusers.utils.dynamic_modules_utils", "get_class_in_module"),
    ("transformers.integrations.hub_kernels", "get_kernel"),
    ("kernels", "get_kernel"),
)
_IMPORTERS: Final = ("lerobot.processor.pipeline", "peft.tuners.lora.tp_layer", "peft.auto")
"""Modules that import whatever module a file names: the class of a step, what an adapter was made with."""
_MODULES: Final = frozenset({*_IMPORTERS, *(name for name, _ in _DOORS)})
_ASKS: Final = ("transformers.dynamic_module_utils", "TIME_OUT_REMOTE_CODE")
"""How many seconds transformers waits for somebody at the terminal to say whether code may be run; 0: it never asks."""
_NAMING: Final = (
    "f",
    "class_name",
    "module_path",
    "pretrained_model_name_or_path",
    "module_file",
    "repo_id",
    "kernel_name",
)


class CodeGuard:
    """Refuses the code of others while it is entered; where they are trusted, says what is run.

    It holds for the whole process, so threads that a library starts are included; where several policies are in use at
    once, the least trusting one decides.

    Args:
        trust: Whether code may be run.
        told: Is told of each piece of code that is run, once.
    """

    def __init__(self, *, trust: bool, told: Callable[[str], None]) -> None:
        self.trust = trust
        self._told = told
        self._seen: set[str] = set()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Guards what happens inside.

        Raises:
            UsageError: If code was about to be run; even if what asked for it has gone on without.
        """
        refused: list[str] = []
        with _entered(self, refused):
            try:
                yield
            except Exception as error:
                if refused:  # which a library may have put into words of its own
                    raise _refusal(refused[0]) from error
                raise
        if refused:
            raise _refusal(refused[0])

    def announce(self, code: str) -> None:
        """Says that some code is run."""
        if code not in self._seen:
            self._seen.add(code)
            self._told(f"{code} is run, because the checkpoint is trusted.")


_lock: Final = threading.RLock()
_active: Final[list[tuple[CodeGuard, list[str]]]] = []
_usual: Final[dict[str, Any]] = {}


@contextlib.contextmanager
def _entered(guard: CodeGuard, refused: list[str]) -> Iterator[None]:
    entry = (guard, refused)
    with _lock:
        _close_doors()
        _active.append(entry)
        _ask(never=True)
    try:
        yield
    finally:
        with _lock:
            _active[:] = [other for other in _active if other is not entry]
            _ask(never=bool(_active))


def _trusting() -> bool:
    return all(guard.trust for guard, _ in _active)


def _refusal(code: str) -> UsageError:
    return UsageError(
        f"the checkpoint needs {code} to be run, and nothing that comes with a checkpoint is. If you trust whoever "
        f"made it as you trust your own code, say {Hint('policy_arg', 'trust', True)} (docs/lerobot.md)."
    )


def _pass(code: str) -> None:
    """Lets code be run, says that it is, or raises: as the guards that are entered want it."""
    with _lock:
        guards = list(_active)
    for guard, refused in guards:
        if not guard.trust:
            refused.append(code)
            raise _refusal(code)
    for guard, _ in guards:
        guard.announce(code)


def _close_doors() -> None:
    """Puts a guard in front of each function, once in the life of a process; while none is entered, all is as ever."""
    if not any(isinstance(finder, _Doorkeeper) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Doorkeeper())
    for name in _MODULES:
        if (module := sys.modules.get(name)) is not None:
            _close_doors_of(module)
    import torch

    if not hasattr(torch.load, "guarded_by_sparring"):
        torch.load = _only_weights(torch.load)


def _close_doors_of(module: ModuleType) -> None:
    for name, function in _DOORS:
        original = getattr(module, function, None) if module.__name__ == name else None
        if original is not None and not hasattr(original, "guarded_by_sparring"):
            setattr(module, function, _guarded(original))
    if module.__name__ in _IMPORTERS and getattr(module, "importlib", None) is importlib:
        module.importlib = _Imports()  # type: ignore[attr-defined]


class _Doorkeeper(MetaPathFinder):
    """Closes doors the moment their modules are imported: many a checkpoint never needs them, and they take seconds."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name not in _MODULES:
            return None
        others = [finder for finder in sys.meta_path if not isinstance(finder, _Doorkeeper)]
        spec = next((found for finder in others if (found := finder.find_spec(name, path, target)) is not None), None)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = functools.partial(_run_and_close, loader.exec_module)
        return spec


def _run_and_close(run: Callable[[ModuleType], None], module: ModuleType) -> None:
    run(module)
    with _lock:
        _close_doors_of(module)
        if _active:
            _ask(never=True)


def _guarded(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def guarded(*arguments: Any, **keywords: Any) -> Any:
        if _active:
            _pass(f"the code {': '.join(_named(arguments, keywords))!r}")
        return original(*arguments, **keywords)

    guarded.guarded_by_sparring = True  # type: ignore[attr-defined]
    return guarded


def _named(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[str]:
    """Returns what was asked for: a class and its file, or a repository and a file of it."""
    given = [*arguments, *(keywords[name] for name in _NAMING if name in keywords)]
    return [str(value)[:100].replace("{{", "{ {") for value in given[:2]]


def _only_weights(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(*arguments: Any, **keywords: Any) -> Any:
        if not _active or _trusting() or keywords.get("weights_only"):
            return original(*arguments, **keywords)
        try:
            return original(*arguments, **{**keywords, "weights_only": True})  # tensors, and nothing that is called
        except Exception as error:
            if type(error).__name__ != "UnpicklingError":  # whatever torch unpickles with
                raise
            _pass(f"the pickle {': '.join(_named(arguments, keywords))!r}")
            raise

    load.guarded_by_sparring = True  # type: ignore[attr-defined]
    return load


class _Imports:
    """Stands in for `importlib` where a library imports what a file names."""

    def import_module(self, name: str, package: str | None = None) -> Any:
        if _active:
            _pass(f"the module {name!r}")
        return importlib.import_module(name, package)

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib, name)


def _ask(*, never: bool) -> None:
    module, name = sys.modules.get(_ASKS[0]), _ASKS[1]
    if module is None or not hasattr(module, name):
        return
    if never:
        _usual.setdefault(name, getattr(module, name))
        setattr(module, name, 0)
    elif name in _usual:
        setattr(module, name, _usual.pop(name))
