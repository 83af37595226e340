"""Serves the page of a live table on this machine, over HTTP: one page, and what is new for it.

It answers a browser on this machine that was told to open it, and no other page in that browser: a
site may let its own name resolve to 127.0.0.1 (DNS rebinding), and pages may send requests to any
address.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from eventlog.arguments import shown
from eventlog.errors import EventLogError, InvalidInput
from eventlog.view.live_history import LiveHistory, known_version

_SILENT_S = 10  # after which a connection that sends nothing is closed
_HTML, _JSON, _TEXT = "text/html", "application/json", "text/plain"
# The page is for the person who opened it: no other site may show it or read its answers.
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def serve_history(
    history: LiveHistory,
    host: str,
    port: int,
    *,
    ready: Callable[[str], None],
    failed: Callable[[EventLogError], None],
) -> None:
    """Serve the page until the program is interrupted. The store is asked only while a page asks.

    Args:
        history: what to serve.
        host: the name or address to listen on.
        port: to listen on; 0 picks a free one.
        ready: called with the URL, once requests are answered.
        failed: called with each error of the table; the page is told the kind of it alone.

    Raises:
        InvalidInput: the address cannot be listened on.
        KeyboardInterrupt: the program was interrupted; nothing listens any more.
    """
    try:
        server = _Server(history, host, port, failed)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidInput(
            f"{host} port {port} cannot be listened on ({reason}): give another --port, or 0 for "
            "any free one"
        ) from None
    with server:
        ready(f"http://{_bracketed(host)}:{server.server_address[1]}/")
        server.serve_forever(poll_interval=0.2)


def is_for_us(named: str, site: str, host: str) -> bool:
    """Return whether a request names this server as its own, and comes from its page or a person.

    A name that another site controls is neither an address nor `localhost`.

    Args:
        named: the header `Host` of the request.
        site: its header `Sec-Fetch-Site`, by which browsers tell who sends it; `none` without.
        host: the name that the server was told to listen on.
    """
    try:
        name = urlsplit(f"//{named}").hostname or ""
    except ValueError:
        return False
    if name not in ("localhost", host.lower()) and not _is_address(name):  # against rebound-name
        return False
    return site in ("none", "same-origin")  # against request-of-another-page


class _Server(ThreadingHTTPServer):
    """Answers from a live history, on the address it is given alone."""

    def __init__(
        self, history: LiveHistory, host: str, port: int, failed: Callable[[EventLogError], None]
    ) -> None:
        self.history, self.host, self.failed = history, host, failed
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind, without a look-up of the machine's name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.host, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback of an error, unless it is a connection that the browser closed."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "eventlog", ""
    timeout = _SILENT_S

    def do_GET(self) -> None:
        named, site = self.headers.get("Host", ""), self.headers.get("Sec-Fetch-Site", "none")
        if not is_for_us(named, site, self.server.host):
            self._answer(
                HTTPStatus.FORBIDDEN,
                _TEXT,
                "open this page by its address, as the program printed it, or name the host that "
                "you use with --host\n",
            )
            return
        try:
            wanted = _wanted(self.path)
            if wanted.path == "/":
                self._answer(HTTPStatus.OK, _HTML, self.server.history.page())
            elif wanted.path == "/history":
                after = parse_qs(wanted.query).get("after", [""])[0]
                body = self.server.history.newer(known_version(after))
                status = HTTPStatus.NO_CONTENT if body is None else HTTPStatus.OK
                self._answer(status, _JSON, body or "")
            else:
                self._answer(HTTPStatus.NOT_FOUND, _TEXT, "there is only /\n")
        except InvalidInput as error:
            self._answer(HTTPStatus.BAD_REQUEST, _TEXT, f"{error.message}\n")
        except EventLogError as error:
            self.server.failed(error)
            kind = type(error).__name__
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, kind)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in http.server
        """Print nothing."""

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _wanted(target: str) -> SplitResult:
    """Return the parts of a request's target.

    Raises:
        InvalidInput: it is no URL.
    """
    try:
        return urlsplit(target)
    except ValueError:
        raise InvalidInput(f"not a URL: {shown(target)}") from None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
