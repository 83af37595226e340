"""fsck: where it starts, what it holds, which objects it looks for, what it counts as left over."""

import tracemalloc

import msgspec
import pyarrow as pa
import pytest
from support import builders
from support.damage import Damaged, rows

from eventlog import Table
from eventlog.errors import InvalidInput, VersionNotFound, VersionVacuumed
from eventlog.format import codec, keys
from eventlog.fsck import findings
from eventlog.fsck.check import fsck
from eventlog.model.actions import Attach, Fence, Horizon, Restore, Swept
from eventlog.model.entries import Spill, Sweep
from eventlog.recovery.garbage import to_object
from eventlog.state.delta import add_of
from eventlog.store.parallel import WINDOW
from eventlog.writers import append, overwrite


@pytest.fixture
def damaged():
    return Damaged()


# ------------------------------------------------------------------------------ what it starts from


def test_fold_starts_from_a_trusted_keyframe(damaged):
    damaged.store.delete([keys.commit_key(1)])
    start = damaged.keyframes()[0]
    assert start > 1
    report = damaged.fsck(start=start)
    assert (report.ok, report.start, report.findings) == (True, start, ())
    assert report.versions == 10 - start
    assert report.segments == 10
    assert not damaged.fsck().ok


def test_fault_behind_the_trusted_keyframe_is_found(damaged):
    commit, _ = damaged.table.session.log.read(10)
    forged = msgspec.structs.replace(commit, state={**commit.state, "fence": 3})
    damaged.replace(keys.commit_key(10), codec.encode_commit(forged))
    assert any("state" in f.message for f in damaged.errors(start=damaged.keyframes()[0]))


def test_start_must_be_a_keyframe(damaged):
    with pytest.raises(InvalidInput, match="no key frame"):
        damaged.fsck(start=damaged.keyframes()[0] + 1)
    with pytest.raises(InvalidInput, match="before version"):
        damaged.fsck(start=damaged.keyframes()[1], version=1)


def test_only_a_window_of_commits_is_held(damaged):
    """However long the history, no more commits are read than are folded soon."""
    folded, most = [0], [0]

    class Watched(builders.Spy):
        def get(self, key, **bounds):
            if key.endswith(".json") and "keyframe" not in key:
                reads.append(key)
                most[0] = max(most[0], len(set(reads)) - folded[0])
            return super().get(key, **bounds)

    reads = []
    progress = lambda what, done, total: folded.__setitem__(0, done)
    for day in range(20, 60):
        append(damaged.table, rows(day, 1))
    report = fsck(Table(Watched(damaged.store)), progress=progress, objects=False)
    assert report.versions == len(set(reads)) == 51
    assert 2 <= most[0] <= WINDOW + 1 < 51 // 2


def test_report_is_bounded_and_counts_all(damaged, monkeypatch):
    monkeypatch.setattr(findings, "MAX_LISTED", 2)
    damaged.store.delete(damaged.keys("data/"))
    report = damaged.fsck()
    assert (len(report.findings), report.errors, report.ok) == (2, 10, False)


def test_commit_that_comes_while_the_log_is_listed_is_no_fault(damaged):
    while damaged.table.session.head().version not in damaged.keyframes():
        append(damaged.table, rows(50))
    head = damaged.table.session.head().version

    class Early(builders.Spy):
        def list(self, prefix, **bounds):
            late = keys.commit_key(head)
            return (row for row in super().list(prefix, **bounds) if row.key != late)

    report = fsck(Table(Early(damaged.store)))
    assert (report.head, report.findings) == (head - 1, ())


# ------------------------------------------------------------------------------ objects


def test_segments_of_an_older_version(damaged):
    overwrite(damaged.table, rows(2, 5), start="1970-01-03", end="1970-01-04")
    (gone,) = damaged.table.diff(10, 11).dropped
    damaged.store.delete([keys.key_of(gone)])
    assert damaged.fsck().ok
    report = damaged.fsck(version=10)
    assert (report.segments_version, report.segments) == (10, 10)
    (found,) = [f for f in report.findings if f.severity == "error"]
    assert found.key == keys.key_of(gone)


