"""Objects of deletion vectors: what keeps, copies, checks, restores and deletes them."""

import base64
import itertools
import json
import re
from dataclasses import replace as replaced
from datetime import timedelta

import msgspec
import pytest
from click.testing import CliRunner
from pyroaring import BitMap64
from support import deleting
from support.builders import (
    check_sound,
    create,
    events,
    live,
    reopen,
    replace_object,
    sorted_names,
)
from support.deleting import delete_rows, staged_deletes
from support.forked_histories import copied
from support.replacements import replace

from eventlog import Table, errors
from eventlog.cli.program import build
from eventlog.compaction import vacuum
from eventlog.format import codec, keys
from eventlog.format.deletion_vectors import encode_bitmap, vector_hash
from eventlog.fsck.check import fsck
from eventlog.merging.segment_copies import SegmentCopies
from eventlog.model.actions import Fence, Restore, Swept, Update
from eventlog.model.entries import Spill, Vector
from eventlog.model.records import App
from eventlog.readers import changes, count, scan
from eventlog.recovery import garbage
from eventlog.replication import backfill, break_replica, follow, merge
from eventlog.state.delta import add_of, drop_of
from eventlog.store.branching.roots import is_own
from eventlog.store.memory import MemoryStore
from eventlog.table.stage_again import commit_staged
from eventlog.writers import append
from eventlog.writers.batch import stage

PROGRAM = build()
HOUR_MS = 3_600_000
NOW = {"retention": timedelta(0), "staging": timedelta(0), "dry_run": False}


@pytest.fixture(params=[False, True], ids=["stored", "in the log"])
def both_ways(request, monkeypatch):
    monkeypatch.setattr(deleting, "IN_LOG", request.param)


def vectors(store):
    """The keys of all objects of vectors, oldest first."""
    return [row.key for row in store.list(keys.SEGMENTS_PREFIX) if row.key.endswith(".roaring")]


def needed(table, version=None):
    """The keys of the objects of vectors that a version needs."""
    segments = live(table.refresh() if version is None else table.snapshot(version))
    return {key for segment in segments for key in keys.keys_of(segment)[1:]}


def two_segments(store=None, **options):
    """A table with rows 0 to 5 in one segment (`six`), and 10 to 13 in another (`four`)."""
    table = create(store, **options)
    append(table, events(6))
    append(table, events(4, first=10))
    by_rows = {segment.rows: segment.id for segment in live(table.refresh())}
    return table, by_rows[6], by_rows[4]


def dropped(table, segment_id):
    table.drop_segments([s for s in live(table.refresh()) if s.id == segment_id], reason="test")


def swept(table, **options):
    """Vacuum a day later, with all that is older than that."""
    table.clock.advance(24 * HOUR_MS)
    return vacuum(table, **{**NOW, **options})


def row_numbers(table, version=None):
    return sorted(int(name.split()[1]) for name in sorted_names(table, version))


def problems(table, **options):
    report = fsck(table, **{"checksums": True, **options})
    return [(finding.severity, finding.message) for finding in report.findings]


