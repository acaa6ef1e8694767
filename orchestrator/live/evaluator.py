"""Evaluation while training: a policy that lives in this process, and workers that stay between calls.

With warm_workers.py the only file of this room that imports the policy server itself: the policy is an object here, so
here it is served.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from sparring.orchestrator.execution.broken_code import broken_code_kept
from sparring.orchestrator.execution.in_process import evaluate_in_process
from sparring.orchestrator.execution.prepare import prepare
from sparring.orchestrator.live.background import Background
from sparring.orchestrator.live.keywords import KEYWORDS, told_in_keywords
from sparring.orchestrator.live.warm_workers import WarmWorkers
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.results.reading import FILE_NAME
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.run.listeners import Listeners, RunListener
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.settings import RunSettings, read_settings, setting_fields
from sparring.orchestrator.settings.run import SERVING
from sparring.orchestrator.trackers.tracking import tracking
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError, unknown

if TYPE_CHECKING:
    from sparring.policy_server.policies.base import Policy

_KEPT: Final = 4
"""So many sets of workers are kept; the one that was not used for longest makes room for another."""

_NOT_HERE: Final = {
    "task": "it is called `tasks` here",
    "policy_arg": "the policy is made already",
    "rename": "let the policy ask for the names that the benchmark has",
}
_SERVED_HERE: Final = ("policy_server", "policy_token_file", "policy_ca", "policy_tls_cert", "policy_tls_key")
"""What says where the policy is, beside the settings of who hosts it."""


class Evaluator:
    """Evaluates policies that live in this process; workers and their simulators stay between calls, until closed.

    Use it as a context, or call `close`. Everything it starts also ends with this process, however that ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._background: Background | None = None
        self._kept: list[WarmWorkers] = []

    def evaluate(
        self,
        policy: Policy,
        *,
        benchmark: str | None = None,
        tasks: str | Sequence[str] | None = None,
        episodes: int = 10,
        slots: int | str = "auto",
        output: str | Path | None = None,
        watchers: Iterable[RunListener] = (),
        progress: bool = False,
        **settings: Any,
    ) -> Results:
        """Evaluates a policy as it is now; calls with the same arguments play the same episodes.

        Blocks until all episodes have ended, also where an event loop is running (a notebook). Torch modules of the
        policy are in evaluation mode meanwhile, and back in the mode they were in afterwards; called from the main
        thread, it leaves the global random generators of Python, numpy and torch where they were.

        Args:
            policy: Has the members of `sparring.policy_server.policies.base.Policy`; its class need not be importable.
            benchmark: As for `sparring run --benchmark`.
            tasks: Groups and tasks, comma-separated or a list.
            episodes: Per task.
            slots: Episodes at once.
            output: A new folder for the files that `sparring run` writes; None writes none.
            watchers: Listeners: they hear of this evaluation as it goes, in a thread of ours (`sparring.RunListener`).
            progress: Whether to show how far it is, on standard error: a live picture on a terminal, elsewhere a line
                every few seconds.
            settings: Any other setting of `sparring run`: `seed=0`, `benchmark_arg={"resolution": 64}`, `track="wandb"`
                with `track_step=1000`, …

        Returns:
            What `sparring run` comes to: the episodes, and success rates with intervals.

        Raises:
            UsageError: If the policy does not fit the benchmark, or a setting is wrong.
            SparringError: If the evaluation could not be finished.
        """
        from sparring.policy_server.policies import checked

        if self._pid != os.getpid():
            raise UsageError("an Evaluator cannot be used in a forked process; make a new one there.")
        name = f"live:{type(policy).__module__}.{type(policy).__qualname__}"
        values = {"benchmark": benchmark, "task": tasks, "episodes": episodes, "slots": slots, "output": output}
        with told_in_keywords():
            checked(name, policy)
            listener = Listeners(watchers)
            resolved = _settings(name, values, settings)
            with broken_code_kept(resolved.output.folder):
                plan = make_plan(resolved)
                prepare(resolved, plan)
            if progress:
                listener.add(_display(name, resolved, plan))
            with self._lock, _training_preserved(policy), tracking(resolved) as trackers:
                for tracker in trackers:
                    listener.add(tracker)
                if resolved.plan.in_process:
                    return evaluate_in_process(policy, resolved, plan, listener, KEYWORDS)
                background = self._background = self._background or Background()
                return background.run(self._evaluate(policy, resolved, plan, listener))

    def close(self) -> None:
        """Ends the workers, and an evaluation that another thread is waiting for. Evaluating again starts others."""
        background = self._background
        in_a_fork = self._pid != os.getpid()  # where there is only a copy; the workers are the parent's
        if background is None or in_a_fork:
            return
        background.interrupt()
        with self._lock:
            if self._background is background:
                self._background = None
                background.run(self._close_all())
                background.close()

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _evaluate(self, policy: Policy, settings: RunSettings, plan: Plan, listener: Listeners) -> Results:
        workers = await self._workers_for(settings, plan)
        try:
            return await workers.evaluate(policy, settings, plan, listener)
        finally:
            if workers.broken:
                self._kept.remove(workers)
                await workers.close()

    async def _workers_for(self, settings: RunSettings, plan: Plan) -> WarmWorkers:
        found = next((workers for workers in self._kept if workers.fits(settings, plan)), None)
        if found is not None:
            self._kept.remove(found)
            if found.broken:  # since the last call
                await found.close()
                found = None
        elif len(self._kept) >= _KEPT:
            await self._kept.pop(0).close()
        self._kept.append(found or WarmWorkers(settings, plan))
        return self._kept[-1]

    async def _close_all(self) -> None:
        while self._kept:
            await self._kept.pop().close()


