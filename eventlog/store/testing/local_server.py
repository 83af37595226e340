"""An S3 server in this process, for tests, the demo and benchmarks. Not for real tables.

moto's S3 plus a lock: moto checks `If-None-Match` and then writes without a lock, so that two
racing writers may both get the answer that they created the object. `locked` closes that gap. Run
as a program, it serves until SIGTERM or until its parent exits:

    python -m eventlog.store.testing.local_server --port 5555
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Self
from urllib.parse import parse_qs
from urllib.request import Request, urlopen

from eventlog.clock import SystemClock
from eventlog.errors import InvalidInput
from eventlog.store.options import StoreOptions
from eventlog.store.s3.clients import clients_for
from eventlog.store.testing.tally import Counts, Tally

_HOST = "127.0.0.1"
_CREDENTIAL = "local"
_REGION = "us-east-1"
_WATCH_S = 0.5
_WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class LocalServer:
    """A context manager around an S3 server on 127.0.0.1; its buckets are dropped at the end.

    A process can run only one at a time, since moto keeps its buckets in module globals; a second
    one needs its own process.

    Args:
        port: to listen on; 0 picks a free one.
        locked: make conditional PUTs atomic, as on S3. If false, moto's race remains.
        delay_ms: delay before each request is answered, to simulate a network.

    Raises:
        InvalidInput: moto is not installed, the port is taken, or a server is already running.
    """

    def __init__(self, port: int = 0, *, locked: bool = True, delay_ms: int = 0) -> None:
        self._port = port
        self._locked = locked
        self.delay_ms = delay_ms
        self._tally = Tally()
        self._by_key: dict[str, Tally] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if not _running.acquire(blocking=False):
                raise InvalidInput("a LocalServer is already running in this process: use that one")
            stack.callback(_running.release)
            if self._locked:
                stack.enter_context(_lock_handlers())
            self._serve(stack)
            _reset(self.endpoint_url)
            self.reset()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def endpoint_url(self) -> str:
        """The URL of the server while it runs."""
        return f"http://{_HOST}:{self._port}"

    @property
    def requests(self) -> Counts:
        """A copy of the counts of requests, by kind, since the start or the last reset.

        A multi-object delete counts as `delete`, and a GET of a bucket as `list`.
        """
        return self._tally.counts

    def requests_by(self, access_key_id: str) -> Counts:
        """Return the counts of the requests that were signed with one access key.

        The server accepts every key, so that clients with keys of their own are counted apart.
        """
        tally = self._by_key.get(access_key_id)
        return Counts() if tally is None else tally.counts

    def reset(self) -> None:
        """Set the counts to zero."""
        self._tally.reset()
        self._by_key.clear()

    def measure(self) -> AbstractContextManager[Counts]:
        """Return a context manager that yields the counts of its block, updated as it runs."""
        return self._tally.measure()

    def environment(self) -> dict[str, str]:
        """Return the AWS_* variables that make boto3 and eventlog use this server.

        They also hide the machine's own AWS configuration; AWS_PROFILE must not be set.
        """
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": _CREDENTIAL,
            "AWS_SECRET_ACCESS_KEY": _CREDENTIAL,
            "AWS_REGION": _REGION,
            "AWS_DEFAULT_REGION": _REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def storage_options(self, access_key_id: str = _CREDENTIAL) -> dict[str, str]:
        """Return the storage options that make a table use this server."""
        return {
            "endpoint_url": self.endpoint_url,
            "access_key_id": access_key_id,
            "secret_access_key": _CREDENTIAL,
            "region": _REGION,
        }

    def create_bucket(self, name: str) -> None:
        """Create a bucket; an existing one is left unchanged.

        Raises:
            InvalidInput: the name violates S3's rules for buckets.
        """
        from botocore.exceptions import ClientError  # noqa: PLC0415

        try:
            clients_for(StoreOptions(**self.storage_options())).read.create_bucket(Bucket=name)
        except ClientError as error:
            raise InvalidInput(f"cannot create bucket {name!r}: {error}") from error

    def _serve(self, stack: ExitStack) -> None:
        server = _make_server(self._port, self._middleware)
        self._port = server.server_port
        stack.callback(server.server_close)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)

    def _middleware(self, app: _WSGI) -> _WSGI:
        clock = SystemClock()

        def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            kind = _kind(environ)
            tallies = (self._tally, self._by_key.setdefault(_signer(environ), Tally()))
            written = int(environ.get("CONTENT_LENGTH") or 0)

            def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
                length = {name.lower(): value for name, value in headers}
                read = 0 if kind == "head" else int(length.get("content-length", 0))
                for tally in tallies:
                    tally.add(kind, read=read, written=written)
                return start_response(status, headers, *rest)

            if self.delay_ms:
                clock.sleep(self.delay_ms / 1000)
            return app(environ, start)

        return answer


_running = threading.Lock()


def _kind(environ: dict[str, Any]) -> str:
    method = str(environ["REQUEST_METHOD"]).lower()
    query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    _, _, key = environ.get("PATH_INFO", "").lstrip("/").partition("/")
    if method == "get" and not key:
        return "list"
    if method == "post" and "delete" in query:
        return "delete"
    return method if method in ("get", "put", "delete", "head") else "post"


def _signer(environ: dict[str, Any]) -> str:
    """Return the access key of a request's signature (Signature Version 4), or an empty string."""
    _, _, credential = str(environ.get("HTTP_AUTHORIZATION", "")).partition("Credential=")
    return credential.partition("/")[0]


