"""Rules about episodes: the same ones again, whatever else has happened; and how they end."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from sparring.env_worker.benchmark import NOTHING, Names, Step
from sparring.env_worker.compliance.subject import (
    Episode,
    EpisodeFingerprint,
    StepFingerprint,
    Subject,
    actions,
    difference,
    strange_generators,
)
from sparring.env_worker.episode.kept_actions import KeptActions
from sparring.env_worker.episode.play import Order
from sparring.env_worker.episode.replay import ReplayDiverged, replay_episode
from sparring.protos.action_list import unpack
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.record import EpisodeRecord
from sparring.protos.rules import NotApplicable, expect
from sparring.protos.trace import Trace

_ANOTHER_PROCESS: Final = 600.0
"""Seconds that another process may take."""
_LONGEST: Final = 2000
"""Steps that are played at most to see the end of an episode."""


def the_same_episode_again(subject: Subject) -> None:
    """The same seed and index give the same episode, bit for bit, in the same simulator."""
    with subject.simulator() as simulator:
        for episode in subject.episodes:
            first, second = subject.play(simulator, episode), subject.play(simulator, episode)
            _same(first, second, episode, "played twice in one simulator")


def the_same_episode_in_a_new_simulator(subject: Subject) -> None:
    """The same seed and index give the same episode, bit for bit, in a new simulator."""
    for episode, reference in zip(subject.episodes, subject.reference, strict=True):
        with subject.new_simulator() as simulator:
            _same(reference, subject.play(simulator, episode), episode, "played in two simulators")


def the_same_episode_in_another_process(subject: Subject) -> None:
    """The same seed and index give the same episode, bit for bit, in another process."""
    kind = type(subject.benchmark)
    if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
        raise NotApplicable(f"{kind.__qualname__} cannot be imported there; define it at the top of a module.")
    order = {
        "benchmark": f"{kind.__module__}:{kind.__qualname__}",
        "task": subject.task.name,
        "arguments": subject.arguments,
        "episodes": len(subject.episodes),
        "steps": subject.steps,
    }
    with tempfile.TemporaryDirectory(prefix="sparring-check-") as folder:
        answer = Path(folder, "traces.json")
        done = subprocess.run(
            [sys.executable, "-m", "sparring.env_worker.compliance.another_process", json.dumps(order), str(answer)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANOTHER_PROCESS,
            check=False,
        )
        expect(done.returncode == 0, f"another process failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        traces = [[StepFingerprint(**frame) for frame in trace] for trace in json.loads(answer.read_text())]
    for episode, reference, trace in zip(subject.episodes, subject.reference, traces, strict=True):
        _same(reference, trace, episode, "played in two processes")


def looking_changes_nothing(subject: Subject) -> None:
    """Looking changes nothing: rewards and ends are the same, whatever is looked at, and so is what is seen at last."""
    with subject.simulator() as simulator:
        everything = frozenset(simulator.offers.observations)
        for episode, reference in zip(subject.episodes, subject.reference, strict=True):
            dense = subject.play(simulator, episode, look=lambda _: everything)
            _same(dense, reference, episode, "looking at everything in every step, and now and then")
            last = len(dense) - 1
            once = subject.play(simulator, episode, look=partial(_only_at, last, everything))
            _same(dense, once, episode, "looking at everything in every step, and in the last alone")
            for name in sorted(everything):
                alone = subject.play(simulator, episode, look=partial(_only_at, last, frozenset([name])))
                _same(dense, alone, episode, f"looking at everything in every step, and at {name!r} alone in the last")


def reset_leaves_nothing_behind(subject: Subject) -> None:
    """Reset leaves nothing behind of the episode before, whatever its length."""
    with subject.simulator() as simulator:
        limit = min(simulator.max_steps, _LONGEST)
        before = Episode(subject.episodes[-1].seed + 17, subject.episodes[-1].index + 1)
        for length, said in ((0, "none"), (1, "one step"), (subject.steps, f"{subject.steps} steps"), (limit, "all")):
            simulator.reset(seed=before.seed, index=before.index, look=NOTHING)
            if length:
                subject.play(simulator, before, look=lambda _: NOTHING, steps=length)
            episode, reference = subject.episodes[0], subject.reference[0]
            trace = subject.play(simulator, episode)
            _same(reference, trace, episode, f"played first, and after another episode ({before}; {said} of it)")


def episodes_end_in_time(subject: Subject) -> None:
    """An episode ends: terminated, or truncated after `max_steps`; a task that says a limit says that one."""
    with subject.simulator() as simulator:
        limit = simulator.max_steps
        expect(isinstance(limit, int) and limit > 0, f"max_steps is {limit!r}.")
        said = subject.task.max_steps
        expect(said in (0, limit), f"the task says max_steps={said}, its simulator {limit}.")
        if limit > _LONGEST:
            raise NotApplicable(f"max_steps is {limit}; {_LONGEST} are played at most.")
        for episode in subject.episodes:
            simulator.reset(seed=episode.seed, index=episode.index, look=NOTHING)
            steps = 0
            for action in actions(simulator.offers, episode.seed, limit):
                step = simulator.step(action, look=NOTHING)
                steps += 1
                if step.terminated or step.truncated:
                    break
            ended = step.terminated or step.truncated
            expect(ended, f"{episode}: neither terminated nor truncated after max_steps={limit} steps.")
            early = step.truncated and not step.terminated and steps < limit
            expect(not early, f"{episode}: truncated at step {steps}, before max_steps={limit}.")


def steps_can_be_recorded(subject: Subject) -> None:
    """A step says what can be recorded: rewards and metrics are finite, ends are booleans, success too, or None."""
    with subject.simulator() as simulator:
        for episode in subject.episodes:
            simulator.reset(seed=episode.seed, index=episode.index, look=NOTHING)
            for number, action in enumerate(actions(simulator.offers, episode.seed, subject.steps), start=1):
                step = simulator.step(action, look=NOTHING)
                _recordable(step, f"{episode}, step {number}")
                if step.terminated or step.truncated:
                    break


def closing_twice_is_once(subject: Subject) -> None:
    """A simulator can be closed twice, also one that was never reset; another one goes on as before."""
    untouched = subject.benchmark.make(subject.task, subject.settings)
    untouched.close()
    untouched.close()
    with subject.simulator() as simulator:
        other = subject.benchmark.make(subject.task, subject.settings)
        episode, reference = subject.episodes[0], subject.reference[0]
        subject.play(other, episode, steps=1)
        other.close()
        other.close()
        _same(reference, subject.play(simulator, episode), episode, "played alone, and after another was closed")


def recorded_actions_play_it_again(subject: Subject) -> None:
    """Recorded actions play the same episode again, for films and checks; else the benchmark says `replays = False`."""
    rules = EpisodeRules(max_steps=subject.steps)
    with subject.simulator() as simulator:
        for episode in subject.episodes:
            order = Order(subject.task, episode.index, episode.seed, rules)
            given = actions(simulator.offers, episode.seed, min(subject.steps, simulator.max_steps))
            first, second = KeptActions(simulator), KeptActions(simulator)
            with strange_generators():
                then = replay_episode(simulator, order, given, [first])
            try:
                with strange_generators():
                    now = replay_episode(simulator, order, unpack(first.content), [second])
            except ReplayDiverged as diverged:
                found = [diverged.sentence.rstrip(".")]
            else:
                found = _differences(then, now)
            traced = Trace.unpack(first.trace).first_difference(Trace.unpack(second.trace))
            if traced is not None:
                found.append(f"{traced.what} at step {traced.step}")
            if found and not subject.benchmark.replays:
                raise NotApplicable(f"the benchmark says replays = False, and so it is: {found[0]}.")
            expect(
                not found,
                f"{episode}, played again from its actions: {'; '.join(found)}. A benchmark of such simulators says "
                "replays = False, and is filmed while the policy plays.",
            )
    if not subject.benchmark.replays:
        raise NotApplicable("the benchmark says replays = False; here they came out the same.")


RULES: Final = (
    the_same_episode_again,
    the_same_episode_in_a_new_simulator,
    the_same_episode_in_another_process,
    looking_changes_nothing,
    reset_leaves_nothing_behind,
    episodes_end_in_time,
    steps_can_be_recorded,
    closing_twice_is_once,
    recorded_actions_play_it_again,
)


def _differences(then: EpisodeRecord, now: EpisodeRecord) -> list[str]:
    return [
        f"{name} {getattr(then, name)!r} then, {getattr(now, name)!r} now"
        for name in ("outcome", "steps", "reward_sum", "reward_max")
        if getattr(then, name) != getattr(now, name)
    ]


def _only_at(last: int, names: Names, step: int) -> Names:
    return names if step == last else NOTHING


def _same(one: EpisodeFingerprint, other: EpisodeFingerprint, episode: Episode, ways: str) -> None:
    found = difference(one, other)
    expect(not found, f"{episode}, {ways}: {found}.")


def _recordable(step: Step, when: str) -> None:
    for name in ("terminated", "truncated", "success"):
        value = getattr(step, name)
        known = name != "success" or value is not None
        expect(not known or type(value) is bool, f"{when}: {name} is {value!r}, a {type(value).__name__}, not a bool.")
    expect(math.isfinite(step.reward), f"{when}: the reward is {step.reward!r}.")
    for metric, number in step.metrics.items():
        expect(math.isfinite(number), f"{when}: the metric {metric!r} is {number!r}.")
