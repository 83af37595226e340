"""Each fault of the soak's proxy does what it says, against a small HTTP server."""

import asyncio
import http.client
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from soak.proxy import RATES, Proxy, Timing

BODY = b"0123456789" * 1000
TIMING = Timing(delay=(0.2, 0.2), late=(0.2, 0.2), trickle=0.02)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Echo)
        self.seen = []
        self.news = threading.Condition()

    def note(self, *what):
        with self.news:
            self.seen.append(what)
            self.news.notify_all()


class Echo(BaseHTTPRequestHandler):
    """Answers a GET with `BODY`, a PUT with what it got."""

    def do_GET(self):
        self._answer(BODY)

    do_HEAD = do_GET  # noqa: N815

    def do_PUT(self):
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body):
        self.server.note(self.command, self.headers["Host"])
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        """Keep still."""


@pytest.fixture
def server():
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@contextmanager
def through(server, **rates):
    """Yield a proxy that works in a thread, and a connection to it."""
    proxy = Proxy(*server.server_address, seed=1, rates=rates, timing=TIMING)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    url = asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(240)
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=240)
    try:
        yield proxy, connection
    finally:
        connection.close()
        asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result(240)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def ask(connection, method="GET", body=None, **headers):
    connection.request(method, "/key", body, headers)
    with connection.getresponse() as answer:
        return answer.status, answer.read()


def test_without_faults_one_connection_carries_many_requests(server):
    with through(server) as (proxy, connection):
        assert ask(connection, Host="where.it.was") == (200, BODY)
        socket = connection.sock
        assert ask(connection, "HEAD") == (200, b"")
        assert ask(connection, "PUT", b"abc", Expect="100-continue") == (200, b"abc")
        chunks = iter([b"ab", b"cd"])
        assert ask(connection, "PUT", chunks) == (200, b"abcd")
        assert connection.sock is socket
        assert [seen for seen, _ in server.seen] == ["GET", "HEAD", "PUT", "PUT"]
        assert server.seen[0][1] == "where.it.was"
        assert proxy.counts == {"requests": 4}


@pytest.mark.parametrize(
    ("kind", "arrived"), [("drop_request", 0), ("lose_response", 1), ("late_request", 0)]
)
def test_the_connection_ends_without_an_answer(server, kind, arrived):
    with through(server, **{kind: 1}) as (proxy, connection):
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            ask(connection, "PUT", b"abc")
        assert len(server.seen) == arrived
        assert proxy.counts[kind] == 1
        if kind == "late_request":
            with server.news:
                assert server.news.wait_for(lambda: len(server.seen) == 1, timeout=240)


def test_what_is_late_arrives_before_the_proxy_has_stopped(server):
    with (
        through(server, late_request=1) as (_, connection),
        pytest.raises((http.client.RemoteDisconnected, ConnectionError)),
    ):
        ask(connection, "PUT", b"abc")
    assert len(server.seen) == 1


def test_a_duplicate_arrives_twice(server):
    with through(server, duplicate=1) as (proxy, connection):
        assert ask(connection, "PUT", b"abc") == (200, b"abc")
        assert len(server.seen) == 2
        assert proxy.counts["duplicate"] == 1


def test_a_reset_in_the_middle_of_the_body(server):
    with through(server, reset_body=1) as (proxy, connection):
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            ask(connection)
        assert len(server.seen) == 1
        assert proxy.counts["reset_body"] == 1
        connection.close()
        assert ask(connection, "HEAD") == (200, b"")  # no body, no fault
        assert proxy.counts["reset_body"] == 1


@pytest.mark.parametrize(
    ("kind", "status", "code", "arrived"),
    [
        ("error_500", 500, b"<Code>InternalError</Code>", 0),
        ("error_500_late", 500, b"<Code>InternalError</Code>", 1),
        ("slow_down", 503, b"<Code>SlowDown</Code>", 0),
    ],
)
def test_an_error_is_answered(server, kind, status, code, arrived):
    with through(server, **{kind: 1}) as (proxy, connection):
        told, body = ask(connection)
        assert told == status
        assert code in body
        assert len(server.seen) == arrived
        assert proxy.counts[kind] == 1


@pytest.mark.parametrize("kind", ["delay", "slow_body"])
def test_a_slow_answer_is_a_whole_one(server, kind):
    with through(server, **{kind: 1}) as (proxy, connection):
        began = time.monotonic()
        assert ask(connection) == (200, BODY)
        assert time.monotonic() - began >= 0.1
        assert proxy.counts[kind] == 1


def test_every_kind_is_drawn_at_about_its_rate():
    proxy = Proxy("127.0.0.1", 1, seed=5)
    drawn = [proxy._draw() for _ in range(20_000)]
    for kind, rate in RATES.items():
        assert 0.7 * rate < drawn.count(kind) / 20_000 < 1.3 * rate
    again = Proxy("127.0.0.1", 1, seed=5)
    assert [again._draw() for _ in range(100)] == drawn[:100]
