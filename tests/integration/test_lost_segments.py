"""Segments that are missing: found by fsck and restore, told apart from what vacuum took."""

import pytest
from support import builders
from support.builders import (
    create,
    events,
    live,
    reopen,
)
from support.vacuumed import DAY, NOW, pinned_and_vacuumed

from eventlog import Table, errors
from eventlog.compaction import vacuum
from eventlog.format import keys
from eventlog.format.keys import key_of
from eventlog.fsck.check import fsck
from eventlog.segments.segment_object import check_sizes
from eventlog.table.restoration import restoration
from eventlog.writers import append, overwrite


def test_a_missing_segment_that_a_pin_holds_is_found():
    table = pinned_and_vacuumed()
    assert fsck(Table(table.store)).ok
    (held,) = live(table.snapshot(1))
    table.store.delete([keys.key_of(held)])
    (finding,) = fsck(Table(table.store)).findings
    assert "pin 'keep' protects" in finding.message


def test_restore_looks_for_what_it_brings_back():
    table = create()
    append(table, events(1))
    overwrite(table, events(1, first=1), **DAY)
    (old,) = live(table.snapshot(1))
    table.store.delete([keys.key_of(old)])
    before = table.session.head().version
    with pytest.raises(errors.DataLoss, match="1 of 1"):
        table.restore(1)
    assert table.refresh().version == before


def test_what_a_vacuum_took_since_is_not_called_lost():
    table = create()
    append(table, events(1))
    overwrite(table, events(1, first=1), **DAY)
    behind = reopen(table.store)
    actions = restoration(behind.session.head(), behind.snapshot(1))
    table.clock.advance(10**9)
    append(table, events(1, first=2))
    vacuum(table, dry_run=False, **NOW)
    with pytest.raises(errors.VersionVacuumed):
        behind.session.log.check_uploaded(actions, 1)


@pytest.mark.parametrize("damage", ["missing", "shorter"])
def test_files_that_are_handed_to_an_engine_are_looked_at_first(damage, tmp_path):
    table = Table.create(
        tmp_path / "table", builders.SCHEMA, time_column="at", properties={"inline_bytes": "0"}
    )
    append(table, events(1000))
    segments = table.snapshot().segments()
    check_sizes(table.store, segments, 1)
    path = tmp_path / "table" / key_of(segments[0])
    body = path.read_bytes()
    path.unlink()
    if damage == "shorter":
        path.write_bytes(body[:-1])
    with pytest.raises(errors.DataLoss, match="eventlog fsck"):
        check_sizes(table.store, segments, 1)