def test_segments_below_the_horizon_are_not_looked_for(damaged):
    builders.commit(damaged.table, Horizon(8), operation="vacuum")
    with pytest.raises(VersionVacuumed, match="8"):
        damaged.fsck(version=7)
    assert damaged.fsck(version=8).ok
    with pytest.raises(VersionNotFound):
        damaged.fsck(version=99)


def test_vacuum_meanwhile_is_no_loss(damaged):
    """What goes while fsck looks is no loss where the horizon went past it."""
    overwrite(damaged.table, rows(2, 5), start="1970-01-03", end="1970-01-04")
    (gone,) = damaged.table.diff(10, 11).dropped

    def vacuum(what, done, total):
        if (what, done) == ("commits", total) and keys.key_of(gone) in damaged.keys("data/"):
            builders.commit(damaged.table, Horizon(11), operation="vacuum")
            damaged.store.delete([keys.key_of(gone)])

    report = damaged.fsck(version=10, progress=vacuum)
    assert report.ok
    assert [f.severity for f in report.findings] == ["warning"]


# ------------------------------------------------------------------------------ leftovers


def leftovers(report):
    return {(x.place, x.kind): (x.objects, x.bytes) for x in report.leftovers}


def test_leftovers_are_told_apart():
    many = Damaged(commits=1, every=2)
    append(many.table, pa.concat_tables([rows(day, 1) for day in range(300)]))
    overwrite(many.table, rows(2, 5), start="1970-01-03", end="1970-01-04")
    head = many.table.session.head()
    drops = [builders.drop_of(s) for s in head.segments()[:3]]
    builders.commit(many.table, *drops, Fence(2))
    builders.commit(many.table, Fence(3))
    fresh = "f" * 32
    for key, size in {
        keys.segment_key(2, "1970-01-01", "a" * 32): 10,  # below the fence
        keys.segment_key(3, "1970-01-01", "b" * 32): 20,
        keys.segment_key(5, "1970-01-01", "c" * 32): 30,
        "data/notes.txt": 1,
        keys.frame_key("0" * 64): 40,
        "_frames/readme": 2,
        keys.intent_key(99, fresh): 50,
        keys.intent_key(2, fresh): 60,
    }.items():
        assert many.store.put_if_absent(key, b"?" * size)
    found = many.fsck()
    assert found.ok
    assert found.findings == ()
    counted = leftovers(found)
    assert counted.pop(("_probe/", "probe"))[0] == 1
    # The overwrite dropped one, three more were dropped by hand.
    assert counted.pop(("data/", "dropped"))[0] == 4
    assert counted == {
        ("data/", "abandoned"): (1, 10),
        ("data/", "staged"): (2, 50),
        ("data/", "foreign"): (1, 1),
        ("_frames/", "unnamed"): (1, 40),
        ("_frames/", "foreign"): (1, 2),
        ("_intents/", "open"): (1, 50),
        ("_intents/", "ended"): (1, 60),
    }
    assert found.leaves >= 1


def test_leftovers_of_before_the_start_are_not_told_apart(damaged):
    assert damaged.store.put_if_absent(keys.segment_key(0, "1970-01-01", "a" * 32), b"?")
    start = damaged.keyframes()[-1]
    assert ("data/", "earlier") in leftovers(damaged.fsck(start=start))
    assert ("data/", "staged") in leftovers(damaged.fsck())


def test_spills_are_named(tmp_path):
    many = Damaged(commits=0, every=50)
    builders.commit(many.table, *(builders.add(many.table, rows=n) for n in range(1500)))
    assert many.keys("_frames/")
    report = many.fsck(objects=True)
    assert ("_frames/", "unnamed") not in leftovers(report)


