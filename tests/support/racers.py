"""The child processes of the concurrency tests: their work, their start and supervision."""

import multiprocessing
import os
import queue
import signal
import threading
import time
import traceback

import pyarrow as pa
from botocore.httpsession import URLLib3Session

from eventlog import Table
from eventlog.replication import backfill, follow
from eventlog.store.local import LocalStore
from eventlog.store.location import open_store
from eventlog.writers import append

# Each is forked from a process without threads that has imported all needed modules.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    [
        "boto3",
        "pyarrow.dataset",
        "eventlog",
        "eventlog.compaction",
        "eventlog.fsck.check",
        "eventlog.readers",
        "eventlog.writers",
        "eventlog.writers.files",
        "eventlog.replication",
        "support.racers",
    ]
)


def run(target, count, *args, environment=None, seconds=280):
    """Run `target(number, start, *args)` in `count` processes; return the results by number.

    All start at once, when every one is ready. All are ended with the call, or after `seconds`,
    which only a hang reaches.
    """
    start, results = processes.Barrier(count), processes.Queue()
    workers = [
        processes.Process(
            target=_work,
            args=(target, number, start, results, args, environment or {}),
            daemon=True,
        )
        for number in range(count)
    ]
    found, deadline = {}, time.monotonic() + seconds
    try:
        for worker in workers:
            worker.start()
        for _ in workers:
            left = max(0.1, deadline - time.monotonic())
            number, value, problem = results.get(timeout=left)
            assert problem is None, f"process {number}:\n{problem}"
            found[number] = value
    except queue.Empty:
        raise AssertionError(f"only {len(found)} of {count} ended within {seconds} s") from None
    finally:
        for worker in workers:
            worker.join(5 if len(found) == count else 0)
            if worker.is_alive():
                worker.kill()
                worker.join()
    return [found[number] for number in range(count)]


def append_rows(number, start, uri, options, count):
    """Append `count` single rows through a separate handle; return the versions."""
    table = Table.open(uri, options)
    schema = table.session.head().schema
    start.wait(280)
    versions = []
    for n in range(count):
        value = number * 10_000 + n
        rows = pa.table([[value * 1_000_000], [f"row {value}"], [None]], schema=schema)
        versions.append(append(table, rows))
    return versions


def race_for_slots(number, start, uri, options, rounds):
    """Create the same new key as all other racers, repeatedly; return the rounds won."""
    store = open_store(uri, options)
    body = f"{number:04d}".encode() * 5000
    won = []
    for turn in range(rounds):
        start.wait(280)
        if store.put_if_absent(f"race/{turn:06d}", body):
            won.append(turn)
    return won


def killed_at(request, when, operation, *args, seconds=280, **options):
    """Run an operation in a process that kills itself at this request; return whether it did.

    A request is one of HTTP, or a call of a store in a directory, counted from 1. The process ends
    by `SIGKILL` `before` it is sent, or `after` its answer has come, with all that other threads
    have under way.
    """
    worker = processes.Process(
        target=_mortal, args=(request, when, operation, args, options), daemon=True
    )
    worker.start()
    worker.join(seconds)
    if worker.is_alive():
        worker.kill()
        worker.join()
        raise AssertionError(f"did not end within {seconds} s")
    assert worker.exitcode in (0, -signal.SIGKILL), worker.exitcode
    return worker.exitcode != 0


def replicate(source, target, target_options, **options):
    """Follow; a copy that starts at a key frame is then filled backwards."""
    follow(source, target, target_options=target_options, **options)
    if options.get("start") == "keyframe":
        backfill(source, target, target_options=target_options)


def _mortal(request, when, operation, args, options):
    lock, sent = threading.Lock(), [0]

    def counted(call):
        def one(*args, **kwargs):
            with lock:
                sent[0] += 1
                mine = sent[0] == request
            if mine and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return call(*args, **kwargs)
            finally:
                if mine:
                    os.kill(os.getpid(), signal.SIGKILL)

        return one

    for kind, verbs in (
        (URLLib3Session, ("send",)),
        (LocalStore, ("get", "put_if_absent", "list")),
    ):
        for verb in verbs:
            setattr(kind, verb, counted(getattr(kind, verb)))
    os.environ.pop("AWS_PROFILE", None)
    operation(*args, **options)


def _work(target, number, start, results, args, environment):  # noqa: PLR0917
    os.environ.update(environment)
    os.environ.pop("AWS_PROFILE", None)
    try:
        results.put((number, target(number, start, *args), None))
    except BaseException:  # noqa: BLE001 - the parent shows it
        start.abort()
        results.put((number, None, traceback.format_exc()))
