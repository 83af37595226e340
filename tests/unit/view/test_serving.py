"""The page of a live table: what it is told, what is asked of the store, and who is answered."""

import http.client
import json
import socket
import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

import pytest
from click.testing import CliRunner
from support.builders import create, events

from eventlog import Table
from eventlog.cli.program import build
from eventlog.errors import InvalidInput, Unavailable
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.view import LiveHistory, page_of, serve_history
from eventlog.view.serving import is_for_us


@pytest.fixture
def table():
    t = create(CountingStore(MemoryStore()))
    t.append(events(2))
    return t


def writer(t):
    """Another program that writes to the table."""
    return Table.open(t.uri, store=t.store.inner, clock=t.clock)


@contextmanager
def served(history, failed=lambda error: None):
    """Serve a history in a thread; the port."""
    started, urls, made = threading.Event(), [], []
    serve = ThreadingHTTPServer.serve_forever

    def run():
        def ready(url):
            urls.append(url)
            started.set()

        serve_history(history, "127.0.0.1", 0, ready=ready, failed=failed)

    def serve_forever(server, poll_interval):
        made.append(server)
        serve(server, 0.01)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ThreadingHTTPServer, "serve_forever", serve_forever)
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert started.wait(240)
        try:
            yield int(urls[0].rsplit(":", 1)[1].strip("/"))
        finally:
            while not made:
                thread.join(0.01)
            made[0].shutdown()
            thread.join(240)


def ask(port, path="/", method="GET", **headers):
    """The status, the headers and the body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=240)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, body


def test_only_new_commits_are_read(table):
    history = LiveHistory(table)
    with table.store.measure() as counts:
        assert history.newer(1) is None
    assert counts.total == 0  # within a second
    table.clock.advance(2000)
    with table.store.measure() as counts:
        assert history.newer(1) is None
    assert counts.total == 1
    for n in range(3):
        writer(table).append(events(1, first=2 + n))
    table.clock.advance(2000)
    with table.store.measure() as counts:
        known = json.loads(history.newer(1))
    assert len(known["times"]) == 5
    # The head as a handle finds it, the three commits, and a LIST for branches.
    assert counts.total <= 9
    assert history.newer(4) is None
    assert json.loads(history.newer(2)) == known
    assert history.picture.last == 4


def test_a_page_is_told_what_is_new(table):
    with served(LiveHistory(table)) as port:
        status, headers, page = ask(port)
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Server"].strip() == "eventlog"
        assert "follow(start())" in page
        assert ask(port, "/history?after=1")[0] == 204
        writer(table).append(events(1))
        table.clock.advance(2000)
        status, _, body = ask(port, "/history?after=1")
        assert (status, len(json.loads(body)["times"])) == (200, 3)
        assert ask(port, "/etc/passwd")[0] == 404
        for odd in ("", "?after=x", "?after=-1", "?after=" + "9" * 30):
            assert ask(port, f"/history{odd}")[0] == 400
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert ask(port, method=method)[0] == 501
        assert ask(port, Host=f"attacker.example:{port}")[0] == 403
        assert ask(port, **{"Sec-Fetch-Site": "cross-site"})[0] == 403


def test_only_its_own_page_and_a_person_are_answered():
    for named in ("127.0.0.1:80", "[::1]:80", "localhost:80", "192.168.0.2", "Station:80"):
        assert is_for_us(named, "none", "station")
        assert is_for_us(named, "same-origin", "station")
        assert not is_for_us(named, "cross-site", "station")
        assert not is_for_us(named, "same-site", "station")
    for named in ("attacker.example", "127.0.0.1.attacker.example:80", "", "[", "localhost.a:80"):
        assert not is_for_us(named, "none", "station")


def test_an_error_is_shown_in_the_terminal_and_its_kind_alone_on_the_page(table, monkeypatch):
    failures = []

    def refresh(self):
        raise Unavailable("no server at /mnt/secret")

    with served(LiveHistory(table), failures.append) as port:
        monkeypatch.setattr(Table, "refresh", refresh)
        table.clock.advance(2000)
        assert ask(port, "/history?after=1")[::2] == (503, "Unavailable")
    assert [error.message for error in failures] == ["no server at /mnt/secret"]


def test_a_target_that_is_no_url_is_a_bad_request(table, capfd):
    with served(LiveHistory(table)) as port, socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(b"GET http://[::1 HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        assert b" 400 " in line.makefile("rb").readline()
    assert "Traceback" not in capfd.readouterr().err


def test_every_page_is_told_that_the_table_cannot_be_read(table):
    history, asked = LiveHistory(table), []

    def refresh(self):
        asked.append(self)
        raise Unavailable("no")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Table, "refresh", refresh)
        table.clock.advance(2000)
        for ask in (history.page, lambda: history.newer(0), lambda: history.newer(1)):
            with pytest.raises(Unavailable):
                ask()
    assert len(asked) == 1  # within a second
    table.clock.advance(2000)
    assert history.newer(1) is None


def test_a_page_that_is_not_served_asks_nobody(table):
    picture = LiveHistory(table).picture
    live, still = page_of(picture, live=True), page_of(picture)
    assert "connect-src 'self'" in live
    assert "connect-src" not in still
    assert "follow(" not in still


def test_a_port_that_is_taken_is_named(table):
    history, ready = LiveHistory(table), lambda url: None
    with served(history) as port, pytest.raises(InvalidInput, match=f"port {port} .*--port"):
        serve_history(history, "127.0.0.1", port, ready=ready, failed=lambda error: None)


def test_the_verb_serves_until_it_is_interrupted(tmp_path, monkeypatch):
    uri = str(tmp_path / "t")
    Table.create(uri, "at timestamp", time_column="at").append([{"at": "2013-01-07T05:00:00Z"}])
    pages = []

    def serve_forever(server, poll_interval):
        pages.append(server.history.page())
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", serve_forever)
    words = ["view", uri, "--serve", "--port", "0"]
    done = CliRunner().invoke(build(), words)
    assert done.exit_code == 0
    assert done.stdout.startswith("http://127.0.0.1:")
    assert "up to version 1" in done.stderr
    assert str(tmp_path) not in pages[0]
    open_to_all = CliRunner().invoke(build(), [*words, "--host", "0.0.0.0", "--json"])
    assert json.loads(open_to_all.stdout)["url"].startswith("http://0.0.0.0:")
    assert "everybody who reaches 0.0.0.0" in open_to_all.stderr
    for odd in (["--serve", "-o", "x.html"], ["-o", "x.html", "--port", "1"], []):
        assert CliRunner().invoke(build(), ["view", uri, *odd]).exit_code == 2
