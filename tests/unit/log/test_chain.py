"""The chain: what a handle that knows a version asks of the later ones it adopts (R6.2)."""

import pytest
from support.builders import create, replaced
from support.damage import Damaged, rows
from support.parted_logs import aged_by_another_log

from eventlog import Table, errors, readers
from eventlog.format import keys
from eventlog.log.log import Log
from eventlog.state import keyframe
from eventlog.writers import append


def forged(version, **changes):
    """A table whose newest commit has another header, and a handle that knows version 5."""
    damaged = Damaged(commits=5, every=1000)
    handle = Table.open("", store=damaged.store)
    handle.refresh()
    for day in range(5, version):
        append(damaged.table, rows(day))
    damaged.forge_commit(
        version, lambda commit: replaced(commit, header=replaced(commit.header, **changes))
    )
    return damaged, handle


@pytest.mark.hazard("W9")
@pytest.mark.parametrize("version", [6, 7])
@pytest.mark.parametrize("changes", [{"prev": "ab" * 32}, {"table": "cd" * 16}], ids=["prev", "id"])
@pytest.mark.parametrize("adopt", [Table.refresh, Table.snapshot, Table.history])
def test_a_handle_adopts_no_commit_that_does_not_follow(version, changes, adopt):
    damaged, handle = forged(version, **changes)
    with pytest.raises(errors.Corrupt, match=r"does not follow|another table"):
        adopt(handle)
    with pytest.raises(errors.Corrupt, match=r"does not follow|another table"):
        append(handle, rows(9))
    assert any("follow" in found.message for found in damaged.errors())


def test_over_a_long_way_the_chain_is_fsck_s():
    """Only the next and the newest commit are read: the request count does not grow."""
    damaged, handle = forged(9, prev="ab" * 32)
    assert handle.refresh().version == 9
    assert any("chain" in found.message for found in damaged.errors())
    damaged, handle = forged(9, table="cd" * 16)
    with pytest.raises(errors.Corrupt, match=r"does not follow|another table"):
        handle.refresh()


def stranger(changes, *, damaged_leaf):
    """A commit of another log over a key frame of leaves that cannot be used, read by a fresh log.

    Its key frame is of the version before it, and says the same table as the commit.
    """
    damaged = Damaged(commits=5, every=1000)
    damaged.table.write_keyframe()
    append(damaged.table, rows(5))
    damaged.forge_commit(
        6, lambda commit: replaced(commit, header=replaced(commit.header, **changes))
    )
    named = {name: value for name, value in changes.items() if name == "table"}
    damaged.forge_root(5, lambda root: replaced(root, **named))
    if damaged_leaf:
        for key in damaged.keys("_frames/"):
            damaged.replace(key, b"damaged")
    else:
        damaged.store.delete([keys.keyframe_key(5)])
    return Log(damaged.store)


def test_what_a_commit_did_is_not_judged_on_another_log():
    damaged, _ = forged(6, prev="ab" * 32)
    log = Log(damaged.store)
    with pytest.raises(errors.Corrupt, match="does not follow"):
        log.effect(log.read(6)[0])


OTHER_LOGS = [{"prev": "ab" * 32}, {"table": "cd" * 16}]


@pytest.mark.hazard("P1")
@pytest.mark.parametrize("changes", OTHER_LOGS, ids=["prev", "id"])
def test_p1_a_reader_does_not_step_back_into_another_log(changes):
    log = stranger(changes, damaged_leaf=False)
    with pytest.raises(errors.Corrupt):
        log.snapshot(6)


@pytest.mark.hazard("P1")
@pytest.mark.parametrize("changes", OTHER_LOGS, ids=["prev", "id"])
def test_p1_a_snapshot_does_not_fall_back_into_another_log(monkeypatch, changes):
    monkeypatch.setattr(keyframe, "INLINE_SEGMENTS", 1)
    snapshot = stranger(changes, damaged_leaf=True).snapshot(6)
    assert snapshot.state.base.leaves
    with pytest.raises(errors.Corrupt, match="another log"):
        snapshot.entries()


AT_A_TIME = {
    "a snapshot": lambda t, at: t.snapshot(timestamp=at),
    "a scan": lambda t, at: readers.scan(t, timestamp=at).to_table(),
    "a count": lambda t, at: readers.count(t, timestamp=at),
}


@pytest.mark.parametrize("ask", AT_A_TIME)
def test_a_commit_of_another_log_is_no_version_of_a_time(ask):
    """It is older than the one whose place it took, so that the version below seems replaced."""
    table = create()
    at = aged_by_another_log(table)
    handle = Table.open("", store=table.store, clock=table.clock)
    with pytest.raises(errors.Corrupt, match=r"version 2 .* version 3 .*run .eventlog fsck"):
        AT_A_TIME[ask](handle, at)
    assert handle.snapshot(timestamp=handle.snapshot(5).timestamp).version == 5
