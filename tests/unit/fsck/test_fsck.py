"""fsck: a healthy table passes, and every planted fault is found where it was planted."""

import msgspec
import pyarrow as pa
import pytest
from support import builders
from support.builders import commit
from support.damage import Damaged, rows

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.errors import CommitConflict, Corrupt, TableNotFound
from eventlog.format import codec, keys
from eventlog.fsck.check import fsck
from eventlog.log import spills
from eventlog.model.actions import Attach, Break, SetPin
from eventlog.model.records import Commit, Transaction
from eventlog.state import fold
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite


@pytest.fixture
def damaged():
    return Damaged()


def test_healthy_table_passes(damaged):
    day = "1970-01-03"
    overwrite(damaged.table, rows(2, 5), start=day, end="1970-01-04")
    damaged.table.set_properties({"user.note": "hello"})
    report = damaged.fsck(checksums=True)
    assert report.ok
    assert report.findings == ()
    assert report.head == damaged.table.refresh().version == 12
    assert report.versions == report.transactions == 13
    assert report.keyframes == len(damaged.keyframes()) >= 2
    assert report.bad_keyframes == 0
    assert report.segments == 10
    assert report.checksummed == damaged.table.session.head().totals.bytes


def test_leaves_and_spills_are_followed():
    many = Damaged(commits=2, every=2)
    append(many.table, pa.concat_tables([rows(day, 1) for day in range(300)]))
    append(many.table, rows(5))
    assert many.table.session.head().base is not None
    report = many.fsck()
    assert report.ok, report.findings
    assert report.leaves >= 1
    assert report.segments == 303


@pytest.mark.parametrize("gone", [False, True])
def test_a_damaged_spill_is_named(monkeypatch, gone):
    """Its commit is sound, and so is the key frame of that version."""
    monkeypatch.setattr(spills, "SPILL_BYTES", 1000)
    many = Damaged(commits=1, every=1)
    append(many.table, pa.concat_tables([rows(day, 1) for day in range(30)]))
    commit, _ = many.table.session.log.read(2)
    key = keys.frame_key(commit.transactions[0].spill.sha256)
    if gone:
        many.store.delete([key])
    else:
        many.replace(key, many.store.get(key)[:-1])
    assert keys.commit_key(2) not in [found.key for found in many.errors()]
    assert (key, 2) in [(found.key, found.version) for found in many.errors()]


def test_progress_reaches_the_total(damaged):
    told = []
    damaged.fsck(checksums=True, progress=lambda *step: told.append(step))
    assert ("commits", 11, 11) in told
    assert ("segments", 10, 10) in told
    total = damaged.table.session.head().totals.bytes
    assert ("bytes", total, total) in told


def test_no_table_is_not_found():
    with pytest.raises(TableNotFound):
        fsck(Table(MemoryStore("memory://nothing")))


def test_void_transactions_are_reported_with_their_reason(damaged):
    """A void transaction in the log is no fault."""
    head = damaged.table.refresh()
    first = _stored_transaction(damaged, 1)
    again = msgspec.structs.replace(first, id="a" * 32, app=None)
    _put_commit(damaged, head, [again])
    report = damaged.fsck()
    (void,) = report.void
    assert (void.version, void.transaction) == (11, "a" * 32)
    assert void.reason


@pytest.mark.parametrize("kind", ["pin", "replica"])
def test_a_break_that_names_a_renewal_of_what_is_never_renewed_is_void(damaged, kind):
    table = damaged.table
    hold = SetPin("keep", 3, "w") if kind == "pin" else Attach("keep", 3, "w")
    token = commit(table, hold)
    with pytest.raises(CommitConflict, match="renewed"):
        commit(table, Break(kind, "keep", token, 7))
    forged = table.transaction("break", [Break(kind, "keep", token, 7)])
    _put_commit(damaged, table.refresh(), [forged])
    report = damaged.fsck()
    assert report.ok
    assert [(void.version, void.transaction) for void in report.void] == [(token + 1, forged.id)]
    assert Table(damaged.store).find_transaction(forged.id) is None
    commit(table, Break(kind, "keep", token))
    assert not table.refresh().meta.pins
    assert not table.session.head().meta.replicas