class TestVacuum:
    def test_a_replaced_vector_goes_once_no_kept_version_names_it(self):
        table, six, _ = two_segments()
        delete_rows(table, {six: [0]})
        delete_rows(table, {six: [1]})
        _, second = vectors(table.store)
        first_report = swept(table)  # without a record of what was dropped before
        assert vectors(table.store) == [second] == [*needed(table)]
        assert first_report.gone["unnamed"].objects == 1
        delete_rows(table, {six: [3]})
        dry = swept(table, dry_run=True)
        report = swept(table)
        assert vectors(table.store) == [*needed(table)] != [second]
        assert report.gone["dropped"].objects == dry.gone["dropped"].objects == 1
        assert 0 < report.gone["dropped"].bytes < 100
        assert row_numbers(table) == [2, 4, 5, 10, 11, 12, 13]

    def test_an_object_stays_while_another_segment_needs_it(self):
        table, six, four = two_segments()
        delete_rows(table, {six: [0], four: [0]})
        [both] = vectors(table.store)
        delete_rows(table, {six: [1]})
        dropped(table, six)
        swept(table)
        assert vectors(table.store) == [both]
        assert row_numbers(table) == [11, 12, 13]
        delete_rows(table, {four: [1]})
        swept(table)
        assert set(vectors(table.store)) == needed(table) != {both}

    def test_versions_within_the_retention_keep_their_vectors(self):
        table, six, _ = two_segments()
        delete_rows(table, {six: [0]})
        between = table.session.head().version
        table.clock.advance(30 * HOUR_MS)
        delete_rows(table, {six: [1]})
        report = vacuum(table, retention=timedelta(hours=24), staging=timedelta(0), dry_run=False)
        assert len(vectors(table.store)) == 2
        assert report.kept["retention"].objects == 1
        assert 0 not in row_numbers(table, between)
        assert 1 in row_numbers(table, between)
        assert not problems(table)
        swept(table)
        assert set(vectors(table.store)) == needed(table)

    @pytest.mark.parametrize("recorded", [False, True])
    def test_a_pin_keeps_the_vectors_of_its_version(self, recorded):
        table, six, _ = two_segments()
        delete_rows(table, {six: [0]})
        pinned = table.session.head().version
        table.pin("audit", pinned, owner="me")
        delete_rows(table, {six: [1]})
        for _ in range(1 + recorded):
            swept(table)
        assert len(vectors(table.store)) == 2
        assert row_numbers(table, pinned) == [1, 2, 3, 4, 5, 10, 11, 12, 13]
        assert not problems(table)
        table.unpin("audit", owner="me")
        swept(table)
        assert set(vectors(table.store)) == needed(table)

    def test_a_record_that_lacks_a_held_vector_is_reported_and_not_believed(self):
        table, six, _ = two_segments()
        delete_rows(table, {six: [0]})
        pinned = table.session.head().version
        table.pin("audit", pinned, owner="me")
        delete_rows(table, {six: [1]})
        swept(table)
        record = table.refresh().meta.swept
        forged = msgspec.structs.replace(record, version=table.session.head().version, pending=None)
        table.commit(table.transaction("vacuum", [Swept(forged)]))
        assert any("lacks this object of deletion vectors" in m for _, m in problems(table))
        swept(table, full=True)
        assert row_numbers(table, pinned) == [1, 2, 3, 4, 5, 10, 11, 12, 13]
        assert not problems(table)

    def test_a_record_with_the_first_of_several_drops_is_not_believed(self):
        table, six, four = two_segments()
        delete_rows(table, {six: [0], four: [0]})
        [both] = vectors(table.store)
        pinned = delete_rows(table, {six: [1]})  # the other segment needs the object
        table.pin("audit", pinned, owner="me")
        last = delete_rows(table, {four: [1]})
        swept(table)
        record = table.refresh().meta.swept
        rows = garbage.from_object(
            table.session.log.spill_bytes(record.pending), record.pending.drops, record.version
        )
        assert rows[both].version == last
        body = garbage.to_object([replaced(row, version=pinned) for row in rows.values()])
        pending = Spill(codec.sha256(body), len(body), 0, len(rows))
        table.store.put_if_absent(keys.frame_key(pending.sha256), body)
        forged = msgspec.structs.replace(
            record, version=table.session.head().version, pending=pending
        )
        table.commit(table.transaction("vacuum", [Swept(forged)]))
        assert any(f"but it was dropped in version {last}" in m for _, m in problems(table))
        swept(table)
        assert both in vectors(table.store)
        assert row_numbers(table, pinned) == [2, 3, 4, 5, 11, 12, 13]

    def test_abandoned_vectors_go_once_they_are_fenced_and_live_ones_stay(self):
        table, six, _ = two_segments()
        table.refresh()
        staged_deletes(table, {six: [3]})  # never committed
        delete_rows(table, {six: [0]})
        young = vacuum(table, retention=timedelta(0), staging=timedelta(hours=9), dry_run=False)
        assert young.kept["staging"].objects == 1
        assert len(vectors(table.store)) == 2
        append(table, events(1, first=20))
        report = swept(table, full=True)
        assert report.gone["unnamed"].objects == 1
        assert set(vectors(table.store)) == needed(table)
        assert not problems(table)

    def test_what_lies_beside_the_vectors_is_left_alone(self):
        table, six, _ = two_segments()
        delete_rows(table, {six: [0]})
        foreign = [
            "data/000000000000/vectors/notes.txt",
            f"data/000000000000/vectors/{'ab' * 16}.parquet",
            f"data/000000000000/1970-01-01/{'ab' * 16}.roaring",
        ]
        for key in foreign:
            table.store.put_if_absent(key, b"x")
        append(table, events(1, first=20))
        swept(table, full=True)
        there = {row.key for row in table.store.list("data/")}
        assert there.issuperset(foreign)


class TestBranches:
    def test_a_branch_finds_its_parents_vectors_and_writes_its_own(self):
        table, six, four = two_segments()
        delete_rows(table, {six: [0]})
        branch = table.branch("audit")
        delete_rows(branch, {six: [1], four: [0]})
        assert row_numbers(branch) == [2, 3, 4, 5, 11, 12, 13]
        assert row_numbers(table) == [1, 2, 3, 4, 5, 10, 11, 12, 13]
        assert [is_own(branch.store, key) for key in vectors(branch.store)] == [False, True]
        delete_rows(table, {six: [5]})
        swept(table)
        swept(branch)
        assert row_numbers(branch) == [2, 3, 4, 5, 11, 12, 13]
        assert row_numbers(branch, branch.store.forks[0].version)[0] == 1
        assert not problems(branch)
        assert not problems(table)

    def test_a_branch_that_no_pin_holds_keeps_its_vectors(self):
        table, six, _ = two_segments()
        delete_rows(table, {six: [0]})
        branch = table.branch("audit")
        copy = MemoryStore()
        follow(table, Table(copy), name="us")
        taken_over = reopen(copy)
        break_replica(taken_over, "us")
        taken_over.break_pin("branch:audit")
        delete_rows(taken_over, {six: [1]})
        append(taken_over, events(1, first=20))
        swept(taken_over)
        follow(taken_over, Table(table.store), name="eu")
        table = reopen(table.store)
        break_replica(table, "eu")
        append(table, events(1, first=21))
        for full in (False, True, False):
            swept(table, full=full)
            assert len(vectors(table.store)) == 2
            assert row_numbers(reopen(branch.store))[:2] == [1, 2]

    @pytest.mark.usefixtures("both_ways")
    def test_publishing_a_branch_takes_its_deletes(self):
        table, six, four = two_segments()
        branch = table.branch("fix")
        delete_rows(branch, {six: [0, 1]})
        delete_rows(branch, {six: [2], four: [3]})
        append(table, events(1, first=20))
        before = {segment.id: segment.epoch for segment in live(table.refresh())}
        table.merge("fix")
        assert row_numbers(table) == [3, 4, 5, 10, 11, 12, 20]
        after = {segment.id: segment.epoch for segment in live(table.refresh())}
        assert after == before  # no segment was copied
        table.delete_branch("fix")
        swept(table, full=True)
        assert row_numbers(table) == [3, 4, 5, 10, 11, 12, 20]
        assert not problems(check_sound(table.store))


