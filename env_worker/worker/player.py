"""Plays leases, one after the other: a simulator, a session of the policy, and an answer to each lease.

A lease may also be of a replay: recorded actions instead of the policy.

Knows nothing of processes and pipes, and not where the policy is: slots play this way, and `--in-process` runs.
"""

from __future__ import annotations

import bdb
import contextlib
import gc
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from sparring.env_worker.benchmark import Benchmark, Simulator, Task
from sparring.env_worker.conditions import conditions_of, versions_of
from sparring.env_worker.episode.attachment import Attachment
from sparring.env_worker.episode.film import Film, FilmLook, check_camera
from sparring.env_worker.episode.kept_actions import KeptActions
from sparring.env_worker.episode.live_frames import FrameRequest, LiveFrames
from sparring.env_worker.episode.observers import EpisodeObserver
from sparring.env_worker.episode.play import Order, run_episode
from sparring.env_worker.episode.recording import Recording, watched
from sparring.env_worker.episode.replay import replay_episode
from sparring.env_worker.episode.seen_film import SeenFilm
from sparring.env_worker.episode.session import Session
from sparring.env_worker.rendering.check import SameRendererSession
from sparring.env_worker.rendering.mark import drawing
from sparring.env_worker.worker.failures import LeaseRefused, failed_result, lost_message, refused_message, told
from sparring.policy_server.client import Description, PolicyRefused, PolicyUnreachable
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.action_list import unpack
from sparring.protos.advice import Hint
from sparring.protos.conditions import plain
from sparring.protos.episode_rules import EpisodeRules
from sparring.protos.errors import UsageError
from sparring.protos.pieces import AttachmentKind, AttachmentMissing, declare, pieces_of, size_of
from sparring.protos.process import give_back_freed_memory
from sparring.protos.record import OUTCOMES
from sparring.protos.spec import Offer

log = logging.getLogger(__name__)

_Attachments = Mapping[AttachmentKind, Attachment]


class Sessions(Protocol):
    """Gives a player its session; it has one at a time."""

    def session_for(self, offer: Offer) -> Session:
        """Returns a session for a simulator that offers this: the one there is, if it still will do.

        Raises:
            PolicyRefused: If the policy does not fit what is offered.
            PolicyUnreachable: If there is no policy to be had in time.
        """

    def end(self) -> None:
        """Ends the session; the next is a new one."""


@dataclass(frozen=True)
class _Stage:
    task: Task
    simulator: Simulator


@dataclass
class _SoFar:
    """How far a lease has come: what is needed of it, however it ends."""

    connected: bool = False
    """Whether there has been a session of the policy, or none is needed."""
    attachments: _Attachments = field(default_factory=dict)
    actions: KeptActions | None = None


