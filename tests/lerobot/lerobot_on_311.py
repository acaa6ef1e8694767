"""Lets LeRobot 0.5 and 0.6, which want Python 3.12, import on 3.11, in the tests' environment only.

Where these tests run, there is a torch for Python 3.11 and for no other. All that LeRobot 0.6.1 has in newer syntax are
eight statements in five files, about type parameters and names of types (PEP 695):

    class DataProcessorPipeline[TInput, TOutput](HubMixin):       processor/pipeline.py
    class Backtrackable[T]:                                       datasets/streaming_dataset.py
    def deserialize_json_into_object[T: JsonLike](...) -> T:      utils/io_utils.py
    type NameOrID = str | int   and   type Value = int | float    motors/motors_bus.py
    type FeatureDict = dict[str, dict[str, Any]]   and two more   datasets/aggregate.py

While those files are imported, these lines are replaced by what 3.11 has for the same. They matter to type checkers;
what the code computes is not touched, and neither is the file on disk.
"""

from __future__ import annotations

import re
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any, Generic, TypeVar

_ALIAS = re.compile(r"^type (\w+) = ", re.MULTILINE)
_FUNCTION = re.compile(r"^( *def \w+)\[([^\]]+)\]\(", re.MULTILINE)
_CLASS = re.compile(r"^( *class \w+)\[([^\]]+)\](?:\((.+)\))?:$", re.MULTILINE)


def in_old_syntax(source: str) -> tuple[str, set[str]]:
    """The source without declarations of type parameters, line for line, and the parameters that it declared."""
    declared: set[str] = set()

    def names(parameters: str) -> str:
        found = [parameter.partition(":")[0].strip() for parameter in parameters.split(",")]
        declared.update(found)
        return ", ".join(found)

    def function(found: re.Match[str]) -> str:
        names(found[2])
        return f"{found[1]}("

    def class_(found: re.Match[str]) -> str:
        bases = [*filter(None, [found[3]]), f"Generic[{names(found[2])}]"]
        return f"{found[1]}({', '.join(bases)}):"

    source = _ALIAS.sub(r"\1 = ", source)
    return _CLASS.sub(class_, _FUNCTION.sub(function, source)), declared


class _Loader(SourceFileLoader):
    """Compiles a module in newer syntax; its type parameters are names of the module."""

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:
        source, declared = in_old_syntax(data.decode())
        self._declared = declared
        return super().source_to_code(source.encode(), path, _optimize=_optimize)  # type: ignore[call-arg]

    def set_data(self, *_: Any, **__: Any) -> None:
        """Keeps nothing in __pycache__, so that source_to_code() is always asked."""

    def exec_module(self, module: ModuleType) -> None:
        code = self.get_code(module.__name__)
        assert code is not None
        vars(module).update({name: TypeVar(name) for name in self._declared}, Generic=Generic)
        exec(code, vars(module))


class _NewerSyntax(MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if not name.startswith("lerobot."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        source = spec.loader.get_data(spec.loader.path).decode()
        if not any(syntax.search(source) for syntax in (_ALIAS, _FUNCTION, _CLASS)):
            return None
        spec.loader = _Loader(name, spec.loader.path)
        return spec


if sys.version_info < (3, 12):
    sys.meta_path.insert(0, _NewerSyntax())
