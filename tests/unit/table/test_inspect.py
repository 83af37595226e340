"""Table.inspect: what the log records, as Arrow tables with columns that do not change."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from support import builders

from eventlog.errors import VersionNotFound, VersionVacuumed
from eventlog.model.actions import Horizon
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.table.inspection import columns
from eventlog.writers import append, upsert


@pytest.fixture
def table():
    """Two days of rows in two versions, a pin and a tag."""
    made = builders.create(MemoryStore())
    append(made, builders.events(4, days=2), app_id="loader", app_seq=7)
    append(made, builders.events(3, first=4))
    made.pin("audit", 1, owner="ci")
    made.tag("report-2013", 2)
    return made


def test_every_table_has_its_columns_also_without_rows():
    inspect = builders.create(MemoryStore()).inspect
    for name in (
        "history", "transactions", "segments", "chunks", "claims", "pins", "tags", "replicas",
        "branches",
    ):  # fmt: skip
        found = getattr(inspect, name)()
        assert found.schema == getattr(columns, name.upper())
        assert found.num_rows == (1 if name in ("history", "transactions") else 0)


def test_columns_are_those_that_programs_rely_on():
    for schema, names in (
        (
            columns.HISTORY,
            "version time operation writer adds drops rows bytes transactions deletes",
        ),
        (
            columns.SEGMENTS,
            (
                "id chunk epoch version partition rows bytes checksum schema live_rows slice uri "
                "inline"
            ),
        ),
        (columns.CHUNKS, "chunk start end segments rows live_rows bytes version"),
        (
            columns.TRANSACTIONS,
            "version time id operation writer read_version app_id app_seq void info",
        ),
    ):
        assert schema.names == names.split()
    times = [f.type for name in dir(columns) if isinstance(getattr(columns, name), pa.Schema)
             for f in getattr(columns, name) if f.name in ("time", "start", "end")]  # fmt: skip
    assert set(times) == {pa.timestamp("ms", "UTC")}


def test_history_is_that_of_the_table(table):
    rows = table.inspect.history().to_pylist()
    assert [row["version"] for row in rows] == [4, 3, 2, 1, 0]
    for row, entry in zip(rows, table.history(), strict=True):
        assert {name: getattr(entry, name) for name in row} == row
    part = table.inspect.history("report-2013", 2)
    assert part.column("version").to_pylist() == [2, 1]


def test_a_segment_that_a_merge_adds_without_its_deleted_rows_is_an_add():
    made = builders.create(MemoryStore())
    append(made, builders.events(20))
    made.branch("work").delete(where="value < 2.5")
    made.merge("work")
    made.delete(where="value < 5")
    deleted, merged = made.inspect.history(limit=2).to_pylist()
    assert [merged[name] for name in ("adds", "drops", "deletes", "rows")] == [1, 1, 0, -5]
    assert [deleted[name] for name in ("adds", "drops", "deletes", "rows")] == [0, 0, 1, -5]


def test_segments_and_chunks_are_those_of_a_version(table):
    live = table.snapshot().segments()
    rows = table.inspect.segments().to_pylist()
    assert [row["id"] for row in rows] == [segment.id for segment in live]
    assert sum(row["rows"] for row in rows) == table.count() == 7
    assert {row["slice"] for row in rows} == {None}
    assert rows[0]["uri"].startswith(table.uri + "/data/")
    chunks = table.inspect.chunks().to_pylist()
    first = chunks[0]
    assert (first["chunk"], first["segments"], first["rows"]) == ("1970-01-01", 2, 5)
    assert first["start"] == datetime(1970, 1, 1, tzinfo=UTC)
    assert first["end"] == datetime(1970, 1, 2, tzinfo=UTC)
    assert [one["version"] for one in chunks] == [2, 1]
    assert table.inspect.segments(1).num_rows == 2
    assert table.inspect.chunks("audit").column("version").to_pylist() == [1, 1]
    assert table.inspect.segments(0).num_rows == 0


def test_the_chunk_of_all_times_has_no_bounds(tmp_path):
    made = builders.create(MemoryStore(), granularity="all")
    append(made, builders.events(2))
    (row,) = made.inspect.chunks().to_pylist()
    assert (row["chunk"], row["start"], row["end"]) == ("all", None, None)


def test_segments_of_a_keyed_table_have_their_slices():
    made = builders.create(MemoryStore(), key=["name"], buckets=2)
    upsert(made, builders.events(3))
    (row,) = made.inspect.segments().to_pylist()
    (segment,) = made.snapshot().segments()
    assert row["slice"]["kind"] == "log"
    assert (row["slice"]["low"], row["slice"]["splits"]) == (segment.slice.low, None)


def test_transactions_have_their_unit_of_work_and_why_they_are_void(table):
    rows = {row["version"]: row for row in table.inspect.transactions().to_pylist()}
    assert (rows[1]["app_id"], rows[1]["app_seq"], rows[1]["void"]) == ("loader", 7, None)
    assert (rows[0]["operation"], rows[0]["read_version"]) == ("create", -1)
    assert (rows[4]["operation"], rows[4]["app_id"]) == ("tag", None)
    assert table.inspect.transactions(2, 2).column("version").to_pylist() == [2, 1]


def test_claims_pins_tags_replicas_and_branches_are_those_of_now(tmp_path):
    made = builders.create(LocalStore(str(tmp_path)))
    append(made, builders.events(2))
    made.pin("audit", 1, owner="ci")
    made.tag("report", 0)
    lease = made.claim("2013-01-07", group="g", owner="me")
    made.branch("fix", 1)
    (claim,) = made.inspect.claims().to_pylist()
    assert claim["id"] in made.claims()
    assert claim["start"] == datetime(2013, 1, 7, tzinfo=UTC)
    assert (claim["end"], claim["group"], claim["segments"]) == (None, "g", [])
    lease.release()
    assert made.inspect.claims().num_rows == 0
    pins = {row["name"]: row for row in made.inspect.pins().to_pylist()}
    assert pins.keys() == {"audit", "report", "branch:fix"}
    assert (pins["audit"]["version"], pins["audit"]["owner"]) == (1, "ci")
    assert pins["audit"]["time"] is not None
    (tag,) = made.inspect.tags().to_pylist()
    assert (tag["name"], tag["version"], tag["time"]) == ("report", 0, pins["report"]["time"])
    (branch,) = made.inspect.branches().to_pylist()
    assert (branch["name"], branch["fork"], branch["held"]) == ("fix", 1, True)


def test_a_version_that_is_not_there_is_refused(table):
    with pytest.raises(VersionNotFound):
        table.inspect.segments(9)
    with pytest.raises(VersionNotFound):
        table.inspect.transactions(9)
    table.unpin("audit", owner="ci")
    builders.commit(table, Horizon(2), operation="vacuum")
    with pytest.raises(VersionVacuumed):
        table.inspect.chunks(1)
