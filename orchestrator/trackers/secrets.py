"""Settings as they may leave this machine: without the values of what is called a secret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

SECRET: Final = re.compile(
    r"(?i)(token|secret|password|passwd|credential|auth(?!ors?$)|bearer|cookie|(api|access|private)[_-]?key|^key$)"
    r"(?!.*[_-]file$)"
)
"""In the name of a setting, or of an argument of a policy or a benchmark; settings of ours name files."""
_MASK: Final = "..."
_USER: Final = re.compile(r"(?<=://)[^/\s?#]+@")
"""Who one is to a server, and with which password: `user:password@`."""
_BEARER: Final = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+")
_ASSIGNED: Final = re.compile(r"""([A-Za-z_][\w-]*)=("[^"]*"|'[^']*'|[^\s,;&]+)""")
"""As in a command, an address's query, or a list of variables."""


def without_secrets(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings, with `...` for the value of whatever is called a secret, however deep it lies."""
    return {name: _MASK if SECRET.search(name) and value else _inside(value) for name, value in values.items()}


def _inside(value: Any) -> Any:
    if isinstance(value, Mapping):
        return without_secrets(value)
    if isinstance(value, (list, tuple)):
        return list(_words(value))
    return _masked(value) if isinstance(value, str) else value


def _words(values: Iterable[Any]) -> Iterable[Any]:
    """Returns what is in a list; if it is a command's words, what follows a flag for a secret is one."""
    flag = ""
    for value in values:
        yield _MASK if SECRET.search(flag) else _inside(value)
        flag = value if isinstance(value, str) and value.startswith("--") and "=" not in value else ""


def _masked(text: str) -> str:
    text = _BEARER.sub(rf"\1 {_MASK}", _USER.sub(f"{_MASK}@", text))
    return _ASSIGNED.sub(lambda found: f"{found[1]}={_MASK}" if SECRET.search(found[1]) else found[0], text)