class TestCopies:
    @pytest.mark.parametrize("start", ["oldest", "keyframe"])
    def test_a_follower_copies_vectors_before_the_commits_that_name_them(self, start):
        table, six, four = two_segments()
        delete_rows(table, {six: [0]})
        copy = MemoryStore()
        follow(table, Table(copy), start=start)
        delete_rows(table, {six: [1], four: [1]})
        table.restore(3)
        follow(table, Table(copy))
        for version in range(2, table.session.head().version + 1):
            assert row_numbers(reopen(copy), version) == row_numbers(table, version)
        assert vectors(copy) == vectors(table.store)
        assert not problems(reopen(copy))

    def test_a_copy_that_starts_late_is_filled_with_older_vectors(self):
        table, six, four = two_segments()
        for number in range(3):
            delete_rows(table, {six: [number]})
        table.restore(2)
        delete_rows(table, {four: [0]})
        table.session.log.snapshot(table.session.head().version)
        copy = MemoryStore()
        fsck(table, repair=True)
        follow(table, Table(copy), start="keyframe")
        assert row_numbers(reopen(copy)) == row_numbers(table)
        backfill(table, Table(copy))
        assert vectors(copy) == vectors(table.store)
        for version in range(2, table.session.head().version + 1):
            assert row_numbers(reopen(copy), version) == row_numbers(table, version)

    @pytest.mark.parametrize("at", [0, 10, -1])
    def test_damaged_vectors_are_not_copied(self, at):
        table, six, _ = two_segments()
        delete_rows(table, {six: [0]})
        [key] = vectors(table.store)
        body = bytearray(table.store.get(key))
        body[at] ^= 1
        replace_object(table.store, key, bytes(body))
        copy = MemoryStore()
        with pytest.raises(errors.DataLoss, match="fsck") as caught:
            follow(table, Table(copy))
        assert caught.value.key == key
        assert reopen(copy).session.head().version == 2

    def test_other_bytes_at_the_copy_are_not_taken_for_the_vectors(self):
        table, six, _ = two_segments()
        copy = MemoryStore()
        follow(table, Table(copy))
        delete_rows(table, {six: [0]})
        [key] = vectors(table.store)
        copy.put_if_absent(key, b"x" * len(table.store.get(key)))
        with pytest.raises(errors.CommitConflict, match="delete this object at the target"):
            follow(table, Table(copy))

    def test_a_void_delete_names_no_vectors_to_copy(self):
        table, six, _ = two_segments()
        table.refresh()
        lost = staged_deletes(table, {six: [3]})
        table.store.delete([keys.vectors_key(lost[0].vector.stored)])
        append(table, events(1, first=20))
        dropped(table, six)
        with pytest.raises(errors.CommitConflict):
            table.commit(table.transaction("delete", lost))
        copy = MemoryStore()
        follow(table, Table(copy))
        assert row_numbers(reopen(copy)) == row_numbers(table)


class TestVectorsInTheLog:
    def test_copies_and_vacuums_have_nothing_to_do_with_them(self):
        table, six, four = two_segments()
        delete_rows(table, {six: [0]}, in_log=True)
        table.pin("audit", table.session.head().version, owner="me")
        delete_rows(table, {six: [1], four: [2]}, in_log=True)
        branch = table.branch("try")
        delete_rows(branch, {six: [2]}, in_log=True)
        swept(table)
        copy = MemoryStore()
        follow(table, Table(copy), start="keyframe")
        assert vectors(table.store) == vectors(copy) == []
        assert row_numbers(reopen(copy)) == row_numbers(table) == [2, 3, 4, 5, 10, 11, 13]
        assert row_numbers(table, 3) == [1, 2, 3, 4, 5, 10, 11, 12, 13]
        assert row_numbers(branch) == [3, 4, 5, 10, 11, 13]
        for one in (table, branch, reopen(copy)):
            assert not problems(one)

    def test_a_fence_is_none_of_theirs(self):
        table, six, _ = two_segments()
        table.refresh()
        transaction = table.transaction("delete", staged_deletes(table, {six: [0]}, in_log=True))
        append(table, events(1, first=20))
        swept(table, full=True)
        table.commit(transaction)
        assert row_numbers(table) == [1, 2, 3, 4, 5, 10, 11, 12, 13, 20]

    def test_one_that_stands_in_the_log_follows_one_that_is_stored(self):
        table, six, _ = two_segments()
        for number, in_log in enumerate([False, True, False]):
            delete_rows(table, {six: [number]}, in_log=in_log)
        assert len(vectors(table.store)) == 2
        swept(table)
        assert set(vectors(table.store)) == needed(table)
        assert row_numbers(table) == [3, 4, 5, 10, 11, 12, 13]

    def test_the_same_rows_deleted_in_both_ways_are_the_same_form(self):
        table, six, _ = two_segments()
        other = reopen(copied(table.store), seed=5000)
        delete_rows(other, {six: [0]}, in_log=True)
        delete_rows(table, {six: [0]}, in_log=False)
        merge(other, table)
        merge(table, other)
        assert row_numbers(table) == row_numbers(other) == [1, 2, 3, 4, 5, 10, 11, 12, 13]

    def test_a_merge_copies_no_more_than_the_segments(self):
        table, six, _ = two_segments()
        other = reopen(copied(table.store), seed=5000)
        append(other, events(3, first=20))
        new = next(s.id for s in live(other.refresh()) if s.rows == 3)
        delete_rows(other, {six: [0], new: [1]}, in_log=True)
        append(table, events(1, first=30))
        merge(other, table)
        assert vectors(table.store) == []
        assert row_numbers(table) == [1, 2, 3, 4, 5, 10, 11, 12, 13, 20, 22, 30]
        assert not problems(check_sound(table.store))


