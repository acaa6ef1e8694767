"""Who is there: the workers that have joined a run, and which of their slots wait for something to play."""

from __future__ import annotations

import itertools
import logging
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparring.orchestrator.coordination.bounds import MAX_MACHINES, MAX_WORKERS, OutOfBounds
from sparring.orchestrator.run.scheduler import SlotId
from sparring.protos import evaluation_pb2 as pb
from sparring.protos.advice import Dialect, render

log = logging.getLogger(__name__)


@dataclass
class _Worker:
    benchmark: str
    slots: int
    send: Callable[[pb.OrchestratorMessage], None]
    launched: bool
    """Whether it is one that the run has started itself."""
    leaving: bool = False
    """Whether it was sent away: it gets nothing more."""


class Workers:
    """Knows who is connected, what each is for, and whose word counts.

    Args:
        dialect: The words of those who read about the run.
        parts: Of the run, by their labels: with these the names of workers begin that it starts itself.
        run_starts_own: Whether the run starts workers of its own: then only those can end it.
        played: The benchmarks that somebody could play, in earlier executions of the run.
    """

    def __init__(
        self, dialect: Dialect, parts: Collection[str], *, run_starts_own: bool, played: Collection[str] = ()
    ) -> None:
        self._dialect = dialect
        self._played = set(played)
        self._run_starts_own = run_starts_own
        self._own_name = re.compile(rf"({'|'.join(map(re.escape, parts))})-[^.]*")
        self._connected: dict[str, _Worker] = {}
        self._asking: dict[str, OrderedDict[SlotId, None]] = {}
        """Slots that have asked and not been answered, by benchmark; who asked first is first."""
        self.results_of: Counter[str] = Counter()
        """How many results each has delivered; the launcher tells by it whether respawning is of any use."""
        self.versions: dict[str, Mapping[str, str]] = {}
        """Of the packages of those who are here, and of those who were and have delivered something."""
        self.machines: dict[str, Mapping[str, str]] = {}
        """What workers say of the machines that they run on, by host."""
        self.turned_away: dict[str, str] = {}
        """Why the last one that came for a benchmark was sent away, or not let in."""

    def __contains__(self, worker: str) -> bool:
        return worker in self._connected

    def __iter__(self) -> Iterator[str]:
        return iter(self._connected)

    def check_room(self) -> None:
        """Checks that one more can be taken in.

        Raises:
            OutOfBounds: If there are too many.
        """
        if len(self._connected) >= MAX_WORKERS:
            raise OutOfBounds(f"{MAX_WORKERS} workers are connected, and no more are taken in.")

    def add(
        self,
        register: pb.Register,
        benchmark: str,
        slots: int,
        send: Callable[[pb.OrchestratorMessage], None],
        *,
        launched: bool,
    ) -> str:
        """Takes one in.

        Args:
            register: What it says of itself.
            benchmark: What it is for, by the label of that part of the run.
            slots: How many it has.
            send: Says something to it.
            launched: Whether the run has started it itself.

        Returns:
            What it is called here: its name, with a number if another one has that already.
        """
        # By its name a launcher asks whether one that it has started is there, and whether anything has come of it: no
        # other may have such a name, nor take it before the one comes that it is for.
        is_theirs = self._run_starts_own and not launched and self._own_name.fullmatch(register.worker) is not None
        names = itertools.islice(_names(register.worker), int(is_theirs), None)
        worker = next(name for name in names if name not in self._connected)
        self._connected[worker] = _Worker(benchmark, slots, send, launched)
        self.versions[worker] = dict(register.versions)
        if launched or register.host in self.machines or len(self.machines) < MAX_MACHINES:
            self.machines[register.host] = dict(register.machine)
        return worker

    def remove(self, worker: str) -> None:
        """Forgets one that has left, but for what is said of those who have made results."""
        self._forget_asking(worker)
        launched = self._connected.pop(worker).launched
        if not self.results_of[worker]:
            del self.versions[worker]
        if not launched:  # nobody asks for its results to start it again
            del self.results_of[worker]
        gone = [name for name in self.versions if name not in self._connected]
        for name in gone[:-MAX_WORKERS]:
            del self.versions[name]

    def take_over(self, previous: Workers) -> None:
        """Takes on those of a run that has ended; it has none afterwards."""
        self._connected, previous._connected = previous._connected, {}
        self._asking, previous._asking = previous._asking, {}
        self.results_of = previous.results_of
        self.versions = {name: previous.versions[name] for name in self._connected}
        self.machines = dict(previous.machines)

    def benchmark_of(self, worker: str) -> str:
        """Returns what a worker is for."""
        return self._connected[worker].benchmark

    def slots_of(self, worker: str) -> int:
        """Returns how many slots a worker has."""
        return self._connected[worker].slots

    def grow(self, slots: Mapping[str, int]) -> Sequence[str]:
        """Notes how many slots those have from now on that the run has started itself; returns who gets more.

        Args:
            slots: By benchmark; nobody gets fewer than before.
        """
        grown = []
        for name, worker in self._connected.items():
            wanted = slots.get(worker.benchmark, 0)
            if worker.launched and not worker.leaving and wanted > worker.slots:
                worker.slots = wanted
                grown.append(name)
        return grown

    def slots_for(self, benchmark: str) -> int:
        """Returns how many slots there are for a benchmark."""
        return sum(worker.slots for worker in self._connected.values() if worker.benchmark == benchmark)

    def playing(self, benchmark: str) -> Collection[str]:
        """Returns the workers that are for a benchmark."""
        return {name for name, worker in self._connected.items() if worker.benchmark == benchmark}

    def benchmarks(self) -> Collection[str]:
        """Returns what there are workers for."""
        return {worker.benchmark for worker in self._connected.values()}

    def is_launched(self, worker: str) -> bool:
        """Returns whether a worker is one that the run has started itself."""
        return self._connected[worker].launched

    def may_be_right(self, worker: str) -> bool:
        """Returns whether what a worker says of the policy may be about the run, and is worth finding out."""
        return self._connected[worker].launched or not self._run_starts_own

    def is_believed(self, worker: str) -> bool:
        """Returns whether a worker's word that nothing can be played may end the run.

        That of one that the run has started may. Where it starts none, so may that of any, until somebody has played:
        nothing is lost then, and nobody knows better. Later it is that worker's own affair.
        """
        found = self._connected[worker]
        return self.believes(found.benchmark, launched=found.launched)

    def believes(self, benchmark: str, *, launched: bool) -> bool:
        """Returns the same of one that has not joined yet."""
        return launched or not (self._run_starts_own or benchmark in self._played)

    def has_played(self, benchmark: str) -> None:
        """Hears that an episode of a benchmark has its outcome."""
        self._played.add(benchmark)

    def asks(self, slot: SlotId) -> None:
        """Notes that a slot is free: once, however often it says so."""
        self._asking.setdefault(slot.benchmark, OrderedDict())[slot] = None

    def asking(self) -> Collection[OrderedDict[SlotId, None]]:
        """Returns the slots that wait, those of each benchmark by themselves; whoever serves one takes it out."""
        return self._asking.values()

    def is_leaving(self, worker: str) -> bool:
        """Returns whether a worker is on its way out, and gets nothing more."""
        return self._connected[worker].leaving

    def send(self, worker: str, message: pb.OrchestratorMessage) -> None:
        """Says something to a worker."""
        self._connected[worker].send(message)

    def dismiss(self, worker: str, reason: str) -> None:
        """Tells a worker to go, if it is still here; a launcher that started it will start another."""
        if worker in self._connected:
            self.send(worker, pb.OrchestratorMessage(stop=pb.Stop(reason=reason)))

    def pass_over(self, worker: str) -> None:
        """Gives a worker nothing more."""
        self._forget_asking(worker)
        self._connected[worker].leaving = True

    def send_away(self, worker: str, reason: str) -> None:
        """Tells a worker to go, if it is still here, because of what it has said; it gets nothing more meanwhile."""
        if worker in self._connected:
            self.turned_away[self._connected[worker].benchmark] = reason
            log.warning("worker %s is sent away: %s", worker, render(reason, self._dialect))
            self.pass_over(worker)
            self.dismiss(worker, reason)

    def _forget_asking(self, worker: str) -> None:
        asking = self._asking.get(self._connected[worker].benchmark, OrderedDict())
        for slot in [slot for slot in asking if slot.worker == worker]:
            del asking[slot]


def _names(wanted: str) -> Iterator[str]:
    """Returns a name, and what else may stand for it."""
    yield wanted
    yield from (f"{wanted}.{number}" for number in itertools.count(2))
