"""A worker's end of the stream to its orchestrator: what is written there, and the last word."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from sparring.env_worker.benchmark import BenchmarkBroken
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.net.rpc import StreamEnded
from sparring.protos.tracebacks import cause_of, traceback_of

log = logging.getLogger(__name__)

_GOODBYE_SECONDS: Final = 10.0


async def write(call: Any, message: pb.WorkerMessage) -> None:
    """Says something to the orchestrator.

    Raises:
        StreamEnded: If the stream had ended before.
    """
    try:
        await call.write(message)
    except asyncio.InvalidStateError:
        raise StreamEnded(await call.code(), await call.details()) from None


async def say_goodbye(call: Any) -> None:
    """Says that nothing more comes, and waits until all of it was heard: then the orchestrator ends the stream."""
    await call.done_writing()
    heard = asyncio.ensure_future(call.code())
    try:
        await asyncio.wait({heard}, timeout=_GOODBYE_SECONDS)
    finally:
        heard.cancel()


def refusal_of(broken: BenchmarkBroken) -> pb.WorkerMessage:
    """Returns what an orchestrator is told of a benchmark that is broken, and logs it: people may look there, too."""
    found = traceback_of(cause_of(broken) or broken)
    log.error("%s\n%s", broken.sentence, found.rstrip())
    return pb.WorkerMessage(refused=pb.Refused(reason=broken.sentence, traceback=found))
