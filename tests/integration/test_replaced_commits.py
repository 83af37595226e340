"""Commits of a log are those of a copy that parted from it, as after a sync of two roots.

The versions above them are sound, and the next one names another commit. So nothing is built on
them, and what was put right goes on.
"""

import itertools
from contextlib import suppress
from datetime import timedelta

import pytest
from support.builders import START_MS, create, events, reopen, replace_object
from support.crashes import MortalStore
from support.forked_histories import copied
from support.parted_logs import take_over

from eventlog import Table, errors, limits
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.replication import backfill, follow, steps
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite

HOUR_MS = 3_600_000
HEAD = 8
FIRST_DAY = {"start": "1970-01-01", "end": "1970-01-02"}


def row(table, number):
    table.clock.advance(HOUR_MS)
    append(table, events(1, first=number))


def note(table, number):
    table.clock.advance(HOUR_MS)
    table.set_properties({"user.note": str(number)})


def replaced(version, *, common=None, shift_ms=0, write=row, versions=1):
    """A store whose one commit is that of a copy that parted from it, and what puts it right.

    Args:
        version: which one.
        common: the last version that they share; the one before it if None.
        shift_ms: by how much later the copy wrote its own than the table.
        write: what each version does, by its number.
        versions: how many to replace, up to `version`.
    """
    table = create(properties={"keyframe_commits": "5"})
    common = version - versions if common is None else common
    for number in range(1, common + 1):
        write(table, number)
    copy = reopen(copied(table.store))
    copy.clock.advance(table.clock.now_ms() + shift_ms - copy.clock.now_ms())
    for number in range(common + 1, HEAD + 1):
        write(table, number)
    for number in range(common + 1, version + 1):
        write(copy, 1000 + number)
    for listed in copy.store.list("data/"):
        table.store.put_if_absent(listed.key, copy.store.get(listed.key))
    own = take_over(table.store, copy.store, range(version - versions + 1, version + 1))

    def put_right():
        for key, body in own.items():
            replace_object(table.store, key, body)

    return table.store, put_right


def objects(store, upto):
    """The objects that versions up to this one need, and some more."""
    for listed in store.list(""):
        parsed = keys.parse_log_key(listed.key)
        if parsed is None or parsed[0] <= upto:
            yield listed.key, store.get(listed.key)


def names(table, **version):
    return sorted(scan(table, **version).to_table().column("name").to_pylist())


def rows(*numbers):
    return sorted(f"row {number}" for number in numbers)


def asked_by_time(table):
    """What a table answers to the times of its versions, by what is right; None: refused."""
    last, answers = table.session.head().header.time, {}
    for version in range(HEAD, 0, -1):
        # A quarter of an hour after the version.
        time_ms = last - (HEAD - version) * HOUR_MS + HOUR_MS // 4
        answers[version] = None
        with suppress(errors.Corrupt):
            answers[version] = table.snapshot(timestamp=time_ms).version
    return answers


