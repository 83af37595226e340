"""Branches of a table that fails over and back: their rows stay, whatever the log says of them."""

import re
from datetime import timedelta

import pytest
from click.testing import CliRunner
from support.builders import START_MS, create, events, replace_object, replaced
from support.crashes import HOUR_MS

from eventlog import Table, errors
from eventlog.cli.program import build
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.format import codec, keys
from eventlog.fsck.check import fsck
from eventlog.model.actions import SetPin
from eventlog.model.records import Start
from eventlog.readers import scan
from eventlog.replication import break_replica, follow, merge
from eventlog.store.branching.branch import BranchStore
from eventlog.store.location import open_store
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite

DAY = {"start": "1970-01-01", "end": "1970-01-02"}
FORK = "_branches/audit/_fork.json"


def on(store, *branches, seed=500):
    """A handle of another process; a greater seed is later."""
    for name in branches:
        store = BranchStore(store, name)
    return Table.open("", store=store, clock=ManualClock(START_MS + seed * HOUR_MS, seed))


def numbers(table, **options):
    names = scan(table, **options).to_table().column("name").to_pylist()
    return sorted(int(name.removeprefix("row ")) for name in names)


def sweep(store, *branches, seed=500, **options):
    nothing = timedelta(0)
    table = on(store, *branches, seed=seed)
    return vacuum(table, dry_run=False, retention=nothing, staging=nothing, **options)


def segments_in(store):
    return {row.key for row in store.list(keys.SEGMENTS_PREFIX)}


def table_with_branch(store=None, **options):
    """Rows 0 to 3, and row 5 in the branch."""
    table = create(store, properties={"keyframe_commits": "3"})
    append(table, events(2))
    append(table, events(2, first=2))
    append(table.branch("audit", **options), events(1, first=5))
    return table.store


def no_pin(copy):
    copy.break_pin("branch:audit")


def pin_of_a_deleted_branch(copy):
    append(copy.branch("audit"), events(1, first=6, day=3))
    copy.merge(on(copy.store, "audit"))
    copy.delete_branch("audit")


def pin_of_a_younger_branch(copy):
    copy.break_pin("branch:audit")
    overwrite(copy, events(1, first=6), **DAY)
    append(copy.branch("audit"), events(1, first=7, day=3))


LIVES = [no_pin, pin_of_a_deleted_branch, pin_of_a_younger_branch]


def there_and_back(store, life, *, passed):
    """The table's copy takes over, loses the pin, and the table follows it and takes over again."""
    copy = MemoryStore()
    follow(on(store), Table(copy), name="us")
    break_replica(on(copy), "us")
    life(on(copy, seed=501))
    overwrite(on(copy, seed=502), events(1, first=20), **DAY)
    if passed:
        append(on(copy, seed=503), events(1, first=21))
        sweep(copy, seed=510)
    follow(on(copy, seed=520), Table(store), name="eu")
    return copy


@pytest.mark.sample(2)
@pytest.mark.hazard("W11")
@pytest.mark.parametrize("passed", [False, True], ids=["", "passed by the horizon"])
@pytest.mark.parametrize("life", LIVES)
def test_w11_a_branch_keeps_its_rows_over_a_failover_there_and_back(life, passed):
    store = table_with_branch()
    there_and_back(store, life, passed=passed)
    table = on(store, seed=530)
    assert (table.session.head().meta.horizon > 2) == passed
    break_replica(table, "eu")
    overwrite(table, events(1, first=30), **DAY)
    assert [(b.name, b.held) for b in table.branches()] == [("audit", True)]
    append(on(store, "audit", seed=540), events(1, first=8))
    for full in (False, True, False):
        sweep(store, seed=550 + full, full=full)
        assert numbers(on(store, "audit", seed=560)) == [0, 1, 2, 3, 5, 8]
        assert [b.held for b in on(store).branches()] == [True]
        assert fsck(on(store, seed=900), checksums=True).findings == ()
        assert fsck(on(store, "audit"), checksums=True).errors == 0
    table = on(store, seed=570)
    table.delete_branch("audit")
    append(table, events(1, first=40, day=5))
    sweep(store, seed=590)
    live = {keys.key_of(s) for s in table.refresh().segments()}
    assert segments_in(store) == live  # and what it held is not forgotten


@pytest.mark.hazard("W11")
def test_w11_versions_between_the_pin_and_the_fork_are_kept_too():
    """A making that was interrupted has pinned an older version than the branch begins with."""
    table = create()
    store = table.store
    append(table, events(2))
    table.commit(table.transaction("pin", [SetPin("branch:audit", 1, "eventlog branch")]))
    overwrite(table, events(1, first=2), **DAY)
    append(table.branch("audit"), events(1, first=5))
    there_and_back(store, no_pin, passed=True)
    sweep(store, seed=600)
    assert on(store).session.head().meta.horizon > 1
    branch = on(store, "audit")
    assert [numbers(branch, version=v) for v in (1, 2, 3, 5)] == [[0, 1], [0, 1], [2], [2, 5]]


