"""The Ray cluster that this process is connected to, or how it gets there."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from sparring.orchestrator.launchers.ray.settings import RayRequest
from sparring.protos.advice import Hint
from sparring.protos.errors import SparringError, UsageError
from sparring.protos.net.address import Address

T = TypeVar("T")

AUTO: Final = "auto"
# It is said where a process is connected to Ray by another thread than the main one, which is meant.
_SAID: Final = "SIGTERM handler is not set"
logging.getLogger("ray._private.worker").addFilter(lambda record: _SAID not in record.getMessage())
_KNOCK_SECONDS: Final = 5.0
_HERE: Final = "here"
_joined: dict[str, Address] = {}
"""The heads of clusters by the addresses that they were found at: their own name for themselves may be another one."""
_is_gone = False
_HEAD_SECONDS: Final = 30.0
"""A head that is started again by then, as Ray can where it keeps its tables elsewhere, costs nothing."""
_HEAD_LOOK: Final = 2.0
_LONGEST: Final = 600
"""Characters of what Ray says."""


def ray_package() -> Any:
    """Returns the package.

    Raises:
        UsageError: If it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            f"{Hint('launcher', value='ray')} needs the package ray, in the release that the cluster has: pip install "
            f"'sparring[ray]' ({error})."
        ) from error
    return ray


def connect(address: str, job: str, namespace: str | None = None) -> str:
    """Connects this process to a cluster, unless it is connected already; returns the host of the cluster's head.

    Args:
        address: Of the cluster, or auto.
        job: What Ray's lists and pages call this process, if it is one of Ray's only from now on.
        namespace: In which it looks for names, likewise; None: one of its own, where there are none.

    Raises:
        UsageError: If there is none, or it is not the one that this process is connected to.
    """
    ray = ray_package()
    joins = not ray.is_initialized()
    if joins:
        _check_no_client(os.environ.get("RAY_ADDRESS", "") if address == AUTO else address)
        if address != AUTO:
            _knock(address)
        config = ray.job_config.JobConfig(metadata={"job_name": job})
        # What Ray would do to the handlers of signals it does in the main thread only, and they are ours.
        quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
        failed = _elsewhere(lambda: ray.init(address=address, namespace=namespace, job_config=config, **quiet))
        if failed is not None:
            raise _no_cluster(address, failed) from failed
    head = Address.parse(ray.get_runtime_context().gcs_address)
    if joins:
        _joined[address] = head
    if address != AUTO and _joined.get(address) != head and not _is_same(Address.parse(address), head):
        raise UsageError(
            f"this process is part of the Ray cluster at {head} already: leave out "
            f"{Hint('ray_address', value=address)}."
        )
    return head.host


async def until_head_is_gone() -> str:
    """Waits until the head of the cluster that this process is connected to has not been there for long.

    Ray ends the whole process some time after that (60 s), without a word of ours; so nothing is asked of it any more.

    Returns:
        Where the head was.
    """
    global _is_gone
    head, loop = Address.parse(ray_package().get_runtime_context().gcs_address), asyncio.get_running_loop()
    there = loop.time()
    while loop.time() - there < _HEAD_SECONDS:
        await asyncio.sleep(_HEAD_LOOK)
        try:
            async with asyncio.timeout(_KNOCK_SECONDS):
                _, writer = await asyncio.open_connection(head.host, head.port)
            writer.close()
            there = loop.time()
        except (OSError, TimeoutError):
            continue
    _is_gone = True
    return str(head)


def is_gone() -> bool:
    """Returns whether the cluster is gone: whatever is asked of it would not come back."""
    return _is_gone


