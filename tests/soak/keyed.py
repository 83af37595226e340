"""The keyed table of a soak run: its workers, and the check of what they and its log say.

Upserts, deletes, tombstones, merges of slices and a vacuum, beside the workers of the plain table,
through the same proxy and under the same kills. The table must be what `support.keyed_model` says,
at every version that a reader has seen, and in the end.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
from soak.journal import add_hashes, now_ns
from soak.model import Unit, units_of
from soak.workers import Worker, Writer
from support.keyed_model import answer

from eventlog import Table
from eventlog.compaction import Policy, run, vacuum
from eventlog.errors import VersionVacuumed
from eventlog.model.actions import Merge
from eventlog.model.records import Transaction
from eventlog.readers import scan
from eventlog.writers import delete, upsert

NAME = "keyed-"  # workers of this table are called so
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("o", pa.int64()),
        ("v", pa.string()),
    ]
)
COLUMNS = {"key": "k", "order_by": "o", "time_column": "at", "buckets": 4}
# Upserts of some rows are larger than that, and have a segment a bucket.
PROPERTIES = {"keyframe_commits": "16", "combine_after": "1", "bucket_bytes": "1024"}
KEYS = 300
AT = datetime(2013, 1, 7, tzinfo=UTC)
RETENTION, STAGING = timedelta(seconds=5), timedelta(seconds=2)
POLICY = Policy(target_bytes=2**16, backoff_s=1)


def create(uri: str, options: dict[str, str]) -> Table:
    return Table.create(uri, SCHEMA, **COLUMNS, properties=PROPERTIES, storage_options=options)


def row_hash(row: dict) -> int:
    text = f"{row['k']} {row['o']} {row['v']}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest())


class OfKeyed(Worker):
    """A worker on the keyed table."""

    def open(self) -> Table:
        return Table.open(self.place["keyed"], self.place["options"])


class Upserter(OfKeyed, Writer):
    """Upserts and tombstones; orders are drawn, so that many arrive late. Some deletes by key."""

    def form(self, number: int) -> dict:
        if self.random.random() < 0.2:
            some = self.random.sample(range(KEYS), 5)
            rows = [{"k": key, "o": None, "v": None, "_op": "d"} for key in some]
            return self.unit("delete", number, [], app=self.name, rows=rows)
        rows = []
        for n in range(self.random.choice((2, 5, 40))):
            key, order = self.random.randrange(KEYS), self.random.randrange(1000)
            dead = self.random.random() < 0.15
            value = None if dead else f"{self.name}:{number}:{n}"
            rows.append({"k": key, "o": order, "v": value, "_op": "d" if dead else "u"})
        return self.unit("upsert", number, [], app=self.name, rows=rows)

    def commit(self, unit: dict) -> int:
        app = {"app_id": unit["app"], "app_seq": unit["number"]}
        if unit["do"] == "delete":
            keys = pa.table({"k": [row["k"] for row in unit["rows"]]})
            return delete(self.table, keys=keys, **app)
        rows = [row | {"at": AT} for row in unit["rows"]]
        fields = [field.with_nullable(True) for field in SCHEMA]
        data = pa.Table.from_pylist(rows, pa.schema([*fields, pa.field("_op", pa.string())]))
        return upsert(self.table, data, **app)


class Upkeep(OfKeyed):
    """Merges what is due, and deletes what was merged away."""

    def turn(self) -> None:
        if self.random.random() < 0.7:
            report = run(self.table, policy=POLICY)
            self.journal.note(merges=dict(Counter(o.status for o in report.outcomes)))
        else:
            done = vacuum(self.table, dry_run=False, retention=RETENTION, staging=STAGING)
            gone = {name: sums.objects for name, sums in done.gone.items()}
            self.journal.note(vacuum=gone, horizon=done.horizon, fence=done.fence)
        self.stop.wait(self.random.uniform(0, 1))


class Reader(OfKeyed):
    """Reads the newest version, through an old and a new handle, and versions of before."""

    def turn(self) -> None:
        begin, kind = now_ns(), "head"
        table = self.open() if self.random.random() < 0.25 else self.table
        head = table.refresh()
        version = head.version
        if self.random.random() < 0.4:
            kind, version = "old", self.random.randint(head.meta.horizon, version)
        told = {"begin": begin, "version": version}
        try:
            rows = scan(table, ["k", "o", "v"], version=version).to_table().to_pylist()
        except VersionVacuumed:
            self.journal.note(read="vacuumed", end=now_ns(), **told)
            return
        digest = add_hashes(*map(row_hash, rows))
        self.journal.note(read=kind, end=now_ns(), rows=len(rows), digest=digest, **told)


def roster() -> dict[str, type[Worker]]:
    """Name -> kind of every worker on the keyed table."""
    return {
        f"{NAME}upsert-1": Upserter,
        f"{NAME}upsert-2": Upserter,
        f"{NAME}upkeep-1": Upkeep,
        f"{NAME}read-1": Reader,
    }


class Model:
    """The rows of every version, from the units that landed."""

    def __init__(self, units: dict[str, Unit]) -> None:
        self.units = units
        self.landed: dict[str, list[int]] = {}
        self.sums: list[tuple[int, int]] = []  # by version: number of rows, sum of their hashes
        self.merges = 0
        self._given: dict[int, list[dict]] = {}
        self._seen: dict[int, dict] = {}

    def fold(self, log: list[tuple[Transaction, ...]]) -> None:
        """Take the transactions that took effect, by version."""
        for version, transactions in enumerate(log):
            touched = set()
            for transaction in transactions:
                self.merges += sum(isinstance(a, Merge) for a in transaction.actions)
                unit = transaction.app and self.units.get(
                    f"{transaction.app.id}:{transaction.app.seq}"
                )
                if unit is None:
                    continue
                self.landed.setdefault(unit.name, []).append(version)
                for row in unit.intent["rows"]:
                    self._given.setdefault(row["k"], []).append(row)
                    touched.add(row["k"])
            count, total = self.sums[-1] if self.sums else (0, 0)
            for key in touched:
                (before, hashed), (after, fresh) = self._one(key), self._merged(key)
                count, total = count + after - before, add_hashes(total, fresh, -hashed)
            self.sums.append((count, total))

    def _one(self, key: int) -> tuple[int, int]:
        row = self._seen.get(key)
        return (0, 0) if row is None else (1, row_hash(row))

    def _merged(self, key: int) -> tuple[int, int]:
        self._seen.pop(key, None)
        found = answer(self._given[key], key=("k",), order="o")
        self._seen.update({key: row for (key,), row in found.items()})
        return self._one(key)


def violations(
    journals: dict[str, list[dict]],
    log: list[tuple[Transaction, ...]],
    horizon: int,
    rows: list[dict],
) -> tuple[list[str], Counter]:
    """Return what breaks a promise, one line each, and counts of what happened.

    Args:
        journals: the lines of the journals of the workers on this table.
        log: the transactions of each version that took effect.
        horizon: the table's, in the end.
        rows: those of the newest version.
    """
    units = units_of(journals)
    model = Model(units)
    model.fold(log)
    found = [
        f"{name}: {line.get('error') or line['why']}"[-700:]
        for name, lines in journals.items()
        for line in lines
        if "error" in line or line.get("outcome") == "error"
    ]
    found += _units(units, model.landed)
    found += _reads(journals, model, horizon)
    if (len(rows), add_hashes(*map(row_hash, rows))) != model.sums[-1]:
        found.append(f"the keyed table ends with {len(rows)} rows, or not those of the model")
    lines = [line for some in journals.values() for line in some]
    counts = Counter(
        versions=len(log),
        landed=len(model.landed),
        merges=model.merges,
        reads=sum("read" in line for line in lines),
        rows=len(rows),
        horizon=horizon,
    )
    return found, counts


def _units(units: dict[str, Unit], landed: dict[str, list[int]]) -> Iterator[str]:
    """Acknowledged: once, where it was told. Failed for sure: never. Unclear: at most once."""
    for unit in units.values():
        versions = landed.get(unit.name, [])
        if len(versions) > 1:
            yield f"{unit.name} landed {len(versions)} times: versions {versions}"
        if unit.acked and not versions:
            yield f"{unit.name} was acknowledged as version {unit.acked[0][0]}, and is lost"
        if versions and any(version != versions[0] for version, _ in unit.acked):
            yield f"{unit.name} was acknowledged as {unit.acked}, and landed in {versions}"
        if versions and unit.failed == unit.attempts:
            yield f"{unit.name} failed for sure, and landed in {versions}"


def _reads(journals: dict[str, list[dict]], model: Model, horizon: int) -> Iterator[str]:
    """Each read equals its version, and none goes back, nor behind what was acknowledged."""
    acked = sorted((end, v) for unit in model.units.values() for v, end in unit.acked)
    for name, lines in journals.items():
        reads = [line for line in lines if "read" in line]
        for line in reads:
            version = line["version"]
            if line["read"] == "vacuumed":
                if version >= horizon:
                    yield f"{name} was told that version {version} is vacuumed, and it is not"
            elif (line["rows"], line["digest"]) != model.sums[version]:
                yield (
                    f"{name} read {line['rows']} rows of version {version} of the keyed table, "
                    f"which has {model.sums[version][0]}, or others"
                )
        heads = [line for line in reads if line["read"] == "head"]
        for line in heads:
            known = max((v for end, v in acked if end < line["begin"]), default=-1)
            if line["version"] < known:
                yield f"{name} saw {line['version']} after {known} was acknowledged"
        for before, after in pairwise(heads):
            if after["version"] < before["version"]:
                yield f"{name} went back from version {before['version']} to {after['version']}"
