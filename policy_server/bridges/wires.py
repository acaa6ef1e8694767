"""Other people's wires that are spoken here: what they are called, and which class speaks each. A light list."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Wire:
    """A wire of somebody else's.

    Attributes:
        scheme: What addresses of servers that speak it begin with, for `--policy`. Several wires may share one;
            then `form` names which is meant.
        summary: A line about policies that are asked by it.
        path: After host and port.
        client: `module:Class` in clients/ that asks such a server; empty: none can be asked.
        server: `module:Class` in servers/ that answers its clients; empty: they cannot be served.
        refuses_strangers: Whether that server refuses who brings no token before it reads what they send. It listens
            for other machines than this one only if it does, whatever else it is given.
    """

    scheme: str
    summary: str
    path: str = ""
    client: str = ""
    server: str = ""
    refuses_strangers: bool = False

    @property
    def address(self) -> str:
        """How a server that speaks it is written."""
        return f"{self.scheme}://HOST:PORT{self.path}"


_ACT_SUMMARY: Final = "a server with /act (extra: bridges); form=openvla or xvla, preset=NAME"
_OPENPI_SUMMARY: Final = "a server of openpi's wire (extra: bridges); preset=NAME, play=N, form=NAME"

WIRES: Final[Mapping[str, Wire]] = {
    "openpi": Wire(
        "openpi",
        _OPENPI_SUMMARY,
        client="openpi:OpenpiPeer",
        server="openpi:OpenpiFront",
        refuses_strangers=True,
    ),
    "roboarena": Wire("openpi", _OPENPI_SUMMARY, client="openpi:RoboArenaPeer"),
    "starvla": Wire("openpi", _OPENPI_SUMMARY, client="openpi:StarVlaPeer"),
    "vla-eval": Wire(
        "vla-eval",
        "a model server of vla-eval (extra: bridges); preset=NAME",
        client="vla_eval:VlaEvalPeer",
        server="vla_eval:VlaEvalFront",
        refuses_strangers=True,
    ),
    "gr00t": Wire(
        "gr00t",
        "a GR00T server (extra: bridges); preset=NAME, play=N",
        client="groot:GrootPeer",
        server="groot:GrootFront",  # its token is in the request, which is read before
    ),
    "lerobot-async": Wire(
        "lerobot-async",
        "LeRobot's policy server (extra: bridges); checkpoint=PATH, unpickle=true",
        client="lerobot_async:LeRobotAsyncPeer",
        server="lerobot_async:LeRobotAsyncFront",  # its clients have no token to bring
    ),
    "openvla": Wire("http", _ACT_SUMMARY, path="/act", client="http_act:OpenVlaPeer"),
    "xvla": Wire("http", _ACT_SUMMARY, path="/act", client="http_act:XvlaPeer"),
}

SERVED: Final[Mapping[str, str]] = {name: known.server for name, known in WIRES.items() if known.server}
"""The wires whose clients can be served, each with the class that does."""

LAYOUTS: Final = ("lerobot", *WIRES)
"""Names of what policies can be shown: LeRobot's layout, which benchmarks have, and those of bridges."""


def spoken_at(scheme: str) -> list[str]:
    """Returns the wires of addresses that begin so: one, or those that a `form` chooses from."""
    return [name for name, known in WIRES.items() if known.client and known.scheme == scheme]


def is_foreign(policy: str) -> bool:
    """Returns whether a policy's name is the address of a server that speaks one of them, in the clear or by TLS."""
    return bool(spoken_at(_in_the_clear(scheme_of(policy))))


def is_plainly_foreign(address: str) -> bool:
    """Returns whether an address can be no server of ours: http:// is anything's, unless the path says whose."""
    scheme = _in_the_clear(scheme_of(address))
    return any(address.endswith(WIRES[name].path) for name in spoken_at(scheme))


def scheme_of(policy: str) -> str:
    """Returns what a policy's name begins with if it is an address, known or not; else nothing, as `module:Class`."""
    found = re.fullmatch(r"([\w+.-]+)://.*", policy)
    return found[1] if found else ""


def _in_the_clear(scheme: str) -> str:
    """Returns the scheme of a wire, of one that says that it is encrypted."""
    return "http" if scheme == "https" else scheme.removesuffix("+tls")
