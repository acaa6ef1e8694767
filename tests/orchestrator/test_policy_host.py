"""The policy that a run hosts: started, started again where it was, given up. And those that are elsewhere.

The server is a script that says how it ends: a real one takes a second to start, and does not die when it is told to.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from certificates import TOKEN, Certificates

from sparring.orchestrator.retry import RetryRules
from sparring.orchestrator.serving import policy_host
from sparring.orchestrator.serving.policy_host import (
    PolicyAccess,
    PolicyHost,
    PolicyHostFailed,
    ServerEnd,
    policy_identity,
)
from sparring.orchestrator.settings import RunSettings, read_settings
from sparring.policy_server.client import Description, PolicyClient, PolicyDenied
from sparring.protos.errors import UsageError
from sparring.protos.net.address import Address
from sparring.protos.spec import PolicySpec

SERVER = """#!/bin/sh
echo "$@" >> {folder}/arguments
attempt=$(wc -l < {folder}/arguments)
touch {folder}/policy.sock
listen() {{ echo '{{"listening": ["unix://{folder}/policy.sock", "127.0.0.1:4321"]}}'; }}
{then}
"""

Scripted = Callable[[str], None]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Says what the policy server does."""
    script = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(script))

    def does(then: str) -> None:
        script.write_text(SERVER.format(folder=tmp_path, then=then))
        script.chmod(0o755)

    return does


def settings(**given: Any) -> RunSettings:
    return read_settings({"benchmark": "toy", "task": "short", "policy": "toy_policies:Forward", **given})


def host(tmp_path: Path, rules: RetryRules = RetryRules(), **given: Any) -> PolicyHost:  # noqa: B008  (frozen)
    return PolicyHost(settings(**given), host="127.0.0.1", sockets=tmp_path, folder=tmp_path, rules=rules)


def run(hosting: PolicyHost, until: Callable[[], bool] = lambda: False) -> bool:
    """Hosts until something is true; returns whether the policy was ever ready."""

    async def work() -> bool:
        ready = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(hosting.run(ready))
        async with asyncio.timeout(60):
            while not serving.done() and not until():
                await asyncio.sleep(0.01)
        if serving.done():
            serving.result()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        return ready.done()

    return asyncio.run(work())


def started(tmp_path: Path) -> list[str]:
    path = tmp_path / "arguments"
    return path.read_text().splitlines() if path.exists() else []


def test_it_is_told_what_to_serve_and_says_where_it_does(server: Scripted, tmp_path: Path) -> None:
    server("listen; exec sleep 60")
    hosting = host(tmp_path, policy_arg={"gain": 2}, max_batch=7, max_queue_delay=0.25, metrics=":9090")
    assert run(hosting, lambda: hosting.addresses[1].port == 4321)
    assert [str(address) for address in hosting.addresses] == [f"unix://{tmp_path}/policy.sock", "127.0.0.1:4321"]
    (arguments,) = started(tmp_path)
    assert arguments.startswith("-P -m sparring.policy_server --policy=toy_policies:Forward ")
    for expected in ('--policy-args={"gain": 2}', "--max-batch=7", "--max-queue-delay=0.25", "9090", "127.0.0.1:0"):
        assert expected in arguments
    assert (tmp_path / "policy.sock").stat().st_mode & 0o666 == 0o666, "containers are other users"


@pytest.mark.processes
def test_it_is_for_the_workers_of_its_run_and_nobody_else(short_folder: Path) -> None:
    """Every user of the machine reaches its port; with --listen 0.0.0.0, everybody else, too."""
    hosting = PolicyHost(
        settings(policy="zero"), host="0.0.0.0", sockets=short_folder, folder=short_folder, rules=RetryRules()
    )
    said: list[object] = []

    def asked() -> bool:
        if not hosting.addresses[1].port:
            return False
        for address in (hosting.addresses[0], hosting.addresses[1].with_host("127.0.0.1")):
            for token in ("", hosting.token):
                with PolicyClient(address, timeout=60, token=token) as client:
                    try:
                        said.append(client.describe().name)
                    except PolicyDenied as denied:
                        said.append(type(denied))
        arguments = Path(f"/proc/{_server_at(short_folder)}/cmdline").read_bytes()
        assert hosting.token.encode() not in arguments
        return True

    assert run(hosting, asked)
    assert said == [PolicyDenied, "zero"] * 2
    assert not [path for path in short_folder.rglob("*") if path.is_file() and hosting.token in path.read_text()]


def _server_at(sockets: Path) -> int:
    """The process that was told to listen in this folder."""
    for found in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if f"--listen=unix://{sockets}/policy.sock".encode() in found.read_bytes():
                return int(found.parent.name)
    raise AssertionError("no such process")


