"""fsck --repair: key frames that are missing come back, and nothing else is ever touched."""

import random
from datetime import date, timedelta

import msgspec
import pyarrow as pa
import pytest
from support import builders, repeatable
from support.damage import Damaged, rows

from eventlog import Table
from eventlog.errors import InvalidInput
from eventlog.format import codec, keys
from eventlog.fsck.check import fsck
from eventlog.state.questions import Entries
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite


def contents(store):
    return {row.key: store.get(row.key) for row in store.list("")}


def repaired(planted):
    """Repair; check that all that happened is new objects of key frames."""
    before = contents(planted.store)
    report = planted.fsck(repair=True)
    after = contents(planted.store)
    assert {key: after.get(key) for key in before} == before
    new = {key for key in after if key not in before}
    assert all(k.endswith(".keyframe.json") or k.startswith("_frames/") for k in new)
    assert {r.key for r in report.repairs if r.done} <= new
    return report, {key: after[key] for key in new}


def opens_on(planted):
    """The key frame from which a fresh handle reads the newest version, leaves included."""
    table = Table.open(planted.store.uri, store=planted.store)
    base = table.session.log.answer(table.session.head().state, Entries())[0].base
    return base.version if base else None


@pytest.fixture
def planted():
    return Damaged()


@pytest.fixture(scope="module")
def whole():
    """A table with leaves: 300 segments, then small commits; a key frame at every second one."""
    found = Damaged(commits=1, every=2)
    append(found.table, pa.concat_tables([rows(day, 1) for day in range(300)]))
    for day in range(6):
        append(found.table, rows(day * 50, 2))
    return found


@pytest.fixture
def many(whole):
    """A copy of that table, to be damaged."""
    return whole.copy()


def test_healthy_table_is_left_alone(planted):
    report, new = repaired(planted)
    assert (report.repairs, new) == ((), {})


def test_missing_keyframes_come_back_byte_for_byte(planted):
    before = contents(planted.store)
    gone = [keys.keyframe_key(version) for version in planted.keyframes()]
    assert len(gone) >= 2
    planted.store.delete(gone)
    report, new = repaired(planted)
    assert report.ok
    assert report.missing_keyframes == len(gone)
    assert new == {key: before[key] for key in gone}
    assert all(f.repaired for f in report.findings)
    assert planted.fsck().findings == ()


def test_missing_keyframe_of_the_head_that_is_due(planted):
    while planted.table.session.head().version not in planted.keyframes():
        append(planted.table, rows(50))
    key = keys.keyframe_key(planted.table.session.head().version)
    body = planted.store.get(key)
    planted.store.delete([key])
    (found,) = planted.fsck().findings
    assert (found.severity, found.key) == ("warning", key)
    assert repaired(planted)[1] == {key: body}


def test_missing_leaf_is_put_again(many):
    before = contents(many.store)
    leaves = many.keys("_frames/")
    for key in leaves[:: 1 if repeatable.EXAMPLES else 4]:
        many.store.delete([key])
        report, new = repaired(many)
        assert new == {key: before[key]}
        assert report.ok
    many.store.delete(leaves)
    report, new = repaired(many)
    assert new == {key: before[key] for key in leaves}
    assert many.fsck().findings == ()


def test_missing_leaves_and_roots_at_once(many):
    before = contents(many.store)
    gone = many.keys("_frames/") + [keys.keyframe_key(version) for version in many.keyframes()]
    many.store.delete(gone)
    report, new = repaired(many)
    assert report.ok
    assert new == {key: before[key] for key in gone}
    assert many.fsck().findings == ()


def test_leaf_of_a_fold_that_started_later_is_put_again(many):
    """A leaf that an older key frame wrote is cut out of the state by its range."""
    start = many.keyframes()[-1]
    root = codec.decode_keyframe(many.store.get(keys.keyframe_key(start)), start)
    for leaf in root.leaves:
        key = keys.frame_key(leaf.sha256)
        body = many.store.get(key)
        many.store.delete([key])
        report = many.fsck(repair=True, start=start)
        assert [r.key for r in report.repairs if r.done] == [key]
        assert many.store.get(key) == body


