"""A worker's end of its slots: real processes, forked from a real fork server, that do what a lease's task says.

The process's inside is replaced (tests/toy/scripted_slot.py): a simulator and a policy would only be in the way here.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
import scripted_slot

from sparring.env_worker.rendering.choice import Choice
from sparring.env_worker.rendering.device import Device
from sparring.env_worker.rendering.devices import RenderDevices
from sparring.env_worker.rendering.probe import NotDrawn
from sparring.env_worker.worker import slot as slot_main
from sparring.env_worker.worker import slot_process, slots
from sparring.env_worker.worker.fork_server import ForkServer
from sparring.env_worker.worker.memory import OomWatch
from sparring.env_worker.worker.slots import SlotHandle
from sparring.protos import evaluation_pb2 as pb


@pytest.fixture(scope="module")
def server() -> ForkServer:
    """One fork server for all tests here: it has imported what slots need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["scripted_slot"])
    return ForkServer(context, fork_seconds=3.0)


Test = Callable[["Slot"], Awaitable[None]]


class Slot:
    """A slot and what it has sent to the orchestrator."""

    def __init__(
        self, server: ForkServer, tasks_per_process: int, oom: OomWatch, devices: RenderDevices | None = None
    ) -> None:
        self.sent: asyncio.Queue[pb.WorkerMessage] = asyncio.Queue()
        self.assignment = pb.Assignment(benchmark="toy", stall_seconds=30)
        self.assignment.renderers.append("known")
        send = self.sent.put_nowait
        self.handle = SlotHandle(server, 3, self.assignment, tasks_per_process, send, oom, devices=devices)

    async def next(self) -> tuple[str, Any]:
        message = await asyncio.wait_for(self.sent.get(), 60)
        kind = message.WhichOneof("message")
        return kind, getattr(message, kind)

    async def plays(self, task: str, number: int = 1) -> tuple[str, Any]:
        """What comes of a lease; the slot has said that it is free again afterwards."""
        self.handle.leases.put_nowait(pb.Lease(lease=number, slot=3, task=task, index=5))
        kind, message = await self.next()
        assert (await self.next())[0] == "ready", "who is free says so"
        return kind, message

    async def busy(self, task: str) -> int:
        """Is in the middle of a lease when this returns; the number of its process."""
        self.handle.leases.put_nowait(pb.Lease(lease=1, slot=3, task=task))
        while self.handle.activity.task != task:
            await asyncio.sleep(0.01)
        assert self.handle._process is not None
        return self.handle._process.pid


