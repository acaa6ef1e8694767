"""One episode in this process, with everything told: `sparring run --debug`. Nothing is kept of it."""

from __future__ import annotations

import bdb
import json
import pdb
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Literal

from sparring.env_worker.benchmark import Observation, Step
from sparring.env_worker.episode.observers import EpisodeObserver
from sparring.env_worker.episode.session import Session
from sparring.env_worker.registry import get_benchmark
from sparring.env_worker.rendering.choice import draw_here
from sparring.env_worker.worker.player import Player
from sparring.orchestrator.execution.in_process import LocalSessions, check, load_local
from sparring.orchestrator.plan import EpisodeId, Plan
from sparring.orchestrator.run.errors import Interrupted
from sparring.orchestrator.run.orders import assignment_message
from sparring.orchestrator.settings import RunSettings
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import FLAGS, Hint, render
from sparring.protos.chunk import Chunk
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.record import EpisodeRecord
from sparring.protos.spec import Offer, PolicySpec
from sparring.protos.tensor import Array
from sparring.protos.tracebacks import Tracebacks, cause_of

Say = Callable[[str], None]


def debug_episode(
    settings: RunSettings, plan: Plan, say: Say, *, index: int = 0, stop_in_pdb: bool = False
) -> EpisodeRecord:
    """Plays one episode of a plan's first task, and tells of each step and of whatever is raised.

    Args:
        settings: Of the run.
        plan: Of which it is.
        say: Takes lines.
        index: Which of the task's episodes.
        stop_in_pdb: Whether pdb is started where something was raised.

    Raises:
        UsageError: If the policy cannot be made, or does not fit; or this cannot be done here.
        Interrupted: If the debugger was left.
    """
    if settings.policy.name is None:
        raise UsageError(f"an episode is debugged with its policy in this process: name it with {Hint('policy')}.")
    check(settings)
    part = settings.plan.parts[0]
    episode = EpisodeId(part.label, plan.tasks[part.label][0].name, index)
    say(f"{episode}, seed {plan.seed_of(episode)}: played in this process; nothing is kept of it")
    told = _Told(say, stop_in_pdb)
    draw_here(settings.worker.render_device)
    try:
        try:
            policy = load_local(settings, _Nowhere())
        except SparringError as error:
            told.raised(error)
            raise
        assignment = assignment_message(settings, part)
        benchmark = get_benchmark(part.benchmark)
        own_settings = benchmark.read_settings(json.loads(assignment.benchmark_settings))
        benchmark.prepare(own_settings)
        sessions = _ToldSessions(LocalSessions(policy, assignment), told)
        player = Player(benchmark, own_settings, sessions, on_error=told.raised)
        lease = pb.Lease(lease=1, task=episode.task, index=index, seed=plan.seed_of(episode))
        if plan.repeats > 1:
            lease.episode, lease.policy_seed = plan.round_of(index), plan.policy_seed_of(episode)
        try:
            message = player.play(lease, assignment, [told])
        finally:
            player.close()
    except bdb.BdbQuit:
        raise Interrupted("the debugger was left.") from None
    if message.WhichOneof("message") != "result":
        raise UsageError(message.refused.reason or message.lost.reason)
    record = EpisodeRecord.from_message(message.result)
    say(render(_summary(record), FLAGS))
    return record


def _summary(record: EpisodeRecord) -> str:
    if record.outcome == "error":
        return f"error: {record.error}"
    asked = "once" if record.round_trips == 1 else f"{record.round_trips} times"
    return (
        f"{record.outcome} after {record.steps} steps, return {record.reward_sum:g}; the policy was asked {asked}; "
        f"{record.out_of_range} actions outside the action space; seconds: {record.physics_s:.3f} simulator, "
        f"{record.render_s:.3f} rendering, {record.policy_s + record.transport_s:.3f} policy"
    )


class _Nowhere(Tracebacks):
    """Keeps no traceback: each is told in full."""

    def keep(self, whose: str, sentence: str, text: str) -> str:
        return ""


class _Told(EpisodeObserver):
    """Tells of an episode, step by step, with how long each took, and of what is raised in it."""

    def __init__(self, say: Say, stop_in_pdb: bool) -> None:
        self._say = say
        self._stop_in_pdb = stop_in_pdb
        self._since = time.perf_counter()

    def raised(self, error: Exception) -> None:
        """Tells where it was raised, all of it, and lets the user look around there if that was asked for."""
        cause = cause_of(error)
        if cause is None:
            return
        self._say("".join(traceback.format_exception(cause)).rstrip())
        if self._stop_in_pdb and cause.__traceback__ is not None:
            pdb.post_mortem(cause.__traceback__)

    def begins(self) -> None:
        """Begins to measure how long the next thing takes."""
        self._since = time.perf_counter()

    def asked(self, what: Literal["new_session", "act"], about: str) -> None:
        """Tells of an answer of the policy."""
        self._say(f"{what}(): {self._milliseconds()}{about}")

    def on_reset(self, observation: Observation) -> None:
        self._say(f"reset: {self._milliseconds()}; looked at {_shapes(observation)}")

    def on_look(self, step: int, seen: Mapping[str, Array]) -> None:
        self.begins()

    def on_step(self, step: int, action: Array, result: Step) -> None:
        ends = [word for word in ("success", "terminated", "truncated") if getattr(result, word)]
        more = "".join(f", {word}" for word in ends)
        seen = f"; looked at {_shapes(result.observation)}" if result.observation else ""
        self._say(f"step {step}: {self._milliseconds()}, reward {result.reward:g}{more}{seen}")

    def _milliseconds(self) -> str:
        now = time.perf_counter()
        took, self._since = now - self._since, now
        return f"{1000 * took:.1f} ms"


def _shapes(observation: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {array.shape}" for name, array in observation.items()) or "nothing"


class _ToldSessions:
    """The sessions of a policy in this process, whose answers are told."""

    def __init__(self, inner: LocalSessions, told: _Told) -> None:
        self._inner = inner
        self._told = told

    def session_for(self, offer: Offer) -> Session:
        return _ToldSession(self._inner.session_for(offer), self._told)

    def end(self) -> None:
        self._inner.end()


class _ToldSession:
    def __init__(self, inner: Session, told: _Told) -> None:
        self._inner = inner
        self._told = told

    @property
    def needs(self) -> PolicySpec:
        return self._inner.needs

    def start(self, *, task: str, instruction: str, seed: int, index: int) -> None:
        self._told.begins()
        self._inner.start(task=task, instruction=instruction, seed=seed, index=index)
        self._told.asked("new_session", f", {instruction!r}")

    def act(self, tensors: Mapping[str, Array], *, step: int) -> Chunk:
        chunk = self._inner.act(tensors, step=step)
        self._told.asked("act", f", {len(chunk.actions)} actions")
        return chunk
