"""A slot's process without simulator and policy: what it does with a lease is the name of the lease's task."""

from __future__ import annotations

import os
import signal
import struct
import time
from multiprocessing.connection import Connection
from typing import Any

from sparring.env_worker.rendering.mark import DRAWING, RAISED
from sparring.protos import evaluation_pb2 as pb


def main(pipe: Connection, number: int, assignment: bytes, device: int | None = None, mark: Any = None) -> None:
    """Does what comes over the pipe until it is told to stop, as the real one does."""
    benchmark = pb.Assignment.FromString(assignment).benchmark
    eaten = []
    while True:
        try:
            order = pb.OrchestratorMessage.FromString(pipe.recv_bytes())
        except EOFError:
            os._exit(1)
        kind = order.WhichOneof("message")
        if kind == "stop":
            return
        if kind == "assignment":
            benchmark = order.assignment.benchmark
            continue
        activity = pb.SlotActivity(slot=number, task=order.lease.task, index=order.lease.index, total_steps=7)
        pipe.send_bytes(pb.WorkerMessage(activity=activity).SerializeToString())
        if order.lease.task == "segfaults":
            os.kill(os.getpid(), signal.SIGSEGV)
        if order.lease.task == "dies drawing":
            mark.value = DRAWING
            os.abort()
        if order.lease.task == "cannot draw":
            mark.value = RAISED
            result = pb.Result(lease=order.lease.lease, outcome=pb.OUTCOME_ERROR, error="no image")
            pipe.send_bytes(pb.WorkerMessage(result=result).SerializeToString())
            continue
        if order.lease.task == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if order.lease.task == "exits":
            os._exit(3)
        if order.lease.task == "is stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if order.lease.task == "is stopped in a message":
            os.write(pipe.fileno(), struct.pack("!i", 1000) + b"the rest never comes")
            os.kill(os.getpid(), signal.SIGSTOP)
        if order.lease.task == "leaks":
            eaten.append(b"x" * 2**26)
        if order.lease.task in ("stalls", "runs long"):
            time.sleep(60)
        if order.lease.task == "attaches":
            for number_of_piece in range(3):
                piece = pb.Piece(lease=order.lease.lease, content=b"%d" % number_of_piece)
                pipe.send_bytes(pb.WorkerMessage(piece=piece).SerializeToString())
                assert pb.OrchestratorMessage.FromString(pipe.recv_bytes()).taken.lease == piece.lease
        result = pb.Result(lease=order.lease.lease, outcome=pb.OUTCOME_SUCCESS, error=f"{os.getpid()} {benchmark}")
        pipe.send_bytes(pb.WorkerMessage(result=result).SerializeToString())
        if order.lease.task == "dies drawing afterwards":
            mark.value = DRAWING
            os.abort()
