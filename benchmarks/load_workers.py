"""Whether an orchestrator stays as fast, and as small, with a thousand workers and a hundred thousand episodes.

The orchestrator is real: work service, coordinator, scheduler, recorder, journal; so is the wire, gRPC over a unix
socket with a connection per worker. The workers are not: they play nothing, and answer each lease at once, with the
actions and the trace of 200 made-up steps. Three things are told apart. Joining and the first episode of each worker
come with the workers, not with the episodes. Heartbeats come every second, whatever is played: what one costs is
measured while nothing is, and nobody sends any later. The rest is what episodes cost. Short plans are measured several
times, around the long one, and the median is shown.

    python benchmarks/load_workers.py [--workers 1000] [--episodes 1000 10000 100000] [--repeat 3] [--profile FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from common import child, conclude, show

from sparring.orchestrator.coordination.admission import Admission
from sparring.orchestrator.coordination.coordinator import Coordinator
from sparring.orchestrator.coordination.work_service import WorkService
from sparring.orchestrator.results.journal import Journal
from sparring.orchestrator.run.listeners import RunListener
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.serving.policy_host import PolicyAccess
from sparring.orchestrator.settings import read_settings
from sparring.protos import WORK_PROTOCOL_VERSION, action_list
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.evaluation_pb2_grpc import WorkStub
from sparring.protos.net.address import Address
from sparring.protos.net.connection import Connection
from sparring.protos.trace import Trace

TASKS = 50
STEPS = 200
"""Of an episode that is told of."""
JOIN_SECONDS = 300.0
RUN_SECONDS = 3000.0
IDLE_SECONDS = 5.0
LONG = 50_000
"""Episodes of a plan that is measured once."""
MIB = 2**20


@dataclass(frozen=True)
class Load:
    """What a run of so many episodes cost its orchestrator."""

    episodes: int
    joining: float
    """CPU seconds until all workers had joined."""
    first: float
    """CPU seconds of as many episodes as there are workers, the first ones."""
    cpu: float
    """CPU seconds of those after them."""
    seconds: float
    before: float
    """MiB when all had joined."""
    after: float
    """MiB at the end."""
    beat: float
    """CPU seconds of a heartbeat, where there is nothing else to do."""
    kept: float
    """Bytes of an episode in the journal's files."""

    @property
    def cpu_per_thousand(self) -> float:
        """CPU seconds of a thousand episodes."""
        return 1000 * self.cpu / self.episodes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--episodes", type=int, nargs="+", default=[1_000, 10_000, 100_000], help="multiples of 50")
    parser.add_argument("--repeat", type=int, default=3, help=f"how often plans under {LONG:,} episodes are measured")
    parser.add_argument("--processes", type=int, default=2, help="processes that the workers are in")
    parser.add_argument("--folder", type=Path, help="for the journal; by default a temporary one")
    parser.add_argument("--profile", type=Path, help="write the profile of the last run there")
    parser.add_argument("--allowed", type=float, default=1.5, help="largest dearest / cheapest that passes")
    parser.add_argument("--once", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--as-workers", nargs=3, metavar=("ADDRESS", "FIRST", "COUNT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    _allow_many_files()
    if options.as_workers:
        address, first, count = options.as_workers
        asyncio.run(_work(Address.parse(address), int(first), int(count)))
        return
    if options.once:
        sys.stdout.write(json.dumps(asdict(asyncio.run(_orchestrate(options.once, options)))))
        return
    rounds = [
        [episodes for episodes in options.episodes if not number or episodes < LONG] for number in range(options.repeat)
    ]
    measured = [(episodes, _measured(episodes, options)) for some in rounds for episodes in some]
    loads = [
        sorted((load for asked, load in measured if asked == episodes), key=lambda load: load.cpu_per_thousand)
        for episodes in options.episodes
    ]
    middle = [some[len(some) // 2] for some in loads]
    show(
        f"{options.workers} workers",
        [
            "episodes",
            "CPU s/1,000",
            "s",
            "episodes/s",
            "joining, CPU s",
            "first episodes",
            "a beat, ms",
            "MiB before",
            "after",
            "bytes kept",
        ],
        [
            [
                f"{load.episodes:,}",
                f"{load.cpu_per_thousand:.2f}",
                f"{load.seconds:.1f}",
                f"{load.episodes / load.seconds:.0f}",
                f"{load.joining:.2f}",
                f"{load.first:.2f}",
                f"{1000 * load.beat:.2f}",
                f"{load.before:.0f}",
                f"{load.after:.0f}",
                f"{load.kept:,.0f}",
            ]
            for load in middle
        ],
    )
    costs = [load.cpu_per_thousand for load in middle]
    conclude(
        "load_workers",
        target=f"CPU per episode within {options.allowed}×, whatever the number of episodes",
        met=max(costs) <= options.allowed * min(costs),
        workers=options.workers,
        cpu_per_thousand={load.episodes: round(load.cpu_per_thousand, 3) for load in middle},
        of_workers={load.episodes: [round(load.joining, 3), round(load.first, 3)] for load in middle},
        heartbeat={load.episodes: round(load.beat, 6) for load in middle},
        all={some[0].episodes: [round(load.cpu_per_thousand, 3) for load in some] for some in loads},
        mib={load.episodes: [round(load.before), round(load.after)] for load in middle},
        kept={load.episodes: round(load.kept) for load in middle},
    )


def _measured(episodes: int, options: argparse.Namespace) -> Load:
    """Each in a process of its own, so that memory is of this run only."""
    arguments = [__file__, "--once", str(episodes), "--workers", str(options.workers)]
    arguments += ["--processes", str(options.processes)]
    arguments += ["--folder", str(options.folder)] if options.folder else []
    arguments += ["--profile", str(options.profile)] if options.profile else []
    done = subprocess.run([sys.executable, *arguments], stdout=subprocess.PIPE, text=True, check=False, timeout=3600)
    if done.returncode:
        sys.exit(f"the run of {episodes} episodes failed: nothing was measured.")
    return Load(**json.loads(done.stdout))


async def _orchestrate(episodes: int, options: argparse.Namespace) -> Load:
    planned = episodes + options.workers
    settings = read_settings(
        {"benchmark": "metaworld", "task": "mt50", "policy": "zero", "episodes": -(-planned // TASKS), "seed": 0}
    )
    plan = make_plan(settings)
    joined = asyncio.Event()
    listener = _Joined(options.workers, joined)
    with (
        tempfile.TemporaryDirectory(prefix="sparring-load-", dir=options.folder) as folder,
        contextlib.ExitStack() as stack,
    ):
        journal = Journal(Path(folder) / "run")
        coordinator = _Counting(plan, settings, journal, Path(folder), listener, settings.plan.retry_rules)
        policy = PolicyAccess([Address.unix(Path(folder) / "policy.sock")])
        admission = Admission.of(settings, None)
        service = WorkService(coordinator, settings, policy, 1, admission)
        address, _ = await service.start(Path(folder))
        share = -(-options.workers // options.processes)
        began = time.process_time()
        processes = [
            stack.enter_context(
                child(__file__, "--as-workers", str(address), str(first), str(min(share, options.workers - first)))
            )
            for first in range(0, options.workers, share)
        ]
        _say(processes, admission.token)
        await asyncio.wait_for(joined.wait(), JOIN_SECONDS)
        joining, before = time.process_time() - began, _mib()
        began, coordinator.beats = time.process_time(), 0
        await asyncio.sleep(IDLE_SECONDS)
        beat = (time.process_time() - began) / max(1, coordinator.beats)
        began_cpu = time.process_time()
        _say(processes, "go")
        async with asyncio.timeout(JOIN_SECONDS):
            while coordinator.results < options.workers:
                await asyncio.sleep(0.01)
        profile = cProfile.Profile()
        if options.profile:
            profile.enable()
        before_these = coordinator.results
        first, began_cpu, began = time.process_time() - began_cpu, time.process_time(), time.perf_counter()
        await asyncio.wait_for(coordinator.ended, RUN_SECONDS)
        cpu, seconds = time.process_time() - began_cpu, time.perf_counter() - began
        profile.disable()
        if options.profile:
            profile.dump_stats(options.profile)
        after = _mib()
        rows = journal.rows()
        assert len({row.id for row in rows}) == len(rows) == len(plan.ids()), "an episode is missing"
        await service.stop("the run has ended.")
        journal.close()
        kept = journal.path.stat().st_size / len(rows)
    return Load(len(rows) - before_these, joining, first, cpu, seconds, before, after, beat, kept)


def _say(processes: Sequence[subprocess.Popen[str]], word: str) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{word}\n")
        process.stdin.flush()


class _Counting(Coordinator):
    """Counts heartbeats and results."""

    beats = results = 0

    def handle(self, worker: str, message: pb.WorkerMessage) -> None:
        self.beats += message.WhichOneof("message") == "heartbeat"
        self.results += message.WhichOneof("message") == "result"
        super().handle(worker, message)


class _Joined(RunListener):
    def __init__(self, wanted: int, joined: asyncio.Event) -> None:
        self._left = wanted
        self._joined = joined

    def on_worker(self, worker: str, slots: int) -> None:
        self._left -= 1 if slots else 0
        if self._left == 0:
            self._joined.set()


async def _work(address: Address, first: int, count: int) -> None:
    """So many workers in one process. The join token comes first over standard input, then the word to begin."""
    token = sys.stdin.buffer.raw.readline().decode().strip()  # type: ignore[attr-defined]
    go = asyncio.Event()
    loop = asyncio.get_running_loop()
    dice = np.random.default_rng(0)
    actions = action_list.pack(dice.normal(size=(STEPS, 7)).astype(np.float32))
    physics = dice.normal(size=STEPS + 1)
    trace = Trace([0.0] * (STEPS + 1), [0.0] * STEPS + [1.0], physics.tolist()).pack()
    played = pb.Result(outcome=pb.OUTCOME_SUCCESS, reward_sum=1.0, steps=STEPS, actions=actions, trace=trace)

    def begin() -> None:
        loop.remove_reader(0)
        go.set()

    loop.add_reader(0, begin)
    await asyncio.gather(
        *(_one(Connection(address, token=token), f"w{number}", go, played) for number in range(first, first + count))
    )


async def _one(connection: Connection, name: str, go: asyncio.Event, played: pb.Result) -> None:
    async with connection.channel() as channel:
        call: Any = WorkStub(channel).Work(wait_for_ready=True, metadata=connection.metadata)
        register = pb.Register(
            protocol=WORK_PROTOCOL_VERSION, worker=name, slots=1, benchmarks=["metaworld"], host="nowhere"
        )
        await call.write(pb.WorkerMessage(register=register))
        assignment = (await call.read()).assignment
        turn = asyncio.Lock()  # a stream takes one message at a time
        beating = asyncio.create_task(_beat(call, turn, assignment.heartbeat_seconds))
        await go.wait()
        beating.cancel()  # from now on its results are enough to be heard of
        async with turn:
            await call.write(pb.WorkerMessage(ready=pb.Ready(slot=0)))
        while (message := await call.read()) is not grpc.aio.EOF:
            if message.WhichOneof("message") != "lease":
                break
            played.lease = message.lease.lease
            told = pb.WorkerMessage(result=played)  # a copy
            async with turn:
                await call.write(told)
                await call.write(pb.WorkerMessage(ready=pb.Ready(slot=0)))


async def _beat(call: Any, turn: asyncio.Lock, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        activity = pb.SlotActivity(slot=0, task="reach-v3", index=0, steps=5)
        async with turn:
            await call.write(pb.WorkerMessage(heartbeat=pb.Heartbeat(slots=[activity])))


def _allow_many_files() -> None:
    """Allows a connection per worker, and some files beside."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _mib() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024 / MIB
    return 0.0


if __name__ == "__main__":
    main()