def _settings(name: str, values: dict[str, Any], others: dict[str, Any]) -> RunSettings:
    not_here = _not_here()
    for key in others:
        if key in not_here:
            raise UsageError(f"evaluate() takes no {key!r}: {not_here[key]}.")
        if key not in setting_fields():
            known = {"tasks", *setting_fields()} - {*not_here, "policy"}
            raise unknown("setting of evaluate():", key, sorted(known))
    if values["task"] is not None and not isinstance(values["task"], str):
        values["task"] = ",".join(values["task"])
    settings = read_settings({**values, **others, "policy": name})
    output = settings.output
    if output.folder is not None and (output.folder / FILE_NAME).exists():
        raise UsageError(
            f"{str(output.folder)!r} holds results already, of a policy that was another one then; "
            "give each call an output folder of its own."
        )
    if output.folder is None and output.video != "none":
        raise UsageError(f"films are written to the output folder: give one with {Hint('output')}.")
    return settings


def _not_here() -> dict[str, str]:
    """Returns the settings that `evaluate()` does not take, and why."""
    serving = [name for name in setting_fields() if name.startswith(SERVING)]
    return {**_NOT_HERE, **dict.fromkeys([*_SERVED_HERE, *serving], "the policy is served from this process")}


@contextmanager
def _training_preserved(policy: object) -> Iterator[None]:
    """Lets the caller's program go on afterwards as if nothing had been evaluated."""
    from sparring.policy_server.policies.preserve import evaluation_mode, preserved_rng

    # Who evaluates in a thread of its own may train meanwhile in the main one, and needs its random numbers there.
    alone = threading.current_thread() is threading.main_thread()
    with preserved_rng() if alone else nullcontext(), evaluation_mode(policy):
        yield


def _display(name: str, settings: RunSettings, plan: Plan) -> RunListener:
    from sparring.orchestrator.display.progress import make_display
    from sparring.orchestrator.display.screen import error_console
    from sparring.orchestrator.display.title import title

    # A policy in this process, and this thread, may want the screen: for pdb, or to print.
    return make_display(error_console(), title(name, plan), plain=settings.plan.in_process)


_shared: Evaluator | None = None


def evaluate(
    policy: Policy,
    *,
    benchmark: str | None = None,
    tasks: str | Sequence[str] | None = None,
    episodes: int = 10,
    slots: int | str = "auto",
    output: str | Path | None = None,
    watchers: Iterable[RunListener] = (),
    progress: bool = False,
    **settings: Any,
) -> Results:
    """Evaluates a policy with workers that stay until `close()` or the end of this process.

    See `Evaluator.evaluate`, which takes the same arguments.
    """
    global _shared
    if _shared is None or _shared._pid != os.getpid():
        _shared = Evaluator()
        atexit.register(_shared.close)
    return _shared.evaluate(
        policy,
        benchmark=benchmark,
        tasks=tasks,
        episodes=episodes,
        slots=slots,
        output=output,
        watchers=watchers,
        progress=progress,
        **settings,
    )


def close() -> None:
    """Ends the workers that `evaluate` keeps. Evaluating again starts others."""
    if _shared is not None:
        _shared.close()