@pytest.fixture
def in_slot(server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setattr(slot_main, "main", scripted_slot.main)

    def run(
        test: Callable[[Slot], Awaitable[None]],
        *,
        tasks_per_process: int = 0,
        oom: OomWatch | None = None,
        devices: RenderDevices | None = None,
    ) -> None:
        async def work() -> None:
            slot = Slot(server, tasks_per_process, oom or OomWatch(Path("/nowhere")), devices)
            serving = asyncio.create_task(slot.handle.serve())
            try:
                assert await slot.next() == ("ready", pb.Ready(slot=3))
                await test(slot)
            finally:
                serving.cancel()
                await slot.handle.stop(grace=5)

        asyncio.run(asyncio.wait_for(work(), 60))

    return run


def test_leases_go_in_and_results_come_out_of_one_process(in_slot: Callable[..., None]) -> None:
    async def test(slot: Slot) -> None:
        processes = set()
        for number in (1, 2, 3):
            kind, result = await slot.plays("plays", number)
            assert (kind, result.lease, result.outcome) == ("result", number, pb.OUTCOME_SUCCESS)
            processes.add(result.error)
        assert len(processes) == 1
        assert slot.handle.activity == pb.SlotActivity(slot=3, total_steps=7), "it is at nothing, and did seven steps"

    in_slot(test)


def test_a_process_serves_so_many_tasks_and_is_replaced(in_slot: Callable[..., None]) -> None:
    async def test(slot: Slot) -> None:
        processes = [(await slot.plays(task))[1].error for task in ("a", "b", "a", "b", "c", "c", "a")]
        assert len(set(processes[:4])) == 1, "what it has seen it may see again"
        assert processes[4] not in processes[:4]
        assert len(set(processes[4:])) == 1

    in_slot(test, tasks_per_process=2)


@pytest.mark.parametrize(
    ("task", "sentence"), [("segfaults", "was ended by SIGSEGV"), ("exits", "ended with exit code 3")]
)
def test_a_process_that_ends_in_an_episode_is_that_episodes_error(
    in_slot: Callable[..., None], task: str, sentence: str
) -> None:
    async def test(slot: Slot) -> None:
        kind, result = await slot.plays(task)
        assert (kind, result.lease, result.outcome) == ("result", 1, pb.OUTCOME_ERROR)
        assert result.error_kind == pb.ERROR_KIND_SIMULATOR
        assert sentence in result.error
        assert (await slot.plays("plays", 2))[1].outcome == pb.OUTCOME_SUCCESS, "the next one has another process"

    in_slot(test)


def test_a_process_that_somebody_killed_is_nobodys_error(in_slot: Callable[..., None]) -> None:
    async def test(slot: Slot) -> None:
        kind, lost = await slot.plays("is killed")
        assert (kind, lost.lease) == ("lost", 1)
        assert "SIGKILL" in lost.reason
        assert not lost.policy_unreachable

    in_slot(test)


def test_a_process_that_was_killed_for_lack_of_memory_is_that_episodes_error(
    in_slot: Callable[..., None], tmp_path: Path
) -> None:
    """The kernel's counter is a file here; a real limit needs a container, and tests/docker has one."""
    (tmp_path / "memory.events").write_text("oom_kill 0\n")
    (tmp_path / "memory.max").write_text(str(2**30))
    oom = OomWatch(tmp_path)

    async def test(slot: Slot) -> None:
        (tmp_path / "memory.events").write_text("oom_kill 1\n")
        kind, result = await slot.plays("is killed")
        assert (kind, result.outcome) == ("result", pb.OUTCOME_ERROR)
        assert result.error_kind == pb.ERROR_KIND_LIMIT
        assert "out of memory (OOM) at the worker's limit of 1.0 GiB" in result.error
        assert (await slot.plays("is killed"))[0] == "lost", "one is blamed for it, and not the next"

    in_slot(test, oom=oom)


def test_a_process_that_stalls_is_killed_and_one_that_is_idle_is_not(in_slot: Callable[..., None]) -> None:
    async def test(slot: Slot) -> None:
        slot.assignment.stall_seconds = 0.0
        slot.handle.kill_if_stalled()
        assert (await slot.plays("plays"))[1].outcome == pb.OUTCOME_SUCCESS, "it had nothing to do"
        await slot.busy("stalls")
        slot.handle.kill_if_stalled()
        kind, result = await slot.next()
        assert (kind, result.outcome) == ("result", pb.OUTCOME_ERROR)
        assert result.error_kind == pb.ERROR_KIND_LIMIT
        assert "the simulator made no step for 0 s and its slot was killed" in result.error
        await slot.next()
        assert (await slot.plays("is killed"))[0] == "lost", "the verdict was of one episode"

    in_slot(test)


@pytest.mark.parametrize("task", ["is stopped", "is stopped in a message"])
def test_a_process_that_somebody_stopped_is_killed_and_nobodys_error(in_slot: Callable[..., None], task: str) -> None:
    """Also in the middle of a message: whoever waits for the rest of it must not be the loop, which has the watch."""

    async def test(slot: Slot) -> None:
        process = await slot.busy(task)
        while psutil.Process(process).status() != psutil.STATUS_STOPPED:
            await asyncio.sleep(0.01)
        slot.assignment.stall_seconds = 0.0
        slot.handle.kill_if_stalled()
        kind, lost = await slot.next()
        assert (kind, lost.lease) == ("lost", 1), "that was no attempt"
        assert "was stopped by somebody" in lost.reason
        await slot.next()
        assert (await slot.plays("plays", 2))[1].outcome == pb.OUTCOME_SUCCESS

    in_slot(test)


def test_a_process_that_was_stopped_and_goes_on_has_its_time_again(in_slot: Callable[..., None]) -> None:
    async def test(slot: Slot) -> None:
        process = await slot.busy("runs long")
        os.kill(process, signal.SIGSTOP)
        while psutil.Process(process).status() != psutil.STATUS_STOPPED:
            await asyncio.sleep(0.01)
        slot.handle._heard -= 0.9 * slot.assignment.stall_seconds
        slot.handle.kill_if_stalled()  # it is seen that it stands still
        os.kill(process, signal.SIGCONT)
        slot.handle._heard -= 0.2 * slot.assignment.stall_seconds
        slot.handle.kill_if_stalled()
        await asyncio.sleep(0.1)
        assert slot.sent.empty(), "a limit that somebody else has reached for it"
        slot.handle._heard -= 1.1 * slot.assignment.stall_seconds
        slot.handle.kill_if_stalled()
        assert (await slot.next())[1].error_kind == pb.ERROR_KIND_LIMIT

    in_slot(test)


def test_who_was_not_running_itself_holds_it_against_no_process(in_slot: Callable[..., None]) -> None:
    async def test(slot: Slot) -> None:
        await slot.busy("runs long")
        slot.handle._heard -= 1000
        slot.handle.excuse()
        slot.handle.kill_if_stalled()
        await asyncio.sleep(0.1)
        assert slot.sent.empty()

    in_slot(test)


async def gone(process: int) -> None:
    """Waits until a process is no more, whether anybody has asked how it ended or not."""
    async with asyncio.timeout(60):
        while psutil.pid_exists(process) and psutil.Process(process).status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.01)


