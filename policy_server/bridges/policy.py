"""A policy that is somewhere else, and speaks somebody else's wire: to a run, a policy like any other.

    sparring run --policy openpi://gpu-box:8000 --benchmark libero --task libero_spatial

Sessions are asked at the same time: what batches them, if anything does, is on the other side.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from sparring.policy_server.bridges.endpoint import Endpoint
from sparring.policy_server.bridges.layout import BridgeLayout
from sparring.policy_server.bridges.peer import Peer, PeerUnreachable, knock
from sparring.policy_server.bridges.presets import preset, presets_of
from sparring.policy_server.bridges.wires import WIRES, spoken_at
from sparring.policy_server.errors import EpisodeInterrupted, PolicyFailed
from sparring.policy_server.policies.base import Array, Instruction, Observation, Policy, PolicySpec
from sparring.protos.advice import Hint
from sparring.protos.errors import UsageError, unknown
from sparring.protos.installing import install_command
from sparring.protos.net.access import read_token

_PAUSE: Final = 0.5
"""Seconds between two tries to connect."""
_ONE_CLIENT: Final = Hint("policy_arg", "clients", 1)


class ForeignPolicy(Policy):
    """Asks a foreign server.

    Args:
        address: `openpi://HOST:PORT`, `vla-eval://...`, `gr00t://...`, `http://HOST:PORT/act`, `lerobot-async://...`.
        preset: The layout to begin with; empty: the one that is named as the benchmark is.
        form: Of http: openvla or xvla; of openpi: openpi, roboarena or starvla.
        timeout: Seconds that the server has for an answer.
        clients: The most sessions at once, for a server that cannot serve more; 0: as many as there are.
        key_file: File with the secret that the server asks for.
        given: Of the layout: images, side, states, dtype, instruction, gripper, actions, play, channels, nested;
            and what the wire takes beside it.

    Raises:
        UsageError: If one of these cannot be.
    """

    concurrent = True

    def __init__(
        self,
        address: str,
        *,
        preset: str = "",
        form: str = "",
        timeout: float = 50.0,
        clients: int = 0,
        key_file: str = "",
        **given: Any,
    ) -> None:
        self._peer_class, self._wire = _peer_class(address, form)
        self._endpoint = Endpoint.parse(address, port=self._peer_class.default_port)
        if not isinstance(timeout, (int, float)) or not 0 < timeout < float("inf"):
            raise UsageError(f"timeout must be seconds above 0, not {timeout!r}.")
        if not isinstance(clients, int) or clients < 0:
            raise UsageError(f"clients must be a whole number of at least 0, not {clients!r}.")
        most = self._peer_class.most_clients
        if most is not None and clients > most:
            raise UsageError(f"a server of {self._wire} has at most {most} clients at once, not {clients}.")
        if given.get("nested") and not self._peer_class.has_nested_maps:
            raise UsageError(f"nested is for policies of openpi's wire: {self._wire} has no maps in an observation.")
        self._timeout = float(timeout)
        self.max_sessions = clients or most
        self._preset = preset
        own = self._peer_class.defaults
        self._options = {name: value for name, value in given.items() if name in own}
        self._changes = changes = {name: value for name, value in given.items() if name not in own}
        # What the server says about itself; None until it was asked.
        self._said: Mapping[str, Any] | None = None
        self._kept: Peer | None = None
        self._keeping = threading.Lock()
        # Held until a connection has really ended, so that a server never sees one more than it can take.
        self._places = threading.Semaphore(clients) if clients and not self._peer_class.keeps_connection else None
        self._key = _key(key_file)
        self.away = ""
        self.warnings: list[str] = []
        # Without a preset, what it looks at depends on the benchmark; what is given by hand must be right by itself.
        self.spec = self.layout_for("").spec if preset else PolicySpec()
        if not preset:
            BridgeLayout().changed(changes, others=own)
        self._peer_class.check(self._options)

    @property
    def wire(self) -> str:
        """What its server speaks, by which its layouts are known."""
        return self._wire

    @property
    def address(self) -> str:
        """Where its server is."""
        return str(self._endpoint)

    @property
    def timeout(self) -> float:
        """Seconds that its server has for an answer."""
        return self._timeout

    @property
    def load_timeout(self) -> float:
        """Seconds that its server has to load what it is told to; 0: it is told nothing."""
        return float(self._options.get("load_timeout", self._peer_class.defaults.get("load_timeout", 0.0)))

    def layout_for(self, benchmark: str) -> BridgeLayout:
        """Returns what is shown to the server on a benchmark, and how its answers are played.

        Raises:
            UsageError: If nothing is known for the benchmark, and nothing was given.
        """
        return self._layout_as_said(benchmark, self._said or {})

    def _layout_as_said(self, benchmark: str, said: Mapping[str, Any]) -> BridgeLayout:
        """Returns the layout that it is for a server which says this about itself; what a user gives comes first."""
        known = presets_of(self._wire)
        if self._preset:
            found = preset(self._wire, self._preset)
        elif benchmark in known:
            found = known[benchmark]
        elif self._changes.get("images") or self._changes.get("states"):
            found = BridgeLayout()
        else:
            raise UsageError(
                f"{self._endpoint} does not say what it looks at, and no preset of {self._wire} is known for "
                f"{benchmark!r} (known: {', '.join(known) or 'none'}); say what it is shown with "
                f"{Hint('policy_arg', 'images')} and {Hint('policy_arg', 'states')}: docs/bridges.md."
            )
        asked = self._peer_class.as_asked(found, self._preset or benchmark, said)
        return asked.changed(self._changes, others=self._options)

    def spec_for(self, benchmark: str) -> PolicySpec:
        layout = self.layout_for(benchmark)
        # No wire says it, and a wrong one is a silent 0 %: every run shows it, and keeps it with the results.
        self._warn(f"is shown {benchmark or 'what is there'} by this layout: {layout}")
        if self._said is None and self._peer_class.says_what_it_wants:
            self._warn("may say, when it is there, that it wants to be shown something else: then that is told, too")
        plays, said = self._preset or benchmark, self._said or {}
        for sentence in self._peer_class.not_met(layout, plays, said, self._changes.keys()):
            self._warn(sentence)
        return layout.spec

    def _warn(self, what: str) -> None:
        sentence = f"{self._endpoint} {what}."
        if sentence not in self.warnings:
            self.warnings.append(sentence)

    def warm_up(self) -> None:
        """Finds out whether the server is there, and what it says about itself.

        Raises:
            UsageError: If it is not.
        """
        try:
            peer = self._dialled(BridgeLayout() if not self._preset else self.layout_for(""))
        except PeerUnreachable as error:
            raise UsageError(f"{error.sentence}. Is it running there?") from error
        self._said = peer.metadata
        if self._preset:
            self.spec = self.layout_for("").spec
        if peer.metadata:
            said = json.dumps(peer.metadata, sort_keys=True)
            self.data_sha256 = hashlib.sha256(said.encode()).hexdigest()
        peer.close()

    def new_session(self, task: Instruction, seed: int) -> ForeignSession:
        layout = self.layout_for(task.benchmark)
        session = self._waited_for(layout)
        with self._letting_go(session):
            if self._said is not None and self._layout_as_said(task.benchmark, session.peer.metadata) != layout:
                raise PolicyFailed(
                    f"{self._endpoint} wants to be shown something else than when it was first asked: is it another "
                    "model by now? Start again what asks it: the run, or `sparring serve`."
                )
            session.peer.start(task, seed)
        return session

    def act(self, observations: Sequence[Observation], states: Sequence[ForeignSession]) -> Sequence[Array]:
        answers = []
        for observation, state in zip(observations, states, strict=True):
            with self._letting_go(state):
                answers.append(state.peer.ask(observation))
        return answers

    def _dialled(self, layout: BridgeLayout) -> Peer:
        return self._peer_class(self._endpoint, layout, timeout=self._timeout, key=self._key, options=self._options)

    def _waited_for(self, layout: BridgeLayout) -> ForeignSession:
        """Returns a connection for an episode. A server that is being started again is waited for.

        Raises:
            EpisodeInterrupted: If nobody listens there any more; no session begins until somebody does.
            PolicyFailed: If somebody does, and takes no connection in time.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            began = time.monotonic()
            try:
                return self._kept_for(layout) if self._peer_class.keeps_connection else self._connected(layout)
            except PeerUnreachable as error:
                now = time.monotonic()
                if now + (now - began) + _PAUSE < deadline:  # the next try may take as long
                    time.sleep(_PAUSE)
                    continue
                try:
                    knock(self._endpoint, _PAUSE)
                except PeerUnreachable as nobody:
                    self._wait_for_server(nobody.sentence)
                    raise EpisodeInterrupted(f"{nobody.sentence}; the episode starts again.") from error
                advice = "" if self.max_sessions else f". If it takes one client at a time, give {_ONE_CLIENT}"
                raise PolicyFailed(error.sentence + advice) from error

    def _wait_for_server(self, why: str) -> None:
        """Lets no session begin until somebody listens at the address again."""

        def look_out() -> None:
            while self.away:
                time.sleep(_PAUSE)
                with suppress(PeerUnreachable):
                    knock(self._endpoint)
                    self.away = ""

        with self._keeping:
            if not self.away:
                self.away = why
                threading.Thread(target=look_out, name="looking out", daemon=True).start()

    def _connected(self, layout: BridgeLayout) -> ForeignSession:
        """Returns a connection for one episode, when there is a place for it.

        Raises:
            PeerUnreachable: If there is none in time, or nobody answers.
        """
        if self._places is None:
            return ForeignSession(self._dialled(layout))
        if not self._places.acquire(timeout=self._timeout):
            raise PeerUnreachable(
                f"the server at {self._endpoint} takes {self.max_sessions} at once, and those before did not end "
                f"within {self._timeout:g} s"
            )
        try:
            return ForeignSession(self._dialled(layout), then=self._places.release)
        except BaseException:
            self._places.release()
            raise

    def _kept_for(self, layout: BridgeLayout) -> ForeignSession:
        """Returns the connection that all episodes have, made again if there is none, or it was for another layout."""
        with self._keeping:
            if self._kept is not None and self._kept.layout != layout:
                self._kept.close()
                self._kept = None
            if self._kept is None:
                self._kept = self._dialled(layout)
            return ForeignSession(self._kept, ends_with_it=False)

    @contextmanager
    def _letting_go(self, session: ForeignSession) -> Iterator[None]:
        """Ends a connection on which something went wrong: it is not to be used again."""
        try:
            yield
        except Exception:
            with self._keeping:
                if self._kept is session.peer:
                    self._kept = None
            session.close()
            raise


