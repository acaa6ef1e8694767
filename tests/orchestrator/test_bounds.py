"""What workers may say and how often: each bound of the Work port, from both sides."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from coordinated import Run

from sparring.orchestrator.coordination import members, work_service
from sparring.orchestrator.coordination.admission import Admission
from sparring.orchestrator.coordination.bounds import (
    MAX_FILES,
    MAX_MESSAGE,
    MAX_TRACEBACK,
    MAX_WARNINGS,
    OutOfBounds,
    bounded,
    check_register,
)
from sparring.orchestrator.coordination.work_service import WorkService
from sparring.orchestrator.serving.policy_host import PolicyAccess
from sparring.protos import WORK_PROTOCOL_VERSION, action_list
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.errors import UsageError
from sparring.protos.evaluation_pb2_grpc import WorkStub
from sparring.protos.net import access
from sparring.protos.net.access import TOKEN_HEADER, hear_token, token_header
from sparring.protos.net.address import Address
from sparring.protos.record import MAX_SENTENCE

TOKEN = "a-secret-of-those-who-join"


def said(**message: Any) -> pb.WorkerMessage:
    return bounded(pb.WorkerMessage(**message), slots=1)


def test_files_and_facts_of_a_machine_are_counted_together() -> None:
    facts = {str(number): "" for number in range(96)}
    check_register(pb.Register(machine=facts, files={str(number): "" for number in range(MAX_FILES - 96)}))
    with pytest.raises(OutOfBounds, match="more than 4096 files"):
        check_register(pb.Register(machine=facts, files={str(number): "" for number in range(MAX_FILES - 95)}))


def test_actions_of_an_episode() -> None:
    assert len(said(result=pb.Result(actions=bytes(action_list.MOST_BYTES))).result.actions) == action_list.MOST_BYTES
    with pytest.raises(OutOfBounds, match=r"the actions of an episode have 4,194,305 bytes; 4,194,304 are the most"):
        said(result=pb.Result(actions=bytes(action_list.MOST_BYTES + 1)))


@pytest.mark.parametrize("field", ["error", "missing"])
def test_sentences_of_a_result(field: str) -> None:
    whole = "x" * MAX_SENTENCE
    assert getattr(said(result=pb.Result(**{field: whole})).result, field) == whole
    assert len(getattr(said(result=pb.Result(**{field: whole + "x"})).result, field)) <= MAX_SENTENCE


@pytest.mark.parametrize(("kind", "made"), [("lost", pb.Lost), ("refused", pb.Refused)])
def test_reasons(kind: str, made: Callable[..., Any]) -> None:
    whole = "x" * MAX_SENTENCE
    assert getattr(said(**{kind: made(reason=whole)}), kind).reason == whole
    assert len(getattr(said(**{kind: made(reason=whole + "x")}), kind).reason) <= MAX_SENTENCE


@pytest.mark.parametrize(("kind", "made"), [("result", pb.Result), ("refused", pb.Refused)])
def test_tracebacks(kind: str, made: Callable[..., Any]) -> None:
    for length in (MAX_TRACEBACK, MAX_TRACEBACK + 1):
        assert len(getattr(said(**{kind: made(traceback="x" * length)}), kind).traceback) == MAX_TRACEBACK


def test_warnings_of_an_episode() -> None:
    for number in (MAX_WARNINGS, MAX_WARNINGS + 1):
        assert len(said(result=pb.Result(warnings=["look"] * number)).result.warnings) == MAX_WARNINGS


@pytest.mark.parametrize("length", [access._LONGEST_TOKEN, access._LONGEST_TOKEN + 1])
def test_a_token_that_is_said(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    monkeypatch.setattr(access, "_HEAR_SECONDS", 1.0)
    reading, writing = os.pipe()
    kept = os.dup(0)
    os.dup2(reading, 0)
    try:
        os.write(writing, b"x" * length + b"\n")
        if length <= access._LONGEST_TOKEN:
            assert hear_token(flag="--join-token-file") == "x" * length
        else:
            with pytest.raises(UsageError, match="no token came on standard input"):
                hear_token(flag="--join-token-file")
    finally:
        os.dup2(kept, 0)
        for descriptor in (kept, reading, writing):
            os.close(descriptor)


class Serving:
    """A work service on a socket and on TCP, and who talks with it."""

    def __init__(self, folder: Path) -> None:
        self.run = Run(folder / "run", episodes=9)
        self.service = WorkService(self.run.coordinator, self.run.settings, PolicyAccess([]), 1, Admission(TOKEN))
        self._channels: list[grpc.aio.Channel] = []

    async def start(self, sockets: Path) -> None:
        _, self.public = await self.service.start(sockets, Address.parse("127.0.0.1:0"))

    def call(self) -> Any:
        """Opens a stream, over a connection of its own."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        channel = grpc.aio.insecure_channel(self.public.target, options)
        self._channels.append(channel)
        return WorkStub(channel).Work(metadata=((TOKEN_HEADER, token_header(TOKEN)),))

    async def joined(self, name: str = "w", **more: Any) -> tuple[Any, pb.Assignment]:
        call = self.call()
        register = pb.Register(protocol=WORK_PROTOCOL_VERSION, worker=name, slots=1, benchmarks=["toy"], **more)
        await call.write(pb.WorkerMessage(register=register))
        return call, (await asyncio.wait_for(call.read(), 60)).assignment

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()
        await self.service.stop("the test has ended.")
        self.run.journal.close()