class TestRestore:
    @pytest.mark.usefixtures("both_ways")
    def test_a_restore_brings_deleted_rows_back_and_deletes_what_was_deleted(self):
        table, six, four = two_segments()
        delete_rows(table, {six: [0]})
        delete_rows(table, {six: [1], four: [0]})
        table.restore(3)
        assert row_numbers(table) == [1, 2, 3, 4, 5, 10, 11, 12, 13]
        table.restore(2)
        assert row_numbers(table) == row_numbers(table, 2)
        assert "deleted" not in msgspec.json.decode(msgspec.json.encode(table.refresh().totals))
        table.restore(4)
        assert row_numbers(table) == row_numbers(table, 4)
        assert table.restore(4) == table.session.head().version  # nothing to do
        assert not problems(check_sound(table.store))

    def test_rows_come_back_also_where_a_column_with_statistics_was_dropped(self):
        table, six, four = two_segments()
        delete_rows(table, {six: [0]})
        dropped(table, four)
        table.drop_columns(["value"])
        table.restore(2)
        assert row_numbers(table) == row_numbers(table, 2)
        assert not problems(check_sound(table.store))

    def test_the_vectors_of_a_restored_version_outlive_the_vacuum(self):
        table, six, _ = two_segments()
        delete_rows(table, {six: [0]})
        delete_rows(table, {six: [1]})
        table.restore(3)
        swept(table)
        assert set(vectors(table.store)) == needed(table)
        assert row_numbers(table) == [1, 2, 3, 4, 5, 10, 11, 12, 13]

    def test_nothing_is_restored_without_its_vectors(self):
        table, six, _ = two_segments()
        delete_rows(table, {six: [0]})
        [key] = vectors(table.store)
        dropped(table, six)
        table.store.delete([key])
        with pytest.raises(errors.DataLoss):
            table.restore(3)

    @pytest.mark.usefixtures("both_ways")
    def test_only_a_restore_or_a_merge_may_exchange_a_vector(self):
        table, six, _ = two_segments()
        delete_rows(table, {six: [0]})
        [segment] = [s for s in live(table.refresh()) if s.id == six]
        back = msgspec.structs.replace(add_of(segment), vector=msgspec.UNSET)
        with pytest.raises(errors.CommitConflict, match="already live"):
            table.commit(table.transaction("back", [drop_of(segment), back]))

    def test_nothing_but_the_vector_of_a_live_segment_is_exchanged(self):
        table, six, _four = two_segments()
        before = table.session.head()
        delete_rows(table, {six: [0]})
        [segment] = [s for s in live(table.refresh()) if s.id == six]
        same = add_of(segment)
        others = [
            same,
            msgspec.structs.replace(same, vector=msgspec.UNSET, rows=5),
            msgspec.structs.replace(same, vector=msgspec.UNSET, epoch=1),
        ]
        for other in others:
            actions = [Restore(before.version), drop_of(segment), other]
            with pytest.raises(errors.CommitConflict, match="only its vector can be exchanged"):
                table.commit(table.transaction("restore", actions))
        back = msgspec.structs.replace(same, vector=msgspec.UNSET)
        table.commit(table.transaction("restore", [Restore(2), drop_of(segment), back]))
        assert row_numbers(table) == row_numbers(table, 2)

    @pytest.mark.usefixtures("both_ways")
    def test_a_fenced_delete_is_staged_again(self):
        table, six, four = two_segments()
        table.refresh()
        actions = staged_deletes(table, {six: [0], four: [1]})
        transaction = table.transaction("delete", actions)
        append(table, events(1, first=20))
        append(table, events(1, first=21))
        vacuum(table, retention=timedelta(hours=1), staging=timedelta(0), dry_run=True)
        table.commit(table.transaction("vacuum", [Fence(table.refresh().version)]))
        commit_staged(table.session, transaction)
        assert row_numbers(table) == [1, 2, 3, 4, 5, 10, 12, 13, 20, 21]
        swept(table, full=True)
        assert row_numbers(table) == [1, 2, 3, 4, 5, 10, 12, 13, 20, 21]
        assert not problems(table)

    def test_a_fenced_delete_whose_vectors_are_gone_is_a_conflict(self):
        table, six, _ = two_segments()
        table.refresh()
        actions = staged_deletes(table, {six: [0]})
        transaction = table.transaction("delete", actions)
        append(table, events(1, first=20))
        swept(table, full=True)
        assert vectors(table.store) == []
        with pytest.raises(errors.CommitConflict, match="took so long"):
            commit_staged(table.session, transaction)


