"""A slot: one process, one simulator at a time, one stream to the policy server.

Talks to its worker over a pipe in the contract's own messages: leases and new assignments in;
results, losses and activity out. Forked from a process that has imported the simulator and has never used gRPC or GL.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Final

from sparring.env_worker.benchmark import Benchmark, Simulator, Task
from sparring.env_worker.episode.actions import OutOfRange, UnplayableAction
from sparring.env_worker.episode.play import Order, Record, run_episode
from sparring.env_worker.registry import get_benchmark
from sparring.env_worker.worker.replicas import PolicyServers, nearest
from sparring.policy_server.client import (
    Offer,
    PolicyClient,
    PolicyFailed,
    PolicyRefused,
    PolicyUnreachable,
    RemoteSession,
)
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.net.address import Address
from sparring.protos.process import give_back_freed_memory, keep_freed_memory
from sparring.protos.record import EpisodeRecord, ErrorKind

log = logging.getLogger(__name__)

_ACTIVITY_SECONDS: Final = 0.5
_OUT_OF_RANGE: Final[Mapping[int, OutOfRange]] = {
    pb.OUT_OF_RANGE_UNSPECIFIED: "pass",
    pb.OUT_OF_RANGE_PASS: "pass",
    pb.OUT_OF_RANGE_CLIP: "clip",
    pb.OUT_OF_RANGE_ERROR: "error",
}
_KINDS: Final[Mapping[type[Exception], ErrorKind]] = {
    PolicyFailed: "policy",
    PolicyRefused: "internal",  # not of the hello, but of a message in the middle of an episode
    UnplayableAction: "action",
}


def main(pipe: Connection, number: int, assignment_bytes: bytes) -> None:
    """Does what comes over the pipe until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the worker's to deal with
    keep_freed_memory()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s slot-{number} %(message)s", datefmt="%H:%M:%S")
    assignment = pb.Assignment.FromString(assignment_bytes)
    slot = _Slot(pipe, number, assignment)
    try:
        for order in _orders(pipe):
            if order.WhichOneof("message") == "assignment":
                slot.reassign(order.assignment)
            else:
                slot.run(order.lease)
    finally:
        slot.close()


def _orders(pipe: Connection) -> Iterator[pb.OrchestratorMessage]:
    """Leases and assignments as they come. When the worker is gone the process ends at once, whatever it is doing."""
    received: queue.SimpleQueue[pb.OrchestratorMessage | None] = queue.SimpleQueue()

    def listen() -> None:
        try:
            while True:
                message = pb.OrchestratorMessage.FromString(pipe.recv_bytes())
                if message.WhichOneof("message") == "stop":
                    received.put(None)
                    return
                received.put(message)
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=listen, name="orders", daemon=True).start()
    return iter(received.get, None)


class _Refused(SparringError):
    """The user's mistake, so that the run ends: the policy does not fit the benchmark, or there is no such task."""