class Player:
    """Plays leases of one benchmark; a simulator stays until a lease of another task comes.

    Args:
        benchmark: Whose simulators.
        settings: The benchmark's own.
        sessions: Of the policy.
        attach: Takes films and recordings, in pieces, before the result that they belong to.
        on_error: Called with whatever an episode raised, before anything is made of it.
        frames: Says whether somebody looks at what is played, and takes what they see.
    """

    def __init__(
        self,
        benchmark: Benchmark,
        settings: Any,
        sessions: Sessions,
        attach: Callable[[pb.Piece], None] = lambda piece: None,
        on_error: Callable[[Exception], None] = lambda error: None,
        frames: FrameRequest | None = None,
    ) -> None:
        self._on_error = on_error
        self._frames = frames
        self._benchmark = benchmark
        self._settings = settings
        self._sessions = sessions
        self._attach = attach
        self._stage: _Stage | None = None
        self._versions: Mapping[str, str] | None = None
        """Of what decides numbers, once a recording has asked for them."""

    def play(
        self, lease: pb.Lease, assignment: pb.Assignment, observers: Sequence[EpisodeObserver] = ()
    ) -> pb.WorkerMessage:
        """Plays a lease and returns what ends it: a result, a loss, or a refusal of the whole run.

        Args:
            lease: Which episode.
            assignment: How episodes are played in this run.
            observers: Who watches, beside the film and the recording that the lease asks for.
        """
        with contextlib.ExitStack() as kept:
            message, attachments = self._play(lease, assignment, observers, kept)
            if message.WhichOneof("message") == "result":
                self._hand_over(message.result, attachments)
            return message

    def prepare(self, task: str, *, images: bool) -> None:
        """Makes the simulator of a task before the first lease comes. What is wrong with it, that lease will tell.

        Args:
            task: Its name.
            images: Whether images of it will be wanted: what draws them is made, too.
        """
        try:
            stage = self._staged(task)
            if images:
                with drawing():  # who dies here dies of what draws
                    stage.simulator.prepare_images()
        except Exception as error:  # noqa: BLE001  # it is not an episode's yet
            log.debug("%s was not made before its time: %s", task, told(error))
            self._drop_stage()

    def close(self) -> None:
        """Frees the simulator, so that its GL context does not complain at exit."""
        self._drop_stage()

    def _play(
        self,
        lease: pb.Lease,
        assignment: pb.Assignment,
        observers: Sequence[EpisodeObserver],
        kept: contextlib.ExitStack,
    ) -> tuple[pb.WorkerMessage, _Attachments]:
        """Returns what ends a lease, and the attachments that go with it: they are closed with `kept`."""
        began = time.perf_counter()
        so_far = _SoFar()
        try:
            result = self._result(lease, assignment, observers, kept, so_far)
        except UsageError as refusal:  # of whoever: what no attempt can cure, and no other episode either
            self._on_error(refusal)
            return refused_message(lease, refusal), {}
        except PolicyUnreachable as loss:
            self._sessions.end()
            return lost_message(lease, loss, connected=so_far.connected), {}
        except bdb.BdbQuit:  # who quits the debugger wants all of it to end
            raise
        except Exception as error:  # noqa: BLE001  # the boundary: whatever is raised becomes an error, never a score
            self._on_error(error)
            log.warning("%s #%d: %s", lease.task, lease.index, told(error))
            self._sessions.end()
            self._drop_stage()  # a simulator that raised is not to be trusted with another episode
            result = failed_result(lease, error)
            if lease.replay and so_far.actions is not None:
                result.trace = so_far.actions.trace  # to tell at which step it is no more what was recorded
            so_far.attachments = {}
        result.seconds = time.perf_counter() - began
        return pb.WorkerMessage(result=result), so_far.attachments

    def _result(
        self,
        lease: pb.Lease,
        assignment: pb.Assignment,
        observers: Sequence[EpisodeObserver],
        kept: contextlib.ExitStack,
        so_far: _SoFar,
    ) -> pb.Result:
        """Plays a lease to its end; whatever is raised ends it otherwise."""
        stage = self._staged(lease.task)
        rules = EpisodeRules.from_message(assignment.rules)
        if rules.metric == "success" and stage.simulator.tells_success is False:
            raise _silent_on_success(stage)
        session = None if lease.replay else self._session_for(stage.simulator)
        so_far.connected = True
        order = Order(
            task=stage.task,
            index=lease.episode if lease.HasField("episode") else lease.index,
            seed=lease.seed,
            policy_seed=lease.policy_seed if lease.HasField("policy_seed") else None,
            rules=rules,
        )
        so_far.attachments = self._attachments(stage, lease, order, assignment, session)
        for attachment in so_far.attachments.values():
            kept.callback(attachment.close)
        watching: list[EpisodeObserver] = [*so_far.attachments.values()]
        if lease.keep_actions:
            so_far.actions = KeptActions(stage.simulator)
            watching.append(so_far.actions)
        watching.extend(observers)
        if self._frames is not None:
            watching.append(LiveFrames(stage.simulator, self._frames, lease.task, lease.index))
        if session is None:
            record = replay_episode(stage.simulator, order, unpack(lease.replay), watching)
        else:
            if assignment.renderers:
                session = SameRendererSession(session, stage.simulator.meter, assignment.renderers)
            record = run_episode(stage.simulator, session, order, watching)
        if rules.metric == "success" and record.outcome == "played":
            raise _silent_on_success(stage)
        result = record.to_message(lease.lease)
        result.warnings.extend(stage.simulator.warnings)
        if so_far.actions is not None:
            result.actions = so_far.actions.content
            result.trace = so_far.actions.trace if so_far.actions.content else b""
            missing = so_far.actions.missing
            result.missing = f"its actions are missing: {missing}" if missing else ""
        return result

    def _attachments(
        self,
        stage: _Stage,
        lease: pb.Lease,
        order: Order,
        assignment: pb.Assignment,
        session: Session | None,
    ) -> dict[AttachmentKind, Attachment]:
        attachments: dict[AttachmentKind, Attachment] = {}
        if lease.film_later:
            check_camera(stage.simulator)
        if lease.film:
            look = FilmLook.of(lease.style, f"{lease.task} #{lease.index}")
            # What is filmed for the run itself is the same, whether it is filmed live or afterwards.
            last = len(unpack(lease.replay)) if lease.replay and lease.HasField("style") else 0
            fps = lease.style.fps or assignment.video_fps
            attachments["video"] = Film(stage.simulator, fps=fps, look=look, last=last)
        elif lease.film_seen and session is not None:
            seen = SeenFilm(
                stage.simulator,
                fps=assignment.video_fps,
                limit=order.limit(stage.simulator),
                wanted=[name for name, number in OUTCOMES.items() if number in lease.film_seen],
            )
            if seen.may_come(session.needs, order.rules):
                attachments["video"] = seen
        if lease.record:
            about = self._about(order, getattr(session, "policy", None), assignment.benchmark)
            about["control_hz"] = stage.simulator.offers.control_hz
            about["action_space"] = _about_actions(stage.simulator.offers)
            about["history"] = 1 if session is None else session.needs.history
            names = watched(stage.simulator, lease.watch)
            attachments["recording"] = Recording(about, watched=names, every=lease.watch_every or 1)
        return attachments

    def _hand_over(self, result: pb.Result, attachments: _Attachments) -> None:
        """Passes films and recordings on, and says in the result what there was of them."""
        missing = [result.missing] if result.missing else []
        for kind, attachment in attachments.items():
            try:
                if attachment.file is not None:
                    for piece in pieces_of(result.lease, kind, attachment.file):
                        self._attach(piece)
                    declare(result, kind, size_of(attachment.file))
                elif attachment.missing:
                    raise AttachmentMissing(attachment.missing)
            except AttachmentMissing as error:
                missing.append(f"its {kind} is missing: {error.sentence}")
        result.missing = " ".join(missing)

    def _about(self, order: Order, policy: Description | None, benchmark: str) -> dict[str, object]:
        """Returns which episode it is, and what it was made with."""
        if self._versions is None:
            self._versions = versions_of(self._benchmark)
        conditions = conditions_of(self._benchmark, self._settings, order.rules, self._versions)
        known = {f.name: plain(getattr(self._settings, f.name)) for f in fields(self._settings)}
        return {
            "benchmark": benchmark,  # by the name that its run finds it by, as sessions have it
            "task": order.task.name,
            "index": order.index,
            "seed": order.seed,
            "instruction": order.task.instruction,
            "settings": known,
            "conditions": conditions.to_json(),
            "policy": None if policy is None else _about_policy(policy),
        }

    def _staged(self, name: str) -> _Stage:
        """Returns the simulator of a task, made if the last lease was of another one."""
        if self._stage is None or self._stage.task.name != name:
            self._end_stage()
            task = self._benchmark.tasks(name)[0]
            try:
                self._stage = _Stage(task, self._benchmark.make(task, self._settings))
            except ImportError as error:
                raise LeaseRefused(
                    f"the simulator of {name!r} cannot be made, because of what is not installed where the worker "
                    f"runs: {type(error).__name__}: {error}"
                ) from error
        return self._stage

    def _session_for(self, simulator: Simulator) -> Session:
        try:
            return self._sessions.session_for(simulator.offers)
        except PolicyRefused as refusal:
            raise LeaseRefused(refusal.sentence) from refusal

    def _drop_stage(self) -> None:
        """Ends the simulator where what came of its episodes is known: not being able to close it changes nothing."""
        try:
            self._end_stage()
        except bdb.BdbQuit:
            raise
        except Exception:  # the boundary: a simulator that is broken may well raise here, too
            log.exception("closing a simulator raised")

    def _end_stage(self) -> None:
        if self._stage is not None:
            simulator, self._stage = self._stage.simulator, None
            simulator.close()
            del simulator
            gc.collect()  # simulators are full of cycles
            give_back_freed_memory()


def _silent_on_success(stage: _Stage) -> LeaseRefused:
    """Returns why a run that is about success is refused: nothing could be said of its episodes."""
    return LeaseRefused(
        f"the simulator of {stage.task.name!r} does not say what success is. {Hint('metric', value='return')} "
        f"evaluates the sum of rewards instead. {stage.simulator.success_advice}".rstrip()
    )


def _about_policy(policy: Description) -> dict[str, object]:
    return {
        "name": policy.name,
        "arguments": plain(policy.arguments),
        "checkpoint_sha256": policy.checkpoint_sha256,
        "program_sha256": policy.program_sha256,
        "server_version": policy.server_version,
    }


def _about_actions(offer: Offer) -> dict[str, object]:
    """Returns what actions may be; JSON has no word for a bound that is not there."""
    low, high = (
        [bound if math.isfinite(bound) else None for bound in side] for side in (offer.action_low, offer.action_high)
    )
    return {"low": low, "high": high, "control": offer.control}
