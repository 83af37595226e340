"""The embedded S3 server: its counts, its lock, and its life as a program."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from eventlog.clock import SystemClock
from eventlog.errors import InvalidInput
from eventlog.store.location import open_store
from eventlog.store.testing.local_server import LocalServer


def test_counts_requests_by_kind(s3, bucket):
    store = open_store(f"s3://{bucket}/t")
    with s3.measure() as counted:
        store.put_if_absent("a", b"12345")
        store.put_if_absent("a", b"678")
        store.get("a", length=2)
        list(store.list(""))
        store.delete(["a"])
    assert (counted.put, counted.get, counted.list, counted.delete) == (2, 1, 1, 1)
    assert counted.total == 5
    assert counted.bytes_written >= 8
    assert counted.bytes_read >= 2


def test_a_listing_costs_one_request_for_each_page_that_is_read(s3, bucket):
    for number in range(1001):
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(bucket, f"t/{number:05d}", b"")
    store = open_store(f"s3://{bucket}/t")
    with s3.measure() as counted:
        rows = store.list("")
        assert counted.total == 0
        next(rows)
        assert counted.list == 1
        assert len(list(rows)) == 1000
        assert counted.list == 2
    with s3.measure() as counted:
        list(store.list("", limit=4))
    assert counted.list == 1
    assert counted.bytes_read < 4000


def test_delay(s3, bucket, monkeypatch):
    monkeypatch.setattr(s3, "delay_ms", 60)
    before = SystemClock().now_ms()
    open_store(f"s3://{bucket}/t").put_if_absent("a", b"")
    assert SystemClock().now_ms() - before >= 55


def test_options_lead_here_without_the_environment(s3, bucket, monkeypatch):
    for name in s3.environment():
        monkeypatch.delenv(name, raising=False)
    store = open_store(f"s3://{bucket}/t", s3.storage_options())
    store.put_if_absent("a", b"12345")
    filesystem, root = store.filesystem()
    assert filesystem.open_input_file(f"{root}/a").read() == b"12345"


def test_one_server_at_a_time(s3):
    with pytest.raises(InvalidInput, match="already running in this process"), LocalServer():
        pass


@pytest.mark.verify
def test_as_a_program_it_refuses_a_port_in_use_without_a_traceback(s3):
    port = s3.endpoint_url.rpartition(":")[2]
    words = [sys.executable, "-m", "eventlog.store.testing.local_server", "--port", port]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=240)
    assert done.returncode == 2
    assert b"choose another port" in done.stderr
    assert b"Traceback" not in done.stderr


def test_bad_bucket_name(s3):
    with pytest.raises(InvalidInput, match="cannot create bucket"):
        s3.create_bucket("A")


# Parks each writer between moto's look-up and its write, until all have looked.
_RACE = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from moto.s3.models import S3Backend
from eventlog.store.testing.local_server import LocalServer
from eventlog.store.location import open_store

writers = 2
met = threading.Barrier(writers)
writing = threading.Lock()
put_object = S3Backend.put_object

def late_put(self, *args, **kwargs):
    try:
        met.wait(timeout=float(sys.argv[2]))
    except threading.BrokenBarrierError:
        pass
    with writing:
        key = put_object(self, *args, **kwargs)
        # moto reads the bytes for the answer; the other writer's object closes them.
        assert key.etag
    return key

S3Backend.put_object = late_put
with LocalServer(locked=sys.argv[1] == "locked") as server, ThreadPoolExecutor(writers) as pool:
    server.create_bucket("bucket")
    store = open_store("s3://bucket/t", server.storage_options())
    print(sum(pool.map(lambda n: store.put_if_absent("key", b"%d" % n), range(writers))))
"""


@pytest.mark.verify
@pytest.mark.parametrize(("mode", "wait_s", "winners"), [("unlocked", 240, 2), ("locked", 0.3, 1)])
def test_the_lock_is_what_makes_conditional_puts_atomic(mode, wait_s, winners):
    command = [sys.executable, "-c", _RACE, mode, str(wait_s)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.stdout.strip() == str(winners), done.stderr


@pytest.fixture
def program():
    command = [sys.executable, "-m", "eventlog.store.testing.local_server", "--port", "0"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    timer = threading.Timer(240, child.kill)
    timer.start()
    yield child
    timer.cancel()
    child.kill()
    child.wait(240)
    child.stdin.close()
    child.stdout.close()


@pytest.mark.verify
@pytest.mark.parametrize("end", ["terminate", "close input"])
def test_as_a_program_it_serves_until_told_or_left(program, end):
    url = program.stdout.readline().strip()
    options = {
        "endpoint_url": url,
        "access_key_id": "any",
        "secret_access_key": "any",
        "region": "us-east-1",
    }
    with pytest.raises(InvalidInput, match="does not exist"):
        open_store("s3://nobucket/t", options).get("a")
    if end == "terminate":
        os.kill(program.pid, signal.SIGTERM)
    else:
        program.stdin.close()
    assert program.wait(240) == 0