class TestFsck:
    def lost(self, damage):
        table, six, _ = two_segments()
        delete_rows(table, {six: [0]})
        [key] = vectors(table.store)
        damage(table.store, key)
        return problems(reopen(table.store))

    def test_missing_vectors_are_a_loss_of_their_segments(self):
        found = self.lost(lambda store, key: store.delete([key]))
        assert [m for s, m in found if s == "error" and "deletion vector is missing" in m]

    def test_vectors_that_are_cut_off_are_a_loss(self):
        found = self.lost(lambda store, key: replace_object(store, key, store.get(key)[:20]))
        assert [m for s, m in found if s == "error" and "is cut off" in m]

    def test_vectors_with_other_bytes_are_a_loss(self):
        def damage(store, key):
            body = bytearray(store.get(key))
            body[14] ^= 1
            replace_object(store, key, bytes(body))

        found = self.lost(damage)
        assert [m for s, m in found if s == "error" and "deletion vector is lost" in m]

    def test_a_bitmap_in_the_log_that_is_none_is_a_loss(self):
        """No release commits one: the fold decodes no bitmaps."""
        table, six, _ = two_segments()
        table.refresh()
        [action] = staged_deletes(table, {six: [0]}, in_log=True)
        for bitmap in (b"?", action.vector.bitmap + b"?", encode_bitmap(BitMap64([7]))):
            broken = msgspec.structs.replace(action, vector=Vector(1, bitmap))
            copy = reopen(copied(table.store))
            copy.commit(copy.transaction("delete", [broken]))
            [(severity, message)] = problems(copy, checksums=False)
            assert severity == "error"
            assert "the deletion vector" in message
            with pytest.raises(errors.DataLoss, match="deletion vector"):
                scan(copy).to_table()
            with pytest.raises(errors.DataLoss):
                scan(copy, fallback=True).to_table()

    def test_held_vectors_are_looked_at(self):
        table, six, _ = two_segments()
        delete_rows(table, {six: [0]})
        table.pin("audit", table.session.head().version, owner="me")
        delete_rows(table, {six: [1]})
        first, _ = vectors(table.store)
        body = table.store.get(first)
        replace_object(table.store, first, body[:14] + b"?" + body[15:])
        assert [m for _, m in problems(table) if "which pin 'audit' protects" in m]
        table.store.delete([first])
        assert [m for _, m in problems(table, checksums=False) if "has lost its deletion" in m]

    def test_vectors_that_are_live_and_held_are_reported_once(self):
        table, six, _ = two_segments()
        delete_rows(table, {six: [0]})
        table.pin("audit", table.session.head().version, owner="me")
        body = table.store.get(*needed(table))
        replace_object(table.store, *needed(table), body[:14] + b"?" + body[15:])
        assert len(problems(table)) == 1
        table.store.delete([*needed(table)])
        assert len(problems(table)) == 1

    def test_leftovers_name_the_vectors(self):
        table, six, _ = two_segments()
        table.refresh()
        staged_deletes(table, {six: [3]})
        delete_rows(table, {six: [0]})
        delete_rows(table, {six: [1]})
        report = fsck(table)
        found = {(x.kind, x.objects) for x in report.leftovers if x.place == "data/"}
        assert found == {("staged", 1), ("dropped", 1)}


class TestFallback:
    def compacted(self):
        table, six, _four = two_segments()
        delete_rows(table, {six: [0]})
        replace(table, live(table.refresh()), parts=2)
        return table, live(table.refresh())

    def rows(self, table):
        return sorted(
            int(n.split()[1])
            for n in scan(table, fallback=True).to_table().column("name").to_pylist()
        )

    @pytest.mark.usefixtures("both_ways")
    def test_stand_ins_leave_out_what_was_deleted_before_the_compaction(self):
        table, outputs = self.compacted()
        table.store.delete([keys.key_of(outputs[0])])
        assert self.rows(table) == [1, 2, 3, 4, 5, 10, 11, 12, 13]

    def test_stand_ins_need_their_vectors(self):
        table, outputs = self.compacted()
        table.store.delete([keys.key_of(outputs[0]), *vectors(table.store)])
        with pytest.raises(errors.DataLoss):
            self.rows(table)

    @pytest.mark.usefixtures("both_ways")
    @pytest.mark.parametrize("deleted", [0, 1])
    def test_no_stand_in_brings_rows_back_that_were_deleted_since(self, deleted):
        table, outputs = self.compacted()
        delete_rows(table, {outputs[deleted].id: [0]})
        table.store.delete([keys.key_of(outputs[0])])
        with pytest.raises(errors.DataLoss):
            self.rows(table)
        assert any("missing" in m and "inputs" not in m for _, m in problems(table))

    def test_a_lost_vector_is_a_loss_of_its_segment(self):
        table, outputs = self.compacted()
        delete_rows(table, {outputs[0].id: [0]})
        table.store.delete([*needed(table)])
        for fallback in (False, True):
            with pytest.raises(errors.DataLoss, match=r"vector|segment"):
                scan(table, fallback=fallback).to_table()

    @pytest.mark.usefixtures("both_ways")
    def test_a_chain_of_compactions_with_deletes_between_is_exact_or_refused(self):
        table, _six, _four = two_segments()
        replace(table, live(table.refresh()), parts=2)
        first = live(table.refresh())
        delete_rows(table, {first[0].id: [1]})
        replace(table, live(table.refresh()), parts=2)
        want = row_numbers(table)
        for lost in live(table.refresh()):
            table.store.delete([keys.key_of(lost)])
        assert self.rows(table) == want
        table.store.delete([keys.key_of(first[1])])  # the only stand-in would be below the delete
        with pytest.raises(errors.DataLoss):
            self.rows(table)


