"""A sum that does not fit its column: at some versions, of some keys, and mended later.

Nothing wraps or saturates: a reader gets an error that says where, or the null that it asked for.
Compaction goes on, and its answers stay those of the rows as they were written.
"""

import random
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from click.testing import CliRunner
from support.repeatable import EXAMPLES

from eventlog import Table, compaction, errors
from eventlog.cli.program import build
from eventlog.clock import ManualClock
from eventlog.readers import changes, scan
from eventlog.store.location import open_store
from eventlog.store.memory import MemoryStore
from eventlog.writers import upsert

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
POLICY = compaction.Policy(target_bytes=4096)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("n", pa.int8()),
        ("d", pa.decimal128(3, 1)),
        ("c", pa.int64()),
    ]
)
RULE = {"merge": "aggregate", "merge.n": "sum", "merge.d": "sum", "merge.c": "count"}
LONG = max(EXAMPLES, 200)


def table_of(store, **options):
    clock = ManualClock(1_700_000_000_000, 1)
    options = {"properties": RULE | {"combine_after": "1"}} | options
    return Table.create(
        store.uri, SCHEMA, store=store, clock=clock, time_column="at", key="id", **options
    )


def write(table, *rows):
    """Rows of (id, n, tenths of d, c)."""
    columns = [pa.array([row[place] for row in rows]) for place in range(4)]
    d = pa.array([None if r[2] is None else f"{r[2] / 10:.1f}" for r in rows], pa.string())
    at = pa.array([NOON] * len(rows), pa.timestamp("us", "UTC"))
    found = [columns[0], at, columns[1].cast(pa.int8()), d.cast(pa.decimal128(3, 1))]
    upsert(table, pa.table([*found, columns[3].cast(pa.int64())], SCHEMA.names))


@pytest.mark.parametrize("memory_bytes", [2**20, 2**29])
def test_a_sum_that_fits_is_written_whatever_memory_there_is(memory_bytes):
    """Parts of it do not fit."""
    table, count = table_of(MemoryStore()), 60_000
    columns = [
        pa.array([1] * 2 * count),
        pa.array([NOON] * 2 * count, pa.timestamp("us", "UTC")),
        pa.array([100] * count + [-100] * count, pa.int8()),
        pa.nulls(2 * count, pa.decimal128(3, 1)),
        pa.array([1] * 2 * count, pa.int64()),
    ]
    parts = pa.table(columns, SCHEMA.names).to_batches(max_chunksize=5000)
    upsert(table, pa.Table.from_batches(parts), memory_bytes=memory_bytes)
    for _ in range(2):
        [row] = scan(table).to_table().to_pylist()
        assert (row["id"], row["n"], row["c"]) == (1, 0, 2 * count)
        compaction.run(table, policy=POLICY)


def mended(store=None):
    """A table whose key 1 has a sum of 200 at version 2, and 100 from version 4 on."""
    table = table_of(MemoryStore() if store is None else store, buckets=4)
    write(table, (1, 100, 1, 1), (2, 1, 1, 1), (3, 1, 1, 1))
    write(table, (1, 100, 1, 1))
    write(table, (2, 5, 1, 1))
    write(table, (1, -100, 1, 1))
    return table


@pytest.mark.parametrize(
    "read",
    [
        lambda t: scan(t, version=2).to_table(),
        lambda t: changes(t, 0).to_table(),
        lambda t: changes(t, 2, 4).to_table(),
    ],
    ids=["scan", "a range across it", "a range that begins at it"],
)
def test_the_error_says_where_it_is_and_what_to_do(read):
    with pytest.raises(errors.InvalidInput) as caught:
        read(mended())
    assert caught.value.version == 2
    for part in ("column 'n' of key id=1 is 200", "int8", "chunk all, bucket 0", "overflow='null'"):
        assert part in str(caught.value)


def test_others_are_read_all_the_while():
    table = mended()
    assert scan(table, ["n"], "id = 2", version=2).to_table().to_pylist() == [{"n": 1}]
    assert scan(table, ["id", "d"], version=2).to_table().num_rows == 3
    assert scan(table, version=2).count() == 3
    assert changes(table, 0, columns=["id", "d"]).to_table().num_rows == 9
    assert sorted(scan(table, ["n"]).to_table().column("n").to_pylist()) == [1, 6, 100]


