"""The live page of runs on a cluster: its slots are jobs elsewhere, or the run itself is a job."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from chaos.proxy import Proxy
from slurm_cluster import PLAN, SLOW, Cluster, ended
from support import StartSparring, Undisturbed, free_port, read_csv, wait_for


def asked(port: int, path: str) -> tuple[int, bytes]:
    """What a page gets that is opened as localhost, at the tunnel's end here."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path, headers={"Host": f"localhost:{port}"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def told(port: int) -> dict[str, Any]:
    """The first news that a page is told."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/run/this/events", headers={"Host": f"localhost:{port}"})
        line = connection.getresponse().readline()
        time.sleep(0.5)  # who has gone is noticed a little later, and a page has so many listeners at most
        return json.loads(line.decode().removeprefix("data: "))  # type: ignore[no-any-return]
    finally:
        connection.close()


def sees(port: int, slot: dict[str, Any]) -> bool:
    """Whether there is an image of what a slot sees; asking for it is looking."""
    status, image = asked(port, f"/run/this/frame?worker={slot['worker']}&slot={slot['slot']}")
    return status == 200 and image.startswith(b"\x89PNG")


def test_slots_that_are_jobs_on_other_nodes_are_seen_through_a_tunnel(
    cluster: Cluster, start_sparring: StartSparring, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    expected = undisturbed(*PLAN)
    port = free_port()
    run = start_sparring(
        *SLOW, "--launcher", "slurm", "--workers", "2", "--slots-per-worker", "1", "--slurm", "mem=100M",
        "--output", "seen", "--view-listen", f"127.0.0.1:{port}",
    )  # fmt: skip
    cluster.running("seen", 2)
    tunnel = Proxy(port)
    try:
        wait_for(lambda: len([slot for slot in told(tunnel.port).get("slots", []) if slot["task"]]) == 2)
        for slot in told(tunnel.port)["slots"]:
            wait_for(lambda slot=slot: sees(tunnel.port, slot), seconds=30)
        wait_for(lambda: told(tunnel.port)["progress"]["done"] > 0)
    finally:
        tunnel.close()
    ended(run)
    assert read_csv(tmp_path / "seen") == expected, "whoever looks changes nothing"


def test_a_run_that_is_a_job_says_where_its_page_is(cluster: Cluster, tmp_path: Path) -> None:
    port = free_port()
    run = (*SLOW, "--slots", "1", "--output", "sub", "--view-listen", f"127.0.0.1:{port}")
    command = [sys.executable, "-m", "sparring", "submit", "--slurm", "mem=100M", *run]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    number = re.findall(r"submitted job (\d+)", done.stdout)[0]
    try:
        log = tmp_path / f"sub-{number}.log"
        wait_for(lambda: log.exists() and f"live page: http://127.0.0.1:{port}/" in log.read_text())
        tunnel = Proxy(port)
        try:
            wait_for(lambda: told(tunnel.port).get("slots", []) != [])
            (slot,) = told(tunnel.port)["slots"]
            wait_for(lambda: sees(tunnel.port, slot), seconds=30)
        finally:
            tunnel.close()
    finally:
        cluster.do("scancel", number)