class TestMerges:
    def parted(self):
        table, six, four = two_segments()
        return table, reopen(copied(table.store), seed=5000), six, four

    @pytest.mark.usefixtures("both_ways")
    def test_deletes_of_one_log_are_merged_with_appends_of_the_other(self):
        table, other, six, four = self.parted()
        delete_rows(other, {six: [0], four: [0]})
        append(other, events(1, first=20))
        append(table, events(1, first=30))
        merge(other, table)
        merge(table, other)
        assert row_numbers(table) == row_numbers(other)
        assert row_numbers(table) == [1, 2, 3, 4, 5, 11, 12, 13, 20, 30]
        for store in (table.store, other.store):
            assert not problems(check_sound(store))

    @pytest.mark.usefixtures("both_ways")
    def test_deletes_of_other_segments_are_merged(self):
        table, other, six, four = self.parted()
        delete_rows(other, {six: [0]})
        delete_rows(table, {four: [0]})
        merge(other, table)
        merge(table, other)
        assert row_numbers(table) == row_numbers(other) == [1, 2, 3, 4, 5, 11, 12, 13]

    @pytest.mark.usefixtures("both_ways")
    def test_the_same_rows_deleted_by_both_are_no_conflict(self):
        table, other, six, _ = self.parted()
        delete_rows(other, {six: [0]})
        delete_rows(table, {six: [0]})
        merge(other, table)
        assert row_numbers(table) == [1, 2, 3, 4, 5, 10, 11, 12, 13]

    def settled(self, table, other):
        """Merge until nothing is left, which the second round shows; return the rows of both."""
        merge(other, table)
        merge(table, other)
        assert not merge(other, table).commits
        assert not merge(table, other).commits
        assert row_numbers(table) == row_numbers(other)
        for one in (table, other):
            assert not problems(one)
        return row_numbers(table)

    def test_deletes_of_one_segment_by_both_are_united(self):
        table, other, six, four = self.parted()
        delete_rows(other, {six: [1, 4]})
        delete_rows(other, {four: [0], six: [5]})
        delete_rows(table, {six: [0, 4]})
        forms = {one: live(one.refresh()) for one in (table, other)}
        assert self.settled(table, other) == [2, 3, 11, 12, 13]
        vectors_now = [
            {s.id: vector_hash(s.vector) for s in live(t.session.head())} for t in (table, other)
        ]
        assert vectors_now[0] == vectors_now[1]
        assert {s.id for s in live(table.session.head())} == {s.id for s in forms[table]}

    def test_all_rows_of_a_segment_deleted_by_both_together_drop_it(self):
        table, other, _six, four = self.parted()
        delete_rows(other, {four: [0, 1]})
        delete_rows(table, {four: [2, 3]})
        assert self.settled(table, other) == [0, 1, 2, 3, 4, 5]
        assert len(live(table.session.head())) == len(live(other.session.head())) == 1

    def test_a_segment_that_one_dropped_is_gone_whatever_the_other_deleted_from_it(self):
        table, other, six, _four = self.parted()
        delete_rows(other, {six: [1]})
        dropped(table, six)
        assert self.settled(table, other) == [10, 11, 12, 13]

    def updated(self, table, positions, first):
        """Update rows of segments: others come in their place, from this number on."""
        table.refresh()
        count_ = sum(map(len, positions.values()))
        staged = stage(table, table.session.head(), events(count_, first=first), 2**29)
        actions = [*staged_deletes(table, positions), Update(count_, paired=False), *staged]
        return table.commit(table.transaction("update", actions))

    def test_updates_of_other_rows_of_one_segment_are_united(self):
        table, other, six, _four = self.parted()
        self.updated(other, {six: [0]}, 30)
        self.updated(table, {six: [1]}, 40)
        delete_rows(table, {six: [2]})
        assert self.settled(table, other) == [3, 4, 5, 10, 11, 12, 13, 30, 40]

    @pytest.mark.parametrize("second", ["update", "delete"])
    @pytest.mark.parametrize(("take", "row"), [("source", 30), ("target", 40)])
    def test_an_update_and_another_change_of_one_row_are_a_conflict(self, second, take, row):
        table, other, six, _four = self.parted()
        self.updated(other, {six: [0, 1]}, 30)
        if second == "update":
            self.updated(table, {six: [1, 2]}, 40)
        else:
            delete_rows(table, {six: [1, 2]})
        for one, two in ((other, table), (table, other)):
            with pytest.raises(errors.CommitConflict, match="--take source"):
                merge(one, two)
        merge(other, table, take=take)
        assert (row in row_numbers(table)) == (take == "source" or second == "update")
        merge(table, other)
        assert row_numbers(other) == row_numbers(table)

    def test_deletes_of_three_copies_are_united_by_whatever_way(self):
        table, other, six, _four = self.parted()
        third = reopen(copied(table.store), seed=9000)
        for n, one in enumerate((table, other, third)):
            delete_rows(one, {six: [n, 5]})
        for one, two in ((table, other), (other, third), (third, table), (table, other)):
            merge(one, two)
        for one, two in itertools.permutations((table, other, third), 2):
            assert not merge(one, two).commits
        assert row_numbers(table) == row_numbers(other) == row_numbers(third)
        assert row_numbers(table) == [3, 4, 10, 11, 12, 13]

    def test_two_branches_that_delete_from_one_segment_are_published(self):
        table, six, four = two_segments()
        one, two = table.branch("one"), table.branch("two")
        delete_rows(one, {six: [0], four: [0]})
        delete_rows(one, {six: [1]})
        delete_rows(two, {six: [2], four: [1]})
        delete_rows(table, {six: [3]})
        merge(two, one)
        table.merge("one")
        table.merge("two")
        assert row_numbers(table) == [4, 5, 12, 13]
        assert not table.merge("two").commits
        assert not problems(table)

    def published(self, late):
        """A table and a branch that has a part of what another branch has published.

        That one appended rows 20 to 22, which both got, and then deleted 20.

        Args:
            late: what the first branch does after it has these rows.
        """
        table, six, _four = two_segments()
        one, two = table.branch("one"), table.branch("two")
        append(one, events(3, first=20))
        merge(one, two)
        new = next(s.id for s in live(two.refresh()) if s.rows == 3)
        one.refresh()
        delete_rows(one, {new: [0]})
        late(two, new)
        delete_rows(two, {six: [0]})
        table.merge("one")
        delete_rows(table, {six: [1]})
        return table, two

    def test_rows_that_were_deleted_as_they_came_are_deleted(self):
        table, two = self.published(lambda two, new: delete_rows(two, {new: [2]}))
        assert self.settled(two, table) == [2, 3, 4, 5, 10, 11, 12, 13, 21]

    def test_two_forms_of_a_segment_that_cannot_be_united_lead_to_a_choice(self):
        def late(two, new):
            delete_rows(two, {new: [1]})
            [first] = needed(two)
            delete_rows(two, {new: [2]})
            two.store.delete([first])

        table, two = self.published(late)
        with pytest.raises(errors.CommitConflict, match="--take source"):
            merge(table, two)
        merge(table, two, take="source")
        assert self.settled(two, table) == row_numbers(table)

    def test_older_vectors_that_are_gone_are_not_needed_where_both_have_the_deletes(self):
        table, other, six, _four = self.parted()
        delete_rows(other, {six: [0]})
        merge(other, table)
        delete_rows(table, {six: [1]})
        merge(table, other)
        swept(table, full=True)
        swept(other, full=True)
        delete_rows(other, {six: [2]})
        delete_rows(table, {six: [3]})
        assert self.settled(table, other) == [4, 5, 10, 11, 12, 13]

    def test_a_vector_that_is_gone_and_that_the_other_lacks_leads_to_a_choice(self):
        table, other, six, _four = self.parted()
        delete_rows(other, {six: [0]})
        delete_rows(other, {six: [1]})
        swept(other, full=True)
        delete_rows(table, {six: [2]})
        with pytest.raises(errors.CommitConflict, match="--take source"):
            merge(other, table)
        merge(other, table, take="source")
        assert row_numbers(table) == [2, 3, 4, 5, 10, 11, 12, 13]

    def test_a_drop_of_a_segment_whose_vector_is_gone_leads_to_a_choice(self):
        table, other, six, _four = self.parted()
        delete_rows(other, {six: [0]})
        delete_rows(other, {six: [1]})
        swept(other, full=True)
        dropped(table, six)
        with pytest.raises(errors.CommitConflict, match="--take source"):
            merge(table, other)
        merge(table, other, take="source")
        assert row_numbers(other) == [10, 11, 12, 13]

    def test_readers_of_changes_get_what_a_united_merge_removed(self):
        table, other, six, _four = self.parted()
        delete_rows(other, {six: [1, 2]})
        before = delete_rows(table, {six: [0, 2]})
        merge(other, table)
        found = changes(table, before).to_table().to_pylist()
        assert [(row["_change"], row["name"]) for row in found] == [("delete", "row 1")]

    def test_a_copy_of_a_united_log_has_its_vectors(self):
        table, other, six, _four = self.parted()
        delete_rows(other, {six: [1]})
        delete_rows(table, {six: [0]})
        merge(other, table)
        copy = MemoryStore()
        follow(table, Table(copy))
        swept(table, full=True)
        assert row_numbers(reopen(copy)) == [2, 3, 4, 5, 10, 11, 12, 13]
        assert not problems(reopen(copy))
        assert set(vectors(table.store)) == needed(table)

    @pytest.mark.usefixtures("both_ways")
    @pytest.mark.parametrize("first", ["delete", "compaction"])
    def test_a_compaction_here_and_a_delete_there_are_both_kept(self, first):
        table, other, six, _ = self.parted()
        replace(table, live(table.refresh()))
        delete_rows(other, {six: [0]})
        one, two = (other, table) if first == "delete" else (table, other)
        merge(one, two)
        merge(two, one)
        assert row_numbers(table) == row_numbers(other) == [1, 2, 3, 4, 5, 10, 11, 12, 13]

    def test_rows_that_a_unit_of_both_deleted_in_one_of_them_are_deleted(self):
        table, other, six, _four = self.parted()
        append(other, events(3, first=20))
        new = next(s.id for s in live(other.refresh()) if s.rows == 3)
        for one, deleted in ((table, {six: [0]}), (other, {six: [1], new: [0]})):
            one.refresh()
            one.commit(one.transaction("delete", staged_deletes(one, deleted), app=App("job", 1)))
        assert self.settled(table, other) == [2, 3, 4, 5, 10, 11, 12, 13, 21, 22]

    def test_a_vector_that_is_gone_is_not_needed_where_a_later_one_is_there(self):
        table, other, six, _ = self.parted()
        delete_rows(other, {six: [0]})
        delete_rows(other, {six: [1]})
        swept(other)
        append(table, events(1, first=30))
        merge(other, table)
        assert row_numbers(table) == [2, 3, 4, 5, 10, 11, 12, 13, 30]

    @pytest.mark.parametrize("whole", [False, True])
    def test_a_unit_that_updated_other_rows_in_each_leads_to_a_choice(self, whole):
        """One log had rows that the other one did not know then: nothing has their new forms."""
        table, other, six, _four = self.parted()
        append(other, events(2, first=20))
        new = next(s for s in live(other.refresh()) if s.rows == 2)
        for one, deleted in ((table, {six: [0]}), (other, {six: [0], new.id: [0]})):
            one.refresh()
            drops = [drop_of(new)] if whole and one is other else []
            some = {six: [0]} if whole else deleted
            updated = sum(map(len, some.values())) + 2 * len(drops)
            staged = stage(one, one.session.head(), events(updated, first=90), 2**29)
            actions = [Update(updated, paired=False), *drops]
            actions += [*staged_deletes(one, some), *staged]
            one.commit(one.transaction("update", actions, app=App("job", 1)))
        with pytest.raises(errors.CommitConflict, match="--take"):
            merge(other, table)
        merge(other, table, take="source")
        assert row_numbers(table) == row_numbers(other)

    def test_a_unit_that_both_did_and_whose_vector_is_gone_leads_to_a_choice(self):
        table, other, six, _four = self.parted()
        for one, before, deleted in ((table, 2, 0), (other, 3, 1)):
            delete_rows(one, {six: [before]})
            one.refresh()
            actions = staged_deletes(one, {six: [deleted]})
            one.commit(one.transaction("delete", actions, app=App("job", 1)))
        swept(other, full=True)
        with pytest.raises(errors.CommitConflict, match="--take"):
            merge(other, table)
        merge(other, table, take="source")
        assert row_numbers(table) == [0, 2, 4, 5, 10, 11, 12, 13]

    def test_a_restore_beside_a_delete_of_the_other_leads_to_a_choice(self):
        table, other, six, _four = self.parted()
        before = other.refresh().version
        delete_rows(other, {six: [0, 1]})
        other.restore(before)
        delete_rows(table, {six: [1]})
        with pytest.raises(errors.CommitConflict, match="--take"):
            merge(other, table)
        merge(other, table, take="target")
        merge(table, other)
        assert row_numbers(table) == row_numbers(other) == [0, 2, 3, 4, 5, 10, 11, 12, 13]

    def overtaken(self, monkeypatch, by):
        """A merge of a delete, before whose first commit somebody does something to the target."""
        table, other, six, _four = self.parted()
        delete_rows(other, {six: [0]})
        append(table, events(1, first=30))
        copy, done = SegmentCopies.copy, []

        def copied_late(copies, carried):
            found = copy(copies, carried)
            if not done:
                done.append(True)
                by(reopen(table.store, seed=7000), six)
                table.refresh()
            return found

        monkeypatch.setattr(SegmentCopies, "copy", copied_late)
        return table, other, six

    @pytest.mark.usefixtures("both_ways")
    def test_a_merge_overtaken_by_a_delete_plans_again(self, monkeypatch):
        table, other, _ = self.overtaken(monkeypatch, lambda t, i: delete_rows(t, {i: [1]}))
        merge(other, table)
        assert row_numbers(table) == [2, 3, 4, 5, 10, 11, 12, 13, 30]

    @pytest.mark.usefixtures("both_ways")
    def test_a_merge_overtaken_by_a_drop_plans_again(self, monkeypatch):
        table, other, _ = self.overtaken(monkeypatch, dropped)
        merge(other, table)
        assert row_numbers(table) == [10, 11, 12, 13, 30]

    def test_damaged_vectors_are_not_merged(self):
        table, other, six, _ = self.parted()
        delete_rows(other, {six: [0]})
        append(table, events(1, first=30))
        [key] = vectors(other.store)
        body = other.store.get(key)
        replace_object(other.store, key, body[:14] + b"?" + body[15:])
        with pytest.raises(errors.DataLoss):
            merge(other, table)
        assert count(table) == 11