def test_damaged_root_is_stepped_over_and_the_head_gets_its_own(planted):
    bad = planted.keyframes()[-1]
    head = planted.table.session.head().version
    assert bad < head
    key = keys.keyframe_key(bad)
    body = planted.store.get(key)
    planted.replace(key, body[:-40])
    assert opens_on(planted) < bad
    report, new = repaired(planted)
    assert list(new) == [keys.keyframe_key(head)]
    assert opens_on(planted) == head
    # The damage is still there, and the report says what to do about it.
    assert not report.ok
    (told,) = [r for r in report.repairs if not r.done]
    assert told.key == key
    assert f"Remove the object {key} by hand" in told.message
    planted.store.delete([key])
    assert repaired(planted)[1] == {key: body}
    assert planted.fsck().findings == ()


def test_damaged_root_that_the_head_does_not_use_needs_no_other(planted):
    first, *_, last = planted.keyframes()
    planted.replace(keys.keyframe_key(first), b"{}")
    report, new = repaired(planted)
    assert (report.ok, new) == (False, {})
    assert opens_on(planted) == last


def test_damaged_root_of_the_head_waits_for_a_later_version(planted):
    while planted.table.session.head().version not in planted.keyframes():
        append(planted.table, rows(50))
    key = keys.keyframe_key(planted.table.session.head().version)
    planted.replace(key, b"{}")
    report, new = repaired(planted)
    assert (report.ok, new) == (False, {})
    assert key in [r.key for r in report.repairs]
    fresh = Table.open(planted.store.uri, store=planted.store)
    append(fresh, rows(60))
    assert fresh.session.head().base is not None


def test_damaged_leaf_is_named_and_not_replaced(many):
    root = many.table.session.head().base
    leaf = max(root.leaves, key=lambda leaf: leaf.segments)
    key = keys.frame_key(leaf.sha256)
    body = many.store.get(key)
    many.replace(key, body[:50] + b"!" + body[51:])
    report, _ = repaired(many)
    assert not report.ok
    told = [r for r in report.repairs if r.key == key]
    assert [r.done for r in told] == [False]
    assert f"Remove the object {key} by hand" in told[0].message
    assert len(Table.open(many.store.uri, store=many.store).session.head().segments()) == 307
    many.store.delete([key])
    assert repaired(many)[0].ok
    assert many.store.get(key) == body
    assert many.fsck().findings == ()


@pytest.mark.parametrize("changed", [True, False])
def test_no_new_keyframe_names_a_damaged_leaf(changed):
    """The same entries would get the damaged names again; others need not."""
    many = Damaged(commits=0, every=2)
    append(many.table, pa.concat_tables([rows(day, 1) for day in range(300)]))
    for key in [keys.frame_key(leaf.sha256) for leaf in many.table.session.head().base.leaves]:
        many.replace(key, b"damaged")
    fresh = Table(many.store)
    fresh.set_properties({"keyframe_commits": "9"})
    if changed:
        append(fresh, rows(299))  # moves the cut
    head = fresh.session.head().version
    assert head not in many.keyframes()
    report, new = repaired(many)
    assert not report.ok
    assert [k for k in new if k.startswith("_log/")] == [keys.keyframe_key(head)] * changed
    assert opens_on(many) == (head if changed else None)
    assert len(Table(many.store).snapshot().segments()) == 300 + changed


def test_damaged_commits_forbid_repair(planted):
    planted.store.delete([keys.keyframe_key(planted.keyframes()[-1])])
    planted.store.delete([keys.commit_key(2)])
    report, new = repaired(planted)
    assert new == {}
    assert [r.done for r in report.repairs] == [False]
    assert not report.ok


