"""What every launcher does: check the machine, start workers, keep them alive, end them."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from sparring.orchestrator.machine.finding import Finding
from sparring.orchestrator.retry import RetryRules
from sparring.protos.errors import CodeBroken, SparringError
from sparring.protos.net.address import Address

if TYPE_CHECKING:  # which have the launcher's settings in them
    from sparring.orchestrator.serving.hosting import ClusterHosting
    from sparring.orchestrator.settings import Evaluation, RunSettings


DEFAULT_LISTEN: Final = Address("tcp", "127.0.0.1", 50052)
"""Where workers that come by themselves dial in, if nobody has said where."""

WORKER_PROGRAM: Final = ("-P", "-m", "sparring.env_worker")
"""What a Python is given to be a worker. Nothing is imported from the current folder, which may be anybody's."""
TOKEN_FLAGS: Final = ("--join-token-file=-",)
"""Has a worker wait for its run's secret, a line on its standard input."""


@dataclass(frozen=True)
class Leftover:
    """What a killed run has left.

    Attributes:
        what: It is, for people.
        remove: Ends and removes it.
        kept: Why it is not removed, and what to do about it; empty: it is.
    """

    what: str
    remove: Callable[[], None]
    kept: str = ""


async def never(worker: str) -> str:
    """Gives no worker up."""
    await asyncio.get_running_loop().create_future()
    return ""


class LauncherBroken(CodeBroken):
    """The launcher's own code raised when it was imported or made."""

    whose = "launcher"


class LaunchFailed(SparringError):
    """Workers cannot be kept alive; the message says what they said last."""


@dataclass(frozen=True)
class WorkerOrder:
    """Says which workers to start, and whom to ask and tell about them.

    Attributes:
        run: The settings of their run.
        folder: Of the run.
        slots: Episodes at once, for each benchmark; or each part of the run by its name, if a benchmark has several.
        orchestrator: The address that they dial on this machine, a unix socket.
        public: The address that they dial from elsewhere; where nothing listens for those, the unix socket again.
        sockets: Folder of the unix sockets, the policy's and ours.
        logs: Folder for their logs.
        rules: When one that died is replaced.
        results_of: How many results a worker has delivered; one that delivers is worth replacing.
        explain: Told why a worker died, where that is known: its name and a sentence.
        given_up: Waits until a worker is to be replaced that has not ended: one that is stopped, hangs, or cannot be
            heard. Returns why. For `keep_worker`.
        join_token: The run's secret: who brings it is let in. To be handed over where nobody else can read it: on
            standard input, as `program` wants it, or in a file that `--join-token-file` names; never in arguments, an
            environment or a label, which others are shown.
        ca: PEM certificates that show whoever dials `public` that it is this run; for `--ca`. Empty: not encrypted.
        left: How many episodes and films of a benchmark have not come to an end; more slots than that are of no use.
    """

    run: RunSettings
    folder: Path
    slots: Mapping[str, int]
    orchestrator: Address
    public: Address
    sockets: Path
    logs: Path
    rules: RetryRules
    results_of: Callable[[str], int]
    explain: Callable[[str, str], None]
    join_token: str = field(repr=False)
    given_up: Callable[[str], Awaitable[str]] = never
    ca: bytes = field(default=b"", repr=False)
    left: Callable[[str], int] = lambda benchmark: sys.maxsize

    def part(self, label: str) -> Evaluation:
        """Returns the part of the run that one of `slots` is of: its benchmark, by the name that it is found by."""
        return self.run.plan.part(label)

    def program(self, benchmark: str, name: str, *, orchestrator: Address | None = None) -> list[str]:
        """Returns what a Python is started with to be one of them.

        It wants `join_token` as the first line on its standard input, and ends when that closes.
        """
        arguments = self.arguments(benchmark, name, orchestrator=orchestrator)
        return [*WORKER_PROGRAM, *arguments, *TOKEN_FLAGS, "--exit-with-parent"]

    def arguments(self, benchmark: str, name: str, *, orchestrator: Address | None = None) -> list[str]:
        """Returns the flags of `sparring worker` for one of them, but not the one that names its token's file.

        It dials another address if one is given.
        """
        flags = worker_flags(self.part(benchmark), orchestrator or self.orchestrator, self.slots[benchmark])
        return [*flags, f"--name={name}"]


def worker_flags(part: Evaluation, orchestrator: Address, slots: int) -> list[str]:
    """Returns the flags of `sparring worker` for one that works for a part of a run, but its name and its secret."""
    return [
        f"--orchestrator={orchestrator}",
        f"--benchmark={part.benchmark}",
        f"--slots={slots}",
        f"--evaluation={part.label}",  # also where it has no name: the run may have another one of its benchmark
    ]


