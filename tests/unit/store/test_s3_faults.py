"""S3Store against a server that misbehaves on plan: what is sent, and what is made of it."""

import gc
import multiprocessing
import socket
import struct
import threading
import time
import warnings
from contextlib import suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from types import SimpleNamespace

import botocore.utils
import pytest

from eventlog.clock import ManualClock
from eventlog.errors import EventLogError, InvalidInput, KeyNotFound, OutcomeUnknown, Unavailable
from eventlog.store.s3 import adapter, bodies, clients
from eventlog.store.s3.adapter import S3Store

SERVER_MS = 1_700_000_000_000


class FaultServer:
    """Answers each request with the next step of a plan, then with 200, and keeps what came in."""

    def __init__(self):
        self.steps = []
        self.requests = []
        self.bodies = []
        self.stopping = threading.Event()
        outer = self

        class Answer(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def serve(self):
                length = int(self.headers.get("Content-Length") or 0)
                outer.bodies.append(self.rfile.read(length))
                # One handler serves a whole connection: keep what it says now.
                outer.requests.append(
                    SimpleNamespace(
                        command=self.command,
                        path=self.path,
                        headers=self.headers,
                        port=self.client_address[1],
                    )
                )
                step = outer.steps.pop(0) if outer.steps else answer(200)
                step(self)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = serve  # noqa: N815

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def stop(self):
        self.stopping.set()
        self.server.shutdown()
        self.thread.join(240)
        self.server.server_close()

    @property
    def methods(self):
        return [request.command for request in self.requests]


def deleted(names):
    """The answer of S3 that these objects were deleted."""
    rows = "".join(f"<Deleted><Key>root/{name}</Key></Deleted>" for name in names)
    return answer(200, body=f"<DeleteResult>{rows}</DeleteResult>".encode())


def answer(status, code="", body=None, date_ms=SERVER_MS, headers=(), *, etag='"tag"'):
    def step(handler):
        content = body
        if content is None:
            error = f"<Error><Code>{code}</Code><Message>said so</Message></Error>"
            content = error.encode() if code else b""
        handler.send_response_only(status)
        if "Content-Length" not in dict(headers):
            handler.send_header("Content-Length", str(len(content)))
        handler.send_header("Date", formatdate(date_ms / 1000, usegmt=True))
        if etag and handler.command == "PUT":
            handler.send_header("ETag", etag)
        for name, value in headers:
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(content)
        if "Content-Length" in dict(headers):
            handler.close_connection = True

    return step


def read(body, tag):
    """The answer to a GET."""
    return answer(200, body=body, headers=[("ETag", tag)])


def reset(handler):
    """Break the connection as a crashed server does."""
    linger = struct.pack("ii", 1, 0)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    handler.connection.close()
    handler.close_connection = True


def broken_404(handler):
    """Say no, and break the connection in the middle of saying why."""
    handler.send_response_only(404)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"<Error>")
    time.sleep(0.05)  # what is reset at once takes the sent bytes along
    reset(handler)


def truncated(handler):
    handler.send_response_only(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"only this")
    handler.close_connection = True


def vast(status):
    """Ten terabytes are announced, and few come."""

    def step(handler):
        handler.send_response_only(status)
        handler.send_header("Content-Length", str(10**13))
        handler.end_headers()
        handler.wfile.write(b"0123456789")
        handler.close_connection = True

    return step


@pytest.fixture
def server():
    server = FaultServer()
    yield server
    server.stop()


@pytest.fixture
def silence(server, monkeypatch):
    """A step that never answers; clients wait for a second only."""
    monkeypatch.setattr(clients, "READ_TIMEOUT_S", 1)

    def step(handler):
        server.stopping.wait(240)
        handler.close_connection = True

    return step


@pytest.fixture
def clock():
    return ManualClock(now_ms=SERVER_MS)


