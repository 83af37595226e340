"""Small states that no fold arrives at, with honest digests: shown, audited, and no crash."""

import msgspec
import pytest
from click.testing import CliRunner
from support.builders import START_MS, create, events
from support.vacuumed import DAY, NOW

from eventlog import Table
from eventlog.cli.program import build
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.errors import Corrupt
from eventlog.format import codec, keys
from eventlog.fsck.check import fsck
from eventlog.model.entries import Correction, Sweep
from eventlog.model.records import Claim, Meta, Pin, Replica
from eventlog.readers import count, scan
from eventlog.store.local import LocalStore
from eventlog.writers import append, overwrite

BEYOND = (2**63 - 1, -(2**63) + 1, 253_402_300_800_000)
NO_VERSION = 10**12


def forged(path, **fields):
    """A table of two versions whose newest has this small state; another handle."""
    table = create(LocalStore(path))
    append(table, events(3))
    return with_forged_head(table, **fields)


def with_forged_head(table, **fields):
    """Another handle of the table, whose newest version has this small state."""
    store, head = table.store, table.refresh()
    commit, _ = table.session.log.read(head.version)
    meta = msgspec.structs.replace(head.meta, **fields)
    total = codec.parse_hash(commit.header.state_hash) + codec.meta_hash_change(head.meta, meta)
    header = msgspec.structs.replace(commit.header, state_hash=codec.hex_hash(total))
    base = head.base.state if head.base else Meta()
    state = codec.meta_diff(base, meta)
    key = keys.commit_key(head.version)
    store.delete([key])
    changed = msgspec.structs.replace(commit, header=header, state=state)
    assert store.put_if_absent(key, codec.encode_commit(changed))
    return Table(store, ManualClock(START_MS, 7))


def program(verb, table):
    return CliRunner().invoke(build(), [verb, table.uri])


def claim(time):
    return Claim(time, time, (), "shared", 0, "group", "owner", 1, 1)


@pytest.mark.parametrize("time", BEYOND)
@pytest.mark.parametrize(
    ("verb", "fields"),
    [
        ("pins", lambda time: {"pins": {"p": Pin(0, "o", 1, time)}}),
        ("claims", lambda time: {"claims": {"c" * 32: claim(time)}}),
        ("clock", lambda time: {"clock": (Correction(0, time, time),)}),
        ("log", lambda time: {"clock": (Correction(0, time, time),)}),
    ],
    ids=["pins", "claims", "clock", "log"],
)
def test_times_outside_the_years_are_shown(verb, fields, time, tmp_path):
    table = forged(tmp_path, **fields(time))
    answer = program(verb, table)
    assert answer.exit_code == 0, answer.exception
    assert len(list(table.history())) == 2
    assert count(table) == 3


@pytest.mark.parametrize("digits", ["9" * 5000, "0" * 5000, "9" * 20])
def test_a_property_with_many_digits_stands_for_the_default(digits, tmp_path):
    properties = {"stats_columns": digits, "keyframe_commits": digits}
    table = forged(tmp_path, properties=properties)
    append(table, events(1, first=7))
    table.set_properties({"user.note": "x"})
    overwrite(table, events(1, first=8), start="1970-01-01", end="1970-01-02")
    assert count(table) == 1


NUMBERS = {
    "pin": {"pins": {"p": Pin(NO_VERSION, "o", 1, 0)}},
    "replica": {"replicas": {"r": Replica(NO_VERSION, "o", 1)}},
    "swept": {"swept": Sweep(0, 0, NO_VERSION, None)},
    "horizon": {"horizon": NO_VERSION - 1},
    "far horizon": {"horizon": 2**63 - 1},
}


@pytest.mark.parametrize("what", NUMBERS)
def test_an_audit_reports_numbers_that_no_version_has(what, tmp_path):
    table = forged(tmp_path, **NUMBERS[what])
    for options in ({}, {"checksums": True}):
        report = fsck(table, **options)
        assert any(f.version == 1 and "fold" in f.message for f in report.findings)
        assert report.segments == 1
    answer = program("fsck", table)
    assert answer.exit_code == 4, answer.output


