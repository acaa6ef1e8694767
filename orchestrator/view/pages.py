"""The pages, by their addresses: runs, one run live, its report and films, and comparisons."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final, ParamSpec, TypeVar, get_args

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from sparring.orchestrator.view.documents import comparison_document, error_document, report_document
from sparring.orchestrator.view.film import film_response
from sparring.orchestrator.view.folder_watch import FolderWatch
from sparring.orchestrator.view.library import Library
from sparring.orchestrator.view.listener import LatestFrames
from sparring.orchestrator.view.model import RunModel, SeenSoFar
from sparring.protos.advice import FLAGS
from sparring.protos.episode_rules import Metric
from sparring.protos.errors import SparringError

_EVERY_SECONDS: Final = 0.25
_ALIVE_SECONDS: Final = 10.0
"""So often something is said where nothing happens: a browser that has gone is noticed by it."""
_MOST_STREAMS: Final = 64
_MOST_KEPT: Final = 16
"""Runs that are kept in memory; the one that was not looked at for longest makes room for another."""
_MOST_COMPARED: Final = 8
_MOST_DIGITS: Final = 9
_MOST_LARGE: Final = 2
"""Answers with all of a run that are made at a time: the run goes on beside them, in the same interpreter."""
_LARGE_SECONDS: Final = 60.0
_WEB: Final = {
    "base.css": ("report", "report.css", "text/css"),
    "live.css": ("view", "live.css", "text/css"),
    "common.js": ("view", "common.js", "text/javascript"),
    "icon.svg": ("view", "icon.svg", "image/svg+xml"),
    "parts.js": ("report", "parts.js", "text/javascript"),
    "live.js": ("view", "live.js", "text/javascript"),
    "runs.js": ("view", "runs.js", "text/javascript"),
}
_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")

OWN: Final = "this"
"""What the run of this process is known by."""


@dataclass(frozen=True)
class ShownRun:
    """A run that somebody looks at.

    Attributes:
        model: What is known of it.
        folder: Its output folder.
        refresh: Makes that up to date.
        frames: What its slots see; None: that cannot be had.
        root: The folder that was named, below which no link is followed; None: its own.
    """

    model: RunModel
    folder: Path
    refresh: Callable[[], None] | None = None
    frames: LatestFrames | None = None
    root: Path | None = None


class Pages:
    """All pages of one server.

    Args:
        library: The runs that can be chosen from; None: there are none.
        own: The run of this process; None: it makes none.
    """

    def __init__(self, library: Library | None = None, own: ShownRun | None = None) -> None:
        self._library = library
        self._own = own
        self._kept: OrderedDict[str, ShownRun] = OrderedDict()
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._large = asyncio.Semaphore(_MOST_LARGE)
        self.streams = 0
        """How many pages are being told what happens, at this moment."""

    def app(self) -> Starlette:
        """Returns what answers requests."""
        return Starlette(
            routes=[
                Route("/", self._index),
                Route("/runs.json", self._runs),
                Route("/compare", self._compare),
                Route("/run/{id}/", self._page),
                Route("/run/{id}/events", self._events),
                Route("/run/{id}/frame", self._frame),
                Route("/run/{id}/report", self._report),
                Route("/run/{id}/film/{task}/{name}", self._film),
                Route("/web/{name}", self._web),
            ],
            exception_handlers={HTTPException: _told, SparringError: _told_sentence},
        )

    def say_goodbye(self, seconds: float) -> None:
        """Tells everybody the last news, and that there will be none; waits for that, but not for long."""
        self._ending.set()
        deadline = time.monotonic() + seconds
        while self.streams and time.monotonic() < deadline:
            time.sleep(0.02)

    def _shown(self, id: str) -> ShownRun:
        if self._own is not None and id == OWN:
            return self._own
        entry = None if self._library is None else self._library.get(id)
        if entry is None:
            raise HTTPException(404, "There is no such run here, or not any more.")
        with self._lock:
            found = self._kept.pop(id, None)
            if found is None:
                model = RunModel()
                found = ShownRun(
                    model, entry.folder, FolderWatch(model, entry.folder, entry.root).refresh, root=entry.root
                )
            self._kept[id] = found
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
            return found

    def _index(self, request: Request) -> Response:
        if self._own is not None:
            return RedirectResponse(f"/run/{OWN}/")
        if self._library is not None and (only := self._library.only) is not None:
            return RedirectResponse(f"/run/{only.id}/")
        return _html("runs.html")

    def _runs(self, request: Request) -> Response:
        if self._library is None:
            return JSONResponse({"runs": [], "cut": False})
        runs = self._library.listed()
        return JSONResponse({"runs": runs, "cut": self._library.cut})

    def _page(self, request: Request) -> Response:
        self._shown(request.path_params["id"])
        alone = self._library is None or self._library.only is not None
        return _html("live.html", mark="data-alone" if alone else "")

    async def _events(self, request: Request) -> Response:
        shown = await run_in_threadpool(self._shown, request.path_params["id"])
        if self.streams >= _MOST_STREAMS:
            return PlainTextResponse("Too many pages are open.\n", 503)
        return StreamingResponse(self._stream(shown), media_type="text/event-stream")

    async def _stream(self, shown: ShownRun) -> AsyncIterator[str]:
        self.streams += 1
        try:
            seen, said = SeenSoFar(), time.monotonic()
            while True:
                ending = self._ending.is_set()
                told = ""
                if shown.refresh is not None:
                    await run_in_threadpool(shown.refresh)
                if seen.epoch < 0:
                    with suppress(HTTPException):  # it is not their turn yet
                        told, seen = await self._one_of_few(_news, shown.model, seen)
                else:
                    told, seen = await run_in_threadpool(_news, shown.model, seen)
                if told or time.monotonic() - said >= _ALIVE_SECONDS:
                    said = time.monotonic()
                    yield f"data: {told or '{}'}\n\n"
                if ending:
                    yield "event: end\ndata: {}\n\n"
                    return
                await asyncio.sleep(_EVERY_SECONDS)
        finally:
            self.streams -= 1

    def _frame(self, request: Request) -> Response:
        shown = self._shown(request.path_params["id"])
        worker, slot = request.query_params.get("worker", ""), _number(request.query_params.get("slot", ""))
        if shown.frames is None or slot is None or not shown.model.has_slot(worker, slot):
            raise HTTPException(404, "There is no such slot here, or not any more.")
        frame = shown.frames.look(worker, slot)
        if frame is None:
            return Response(status_code=204)
        # The worker may be anybody's: it is an image, or nothing that a browser would make something of.
        return Response(frame.image, media_type="image/png", headers={"x-steps": str(frame.steps)})

    async def _report(self, request: Request) -> Response:
        return await self._one_of_few(self._make_report, request)

    async def _compare(self, request: Request) -> Response:
        return await self._one_of_few(self._make_comparison, request)

    async def _one_of_few(self, make: Callable[_Given, _Made], *given: _Given.args, **named: _Given.kwargs) -> _Made:
        """Makes something large in a thread, when few others are being made."""
        try:
            async with asyncio.timeout(_LARGE_SECONDS):
                await self._large.acquire()
        except TimeoutError:
            raise HTTPException(503, "Too many others ask for as much at the moment: try again later.") from None
        try:
            return await run_in_threadpool(make, *given, **named)
        finally:
            self._large.release()

    def _make_report(self, request: Request) -> Response:
        shown = self._shown(request.path_params["id"])
        return report_document(shown.folder, shown.root or shown.folder)

    def _film(self, request: Request) -> Response:
        shown = self._shown(request.path_params["id"])
        if shown.refresh is not None:
            shown.refresh()
        name, dot, _ = request.path_params["name"].partition(".")
        task, index = _number(request.path_params["task"]), _number(name)
        names = [] if not dot or task is None or index is None else shown.model.film_files(task, index)
        for file in names:
            if (film := film_response(shown.root or shown.folder, shown.folder, file)) is not None:
                return film
        raise HTTPException(404, "There is no such film here, or not any more.")

    def _make_comparison(self, request: Request) -> Response:
        ids = list(dict.fromkeys(request.query_params.getlist("run")))[:_MOST_COMPARED]
        if len(ids) < 2:
            raise HTTPException(400, "Two runs are needed for a comparison.")
        force = request.query_params.get("force") == "1"
        metric = request.query_params.get("metric", "")
        if metric not in ("", *get_args(Metric)):
            raise HTTPException(400, "Runs are compared by success, or by return.")
        runs = [(id, self._shown(id)) for id in ids]
        folders = [(id, run.folder, run.root or run.folder) for id, run in runs]
        return comparison_document(folders, force=force, metric=metric)

    def _web(self, request: Request) -> Response:
        room, name, kind = _WEB.get(request.path_params["name"], ("", "", ""))
        if not name:
            raise HTTPException(404, "There is no such file here.")
        content = (files(f"sparring.orchestrator.{room}") / "web" / name).read_bytes()
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})


def _news(model: RunModel, seen: SeenSoFar) -> tuple[str, SeenSoFar]:
    """Returns what somebody has not seen yet, as JSON, and how much they have seen then; empty: nothing."""
    news, now = model.news(seen)
    return ("" if news is None else json.dumps(news, allow_nan=False, separators=(",", ":"))), now


def _number(text: str) -> int | None:
    """Returns the number that an address has; None: it has none, or one that no run has."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def _html(name: str, mark: str = "") -> Response:
    content = (files("sparring.orchestrator.view") / "web" / name).read_text()
    return Response(content.replace("<body>", f"<body {mark}>" if mark else "<body>"), media_type="text/html")


def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_document(error.detail, error.status_code)


def _told_sentence(request: Request, error: Exception) -> Response:
    assert isinstance(error, SparringError)
    return error_document(error.told(FLAGS), 422)
