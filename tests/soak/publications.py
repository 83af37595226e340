"""Publishers in processes of their own, two for each format, killed again and again.

`python -m soak.publications [--versions N] [--seed N]` (with `tests` on the path) runs them beside
appends, compactions, deletes of rows, restores and vacuums, in a directory and on an S3 server. It
checks that what lies there in the end is what one publication puts, that `fsck` is content, and
that deltalake and pyiceberg read what a scan does; and prints what a version costs, and the lag.
"""

import argparse
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import boto3
import pyarrow as pa
from support.builders import SCHEMA, Spy, events
from support.iceberg_tables import in_order, same_rows
from support.publication_rounds import FORMATS, change, check_publication

from eventlog import Table
from eventlog.compaction import vacuum
from eventlog.errors import EventLogError
from eventlog.publishing import follow, unpublish
from eventlog.publishing.following import StandingPublisher
from eventlog.readers import scan
from eventlog.store.location import open_store
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append

CREDENTIALS = {"access_key_id": "soak", "secret_access_key": "soak", "region": "us-east-1"}
RETENTION = timedelta(seconds=20)
PUBLISHERS = 2  # of each format
CALLS = (10, 2000)  # of a store, before a publisher dies
PACE_S = 0.08  # between two commits
READ = 8  # versions of each table that engines read
MEASURED = 40  # commits whose publication is counted, and timed


class DyingStore(Spy):
    """A store whose process ends at the `at`-th call: before its effect, or after it."""

    def __init__(self, inner, at, *, after):
        super().__init__(inner)
        self._left, self._after, self._lock = at, after, threading.Lock()

    @contextmanager
    def _dying(self):
        with self._lock:
            self._left -= 1
            dies = self._left == 0
        if dies and not self._after:
            os._exit(9)
        yield
        if dies:
            os._exit(9)

    def get(self, key, *, start=0, length=None):
        with self._dying():
            return super().get(key, start=start, length=length)

    def put_if_absent(self, key, body):
        with self._dying():
            return super().put_if_absent(key, body)

    def put_hint(self, key, body):
        with self._dying():
            super().put_hint(key, body)

    def list(self, prefix, *, after="", limit=None):
        with self._dying():
            return super().list(prefix, after=after, limit=limit)


def publish_until_killed(place, name, at, errors, *, after):
    """Follow a table, in a process of its own; an error that is not expected is handed back."""
    table = Table(DyingStore(open_store(*place), at, after=after))
    try:
        for _ in follow(table, name, every_s=0.1):
            pass
    except EventLogError as error:
        errors.put(f"{name}: {type(error).__name__}: {error}")


class Crew:
    """The publishers of a table: each is started again when it dies."""

    def __init__(self, uri, options, seed):
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])
        self.errors, self.deaths = self._context.Queue(), 0
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep, args=((uri, options), name, f"{seed}/{name}/{n}"))
            for name in FORMATS
            for n in range(PUBLISHERS)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _keep(self, place, name, seed):
        draw = random.Random(seed)
        while not self._over.is_set():
            at = int(CALLS[0] * (CALLS[1] / CALLS[0]) ** draw.random())
            child = self._context.Process(
                target=publish_until_killed,
                args=(place, name, at, self.errors),
                kwargs={"after": draw.random() < 0.5},
                daemon=True,
            )
            child.start()
            while child.is_alive() and not self._over.is_set():
                child.join(0.2)
            if child.exitcode == 9:
                self.deaths += 1
            child.terminate()
            child.join()


def answers(table, options, version):
    """What deltalake and pyiceberg read of a version, by their names."""
    from deltalake import DeltaTable, QueryBuilder  # noqa: PLC0415
    from pyiceberg.table import StaticTable  # noqa: PLC0415

    theirs, ours = {}, {}
    if options:
        theirs = {
            "AWS_ENDPOINT_URL": options["endpoint_url"], "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": options["access_key_id"], "AWS_REGION": options["region"],
            "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
        }  # fmt: skip
        ours = {
            "s3.endpoint": options["endpoint_url"], "s3.region": options["region"],
            "s3.access-key-id": options["access_key_id"],
            "s3.secret-access-key": options["secret_access_key"],
        }  # fmt: skip
    delta = DeltaTable(table.uri, version=version, storage_options=theirs)
    query = QueryBuilder().register("t", delta).execute("SELECT * FROM t")
    metadata = f"{table.uri}/metadata/v{version}.metadata.json"
    return {
        "deltalake": pa.table(query.read_all()),
        "pyiceberg": StaticTable.from_metadata(metadata, ours).scan().to_arrow(),
    }


