"""Many sessions for minutes: does a policy server answer all of them, in time, and without growing?

Each session is a connection of its own, as a slot's is, and plays episodes one after the other at a steady pace, with a
policy that does nothing and observations of a few bytes: what is left is the server. Every session is closed and
opened anew now and then, as slots do.

    python benchmarks/load_sessions.py [--sessions 200] [--seconds 300] [--hz 5]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from typing import Any, Final

import grpc
import numpy as np
import psutil
from common import child, conclude, show

from sparring.policy_server.session_client import serialized
from sparring.protos import PROTOCOL_VERSION
from sparring.protos import policy_pb2 as pb
from sparring.protos.net.rpc import CLIENT_OPTIONS
from sparring.protos.spec import Offer, PolicySpec, TensorSpec
from sparring.protos.wire import ObservationCodec

STATE: Final = "observation.state"
SHAPE: Final = (8,)
OFFER: Final = Offer({STATE: TensorSpec("float32", SHAPE)}, action_low=(-1.0,) * 4, action_high=(1.0,) * 4)
STEPS: Final = 50
EPISODES_PER_SESSION: Final = 4
ANSWER_SECONDS: Final = 30.0
SAMPLE_SECONDS: Final = 2.0


class Load:
    """What all sessions have seen so far."""

    def __init__(self, address: str, hz: float, end: float) -> None:
        self.address, self.hz, self.end = address, hz, end
        self.waits: list[float] = []
        self.errors: Counter[str] = Counter()
        self.episodes = 0
        self.opened = 0

    async def play(self, number: int) -> None:
        """One slot: sessions one after the other, until the time is over."""
        rng = random.Random(number)
        await asyncio.sleep(rng.random() * 2)  # not all at once
        while time.monotonic() < self.end:
            try:
                async with grpc.aio.insecure_channel(self.address, options=CLIENT_OPTIONS) as channel:
                    await self._session(channel, rng)
            except grpc.RpcError as error:
                self.errors[f"{error.code().name}: {error.details()}"] += 1
                await asyncio.sleep(1)
            except TimeoutError:
                self.errors["no answer in time"] += 1

    async def _session(self, channel: grpc.aio.Channel, rng: random.Random) -> None:
        call: Any = channel.stream_stream(
            "/sparring.policy.v1.Policy/Rollout",
            request_serializer=serialized,
            response_deserializer=pb.RolloutResponse.FromString,
        )()
        hello = pb.Hello(protocol=PROTOCOL_VERSION, client="load", offer=OFFER.to_message())
        welcome = await self._answer(call, pb.RolloutRequest(hello=hello))
        codec = ObservationCodec(PolicySpec.from_message(welcome.welcome.needs))
        self.opened += 1
        for episode in range(1, EPISODES_PER_SESSION + 1):
            await self._answer(call, pb.RolloutRequest(episode_start=pb.EpisodeStart(number=episode, seed=episode)))
            for step in range(STEPS):
                if time.monotonic() >= self.end:
                    break
                due = time.monotonic() + rng.uniform(0.5, 1.5) / self.hz
                request = codec.write(episode, step, {STATE: np.full(SHAPE, step, np.float32)})
                assert request is not None
                began = time.perf_counter()
                answer = await self._answer(call, request)
                self.waits.append(time.perf_counter() - began)
                if (answer.chunk.episode, answer.chunk.step) != (episode, step):
                    self.errors["a chunk for another observation"] += 1
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.episodes += 1
        await call.done_writing()
        await call.code()

    async def _answer(self, call: Any, request: pb.RolloutRequest | bytes) -> pb.RolloutResponse:
        await call.write(request)
        answer = await asyncio.wait_for(call.read(), ANSWER_SECONDS)
        if answer is grpc.aio.EOF:
            self.errors[f"{(await call.code()).name}: {await call.details()}"] += 1
            raise TimeoutError
        return answer  # type: ignore[no-any-return]


async def watched(load: Load, sessions: int, server: psutil.Process) -> list[tuple[float, float]]:
    """Plays with so many sessions; returns the server's memory in MiB, by the time."""
    playing = asyncio.gather(*(load.play(number) for number in range(sessions)))
    memory: list[tuple[float, float]] = []
    while not playing.done():
        memory.append((time.monotonic(), server.memory_info().rss / 2**20))
        await asyncio.wait({playing}, timeout=SAMPLE_SECONDS)
    await playing
    return memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--hz", type=float, default=5.0, help="observations per second of each session")
    options = parser.parse_args()
    arguments = ["-m", "sparring.policy_server", "--policy=zero", "--listen=127.0.0.1:0", "--exit-with-parent"]
    arguments += [f"--policy-args={json.dumps({'observations': [STATE]})}", "--grace=1"]
    arguments += [f"--max-sessions={2 * options.sessions}", f"--max-sessions-per-peer={2 * options.sessions}"]
    with child(*arguments) as server:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["listening"][0]
        process = psutil.Process(server.pid)
        load = Load(address, options.hz, time.monotonic() + options.seconds)
        began = time.monotonic()
        memory = asyncio.run(watched(load, options.sessions, process))
        seconds = time.monotonic() - began
        used = process.cpu_times()
    _report(options.sessions, seconds, load, memory, used.user + used.system)


def _report(sessions: int, seconds: float, load: Load, memory: list[tuple[float, float]], server_cpu: float) -> None:
    waits = np.sort(np.array(load.waits)) * 1000
    p50, p99, worst = (float(np.quantile(waits, q)) for q in (0.5, 0.99, 1.0))
    first, last = memory[0][0], memory[-1][0]
    # The first fifth is for sessions to come, and for caches to fill.
    settled = [mib for when, mib in memory if first + (last - first) * 0.2 <= when < first + (last - first) * 0.4]
    ending = [mib for when, mib in memory if when >= first + (last - first) * 0.8]
    early, late = float(np.mean(settled or [memory[0][1]])), float(np.mean(ending))
    for sentence, count in load.errors.items():
        print(f"{count} × {sentence}")  # noqa: T201 - a script
    show(
        f"{sessions} sessions for {seconds:.0f} s",
        ["", ""],
        [
            ["observations", f"{len(waits):,}"],
            ["per second", f"{len(waits) / seconds:,.0f}"],
            ["round trip, ms: p50, p99, worst", f"{p50:.1f}  {p99:.1f}  {worst:.0f}"],
            ["errors", str(load.errors.total())],
            ["server's memory, MiB: early, late", f"{early:.1f}  {late:.1f}"],
            ["server's CPU, % of a core", f"{100 * server_cpu / seconds:.0f}"],
        ],
    )
    conclude(
        "load_sessions",
        target="no error, and memory late within 5 % of early",
        met=not load.errors and late <= 1.05 * early,
        sessions=sessions,
        seconds=seconds,
        observations=len(waits),
        episodes=load.episodes,
        sessions_opened=load.opened,
        p50_ms=p50,
        p99_ms=p99,
        worst_ms=worst,
        errors=dict(load.errors),
        memory_mib={"early": early, "late": late, "peak": max(mib for _, mib in memory)},
        server_cpu_percent=100 * server_cpu / seconds,
    )


if __name__ == "__main__":
    main()
