"""What vacuum deletes and records where the log is short, idle, or pinned."""

import pytest
from support.builders import (
    commit,
    create,
    events,
    reopen,
    row_names,
)
from support.vacuumed import DAY, NOW, pinned_and_vacuumed

from eventlog import Table, errors
from eventlog.compaction import vacuum
from eventlog.format import codec, keys
from eventlog.fsck.check import fsck
from eventlog.model.records import Spill, Sweep, Swept
from eventlog.readers import scan
from eventlog.recovery import sweep
from eventlog.writers import append, overwrite


def test_nothing_is_deleted_by_a_log_that_lost_its_end():
    table = create(properties={"keyframe_commits": "1"})
    append(table, events(1))
    overwrite(table, events(1, first=1), **DAY)
    table.store.delete([keys.commit_key(2)])
    table.clock.advance(10**9)
    with pytest.raises(errors.Corrupt, match="commits were removed"):
        vacuum(reopen(table.store), dry_run=False, **NOW)
    assert len(list(table.store.list("data/"))) == 2


def test_vacuums_of_an_idle_table_come_to_rest():
    table = create()
    append(table, events(1))
    overwrite(table, events(1, first=1), **DAY)
    for _ in range(3):
        table.clock.advance(10**9)
        vacuum(table, dry_run=False)
    rest = table.refresh().version
    for _ in range(5):
        table.clock.advance(10**9)
        vacuum(table, dry_run=False)
    assert table.refresh().version == rest
    assert row_names(table) == ["row 1"]


def test_a_record_that_lacks_what_a_pin_holds_is_found():
    table = pinned_and_vacuumed()
    head = table.head()
    commit(table, Swept(Sweep(head.meta.fence, head.meta.horizon, head.version)))
    report = fsck(Table(table.store))
    assert not report.ok
    assert "record lacks this segment" in report.findings[0].message


@pytest.mark.hazard("V4")
@pytest.mark.parametrize("said", [-1, 0, 1, 2**63 - 1])
def test_a_record_that_names_a_wrong_version_deletes_nothing_that_a_pin_holds(said):
    table = pinned_and_vacuumed()
    last = table.head().meta.swept
    body = table.log.frame(last.pending)
    found = sweep.from_object(body, last.pending.drops, last.version)
    wrong = sweep.to_object([sweep.Dropped(d.key, said, d.bytes) for d in found.values()])
    pending = Spill(codec.sha256(wrong), len(wrong), 0, len(found))
    assert table.store.put_if_absent(keys.frame_key(pending.sha256), wrong)
    meta = table.head().meta
    commit(table, Swept(Sweep(meta.fence, meta.horizon, table.head().version, pending)))
    append(table, events(1, first=9, day=4))
    for _ in range(2):
        table.clock.advance(10**9)
        vacuum(reopen(table.store), dry_run=False, **NOW)
    assert scan(reopen(table.store), version=1).to_table().num_rows == 1


WRONG = {
    "live there": lambda key: sweep.Dropped(key, 1, 1),
    "of no version": lambda key: sweep.Dropped(key, -1, 1),
    "of a version to come": lambda key: sweep.Dropped(key, 2**62, 1),
    "outside": lambda _: sweep.Dropped("../precious", 1, 1),
}


@pytest.mark.hazard("V2")
@pytest.mark.parametrize("wrong", WRONG)
def test_a_record_that_is_wrong_deletes_nothing_that_a_pin_holds(wrong):
    table = pinned_and_vacuumed()
    [old] = table.snapshot(1).segments()
    head = table.head()
    body = sweep.to_object([WRONG[wrong](keys.key_of(old))])
    pending = Spill(codec.sha256(body), len(body), 0, 1)
    table.store.put_if_absent(keys.frame_key(pending.sha256), body)
    swept = Sweep(head.meta.fence, head.meta.horizon, head.version, pending)
    commit(table, Swept(swept))
    found = fsck(Table(table.store)).findings
    assert any("the last vacuum's record" in finding.message for finding in found)
    for full in (False, True):
        vacuum(table, dry_run=False, full=full, **NOW)
        assert scan(table, version=1).to_table().num_rows == 1
    assert fsck(Table(table.store), checksums=True).findings == ()


def test_a_record_of_what_was_restored_and_dropped_again_is_right():
    table = pinned_and_vacuumed()
    table.restore(1)
    again = table.pin("again")
    shown = scan(table, version=again).to_table().num_rows
    overwrite(table, events(1, first=5), **DAY)
    table.unpin("keep")
    table.clock.advance(10**9)
    vacuum(table, dry_run=False, **NOW)
    assert scan(table, version=again).to_table().num_rows == shown
    assert fsck(Table(table.store), checksums=True).findings == ()
