"""A real Ray cluster of several nodes on this machine; all that is started is ended."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

# Everything at the loopback address, where nobody else is: Ray would take it for the machine's own otherwise. It reads
# that when it is imported, here and in all that is started here.
os.environ.update(RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_USAGE_STATS_ENABLED="0")

NODE: dict[str, Any] = {"object_store_memory": 80_000_000, "node_ip_address": "127.0.0.1", "include_dashboard": False}


class RayCluster:
    """A head without CPUs, and nodes that come and go."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0})
        self.nodes: list[Any] = []

    @property
    def address(self) -> str:
        return str(self._cluster.address)

    def add(self, **resources: Any) -> Any:
        with contextlib.chdir("/"):  # what is started in a test's folder is held against the test
            self.nodes.append(self._cluster.add_node(**NODE, **resources))
        return self.nodes[-1]

    def kill(self, node: Any) -> None:
        """Kills a node as if its power were gone: its raylet and all that it has started, at once."""
        raylet = node.all_processes["raylet"][0].process.pid
        processes = [psutil.Process(raylet), *psutil.Process(raylet).children(recursive=True)]
        for process in processes:
            process.kill()
        psutil.wait_procs(processes, timeout=30)
        self.nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def kill_head(self) -> None:
        """Kills what every other node and every driver of the cluster asks."""
        process = psutil.Process(self._cluster.head_node.all_processes["gcs_server"][0].process.pid)
        process.kill()
        psutil.wait_procs([process], timeout=30)

    def worker_processes(self) -> list[psutil.Process]:
        """Returns the workers of runs, and their slots, on any node."""
        found = []
        for process in psutil.process_iter():
            try:
                if "sparring.env_worker" in process.cmdline() and process.environ().get("RAY_JOB_ID"):
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def kill_actor(self, name: str) -> None:
        """Kills an actor as somebody does who has found it in Ray's lists."""
        kill = "import ray,sys; ray.init(sys.argv[1], log_to_driver=False, logging_level='ERROR'); "
        kill += "named = {a['name']: a['namespace'] for a in ray.util.list_named_actors(all_namespaces=True)}; "
        kill += "ray.kill(ray.get_actor(sys.argv[2], named[sys.argv[2]]))"
        subprocess.run([sys.executable, "-c", kill, self.address, name], check=True, capture_output=True, timeout=60)

    def actors(self) -> list[str]:
        """Returns the names of all actors that there are."""
        return self._asked("[a['name'] for a in ray.util.list_named_actors(all_namespaces=True)]")

    def jobs(self) -> list[str]:
        """Returns the names of all jobs that there are or were, as Ray's pages show them."""
        told = "ray._private.worker.global_worker.gcs_client.get_all_job_info().values()"
        return self._asked(f"[job.config.metadata.get('job_name', '') for job in {told}]")

    def _asked(self, question: str) -> list[str]:
        """Asks Ray, in a process of its own: this one is to stay outside, as a user's tests would."""
        ask = "import ray,sys,json; ray.init(sys.argv[1], log_to_driver=False, logging_level='ERROR'); "
        ask += f"print(json.dumps({question}))"
        done = subprocess.run([sys.executable, "-c", ask, self.address], capture_output=True, text=True, timeout=60)
        return list(json.loads(done.stdout.splitlines()[-1]))

    def end(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """Two nodes with two CPUs each, and a head that plays nothing."""
    folder = tempfile.mkdtemp(prefix="ray-")  # short: the names of its sockets have at most 107 characters
    os.environ["RAY_TMPDIR"] = folder
    cluster = RayCluster()
    try:
        cluster.add(num_cpus=2, resources={"sim": 2})
        cluster.add(num_cpus=2, resources={"sim": 2})
        yield cluster
    finally:
        cluster.end()
        del os.environ["RAY_TMPDIR"]
        shutil.rmtree(folder, ignore_errors=True)