SHIFTS = {"earlier": -HOUR_MS // 2, "a little later": HOUR_MS // 2, "last": 100 * HOUR_MS}


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("version", [1, 3, 5, 6, 7])
def test_a_time_selects_the_right_version_or_none(version, shift):
    store, put_right = replaced(version, shift_ms=SHIFTS[shift], write=note)
    answers = asked_by_time(reopen(store))
    wrong = {v: answer for v, answer in answers.items() if answer not in (v, None)}
    assert not wrong
    assert None in answers.values()
    put_right()
    assert all(v == answer for v, answer in asked_by_time(reopen(store)).items())


def test_neighbours_whose_times_fall_are_no_versions_of_a_time():
    """The lower one seems later than the head, so that the two above what is found fit."""
    store, _ = replaced(4, shift_ms=100 * HOUR_MS, write=note, versions=2)
    answers = asked_by_time(reopen(store))
    time_ms = reopen(store).session.head().header.time - 5 * HOUR_MS
    with pytest.raises(errors.Corrupt, match=r"time of version 3 is after .* `eventlog fsck"):
        reopen(store).snapshot(timestamp=time_ms)
    assert not {v: answer for v, answer in answers.items() if answer not in (v, None)}


def test_neighbours_of_two_logs_have_no_difference():
    store, put_right = replaced(5)
    for versions in ((5, 6), (6, 5)):
        with pytest.raises(errors.Corrupt, match=r"version 5 .* version 6 .* `eventlog fsck"):
            reopen(store).diff(*versions)
    put_right()
    assert [
        len(part) for part in (reopen(store).diff(5, 6).added, reopen(store).diff(6, 5).added)
    ] == [1, 0]


FOREIGN = {"a row": row, "no row": lambda t, n: (row if n < 1000 else note)(t, n)}
BUILT = {
    "a restore": lambda table: table.restore(5),
    "a branch": lambda table: table.branch("audit", at=5),
    "an overwrite": lambda table: overwrite(
        table, events(5, first=500), **FIRST_DAY, read_version=5
    ),
}


@pytest.mark.parametrize(
    ("foreign", "versions"), [("a row", 1), ("no row", 1), ("a row", 2), ("a row", 3)]
)
@pytest.mark.parametrize("build", BUILT)
def test_nothing_is_built_on_a_commit_of_another_log(build, foreign, versions):
    """It may have neighbours, of which one names the other."""
    last = 4 + versions
    store, put_right = replaced(last, write=FOREIGN[foreign], versions=versions)
    before = logged(store)
    wanted = rf"version {last} .* version {last + 1} .* `eventlog fsck"
    with pytest.raises(errors.Corrupt, match=wanted):
        BUILT[build](reopen(store))
    assert logged(store) == before
    put_right()
    made = BUILT[build](reopen(store))
    if build == "an overwrite":  # what came after the version that the rows are made from stays
        assert names(reopen(store)) == rows(*range(500, 505), 6, 7, 8)
        return
    assert names(made if build == "a branch" else reopen(store)) == rows(*range(1, 6))
    if build == "a branch":
        append(made, events(1, first=600))
        reopen(store).merge("audit")
        assert names(reopen(store)) == rows(*range(1, 9), 600)
    assert not fsck(reopen(store)).findings


@pytest.mark.parametrize("build", BUILT)
def test_a_lost_commit_is_named_where_it_would_tell_what_may_be_built_on(build):
    table = reopen(replaced(5)[0])
    table.store.delete([keys.commit_key(6)])
    with pytest.raises(errors.Corrupt, match=r"version 6 is missing.* put it back"):
        BUILT[build](table)
    assert table.refresh().version == HEAD


def logged(store):
    return {row.key: store.get(row.key) for row in store.list("_log/")}


def copy(store, target, *, fills=False):
    clock = ManualClock(START_MS, 7)
    (backfill if fills else follow)(reopen(store), Table(target, clock), clock=clock)


@pytest.mark.sample(4)
@pytest.mark.hazard("G2")
@pytest.mark.parametrize(
    ("version", "versions", "above"),
    [
        *itertools.product([5], [1, 3], ["near", "far", "cut", "gone"]),
        (1, 1, "near"),
        (7, 1, "far"),
        (7, 7, "near"),
        (7, 7, "cut"),
    ],
)
def test_a_copy_gets_no_commit_of_another_log(version, versions, above, monkeypatch):
    store, put_right = replaced(version, versions=versions)
    target, key = MemoryStore(), keys.commit_key(version + 1)
    body, wanted = store.get(key), rf"version {version} .* version {version + 1} "
    if above == "far":  # as if thousands were between
        monkeypatch.setattr(steps, "LINKED", versions)
    if above in ("cut", "gone"):
        wanted = None
        store.delete([key])
    if above == "cut":
        store.put_if_absent(key, body[:-9])
    for _ in range(2):
        with pytest.raises((errors.Corrupt, errors.NotFound), match=wanted):
            copy(store, target)
    taken = logged(target)
    put_right()
    store.delete([key])
    store.put_if_absent(key, body)
    assert taken.items() <= logged(store).items()
    copy(store, target)
    assert logged(target) == logged(store)
    assert names(reopen(target)) == rows(*range(1, 9))


@pytest.mark.hazard("G2")
def test_a_copy_does_not_start_at_a_commit_that_the_next_one_does_not_name():
    store, put_right = replaced(4)
    target, clock = MemoryStore(), ManualClock(START_MS, 7)
    start = lambda: follow(reopen(store), Table(target, clock), start="keyframe", clock=clock)
    with pytest.raises(errors.Corrupt, match=r"version 4 .* version 5 "):
        start()
    assert not logged(target)
    put_right()
    assert start().start == 4
    assert names(reopen(target)) == rows(*range(1, 9))


@pytest.mark.hazard("G2")
def test_a_source_whose_newest_commit_is_replaced_in_the_middle_of_a_pass_is_noticed():
    store, put_right = replaced(HEAD)
    key = keys.commit_key(HEAD)
    false, reads = store.get(key), itertools.count()
    put_right()

    class Reading(MortalStore):
        """Its newest commit is replaced between its being read as the newest one, and copied."""

        def get(self, name, **options):
            if name == key and options.get("length", 0) > limits.HEADER_BYTES and next(reads) == 1:
                replace_object(store, key, false)
            return super().get(name, **options)

    target = MemoryStore()
    with pytest.raises(errors.Corrupt, match=rf"version {HEAD} does not follow"):
        copy(Reading(store), target)
    put_right()
    assert logged(target).items() <= logged(store).items()
    copy(store, target)
    assert logged(target) == logged(store)


@pytest.mark.hazard("G2")
@pytest.mark.parametrize("taken_over", [False, True])
def test_a_commit_that_parted_below_the_copy_is_not_taken_for_writes_of_its_own(taken_over):
    """What it names is not the newest version of the copy, which is that of the table."""
    store, put_right = replaced(5, common=3)
    behind = MemoryStore()
    for key, body in objects(store, upto=4):
        behind.put_if_absent(key, body)
    ends = (behind, store) if taken_over else (store, behind)
    with pytest.raises(errors.Corrupt, match=r"version 4 .* version 5 "):
        copy(*ends)
    put_right()
    if taken_over:
        with pytest.raises(errors.CommitConflict, match="it is ahead of"):
            copy(*ends)
    else:
        copy(*ends)
        assert logged(behind) == logged(store)


@pytest.mark.hazard("G2")
def test_a_version_is_not_filled_in_below_a_commit_that_the_next_one_does_not_name():
    """What the next version dropped must come with it, and its own commit does not tell that."""
    drops = lambda t, n: overwrite(t, events(1, first=n), **FIRST_DAY) if n == 4 else row(t, n)
    store, put_right = replaced(4, write=drops)
    false = store.get(keys.commit_key(4))
    put_right()
    target, clock = MemoryStore(), ManualClock(START_MS, 7)
    follow(reopen(store), Table(target, clock), start="keyframe", clock=clock)
    replace_object(store, keys.commit_key(4), false)
    with pytest.raises(errors.Corrupt, match=r"version 4 .* version 5 "):
        copy(store, target, fills=True)
    put_right()
    copy(store, target, fills=True)
    assert names(reopen(target)) == rows(*range(4, 9))
    assert names(reopen(target), version=3) == rows(1, 2, 3)


@pytest.mark.hazard("G2")
def test_a_changed_commit_below_the_horizon_is_told_from_a_source_that_parted():
    """There the versions are not resolved: only the hashes tell."""
    store, put_right = replaced(4)
    false = store.get(keys.commit_key(4))
    put_right()
    table = reopen(store)
    table.clock.advance(10 * 86_400_000)
    vacuum(table, dry_run=False, retention=timedelta(hours=1))
    assert table.session.head().meta.horizon > 4
    target, clock = MemoryStore(), ManualClock(table.clock.now_ms(), 7)
    follow(reopen(store), Table(target, clock), start="keyframe", clock=clock)
    replace_object(store, keys.commit_key(4), false)
    with pytest.raises(errors.Corrupt, match=r"version 5 is the same .* version 4 .* was changed"):
        copy(store, target, fills=True)
    put_right()
    copy(store, target, fills=True)
    assert logged(target) == logged(store)
