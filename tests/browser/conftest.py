"""A real browser: Debian's Chromium, without a window, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

OpenPage = Callable[..., Page]

expect.set_options(timeout=60_000)  # what is waited for may be a process that starts, on a busy machine


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for the tests of a file. Playwright has an event loop in this thread: no other test may find it there."""
    with sync_playwright() as playwright:
        # As root, which CI is, Chromium has no sandbox of its own to start in.
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Opens a page; afterwards, nothing may have been complained about, and nothing asked for elsewhere."""
    complaints: list[str] = []
    contexts = []

    def open_it(
        address: str | Path,
        *,
        width: int = 1280,
        scheme: str = "light",
        server_goes_away: bool = False,
        is_refused: bool = False,
    ) -> Page:
        """Opens a page. That a server does not answer, or refuses something, the browser itself complains about."""
        allowed = ["net::ERR_"] * server_goes_away + ["status of 401"] * is_refused
        target = address if isinstance(address, str) else address.resolve().as_uri()
        own = target.split("/", 3)[2]
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)

        def heard(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning") and not any(known in message.text for known in allowed):
                complaints.append(f"console: {message.text}")

        def asked(request: Request) -> None:
            if not request.url.startswith(("data:", "blob:")) and request.url.split("/", 3)[2] != own:
                complaints.append(f"asked for {request.url}")

        page.on("console", heard)
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("request", asked)
        page.goto(target)
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert complaints == []