@pytest.fixture
def serving(tmp_path: Path) -> Callable[..., None]:
    def run(test: Callable[[Serving], Any]) -> None:
        async def work() -> None:
            made = Serving(tmp_path)
            with tempfile.TemporaryDirectory() as sockets:
                await made.start(Path(sockets))
                try:
                    await test(made)
                finally:
                    await made.close()

        asyncio.run(asyncio.wait_for(work(), 60))

    return run


def test_a_message_may_have_eight_mebibytes(serving: Callable[..., None]) -> None:
    async def test(service: Serving) -> None:
        call, _ = await service.joined()
        room = MAX_MESSAGE - pb.WorkerMessage(lost=pb.Lost(lease=7, reason="x" * MAX_MESSAGE)).ByteSize()
        fits = pb.WorkerMessage(lost=pb.Lost(lease=7, reason="x" * (MAX_MESSAGE + room)))
        assert fits.ByteSize() == MAX_MESSAGE
        await call.write(fits)
        await call.write(pb.WorkerMessage(ready=pb.Ready(slot=0)))
        assert (await asyncio.wait_for(call.read(), 60)).WhichOneof("message") == "lease"
        await call.write(pb.WorkerMessage(lost=pb.Lost(lease=7, reason="x" * (MAX_MESSAGE + room + 1))))
        assert await asyncio.wait_for(call.code(), 60) == grpc.StatusCode.RESOURCE_EXHAUSTED

    serving(test)


def test_calls_are_counted(serving: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_service, "_MOST_CALLS", 2)

    async def test(service: Serving) -> None:
        for name in ("a", "b"):
            _, assignment = await service.joined(name)
            assert assignment.slots == 1
        third = service.call()
        assert await asyncio.wait_for(third.code(), 60) == grpc.StatusCode.RESOURCE_EXHAUSTED

    serving(test)


def test_of_workers_that_left_the_last_may_come_back(
    serving: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "_MOST_GONE", 1)

    async def test(service: Serving) -> None:
        gone: list[str] = []
        for name in ("first", "second", "third"):
            call, assignment = await service.joined(name)
            gone.append(assignment.membership)
            call.cancel()
            async with asyncio.timeout(60):
                while name in service.run.coordinator.workers:
                    await asyncio.sleep(0.01)
        back, assignment = await service.joined("third", membership=gone[2])
        assert assignment.membership == gone[2]
        call = service.call()
        register = pb.Register(protocol=WORK_PROTOCOL_VERSION, benchmarks=["toy"], membership=gone[0])
        await call.write(pb.WorkerMessage(register=register))
        assert await asyncio.wait_for(call.code(), 60) == grpc.StatusCode.FAILED_PRECONDITION
        back.cancel()

    serving(test)


def test_an_earlier_stream_that_does_not_end_is_not_waited_for(
    serving: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "_LEAVE_SECONDS", 0.2)

    async def test(service: Serving) -> None:
        _, assignment = await service.joined()
        endless = asyncio.create_task(asyncio.sleep(60))
        service.service._members.add(
            assignment.membership, members.Member("w", "toy", 1, endless, left=asyncio.Event())
        )
        call = service.call()
        register = pb.Register(protocol=WORK_PROTOCOL_VERSION, benchmarks=["toy"], membership=assignment.membership)
        await call.write(pb.WorkerMessage(register=register))
        assert await asyncio.wait_for(call.code(), 60) == grpc.StatusCode.FAILED_PRECONDITION
        assert "earlier stream has not ended" in await call.details()

    serving(test)


def test_those_who_are_turned_away_do_not_fill_the_log(
    serving: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(work_service, "_MOST_NOTES", 2)

    async def test(service: Serving) -> None:
        for number in range(4):
            # Else gRPC takes the connection of the channel before, as long as it is there: one caller is told of once.
            own = [("grpc.use_local_subchannel_pool", 1)]
            channel = grpc.aio.insecure_channel(service.public.target, options=own)
            call = WorkStub(channel).Work()
            assert await asyncio.wait_for(call.code(), 60) == grpc.StatusCode.UNAUTHENTICATED
            await channel.close()
            assert caplog.text.count("without this run's join token") == min(number + 1, 2)

    serving(test)


def test_who_connects_and_says_nothing_is_not_waited_for(
    serving: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = dict(work_service._OPTIONS) | {"grpc.server_handshake_timeout_ms": 300}
    monkeypatch.setattr(work_service, "_OPTIONS", list(short.items()))

    async def test(service: Serving) -> None:
        friend, _ = await service.joined()
        silent = socket.create_connection((service.public.host, service.public.port))
        silent.settimeout(10)
        with silent:
            while await asyncio.to_thread(silent.recv, 4096):  # its greeting, then the end
                continue
        await friend.write(pb.WorkerMessage(ready=pb.Ready(slot=0)))
        assert (await asyncio.wait_for(friend.read(), 60)).WhichOneof("message") == "lease"

    serving(test)
