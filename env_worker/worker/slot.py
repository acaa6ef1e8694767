"""A slot: one process, one simulator at a time, one stream to the policy server.

Talks to its worker over a pipe in the contract's own messages: leases and new assignments in;
results, losses and activity out. Forked from a process that has imported the simulator and has never used gRPC or GL.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from sparring.env_worker.conditions import assigned_conditions
from sparring.env_worker.episode.live_frames import FrameRequest
from sparring.env_worker.episode.progress import Progress
from sparring.env_worker.registry import get_benchmark
from sparring.env_worker.rendering.device import DEVICE_VARIABLE
from sparring.env_worker.rendering.mark import share_mark
from sparring.env_worker.worker.player import Player
from sparring.env_worker.worker.replicas import PolicyServers, nearest
from sparring.env_worker.worker.waiting import PolicyWait, WatchedSession
from sparring.policy_server.client import Identity, PolicyChanged, PolicyClient, RemoteSession
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.net.address import Address
from sparring.protos.pieces import AttachmentMissing
from sparring.protos.process import keep_freed_memory
from sparring.protos.spec import Offer


def main(pipe: Connection, number: int, assignment_bytes: bytes, device: int | None = None, mark: Any = None) -> None:
    """Does what comes over the pipe until it closes.

    Args:
        pipe: To the worker.
        number: Of the slot.
        assignment_bytes: What it is for.
        device: Of EGL's, to draw on; None: whichever the simulator takes.
        mark: To set while it draws, in memory that the worker sees.
    """
    if device is not None:
        os.environ[DEVICE_VARIABLE] = str(device)
    if mark is not None:
        share_mark(mark)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the worker's to deal with
    keep_freed_memory()
    gc.freeze()  # what was imported stays: when a simulator is closed, only what came since is looked through
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s slot-{number} %(message)s", datefmt="%H:%M:%S")
    assignment = pb.Assignment.FromString(assignment_bytes)
    slot = _Slot(pipe, number, assignment)
    try:
        for order in _orders(pipe, slot.taken, slot.watched):
            kind = order.WhichOneof("message")
            if kind == "assignment":
                slot.reassign(order.assignment)
            elif kind == "preparation":
                slot.prepare(order.preparation)
            else:
                slot.run(order.lease)
    finally:
        slot.close()


def _orders(
    pipe: Connection, taken: queue.SimpleQueue[int], watched: Callable[[pb.Watch], None]
) -> Iterator[pb.OrchestratorMessage]:
    """Leases and assignments as they come. When the worker is gone the process ends at once, whatever it is doing.

    Args:
        pipe: To the worker.
        taken: Gets the leases of pieces that the worker has passed on.
        watched: Hears that somebody looks.
    """
    received: queue.SimpleQueue[pb.OrchestratorMessage | None] = queue.SimpleQueue()

    def listen() -> None:
        try:
            while True:
                message = pb.OrchestratorMessage.FromString(pipe.recv_bytes())
                kind = message.WhichOneof("message")
                if kind == "stop":
                    received.put(None)
                    return
                if kind == "taken":
                    taken.put(message.taken.lease)
                elif kind == "watch":
                    watched(message.watch)
                else:
                    received.put(message)
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=listen, name="orders", daemon=True).start()
    return iter(received.get, None)


class _Slot:
    def __init__(self, pipe: Connection, number: int, assignment: pb.Assignment) -> None:
        self._pipe = pipe
        self._number = number
        self._assignment = assignment
        self._sending = threading.Lock()
        self._activity = pb.SlotActivity(slot=number)
        # Each of the two or three waits in a call has the deadline of one.
        self._wait = PolicyWait(lambda: self._report(self._activity), 3 * assignment.policy_seconds)
        self._sessions = _RemoteSessions(number, assignment, self._wait)
        benchmark = get_benchmark(assignment.benchmark)
        settings = benchmark.read_settings(json.loads(assignment.benchmark_settings))
        self._frames = FrameRequest(self._show)
        self._player = Player(benchmark, settings, self._sessions, self._attach, frames=self._frames)
        self._total_steps = 0
        self.taken: queue.SimpleQueue[int] = queue.SimpleQueue()
        """Leases of pieces that are on their way to the orchestrator."""

    def reassign(self, assignment: pb.Assignment) -> None:
        """Begins another run, with a policy of its own somewhere else; the simulator stays."""
        self._assignment = assignment
        self._wait.longest = 3 * assignment.policy_seconds
        self._sessions.reassign(assignment)

    def prepare(self, preparation: pb.Preparation) -> None:
        """Makes the simulator that the first lease will want, and says that it is done."""
        for task in preparation.tasks:
            self._player.prepare(task, images=preparation.images)
        self._report(self._activity)

    def run(self, lease: pb.Lease) -> None:
        """Runs one lease and sends what came of it."""
        self._report_activity(lease, 0)
        progress = Progress(lambda steps: self._report_activity(lease, steps))
        message = self._player.play(lease, self._assignment, [progress])
        self._total_steps += progress.steps
        self._say(message)

    def _attach(self, piece: pb.Piece) -> None:
        """Sends a piece, and waits until it is on its way, so that the worker has no more than one of each slot."""
        self._say(pb.WorkerMessage(piece=piece))
        deadline = time.monotonic() + self._assignment.silence_seconds
        try:
            while self.taken.get(timeout=max(0.0, deadline - time.monotonic())) != piece.lease:
                continue  # of an episode that was given up in the middle of its pieces
        except queue.Empty:
            raise AttachmentMissing(
                f"the orchestrator took none of it for {self._assignment.silence_seconds:g} s."
            ) from None

    def watched(self, watch: pb.Watch) -> None:
        """Hears that somebody looks; called from another thread."""
        self._frames.ask(watch.seconds)

    def _show(self, task: str, index: int, steps: int, image: bytes) -> None:
        with contextlib.suppress(OSError):  # the worker is gone
            frame = pb.Frame(slot=self._number, task=task, index=index, steps=steps, image=image)
            self._say(pb.WorkerMessage(frame=frame))

    def close(self) -> None:
        """Frees the simulator and the connection."""
        self._player.close()
        self._sessions.close()

    def _report_activity(self, lease: pb.Lease, steps: int) -> None:
        self._activity = pb.SlotActivity(
            slot=self._number,
            task=lease.task,
            index=lease.index,
            steps=steps,
            total_steps=self._total_steps + steps,
        )
        self._report(self._activity)

    def _report(self, activity: pb.SlotActivity) -> None:
        with contextlib.suppress(OSError):  # the worker is gone, and so is this process in a moment
            self._say(pb.WorkerMessage(activity=activity))

    def _say(self, message: pb.WorkerMessage) -> None:
        with self._sending:  # two threads have something to say
            self._pipe.send_bytes(message.SerializeToString())


class _RemoteSessions:
    """The slot's stream to the policy server, opened anew when the last one failed or offered something else."""

    def __init__(self, number: int, assignment: pb.Assignment, wait: PolicyWait) -> None:
        self._number = number
        self._assignment = assignment
        self._wait = wait
        self._servers: PolicyServers | None = None
        self._session: RemoteSession | None = None
        self._watched: WatchedSession | None = None
        self._offered: Offer | None = None

    def reassign(self, assignment: pb.Assignment) -> None:
        """Notes that the policy is somewhere else now."""
        self.close()
        self._assignment = assignment

    def session_for(self, offer: Offer) -> WatchedSession:
        with self._wait.begun():
            session = self._session_for(offer)
        if self._watched is None or self._watched.session is not session:
            self._watched = WatchedSession(session, self._wait)
        return self._watched

    def _session_for(self, offer: Offer) -> RemoteSession:
        if self._servers is None:
            self._servers = self._policy_servers()
        if self._session is not None and (
            self._offered != offer or self._servers.wants_home() or self._session.is_over
        ):
            self.end()
        if self._session is None:
            who = f"{socket.gethostname()}/{os.getpid()}/slot-{self._number}"
            benchmark, conditions = self._assignment.benchmark, assigned_conditions(self._assignment)
            session = self._servers.open(offer, benchmark=benchmark, client=who, conditions=conditions)
            wanted, found = self._assignment.policy_program, session.policy.program_sha256
            if wanted and found != wanted:
                session.close()
                raise PolicyChanged("the policy server hosts another program than when the run began.")
            self._session, self._offered = session, offer
        return self._session

    def end(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def close(self) -> None:
        """Ends the connection, too."""
        self.end()
        if self._servers is not None:
            self._servers.close()
            self._servers = None

    def _policy_servers(self) -> PolicyServers:
        assignment = self._assignment
        addresses = [Address.parse(text) for text in assignment.policy_addresses]
        shown = assignment.policy_cert, assignment.policy_key
        identity = Identity(*shown) if all(shown) else None
        return PolicyServers(
            addresses if assignment.policy_replicas else [nearest(addresses)],
            home=self._number,
            timeout=assignment.policy_seconds,
            connect=lambda address: PolicyClient(
                address,
                timeout=assignment.policy_seconds,
                token=assignment.policy_token,
                ca=b"" if address.is_unix else assignment.policy_ca,
                identity=identity,
            ),
        )