def fork_server_pid() -> int:
    return int(forkserver._forkserver._forkserver_pid)  # type: ignore[attr-defined]


def test_a_fork_server_that_is_stopped_is_replaced(in_slot: Callable[..., None]) -> None:
    async def test(slot: Slot) -> None:
        first = int((await slot.plays("plays"))[1].error.split()[0])
        stopped = fork_server_pid()
        os.kill(stopped, signal.SIGSTOP)
        # A fork server that cannot say how a process ended: nobody's error.
        kind, lost = await slot.plays("is killed")
        assert kind == "lost"
        assert "does not say how" in lost.reason
        second = int((await slot.plays("plays", 2))[1].error.split()[0])
        assert first != second
        assert fork_server_pid() != stopped
        await gone(stopped)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slot_process, "_EXIT_CODE_SECONDS", 0.2)
        in_slot(test)


def test_a_process_can_be_killed_after_its_fork_server_has_died(in_slot: Callable[..., None]) -> None:
    async def test(slot: Slot) -> None:
        process = await slot.busy("stalls")
        os.kill(fork_server_pid(), signal.SIGKILL)
        slot.assignment.stall_seconds = 0.0
        slot.handle.kill_if_stalled()
        assert (await slot.next())[0] == "result", "it stalled"
        await slot.next()
        await gone(process)
        assert (await slot.plays("plays", 2))[1].outcome == pb.OUTCOME_SUCCESS

    in_slot(test)


def test_a_process_that_grows_is_replaced_between_episodes(in_slot: Callable[..., None]) -> None:
    async def test(slot: Slot) -> None:
        small = int((await slot.plays("plays"))[1].error.split()[0])
        slot.assignment.slot_memory = psutil.Process(small).memory_info().rss + 2**25
        assert (await slot.plays("leaks"))[1].error.split()[0] == str(small), "never in the middle of an episode"
        other = (await slot.plays("plays"))[1].error.split()[0]
        assert other != str(small)
        assert (await slot.plays("plays"))[1].error.split()[0] == other, "which has not grown"

    in_slot(test)


def test_a_slots_share_is_of_the_workers_limit_or_of_the_machine(tmp_path: Path) -> None:
    machine = psutil.virtual_memory().total
    assert OomWatch(Path("/nowhere")).fair_share(4) == pytest.approx(0.2 * machine, rel=0.01)
    (tmp_path / "memory.events").write_text("oom_kill 0\n")
    (tmp_path / "memory.max").write_text(str(2**30))
    assert OomWatch(tmp_path).fair_share(2) == int(0.4 * 2**30)


def test_an_idle_process_that_dies_is_replaced_with_the_next_lease(in_slot: Callable[..., None]) -> None:
    async def test(slot: Slot) -> None:
        first = int((await slot.plays("plays"))[1].error.split()[0])
        os.kill(first, signal.SIGKILL)
        while slot.handle._process is not None:
            await asyncio.sleep(0.01)
        assert slot.sent.empty(), "nothing was lost"
        assert int((await slot.plays("plays", 2))[1].error.split()[0]) != first

    in_slot(test)