def test_a_feed_that_asks_for_null_passes():
    table = mended()
    wanted = [
        (2, "update_before", 1, 100),
        (2, "update_after", 1, None),
        (3, "update_before", 2, 1),
        (3, "update_after", 2, 6),
        (4, "update_before", 1, None),
        (4, "update_after", 1, 100),
    ]
    told = lambda found: [tuple(c[n] for n in ("_version", "_change", "id", "n")) for c in found]
    for start, end in ((1, 4), (1, 2), (2, 4), (3, 4)):
        found = changes(table, start, end, overflow="null").to_table().to_pylist()
        assert told(found) == [change for change in wanted if start < change[0] <= end]
    for verb in (lambda: changes(table, 0, overflow="wrap"), lambda: scan(table, overflow="wrap")):
        with pytest.raises(errors.InvalidInput, match="overflow must be error or null"):
            verb()


def test_from_the_shell(tmp_path):
    table = table_of(open_store(tmp_path / "t"))
    write(table, (1, 100, 1, 1))
    write(table, (1, 100, 1, 1))
    shell = lambda *given: CliRunner().invoke(build(), [given[0], table.uri, *given[1:], "--json"])
    for verb in (["scan"], ["changes", "1"]):
        refused = shell(*verb)
        assert refused.exit_code == 2
        assert "--overflow null" in refused.stderr
        passed = shell(*verb, "--overflow", "null", "--columns", "n")
        assert passed.exit_code == 0
        assert '"n": null' in passed.stdout.replace('"n":null', '"n": null')


def test_compaction_goes_on_beside_it_and_after_it_was_mended(tmp_path):
    table = mended(open_store(tmp_path / "t"))
    table.restore(3)  # key 1 does not fit, and what it is mended with comes later
    report = compaction.run(table, policy=POLICY)
    assert [outcome.status for outcome in report.outcomes] == ["done"]
    places = [(s.slice.kind, s.rows) for s in table.refresh().segments()]
    assert sorted(places) == [("base", 2), ("log", 2)]
    assert not compaction.run(table, policy=POLICY).planned  # nothing new: nothing to do
    with pytest.raises(errors.InvalidInput, match="is 200"):
        scan(table).to_table()
    assert scan(table, where="id = 2").to_table().column("n").to_pylist() == [6]
    checked = CliRunner().invoke(build(), ["fsck", table.uri, "--keys"])
    assert checked.exit_code == 0, checked.output
    write(table, (1, -100, 1, 1))
    assert compaction.run(table, policy=POLICY).count("done") == 1
    assert [(s.slice.kind, s.rows) for s in table.refresh().segments()] == [("base", 3)]
    assert sorted(scan(table, ["n"]).to_table().column("n").to_pylist()) == [1, 6, 100]


def play(seed, steps=14):
    """Random sums at the edge, with merges between: every version is what its rows add up to."""
    chance = random.Random(seed)
    order = chance.choice([{}, {"order_by": "at"}])
    table = table_of(MemoryStore(), buckets=chance.choice([1, 4]), **order)
    sums, at = Counter(), {0: {}}
    for _ in range(steps):
        if chance.random() < 0.3:
            report = compaction.run(table, policy=POLICY)
            assert not report.count("failed"), report.outcomes
        else:
            rows = [
                (k, chance.choice([-60, 60]), chance.choice([-500, 500]), chance.choice([1, None]))
                for k in chance.sample(range(5), chance.randrange(1, 4))
            ]
            write(table, *rows)
            for k, n, d, c in rows:
                sums[k, "n"] += n
                sums[k, "d"] += d
                sums[k, "c"] += c or 1
        version = table.refresh().version
        keys = {k for k, _ in sums}
        for known in range(max(at) + 1, version):
            at[known] = at[known - 1]
        at[version] = {k: tuple(sums[k, name] for name in "ndc") for k in keys}
    rows_of = lambda version: {
        k: (n if -128 <= n <= 127 else None, d if abs(d) <= 999 else None, c)
        for k, (n, d, c) in at[version].items()
    }
    unfit = 0
    for version in range(1, max(at) + 1):
        wanted = rows_of(version)
        found = scan(table, version=version, overflow="null").to_table().to_pylist()
        assert {r["id"]: (r["n"], tenths(r["d"]), r["c"]) for r in found} == wanted
        if any(None in row for row in wanted.values()):
            unfit += 1
            with pytest.raises(errors.InvalidInput, match="does not fit"):
                scan(table, version=version).to_table()
    state = {}
    for change in changes(table, 0, overflow="null").to_table().sort_by("_version").to_pylist():
        row = (change["n"], tenths(change["d"]), change["c"])
        if change["_change"] in ("insert", "update_after"):
            state[change["id"]] = row
    assert state == rows_of(max(at))
    return unfit


def tenths(value):
    return None if value is None else int(value * 10)


@pytest.mark.verify
def test_answers_are_those_of_the_rows_as_they_were_written():
    assert sum(play(seed) for seed in range(4)) > 5


@pytest.mark.long
def test_answers_of_many_histories():
    assert sum(play(seed, 30) for seed in range(100, 100 + LONG)) > LONG
