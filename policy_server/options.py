"""Every option of a policy server, defined once: a field is a flag of its program and of `sparring serve`.

Whoever starts a server hands the whole over: `arguments()` are the program's flags. Those marked `of_run` are settings
of `sparring run`, too, for the server that a run hosts. Plain data that imports nothing heavy: the orchestrator has it
through client.py, which is what it may import of this room. The contract (`protos/`) is no place for flags.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, get_type_hints

from sparring.policy_server.bridges.wires import SERVED
from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address, parse_tcp

AUTO: Final = "auto"
QueueDelay = float | Literal["auto"]
"""Seconds that an observation may wait for others to fill its batch, or as long as waiting makes more answers."""


@dataclass(frozen=True)
class Option:
    """How a field of `ServerOptions` is given.

    Attributes:
        name: Of the field.
        kind: Its type.
        default: What it is if it is not given.
        help: A line for people.
        read: Its value, from text or from what is right already; raises ValueError with what it must be.
        of_run: Whether `sparring run` has it as a setting.
        repeated: Whether it is given several times, for a tuple.
        pairs: Where people give it as KEY=VALUE, one by one: the help of that flag, which is called as one of them.
        by_program: Whether only programs give it: people say it otherwise.
    """

    name: str
    kind: Any
    default: Any
    help: str
    read: Callable[[Any], Any]
    of_run: bool = False
    repeated: bool = False
    pairs: str = ""
    by_program: bool = False

    @property
    def flag(self) -> str:
        """The flag that the server's program takes."""
        return "--" + self.name.replace("_", "-")

    @property
    def is_switch(self) -> bool:
        """Whether it is given without a value."""
        return self.kind is bool


def _how(help: str, read: Callable[[Any], Any] = str, **more: Any) -> dict[str, Any]:
    return {"help": help, "read": read, **more}


def _object(value: Any) -> Mapping[str, Any]:
    try:
        read = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise ValueError(f"must be a JSON object ({error})") from error
    if not isinstance(read, Mapping):
        raise ValueError("must be a JSON object")
    return read


def _at_least_one(value: Any) -> int:
    try:
        if int(value) >= 1 and int(value) == float(value):
            return int(value)
    except (TypeError, ValueError):
        pass
    raise ValueError("must be a whole number, at least 1")


def _seconds(value: Any) -> float:
    try:
        if 0 <= float(value) < float("inf"):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise ValueError("must be seconds, at least 0")


def _queue_delay(value: Any) -> QueueDelay:
    if value == AUTO:
        return AUTO
    try:
        return _seconds(value)
    except ValueError:
        raise ValueError("must be seconds, at least 0, or auto") from None


def _metrics(value: Any) -> str | None:
    if not value:
        return None
    try:
        parse_tcp(str(value))
    except UsageError as error:
        raise ValueError(error.sentence.removesuffix(".")) from error
    return str(value)


def metrics_address(text: str) -> Address:
    """Returns where metrics are served: `HOST:PORT`, or `:PORT` for this machine only."""
    return parse_tcp(f"127.0.0.1{text}" if text.startswith(":") else text)


@dataclass(frozen=True)
class ServerOptions:
    """What a policy server is told when it is started; each field says it in its help."""

    policy: str = field(
        default="", metadata=_how("a shipped policy, an installed one, or module:Class; see: sparring ls policies")
    )
    policy_args: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=_how(
            "keyword arguments of the policy, a JSON object",
            _object,
            pairs="an argument of the policy; may be repeated",
        ),
    )
    experts: Mapping[str, str] = field(
        default_factory=dict,
        metadata=_how("what --policy expert means: module:Class by benchmark, a JSON object", _object, by_program=True),
    )
    listen: tuple[str, ...] = field(
        default=("127.0.0.1:50051",), metadata=_how("HOST:PORT or unix:///path; may be repeated", repeated=True)
    )
    also: tuple[str, ...] = field(
        default=(),
        metadata=_how(
            f"serve it by another wire, too: {', '.join(f'{name}:PORT' for name in SERVED)}, with /libero, "
            "/metaworld or /aloha for what its clients call things; may be repeated",
            repeated=True,
        ),
    )
    token_file: Path | None = field(
        default=None, metadata=_how("file with a secret that every caller must bring; health checks need none", Path)
    )
    tls_cert: Path | None = field(
        default=None,
        metadata=_how("PEM certificate (chain): encrypts --listen HOST:PORT; unix sockets stay plain", Path),
    )
    tls_key: Path | None = field(
        default=None, metadata=_how("PEM private key of --tls-cert, without a passphrase", Path)
    )
    client_ca: Path | None = field(
        default=None,
        metadata=_how(
            "PEM certificate of a CA: callers over TCP must show a certificate that it has signed; for --tls-cert", Path
        ),
    )
    insecure: bool = field(
        default=False,
        metadata=_how("let in whoever reaches --listen or --metrics from beyond this machine, without a secret", bool),
    )
    max_batch: int = field(
        default=64, metadata=_how("the most observations in one forward pass", _at_least_one, of_run=True)
    )
    max_queue_delay: QueueDelay = field(
        default=AUTO,
        metadata=_how(
            "seconds that an observation may wait for others to fill its batch; auto: as long as that has been seen to "
            "make more answers per second",
            _queue_delay,
            of_run=True,
        ),
    )
    metrics: str | None = field(
        default=None,
        metadata=_how(
            "serve Prometheus metrics of the policy at HOST:PORT, or at :PORT for this machine only",
            _metrics,
            of_run=True,
        ),
    )
    max_observation: int = field(
        default=64, metadata=_how("the most MiB of one observation", _at_least_one, of_run=True)
    )
    max_sessions: int = field(default=256, metadata=_how("the most sessions at once", _at_least_one))
    max_sessions_per_peer: int = field(
        default=128,
        metadata=_how("the most sessions at once from one address; a unix socket has none", _at_least_one),
    )
    idle_timeout: float = field(
        default=3600.0, metadata=_how("seconds without a message after which a session is ended", _seconds)
    )
    output: Path | None = field(
        default=None,
        metadata=_how(
            "output folder of the run that this server is for: tracebacks of the policy are kept there, in errors/",
            Path,
            by_program=True,
        ),
    )
    grace: float = field(default=10.0, metadata=_how("seconds that running episodes have to end on SIGTERM", _seconds))

    def arguments(self) -> list[str]:
        """Returns the flags of `python -m sparring.policy_server` that say all this."""
        given = []
        for option in server_options():
            value = getattr(self, option.name)
            if value == option.default:
                continue
            if option.is_switch:
                given.append(option.flag)
                continue
            texts = value if option.repeated else [json.dumps(value) if isinstance(value, Mapping) else str(value)]
            given += [f"{option.flag}={text}" for text in texts]
        return given


def server_options() -> list[Option]:
    """Returns all options, in the order in which people are told of them."""
    kinds = get_type_hints(ServerOptions)
    empty = ServerOptions()
    return [Option(f.name, kinds[f.name], getattr(empty, f.name), **f.metadata) for f in fields(ServerOptions)]
