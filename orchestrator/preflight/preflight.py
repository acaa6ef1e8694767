"""`preflight()`: plays a few steps and holds what was seen and done against what is known of the policy's training."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from sparring.env_worker.protocol import settings_that_move
from sparring.env_worker.registry import get_benchmark
from sparring.orchestrator.execution.prepare import prepare
from sparring.orchestrator.preflight.data_set import DataSet
from sparring.orchestrator.preflight.evidence import Ask, Evidence, PolicyNames
from sparring.orchestrator.preflight.facts import CheckpointFacts, read_checkpoint
from sparring.orchestrator.preflight.playing import Rehearsal, Rehearsed, play
from sparring.orchestrator.preflight.rules import actions, answers, images, sentences, states
from sparring.orchestrator.preflight.script import Script
from sparring.orchestrator.results.results import Results
from sparring.orchestrator.run.listeners import RunListener
from sparring.orchestrator.run.make_plan import make_plan
from sparring.orchestrator.settings import read_settings
from sparring.orchestrator.settings.protocols import with_protocols
from sparring.protos.advice import FLAGS, Dialect, Hint, hints_in, render
from sparring.protos.errors import UsageError
from sparring.protos.rules import Verdict, judge

EPISODES: Final = 2
STEPS: Final = 48
FITS: Final = "The policy and the benchmark fit together: names, sizes and types."
_DO_NOT_FIT: Final = "do not fit together"
_LEROBOT: Final = "lerobot:"


@dataclass(frozen=True)
class Preflight:
    """What was found.

    Attributes:
        policy: Its name.
        benchmark: Its name.
        task: That was played.
        verdicts: Of every rule: `FAILED` is a finding, `skipped` could not be checked.
        warnings: Sentences of the policy that whoever evaluates should know, such as the layout of a bridge.
    """

    policy: str
    benchmark: str
    task: str
    verdicts: Sequence[Verdict]
    warnings: Sequence[str] = ()

    @property
    def findings(self) -> list[Verdict]:
        """The rules that do not hold."""
        return [verdict for verdict in self.verdicts if verdict.kind == "FAILED"]

    def to_json(self, dialect: Dialect = FLAGS) -> dict[str, Any]:
        """Returns it for a program."""
        return {
            "policy": self.policy,
            "benchmark": self.benchmark,
            "task": self.task,
            "findings": len(self.findings),
            "checks": [
                {
                    "rule": verdict.rule,
                    "verdict": {"ok": "ok", "skipped": "unchecked", "FAILED": "found"}[verdict.kind],
                    "detail": render(verdict.detail, dialect),
                    "set": [_setting(hint) for hint in hints_in(verdict.detail)] if verdict.kind == "FAILED" else [],
                }
                for verdict in self.verdicts
            ],
            "warnings": [render(sentence, dialect) for sentence in self.warnings],
        }


def preflight(
    *,
    dataset: str | Path | None = None,
    dataset_feature: Mapping[str, str] | None = None,
    episodes: int = EPISODES,
    steps: int = STEPS,
    listeners: Iterable[RunListener] = (),
    **settings: Any,
) -> Preflight:
    """Plays a few steps and looks for the mistakes that make a policy fail without a word.

    To be called in the main thread, for signals.

    Args:
        dataset: Folder of the LeRobotDataset that the policy was trained on; by default the one that a checkpoint's
            training has written down, if it is inside the checkpoint's folder.
        dataset_feature: Features of the data set by the benchmark's observation, where names do not tell.
        episodes: How many the policy plays.
        steps: Of each, at most.
        listeners: Who watches the run.
        settings: Of `sparring run`: policy, policy_arg, benchmark, task, … Of several tasks the first is played.

    Raises:
        SparringError: If nothing could be played.
    """
    found: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="sparring-preflight-") as folder:
        wanted = PreflightRequest(
            Path(folder), settings, dataset=dataset, features=dataset_feature or {}, episodes=episodes, steps=steps
        )
        name, part = wanted.settings.policy.name, wanted.settings.plan.parts[0]
        about = (name or f"the policy at {wanted.settings.policy.policy_server}", part.benchmark, part.task)
        try:
            results = observe(wanted, lambda evidence: found.extend(verdicts_of(evidence)), listeners)
        except UsageError as error:
            if _DO_NOT_FIT not in error.sentence:
                raise
            return Preflight(*about, [Verdict(FITS, "FAILED", error.sentence)])
    return Preflight(*about, [Verdict(FITS, "ok"), *found], [*results.warnings, *wanted.warnings])


class PreflightRequest:
    """What is to be looked at.

    Args:
        folder: For what comes of it.
        given: Settings of `sparring run`.
        dataset: As for `preflight`.
        features: As for `preflight`.
        episodes: As for `preflight`.
        steps: As for `preflight`.

    Raises:
        UsageError: If one of these cannot be.
    """

    def __init__(
        self,
        folder: Path,
        given: Mapping[str, Any],
        *,
        dataset: str | Path | None = None,
        features: Mapping[str, str] | None = None,
        episodes: int = EPISODES,
        steps: int = STEPS,
    ) -> None:
        by_protocol = bool(given.get("protocol"))
        if by_protocol:  # what it stands for, but for how long episodes are
            given = {name: value for name, value in with_protocols(given).items() if name != "protocol"}
        ours: dict[str, Any] = {"max_steps": steps, "metric": "return", "actions": False, "episodes": episodes + 1}
        ours |= {"record": folder / "seen", "output": folder / "run"}
        several = read_settings({**given, **ours})
        if len(several.plan.parts) > 1:
            raise UsageError("one benchmark at a time is looked at.")
        ours["task"] = make_plan(several).tasks[several.plan.parts[0].label][0].name
        if not several.plan.in_process:
            ours["slots"] = 1  # one after the other: what the last one does, the first one tells
        self.folder = folder
        self.settings = read_settings({**given, **ours})
        self.features = features or {}
        part = self.settings.plan.parts[0]
        self._free = free_settings(part.benchmark, by_protocol=by_protocol or part.protocol is not None)
        known = checkpoint_of(self.settings.policy.name or "")
        self.checkpoint = known
        self.data_set = DataSet(Path(dataset).expanduser()) if dataset else _trained_on(known)
        sentence = make_plan(self.settings).tasks[self.settings.plan.parts[0].label][0].instruction
        self.script = None if self.data_set is None else Script.of(self.data_set, sentence, steps)

        named = None if dataset or known is None else known.named
        self.warnings = [] if named is None else [_not_read(named)]

    def evidence(self, played: Rehearsed, ask: Ask) -> Evidence:
        """Returns all that rules look at.

        A server elsewhere has said by now what it hosts. That is a name in sentences, and never a folder that is read:
        a server may be a stranger's, and would choose which of the files here are told of.
        """
        said = played.episodes[0].about.provenance.get("policy") or {}
        name = str(said.get("name") or self.settings.policy.name or "")
        rename = (said.get("arguments") or {}).get("rename")
        pairs = rename.items() if isinstance(rename, dict) else ()  # a server's argument of that name may be anything
        texts = {own: shown for own, shown in pairs if isinstance(shown, str)}
        names = PolicyNames(name, texts, elsewhere=self.settings.policy.name is None)
        return Evidence(
            policy=names,
            episodes=played.episodes,
            probe=played.probe,
            script=self.script,
            checkpoint=self.checkpoint,
            data_set=self.data_set,
            features=self.features,
            ask=ask,
            settings=self._free,
        )


def observe(
    wanted: PreflightRequest, examine: Callable[[Evidence], None], listeners: Iterable[RunListener] = ()
) -> Results:
    """Plays what is to be looked at, and has it examined while the policy can still be asked.

    Raises:
        SparringError: If nothing could be played.
    """
    plan = make_plan(wanted.settings)
    prepare(wanted.settings, plan)
    rehearsal = Rehearsal(wanted.settings, plan, wanted.script)
    return play(rehearsal, wanted.folder / "run", lambda played, ask: examine(wanted.evidence(played, ask)), listeners)


def checkpoint_of(name: str) -> CheckpointFacts | None:
    """Returns what the checkpoint of a policy says of its training; None: it is none, or is not on this machine."""
    if not name.startswith(_LEROBOT):
        return None
    reference = name.removeprefix(_LEROBOT)
    folder = Path(reference).expanduser()
    if not folder.is_dir():
        with suppress(Exception):  # there is no hub's library here, or the checkpoint is not in its cache
            from huggingface_hub import snapshot_download

            repository, _, revision = reference.partition("@")
            folder = Path(snapshot_download(repository, revision=revision or None, local_files_only=True))
    for place in (folder, folder / "pretrained_model"):
        if (place / "config.json").is_file():
            return read_checkpoint(place)
    return None


def _trained_on(checkpoint: CheckpointFacts | None) -> DataSet | None:
    return None if checkpoint is None or checkpoint.data_set is None else DataSet(checkpoint.data_set)


def _not_read(data_set: Path) -> str:
    return (
        f"the checkpoint's training names a data set that is on this machine, {str(data_set)!r}. It is read only if "
        f"you name it, too: {Hint('dataset')}."
    )


def free_settings(benchmark: str, *, by_protocol: bool) -> dict[str, Field[Any]]:
    """Returns the benchmark's settings that may be given: all, or those that are no rules of protocols."""
    known = get_benchmark(benchmark)
    decided = settings_that_move(known) if by_protocol else []
    return {one.name: one for one in fields(known.settings) if one.name not in decided}


def verdicts_of(evidence: Evidence) -> Iterator[Verdict]:
    """Yields the verdict of each rule on what was played."""
    for name in evidence.images:
        for of_an_image in images.RULES:
            yield _about(name, judge(of_an_image, evidence, name))
    for name in evidence.numbers:
        for of_numbers in states.RULES:
            yield _about(name, judge(of_numbers, evidence, name))
    for rule in (*sentences.RULES, *actions.RULES, *answers.RULES):
        yield judge(rule, evidence)


def _about(name: str, verdict: Verdict) -> Verdict:
    return replace(verdict, rule=f"{name}: {verdict.rule[0].lower()}{verdict.rule[1:]}")


def _setting(hint: Any) -> dict[str, Any]:
    found = {"setting": hint.setting, "key": hint.key} if hint.key else {"setting": hint.setting}
    return {**found, "value": hint.value} if hint.has_value else found