@pytest.mark.hazard("W11")
@pytest.mark.hazard("W18")
def test_w18_a_branch_without_a_commit_that_the_horizon_passed_goes_on_as_a_copy():
    table = create()
    store = table.store
    append(table, events(2))
    table.branch("audit")
    there_and_back(store, no_pin, passed=True)
    sweep(store, seed=600)
    branch = on(store, "audit", seed=610)
    for write in (lambda: append(branch, events(1, first=8)), lambda: sweep(store, "audit")):
        with pytest.raises(errors.CommitConflict, match="eventlog replicate") as refused:
            write()
        assert "nothing was committed" in refused.value.message
    copy = MemoryStore()
    follow(branch, Table(copy))
    append(on(copy), events(1, first=8))
    assert numbers(on(copy)) == [0, 1, 8]


@pytest.mark.hazard("W18")
def test_w18_a_vacuum_that_cannot_tell_what_a_branch_reads_names_the_way_on(tmp_path):
    def run(*words, code=0):
        done = CliRunner().invoke(build(), words)
        assert done.exit_code == code, done.output
        return re.sub(r"\s+", " ", done.output)

    root = (tmp_path / "t").as_uri()
    store = open_store(root)
    table = create(store)
    append(table, events(2))
    honest = table.branch("audit").store.forks[0]
    on(store).break_pin("branch:audit")
    forged = codec.encode_fork(replaced(honest, commit="0" * 64))
    for seed, body in enumerate((b"{}", forged), 510):
        replace_object(store, FORK, body)
        append(on(store, seed=seed), events(1, first=2, day=3))
        vacuuming = ("vacuum", root, "--run", "--retention-hours", "0", "--staging-hours", "0")
        told = run(*vacuuming, code=4)
        (command,) = re.findall(r"`eventlog ([^`]*)`", told)
        run(*command.split())
        run(*vacuuming)
    assert numbers(on(store)) == [0, 1, 2, 2]


@pytest.mark.hazard("W11")
def test_w11_taking_over_pins_what_the_log_of_the_copy_does_not_hold():
    store = table_with_branch()
    there_and_back(store, no_pin, passed=False)
    assert [b.held for b in on(store).branches()] == [False]
    assert "branch:audit" in fsck(on(store)).findings[0].message
    table = on(store, seed=530)
    version = break_replica(table, "eu")
    assert table.refresh().meta.pins["branch:audit"].token == version
    assert [b.held for b in table.branches()] == [True]
    assert fsck(on(store, seed=900)).findings == ()


def test_what_a_vacuum_keeps_for_a_branch_is_told():
    store = table_with_branch()
    there_and_back(store, no_pin, passed=True)
    for dry_run in (True, False):
        report = vacuum(
            on(store, seed=600), dry_run=dry_run, retention=timedelta(0), staging=timedelta(0)
        )
        assert report.kept["branch 'audit'"].objects == 2


def test_garbage_goes_after_a_failover_without_a_listing_of_everything_that_is_asked_for():
    """Of a copy that takes over, and of the table that follows it and takes over again."""
    table = create()
    store, copy = table.store, MemoryStore()
    append(table, events(2))
    follow(table, Table(copy))
    overwrite(table, events(1, first=2), **DAY)
    append(table, events(1, first=3, day=3))
    sweep(store, seed=510)
    follow(on(store), Table(copy))
    for taking, other, seed in ((copy, store, 600), (store, copy, 700)):
        table = on(taking, seed=seed)
        append(table, events(1, first=seed, day=4))
        assert sweep(taking, seed=seed + 1).gone["unnamed"].objects > 0
        assert segments_in(taking) == {keys.key_of(s) for s in table.refresh().segments()}
        overwrite(table, events(1, first=seed + 1), **DAY)
        append(table, events(1, first=seed + 2, day=4))
        assert sweep(taking, seed=seed + 10).gone["unnamed"].objects == 0  # its own record
        assert segments_in(taking) == {keys.key_of(s) for s in table.refresh().segments()}
        follow(table, Table(other))


@pytest.mark.hazard("W11")
def test_w11_a_branch_that_lost_its_pin_is_pinned_again():
    store = table_with_branch()
    table = on(store)
    table.break_pin("branch:audit")
    assert [b.held for b in table.branches()] == [False]
    assert vacuum(table, retention=timedelta(0)).horizon == 2
    overwrite(table, events(1, first=20), **DAY)
    sweep(store, seed=510)
    assert (
        table.refresh().meta.horizon == table.session.head().meta.pins["branch:audit"].version == 2
    )
    assert [b.held for b in table.branches()] == [True]
    assert numbers(on(store, "audit")) == [0, 1, 2, 3, 5]


def late_copy():
    """A copy that begins at its table's newest key frame, far above the horizon of that."""
    table = create(properties={"keyframe_commits": "3"})
    for n in range(10):
        append(table, events(2, first=2 * n, days=2))
        table.clock.advance(HOUR_MS)
    copy = MemoryStore()
    follow(table, Table(copy), start="keyframe")
    return copy, list(range(20))


