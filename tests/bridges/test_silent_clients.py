"""Clients that do not say when they go: who is let go for whom, and what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import pytest
from bridges.served import serving
from bridges.test_lerobot_async_front import Caller, policy

from sparring.policy_server.bridges import lerobot_async as wire
from sparring.policy_server.bridges.servers import silent_clients
from sparring.policy_server.bridges.servers.silent_clients import SilentClients
from sparring.policy_server.errors import EpisodeInterrupted
from sparring.policy_server.limits import Limits, ServerFull


class OnePlace:
    """In the place of a whole server's sessions: it has one, and tells who has it."""

    limits = Limits(idle_seconds=0.0)

    def __init__(self) -> None:
        self.taken: list[str] = []

    @contextmanager
    def foreign_session(self, host: str) -> Iterator[None]:
        if self.taken:
            raise ServerFull("the server is full.")
        self.taken.append(host)
        try:
            yield
        finally:
            self.taken.remove(host)


async def make() -> Any:
    """In the place of a session with a policy, which nobody here asks."""
    return object()


def test_who_waits_for_one_of_two_answers_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent_clients, "_SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(silent_clients, "_GONE_SECONDS", 0.0)

    async def run() -> None:
        rollouts = OnePlace()
        clients: SilentClients[str] = SilentClients(rollouts, make)  # type: ignore[arg-type]
        clients.asks("a robot")  # for actions
        await clients.get("a robot", "here", begins=True)
        clients.asks("a robot")  # to look at an observation, meanwhile
        clients.has_answer("a robot")
        with pytest.raises(ServerFull):
            await clients.get("another", "here", begins=True)
        sweeping = asyncio.create_task(clients.sweep())
        await asyncio.sleep(0.1)
        assert rollouts.taken == ["here"], "it has said nothing for long, as it waits"
        sweeping.cancel()
        clients.has_answer("a robot")
        await clients.get("another", "here", begins=True)
        assert rollouts.taken == ["here"]
        with pytest.raises(EpisodeInterrupted, match="was let go"):
            await clients.get("a robot", "here", begins=False)

    asyncio.run(run())


@pytest.mark.parametrize(("host", "seconds"), [("there", 0.0), ("here", 5.0)], ids=["another address", "just now"])
def test_a_robot_between_two_steps_is_not_let_go(host: str, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent_clients, "_GONE_SECONDS", seconds)

    async def run() -> None:
        clients: SilentClients[str] = SilentClients(OnePlace(), make)  # type: ignore[arg-type]
        robot = await clients.get("a robot", "here", begins=True)
        with pytest.raises(ServerFull):
            await clients.get("another", host, begins=True)
        assert await clients.get("a robot", "here", begins=False) is robot

    asyncio.run(run())


def test_who_was_let_go_is_told_so_until_it_begins_again_and_only_so_many_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(silent_clients, "_GONE_SECONDS", 0.0)
    monkeypatch.setattr(silent_clients, "_MOST_REMEMBERED", 2)

    async def run() -> None:
        clients: SilentClients[int] = SilentClients(OnePlace(), make)  # type: ignore[arg-type]
        for who in range(4):
            await clients.get(who, "here", begins=True)
        for _ in range(2):
            with pytest.raises(EpisodeInterrupted, match="start it again"):
                await clients.get(2, "here", begins=False)
        await clients.get(2, "here", begins=True)
        await clients.get(2, "here", begins=False)
        await clients.get(0, "here", begins=False)  # let go long ago: as if it were new

    asyncio.run(run())


def test_newcomers_of_lerobots_wire_are_refused_and_the_robot_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(policy(), "lerobot-async:0", max_sessions=1) as (port,), ExitStack() as channels:

        def caller() -> Caller:
            options = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own
            return Caller(channels.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}", options=options)))

        robot, newcomer = caller(), caller()
        robot.ask(wire.READY)
        robot.instruct()
        with pytest.raises(grpc.RpcError) as full:
            newcomer.ask(wire.READY)
        assert full.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "takes no more" in str(full.value.details())
        robot.show()
        assert robot.ask(wire.ACTIONS)
        monkeypatch.setattr(silent_clients, "_GONE_SECONDS", 0.0)
        newcomer.ask(wire.READY)
        with pytest.raises(grpc.RpcError) as gone:
            robot.show()
        assert gone.value.code() is grpc.StatusCode.ABORTED
        assert "this client was let go" in str(gone.value.details())
        robot.ask(wire.READY)
        with pytest.raises(grpc.RpcError) as first:
            robot.show()
        assert "before its instructions" in str(first.value.details())
        robot.instruct()
        robot.show()
        assert robot.ask(wire.ACTIONS)