def check_room(request: RayRequest, slots: int, *, cluster: str) -> None:
    """Checks that there is a node that is large enough for a worker, however busy it is now.

    Raises:
        UsageError: If there is none, and none may come.
    """
    wanted = request.bundle(slots)
    nodes = [node["Resources"] for node in ray_package().nodes() if node["Alive"]]
    if request.autoscale or any(fits(wanted, node) for node in nodes):
        return
    most = {name: max((node.get(name, 0.0) for node in nodes), default=0.0) for name in wanted}
    lacking = ", ".join(f"{name} {_amount(most[name])}" for name in wanted if wanted[name] > most[name])
    has = f"the most that one of its nodes has is {lacking}" if lacking else "no single node of it has all of that"
    raise UsageError(
        f"a worker with {slots} slots asks Ray for {_amounts(wanted)}, and the cluster {cluster!r} has no node for "
        f"that: {has}. Ask for less with {Hint('slots_per_worker')} or {Hint('ray', 'cpus')}; or, if an autoscaler "
        f"brings such nodes, say so with {Hint('ray', 'autoscale', True)}."
    )


def fits(wanted: Mapping[str, float], node: Mapping[str, float]) -> bool:
    """Returns whether a node has all of what is wanted."""
    return all(node.get(name, 0.0) >= amount for name, amount in wanted.items())


def said(error: BaseException) -> str:
    """Returns what Ray says, on one line and not at length."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


async def answer(reference: Any, seconds: float | None = None) -> Any:
    """Waits for what an actor answers.

    Raises:
        TimeoutError: If it takes longer.
        ray.exceptions.RayError: If there is no answer to come.
    """
    async with asyncio.timeout(seconds):
        return await asyncio.shield(coming(reference))


def coming(reference: Any) -> asyncio.Future[Any]:
    """Returns what an actor will answer, to wait for; nobody has to, and it is not to be cancelled: it is Ray's."""
    future = asyncio.wrap_future(reference.future())
    future.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen
    return future


def _check_no_client(address: str) -> None:
    """Checks that an address is not one of Ray's client, which is no part of the cluster: workers could not dial it."""
    if address.startswith("ray://"):
        raise UsageError(
            f"{address!r} is an address for Ray's client. Run this on a node of the cluster, and name its head "
            f"with {Hint('ray_address', value='HOST:PORT')} (by default its port is 6379)."
        )


def _knock(address: str) -> None:
    """Finds out at once that nobody is there, for which Ray takes minutes."""
    place = Address.parse(address)
    try:
        socket.create_connection((place.host, place.port), timeout=_KNOCK_SECONDS).close()
    except OSError as error:
        raise _no_cluster(address, error) from error


def _is_same(one: Address, other: Address) -> bool:
    """Returns whether two addresses are one place, by whatever names of its machine."""
    if one.port != other.port:
        return False
    return one.host == other.host or not _numbers(one.host).isdisjoint(_numbers(other.host))


def _numbers(host: str) -> set[str]:
    """Returns the numbers of a machine; those of this one are all its own, as it may be named by any of them."""
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return set()
    return found | {_HERE} if any(_is_here(number) for number in found) else found


def _is_here(number: str) -> bool:
    """Returns whether a number is one of this machine's: only at these can be listened."""
    family = socket.AF_INET6 if ":" in number else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((number, 0))
    except OSError:
        return False
    return True


def _no_cluster(address: str, error: BaseException) -> SparringError:
    where = "on this machine, and RAY_ADDRESS names none" if address == AUTO else f"at {address}"
    return UsageError(
        f"there is no Ray cluster {where}: {said(error).removesuffix('.')}. Start one with `ray start --head`, or "
        f"name it with {Hint('ray_address', value='HOST:PORT')}."
    )


def _elsewhere(call: Callable[[], object]) -> BaseException | None:
    """Calls something in another thread; returns what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever Ray finds, in its own words
            raised.append(error)

    thread = threading.Thread(target=run, name="ray-init")
    thread.start()
    thread.join()
    return raised[0] if raised else None


def _amounts(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {_amount(amount)}" for name, amount in amounts.items()) or "nothing"


def _amount(amount: float) -> str:
    return f"{amount:g}"
