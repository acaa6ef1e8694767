"""Jobs, as Slurm tells of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

_ENDS: Final[Mapping[str, str]] = {
    "BOOT_FAIL": "did not start: its node did not boot",
    "CANCELLED": "was cancelled",
    "COMPLETED": "ended by itself",
    "DEADLINE": "reached its deadline",
    "FAILED": "failed",
    "NODE_FAIL": "lost its node",
    "OUT_OF_MEMORY": "ran out of memory",
    "PREEMPTED": "was preempted",
    "REVOKED": "was taken back by another cluster",
    "TIMEOUT": "reached its time limit",
    "UNKNOWN": "is gone, and Slurm does not say why",
}
"""The states of a job that has ended, in words."""
_OWN_FAULTS: Final = ("FAILED", "OUT_OF_MEMORY")
"""States of jobs that were ended by what they did, and not by somebody."""
_NO_LOG: Final = 53
"""The signal by which Slurm says that a job's output file cannot be opened on its node."""
_LEAVE_SIGNALS: Final = (10, 15)
COMPLETING: Final = "COMPLETING"
PENDING: Final = "PENDING"
RUNNING: Final = "RUNNING"

_NEVER: Final = (
    "AccountNotAllowed",
    "BadConstraints",
    "DependencyNeverSatisfied",
    "InvalidAccount",
    "InvalidQOS",
    "Job's account not",
    "Job's QOS not",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "QOSNotAllowed",
)
"""How the reasons begin for which a job waits that will never have its turn as it is."""
_TOO_MUCH: Final = re.compile(r"(Assoc|QOS)Max\w*Per(Job|Node)(Limit)?|QOSMin\w+")
"""And those of one that asks for more, or less, than an account or a quality of service allows for one job: Slurm takes
such jobs, unless it is told otherwise, and lets them wait."""
_NOT_LAUNCHED: Final = ("launch failed requeued held", "launch_failed_requeued_held")
"""And that of one that its node could not start: Slurm has put it back in its queue, and does not try again."""
_SOMEBODYS: Final = ("JobHeldAdmin", "JobHeldUser", "PartitionDown", "PartitionInactive", *_NOT_LAUNCHED)
"""And those of jobs that wait until somebody does something about it."""


@dataclass(frozen=True)
class Job:
    """A job that has a worker's place, or one task of a job array.

    Attributes:
        number: Of the job, and of the task in its array: `12_3`.
        state: In Slurm's words.
        restarts: How often Slurm has started it again.
        name: That it was submitted with.
        nodes: That it runs on.
        reason: Why it waits, or has ended, in Slurm's word.
    """

    number: str
    state: str
    restarts: int
    name: str
    nodes: str
    reason: str

    _WIDTHS: ClassVar[Mapping[str, int]] = {
        "JobArrayID": 40,
        "State": 24,
        "RestartCnt": 12,
        "Name": 160,
        "NodeList": 80,
        "Reason": 120,
    }
    COLUMNS: ClassVar[str] = ",".join(f"{name}:{width}" for name, width in _WIDTHS.items())

    @classmethod
    def table(cls, told: str) -> list[Job]:
        """Reads what squeue tells in these columns."""
        found = []
        for row in _rows(told, cls._WIDTHS):
            number, state, restarts, name, nodes, reason = row
            found.append(cls(number, state.partition(" ")[0], _number(restarts), name, nodes, reason))
        return found

    @property
    def has_ended(self) -> bool:
        """Whether it will never run again under this number."""
        return self.state in _ENDS

    @property
    def is_hopeless(self) -> bool:
        """Whether it waits for what will never come."""
        never = self.reason.startswith(_NEVER) or _TOO_MUCH.fullmatch(self.reason)
        return self.state == PENDING and bool(never)

    @property
    def was_not_launched(self) -> bool:
        """Whether its node could not start it, and Slurm holds it for that."""
        return self.state == PENDING and self.reason.startswith(_NOT_LAUNCHED)

    @property
    def waits_for_somebody(self) -> bool:
        """Whether it waits for what somebody has to do."""
        return self.is_hopeless or (self.state == PENDING and self.reason.startswith(_SOMEBODYS))

    @property
    def task(self) -> int:
        """Its number in its array; -1: it is none of an array."""
        _, _, task = self.number.partition("_")
        return int(task) if task.isdecimal() else -1