@pytest.fixture
def store(server, clock, monkeypatch):
    monkeypatch.setattr(clients, "READ_ATTEMPTS", 2)
    monkeypatch.setattr(clients, "_state", clients._State())
    return S3Store("s3://bucket/root", _options(server), clock)


def _options(server):
    return {
        "endpoint_url": f"http://127.0.0.1:{server.server.server_port}",
        "access_key_id": "key",
        "secret_access_key": "very-secret",
    }


class TestReplacement:
    KEY = "_log/999999999992.json"

    def test_the_condition_is_the_tag_of_the_bytes_that_were_compared(self, store, server):
        server.steps = [read(b"old", '"t-1"')]
        assert store.replace(self.KEY, b"old", b"new") is True
        assert server.methods == ["GET", "PUT"]
        assert server.requests[1].headers["If-Match"] == '"t-1"'
        assert server.bodies[1] == b"new"

    @pytest.mark.parametrize(("stored", "done"), [(b"other", False), (b"new", True)])
    def test_other_bytes_are_not_replaced(self, store, server, stored, done):
        server.steps = [read(stored, '"t-1"')]
        assert store.replace(self.KEY, b"old", b"new") is done
        assert server.methods == ["GET"]

    @pytest.mark.hazard("W20")
    @pytest.mark.parametrize(("stored", "done"), [(b"other", False), (b"new", True)])
    @pytest.mark.parametrize("status", [404, 412])
    def test_an_object_with_another_tag_by_now_stays(self, store, server, stored, done, status):
        server.steps = [read(b"old", '"t-1"'), answer(status, "X"), read(stored, '"t-2"')]
        assert store.replace(self.KEY, b"old", b"new") is done
        assert server.methods == ["GET", "PUT", "GET"]

    @pytest.mark.parametrize("status", [409, 500, 503])
    def test_what_was_not_done_can_be_tried_again(self, store, server, status):
        server.steps = [read(b"old", '"t-1"'), answer(status, "X")]
        with pytest.raises(Unavailable) as caught:
            store.replace(self.KEY, b"old", b"new")
        assert not isinstance(caught.value, OutcomeUnknown)
        assert server.methods == ["GET", "PUT"]

    @pytest.mark.parametrize(("status", "says"), [(403, "denied"), (501, "does not support")])
    def test_refusals(self, store, server, status, says):
        server.steps = [read(b"old", '"t-1"'), answer(status, "X")]
        with pytest.raises(InvalidInput, match=says):
            store.replace(self.KEY, b"old", b"new")

    def test_a_server_without_tags_is_no_ground_to_replace_anything(self, store, server):
        server.steps = [answer(200, body=b"old")]
        assert store.replace(self.KEY, b"old", b"new") is False
        assert server.methods == ["GET"]