class _Slot:
    def __init__(self, pipe: Connection, number: int, assignment: pb.Assignment) -> None:
        self._pipe = pipe
        self._number = number
        self._assignment = assignment
        self._benchmark: Benchmark = get_benchmark(assignment.benchmark)
        self._settings = self._benchmark.read_settings(json.loads(assignment.benchmark_settings))
        self._stage: _Stage | None = None
        self._servers: PolicyServers | None = None
        self._session: RemoteSession | None = None
        self._offered: Offer | None = None
        self._total_steps = 0

    def reassign(self, assignment: pb.Assignment) -> None:
        """Another run begins, with a policy of its own somewhere else; the simulator stays."""
        self._assignment = assignment
        self._disconnect()

    def run(self, lease: pb.Lease) -> None:
        """Runs one lease and sends what came of it."""
        began = time.perf_counter()
        self._report_activity(lease, 0)
        message = pb.WorkerMessage()
        try:
            record = self._play(lease)
        except _Refused as refusal:
            message.refused.reason = str(refusal)
        except PolicyUnreachable as loss:
            message.lost.lease, message.lost.reason = lease.lease, str(loss)
            message.lost.policy_unreachable = self._session is None
            self._end_session()
        except (
            Exception
        ) as error:  # the boundary: whatever a simulator or policy raises becomes an error, never a score
            if not isinstance(error, SparringError):
                log.exception("%s #%d", lease.task, lease.index)
            self._end_session()
            self._end_stage()  # a simulator that raised is not to be trusted with another episode
            failed = EpisodeRecord.failed(_kind(error), _sentence(error), seconds=time.perf_counter() - began)
            message.result.CopyFrom(failed.to_message(lease.lease))
        else:
            record.seconds = time.perf_counter() - began
            message.result.CopyFrom(record.to_message(lease.lease))
            message.result.video = record.video
            if record.recording is not None and self._stage is not None:
                message.result.recording = record.recording.finish(self._about(lease, self._stage.task, record))
        self._pipe.send_bytes(message.SerializeToString())

    def _about(self, lease: pb.Lease, task: Task, record: Record) -> dict[str, object]:
        return {
            "benchmark": self._benchmark.name,
            "task": task.name,
            "index": lease.index,
            "seed": lease.seed,
            "instruction": task.instruction,
            "success": record.outcome == "success",
        }

    def close(self) -> None:
        """Frees the simulator, so that its GL context does not complain at exit, and the connection."""
        self._end_stage()
        self._disconnect()

    def _play(self, lease: pb.Lease) -> Record:
        stage = self._staged(lease.task)
        order = Order(
            task=stage.task,
            index=lease.index,
            seed=lease.seed,
            max_steps=lease.max_steps,
            observe_every_step=self._assignment.observe_every_step,
            film_fps=self._assignment.video_fps if lease.film else 0.0,
            record=lease.record,
            out_of_range=_OUT_OF_RANGE[self._assignment.out_of_range],
        )
        last_report = time.monotonic()
        steps_before = self._total_steps

        def on_step(steps: int) -> None:
            nonlocal last_report
            self._total_steps = steps_before + steps
            if time.monotonic() - last_report >= _ACTIVITY_SECONDS:
                last_report = time.monotonic()
                self._report_activity(lease, steps)

        return run_episode(stage.simulator, self._connected(stage.simulator), order, on_step=on_step)

    def _staged(self, name: str) -> _Stage:
        """The simulator of a task, made if the last lease was of another one."""
        if self._stage is None or self._stage.task.name != name:
            self._end_stage()
            task = self._benchmark.tasks(name)[0]
            try:
                self._stage = _Stage(task, self._benchmark.make(task, self._settings))
            except UsageError as error:
                raise _Refused(str(error)) from error
        return self._stage

    def _connected(self, simulator: Simulator) -> RemoteSession:
        """The stream to the policy server, opened anew if the last one failed or offered something else."""
        if self._servers is None:
            self._servers = self._policy_servers()
        if self._session is not None and (self._offered != simulator.offers or self._servers.wants_home()):
            self._end_session()
        if self._session is None:
            who = f"{socket.gethostname()}/{os.getpid()}/slot-{self._number}"
            try:
                self._session = self._servers.open(simulator.offers, benchmark=self._benchmark.name, client=who)
            except PolicyRefused as refusal:
                raise _Refused(str(refusal)) from refusal
            self._offered = simulator.offers
        return self._session

    def _policy_servers(self) -> PolicyServers:
        assignment = self._assignment
        addresses = [Address.parse(text) for text in assignment.policy_addresses]
        return PolicyServers(
            addresses if assignment.policy_replicas else [nearest(addresses)],
            home=self._number,
            timeout=assignment.policy_seconds,
            connect=lambda address: PolicyClient(
                address, timeout=assignment.policy_seconds, token=assignment.policy_token, ca=assignment.policy_ca
            ),
        )

    def _disconnect(self) -> None:
        self._end_session()
        if self._servers is not None:
            self._servers.close()
            self._servers = None

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _end_stage(self) -> None:
        if self._stage is not None:
            self._stage.simulator.close()
            self._stage = None
            gc.collect()  # simulators are full of cycles
            give_back_freed_memory()

    def _report_activity(self, lease: pb.Lease, steps: int) -> None:
        activity = pb.SlotActivity(
            slot=self._number, task=lease.task, index=lease.index, steps=steps, total_steps=self._total_steps
        )
        self._pipe.send_bytes(pb.WorkerMessage(activity=activity).SerializeToString())


@dataclass(frozen=True)
class _Stage:
    task: Task
    simulator: Simulator


def _kind(error: Exception) -> ErrorKind:
    """Whose error it is; the simulator's, unless it is known better."""
    return next((kind for known, kind in _KINDS.items() if isinstance(error, known)), "simulator")


def _sentence(error: Exception) -> str:
    if isinstance(error, SparringError):
        return str(error)
    return f"the simulator raised {type(error).__name__}: {error}"
