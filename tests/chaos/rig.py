"""One seed: a calm run and a harmed one, and what differs between them."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from chaos.adversary import Adversary
from chaos.stage import Setting, Stage, planned_kind


@dataclass(frozen=True)
class Harmed:
    """What came of a run that was harmed.

    Attributes:
        faults: What was done to it, by kind.
        code: It ended with.
        calm_code: That of the calm run.
        lost: Episodes without a row.
        duplicated: Episodes with two.
        different: Rows that are not those of the calm run.
        left: Processes, files, containers, volumes and networks that are still there.
        wrong: What should have been refused, or said, and was not.
        said: The end of its log.
    """

    faults: Counter[str]
    code: int
    calm_code: int
    lost: int
    duplicated: int
    different: list[str]
    left: list[str]
    wrong: list[str]
    said: str

    @property
    def is_well(self) -> bool:
        """Whether nothing of it can be told from the calm run."""
        spoilt = self.lost or self.duplicated or self.different or self.left or self.wrong
        return not spoilt and self.code == self.calm_code


@dataclass(frozen=True)
class Calm:
    """What comes of a run that nobody harms."""

    code: int
    rows: list[tuple[str, ...]]


def calm_run(episodes: int) -> Calm:
    """Runs it, and checks that simulators and policy have done what they were to do."""
    with _folder() as folder:
        stage = Stage(folder, episodes, Setting())
        try:
            stage.start()
            assert stage.run is not None
            calm = Calm(stage.run.wait(240), stage.rows())
        finally:
            stage.kill_all()
    odd = [row for row in calm.rows if row[-1] != planned_kind(row)]
    assert not odd, f"not as planned: {odd}"
    return calm


def harmed(seed: int, calm: Calm, episodes: int, *, most: int, image: str = "", kinds: Collection[str] = ()) -> Harmed:
    """Runs it and does harm to it.

    Args:
        seed: Decides how it is run and what harm is done.
        calm: What comes of it otherwise.
        episodes: Of each task.
        most: How many faults at most.
        image: Of containers for the workers; empty: they are processes.
        kinds: Of faults; all if none is named.
    """
    with _folder() as folder:
        setting = Setting.in_containers(seed, image) if image else Setting.of(seed)
        stage = Stage(folder, episodes, setting)
        try:
            stage.start()
            adversary = Adversary(stage, seed, most=most, kinds=kinds)
            code = adversary.go()
            left = stage.end()
            rows = stage.rows()
            found = Counter(row[:3] for row in rows)
            expected = {row[:3]: setting.expected(row) for row in calm.rows}
            return Harmed(
                adversary.done,
                code,
                calm.code,
                lost=len(expected.keys() - found.keys()),
                duplicated=sum(count - 1 for count in found.values()),
                different=[f"{row}, not {expected[row[:3]]}" for row in rows if expected[row[:3]] != row],
                left=left,
                wrong=adversary.wrong,
                said=stage.said(),
            )
        finally:
            stage.kill_all()


class _folder:
    """A temporary folder of a short name, since sockets are in it."""

    def __enter__(self) -> Path:
        self._path = Path(tempfile.mkdtemp(prefix="sc-"))
        return self._path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._path, ignore_errors=True)