def check_answers(table, options, first, last):
    """Check what engines read of some versions against a scan; return how many were read."""
    versions = sorted({first, last, *random.Random(7).sample(range(first, last), READ)})
    for version in versions:
        want = scan(table, version=version).to_table()
        for engine, rows in answers(table, options, version).items():
            found = in_order(rows, want.schema)
            assert same_rows(found, in_order(want, want.schema)), (engine, version)
    return len(versions)


def costs(table, options, name):
    """Requests and bytes of one version, at once and one by one, and the lag of a follower."""
    counting = CountingStore(open_store(table.uri, options))
    publisher = StandingPublisher(Table(counting).session, name)
    unpublish(table, name, dry_run=False)
    with counting.measure() as at_once:
        put = publisher.step().put
    each = f"{at_once.put / put:.2f} PUTs, {at_once.total / put:.2f} requests"
    told = [
        f"at once {put} versions: {each}, {at_once.bytes_written / put / 1000:.1f} kB a version"
    ]
    with counting.measure() as steps:
        for number in range(MEASURED):
            append(table, events(3, first=number, day=number % 3))
            assert publisher.step().put == 1
    each = f"{steps.put / MEASURED:.2f} PUTs, {steps.total / MEASURED:.1f} requests"
    told.append(f"one by one: {each}, {steps.bytes_written / MEASURED / 1000:.1f} kB")
    return [*told, lag(table, options, name)]


def lag(table, options, name):
    """How long after a commit its publication was whole, with the pauses of `follow`."""
    committed, lags = {}, []
    over = threading.Event()

    def write():
        for number in range(MEASURED // 4):
            time.sleep(random.Random(number).uniform(0.2, 4))
            version = append(table, events(2, first=number))
            committed[version] = time.monotonic()
        over.set()

    writer = threading.Thread(target=write)
    writer.start()
    for done in follow(Table(open_store(table.uri, options)), name):
        now = time.monotonic()
        lags += [now - committed.pop(v) for v in [*committed] if v <= done.last]
        if over.is_set() and not committed:
            break
        if over.is_set():
            append(table, events(1))
    writer.join()
    return f"lag: mean {sum(lags) / len(lags):.2f} s, most {max(lags):.2f} s of {len(lags)}"


def run_at(uri, options, versions, seed):
    """Run on one store; return the lines of its report."""
    table = Table.create(uri, SCHEMA, time_column="at", storage_options=options)
    draw, did = random.Random(seed), {}
    begun = time.monotonic()
    with Crew(uri, options, seed) as crew:
        while table.refresh().version < versions:
            kind = change(table, draw, table.session.head().version, RETENTION)
            did[kind] = did.get(kind, 0) + 1
            time.sleep(PACE_S)
    took = time.monotonic() - begun
    errors = []
    while not crew.errors.empty():
        errors.append(crew.errors.get())
    assert not errors, errors
    assert crew.deaths > versions // 100, f"only {crew.deaths} publishers died"
    for number in range(3 * READ):
        append(table, events(2, first=number))
    vacuum(table, dry_run=False, retention=RETENTION, staging=RETENTION)
    ranges = {name: check_publication(table, name) for name in FORMATS}
    first, last = max(r[0] for r in ranges.values()), min(r[1] for r in ranges.values())
    read = check_answers(table, options, first, last)
    how = f"{last} versions in {took:.0f} s, {did}, {crew.deaths} publishers died"
    lines = [f"{table.uri}: {how}; at the end {ranges}; {read} of them read by two engines"]
    for name in FORMATS:
        lines += [f"  {name}, {line}" for line in costs(table, options, name)]
    return lines


@contextmanager
def served():
    """Serve S3 from a process of its own: deltalake holds the interpreter while it reads."""
    command = [sys.executable, "-m", "eventlog.store.testing.local_server", "--port", "0"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            options = {"endpoint_url": server.stdout.readline().strip(), **CREDENTIALS}
            names = {"endpoint_url": "endpoint_url", "region": "region_name",
                     "access_key_id": "aws_access_key_id",
                     "secret_access_key": "aws_secret_access_key"}  # fmt: skip
            given = {theirs: options[ours] for ours, theirs in names.items()}
            boto3.client("s3", **given).create_bucket(Bucket="publications")
            yield options
        finally:
            server.terminate()


def main(arguments=None):
    """Run in a directory, and on an S3 server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["directory", "s3"])
    given = parser.parse_args(arguments)
    sys.stdout.write(f"seed {given.seed}\n")
    if given.only != "s3":
        with tempfile.TemporaryDirectory() as folder:
            lines = run_at((Path(folder) / "t").as_uri(), {}, given.versions, given.seed)
            sys.stdout.write("\n".join([*lines, ""]))
    if given.only != "directory":
        with served() as options:
            lines = run_at("s3://publications/t", options, given.versions, given.seed)
            sys.stdout.write("\n".join([*lines, ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
