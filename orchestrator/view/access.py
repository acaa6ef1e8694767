"""Who may see the pages: this machine, or who brings the token; and no other page that the same browser has open."""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import socket
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from sparring.protos.net.access import TOKEN_HEADER, brought
from sparring.protos.net.address import Address

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HOST: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]/?#@\s]*)(:\d{1,5})?")
_MOST_FORM: Final = 8192
_LOGIN: Final = "/login"
OPEN: Final = "/web/"
"""Where scripts and styles are: they are the same for everybody, and the page that asks for the token needs them."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""What our own pages may load: what this server has, and nothing else."""
_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Access:
    """Decides who may see the pages.

    Attributes:
        listen: Where they are served.
        token: That viewers must bring; empty: none.
        session: What a browser is given that has brought it.
    """

    listen: Address
    token: str = field(default="", repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def cookie(self) -> str:
        """The name of a cookie of this server's own: browsers have one jar for all ports of a machine."""
        return f"sparring_view_{self.listen.port}"

    def is_known_host(self, host: str) -> bool:
        """Returns whether a browser that speaks to this host means this server, and no name of a stranger's.

        A page of any site can give its own name the address of this machine (DNS rebinding), and would be let in by a
        browser. A token keeps such pages out by itself: a browser has it for the names that it was brought under.
        """
        if _HOST.fullmatch(host) is None:
            return False
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        if self.token or name == "localhost" or name.endswith(".localhost"):
            return bool(name)
        try:
            number = ipaddress.ip_address(name)
        except ValueError:
            own = {self.listen.host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
            return self.listen.leaves_the_machine and name in own
        return number.is_loopback or self.listen.leaves_the_machine

    def is_let_in(self, request: Request) -> bool:
        """Returns whether a request brings the token, or what was given for it."""
        if not self.token:
            return True
        headers = [(TOKEN_HEADER, value) for value in request.headers.getlist(TOKEN_HEADER)]
        given = request.cookies.get(self.cookie, "")
        return brought(headers, self.token) == "right" or hmac.compare_digest(given.encode(), self.session.encode())

    def log_in(self, form: bytes) -> bool:
        """Returns whether a form that was sent has the token."""
        given = parse_qs(form.decode(errors="replace")).get("token", [""])[0].strip()
        return hmac.compare_digest(given.encode(), self.token.encode())


class Guard:
    """Stands before the pages.

    Args:
        app: The pages.
        access: Who may see them.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or lets the pages do so."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in {**_HEADERS, "content-security-policy": POLICY}.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = await self._refusal(Request(scope, receive))
        await (self._app if answer is None else answer)(scope, receive, send_guarded)

    async def _refusal(self, request: Request) -> Response | None:
        access = self._access
        if not access.is_known_host(request.headers.get("host", "")):
            return PlainTextResponse(
                "This page is for this machine. Open it as localhost, for example through an ssh tunnel.\n", 403
            )
        if _is_of_another_page(request.headers):
            return PlainTextResponse("Another page has asked for this one.\n", 403)
        if access.token and request.url.path == _LOGIN and request.method == "POST":
            return await self._log_in(request)
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("Pages can be looked at, and nothing else.\n", 405)
        if access.is_let_in(request) or request.url.path.startswith(OPEN):
            return None
        return _login_page("")

    async def _log_in(self, request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _MOST_FORM:
                return PlainTextResponse("That is no token.\n", 413)
        if not self._access.log_in(body):
            return _login_page("That is not the token of this page.")
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            self._access.cookie,
            self._access.session,
            httponly=True,
            samesite="strict",
            secure=self._access.listen.is_encrypted,
        )
        return answer


def _is_of_another_page(headers: Headers) -> bool:
    """Returns whether a page of somebody else's has a part of ours loaded, or sends us a form: links are welcome."""
    site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "")
    if site in ("cross-site", "same-site") and mode != "navigate":
        return True
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host", "")


def _login_page(problem: str) -> HTMLResponse:
    return HTMLResponse(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        "<title>Sparring</title><link rel=icon href=/web/icon.svg>"
        "<link rel=stylesheet href=/web/base.css><link rel=stylesheet href=/web/live.css>"
        "<main class=login><h1>Sparring</h1><form method=post action=/login>"
        "<label for=token>The token of this page is in the file that it was started with.</label>"
        "<input id=token name=token type=password autocomplete=off autofocus required>"
        f"<button>Open</button><p class=caution>{escape(problem)}</p></form></main></html>",
        401,
    )