def test_record_of_the_last_vacuum_is_named(damaged):
    body, older = to_object([]), b"pending of an earlier one"
    for version, text in ((3, older), (5, body)):
        spill = Spill(codec.sha256(text), len(text), 0, 0)
        assert damaged.store.put_if_absent(keys.frame_key(spill.sha256), text)
        builders.commit(damaged.table, Swept(Sweep(0, 0, version, spill)), operation="vacuum")
    report = damaged.fsck()
    assert {k: v for k, v in leftovers(report).items() if k[0] == "_frames/"} == {
        ("_frames/", "swept"): (1, len(older))
    }
    assert report.findings == ()
    damaged.store.delete([keys.frame_key(codec.sha256(body))])
    (found,) = damaged.fsck().findings
    assert (found.severity, found.key) == ("warning", keys.frame_key(codec.sha256(body)))


# ------------------------------------------------------------------------------ what is held


@pytest.mark.sample(3)
@pytest.mark.parametrize("holder", ["pin", "replica", "branch"])
@pytest.mark.parametrize("change", ["byte", "size", "missing"])
def test_segments_that_are_only_held_are_checked(damaged, holder, change):
    """Version 10 has a segment that the newest version does not have."""
    table = damaged.table
    if holder == "pin":
        table.pin("keep", 10)
    elif holder == "replica":
        builders.commit(table, Attach("copy", 10, "elsewhere"))
    else:
        table.branch("audit", at=10)
    overwrite(table, rows(2, 5), start="1970-01-03", end="1970-01-04")
    (gone,) = table.diff(10, table.refresh().version).dropped
    report = damaged.fsck(checksums=True)
    assert report.findings == ()
    assert report.checksummed == table.session.head().totals.bytes + gone.bytes
    key = keys.key_of(gone)
    body = damaged.store.get(key)
    changed = {"byte": bytes([body[0] ^ 1]) + body[1:], "size": body + b"x"}
    damaged.store.delete([key])
    if change in changed:
        damaged.store.put_if_absent(key, changed[change])
    (found,) = damaged.fsck(checksums=True).findings
    assert (found.severity, found.key, found.version) == ("error", key, 10)
    assert {"pin": "pin 'keep'", "replica": "replica 'copy'", "branch": "audit'"}[
        holder
    ] in found.message
    assert damaged.fsck().ok == (change == "byte")


# ------------------------------------------------------------------------------ restore


def test_restore_of_what_was_live_is_sound(damaged):
    overwrite(damaged.table, rows(2, 5), start="1970-01-03", end="1970-01-04")
    builders.commit(damaged.table, Fence(11))
    damaged.table.restore(10)
    assert damaged.fsck(checksums=True).findings == ()


@pytest.mark.parametrize(
    "change",
    [{"rows": 4}, {"epoch": 9}, {"checksum": "0" * 64}, {"stats": ()}, {"id": "e" * 32}],
    ids=lambda change: next(iter(change)),
)
def test_restore_of_what_was_not_live_is_found(damaged, change):
    overwrite(damaged.table, rows(2, 5), start="1970-01-03", end="1970-01-04")
    (gone,) = damaged.table.diff(10, 11).dropped
    honest = add_of(gone)
    forged = msgspec.structs.replace(honest, **change)
    version = builders.commit(damaged.table, Restore(10), forged, operation="restore")
    found = [f for f in damaged.errors(objects=False) if f.version == version]
    assert [f.key for f in found] == [keys.commit_key(version)]
    assert forged.id in found[0].message


@pytest.mark.long
def test_memory_does_not_follow_the_length_of_the_log():
    table = builders.create()
    builders.commit(table, *(builders.add(table) for _ in range(10)))

    def peak_after(commits):
        for _ in range(commits):
            first = builders.live(table.session.head())[0]
            builders.commit(table, builders.drop_of(first), builders.add(table))
        tracemalloc.start()
        try:
            assert fsck(Table(table.store), objects=False).findings == ()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    short = peak_after(150)
    assert peak_after(850) < 1.5 * short  # a log six times as long
