"""Tables that are published, and the rows that other engines read of them.

`readings` reads one version by each engine that is installed; an engine that refuses gives its
error.
"""

import datetime as dt
import json
import re
import shlex
from collections.abc import Iterable
from decimal import Decimal
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from click.testing import CliRunner

from eventlog import Table
from eventlog.cli.program import build
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, run
from eventlog.publishing.delta.checkpoint_publisher import CheckpointPublisher
from eventlog.publishing.delta.delta_versions import DeltaVersions
from eventlog.readers import scan
from eventlog.writers import append, delete

START_MS = 1_357_000_000_000
EVERY_TYPE = pa.schema(
    [
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
        ("truth", pa.bool_()),
        ("tiny", pa.int8()),
        ("short", pa.int16()),
        ("number", pa.int32()),
        ("large", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(20, 4)),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.int64()), ("name", pa.string())])),
        ("counts", pa.map_(pa.string(), pa.int32())),
    ]
)


def row(n: int) -> dict[str, object]:
    """A row of every type; each seventh has nothing but its time."""
    at = dt.datetime(2013, 1, 1 + n % 3, n % 24, n % 60, 7, n, tzinfo=dt.UTC)
    doubles = {3: float("nan"), 4: float("inf"), 5: -0.0}
    values = {
        "truth": n % 2 == 0,
        "tiny": n % 128,
        "short": -n,
        "number": n * 100_000,
        "large": 2**53 + n,
        "single": n / 4,
        "double": doubles.get(n, -n / 3),
        "text": f"größe {n} " + "long " * (8 * (n % 2)),
        "bytes": bytes([n % 256, 0, 255]),
        "day": at.date(),
        "local": at.replace(tzinfo=None, year=1969),
        "price": Decimal(n) / 4,
        "tags": ["a", None, f"t{n}"],
        "place": {"x": n, "name": "\x7f列"},
        "counts": [(f"k{n}", n)],
    }
    return {"at": at} | (values if n % 7 else {})


def rows(first: int, count: int, schema: pa.Schema = EVERY_TYPE) -> pa.Table:
    """Rows numbered from `first`."""
    numbered = [row(n) for n in range(first, first + count)]
    named = [{name: r[name] for name in schema.names if name in r} for r in numbered]
    return pa.Table.from_pylist(named, schema=schema)


def table_of_every_type(uri: str) -> Table:
    """Appends, a delete by positions, a column more, an overwriting compaction, a mark."""
    t = Table.create(uri, EVERY_TYPE, time_column="at", clock=ManualClock(START_MS, 1))
    append(t, rows(0, 12))
    append(t, rows(12, 12))
    delete(t, where="number = 1300000")
    t.restore(2)  # the entry of that segment has no vector again
    delete(t, where="number = 1500000")
    t.add_columns([pa.field("added", pa.string())])
    append(t, rows(24, 6).append_column("added", pa.array(["x"] * 6)))
    compact_all(t)
    append(t, rows(30, 6).append_column("added", pa.nulls(6, pa.string())))
    t.pin("report")
    return t


def compact_all(t: Table) -> None:
    """Compact each chunk that has more than one segment."""
    run(t, policy=Policy(min_gain=0.01))


def objects_of(t: Table, prefix: str = "_delta_log/") -> dict[str, bytes]:
    """The objects under a prefix, by key."""
    return {row.key: t.store.get(row.key) for row in t.store.list(prefix)}


def commands_of(message: str) -> list[str]:
    """The commands that a message names, without the name of the program."""
    return re.findall("`eventlog (.*?)`", message)


def run_commands(commands: Iterable[str]) -> None:
    """Run commands in this process; each has to succeed."""
    for each in commands:
        answer = CliRunner().invoke(build(), shlex.split(each))
        assert answer.exit_code == 0, answer.output


def actions_of(t: Table, version: int) -> list[dict[str, dict[str, object]]]:
    """The actions of Delta's commit of a version."""
    body = t.store.get(f"_delta_log/{version:020d}.json")
    return [json.loads(line) for line in body.splitlines()]


def put_checkpoint(t: Table, version: int) -> None:
    """Put the Delta checkpoint of a version."""
    described = DeltaVersions(t.session, writes=True)
    CheckpointPublisher(t.session, described).put_checkpoint(t.snapshot(version))


def path_of(t: Table) -> str:
    """The directory of a table."""
    return unquote(urlsplit(t.uri).path)


def known_rows(t: Table, version: int) -> list[str]:
    """The rows of a version, in an order of their own."""
    return comparable(scan(t, version=version).to_table(), t.snapshot(version).schema)


def comparable(found: pa.Table, schema: pa.Schema) -> list[str]:
    """Rows in an order and in types of their own, so that engines can be compared."""
    assert sorted(found.column_names) == sorted(schema.names)
    return sorted(map(repr, found.select(schema.names).cast(schema).to_pylist()))


def readings(t: Table, version: int) -> dict[str, list[str] | str]:
    """The rows of a version by each engine, or why it refuses them."""
    schema, found = t.snapshot(version).schema, dict[str, list[str] | str]()
    for engine, read in ENGINES.items():
        try:
            found[engine] = comparable(read(path_of(t), version), schema)
        except Exception as error:  # noqa: BLE001 - each engine has its own
            found[engine] = f"refused: {error}"
    return found


def _by_query(path, version):
    from deltalake import DeltaTable, QueryBuilder  # noqa: PLC0415 - takes a second

    builder = QueryBuilder().register("t", DeltaTable(path, version=version))
    return pa.table(builder.execute("SELECT * FROM t").read_all())


def _by_arrow(path, version):
    from deltalake import DeltaTable  # noqa: PLC0415

    return DeltaTable(path, version=version).to_pyarrow_table()


def _by_polars(path, version):
    import polars as pl  # noqa: PLC0415

    return pl.read_delta(path, version=version).to_arrow()


ENGINES = {"deltalake": _by_query, "deltalake, Arrow": _by_arrow, "polars": _by_polars}