def test_changed_byte_in_any_commit_is_found(damaged):
    for version in range(11):
        planted = Damaged()
        key = keys.commit_key(version)
        body = bytearray(planted.store.get(key))
        body[len(body) // 2] ^= 1
        planted.replace(key, bytes(body))
        found = planted.errors()
        assert found, version
        assert found[0].key in (key, keys.commit_key(version + 1))


def test_changed_text_that_still_decodes_breaks_the_chain(damaged):
    writer = _stored_transaction(damaged, 5).writer
    body = damaged.store.get(keys.commit_key(5))
    at = body.rindex(writer.encode())  # in the transaction, not in the header
    changed = builders.resealed(body[:at] + b"X" + body[at + 1 :])
    damaged.replace(keys.commit_key(5), changed)
    found = damaged.errors()
    assert any("chain" in f.message or "changes" in f.message for f in found)


def test_missing_commit_is_a_gap(damaged):
    damaged.store.delete([keys.commit_key(6)])
    report = damaged.fsck()
    assert not report.ok
    (gap,) = [f for f in report.findings if "gap" in f.message]
    assert (gap.version, gap.key) == (6, keys.commit_key(6))
    # The versions behind the gap are audited all the same.
    assert report.versions == 6 + 3


@pytest.mark.parametrize("version", [5_000, keys.MAX_VERSION])
def test_a_stray_commit_far_above_the_others_is_all_that_is_named(damaged, version):
    key = keys.commit_key(version)
    assert damaged.store.put_if_absent(key, b"")
    with pytest.raises(Corrupt, match="eventlog fsck") as refused:
        Table(damaged.store).refresh()
    assert refused.value.key == key
    report = damaged.fsck()
    assert {f.key for f in report.findings if f.severity == "error"} == {key}
    damaged.store.delete([key])
    assert damaged.fsck().ok


@pytest.mark.parametrize(
    "forge",
    [
        lambda root: msgspec.structs.replace(root, time=root.time + 1),
        lambda root: msgspec.structs.replace(root, commit="0" * 64),
        lambda root: msgspec.structs.replace(root, table="0" * 32),
    ],
    ids=["time", "commit", "table"],
)
def test_wrong_keyframe_is_found(damaged, forge):
    version = damaged.keyframes()[0]
    key = keys.keyframe_key(version)
    root = codec.decode_keyframe(damaged.store.get(key), version)
    damaged.replace(key, codec.encode_keyframe(forge(root)))
    (found,) = damaged.errors()
    assert (found.key, found.version) == (key, version)
    assert damaged.fsck().bad_keyframes == 1


def test_keyframe_of_another_state_that_adds_up_is_found(damaged):
    first, second = damaged.keyframes()[:2]
    root = codec.decode_keyframe(damaged.store.get(keys.keyframe_key(second)), second)
    forged = codec.encode_keyframe(msgspec.structs.replace(root, version=first))
    damaged.replace(keys.keyframe_key(first), forged)
    assert any(f.key == keys.keyframe_key(first) for f in damaged.errors())


def test_truncated_keyframe_is_found(damaged):
    key = keys.keyframe_key(damaged.keyframes()[-1])
    damaged.replace(key, damaged.store.get(key)[:-40])
    (found,) = damaged.errors()
    assert found.key == key


def test_keyframe_beyond_the_head_is_found(damaged):
    assert damaged.store.put_if_absent(keys.keyframe_key(99), b"{}")
    (found,) = damaged.errors()
    assert found.version == 99


@pytest.mark.parametrize("fault", ["missing", "changed"])
def test_bad_leaf_is_found(fault):
    many = Damaged(commits=1, every=1)
    append(many.table, pa.concat_tables([rows(day, 1) for day in range(300)]))
    leaf = many.table.session.head().base.leaves[0]
    key = keys.frame_key(leaf.sha256)
    body = many.store.get(key)
    many.store.delete([key])
    if fault == "changed":
        assert many.store.put_if_absent(key, body[:100] + b"!" + body[101:])
    found = many.errors()
    assert key in [f.key for f in found]
    assert many.fsck().bad_keyframes >= 1


def test_delta_that_leads_elsewhere_is_found(damaged):
    head = damaged.table.refresh()
    commit, _ = damaged.table.session.log.read(10)
    assert len(commit.delta.adds) > 1
    shorter = msgspec.structs.replace(commit.delta, adds=commit.delta.adds[:-1])
    forged = msgspec.structs.replace(commit, delta=shorter)
    damaged.replace(keys.commit_key(10), codec.encode_commit(forged))
    assert head.version == 10
    assert any("delta" in f.message for f in damaged.errors())


def test_state_that_leads_elsewhere_is_found(damaged):
    commit, _ = damaged.table.session.log.read(10)
    forged = msgspec.structs.replace(commit, state={**commit.state, "fence": 3})
    damaged.replace(keys.commit_key(10), codec.encode_commit(forged))
    assert any("state" in f.message for f in damaged.errors())


def test_missing_segment_is_found(damaged):
    segment = damaged.table.snapshot().segments()[3]
    damaged.store.delete([keys.key_of(segment)])
    assert damaged.fsck(objects=False).ok
    (found,) = damaged.errors()
    assert (found.key, found.version) == (keys.key_of(segment), segment.version)
    assert len(damaged.errors(checksums=True)) == 1


def test_segment_of_another_size_is_found(damaged):
    key = keys.key_of(damaged.table.snapshot().segments()[0])
    damaged.replace(key, damaged.store.get(key) + b"!")
    (found,) = damaged.errors()
    assert found.key == key


def test_wrong_checksum_is_found_only_by_reading(damaged):
    key = keys.key_of(damaged.table.snapshot().segments()[0])
    body = bytearray(damaged.store.get(key))
    body[50] ^= 1
    damaged.replace(key, bytes(body))
    assert not damaged.errors()
    (found,) = damaged.errors(checksums=True)
    assert (found.key, "sha256" in found.message) == (key, True)


def test_foreign_keys_are_warnings(damaged):
    for key in ("_log/notes.txt", "_log/000000000001.json.bak", "_log/backup/0.json"):
        assert damaged.store.put_if_absent(key, b"?")
    report = damaged.fsck()
    assert report.ok
    assert {f.severity for f in report.findings} == {"warning"}
    assert len(report.findings) == 3


def test_commits_far_from_their_keyframe_are_checked_too():
    """Writers step back to an old key frame when newer ones are damaged."""
    planted = Damaged(commits=6, every=2)
    newer = [keys.keyframe_key(version) for version in planted.keyframes()[1:]]
    planted.store.delete(newer)
    stepped_back = Table(planted.store, ManualClock(1_800_000_000_000, seed=1))
    append(stepped_back, rows(20))
    version = stepped_back.refresh().version
    commit, _ = stepped_back.session.log.read(version)
    assert commit.header.keyframe == planted.keyframes()[0]
    assert planted.fsck().ok

    forged = msgspec.structs.replace(
        commit, delta=msgspec.structs.replace(commit.delta, adds=commit.delta.adds[1:])
    )
    planted.replace(keys.commit_key(version), codec.encode_commit(forged))
    assert any("delta" in f.message for f in planted.errors())


def _stored_transaction(damaged, version) -> Transaction:
    commit, _ = damaged.table.session.log.read(version)
    return commit.transactions[0]


def _put_commit(damaged, head, transactions):
    """Store a hand-made commit after `head`, whose transactions have no effect."""
    head, view = damaged.table.session.log.load_view(head, transactions)
    effect = fold.judge(transactions, view, head.header.time + 1)
    assert not effect.accepted
    header = msgspec.structs.replace(
        head.header,
        version=head.version + 1,
        prev=head.commit_hash,
        time=head.header.time + 1,
        keyframe=head.base.version if head.base else None,
        changes=fold.summarize_changes(transactions, effect),
    )
    state = codec.meta_diff(head.base.state, head.meta)
    commit = Commit(header, state, tuple(transactions), head.delta.record())
    key = keys.commit_key(header.version)
    assert damaged.store.put_if_absent(key, codec.encode_commit(commit))


@pytest.mark.parametrize("change", [{"min_reader": 2}, {"features": ("shelves",)}], ids=str)
@pytest.mark.parametrize("newest", [False, True])
def test_a_key_frame_of_a_newer_format_is_stepped_over(damaged, change, newest):
    """Readers and fsck alike: what it is derived from they can read."""
    while newest and damaged.keyframes()[-1] != damaged.table.session.head().version:
        append(damaged.table, rows(30))
    rows_before = damaged.table.refresh().totals.rows
    version = damaged.keyframes()[-1 if newest else 0]
    damaged.forge_root(version, lambda root: msgspec.structs.replace(root, **change))
    report = damaged.fsck(repair=True)
    assert report.ok
    (found,) = report.findings
    assert (found.severity, found.key) == ("warning", keys.keyframe_key(version))
    assert "upgrade" in found.message
    assert not any(r.key == found.key for r in report.repairs)
    assert Table.open("", store=damaged.store).session.head().totals.rows == rows_before
    for past in range(damaged.table.session.head().version + 1):
        Table(damaged.store).snapshot(past)