def copy_of_a_branch():
    """A copy that begins where its parent held the branch."""
    table = create(properties={"keyframe_commits": "3"})
    for n in range(6):
        append(table, events(2, first=2 * n, days=2))
        table.clock.advance(HOUR_MS)
    overwrite(table, events(1, first=50), start="1970-01-01", end="1970-01-03")
    sweep(table.store, seed=12)
    append(on(table.store, seed=13).branch("audit"), events(1, first=51))
    copy = MemoryStore()
    follow(on(table.store, "audit", seed=20), Table(copy))
    on(copy, seed=21).break_pin("branch:audit")
    return copy, [50, 51]


AGES = [(late_copy, 0), (late_copy, 1000), (copy_of_a_branch, 30)]
MORE_AGES = [(late_copy, 4), (late_copy, 30)] + [(copy_of_a_branch, age) for age in (0, 4, 1000)]


@pytest.mark.sample(2)
@pytest.mark.hazard("W18")
@pytest.mark.parametrize(
    ("made", "hours"),
    [*AGES, *(pytest.param(*case, marks=pytest.mark.long) for case in MORE_AGES)],
)
def test_w18_a_copy_that_begins_late_is_vacuumed_once_it_took_over(made, hours):
    copy, rows = made()
    begins = Table(copy).session.log.starts.all()[0].version
    age = {"retention": timedelta(hours=hours), "staging": timedelta(hours=hours)}
    for seed in (30, 60, 90):
        table = on(copy, seed=seed)
        overwrite(table, events(1, first=seed, day=3), start="1970-01-04", end="1970-01-05")
        for full in (False, True):
            vacuum(on(copy, seed=seed + 1), dry_run=False, full=full, **age)
        assert fsck(on(copy, seed=900), checksums=True).errors == 0
        head = table.refresh()
        for version in range(max(begins, head.meta.horizon), head.version + 1):
            assert set(numbers(table, version=version)) <= {*rows, 30, 60, 90}
        assert numbers(table) == sorted([*rows, seed])
    table = on(copy, seed=5000)
    append(table, events(1, first=99, day=5))
    assert sweep(copy, seed=5001).horizon > begins
    assert segments_in(copy) == {keys.key_of(s) for s in table.refresh().segments()}


@pytest.mark.hazard("W11")
@pytest.mark.parametrize("filled", [False, True])
def test_w11_a_vacuum_keeps_what_versions_below_a_gap_have_live(filled):
    """Of a copy that another program made, which left out versions that its source keeps."""
    table, copy = create(properties={"keyframe_commits": "3"}), MemoryStore()
    for n in range(3):
        append(table, events(2, first=2 * n))
    had = table.session.head().version
    append(table, events(1, first=40, day=3))
    for n in range(8):
        overwrite(table, events(1, first=50 + n), **DAY)
    follow(table, Table(copy))
    first = had + 5
    absent = {key: copy.get(key) for key in map(keys.commit_key, range(had + 2, first))}
    copy.delete([*absent])
    start = Start("eventlog", 1, (), table.id, first, had)
    copy.put_if_absent(keys.start_key(first), codec.encode_start(start))
    taken = on(copy, seed=600)
    taken.pin("keep", had)
    append(taken, events(1, first=80, day=5))
    for seed in (700, 800):
        sweep(copy, seed=seed, full=seed == 800)
        assert numbers(taken, version=had) == [0, 1, 2, 3, 4, 5]
        assert fsck(on(copy, seed=900), checksums=True).errors == 0
    for key, body in absent.items() if filled else ():
        assert copy.put_if_absent(key, body)
    taken.break_pin("keep")
    append(taken, events(1, first=81, day=6))
    sweep(copy, seed=810)
    assert segments_in(copy) == {keys.key_of(s) for s in taken.refresh().segments()}


def test_a_vacuum_tells_what_keeps_the_rest_also_when_it_runs(tmp_path):
    root = str(tmp_path / "t")
    table = create(open_store(root))
    for n in range(5):
        append(table, events(1, first=n))
    overwrite(table, events(1, first=20), **DAY)
    words = ["vacuum", root, "--run", "--retention-hours", "0", "--staging-hours", "876000"]
    for _ in range(2):
        done = CliRunner().invoke(build(), words)
        assert re.search(r"kept +staging: .* 5 ", done.output), done.output


@pytest.mark.hazard("W11")
def test_w11_a_copy_that_is_behind_what_is_kept_for_a_branch_does_not_follow_it():
    """Its parent may have given up the versions between, and the log of the branch does not say."""
    table, copy, other = create(), MemoryStore(), MemoryStore()
    append(table, events(2))
    follow(table, Table(copy))
    append(table, events(2, first=2))
    overwrite(table, events(1, first=4), **DAY)
    append(table.branch("audit"), events(1, first=5))
    with pytest.raises(errors.InvalidInput, match="eventlog replicate"):
        follow(on(table.store, "audit"), Table(copy))
    assert [numbers(on(copy), version=v) for v in range(2)] == [[], [0, 1]]
    assert on(copy).session.head().version == 1
    follow(on(table.store, "audit"), Table(other))
    assert numbers(on(other)) == [4, 5]
    merge(on(table.store, "audit"), Table(copy))
    assert numbers(on(copy)) == [4, 5]