def test_another_assignment_reaches_the_process_with_the_next_lease(in_slot: Callable[..., None]) -> None:
    async def test(slot: Slot) -> None:
        assert (await slot.plays("plays"))[1].error.endswith(" toy")
        slot.handle.assignment = pb.Assignment(benchmark="another", stall_seconds=30)
        process, benchmark = (await slot.plays("plays"))[1].error.split()
        assert benchmark == "another"
        assert (await slot.plays("plays"))[1].error == f"{process} another", "told once, and the process is the same"

    in_slot(test)


@pytest.mark.parametrize("task", ["", "runs long"])
def test_stopping_ends_the_process_whatever_it_is_doing(in_slot: Callable[..., None], task: str) -> None:
    async def test(slot: Slot) -> None:
        if task:
            process = await slot.busy(task)
        else:
            process = int((await slot.plays("plays"))[1].error.split()[0])
        await slot.handle.stop(grace=5)
        assert not psutil.pid_exists(process) or psutil.Process(process).status() == psutil.STATUS_ZOMBIE
        await slot.handle.stop(grace=5)  # who has stopped can be stopped again

    in_slot(test)


def test_the_next_piece_comes_when_the_last_is_on_its_way(in_slot: Callable[..., None]) -> None:
    async def test(slot: Slot) -> None:
        slot.handle.leases.put_nowait(pb.Lease(lease=7, slot=3, task="attaches"))
        for number in range(3):
            kind, piece = await slot.next()
            assert (kind, piece.lease, piece.content) == ("piece", 7, b"%d" % number)
            slot.handle.piece_taken(pb.Piece(lease=8))  # of another slot
            assert slot.sent.empty(), "there is never more than one of a slot in the worker"
            slot.handle.piece_taken(piece)
        assert [(await slot.next())[0] for _ in range(2)] == ["result", "ready"]

    in_slot(test)


def test_a_start_that_fails_when_nobody_waits_for_it_any_more_is_no_news() -> None:
    may_fail, unheard = threading.Event(), []

    class Process:
        def start(self) -> None:
            may_fail.wait(60)
            raise OSError("handle is closed")

    async def test() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unheard.append(context))
        context = multiprocessing.get_context("forkserver")
        _, theirs = context.Pipe()
        starting = asyncio.ensure_future(ForkServer(context)._start(cast("ForkServerProcess", Process()), theirs))
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait({starting})
        may_fail.set()
        await loop.shutdown_default_executor()

    asyncio.run(test())
    gc.collect()
    assert unheard == []