class TestConditionalPut:
    def test_sends_the_condition_and_the_body_once(self, store, server):
        assert store.put_if_absent("_log/1.json", b"body") is True
        (request,) = server.requests
        assert (request.command, request.path) == ("PUT", "/bucket/root/_log/1.json")
        assert request.headers["If-None-Match"] == "*"
        assert server.bodies == [b"body"]

    @pytest.mark.parametrize("size", [0, 1000, 2**20])
    def test_a_small_segment_is_sent_without_asking_first(self, store, server, size):
        body = bytes(size)
        store.put_if_absent("key", memoryview(body))
        assert "Expect" not in server.requests[0].headers
        assert server.bodies == [body]

    def test_a_large_segment_is_announced_first(self, store, server):
        body = bytes(2**20 + 1)
        store.put_if_absent("key", memoryview(body))
        assert server.requests[0].headers["Expect"] == "100-continue"
        assert server.bodies == [body]

    @pytest.mark.parametrize("status", [200, 201, 204])
    @pytest.mark.parametrize("body", [b"", b"<html>login please</html>"])
    def test_a_success_without_an_etag_is_none(self, store, server, status, body):
        """A proxy or a portal answers so; S3 names the ETag of each object that it has taken."""
        server.steps = [answer(status, body=b"" if status == 204 else body, etag=None)] * 5
        with pytest.raises(OutcomeUnknown, match="without an ETag"):
            store.put_if_absent("key", b"body")
        assert server.methods == ["PUT"]

    def test_412_is_false(self, store, server):
        server.steps = [answer(412, "PreconditionFailed")]
        assert store.put_if_absent("key", b"body") is False
        assert server.methods == ["PUT"]

    @pytest.mark.hazard("C3")
    @pytest.mark.parametrize(("last", "outcome"), [(200, True), (412, False)])
    def test_409_is_sent_again_with_the_same_bytes(self, store, server, clock, last, outcome):
        conflict = answer(409, "ConditionalRequestConflict")
        server.steps = [conflict, conflict, answer(last)]
        assert store.put_if_absent("key", memoryview(b"body")) is outcome
        assert server.methods == ["PUT"] * 3
        assert [request.headers["If-None-Match"] for request in server.requests] == ["*"] * 3
        assert server.bodies == [b"body"] * 3
        assert clock.now_ms() > SERVER_MS, "no pause between the tries"

    def test_409_without_end_is_unknown(self, store, server):
        server.steps = [answer(409, "ConditionalRequestConflict")] * 100
        with pytest.raises(OutcomeUnknown, match="409"):
            store.put_if_absent("key", b"body")
        assert 2 <= len(server.requests) <= 10

    @pytest.mark.parametrize(
        ("status", "code"),
        [
            *((500, "InternalError"), (502, ""), (503, "SlowDown"), (503, ""), (504, "")),
            *((408, ""), (429, ""), (400, "RequestTimeout")),
        ],
    )
    def test_errors_of_the_server_leave_the_outcome_unknown(self, store, server, status, code):
        server.steps = [answer(status, code)]
        with pytest.raises(OutcomeUnknown) as caught:
            store.put_if_absent("key", b"body")
        assert server.methods == ["PUT"]
        assert caught.value.key == "key"

    def test_timeout_after_the_effect(self, store, server, silence):
        server.steps = [silence]
        with pytest.raises(OutcomeUnknown):
            store.put_if_absent("key", b"body")
        assert server.methods == ["PUT"]

    def test_connection_reset(self, store, server):
        server.steps = [reset]
        with pytest.raises(OutcomeUnknown):
            store.put_if_absent("key", b"body")
        assert server.methods == ["PUT"]

    def test_nobody_listens(self, store, server):
        server.stop()
        with pytest.raises(Unavailable, match=r"no server at 127\.0\.0\.1:\d+: start it") as first:
            store.put_if_absent("key", b"body")
        assert not isinstance(first.value, OutcomeUnknown)

    def test_nobody_listens_any_more(self, store, server):
        assert store.unproven  # its clients are made
        server.stop()
        with pytest.raises(OutcomeUnknown):
            store.put_if_absent("key", b"body")

    def test_409_then_silence_is_unknown_and_not_sent_a_third_time(self, store, server, silence):
        server.steps = [answer(409, "ConditionalRequestConflict"), silence]
        with pytest.raises(OutcomeUnknown):
            store.put_if_absent("key", b"body")
        assert server.methods == ["PUT"] * 2

    @pytest.mark.parametrize(
        ("status", "code", "says"),
        [
            (404, "NoSuchBucket", "bucket 'bucket' does not exist"),
            (403, "AccessDenied", "check the credentials"),
            (403, "InvalidAccessKeyId", "check the credentials"),
            (400, "ExpiredToken", "check the credentials"),
            (403, "RequestTimeTooSkewed", "clock is wrong"),
            (501, "NotImplemented", "conditional writes"),
            (400, "InvalidRequest", "InvalidRequest: said so"),
            (301, "PermanentRedirect", "another region"),
        ],
    )
    def test_refusals_for_good(self, store, server, status, code, says):
        server.steps = [answer(status, code)]
        with pytest.raises(InvalidInput, match=says) as caught:
            store.put_if_absent("key", b"body")
        assert "very-secret" not in str(caught.value)
        assert server.methods.count("PUT") == 1

    def test_a_store_without_batches_of_deletes_is_named_so(self, store, server):
        server.steps = [answer(501, "NotImplemented")]
        with pytest.raises(InvalidInput, match=r"needs to delete .*stores\.md") as caught:
            store.delete(["key"])
        assert "conditional" not in str(caught.value)