def test_store_that_refuses_is_reported(planted):
    planted.store.delete([keys.keyframe_key(planted.keyframes()[-1])])

    class ReadOnly(builders.Spy):
        def put_if_absent(self, key, body):
            raise InvalidInput("access denied")

    report = fsck(Table(ReadOnly(planted.store)), repair=True)
    assert report.repairs
    assert all(not told.done and "access denied" in told.message for told in report.repairs)
    assert report.warnings == 1


def test_wrong_root_of_right_form_counts_as_damaged(planted):
    """A root that adds up, and is of another state, is not trusted by the repair either."""
    first, second = planted.keyframes()[:2]
    root = codec.decode_keyframe(planted.store.get(keys.keyframe_key(second)), second)
    forged = codec.encode_keyframe(msgspec.structs.replace(root, version=first))
    planted.replace(keys.keyframe_key(first), forged)
    planted.store.delete([keys.keyframe_key(second)])
    report, new = repaired(planted)
    assert list(new) == [keys.keyframe_key(second)]
    assert [r.key for r in report.repairs if not r.done] == [keys.keyframe_key(first)]


def test_repair_after_overwrites(many):
    """Leaves that were joined, cut and emptied come back too."""
    for day in (0, 120, 299):
        overwrite(many.table, rows(day, 2), start=iso(day), end=iso(day + 1))
    before = contents(many.store)
    gone = many.keys("_frames/") + [keys.keyframe_key(v) for v in many.keyframes()]
    many.store.delete(gone)
    report, new = repaired(many)
    assert report.ok
    assert new == {key: before[key] for key in gone}


@pytest.mark.verify
@pytest.mark.parametrize("seed", range(12 if repeatable.EXAMPLES else 2))
def test_any_damage_is_repaired_once_the_damaged_objects_are_removed(seed):
    """Key frames and leaves at random: gone, cut short, or exchanged for another's bytes."""
    choose = random.Random(seed)
    every = choose.choice(("2", "3", "5"))
    store = MemoryStore(f"memory://repaired-{seed}")
    table = builders.create(store, seed=seed, properties={"keyframe_commits": every})
    for _ in range(20):
        chunks = [f"2013-{choose.randrange(1, 13):02d}-{choose.randrange(1, 28):02d}"] * 3
        adds = [builders.add(table, c) for c in chunks * choose.choice((1, 1, 1, 40))]
        there = table.session.head().segments()
        drops = map(builders.drop_of, choose.sample(there, min(3, len(there))))
        builders.commit(table, *drops, *adds)
    frames = [k for k in contents(store) if k.endswith(".keyframe.json") or k.startswith("_frames")]
    spills = {s.sha256 for v in range(21) for s in spills_of(table, v)}
    frames = [k for k in frames if not any(digest in k for digest in spills)]
    others = [store.get(key) for key in frames]
    for key in choose.sample(frames, len(frames) // 2):
        body = store.get(key)
        bodies = [None, b"", body[: len(body) // 2], choose.choice(others)]
        store.delete([key])
        if (changed := choose.choice(bodies)) is not None:
            assert store.put_if_absent(key, changed)
    planted = Damaged.of(store)
    for _ in range(4):  # a damaged leaf shows when the root that names it is whole again
        stuck = [told for told in repaired(planted)[0].repairs if not told.done]
        by_hand = [told.key for told in stuck if f"Remove the object {told.key}" in told.message]
        assert all(told.key in by_hand or "step back" in told.message for told in stuck)
        store.delete(by_hand)
        if not stuck:
            break
    assert planted.fsck(objects=False).findings == ()
    builders.check_sound(store)


def spills_of(table, version):
    commit, _ = table.session.log.read(version)
    found = [t.spill for t in commit.transactions] + [commit.delta.spill]
    return [spill for spill in found if spill is not None]


def iso(day):
    return (date(1970, 1, 1) + timedelta(days=day)).isoformat()
