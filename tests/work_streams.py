"""Work services for tests, real ones that listen, and workers' ends of streams to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from coordinated import Run

from sparring.orchestrator.coordination.admission import Admission
from sparring.orchestrator.coordination.work_service import WorkService
from sparring.orchestrator.serving.policy_host import PolicyAccess
from sparring.protos import WORK_PROTOCOL_VERSION
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.evaluation_pb2_grpc import WorkStub
from sparring.protos.net.address import Address
from sparring.protos.net.connection import Connection

TOKEN = "the-secret-of-this-run"
OURS = Admission(TOKEN)
HELLO: dict[str, Any] = {"protocol": WORK_PROTOCOL_VERSION, "worker": "w", "slots": 2, "benchmarks": ["toy", "gym"]}


class Service:
    """A work service that listens, and the run behind it."""

    def __init__(self, run: Run, policy: PolicyAccess | None, admission: Admission = OURS) -> None:
        self.run = run
        self.service = WorkService(run.coordinator, run.settings, policy, default_slots=5, admission=admission)
        self.local = self.public = Address("tcp")

    @asynccontextmanager
    async def worker(self, *, token: str = TOKEN, **register: Any) -> AsyncIterator[Stream]:
        """A worker's stream, on which it has said who it is."""
        async with self.silent(token) as stream:
            await stream.say(register=pb.Register(**{**HELLO, **register}))
            yield stream

    @asynccontextmanager
    async def silent(self, token: str = TOKEN, *, address: Address | None = None) -> AsyncIterator[Stream]:
        connection = Connection(address or self.local, token=token)
        async with connection.channel() as channel:
            yield Stream(WorkStub(channel).Work(metadata=connection.metadata))


class Stream:
    """A worker's end of a stream."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def say(self, **message: Any) -> None:
        await self._call.write(pb.WorkerMessage(**message))

    async def hear(self, kind: str) -> Any:
        message = await asyncio.wait_for(self._call.read(), 60)
        assert message is not grpc.aio.EOF, await self._call.details()
        assert message.WhichOneof("message") == kind
        return getattr(message, kind)

    async def refusal(self) -> tuple[grpc.StatusCode, str]:
        """The status that the stream ends with."""
        with pytest.raises(grpc.aio.AioRpcError):
            assert await asyncio.wait_for(self._call.read(), 60) is not grpc.aio.EOF
        return await self._call.code(), await self._call.details()

    async def end(self) -> None:
        await self._call.done_writing()


def access(*addresses: str, **more: Any) -> PolicyAccess:
    return PolicyAccess([Address.parse(address) for address in addresses], **more)


PLAIN = access("unix:///policy.sock", "127.0.0.1:1234")
