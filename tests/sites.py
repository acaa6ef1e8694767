"""Servers of live pages, for tests."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rows import ROW

from sparring.env_worker.benchmark import Task
from sparring.orchestrator.plan import Plan
from sparring.orchestrator.run.listeners import RunStart
from sparring.orchestrator.view.listener import LiveListener
from sparring.orchestrator.view.model import RunModel
from sparring.orchestrator.view.pages import Pages, ShownRun
from sparring.orchestrator.view.server import ViewOptions, ViewServer
from sparring.protos.net.address import Address

ANY_PORT = Address("tcp", "127.0.0.1", 0)


class Site:
    """A server of pages, and a client of it."""

    def __init__(self, pages: Pages, options: ViewOptions) -> None:
        self.pages = pages
        self.server = ViewServer(options)
        self.server.start(pages)
        self.port = self.server.address.port

    def ask(self, path: str, method: str = "GET", body: str | None = None, **headers: str) -> Any:
        """The answer; its body has been read."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        answer.text = answer.read().decode(errors="replace")  # type: ignore[attr-defined]
        connection.close()
        return answer


def own(folder: Path) -> ShownRun:
    model = RunModel()
    heard = LiveListener(model, folder)
    plan = Plan({"toy": [Task("x", "go", "g")]}, 4, 5)
    heard.on_start(RunStart(plan, [ROW], {"policy": "<b>forward</b>"}, folder))
    heard.on_worker("w", 1)
    return ShownRun(model, folder, frames=heard.frames)


@contextmanager
def serving(pages: Pages, options: ViewOptions | None = None) -> Iterator[Site]:
    site = Site(pages, options or ViewOptions(ANY_PORT))
    try:
        yield site
    finally:
        site.server.stop()