@dataclass(frozen=True)
class Leftovers:
    """A job, or what waits of an array, with what was noted down for it.

    Attributes:
        number: Of the job.
        state: In Slurm's words.
        name: That it was submitted with.
        comment: That it was submitted with.
    """

    number: str
    state: str
    name: str
    comment: str

    _WIDTHS: ClassVar[Mapping[str, int]] = {"JobArrayID": 200, "State": 24, "Name": 160, "Comment": 2000}
    COLUMNS: ClassVar[str] = ",".join(f"{name}:{width}" for name, width in _WIDTHS.items())

    @classmethod
    def table(cls, told: str) -> list[Leftovers]:
        """Reads what squeue tells in these columns."""
        return [cls(*row) for row in _rows(told, cls._WIDTHS)]


@dataclass(frozen=True)
class JobEnd:
    """How a job has ended.

    Attributes:
        state: In Slurm's words.
        code: Its exit code.
        signal: That it was ended by; 0: none.
        nodes: That it ran on.
        ran: How long, as Slurm writes it.
        reason: In Slurm's word; empty: none.
    """

    state: str
    code: int = 0
    signal: int = 0
    nodes: str = ""
    ran: str = ""
    reason: str = ""

    ACCOUNTING: ClassVar[str] = "State,ExitCode,NodeList,Elapsed"
    """Not the reason: sacct's is why the job once waited, whatever it ended of."""

    @classmethod
    def of_details(cls, told: str) -> JobEnd:
        """Reads a line of `scontrol --oneliner show job`."""
        found: dict[str, str] = {}
        for name, value in re.findall(r"(\w+)=(\S*)", told):
            found.setdefault(name, value)  # names and comments come last, and may hold anything
        return cls._of(*(found.get(name, "") for name in ("JobState", "ExitCode", "NodeList", "RunTime", "Reason")))

    @classmethod
    def of_accounting(cls, told: str) -> JobEnd:
        """Reads what sacct tells in its columns; the last line is the last time that the job was started."""
        lines = [line for line in told.splitlines() if line.strip()]
        values = lines[-1].split("|") if lines else []
        return cls._of(*(values + [""] * 4)[:4])

    @classmethod
    def _of(cls, state: str, code: str, nodes: str, ran: str, reason: str = "") -> JobEnd:
        number, _, signal = code.partition(":")
        state = state.partition(" ")[0].rstrip("+")
        where, why = ("" if value in ("(null)", "None", "None assigned") else value for value in (nodes, reason))
        return cls(state or "UNKNOWN", _number(number), _number(signal), where, ran, why)

    @property
    def is_own_fault(self) -> bool:
        """Whether it ended by what it did: the next may do the same."""
        return self.state in _OWN_FAULTS

    @property
    def cannot_be_logged(self) -> bool:
        """Whether its node could not write its log."""
        return self.signal == _NO_LOG

    def __str__(self) -> str:
        words = _ENDS.get(self.state, f"is {self.state.lower()}")
        how = [self.state] if self.state != "UNKNOWN" else []
        how += [f"exit code {self.code}"] if self.code else []
        how += [f"signal {self.signal}"] if self.signal and self.signal not in _LEAVE_SIGNALS else []
        how += [self.reason] if self.reason else []
        told = f" ({', '.join(how)})" if how else ""
        where = f" on {self.nodes}" if self.nodes else ""
        after = f" after {self.ran}" if self.ran else ""
        return f"{words}{where}{after}{told}"


def _rows(told: str, widths: Mapping[str, int]) -> list[list[str]]:
    rows = []
    for line in told.splitlines():
        if not line.strip():
            continue
        values, place = [], 0
        for width in widths.values():
            values.append(line[place : place + width].strip())
            place += width
        rows.append(values)
    return rows


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