class TestProgram:
    def run(self, table, *words):
        result = CliRunner().invoke(PROGRAM, [words[0], table.uri, *words[1:]])
        assert result.exit_code == 0, result.output
        return result.stdout

    def documents(self, table, *words):
        return json.loads(self.run(table, *words, "--json"))

    def test_segments_are_listed_with_the_rows_that_are_there(self):
        table, six, _ = two_segments()
        delete_rows(table, {six: [0, 1]})
        segments = {one["id"]: one for one in self.documents(table, "ls")}
        assert segments[six]["rows"] == 4
        assert segments[six]["vector"]["stored"]["key"] in needed(table)
        assert "vector" not in next(s for i, s in segments.items() if i != six)
        assert re.search(r"\b4 +2 +", self.run(table, "ls"))
        [chunk] = self.documents(table, "ls", "--chunks")
        assert chunk["rows"] == 8

    def test_a_vector_in_the_log_is_shown_as_it_stands_there(self):
        table, six, _ = two_segments()
        delete_rows(table, {six: [0, 1]}, in_log=True)
        [vector] = [one["vector"] for one in self.documents(table, "ls") if "vector" in one]
        assert vector["rows"] == 2
        assert [*BitMap64.deserialize(base64.b64decode(vector["bitmap"]))] == [0, 1]

    def test_histories_count_deletes(self):
        table, six, four = two_segments()
        delete_rows(table, {six: [0, 1], four: [0]})
        newest = self.documents(table, "log")[0]
        assert (newest["deletes"], newest["rows"], newest["drops"]) == (2, -3, 0)
        shown = self.run(table, "show")
        assert "rows of 2 deleted" in shown
        assert "7 rows without 3 deleted ones" in shown
        [change] = [json.loads(self.run(table, "diff", "2", "3", "--json"))]
        assert {s["id"] for s in change["added"]} == {s["id"] for s in change["dropped"]}

    def test_a_segment_without_its_vector_is_shown_as_lost(self):
        table, six, four = two_segments()
        delete_rows(table, {six: [0, 1]})
        table.store.delete([*needed(table)])
        document = json.loads(self.run(table, "drop", six, four, "--json"))
        shown = {one["id"]: (one["rows"], one["intact"]) for one in document["dropped"]}
        assert shown == {six: (4, False), four: (4, True)}
        dropped(table, six)
        assert row_numbers(table) == [10, 11, 12, 13]

    def test_a_restore_says_whose_deleted_rows_it_exchanges(self):
        table, six, _ = two_segments()
        delete_rows(table, {six: [0, 1]})
        told = self.run(table, "restore", "2", "--dry-run")
        assert "drops 0 segments" in told
        assert "exchanges the deleted rows of 1 segment" in told
        done = json.loads(self.run(table, "restore", "2", "--json"))
        assert (done["adds"], done["drops"], done["vectors"], done["rows"]) == (0, 0, 1, 2)