def test_one_that_dies_is_started_again_at_the_same_address(
    server: Scripted, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server("listen; [ $attempt = 1 ] && exit 9; exec sleep 60")
    assert run(host(tmp_path), lambda: len(started(tmp_path)) == 2)
    first, second = started(tmp_path)
    assert "--listen=127.0.0.1:0" in first
    assert "--listen=127.0.0.1:4321" in second, "workers know that port"
    assert "the policy server ended with exit code 9; starting it again" in caplog.text


def test_one_that_dies_again_and_again_is_given_up_with_its_last_words(server: Scripted, tmp_path: Path) -> None:
    server("listen; echo 'no more memory' >&2; exit 9")
    with pytest.raises(PolicyHostFailed, match=r"died 3 times soon after it had started \(exit code 9\)") as failure:
        run(host(tmp_path, RetryRules(policy_server_restarts=2)))
    assert "no more memory" in str(failure.value)
    assert len(started(tmp_path)) == 3


def test_one_that_lived_long_enough_has_its_earlier_deaths_forgiven(server: Scripted, tmp_path: Path) -> None:
    server("listen; exit 9")
    patient = RetryRules(policy_server_restarts=1, policy_server_settled=0.0)
    assert run(host(tmp_path, patient), lambda: len(started(tmp_path)) >= 4)


@pytest.mark.parametrize(
    ("code", "kind", "words", "sentence"),
    [
        (2, UsageError, "error: there is no policy 'Froward'.", "^there is no policy 'Froward'.$"),
        (1, PolicyHostFailed, "Traceback\\nValueError: boom", "ValueError: boom"),
        (3, PolicyHostFailed, "", r"the policy server ended with exit code 3; see .*policy-server\.log"),
    ],
)
def test_one_that_does_not_start_is_told_in_its_own_words(
    server: Scripted, tmp_path: Path, code: int, kind: type[Exception], words: str, sentence: str
) -> None:
    server(f'printf "{words}" >&2; exit {code}')
    with pytest.raises(kind, match=sentence):
        run(host(tmp_path))
    assert len(started(tmp_path)) == 1, "what cannot be made is not tried again"


def test_one_that_loads_for_ever_is_given_up(server: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_host, "START_SECONDS", 0.2)
    server("exec sleep 60")
    with pytest.raises(PolicyHostFailed, match=r"the policy did not load within 0\.2 s"):
        run(host(tmp_path))


def test_nothing_is_left_when_the_run_ends(server: Scripted, tmp_path: Path) -> None:
    server(f"trap 'echo bye > {tmp_path}/bye; exit 0' TERM; listen; while :; do sleep 0.05; done")
    hosting = host(tmp_path)
    assert run(hosting, lambda: hosting.addresses[1].port == 4321)
    assert (tmp_path / "bye").exists()


# ------------------------------------------------------------------------------------ policies elsewhere


def elsewhere(servers: str, **given: Any) -> PolicyAccess:
    return PolicyAccess.elsewhere(settings(policy=None, policy_server=servers, **given))


def test_the_way_to_a_policy_elsewhere(certificates: Certificates) -> None:
    access = elsewhere("tls://box:1", policy_token_file=certificates.token, policy_ca=certificates.ca)
    assert [str(address) for address in access.servers] == ["tls://box:1"]
    assert access.token == TOKEN
    assert access.ca == certificates.ca.read_bytes()
    assert not access.replicas
    assert TOKEN not in repr(access)


def test_several_servers_are_replicas() -> None:
    access = elsewhere("a:1, b:2")
    assert access.replicas
    assert [str(address) for address in access.servers] == ["a:1", "b:2"]


def test_of_a_policy_of_our_own_the_nearest_address_is_asked() -> None:
    access = PolicyAccess([Address.parse("unix:///p.sock"), Address.parse("h:1")])
    assert [str(address) for address in access.servers] == ["unix:///p.sock"]


@pytest.mark.parametrize(
    ("address", "warned"),
    [("box:1", True), ("tls://box:1", False), ("127.0.0.1:1", False), ("unix:///p.sock", False)],
)
def test_a_token_that_travels_in_the_open_is_warned_of(
    certificates: Certificates, caplog: pytest.LogCaptureFixture, address: str, warned: bool
) -> None:
    caplog.set_level(logging.WARNING, "sparring")
    elsewhere(address, policy_token_file=certificates.token)
    assert ("travels unencrypted to box:1" in caplog.text) == warned
    assert TOKEN not in caplog.text


# ------------------------------------------------------------------------------------ replicas must be alike

ONE = Description(
    name="p", arguments={"gain": 1, "device": "cpu"}, checkpoint_sha256="ab", server_version="1",
    needs=PolicySpec(["image"], action_dim=3),
)  # fmt: skip


def test_the_device_and_the_release_are_each_servers_own_affair() -> None:
    other = replace(ONE, arguments={"gain": 1, "device": "cuda:1"}, server_version="2")
    assert policy_host._difference(ONE, other) == []


@pytest.mark.parametrize(("each", "all_of_them"), [((1, 256), 257), ((0, 256), 0)])
def test_replicas_take_the_sessions_of_all_of_them(
    each: Sequence[int], all_of_them: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = dict(zip("ab", (replace(ONE, max_sessions=most) for most in each), strict=True))

    class Client:
        def __init__(self, address: Address, **_: Any) -> None:
            self.describe = lambda: described[address.host]

        def __enter__(self) -> Client:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(policy_host, "PolicyClient", Client)
    access = PolicyAccess([Address("tcp", host, 1) for host in "ab"], replicas=True)
    assert asyncio.run(policy_host.describe(access, 1.0)) == replace(ONE, max_sessions=all_of_them)


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"name": "q"}, ("policy", '"p"', '"q"')),
        ({"arguments": {"gain": 2, "device": "cpu"}}, ("argument gain", "1", "2")),
        ({"arguments": {}}, ("argument gain", "1", "none")),
        ({"arguments": {"gain": 1, "more": 3}}, ("argument more", "none", "3")),
        ({"checkpoint_sha256": ""}, ("checkpoint", '"ab"', '"no checkpoint"')),
        ({"needs": PolicySpec(["image"], action_dim=4)}, ("needs", "some observations or actions", "others")),
    ],
)
def test_what_decides_numbers_must_be_alike(other: dict[str, Any], difference: tuple[str, str, str]) -> None:
    assert policy_host._difference(ONE, replace(ONE, **other)) == [difference]


