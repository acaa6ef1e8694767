"""The renderer: what GL says of itself, asked where a context is current, without importing anything of OpenGL's."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from typing import Final, NamedTuple

MAX_NAME: Final = 200
"""Characters of the name of a renderer."""

_VENDOR, _RENDERER, _VERSION = 0x1F00, 0x1F01, 0x1F02  # of glGetString


class _Library(NamedTuple):
    """A library that makes contexts: its name, and its functions that tell which is current and find others."""

    name: str
    current: str
    find: str


_LIBRARIES: Final = (
    _Library("libEGL.so.1", "eglGetCurrentContext", "eglGetProcAddress"),
    _Library("libOSMesa.so.8", "OSMesaGetCurrentContext", "OSMesaGetProcAddress"),
    _Library("libOSMesa.so.6", "OSMesaGetCurrentContext", "OSMesaGetProcAddress"),
)


def current_renderer() -> str:
    """Returns the name of what draws in this thread's GL context: renderer, vendor and version, as GL says them.

    Nothing, where no context of EGL or OSMesa is current: nobody has drawn here, or not with these.
    """
    for library in _LIBRARIES:
        found = _loaded(library.name)
        if found is not None and _pointer(found, library.current)():
            return ", ".join(_strings(found, library))[:MAX_NAME]
    return ""


def _strings(found: ctypes.CDLL, library: _Library) -> Iterator[str]:
    find = _pointer(found, library.find)
    find.argtypes = [ctypes.c_char_p]
    address = find(b"glGetString")
    if not address:
        return
    get = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_uint)(address)
    for name in (_RENDERER, _VENDOR, _VERSION):
        said = (get(name) or b"").decode(errors="replace")
        if shown := "".join(filter(str.isprintable, said)).strip():
            yield shown


def _pointer(found: ctypes.CDLL, name: str) -> ctypes._FuncPointer:
    function = getattr(found, name)
    function.restype = ctypes.c_void_p
    return function  # type: ignore[no-any-return]


def _loaded(name: str) -> ctypes.CDLL | None:
    """Returns a library that this process has loaded; None if it has not: then nobody draws with it."""
    try:
        return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None