@pytest.mark.parametrize("horizon", [2, NO_VERSION - 1, 2**63 - 1])
def test_a_horizon_above_the_newest_version_is_corrupt(horizon, tmp_path):
    table = forged(tmp_path, horizon=horizon)
    for look in (
        lambda: scan(table).to_table(),
        lambda: scan(table, version=1).to_table(),
        lambda: count(table, "name <> 'x'"),
    ):
        with pytest.raises(Corrupt, match="the horizon is"):
            look()
    assert any("the horizon is" in finding.message for finding in fsck(table).findings)


MARKS = {
    "a horizon above a pin": {"horizon": 3},
    "a horizon above a replica": {
        "horizon": 3,
        "pins": {},
        "replicas": {"r": Replica(1, "o", 2)},
    },
    "a horizon above the newest version": {"horizon": 5},
    "a horizon far above": {"horizon": 2**63 - 1},
    "a fence above the newest version": {"fence": 5},
    "a record of the newest version": {"swept": Sweep(0, 0, 4)},
    "a record far above": {"swept": Sweep(0, 0, NO_VERSION)},
    "a record above the fence": {"swept": Sweep(1, 0, 3)},
    "a record above the horizon": {"swept": Sweep(0, 1, 3)},
}


def pinned():
    """A table whose version 1 is pinned, and has a segment that version 3 drops."""
    table = create()
    append(table, events(1))
    table.pin("p", 1)
    overwrite(table, events(1, first=1), **DAY)
    append(table, events(1, first=2, day=3))
    table.clock.advance(10**9)
    return table


@pytest.mark.hazard("V2")
@pytest.mark.parametrize("marks", MARKS)
def test_v2_a_vacuum_refuses_marks_that_no_action_can_have_set(marks):
    sound = pinned()
    copy = {row.key: sound.store.get(row.key) for row in sound.store.list("")}
    damaged = with_forged_head(sound, **MARKS[marks])
    damaged.clock.advance(10**9)
    before = [row.key for row in damaged.store.list("")]
    for dry_run in (True, False):
        for full in (False, True):
            with pytest.raises(Corrupt, match="run `eventlog fsck "):
                vacuum(damaged, dry_run=dry_run, full=full, **NOW)
    assert [row.key for row in damaged.store.list("")] == before
    head = keys.commit_key(4)
    damaged.store.delete([head])
    assert damaged.store.put_if_absent(head, copy[head])
    repaired = Table(damaged.store, damaged.clock)
    vacuum(repaired, dry_run=False, **NOW)
    assert scan(repaired, version=1).to_table()["name"].to_pylist() == ["row 0"]


def test_v2_a_vacuum_refuses_marks_of_an_older_version_that_no_action_can_have_set():
    damaged = with_forged_head(pinned(), horizon=3)
    append(damaged, events(1, first=9, day=4))
    damaged.clock.advance(10**9)
    with pytest.raises(Corrupt, match="'p' of"):
        vacuum(damaged, dry_run=False, **NOW)
    assert damaged.refresh().version == 5


ODD_TYPES = [
    {},
    {"list": {}},
    {"element": "int64"},
    {"type": "list", "element": "int64"},
    {"a": 1},
    {"map": ["int64"]},
    {"struct": [1]},
    {"list": {"list": {"a": 1}}},
]


@pytest.mark.parametrize("odd", ODD_TYPES, ids=str)
def test_types_that_the_format_does_not_have_are_shown(odd, tmp_path):
    store = LocalStore(tmp_path)
    stored = create(store).session.head().stored_schema
    column = msgspec.structs.replace(stored.columns[-1], type=odd)
    columns = (*stored.columns[:-1], column)
    table = forged(tmp_path / "forged", schema=msgspec.structs.replace(stored, columns=columns))
    answer = program("show", table)
    assert answer.exit_code == 0, answer.exception
    words = ("column type of the format", "a nested type needs exactly id")
    assert any(text in answer.output for text in words)
    with pytest.raises(Corrupt):
        scan(table).to_table()