def _listing(rows, truncated="false", more=""):
    inside = f"<IsTruncated>{truncated}</IsTruncated>{rows}{more}"
    return f"<ListBucketResult>{inside}</ListBucketResult>".encode()


class TestReads:
    def test_a_passing_error_is_retried(self, store, server):
        server.steps = [answer(503, "SlowDown"), answer(200, body=b"body")]
        assert store.get("key") == b"body"
        assert server.methods == ["GET", "GET"]

    @pytest.mark.parametrize("step", [answer(503, "SlowDown"), answer(500, ""), reset])
    def test_a_lasting_error_is_unavailable(self, store, server, step):
        server.steps = [step] * 20
        for call in (
            lambda: store.get("key"),
            lambda: list(store.list("")),
            lambda: store.delete(["key"]),
        ):
            with pytest.raises(Unavailable) as caught:
                call()
            assert not isinstance(caught.value, OutcomeUnknown)

    @pytest.mark.parametrize("status", [301, 302, 307])
    def test_redirections_without_end_say_what_to_set(self, store, server, status):
        elsewhere = answer(status, headers=[("Location", "https://127.0.0.1:9/other")])
        for call in (lambda: store.get("key"), lambda: store.put_if_absent("key", b"x")):
            server.steps = [elsewhere] * 9
            with pytest.raises(InvalidInput, match=r"redirects .* endpoint_url") as caught:
                call()
            assert caught.value.table == store.uri
        assert server.methods == ["GET", "HEAD", "PUT", "HEAD"]

    def test_a_redirection_to_another_region_is_followed(self, store, server):
        named = [("x-amz-bucket-region", "eu-central-1")]
        heads = [answer(307, headers=named), answer(200, headers=named)]
        server.steps = [answer(307), *heads, answer(200, body=b"body")]
        assert store.get("key") == b"body"
        assert server.methods == ["GET", "HEAD", "HEAD", "GET"]

    def test_silence_is_unavailable(self, store, server, silence):
        server.steps = [silence, silence]
        with pytest.raises(Unavailable):
            store.get("key")

    def test_a_body_cut_short_is_read_again(self, store, server):
        server.steps = [truncated, answer(200, body=b"whole")]
        assert store.get("key") == b"whole"

    def test_an_error_whose_own_body_is_cut_short_is_asked_again(self, server, store):
        server.steps = [broken_404, broken_404, answer(404, "NoSuchKey")]
        with pytest.raises(KeyNotFound):
            store.get("key")
        server.steps = [broken_404] * 20
        with pytest.raises(Unavailable):
            store.get("key")

    def test_bodies_cut_short_without_end_are_unavailable(self, store, server):
        server.steps = [truncated] * 20
        with pytest.raises(Unavailable):
            store.get("key")
        assert len(server.requests) <= 5

    def test_a_store_that_ignores_ranges(self, store, server):
        server.steps = [answer(200, body=b"0123456789")] * 2
        assert store.get("key", start=2, length=3) == b"234"
        assert store.get("key", start=8) == b"89"

    @pytest.mark.parametrize("asked", [{}, {"length": 4}, {"start": 3}, {"start": 3, "length": 4}])
    @pytest.mark.parametrize("status", [200, 206])
    def test_an_answer_that_announces_more_than_memory_holds(self, store, server, status, asked):
        server.steps = [vast(status)] * 20
        start, length = asked.get("start", 0), asked.get("length")
        if status == 200 and length:  # the whole object, of which no more is read
            assert store.get("key", **asked) == b"0123456789"[start : start + length]
            return
        with pytest.raises(Unavailable) as caught:
            store.get("key", **asked)
        assert (caught.value.table, caught.value.key) == (store.uri, "key")
        if length:
            assert "10,000,000,000,000 bytes in answer to a request for 4" in str(caught.value)
            assert len(server.requests) == 1

    def test_an_answer_of_unknown_size_is_read_no_further_than_was_asked_for(self, store, server):
        def endless(handler):
            handler.send_response_only(206)
            handler.send_header("Connection", "close")
            handler.end_headers()
            with suppress(OSError):
                while not server.stopping.is_set():
                    handler.wfile.write(b"x" * 2**16)
            handler.close_connection = True

        server.steps = [endless]
        with pytest.raises(Unavailable, match="more bytes in answer to a request for 5"):
            store.get("key", length=5)

    @pytest.mark.parametrize("announced", [True, False])
    @pytest.mark.parametrize("length", [None, 2**20, 100 * 2**20])
    def test_an_answer_that_never_comes_to_its_end_is_given_up(
        self, store, server, clock, length, announced
    ):
        """A byte a second: no time limit between two bytes is ever reached."""

        def drip(handler):
            handler.send_response_only(206)
            if announced:
                handler.send_header("Content-Length", str(length or 2**20))
            handler.end_headers()
            with suppress(OSError):
                while not server.stopping.is_set():
                    clock.advance(1000)
                    handler.wfile.write(b"x")
            handler.close_connection = True

        server.steps = [drip] * 20
        began = clock.elapsed_s()
        with pytest.raises(Unavailable, match=r"after 6[01] s.*slower than 16 kB a second"):
            store.get("key", length=length)
        assert clock.elapsed_s() - began > 60
        assert len(server.requests) == 1

    @pytest.mark.parametrize(("pieces", "whole"), [(20, True), (5, False)])
    def test_bytes_that_have_arrived_earn_time_for_others(self, clock, pieces, whole):
        """Ten seconds for each 200 kB, of which only the first few come."""

        class Slow(BytesIO):
            def read1(self, size):
                clock.advance(10_000)
                return self.read(min(size, 200_000 if self.tell() < pieces * 200_000 else 1))

        answer = {"Body": Slow(bytes(4_000_000)), "ResponseMetadata": {"HTTPStatusCode": 200}}
        began = clock.elapsed_s()
        if whole:
            assert bodies.content(answer, 0, None, clock) == bytes(4_000_000)
        else:
            with pytest.raises(Unavailable, match="after 123 s, with 1,000,008 bytes"):
                bodies.content(answer, 0, None, clock)
            assert clock.elapsed_s() - began == 130

    def test_ranges_as_sent(self, store, server):
        store.get("key", start=5)
        store.get("key", start=5, length=10)
        store.get("key", length=2048)
        store.get("key")
        sent = [request.headers["Range"] for request in server.requests]
        assert sent == ["bytes=5-", "bytes=5-14", "bytes=0-2047", None]

    def test_missing_key_and_missing_bucket_differ(self, store, server):
        server.steps = [answer(404, "NoSuchKey"), answer(404, "NoSuchBucket")]
        with pytest.raises(KeyNotFound):
            store.get("key")
        with pytest.raises(InvalidInput, match="does not exist"):
            store.get("key")

    def test_denied(self, store, server):
        server.steps = [answer(403, "AccessDenied")] * 3
        for call in (
            lambda: store.get("key"),
            lambda: list(store.list("")),
            lambda: store.delete(["key"]),
        ):
            with pytest.raises(InvalidInput, match="check the credentials"):
                call()

    def test_unordered_listing_is_refused(self, store, server):
        rows = "".join(
            f"<Contents><Key>root/{key}</Key><Size>1</Size></Contents>" for key in ("b", "a")
        )
        listing = f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
        server.steps = [answer(200, body=listing.encode())]
        rows = store.list("")
        assert next(rows).key == "b"
        with pytest.raises(InvalidInput, match="out of order"):
            next(rows)

    @pytest.mark.parametrize(
        ("asked", "listed", "parameter"),
        [
            ({"prefix": "log/", "after": "log/b"}, "root/log/a", "StartAfter"),
            ({"prefix": "log/", "after": "log/b"}, "root/log/b", "StartAfter"),
            ({"prefix": "log/"}, "root/data/a", "Prefix"),
            ({"prefix": ""}, "other/log/a", "Prefix"),
        ],
    )
    def test_a_listing_of_what_was_not_asked_for_is_refused(
        self, store, server, asked, listed, parameter
    ):
        row = f"<Contents><Key>{listed}</Key><Size>1</Size></Contents>"
        server.steps = [answer(200, body=_listing(row))]
        with pytest.raises(InvalidInput, match=f"does not support the parameter {parameter}"):
            list(store.list(**asked))
        assert len(server.requests) == 1

    def test_a_listing_begins_above_what_it_begins_after(self, store, server):
        row = "<Contents><Key>root/log/a</Key><Size>1</Size></Contents>"
        server.steps = [answer(200, body=_listing(row))]
        assert [row.key for row in store.list("log/", after="log")] == ["log/a"]

    @pytest.mark.parametrize(
        ("token", "says"),
        [
            ("", "no continuation"),
            ("<NextContinuationToken></NextContinuationToken>", "no continuation"),
            ("<NextContinuationToken>again</NextContinuationToken>", "the same continuation"),
        ],
    )
    @pytest.mark.parametrize("rows", [True, False])
    def test_a_listing_that_never_ends_is_given_up(self, store, server, token, says, rows):
        for name in "abcde":
            row = f"<Contents><Key>root/{name}</Key><Size>1</Size></Contents>" if rows else ""
            page = f"<ListBucketResult><IsTruncated>true</IsTruncated>{row}{token}"
            server.steps.append(answer(200, body=f"{page}</ListBucketResult>".encode()))
        with pytest.raises(Unavailable, match=says):
            list(store.list(""))
        assert len(server.methods) <= 2

    def test_empty_pages_without_end_are_given_up(self, store, server, monkeypatch):
        monkeypatch.setattr(adapter, "EMPTY_PAGES", 20)
        for number in range(30):
            token = f"<NextContinuationToken>t{number}</NextContinuationToken>"
            server.steps.append(answer(200, body=_listing("", truncated="true", more=token)))
        with pytest.raises(Unavailable, match="21 empty pages"):
            list(store.list(""))
        assert len(server.methods) == 21

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"<html>login please</html>",
            b"<Contents/>",
            _listing("<Contents><Key>root/a</Key><Size>big</Size></Contents>"),
            _listing("<Contents><Key>root/a</Key></Contents>"),
            _listing("<Contents><Size>5</Size></Contents>"),
            _listing("<KeyCount>x5</KeyCount>"),
            _listing(
                "<Contents><Key>root/a</Key><Size>1</Size>"
                "<LastModified>zz yesterday</LastModified></Contents>"
            ),
        ],
    )
    def test_a_listing_that_is_none_is_unavailable_and_not_empty(self, store, server, body):
        server.steps = [answer(200, body=body)] * 20
        with pytest.raises(Unavailable, match="list"):
            list(store.list(""))
        assert len(server.methods) <= 5

    @pytest.mark.verify
    @pytest.mark.parametrize(
        "header",
        [
            ("Last-Modified", "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"),
            ("Content-Length", "abc"),
            pytest.param(("Last-Modified", "yesterday"), marks=pytest.mark.long),
            pytest.param(("x-amz-checksum-sha256", "garbage!"), marks=pytest.mark.long),
            pytest.param(("x-amz-checksum-crc32", "AAAAAA=="), marks=pytest.mark.long),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("status", [200, pytest.param(404, marks=pytest.mark.long)])
    def test_headers_that_nobody_can_read_are_errors_of_our_own(
        self, store, server, header, status
    ):
        code = "" if status == 200 else "NoSuchKey"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # boto3 drops such connections
            for call in (
                lambda: store.get("key"),
                lambda: store.get("key", length=5),
                lambda: store.size_and_sha256("key"),
                lambda: list(store.list("")),
                lambda: store.delete(["key"]),
                lambda: store.put_if_absent("key", b"body"),
            ):
                server.steps = [answer(status, code, headers=[header])] * 20
                with suppress(EventLogError):
                    call()
            gc.collect()

    def test_root_marker_is_not_listed(self, store, server):
        rows = "".join(
            f"<Contents><Key>root/{key}</Key><Size>1</Size></Contents>" for key in ("", "a")
        )
        listing = f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
        server.steps = [answer(200, body=listing.encode())]
        assert [row.key for row in store.list("")] == ["a"]

    @pytest.mark.parametrize(
        ("code", "error"), [("AccessDenied", InvalidInput), ("InternalError", Unavailable)]
    )
    def test_keys_that_a_batch_could_not_delete(self, store, server, code, error):
        failed = f"<Error><Key>root/a</Key><Code>{code}</Code><Message>m</Message></Error>"
        server.steps = [answer(200, body=f"<DeleteResult>{failed}</DeleteResult>".encode())]
        with pytest.raises(error, match="root/a"):
            store.delete(["a", "b"])

    @pytest.mark.parametrize("body", [b"", b"<html>login please</html>", None])
    def test_an_answer_that_does_not_tell_what_it_deleted_is_none(self, store, server, body):
        """A vacuum would count the objects as gone, and never look for them again."""
        server.steps = [deleted(["a", "c"]) if body is None else answer(200, body=body)]
        with pytest.raises(Unavailable, match=r"answer whether 'root/[ab]'"):
            store.delete(["a", "b", "c"])

    def test_deletes_in_batches_of_1000(self, store, server):
        names = [f"k{number}" for number in range(2500)]
        server.steps = [deleted(names[n : n + 1000]) for n in (0, 1000, 2000)]
        store.delete(names)
        assert server.methods == ["POST"] * 3
        assert [body.count(b"<Key>") for body in server.bodies] == [1000, 1000, 500]


class TestTime:
    def test_unknown_before_the_first_answer(self, store):
        assert store.now_ms() is None

    @pytest.mark.parametrize("step_ms", [0, 500, 999])
    def test_the_local_clock_stands_while_it_agrees(self, store, clock, step_ms):
        clock.advance(step_ms)
        store.put_if_absent("key", b"")
        clock.advance(10)
        assert store.now_ms() == clock.now_ms()

    def test_a_slow_local_clock_is_moved_to_the_nearer_bound(self, store, clock):
        clock.advance(-3_600_000)
        store.put_if_absent("key", b"")
        assert store.now_ms() == SERVER_MS
        clock.advance(5000)
        assert store.now_ms() == SERVER_MS + 5000

    def test_a_fast_local_clock_is_moved_to_the_nearer_bound(self, store, clock):
        clock.advance(86_400_000)
        store.put_if_absent("key", b"")
        assert store.now_ms() == SERVER_MS + 1000

    def test_a_slow_answer_widens_the_bounds(self, store, server, clock):
        def slow(handler):
            clock.advance(4000)
            answer(200, date_ms=SERVER_MS + 2000)(handler)

        server.steps = [slow]
        store.put_if_absent("key", b"")
        assert store.now_ms() == clock.now_ms()

    def test_answers_with_errors_tell_the_time_too(self, store, server, clock):
        clock.advance(-60_000)
        server.steps = [answer(412, "PreconditionFailed")]
        store.put_if_absent("key", b"")
        assert store.now_ms() == SERVER_MS

    def test_an_answer_without_a_date_teaches_nothing(self, store, server):
        server.steps = [truncated, answer(200, headers=[("Date", "nonsense")], date_ms=0)]
        store.get("key", length=3)
        assert store.now_ms() is None or store.now_ms() > 0


class TestTimestamps:
    @pytest.mark.parametrize(
        "text",
        [
            *("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05+00:00"),
            *("Fri, 02 Jan 2026 03:04:05 GMT", "20260102T030405Z", "20260102", 1767322999, 0.5),
            "02 January 2026 03:04:05 UTC",
        ],
    )
    def test_mean_what_they_mean_to_botocore(self, text):
        assert clients.parse_timestamp(text) == botocore.utils.parse_timestamp(text)

    @pytest.mark.parametrize("value", ["", "nonsense", None])
    def test_anything_else_is_an_error(self, value):
        with pytest.raises((ValueError, TypeError)):
            clients.parse_timestamp(value)


def _get_in_child(store, answers):
    answers.put(store.get("key"))


class TestConfiguration:
    @pytest.mark.verify
    @pytest.mark.parametrize("method", ["fork", "spawn"])
    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_child_process_has_clients_of_its_own(self, store, server, method):
        body = answer(200, body=b"body")
        server.steps = [body, body, body]
        assert store.get("key") == b"body"
        context = multiprocessing.get_context(method)
        answers = context.Queue()
        child = context.Process(target=_get_in_child, args=(store, answers), daemon=True)
        child.start()
        assert answers.get(timeout=240) == b"body"
        child.join(240)
        assert store.get("key") == b"body"
        ports = [request.port for request in server.requests]
        assert ports[0] == ports[2] != ports[1], "the child must not use its parent's connection"

    def test_no_credentials(self, server, monkeypatch):
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            monkeypatch.setenv(name, "/dev/null")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_ENDPOINT_URL", _options(server)["endpoint_url"])
        store = S3Store("s3://bucket")
        for call in (
            lambda: store.put_if_absent("key", b""),
            lambda: store.get("key"),
            store.filesystem,
        ):
            with pytest.raises(InvalidInput, match="AWS_ACCESS_KEY_ID"):
                call()
        assert server.requests == []

    def test_unknown_profile(self, monkeypatch):
        monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        with pytest.raises(InvalidInput, match="nobody"):
            S3Store("s3://bucket", {"profile": "nobody"}).get("key")

    def test_profile_names_endpoint_and_credentials(self, server, monkeypatch, tmp_path):
        for name in (
            *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"),
            *("AWS_REGION", "AWS_DEFAULT_REGION"),
        ):
            monkeypatch.delenv(name, raising=False)
        config = tmp_path / "config"
        config.write_text(
            "[profile mine]\naws_access_key_id=mykey\naws_secret_access_key=s\n"
            f"endpoint_url={_options(server)['endpoint_url']}\n"
        )
        monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
        store = S3Store("s3://my.bucket/root", {"profile": "mine"})
        store.put_if_absent("key", b"")
        (request,) = server.requests
        assert request.path == "/my.bucket/root/key", "not path-style"
        assert "Credential=mykey/" in request.headers["Authorization"]
        assert "/us-east-1/s3/" in request.headers["Authorization"]

    def test_changed_credentials_give_a_new_file_system(self, store, server, monkeypatch):
        first, path = store.filesystem()
        assert path == "bucket/root"
        assert store.filesystem()[0] is first
        credentials = clients.clients_for(store._options).session.get_credentials()
        monkeypatch.setattr(credentials, "token", "rotated")
        assert store.filesystem()[0] is not first

    def test_stores_of_one_configuration_share_clients(self, server, monkeypatch):
        options = S3Store("s3://one", _options(server))._options
        assert clients.clients_for(options) is clients.clients_for(options)
        before = clients.clients_for(options)
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "7")
        assert clients.clients_for(options) is not before