def test_a_device_that_kills_a_slot_costs_no_attempt_and_is_left_alone(
    in_slot: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    variables_are_put_back(monkeypatch)
    broken, other = Device("egl", 7), Device("egl", 0)
    devices = RenderDevices(Choice([other, broken]))  # slot 3 gets the second

    async def test(slot: Slot) -> None:
        assert (await slot.plays("plays"))[0] == "result"
        assert slot.handle._device == broken
        assert list(slot.handle._assigned().renderers) == ["known"]
        kind, lost = await slot.plays("dies drawing")
        assert kind == "lost", "it is not the episode's error"
        assert "SIGABRT" in lost.reason
        assert "EGL device 7" in lost.reason
        kind, result = await slot.plays("plays")
        assert kind == "result"
        assert list(result.warnings) == [
            "EGL device 7 is left alone: while it drew, the slot's process was ended by SIGABRT. Slots draw on EGL "
            "device 0 from then on."
        ]
        assert slot.handle._device == other
        assert not slot.handle._assigned().renderers, "what draws now may be another renderer, and the run goes on"
        kind, result = await slot.plays("dies drawing")
        assert kind == "result", "there is nothing else to draw on: from here on it is an error as any other"
        assert result.outcome == pb.OUTCOME_ERROR

    in_slot(test, devices=devices)
    assert caplog.text.count("is left alone") == 1


def test_a_device_that_kills_an_idle_slot_is_left_alone_too(
    in_slot: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    variables_are_put_back(monkeypatch)
    devices = RenderDevices(Choice([Device("egl", 0), Device("egl", 7)]))

    async def test(slot: Slot) -> None:
        assert (await slot.plays("dies drawing afterwards"))[0] == "result"
        while not devices.warnings:
            await asyncio.sleep(0.01)
        assert (await slot.plays("plays"))[0] == "result"
        assert slot.handle._device == Device("egl", 0)

    in_slot(test, devices=devices)


def test_a_crash_without_drawing_is_no_devices_fault(
    in_slot: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    variables_are_put_back(monkeypatch)
    devices = RenderDevices(Choice([Device("egl", 0), Device("egl", 1)]))

    async def test(slot: Slot) -> None:
        kind, result = await slot.plays("segfaults")
        assert (kind, result.outcome) == ("result", pb.OUTCOME_ERROR)
        assert not devices.warnings

    in_slot(test, devices=devices)


@pytest.mark.requires("rendering")
@pytest.mark.parametrize(("number", "kind"), [(7, "lost"), (0, "result")])
def test_a_device_that_cannot_draw_any_more_is_tried_and_left(
    in_slot: Callable[..., None], monkeypatch: pytest.MonkeyPatch, number: int, kind: str
) -> None:
    variables_are_put_back(monkeypatch)
    devices = RenderDevices(Choice([Device("egl", number)], [Device("egl", 1)]))

    async def test(slot: Slot) -> None:
        ended, _ = await slot.plays("cannot draw")
        assert ended == kind, "of a device that draws well, the error is the episode's"
        assert bool(devices.warnings) == (kind == "lost")
        assert (await slot.plays("plays"))[0] == "result"

    in_slot(test, devices=devices)


def test_of_two_devices_that_break_at_once_one_is_kept(
    in_slot: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    variables_are_put_back(monkeypatch)
    other, last = Device("egl", 0), Device("egl", 7)
    devices = RenderDevices(Choice([other, last]))

    def broken(python: Path, device: Device) -> NotDrawn:  # no device breaks when one wants it to
        devices.leave(other, "another slot has found it broken meanwhile")
        return NotDrawn("no GL context")

    monkeypatch.setattr(slots, "try_device", broken)

    async def test(slot: Slot) -> None:
        for number in (1, 2):
            kind, result = await slot.plays("cannot draw", number)
            assert (kind, result.outcome) == ("result", pb.OUTCOME_ERROR), "else it is lost again and again"
            assert slot.handle._device == last
        assert len(result.warnings) == 2
        assert result.warnings[1].startswith("EGL device 7 is not left alone, because there is nothing else")

    in_slot(test, devices=devices)


def test_a_device_that_cannot_even_be_tried_leaves_no_slot_hanging(
    in_slot: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    variables_are_put_back(monkeypatch)
    devices = RenderDevices(Choice([Device("egl", 0), Device("egl", 7)]))

    def untriable(python: Path, device: Device) -> NotDrawn:  # as where no process can be started
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(slots, "try_device", untriable)

    async def test(slot: Slot) -> None:
        kind, result = await slot.plays("cannot draw")
        assert (kind, result.outcome, result.error) == ("result", pb.OUTCOME_ERROR, "no image")
        assert not devices.warnings, "nobody knows whether it is broken"
        assert (await slot.plays("plays", 2))[1].outcome == pb.OUTCOME_SUCCESS

    in_slot(test, devices=devices)
    assert "EGL device 7 could not be tried" in caplog.text


def test_a_signal_without_a_name_is_a_verdict_as_any_other(in_slot: Callable[..., None]) -> None:
    async def test(slot: Slot) -> None:
        process = await slot.busy("runs long")
        os.kill(process, 44)
        kind, result = await slot.next()
        assert (kind, result.outcome) == ("result", pb.OUTCOME_ERROR)
        assert "was ended by signal 44" in result.error

    in_slot(test)


def test_slots_are_forked_from_another_process_where_its_variables_are_others(
    server: ForkServer, in_slot: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_SERVER", "none")  # and put back, after the test

    async def test(slot: Slot) -> None:
        servers = []
        for value in ("one", "one", "other"):
            await server.use({"OF_THE_SERVER": value})
            process, _ = await server.fork(scripted_slot.main, (1, b""), name=value)
            assert process.pid is not None
            assert f"OF_THE_SERVER={value}".encode() in Path(f"/proc/{process.pid}/environ").read_bytes()
            servers.append(forkserver._forkserver._forkserver_pid)  # type: ignore[attr-defined]
            os.kill(process.pid, signal.SIGKILL)
        assert servers[0] == servers[1] != servers[2]
        assert (await slot.plays("plays"))[0] == "result", "who was forked before goes on"

    in_slot(test)


def variables_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MUJOCO_GL", "PYOPENGL_PLATFORM"):
        monkeypatch.setenv(name, "egl")
