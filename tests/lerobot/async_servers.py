"""LeRobot's own policy server for asynchronous inference, in the test's process, as its `serve` starts it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc


@contextmanager
def policy_server(folder: Path, port: int = 0, **config: Any) -> Iterator[tuple[Any, int]]:
    """The server's object, and its port; `folder` is where it leaves its logs."""
    before = Path.cwd()
    os.chdir(folder)  # it makes logs/ where it is imported
    try:
        from lerobot.async_inference.configs import PolicyServerConfig
        from lerobot.async_inference.policy_server import PolicyServer
        from lerobot.transport import services_pb2_grpc
    finally:
        os.chdir(before)
    servicer = PolicyServer(PolicyServerConfig(**{"inference_latency": 0.0, "obs_queue_timeout": 0.3, **config}))
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4), options=[("grpc.so_reuseport", 0)])
    services_pb2_grpc.add_AsyncInferenceServicer_to_server(servicer, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    assert bound
    server.start()
    try:
        yield servicer, bound
    finally:
        server.stop(None).wait(10)
