"""Ray's own autoscaler brings the nodes that a run asks for; what it starts are nodes on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import Sparring, Undisturbed, free_port, read_csv, wait_for

PLAN = ("run", "--benchmark", "toy", "--task", "good", "--policy", "toy_policies:Wanderer", "--episodes", "4")
EMPTY: dict[str, Any] = {
    **{name: {} for name in ("auth", "head_node", "worker_nodes", "file_mounts")},
    **{name: [] for name in ("cluster_synced_files", "rsync_exclude", "rsync_filter")},
    **{f"{name}_commands": [] for name in ("initialization", "setup", "head_setup", "worker_setup")},
    **{f"{name}_start_ray_commands": [] for name in ("head", "worker")},
}
"""What Ray wants to be told of clusters in a cloud."""


def scaling(address: str) -> dict[str, Any]:
    """A head that plays nothing, and nodes for simulators, of which there are none yet."""
    simulators = {"CPU": 1, "sim": 1, "object_store_memory": 80_000_000}
    return {
        **EMPTY,
        "cluster_name": "test",
        "max_workers": 2,
        "upscaling_speed": 2.0,
        "idle_timeout_minutes": 5,
        "file_mounts_sync_continuously": False,
        "provider": {"type": "fake_multinode", "gcs_address": address},
        "head_node_type": "ray.head.default",
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "simulators": {"resources": simulators, "node_config": {}, "min_workers": 0, "max_workers": 2},
        },
    }


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[str]:
    """The address of a cluster that grows; all that belongs to it is ended."""
    folder = tempfile.mkdtemp(prefix="ray-")  # short: the names of its sockets have at most 107 characters
    address = f"127.0.0.1:{free_port()}"
    config = Path(folder, "scaling.json")
    config.write_text(json.dumps(scaling(address)))
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--temp-dir={folder}"]
    command += [f"--autoscaling-config={config}", "--node-ip-address=127.0.0.1", f"--port={address.rpartition(':')[2]}"]
    command += ["--num-cpus=0", "--object-store-memory=80000000", "--include-dashboard=false", "--disable-usage-stats"]
    environment = {**os.environ, "RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
    log = (tmp_path / "head.log").open("w")
    head = subprocess.Popen(command, cwd="/", env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(lambda: "Ray runtime started" in (tmp_path / "head.log").read_text() or head.poll() is not None)
        yield address
    finally:
        processes = [psutil.Process(head.pid), *psutil.Process(head.pid).children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=30)
        shutil.rmtree(folder, ignore_errors=True)


def test_nodes_come_because_workers_wait_for_them(
    growing: str, sparring: Sparring, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    expected = undisturbed(*PLAN)
    where = ("--launcher", "ray", "--ray-address", growing, "--workers", "2", "--slots-per-worker", "1")
    refused = sparring(*PLAN, *where, "--output", "refused")
    assert refused.returncode == 2, "there is no node that is large enough, and nobody has said that one may come"
    assert "if an autoscaler brings such nodes" in refused.stderr
    flags = ("--ray", "autoscale=true", "--ray", "resources={sim: 1}")
    done = sparring(*PLAN, *where, *flags, "--output", "grown", timeout=150)
    assert done.returncode == 0, done.stderr
    assert read_csv(tmp_path / "grown") == expected