def _make_server(port: int, middleware: Callable[[_WSGI], _WSGI]) -> Any:
    try:
        from moto.moto_server.werkzeug_app import (  # noqa: PLC0415
            DomainDispatcherApplication,
            MotoRequestHandler,
            create_backend_app,
        )
        from werkzeug.serving import make_server  # noqa: PLC0415
    except ImportError as error:
        raise InvalidInput(f"{error}: pip install 'eventlog-tables[demo]'") from error

    class QuietHandler(MotoRequestHandler):
        def log(self, *_: object) -> None:
            """Print nothing."""

    class Dispatcher(DomainDispatcherApplication):
        # moto lists its own folder for each request, which takes nearly half of its time.
        @functools.lru_cache(64)  # noqa: B019 - one dispatcher a server
        def get_backend_for_host(self, host: str | None) -> Any:
            return super().get_backend_for_host(host)

    app = middleware(Dispatcher(create_backend_app))
    try:
        return make_server(_HOST, port, app, threaded=True, request_handler=QuietHandler)
    except (OSError, SystemExit) as error:
        # werkzeug exits the program if the port is taken.
        raise InvalidInput(f"cannot listen on {_HOST}:{port}: choose another port") from error


class _lock_handlers:  # noqa: N801 - used as a function
    """A context in which moto handles parsed S3 requests under one lock.

    The two methods run after the body has been read from the socket, so a slow client does not
    block others, and include each check together with its write.
    """

    _NAMES = ("_key_response", "_bucket_response", "copy_object")

    def __init__(self) -> None:
        self._originals: dict[str, Any] = {}

    def __enter__(self) -> None:
        responses = _s3_responses()
        lock = threading.RLock()
        for name in self._NAMES:
            self._originals[name] = getattr(responses, name)
            setattr(responses, name, _locked(self._originals[name], lock))
        responses.copy_object = _conditional(responses.copy_object)

    def __exit__(self, *_: object) -> None:
        for name, original in self._originals.items():
            setattr(_s3_responses(), name, original)


def _s3_responses() -> Any:
    try:
        from moto.s3.responses import S3Response  # noqa: PLC0415
    except ImportError as error:
        raise InvalidInput(f"{error}: pip install 'eventlog-tables[demo]'") from error
    return S3Response


def _locked(method: Callable[..., Any], lock: threading.RLock) -> Callable[..., Any]:
    def locked_method(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return method(*args, **kwargs)

    return locked_method


def _conditional(copy_object: Callable[..., Any]) -> Callable[..., Any]:
    """Let a copy fail where its target exists, as on S3; moto ignores `If-None-Match` there."""

    def conditional_copy(responses: Any) -> Any:
        from moto.s3.exceptions import PreconditionFailed  # noqa: PLC0415

        there = responses.backend.get_object(responses.bucket_name, responses.parse_key_name())
        if responses.headers.get("If-None-Match") == "*" and there is not None:
            raise PreconditionFailed("If-None-Match")
        return copy_object(responses)

    return conditional_copy


def _reset(endpoint_url: str) -> None:
    request = Request(f"{endpoint_url}/moto-api/reset", method="POST")  # noqa: S310 - own server
    with urlopen(request, timeout=30) as answer:  # noqa: S310
        answer.read()


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT, the end of a piped standard input, or the parent's exit."""
    parser = argparse.ArgumentParser(
        prog="eventlog.store.testing.local_server", description=__doc__
    )
    parser.add_argument("--port", type=int, default=0, help="to listen on; 0 picks a free one")
    parser.add_argument("--unlocked", action="store_true", help="leave moto's race in")
    parser.add_argument("--delay-ms", type=int, default=0, help="to wait before each answer")
    options = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    parent = os.getppid()
    _stop_at_end_of_input(stop)
    server = LocalServer(options.port, locked=not options.unlocked, delay_ms=options.delay_ms)
    with ExitStack() as stack:
        try:
            stack.enter_context(server)
        except InvalidInput as error:
            parser.error(str(error))
        sys.stdout.write(f"{server.endpoint_url}\n")
        sys.stdout.flush()
        while not stop.wait(_WATCH_S) and os.getppid() == parent:
            pass
    return 0


def _stop_at_end_of_input(stop: threading.Event) -> None:
    mode = os.fstat(0).st_mode
    # Only a pipe ends when the parent exits; /dev/null is at its end from the start.
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return

    def watch() -> None:
        while os.read(0, 4096):
            pass
        stop.set()

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
