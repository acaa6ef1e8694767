"""Who does harm to a run, by a seed: only what is promised to be survived."""

from __future__ import annotations

import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

import psutil
from chaos.proxy import Condition, Proxy
from chaos.stage import Role, Stage

_PROGRESS_SECONDS: Final = 45.0
_LONG_SECONDS: Final = 240.0


class Adversary:
    """Does something every few episodes until the run has ended.

    Args:
        stage: To harm.
        seed: Decides what.
        most: How many faults at most.
    """

    def __init__(self, stage: Stage, seed: int, *, most: int) -> None:
        self._stage = stage
        self._dice = Random(seed)
        self._most = most
        self._stopped: list[tuple[float, psutil.Process]] = []
        self._progress = (-1, 0.0)
        self.done: Counter[str] = Counter()

    def go(self) -> int:
        """Harms the run until it ends, and returns its exit code.

        Raises:
            TimeoutError: If it does not end.
        """
        stage, faults = self._stage, self._faults()
        seen = stage.recorded()
        while not self._ended():
            if self.done.total() < self._most and stage.recorded() > seen:
                kind = self._dice.choice(sorted(faults))
                if faults[kind]():
                    self.done[kind] += 1
                    seen = stage.recorded() + self._dice.randrange(0, 8)
            self._wait(lambda seen=seen: stage.recorded() > seen)
        self._continue(everybody=True)
        assert stage.run is not None
        return stage.run.wait(60)

    def _faults(self) -> dict[str, Callable[[], bool]]:
        faults: dict[str, Callable[[], bool]] = {"SIGKILL orchestrator, resume": self._kill_orchestrator}
        roles: list[Role] = ["slot", "fork server", "worker"]
        if not self._stage.apart:  # otherwise nobody starts it again
            roles.append("policy server")
        for role in roles:
            faults[f"SIGKILL {role}"] = lambda role=role: self._signal(role, signal.SIGKILL)
        for stopped in ("slot", "fork server", "worker", "policy server", "orchestrator"):
            faults[f"SIGSTOP {stopped}, SIGCONT"] = lambda role=stopped: self._stop(role, self._dice.uniform(0.2, 3))
        faults["SIGSTOP slot for good"] = lambda: self._stop("slot", _LONG_SECONDS)
        faults["garbage at every socket"] = self._garbage
        for name, proxy in self._stage.proxies.items():
            faults[f"{name} connections cut"] = lambda proxy=proxy: (proxy.cut(), True)[1]
            for condition in ("slow", "narrow", "dead"):
                faults[f"{name} connections {condition}"] = lambda proxy=proxy, condition=condition: self._spoil(
                    proxy, condition
                )
        return faults

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
            self._stopped.append((time.monotonic() + seconds, process))
            return True
        return False

    def _kill_orchestrator(self) -> bool:
        if not self._signal("orchestrator", signal.SIGKILL):
            return False
        self._continue(everybody=True)  # who is stopped cannot see that its parent is gone
        self._stage.resume()
        return True

    def _spoil(self, proxy: Proxy, condition: Condition) -> bool:
        proxy.become(condition)
        time.sleep(self._dice.uniform(0.5, 3))
        proxy.become("good")
        if condition == "dead":
            proxy.cut()
        return True

    def _garbage(self) -> bool:
        """Sends nonsense to every address at which somebody of the run listens."""
        hit = 0
        for place in self._stage.folder.rglob("*.sock"):
            with suppress(OSError), socket.socket(socket.AF_UNIX) as one:
                one.settimeout(1)
                one.connect(str(place))
                one.sendall(self._dice.randbytes(3000))
                hit += 1
        for proxy in self._stage.proxies.values():
            with suppress(OSError), socket.create_connection(("127.0.0.1", proxy.port), 1) as one:
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
            raise TimeoutError(f"the run has made no progress for {_LONG_SECONDS:g} s, at {recorded} episodes")

    def _continue(self, *, everybody: bool = False) -> None:
        for when, process in list(self._stopped):
            if everybody or time.monotonic() >= when:
                self._stopped.remove((when, process))
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGCONT)

    def _ended(self) -> bool:
        assert self._stage.run is not None
        return self._stage.run.poll() is not None
