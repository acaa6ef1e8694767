"""Trackers write to an empty folder, and nobody is asked elsewhere."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Trackio reads this when it is imported, and so do others: for the whole session.
os.environ["TRACKIO_DIR"] = tempfile.mkdtemp(prefix="sparring-trackio-")
os.environ["WANDB_MODE"] = "offline"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"


@pytest.fixture(autouse=True, scope="session")
def service() -> None:
    """A process of wandb's that lives as long as this one: begun here, it is nobody's orphan in a test's folder."""
    import wandb

    wandb.setup()


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each library in its own offline mode; a connection to another machine is a failure of the test."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # without a database's libraries
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    asked: list[Any] = []
    connect = socket.socket.connect

    def watched(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            asked.append(address)
            raise OSError("no network in tests")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", watched)
    yield
    assert asked == []