class ForeignSession:
    """A session's connection, which ends when nobody holds the session any more.

    Args:
        peer: The connection.
        ends_with_it: Whether the connection is this session's alone.
        then: Called when the connection has ended.
    """

    def __init__(self, peer: Peer, *, ends_with_it: bool = True, then: Callable[[], None] | None = None) -> None:
        self.peer = peer
        self._end = weakref.finalize(self, _close_aside, peer, then) if ends_with_it else None

    def close(self) -> None:
        """Ends the connection, whoever else has it."""
        if self._end is not None:
            self._end()  # once: it does nothing the second time
        else:
            _close_aside(self.peer, None)


def _close_aside(peer: Peer, then: Callable[[], None] | None) -> None:
    """Ends a connection in a thread: the other side may take seconds to say goodbye, and others are waiting here."""

    def close() -> None:
        try:
            peer.close()
        finally:
            if then is not None:
                then()

    threading.Thread(target=close, name="closing", daemon=True).start()


def _peer_class(address: str, form: str) -> tuple[type[Peer], str]:
    scheme = Endpoint.parse(address, port=0).wire
    forms = spoken_at(scheme)
    if form and form not in forms:
        meant = WIRES[form].scheme if form in WIRES else ""
        elsewhere = f"; {meant}:// has" if len(spoken_at(meant)) > 1 else ""
        if len(forms) == 1 or elsewhere:
            raise UsageError(f"{scheme}:// has no form {form!r}{elsewhere}.")
        raise unknown(f"form of {scheme}://:", form, forms)
    if not form and scheme not in forms:
        one_of = " or ".join(str(Hint("policy_arg", "form", one)) for one in forms)
        raise UsageError(f"{address!r} does not say which form of /act it takes: give {one_of}.")
    wire = form or scheme
    module, _, name = WIRES[wire].client.partition(":")
    try:
        found = import_module(f"sparring.policy_server.bridges.clients.{module}")
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{scheme}:// needs {error.name!r}, which is not installed: {install_command('bridges')}."
        ) from error
    peer: type[Peer] = getattr(found, name)
    return peer, wire


def _key(file: str) -> str:
    if not file:
        return ""
    return read_token(Path(file), flag="key_file")
