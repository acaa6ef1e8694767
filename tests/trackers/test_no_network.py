"""Trackers offline, with every process that they start: not a packet leaves the machine, not even to ask for a name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

from sparring import Results

pytestmark = [pytest.mark.processes, pytest.mark.requires("netns", "mount")]

# A machine of its own, with a way out that leads nowhere and counts what is sent; names are asked for out there.
MACHINE = """
mount --bind resolv.conf /etc/resolv.conf
ip link set lo up
ip link add out type veth peer name wall
for end in out wall; do ip link set $end addrgenmode none; ip link set $end up; done
ip addr add 192.0.2.1/24 dev out
ip route add default via 192.0.2.2
"$@" 1>&2 || exit 1
cat /proc/net/dev
"""


def sent(folder: Path, *command: str) -> int:
    """How many packets a command, and whatever it starts, sends to other machines."""
    (folder / "resolv.conf").write_text("nameserver 192.0.2.53\noptions timeout:1 attempts:1\n")
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-c", MACHINE, "sh", *command],
        cwd=folder, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.strip().startswith("out:")]
    return int(line.partition(":")[2].split()[9])


def test_nobody_is_asked_by_any_process_of_a_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT / 'tests' / 'toy'}")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    asks = "import socket, contextlib\nwith contextlib.suppress(OSError): socket.getaddrinfo('api.example.org', 443)"
    assert sent(tmp_path, sys.executable, "-c", asks) > 0, "else nothing would be seen"
    run = ("run", "--in-process", "--benchmark", "toy", "--task", "short,long", "--policy", "toy_policies:Wanderer")
    more = ("--episodes", "2", "--video", "failures", "--track", "wandb,trackio,tensorboard,mlflow", "--output", "out")
    assert sent(tmp_path, sys.executable, "-m", "sparring", *run, *more) == 0
    assert len(Results.load(tmp_path / "out").rows) == 4
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb")), "wandb's own process has written it"