def test_what_decides_numbers_is_what_a_run_is_known_by() -> None:
    assert policy_identity(ONE) == {
        "name": "p",
        "arguments": {"gain": 1, "device": "cpu"},
        "checkpoint_sha256": "ab",
    }


# ------------------------------------------------------------------------------------ a server that hangs, or is killed


class Watch:
    """Hears what becomes of the server."""

    def __init__(self, *, explained: bool = False) -> None:
        self.heard: list[str] = []
        self._explained = explained

    def policy_ended(self, end: ServerEnd) -> bool:
        self.heard.append(f"{end.kind}: {end.sentence}")
        return self._explained

    def policy_ready(self) -> None:
        self.heard.append("ready")


@pytest.mark.parametrize(
    ("then", "heard"),
    [
        ("exit 9", "crashed: ended with exit code 9"),
        ("kill -SEGV $$", "crashed: was ended by SIGSEGV"),
        ("kill -KILL $$", "killed: was ended by SIGKILL"),
    ],
)
def test_how_a_server_ended_is_told(server: Scripted, tmp_path: Path, then: str, heard: str) -> None:
    server(f"listen; [ $attempt = 1 ] && {then}; exec sleep 60")
    hosting = host(tmp_path)
    hosting.watch = watch = Watch()
    assert run(hosting, lambda: len(watch.heard) == 2)
    assert watch.heard == [heard, "ready"]


@pytest.mark.parametrize(
    ("stopped", "heard"),
    [(False, "hung: did not answer"), (True, "killed: was stopped by somebody")],
)
def test_one_that_does_not_answer_is_killed_and_started_again(
    server: Scripted, tmp_path: Path, stopped: bool, heard: str
) -> None:
    server(f"listen; [ $attempt = 1 ] && {'kill -STOP $$' if stopped else ':'}; exec sleep 60")
    hosting = host(tmp_path)
    hosting.watch = watch = Watch()
    assert not hosting.restart("did not answer"), "there is none"
    asked = False

    def killed() -> bool:
        nonlocal asked
        child = hosting._child
        if not asked and child is not None and (not stopped or psutil.Process(child.pid).status() == "stopped"):
            asked = True  # its end is heard of later, on a machine that is busy
            assert stopped or not hosting.restart("did not answer", only_if_stopped=True)
            assert hosting.restart("did not answer", only_if_stopped=stopped)
            assert not hosting.restart("did not answer"), "once"
        return len(watch.heard) == 2

    assert run(hosting, killed)
    assert watch.heard[0].startswith(heard)
    assert watch.heard[1] == "ready"


def test_deaths_that_are_explained_are_not_counted(server: Scripted, tmp_path: Path) -> None:
    server("listen; exit 9")
    hosting = host(tmp_path, RetryRules(policy_server_restarts=1))
    hosting.watch = Watch(explained=True)
    assert run(hosting, lambda: len(started(tmp_path)) >= 4)


def test_one_that_is_killed_while_it_loads_is_told_in_a_sentence(server: Scripted, tmp_path: Path) -> None:
    server("echo '12:00:00 loading' >&2; kill -KILL $$")
    with pytest.raises(PolicyHostFailed, match=r"^the policy server was ended by SIGKILL while it loaded the policy"):
        run(host(tmp_path))
    assert len(started(tmp_path)) == 1


def test_one_that_is_killed_while_it_loads_again_is_tried_again(server: Scripted, tmp_path: Path) -> None:
    server("[ $attempt = 2 ] && kill -KILL $$; listen; [ $attempt = 1 ] && exit 9; exec sleep 60")
    assert run(host(tmp_path), lambda: len(started(tmp_path)) == 3)
