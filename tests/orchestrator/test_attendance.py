"""Which workers are replaced although they have not ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sparring.orchestrator.coordination import attendance
from sparring.orchestrator.coordination.attendance import Attendance
from sparring.orchestrator.launchers.keep_alive import Death, keep_worker
from sparring.orchestrator.retry import RetryRules


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "_TICK", 0.01)


def given_up(what: Attendance) -> asyncio.Task[str]:
    return asyncio.create_task(what.given_up("w"))


def test_one_that_was_silent_at_once() -> None:
    async def test() -> None:
        here = Attendance()
        waiting = given_up(here)
        here.joined("w")
        await asyncio.sleep(0.05)
        assert not waiting.done()
        here.left("w", "it was silent.", silent=True)
        assert await asyncio.wait_for(waiting, 60) == "it was silent."

    asyncio.run(test())


def test_one_that_never_dials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "JOIN_SECONDS", 0.05)

    async def test() -> None:
        assert "did not join within 0.05 s" in await asyncio.wait_for(given_up(Attendance()), 60)

    asyncio.run(test())


def test_one_whose_stream_broke_has_time_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        here = Attendance()
        waiting = given_up(here)
        here.joined("w")
        here.left("w", "its stream broke.", silent=False)
        await asyncio.sleep(0.05)
        assert not waiting.done()
        here.joined("w")
        monkeypatch.setattr(attendance, "REJOIN_SECONDS", 0.05)
        await asyncio.sleep(0.1)
        assert not waiting.done(), "it is here"
        here.left("w", "its stream broke.", silent=False)
        assert await asyncio.wait_for(waiting, 60) == "its stream broke."

    asyncio.run(test())


def test_who_is_given_up_is_ended_and_replaced() -> None:
    ended: list[str] = []
    deaths: list[str] = []

    class Stopped:
        """A worker that never ends by itself."""

        log = Path("/nowhere")

        def __init__(self, name: str) -> None:
            self.name = name

        async def wait(self) -> Death:
            return await asyncio.get_running_loop().create_future()

        async def end(self) -> None:
            ended.append(self.name)

        def last_words(self) -> str:
            return ""

    async def start(name: str) -> Stopped:
        return Stopped(name)

    async def silent(name: str) -> str:
        if name == "toy-1":
            await asyncio.get_running_loop().create_future()
        return "it was silent."

    async def test() -> None:
        keeping = asyncio.create_task(
            keep_worker(
                "toy",
                start,
                rules=RetryRules(first_pause=0.0),
                results_of=lambda name: 1,
                on_death=lambda name, death: deaths.append(f"{name} {death}"),
                given_up=silent,
            )
        )
        async with asyncio.timeout(60):
            while not deaths:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    asyncio.run(test())
    assert deaths == ["toy-0 is given up and killed: it was silent"]
    assert ended == ["toy-0", "toy-1"]


def test_of_those_who_come_and_go_some_are_kept_in_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "MAX_WORKERS", 3)

    async def test() -> None:
        here = Attendance()
        for number in range(9):
            here.joined(f"w{number}")
            here.left(f"w{number}", "it went.", silent=False)
        assert list(here._absences) == ["w6", "w7", "w8"]

    asyncio.run(test())
