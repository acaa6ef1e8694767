"""Who does harm to a run, by a seed: only what is promised to be survived."""

from __future__ import annotations

import resource
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from random import Random
from typing import Any, Final

import psutil
from chaos.containers import Containers
from chaos.proxy import Condition, Proxy
from chaos.stage import Role, Stage
from chaos.strangers import forge, pester

_PROGRESS_SECONDS: Final = 45.0
_LONG_SECONDS: Final = 240.0
_END_SECONDS: Final = 60.0
"""In which a run ends whose disk is full."""


class Adversary:
    """Does something every few episodes until the run has ended.

    Args:
        stage: To harm.
        seed: Decides what.
        most: How many faults at most.
        kinds: Of faults; all if none is named.
    """

    def __init__(self, stage: Stage, seed: int, *, most: int, kinds: Collection[str] = ()) -> None:
        self._stage = stage
        self._dice = Random(seed)
        self._most = most
        self._kinds = kinds
        self._stopped: list[tuple[float, Callable[[], None]]] = []
        """Who goes on when, and how."""
        self._progress = (-1, 0.0)
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        """What should have been refused, or said, and was not."""

    def go(self) -> int:
        """Harms the run until it ends, and returns its exit code.

        Raises:
            TimeoutError: If it does not end.
        """
        stage = self._stage
        faults = {kind: do for kind, do in self._faults().items() if not self._kinds or kind in self._kinds}
        order: list[str] = []
        seen = stage.recorded()
        while not self._ended():
            if self.done.total() < self._most and stage.recorded() > seen:
                if not order:  # every kind before any kind comes again
                    order = self._dice.sample(sorted(faults), len(faults))
                kind = order.pop()
                if faults[kind]():
                    self.done[kind] += 1
                    seen = stage.recorded() + self._dice.randrange(0, 8)
            self._wait(lambda seen=seen: stage.recorded() > seen)
        self._continue(everybody=True)
        assert stage.run is not None
        return stage.run.wait(60)

    def _faults(self) -> dict[str, Callable[[], bool]]:
        stage = self._stage
        faults: dict[str, Callable[[], bool]] = {
            "SIGKILL orchestrator, resume": self._kill_orchestrator,
            "SIGSTOP slot for good": lambda: self._stop("slot", _LONG_SECONDS),
            "garbage at every socket": self._garbage,
            "files may not grow (RLIMIT_FSIZE), resume": self._limit_files,
            "forged results with nobody's token": self._forge,
            "nonsense to the policy server": self._pester,
            "the wall clock jumps": self._jump,
        }
        roles: list[Role] = ["slot", "fork server"]
        stopped: list[Role] = [*roles, "policy server", "orchestrator"]
        if stage.containers is None:
            roles.append("worker")
            stopped.append("worker")
        else:
            faults |= self._faults_of_containers(stage.containers)
        if not stage.setting.apart:  # otherwise nobody starts it again
            roles.append("policy server")
        for role in roles:
            faults[f"SIGKILL {role}"] = lambda role=role: self._signal(role, signal.SIGKILL)
        for role in stopped:
            faults[f"SIGSTOP {role}, SIGCONT"] = lambda role=role: self._stop(role, self._dice.uniform(0.2, 3))
        for name, proxy in stage.proxies.items():
            faults[f"{name} connections cut"] = lambda proxy=proxy: (proxy.cut(), True)[1]
            for condition in ("slow", "narrow", "dead", "hostile"):
                faults[f"{name} connections {condition}"] = lambda proxy=proxy, condition=condition: self._spoil(
                    proxy, condition
                )
        if stage.token:
            faults["a worker with the token that lies about others' leases"] = self._lie
        if stage.link is not None:
            faults["the cable is out (half-open connections)"] = self._pull
        if stage.disk is not None:
            faults["disk full, freed, resume"] = self._fill
        return faults

    def _faults_of_containers(self, containers: Containers) -> dict[str, Callable[[], bool]]:
        faults: dict[str, Callable[[], bool]] = {
            "docker kill": lambda: containers.do(self._dice, lambda container: container.kill()),
            "docker rm --force": lambda: containers.do(self._dice, lambda container: container.remove(force=True)),
            "docker pause, unpause": lambda: self._pause(containers, self._dice.uniform(0.2, 3)),
            "docker pause for good": lambda: self._pause(containers, _LONG_SECONDS),
        }
        if self._stage.setting.connection == "tcp":
            faults["docker network disconnect, connect"] = lambda: self._unplug(containers)
        return faults

    def _pause(self, containers: Containers, seconds: float) -> bool:
        def pause(container: Any) -> None:
            container.pause()
            self._stopped.append((time.monotonic() + seconds, lambda: containers.continue_(container)))

        return containers.do(self._dice, pause)

    def _unplug(self, containers: Containers) -> bool:
        def unplug(container: Any) -> None:
            network = containers.network()
            network.disconnect(container)
            time.sleep(self._dice.uniform(0.3, 3))
            network.connect(container)

        return containers.do(self._dice, unplug)

    def _signal(self, role: Role, number: signal.Signals) -> bool:
        found = self._stage.who(role)
        if not found:
            return False
        with suppress(psutil.NoSuchProcess):
            self._dice.choice(found).send_signal(number)
            return True
        return False

    def _stop(self, role: Role, seconds: float) -> bool:
        found = self._stage.who(role)
        if not found:
            return False
        process = self._dice.choice(found)
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGSTOP)
            self._stopped.append((time.monotonic() + seconds, lambda: _continued(process)))
            return True
        return False

    def _kill_orchestrator(self) -> bool:
        if not self._signal("orchestrator", signal.SIGKILL):
            return False
        self._continue(everybody=True)  # who is stopped cannot see that its parent is gone
        self._stage.resume()
        return True

    def _fill(self) -> bool:
        disk = self._stage.disk
        assert disk is not None
        disk.fill()
        try:
            self._ends_with_a_sentence()
        finally:
            disk.free()
        return self._resumed()

    def _limit_files(self) -> bool:
        """Has no file of the run grow any more, which is a full disk to whoever writes it."""
        largest = max((path.stat().st_size for path in self._stage.output.glob("journal*")), default=0)
        with suppress(psutil.NoSuchProcess):
            for process in self._stage.who("orchestrator"):
                process.rlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
        self._ends_with_a_sentence()
        return self._resumed()

    def _ends_with_a_sentence(self) -> None:
        """Waits for the end of a run that cannot write any more, which says so."""
        assert self._stage.run is not None
        self._continue(everybody=True)
        code = self._stage.run.wait(_END_SECONDS)
        if code == 1 and "Is the disk full" not in self._stage.said():
            self.wrong.append(f"a run whose disk is full ended with exit code {code} and said {self._stage.said()}")

    def _resumed(self) -> bool:
        assert self._stage.run is not None
        if self._stage.run.returncode != 1:  # it had come to its end before it had to write anything more
            return False
        self._stage.resume()
        return True

    def _jump(self) -> bool:
        """Puts the wall clock hours or years forward or back; nothing that has a deadline goes by it."""
        self._stage.clock.jump(self._dice.choice((-400_000_000, -7200, -60, 60, 7200, 400_000_000)))
        return True

    def _pull(self) -> bool:
        link = self._stage.link
        assert link is not None
        link.pull()
        time.sleep(self._dice.uniform(0.3, 3))
        link.plug()
        return True

    def _forge(self) -> bool:
        target = self._target("work")
        if target:
            self.wrong += forge(target, self._dice)
        return bool(target)

    def _lie(self) -> bool:
        self.wrong += forge(self._stage.addresses["work"], self._dice, self._stage.token)
        return True

    def _pester(self) -> bool:
        target = self._target("policy")
        if target:
            wants_token = not self._stage.setting.apart or self._stage.setting.far
            self.wrong += pester(target, self._dice, wants_token=wants_token)
        return bool(target)

    def _target(self, who: str) -> str:
        """Returns where somebody is reached, by those who are not meant to."""
        if who in self._stage.addresses:
            return self._stage.addresses[who]
        path = self._stage.sockets().get(who)
        return f"unix:{path}" if path is not None else ""

    def _spoil(self, proxy: Proxy, condition: Condition) -> bool:
        proxy.become(condition)
        if condition == "hostile":  # who is connected must dial again to get there
            proxy.cut()
        time.sleep(self._dice.uniform(0.5, 3))
        proxy.become("good")
        if condition == "dead":
            proxy.cut()
        return True

    def _garbage(self) -> bool:
        """Sends nonsense to every address at which somebody of the run listens."""
        hit = 0
        for place in self._stage.sockets().values():
            with suppress(OSError), socket.socket(socket.AF_UNIX) as one:
                one.settimeout(1)
                one.connect(str(place))
                one.sendall(self._dice.randbytes(3000))
                hit += 1
        for address in self._stage.addresses.values():
            host, _, port = address.partition(":")
            with suppress(OSError), socket.create_connection((host, int(port)), 1) as one:
                one.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self._dice.randbytes(3000))
                hit += 1
        return hit > 0

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PROGRESS_SECONDS
        while time.monotonic() < deadline and not self._ended() and not condition():
            self._continue()
            time.sleep(0.03)
        self._give_up_if_stuck()

    def _give_up_if_stuck(self) -> None:
        recorded, now = self._stage.recorded(), time.monotonic()
        if self._progress[0] != recorded:
            self._progress = (recorded, now)
        elif now - self._progress[1] > _LONG_SECONDS:
            raise TimeoutError(
                f"the run has made no progress for {_LONG_SECONDS:g} s, at {recorded} episodes, after {self.done}. "
                f"Who is there: {self._stage.present()}. It said:\n{self._stage.said()}"
            )

    def _continue(self, *, everybody: bool = False) -> None:
        for when, go_on in list(self._stopped):
            if everybody or time.monotonic() >= when:
                self._stopped.remove((when, go_on))
                go_on()

    def _ended(self) -> bool:
        assert self._stage.run is not None
        return self._stage.run.poll() is not None


def _continued(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGCONT)
