"""Settings beside `in_process`: what is of no use where there is no server, no worker and nobody who waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic.fields import FieldInfo

from sparring.protos.advice import Hint

_NO_USE: Final = {
    "policy_server": "the policy is asked where it is made",
    "serve_on": "the policy is asked where it is made",
    "metrics": "no policy server is there to tell them",
    "max_batch": "observations are answered one by one",
    "max_queue_delay": "no observation waits for others",
    "policy_timeout": "nobody waits for the policy but you",
    "slots": "episodes are played one after the other",
    "launcher": "there are no workers",
    "listen": "there are no workers",
    "join_token_file": "there are no workers",
    "listen_tls_cert": "there are no workers",
    "listen_tls_key": "there are no workers",
    "listen_client_ca": "there are no workers",
    "insecure": "nobody is let in",
    "worker_timeout": "there are no workers",
    "slot_memory": "there is one process, and nobody to replace it",
    "stall_timeout": "nobody is there to kill a simulator that hangs",
}
"""Each with the reason."""


def problems_in_process(values: Mapping[str, Any], fields: Mapping[str, FieldInfo]) -> list[str]:
    """Returns sentences on settings that say something, and mean nothing in a run that is played in one process.

    Args:
        values: All that was given.
        fields: Of these settings.
    """
    return [
        f"{Hint(name)} is of no use with {Hint('in_process')}: {reason}."
        for name, reason in _NO_USE.items()
        if name in values and values[name] not in _meaningless(name, fields[name])
    ]


def settings_in_process(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Returns saved settings without those that a run in one process has no use for.

    That the policy is elsewhere stays among them: such a run cannot go on in one process, and is told so.
    """
    return {name: value for name, value in saved.items() if name not in _NO_USE or name == "policy_server"}


def _meaningless(name: str, field: FieldInfo) -> tuple[Any, ...]:
    """Returns values that ask for nothing: the default, and what is true anyway."""
    default = field.get_default(call_default_factory=True)
    return (default, 1, "1") if name == "slots" else (default, None)
