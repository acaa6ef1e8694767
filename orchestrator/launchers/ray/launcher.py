"""Workers as actors of a Ray cluster, each with a process of the Python that has its benchmark."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from sparring.orchestrator.launchers.base import (
    TOKEN_FLAGS,
    WORKER_PROGRAM,
    Launcher,
    LaunchFailed,
    WorkerOrder,
    worker_flags,
)
from sparring.orchestrator.launchers.cluster import address_towards, check_cluster, share_workers, slots_of
from sparring.orchestrator.launchers.keep_alive import Death, keep_all, keep_worker
from sparring.orchestrator.launchers.ray.cluster import (
    check_room,
    connect,
    is_gone,
    ray_package,
    said,
    until_head_is_gone,
)
from sparring.orchestrator.launchers.ray.settings import RayRequest, RaySettings, request_for
from sparring.orchestrator.launchers.ray.worker import RayWorker, WorkerProgram
from sparring.orchestrator.machine.finding import Finding
from sparring.orchestrator.settings import RunSettings
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address

log = logging.getLogger(__name__)

_METHODS_AT_ONCE: Final = 4
"""Of an actor: it is followed, and can be ended meanwhile."""
_HEAD: Final = "the head of the cluster"


@dataclass(frozen=True)
class _Place:
    """One worker that is to be kept.

    Attributes:
        benchmark: Its part of the run.
        number: Among the workers of that part.
        slots: That it has.
        request: What is asked of Ray for it.
    """

    benchmark: str
    number: int
    slots: int
    request: RayRequest


class RayLauncher(Launcher[RaySettings]):
    """One actor per worker: Ray says where, and the run what becomes of one that dies."""

    name = "ray"
    summary = "actors on a Ray cluster, each with a worker process"
    settings = RaySettings
    secures = True
    may_queue = True

    def check(self, run: RunSettings) -> None:
        own = self.own(run)
        places = _places(own, run, self._even(run))
        check_cluster(run)
        self._head(run)
        for place in {place.benchmark: place for place in places}.values():
            check_room(place.request, place.slots, cluster=own.ray_address)
        if (group := places[0].request.placement_group) is not None:
            _named_group(group)

    def slot_count(self, run: RunSettings) -> int:
        return slots_of(self.own(run))

    def listen(self, run: RunSettings) -> Address:
        if (listen := run.worker.listen_address) is not None:
            return listen
        if self.own(run).advertise:
            return Address("tcp", "0.0.0.0")
        return Address("tcp", address_towards(self._head(run), _HEAD))

    def advertise(self, run: RunSettings, listen: Address) -> str:
        named = self.own(run).advertise
        return named or (address_towards(self._head(run), _HEAD) if listen.is_every_interface else listen.host)

    def preview(self, run: RunSettings, slots: Mapping[str, int]) -> Sequence[str]:
        own = self.own(run)
        lines = []
        for name, places in _by_benchmark(_places(own, run, slots)).items():
            wanted = ", ".join(f"{kind} {n:g}" for kind, n in places[0].request.bundle(places[0].slots).items())
            lines.append(
                f"{name}: {len(places)} actors on the Ray cluster {own.ray_address!r}, each with {places[0].slots} "
                f"slots and {wanted or 'no resources'}"
            )
        return lines

    def examine(self) -> Iterator[Finding]:
        try:
            yield Finding("ray", "ok", f"{version('ray')}, for {Hint('launcher', value=self.name)}")
        except PackageNotFoundError:
            yield Finding("ray", "note", f"for {Hint('launcher', value=self.name)} only: pip install 'sparring[ray]'")

    async def run(self, order: WorkerOrder) -> None:
        own = self.own(order.run)
        ray = ray_package()
        await asyncio.to_thread(self._head, order.run)
        places = _places(own, order.run, order.slots)
        try:
            async with _group_for(places, order) as group:
                kept = [self._keep(place, index, order, group) for index, place in enumerate(places)]
                await keep_all([*kept, _watch_head()])
        except ray.exceptions.RayError as error:
            raise LaunchFailed(f"Ray says: {said(error)}") from error

    async def _keep(self, place: _Place, index: int, order: WorkerOrder, group: Any) -> None:
        label = f"{place.benchmark}-{place.number}"
        part = order.part(place.benchmark)
        flags = worker_flags(part, order.public, place.slots)

        async def start(name: str) -> RayWorker:
            arguments = [*WORKER_PROGRAM, *flags, f"--name={name}", *TOKEN_FLAGS, "--exit-with-parent"]
            program = WorkerProgram(place.request.python or "", part.benchmark, arguments, order.join_token, order.ca)
            make = partial(_make_actor, place, index, group, _title(order.folder, name))
            actor = await _made(make, ray_package().kill)
            return await RayWorker.start(actor, name, program, order.logs / f"worker-{label}.log")

        def on_death(name: str, death: Death) -> None:
            order.explain(name, f"worker {name} {death}")

        rules = replace(order.rules, worker_deaths=self.own(order.run).max_restarts + 1)
        await keep_worker(
            label, start, rules=rules, results_of=order.results_of, on_death=on_death, given_up=order.given_up
        )

    def _head(self, run: RunSettings) -> str:
        """Returns the host of the cluster's head; this process is part of the cluster from then on."""
        own, labels = self.own(run), [part.label for part in run.plan.parts]
        namespace = request_for(own, labels[0], labels).namespace
        return connect(own.ray_address, f"sparring run {run.output.folder or ''}".strip(), namespace)

    def _even(self, run: RunSettings) -> dict[str, int]:
        """Returns how many slots each part of a run gets, as long as nothing is known of its episodes."""
        parts = run.plan.parts
        return {part.label: max(1, self.slot_count(run) // len(parts)) for part in parts}


async def _watch_head() -> None:
    """Waits for as long as the head of the cluster is there.

    Raises:
        LaunchFailed: When it is not.
    """
    head = await until_head_is_gone()
    raise LaunchFailed(
        f"the head of the Ray cluster at {head} is gone, and with it all workers there. What is recorded stays: start "
        "the cluster again, and go on with the run."
    )


def _places(own: RaySettings, run: RunSettings, slots: Mapping[str, int]) -> list[_Place]:
    labels = [part.label for part in run.plan.parts]
    shares = share_workers(own, slots)
    return [
        _Place(benchmark, number, own.slots_per_worker, request_for(own, benchmark, labels))
        for benchmark in slots
        for number in range(shares[benchmark])
    ]


def _by_benchmark(places: Sequence[_Place]) -> dict[str, list[_Place]]:
    found: dict[str, list[_Place]] = {}
    for place in places:
        found.setdefault(place.benchmark, []).append(place)
    return found


async def _made(make: Callable[[], Any], remove: Callable[[Any], object]) -> Any:
    """Returns something new of Ray's; what is called off meanwhile does not stay.

    Args:
        make: Asks Ray for it, and takes its time.
        remove: Gives it back.
    """
    making = asyncio.ensure_future(asyncio.to_thread(make))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        await asyncio.to_thread(remove, await making)
        raise


def _make_actor(place: _Place, index: int, group: Any, title: str) -> Any:
    """Asks Ray for an actor; it has its place when it answers."""
    ray = ray_package()
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    from sparring.orchestrator.launchers.ray import actor

    # By its text and not by its name: the Python of the nodes need not have it.
    ray.cloudpickle.register_pickle_by_value(actor)
    strategy: Any = place.request.scheduling
    if group is not None:
        ours = place.request.placement is not None  # each worker has a bundle of its own then
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index if ours else -1)
    elif strategy == "DEFAULT":
        strategy = None  # Ray's own rule: that of the actor or task that this is called from, if it has one
    options = place.request.actor_options(place.slots)
    if strategy is not None:
        options["scheduling_strategy"] = strategy
    remote = ray.remote(actor.SparringWorker)
    # Not restarted by Ray: who takes the place of one that died has another name, and the run says whether.
    return remote.options(name=title, max_restarts=0, max_concurrency=_METHODS_AT_ONCE, **options).remote()


@asynccontextmanager
async def _group_for(places: Sequence[_Place], order: WorkerOrder) -> AsyncIterator[Any]:
    """Yields the placement group of a run's workers, made for it or named; None: there is none."""
    request = places[0].request
    if request.placement_group is not None:
        yield await asyncio.to_thread(_named_group, request.placement_group)
        return
    if request.placement is None:
        yield None
        return
    ray_package()
    from ray.util.placement_group import placement_group, remove_placement_group

    bundles = [place.request.bundle(place.slots) for place in places]
    title = _title(order.folder, "workers")
    make = partial(placement_group, bundles, strategy=request.placement, name=title)
    group = await _made(make, remove_placement_group)
    try:
        yield group
    finally:
        if not is_gone():
            await asyncio.to_thread(remove_placement_group, group)


def _named_group(name: str) -> Any:
    ray = ray_package()
    try:
        return ray.util.get_placement_group(name)
    except ValueError as error:
        raise UsageError(
            f"{Hint('ray', 'placement_group', name)}: Ray has no placement group of that name in this namespace. Name "
            f"the namespace of the program that made it with {Hint('ray', 'namespace', 'NAME')}."
        ) from error


def _title(folder: Path, worker: str) -> str:
    """Returns what Ray's lists call something of a run: what it is, and of which run; no two have the same."""
    return f"sparring {folder.name} {worker} {secrets.token_hex(3)}"
