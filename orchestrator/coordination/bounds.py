"""How much a worker may say: what it sends is written down, shown and kept in memory, and it may be anybody's."""

from __future__ import annotations

from typing import Final

from sparring.protos import action_list, trace
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import shortened
from sparring.protos.errors import UsageError
from sparring.protos.limits import MAX_FACT, MAX_FRAME
from sparring.protos.record import MAX_SENTENCE
from sparring.protos.tracebacks import LONGEST as MAX_TRACEBACK

MAX_MESSAGE: Final = 8 * 2**20
"""Bytes; films and recordings come in pieces, which are smaller."""
MAX_WORKERS: Final = 4096
MAX_MACHINES: Final = 256
"""That a run says something of; workers that it starts itself are told of in any case."""
MAX_PEER_CONNECTIONS: Final = 1024
"""From one address of a network: workers, and others who ask how we are."""
MAX_SLOTS: Final = 1024
"""Of one worker."""
MAX_UNTAKEN: Final = 4 * MAX_SLOTS
"""Messages for a worker that talks on and takes none of them: each slot has one lease, and is asked to show itself."""
MAX_NAME: Final = 200
"""Characters of the name of a worker, a host, a benchmark, a package, a task or a metric."""
MAX_BENCHMARKS: Final = 256
MAX_VERSIONS: Final = 1024
MAX_METRICS: Final = 1024
MAX_FILES: Final = 4096
"""Source files of benchmarks, and facts of a machine."""
MAX_WARNINGS: Final = 16
"""Of one episode."""


class OutOfBounds(UsageError):
    """A worker says more than it may; its stream ends, and its leases go back in the queue."""


def check_register(register: pb.Register) -> None:
    """Checks what a worker says of itself.

    Raises:
        OutOfBounds: If that is too much, or cannot be shown.
    """
    _check(register.slots <= MAX_SLOTS, f"it has {register.slots} slots; {MAX_SLOTS} are the most")
    _check(len(register.benchmarks) <= MAX_BENCHMARKS, f"it names more than {MAX_BENCHMARKS} benchmarks")
    _check(len(register.versions) <= MAX_VERSIONS, f"it names more than {MAX_VERSIONS} packages")
    _check(len(register.files) + len(register.machine) <= MAX_FILES, f"it names more than {MAX_FILES} files")
    for text in (
        register.worker,
        register.host,
        register.evaluation,
        *register.benchmarks,
        *(text for pair in register.versions.items() for text in pair),
    ):
        _check_name(text)
    for pair in (*register.files.items(), *register.machine.items()):
        for text in pair:
            _check_name(text, most=MAX_FACT)


_SENTENCES: Final = ("error", "missing", "traceback", "warnings")
"""Texts of a result that are cut where they are too long."""
_FACTS: Final = tuple(
    known.name
    for known in pb.Result.DESCRIPTOR.fields
    if known.type == known.TYPE_STRING and known.name not in _SENTENCES
)
"""All its other texts, columns that are added later among them: names."""


def bounded(message: pb.WorkerMessage, slots: int) -> pb.WorkerMessage:
    """Returns a worker's message with texts of a reasonable length.

    Args:
        message: Of the worker, which is changed.
        slots: That it has.

    Raises:
        OutOfBounds: If it speaks of slots that it does not have, or says too much.
    """
    kind = message.WhichOneof("message")
    if kind == "ready":
        _check_slot(message.ready.slot, slots)
    elif kind == "heartbeat":
        _check(len(message.heartbeat.slots) <= slots, f"it tells of more slots than its {slots}")
        for activity in message.heartbeat.slots:
            _check_slot(activity.slot, slots)
            _check_name(activity.task)
    elif kind == "frame":
        _check_slot(message.frame.slot, slots)
        _check_name(message.frame.task)
        size = len(message.frame.image)
        _check(size <= MAX_FRAME, f"a frame has {size:,} bytes; {MAX_FRAME:,} are the most")
    elif kind == "result":
        metrics = message.result.metrics
        _check(len(metrics) <= MAX_METRICS, f"a result has {len(metrics)} metrics; {MAX_METRICS} are the most")
        for name in metrics:
            _check_name(name)
        for name in _FACTS:
            _check_name(getattr(message.result, name), most=MAX_FACT)
        size, most = len(message.result.actions), action_list.MOST_BYTES
        _check(size <= most, f"the actions of an episode have {size:,} bytes; {most:,} are the most")
        size, most = len(message.result.trace), trace.MOST_BYTES
        _check(size <= most, f"the trace of an episode has {size:,} bytes; {most:,} are the most")
        message.result.error = shortened(message.result.error, MAX_SENTENCE)
        message.result.missing = shortened(message.result.missing, MAX_SENTENCE)
        warnings = [shortened(sentence, MAX_SENTENCE) for sentence in message.result.warnings[:MAX_WARNINGS]]
        message.result.ClearField("warnings")
        message.result.warnings.extend(warnings)
        message.result.traceback = message.result.traceback[:MAX_TRACEBACK]
    elif kind == "lost":
        message.lost.reason = shortened(message.lost.reason, MAX_SENTENCE)
    elif kind == "refused":
        message.refused.reason = shortened(message.refused.reason, MAX_SENTENCE)
        message.refused.traceback = message.refused.traceback[:MAX_TRACEBACK]
    return message


def _check_slot(number: int, slots: int) -> None:
    _check(number < slots, f"it speaks of slot {number}, and has {slots}")


def _check_name(text: str, most: int = MAX_NAME) -> None:
    _check(len(text) <= most, f"a name of {len(text)} characters is too long; {most} are the most")
    _check(text.isprintable(), f"the name {text!r} has characters that cannot be shown")


def _check(right: bool, what: str) -> None:
    if not right:
        raise OutOfBounds(f"this worker says what no worker may: {what}.")