class LauncherSettings(BaseModel):
    """A launcher's own settings; one field is one flag of `sparring run` and one YAML key. Give each a description."""

    model_config = ConfigDict(extra="forbid", frozen=True)


S = TypeVar("S", bound=LauncherSettings)


class Launcher(ABC, Generic[S]):
    """A way to start workers, keep them alive and end them. An object without memory: what it is told is passed to it.

    Attributes:
        name: That `--launcher` takes.
        summary: A line for people.
        settings: The class of its own settings.
        hosting_settings: The class of its settings for `hosting`; their names begin with `serve_`.
        starts_workers: Whether it does; otherwise they come by themselves.
        secures: Whether it hands its workers the run's secret and certificate wherever they are: see `advertise`.
        may_queue: Whether its workers may have to wait for their turn, for hours. A run does not give up for want of
            them then: the launcher says so, if none will come.
        may_grow: Whether its workers can hold more slots than they were started with: one whose memory is limited by
            the number of its slots cannot.
    """

    starts_workers: ClassVar[bool] = True
    secures: ClassVar[bool] = False
    may_queue: ClassVar[bool] = False
    may_grow: ClassVar[bool] = False
    name: str
    summary: str
    settings: type[S]
    hosting_settings: ClassVar[type[LauncherSettings]] = LauncherSettings

    def own(self, run: RunSettings) -> S:
        """Returns its own settings among those of a run."""
        assert isinstance(run.worker.own, self.settings)
        return run.worker.own

    def check(self, run: RunSettings) -> None:
        """Looks for whatever would keep workers from starting, or fetches it, before anything is started.

        Raises:
            SparringError: With what to do about it.
        """

    def listen(self, run: RunSettings) -> Address | None:
        """Returns where workers of other machines, or of what is like one, dial in; None: there are none of these.

        May take seconds; it is called in a thread of its own.
        """
        return run.worker.listen_address

    def advertise(self, run: RunSettings, listen: Address) -> str:
        """Returns the name or number by which its workers dial this machine; empty: they dial where it listens.

        If there is one, all that they say is encrypted: with the user's certificate, else with one that is made for
        that name, for this execution of the run. May take seconds; it is called in a thread of its own.

        Args:
            run: Its settings.
            listen: Where the run listens for them.
        """
        return ""

    def slot_count(self, run: RunSettings) -> int | None:
        """Returns how many slots there are in all, where its own settings say so; None: the run's `slots` do."""
        return None

    def preview(self, run: RunSettings, slots: Mapping[str, int]) -> Sequence[str]:
        """Returns lines on what it would start, for `sparring run --dry-run`; starts and fetches nothing.

        Args:
            run: Its settings.
            slots: Episodes at once, for each benchmark, as in an order.

        Raises:
            SparringError: If it is plain that it could not.
        """
        return [f"{benchmark}: {number} slots" for benchmark, number in slots.items()]

    @abstractmethod
    async def run(self, order: WorkerOrder) -> None:
        """Starts workers and replaces those that die; never returns, and is cancelled to end them all.

        Who dies is explained with `order.explain`, where more is known than that it has gone.

        Raises:
            LaunchFailed: If replacing them is of no use, with their last words.
        """

    def hosting(self, run: RunSettings) -> ClusterHosting | None:
        """Returns what hosts the policy of a run on its machines, for `serve_on`; None: it hosts none.

        Whoever starts the workers of that run may be another launcher.
        """
        return None

    def leftovers(self, *, everything: bool = False) -> Iterable[Leftover]:
        """Returns what runs have left that were killed, and nobody watches over: for `sparring clean`.

        What was told before something is raised is removed all the same.

        Args:
            everything: Also what belongs to runs that are going on.
        """
        return []

    def examine(self) -> Iterable[Finding]:
        """Returns what `sparring doctor` shall say about what this launcher needs here."""
        return []


def share_slots(slots: int, waiting: Mapping[str, int]) -> dict[str, int]:
    """Divides slots among benchmarks by the episodes that wait; each gets at least one, however few there are.

    Args:
        slots: How many there are to divide.
        waiting: Episodes per benchmark.
    """
    shares = dict.fromkeys(waiting, 1)
    for _ in range(slots - len(shares)):
        neediest = max(shares, key=lambda name: waiting[name] / shares[name])
        shares[neediest] += 1
    return shares
