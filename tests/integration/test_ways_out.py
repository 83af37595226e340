"""Copies of a table become one again, from any state, by the commands that messages name."""

import shlex

import pyarrow as pa
import pytest
from click.testing import CliRunner
from support.builders import START_MS, create, events

from eventlog import Table, errors, replication
from eventlog.cli.program import build
from eventlog.clock import ManualClock
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.replication import follow, merge
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite


def numbers(table):
    found = scan(table.refresh() and table).to_table().column("name").to_pylist()
    return sorted(int(name.removeprefix("row ")) for name in found)


def one_more(table, number):
    append(table, events(1, first=number))


def copy_of(source, seed, **options):
    store = MemoryStore()
    copy = Table(store, ManualClock(START_MS + seed * 10**6, seed))
    follow(source, copy, **options)
    return copy


def table_of(versions):
    t = create(properties={"keyframe_commits": "4"})
    for number in range(versions):
        one_more(t, number)
    return t


@pytest.mark.sample(2, verify=4)
@pytest.mark.hazard("W18")
@pytest.mark.parametrize("since", [1, 2, 3, 7, 8, 16, 20, 33])
def test_a_copy_that_began_late_is_merged_however_much_was_written_since(since):
    t = table_of(18)
    copy = copy_of(t, 2, start="keyframe")
    for number in range(since):
        one_more(t, 100 + number)
        one_more(copy, 200 + number)
    with pytest.raises(errors.CommitConflict, match="writes of its own after version 18"):
        follow(t, copy)
    assert merge(t, copy).commits == since
    assert merge(copy, t).commits == since
    assert (merge(t, copy).commits, merge(copy, t).commits) == (0, 0)
    assert numbers(t) == numbers(copy)
    assert len(numbers(t)) == 18 + 2 * since


@pytest.mark.hazard("W18")
@pytest.mark.parametrize("since", [1, 8])
def test_a_copy_of_a_branch_that_began_above_what_it_shares_is_merged_by_way_of_the_branch(since):
    t = table_of(8)
    other = copy_of(t, 2)
    one_more(other, 100)
    for number in range(8, 12):
        one_more(t, number)
    branch = t.branch("audit")
    copy = copy_of(branch, 3)
    for number in range(since):
        one_more(copy, 200 + number)
    before = numbers(copy)
    for source, target in ((other, copy), (copy, other)):
        with pytest.raises(errors.InvalidInput) as refused:
            merge(source, target)
        assert f"`eventlog merge {shlex.quote(source.uri)} TABLE`" in str(refused.value)
        assert f"`eventlog merge TABLE {shlex.quote(target.uri)}`" in str(refused.value)
    for source, target in ((other, branch), (branch, copy), (copy, branch), (branch, other)):
        merge(source, target)
    assert numbers(copy) == numbers(other) == sorted([*before, 100])


@pytest.mark.hazard("W18")
def test_a_copy_that_began_above_what_it_shares_is_filled_in_by_the_command_that_is_named():
    t = table_of(8)
    other = copy_of(t, 2)
    one_more(other, 100)
    for number in range(8, 16):
        one_more(t, number)
    copy = copy_of(t, 3, start="keyframe")
    one_more(copy, 200)
    with pytest.raises(errors.InvalidInput) as refused:
        merge(other, copy)
    assert f"eventlog replicate TABLE {shlex.quote(copy.uri)} --backfill" in str(refused.value)
    replication.backfill(t, copy)
    assert merge(other, copy).commits == 1
    merge(copy, other)
    assert numbers(copy) == numbers(other) == [*range(16), 100, 200]


def lost(store, *gone):
    """Delete objects, and return the error that a reader of the table gets, with its way on."""
    store.delete(gone)
    with pytest.raises(errors.Corrupt) as refused:
        scan(Table(store)).count()
    named = f"eventlog replicate SOURCE {shlex.quote(store.uri)} --backfill"
    assert named in str(refused.value)
    return refused.value


@pytest.mark.hazard("W18")
@pytest.mark.parametrize("start", ["oldest", "keyframe"])
@pytest.mark.parametrize("versions", [(17,), (12, 13, 16), (3, 4), (0,), (18,)])
def test_w18_a_copy_that_lost_commits_gets_them_from_its_table(start, versions):
    t = table_of(18)
    copy = copy_of(t, 2, start=start).store
    replication.backfill(t, Table(copy))
    one_more(t, 18)
    before = [copy.get(keys.commit_key(version)) for version in versions]
    copy.delete([keys.commit_key(version) for version in versions])
    assert replication.backfill(t, Table(copy)).versions == len(set(versions) - {18})
    follow(t, Table(copy))
    assert [copy.get(keys.commit_key(version)) for version in versions] == before
    assert numbers(Table(copy)) == [*range(19)]
    assert fsck(Table(copy), objects=True).findings == ()
    assert replication.backfill(t, Table(copy)).versions == 0


@pytest.mark.hazard("W18")
def test_w18_a_table_that_lost_a_commit_gets_it_from_its_copy():
    t = table_of(5)
    copy = copy_of(t, 2)
    one_more(t, 5)
    lost(t.store, keys.commit_key(4))
    assert replication.backfill(copy, Table(t.store)).versions == 1
    assert numbers(Table(t.store)) == [*range(6)]
    follow(t, copy)
    assert numbers(copy) == [*range(6)]


@pytest.mark.hazard("W18")
def test_w18_a_copy_that_lost_its_start_is_filled():
    t = table_of(18)
    copy = copy_of(t, 2, start="keyframe").store
    one_more(t, 18)
    lost(copy, *(row.key for row in copy.list(keys.STARTS_PREFIX)))
    with pytest.raises(errors.Corrupt, match="--backfill"):
        follow(t, Table(copy))
    replication.backfill(t, Table(copy))
    follow(t, Table(copy))
    assert fsck(Table(copy), objects=True).findings == ()
    assert scan(Table(copy), version=3).count() == 3


@pytest.mark.hazard("W18")
def test_w18_a_copy_of_a_young_copy_that_lost_its_start_gets_that_of_the_other():
    t = table_of(10)
    young = copy_of(t, 2, start="keyframe")
    for number in range(10, 18):
        one_more(t, number)
    follow(t, young)
    copy = copy_of(young, 3, start="keyframe").store
    lost(copy, *(row.key for row in copy.list(keys.STARTS_PREFIX)))
    with pytest.raises(errors.VersionNotReplicated):
        replication.backfill(young, Table(copy))
    assert numbers(Table(copy)) == [*range(18)]
    with pytest.raises(errors.VersionNotReplicated):
        scan(Table(copy), version=2).count()
    replication.backfill(t, Table(copy))
    assert fsck(Table(copy), objects=True).errors == 0
    assert scan(Table(copy), version=2).count() == 2


@pytest.mark.hazard("W18")
def test_w18_what_the_source_lacks_too_is_not_explained_by_its_start():
    t = table_of(10)
    young = copy_of(t, 2, start="keyframe")
    copy = copy_of(t, 3).store
    (start,) = young.session.log.starts.versions()
    lost(copy, keys.commit_key(start - 1), keys.commit_key(start))
    with pytest.raises(errors.VersionNotReplicated):
        replication.backfill(young, Table(copy))
    with pytest.raises(errors.Corrupt, match="--backfill"):
        Table(copy).session.head()
    assert list(copy.list(keys.STARTS_PREFIX)) == []
    replication.backfill(t, Table(copy))
    assert fsck(Table(copy), objects=True).findings == ()


@pytest.mark.hazard("W18")
def test_w18_a_lost_commit_is_not_filled_from_another_log():
    t = table_of(2)
    other = copy_of(t, 2)
    for number in range(2, 6):
        one_more(t, number)
        one_more(other, 100 + number)
    lost(t.store, keys.commit_key(4))
    with pytest.raises(errors.CommitConflict, match="parted below version 5"):
        replication.backfill(other, Table(t.store))
    with pytest.raises(errors.Corrupt, match="but not 4"):
        Table(t.store).session.head()


@pytest.mark.hazard("W18")
def test_w18_the_program_mends_a_copy_that_lost_a_commit(tmp_path):
    t = Table.create(tmp_path / "t", events(1).schema, time_column="at")
    for number in range(4):
        one_more(t, number)
    source, target = str(tmp_path / "t"), str(tmp_path / "copy")
    run = CliRunner().invoke
    assert run(build(), ["replicate", source, target]).exit_code == 0
    one_more(t, 4)
    (tmp_path / "copy" / keys.commit_key(3)).unlink()
    refused = run(build(), ["replicate", source, target])
    assert (refused.exit_code, "--backfill" in refused.stderr) == (4, True)
    assert "replicate SOURCE" in run(build(), ["fsck", target]).stdout
    done = run(build(), ["replicate", source, target, "--backfill"])
    assert done.exit_code == 0, done.stderr
    assert "backfilled 1 version" in done.stdout
    assert "copied 1 version" in done.stdout
    assert run(build(), ["fsck", target]).exit_code == 0


@pytest.mark.hazard("W18")
def test_a_copy_and_a_branch_that_share_version_0_alone_are_merged_by_what_is_named():
    t = table_of(0)
    branch = t.branch("audit", at=0)
    for number in range(8):
        one_more(t, number)
    copy = copy_of(t, 3, start="keyframe")
    one_more(copy, 200)
    for source, target in ((branch, copy), (copy, branch)):
        with pytest.raises(errors.InvalidInput) as refused:
            merge(source, target)
        assert f"eventlog replicate TABLE {shlex.quote(copy.uri)} --backfill" in str(refused.value)
    replication.backfill(t, copy)
    merge(copy, branch)
    assert numbers(branch) == numbers(copy) == [*range(8), 200]
    other = create(properties={"keyframe_commits": "5"})  # the same id, and another first commit
    with pytest.raises(errors.InvalidInput, match="no common history"):
        merge(other, branch)


DAY_0 = {"start": "1970-01-01", "end": "1970-01-02"}


def parted(count):
    """Copies of a table of rows 0 to 2 that are cut off from each other."""
    table = table_of(3)
    return [table, *(copy_of(table, 10 + n) for n in range(count - 1))]


def replaced(table, number):
    overwrite(table, events(1, first=number), **DAY_0)


def both_ways(one, two):
    done = merge(one, two), merge(two, one)
    assert numbers(one) == numbers(two)
    for source, target in ((one, two), (two, one), (one, two)):
        done = merge(source, target)
    assert (done.commits, merge(two, one).commits) == (0, 0)


@pytest.mark.hazard("W18")
def test_w18_a_unit_of_work_that_the_ends_of_a_tree_both_did_does_not_end_merging():
    one, hub, three = parted(3)
    append(three, events(1, first=100), app_id="job", app_seq=1)
    append(hub, events(1, first=200))
    append(one, events(1, first=100), app_id="job", app_seq=1)
    append(one, events(1, first=300))
    for turn in range(3):
        for source, target in ((one, hub), (three, hub), (hub, one), (hub, three)):
            merge(source, target)
        assert numbers(one) == numbers(hub) == numbers(three)
        append(one, events(1, first=1000 + turn))
    assert numbers(three) == [0, 1, 2, 100, 200, 300, 1000, 1001]


@pytest.mark.hazard("W18")
def test_w18_in_a_ring_each_row_comes_once():
    ring = parted(4)
    for turn in range(3):
        for n, table in enumerate(ring):
            append(table, events(1, first=100 * turn + 10 + n))
            merge(table, ring[n - 1])
        merge(ring[2], ring[0])
    for _ in range(2):
        for n, table in enumerate(ring):
            both_ways(table, ring[n - 1])
    assert all(numbers(table) == numbers(ring[0]) for table in ring)
    assert len(numbers(ring[0])) == 3 + 12


@pytest.mark.hazard("W18")
@pytest.mark.parametrize("take", ["source", "target"])
def test_w18_of_two_overwrites_one_is_chosen_and_what_was_added_elsewhere_stays(take):
    one, two = parted(2)
    for n, table in enumerate((one, two), 1):
        replaced(table, 100 * n)
        append(table, events(1, first=100 * n + 1, day=1))
    for source, target in ((one, two), (two, one)):
        with pytest.raises(errors.CommitConflict) as refused:
            merge(source, target)
        places = f"{shlex.quote(source.uri)} {shlex.quote(target.uri)}"
        named = f"`eventlog merge {places} --take source` or `--take target`"
        assert named in str(refused.value)
    before = two.refresh().version
    (left,) = merge(one, two, take=take, dry_run=True).left_out
    loser, chosen = (two, 100) if take == "source" else (one, 200)
    assert (left.root, left.what, left.rows) == (loser.uri, "rows of 1970-01-01", 1)
    assert two.refresh().version == before
    done = merge(one, two, take=take)
    assert done.left_out == (left,)
    both_ways(one, two)
    assert numbers(two) == sorted([chosen, 101, 201])
    append(one, events(1, first=102))
    append(two, events(1, first=202))
    both_ways(one, two)
    assert numbers(one) == sorted([chosen, 101, 102, 201, 202])


@pytest.mark.hazard("W18")
def test_w18_what_was_chosen_is_chosen_for_a_third_copy():
    one, two, three = parted(3)
    for n, table in enumerate((one, two), 1):
        replaced(table, 100 * n)
    append(three, events(1, first=300, day=1))
    merge(two, three)
    merge(one, two, take="source")
    for source, target in ((two, three), (three, two), (one, three), (three, one)):
        merge(source, target)
    both_ways(one, two)
    assert numbers(one) == numbers(two) == numbers(three) == [100, 300]


@pytest.mark.hazard("W18")
def test_w18_what_was_left_out_goes_where_it_was_carried_one_by_one():
    one, two = parted(2)
    append(two, events(1, first=200))
    two.restore(3)
    append(one, events(1, first=100))
    merge(two, one)
    append(two, events(1, first=210))
    replaced(two, 220)
    with pytest.raises(errors.CommitConflict):
        merge(one, two)
    assert merge(one, two, take="source").left_out
    both_ways(one, two)
    assert numbers(one) == [0, 1, 2, 100]


@pytest.mark.hazard("W18")
def test_w18_who_chooses_and_goes_on_may_choose_once_more():
    one, two = parted(2)
    for n, table in enumerate((one, two), 1):
        replaced(table, 100 * n)
    merge(one, two, take="source")
    assert numbers(two) == [100]
    replaced(one, 110)
    replaced(two, 210)
    for source, target in ((one, two), (two, one)):
        with pytest.raises(errors.CommitConflict):
            merge(source, target)
    merge(two, one, take="source")
    both_ways(one, two)
    assert numbers(one) == [210]


@pytest.mark.hazard("W18")
def test_w18_a_part_of_what_was_carried_at_once_is_completed():
    table = table_of(3)
    branch, other = table.branch("audit"), copy_of(table, 10)
    one_more(branch, 100)
    append(other, events(1, first=300, day=1))
    merge(branch, other)
    overwrite(branch, events(1, first=200), **DAY_0)
    one_more(table, 400)
    table.merge(branch)  # in one version, in which row 100 came and went
    merge(table, other)
    both_ways(table, other)
    assert numbers(other) == [200, 300, 400]


@pytest.mark.hazard("W18")
def test_w18_of_several_units_that_were_carried_at_once_each_is_known():
    table = table_of(3)
    branch, other = table.branch("audit"), copy_of(table, 10)
    for number, day in ((11, 0), (12, 1), (13, 2)):
        append(branch, events(1, first=number, day=day), app_id="job", app_seq=number)
        if number < 13:
            append(other, events(1, first=number, day=day), app_id="job", app_seq=number)
    append(other, events(1, first=100))
    table.merge(branch)  # the three in one version
    merge(table, other)
    both_ways(table, other)
    assert numbers(other) == [0, 1, 2, 11, 12, 13, 100]


@pytest.mark.hazard("W18")
def test_w18_what_was_undone_is_no_conflict_any_more():
    one, two = parted(2)
    for n, table in enumerate((one, two), 1):
        replaced(table, 100 * n)
    two.restore(3)
    both_ways(one, two)
    assert numbers(one) == [100]


@pytest.mark.hazard("W18")
def test_w18_a_property_that_both_set_is_chosen():
    one, two = parted(2)
    one.set_properties({"user.x": "1"})
    two.set_properties({"user.x": "2"})
    with pytest.raises(errors.CommitConflict, match="--take source` or `--take target`"):
        merge(one, two)
    (left,) = merge(one, two, take="target").left_out
    assert (left.what, left.root) == ("property 'user.x' '1'", one.uri)
    both_ways(one, two)
    assert one.refresh().properties["user.x"] == "2"


@pytest.mark.hazard("W18")
def test_w18_the_program_merges_by_the_command_that_it_names(tmp_path):
    run = lambda *words: CliRunner().invoke(build(), [*map(str, words)])
    one, two = tmp_path / "a table", tmp_path / "a copy"
    table = Table.create(str(one), events(1).schema, time_column="at")
    append(table, events(2))
    assert run("replicate", one, two).exit_code == 0
    for n, root in enumerate((one, two), 1):
        replaced(Table.open(str(root)), 100 * n)
    refused = run("merge", one, two)
    assert refused.exit_code == 3
    named = refused.output.split("`eventlog ")[1].split("`")[0]
    command = shlex.split(named)
    told = run(*command, "--dry-run")
    assert "rows of 1970-01-01 (1 row) that" in told.output
    assert "would be left out" in told.output
    assert run(*command).exit_code == 0
    assert "0 segments" in run("merge", two, one).output  # that it was chosen
    assert "nothing to merge" in run("merge", one, two).output
    assert "nothing to merge" in run("merge", two, one).output
    assert numbers(Table.open(str(one))) == numbers(Table.open(str(two))) == [100]


def test_what_to_take_is_one_of_two():
    one, two = parted(2)
    with pytest.raises(errors.InvalidInput, match="give 'source' or 'target'"):
        merge(one, two, take="mine")


def job(table, number):
    return append(table, events(1, first=number), app_id="job", app_seq=number)


def three_units():
    one, two = parted(2)
    for number in (11, 12, 13):
        job(one, number)
    merge(one, two)
    return one, two


@pytest.mark.hazard("W18")
@pytest.mark.parametrize("turn", [1, -1])
@pytest.mark.parametrize("early", [True, False])
def test_w18_a_unit_that_was_forgotten_and_loaded_again_comes_to_the_other_side(turn, early):
    one, two = three_units()
    one_more(two, 50)
    if early:
        merge(two, one)
    one.restore(3, forget_units=True)
    if early:
        for source, target in [(one, two), (two, one)][::turn]:
            merge(source, target)
        assert numbers(one) == numbers(two)
    job(one, 11)
    job(one, 13)
    for source, target in [(one, two), (two, one)][::turn]:
        merge(source, target)
    both_ways(one, two)
    assert numbers(two) == sorted([0, 1, 2, 11, 13, *([] if early else [50])])


@pytest.mark.hazard("W18")
def test_w18_a_unit_that_was_forgotten_on_one_side_is_loaded_again_on_the_other():
    one, two = three_units()
    one.restore(3, forget_units=True)
    merge(one, two)
    for number in (11, 12):
        job(two, number)
    both_ways(one, two)
    job(one, 12)  # done
    job(one, 13)
    both_ways(one, two)
    assert numbers(two) == [0, 1, 2, 11, 12, 13]


@pytest.mark.hazard("W18")
@pytest.mark.parametrize("take", ["source", "target"])
def test_w18_a_unit_that_one_forgot_and_the_other_side_did_by_itself_needs_a_choice(take):
    one, two = parted(2)
    job(two, 12)
    for number in (11, 12, 13):
        job(one, number)
    merge(one, two)
    one.restore(3, forget_units=True)
    one_more(one, 20)
    one_more(two, 30)
    for source, target in ((one, two), (two, one)):
        with pytest.raises(errors.CommitConflict, match="which of the two counts, and all rows"):
            merge(source, target)
    chosen = one if take == "source" else two
    before = numbers(chosen)
    merge(one, two, take=take)
    both_ways(one, two)
    assert numbers(two) == before
    for table in (one, two):
        job(table, 13)
        both_ways(one, two)
    assert numbers(two) == (sorted([*before, 13]) if chosen is one else before)


def loaded_again(pair):
    """The rows of two copies: the first loads a forgotten unit, and the second tries it then."""
    first, second = pair
    job(first, 11)
    both_ways(*pair)
    job(second, 11)
    return [numbers(table) for table in pair]


@pytest.mark.hazard("W18")
@pytest.mark.parametrize("take", ["source", "target"])
@pytest.mark.parametrize("turn", [1, -1])
def test_w18_a_unit_that_both_have_forgotten_is_loaded_again_after_a_choice(take, turn):
    one, two = parted(2)
    version = one.session.head().version
    for number, table in ((21, one), (22, two)):
        job(table, 11)
        table.restore(version, forget_units=True)
        one_more(table, number)
    before = numbers(one if take == "source" else two)
    with pytest.raises(errors.CommitConflict, match="--take"):
        merge(one, two)
    merge(one, two, take=take)
    both_ways(one, two)
    assert loaded_again((one, two)[::turn]) == [sorted([*before, 11])] * 2


@pytest.mark.hazard("W18")
@pytest.mark.parametrize("turn", [1, -1])
def test_w18_nobody_chooses_where_both_have_forgotten_a_unit_and_have_the_same_rows(turn):
    one, two = parted(2)
    version = one.session.head().version
    for table in (one, two):
        job(table, 11)
        table.restore(version, forget_units=True)
    before = numbers(one)
    both_ways(one, two)
    assert loaded_again((one, two)[::turn]) == [sorted([*before, 11])] * 2


@pytest.mark.hazard("W18")
@pytest.mark.parametrize("by", ["source", "hub"])
def test_w18_a_third_copy_loads_forgotten_units_again_too(by):
    one, two, three = parted(3)
    for number in (11, 12):
        job(one, number)
    merge(one, two)
    merge(two, three)
    one.restore(3, forget_units=True)
    merge(one, two)
    merge(one if by == "source" else two, three)
    job(one, 11)
    job(three, 12)
    for _ in range(2):
        for source, target in ((one, two), (two, three), (three, two), (two, one)):
            merge(source, target)
    both_ways(one, two)
    both_ways(two, three)
    both_ways(one, three)
    assert numbers(three) == [0, 1, 2, 11, 12]


@pytest.mark.hazard("W18")
@pytest.mark.parametrize("take", ["source", "target"])
@pytest.mark.parametrize("back", [True, False])
def test_w18_a_unit_that_was_left_out_can_be_loaded_again(take, back):
    one, two = parted(2)
    replaced(one, 100)
    replaced(two, 200)
    loser, winner = (two, one) if take == "source" else (one, two)
    job(loser, 11)
    job(loser, 12)
    merge(one, two, take=take)
    if back:
        merge(two, one)
    job(winner, 12)
    both_ways(one, two)
    chosen = 100 if take == "source" else 200
    assert numbers(one) == [12, chosen]


@pytest.mark.hazard("W18")
def test_w18_a_unit_that_two_choices_left_out_can_be_loaded_again():
    """Each leaves out one of its two days."""
    day_1 = {"start": "1970-01-02", "end": "1970-01-03"}
    load = lambda table: append(table, events(2, days=2, first=10), app_id="job", app_seq=1)
    one = table_of(3)
    append(one, events(1, first=5, day=1))
    two = copy_of(one, 10)
    overwrite(one, events(0))
    load(one)
    replaced(two, 200)
    merge(two, one, take="source")
    assert numbers(one) == [11, 200]
    overwrite(two, events(1, first=210, day=1), **day_1)
    merge(one, two, take="target")
    both_ways(one, two)
    assert numbers(two) == [200, 210]
    load(two)
    both_ways(one, two)
    load(one)
    assert numbers(one) == [10, 11, 200, 210]


def written_and_replaced(writer, number, **unit):
    """A row of day 0 that its writer itself replaces, between rows of day 1."""
    append(writer, events(1, first=number + 1, day=1))
    append(writer, events(1, first=number), **unit)
    append(writer, events(1, first=number + 2, day=1))
    replaced(writer, number + 3)
    append(writer, events(1, first=number + 4, day=1))


@pytest.mark.sample(2)
@pytest.mark.hazard("W18")
@pytest.mark.parametrize("refused_first", [True, False])
@pytest.mark.parametrize("take", ["source", "target"])
@pytest.mark.parametrize("branched", [True, False])
def test_w18_what_its_writer_replaced_before_it_was_merged_stays_away(
    take, refused_first, branched
):
    one = table_of(3)
    two = one.branch("audit") if branched else copy_of(one, 10)
    parted_at = {table: table.refresh().version for table in (one, two)}
    for source, number in ((one, 100), (two, 200)):
        written_and_replaced(source, number)
    before = {table: (table.refresh().version, numbers(table)) for table in (one, two)}
    if refused_first:
        for source, target in ((one, two), (two, one)):
            with pytest.raises(errors.CommitConflict, match="nothing was committed"):
                merge(source, target)
    told = merge(one, two, take=take, dry_run=True)
    assert {table: (table.refresh().version, numbers(table)) for table in (one, two)} == before
    done = merge(one, two, take=take)
    assert (done.left_out, done.transactions) == (told.left_out, told.transactions)
    (left,) = done.left_out
    loser = two if take == "source" else one
    versions = tuple(parted_at[loser] + n for n in (2, 4))
    assert (left.root, left.versions, left.rows) == (loser.uri, versions, 1)
    both_ways(one, two)
    chosen = 103 if take == "source" else 203
    assert numbers(one) == sorted([101, 102, 104, 201, 202, 204, chosen])


@pytest.mark.verify
@pytest.mark.hazard("W18")
def test_w18_what_its_writer_replaced_long_before_what_stands_against_it_stays_away():
    one, two = parted(2)
    one_more(one, 100)
    for n in range(260):
        one.set_properties({"user.at": str(n)})
    replaced(one, 110)
    replaced(two, 210)
    with pytest.raises(errors.CommitConflict, match="nothing was committed"):
        merge(one, two)
    assert merge(one, two, take="target", dry_run=True).left_out
    assert merge(one, two, take="target").left_out
    both_ways(one, two)
    assert numbers(one) == [210]


@pytest.mark.hazard("W18")
def test_w18_a_unit_that_was_left_out_with_what_replaced_it_can_be_loaded_again():
    one, two = parted(2)
    written_and_replaced(one, 100, app_id="job", app_seq=1)
    replaced(two, 200)
    merge(one, two, take="target")
    merge(two, one)
    assert numbers(one) == numbers(two) == [101, 102, 104, 200]
    append(two, events(1, first=100), app_id="job", app_seq=1)
    both_ways(one, two)
    assert numbers(one) == [100, 101, 102, 104, 200]


@pytest.mark.hazard("W18")
def test_w18_a_merge_that_needs_no_choice_is_carried_one_by_one_whatever_is_taken():
    one, two = parted(2)
    for number in (100, 101, 102):
        one_more(one, number)
        one_more(two, 100 + number)
    told = merge(one, two, take="target", dry_run=True)
    done = merge(one, two, take="target")
    assert (done.commits, done.transactions, told.transactions) == (3, 3, 3)
    assert done.left_out == told.left_out == ()
    both_ways(one, two)


@pytest.mark.hazard("W18")
def test_w18_forgotten_units_that_come_back_with_their_rows_are_done():
    one, two = three_units()
    whole = one.refresh().version
    one.restore(3, forget_units=True)
    merge(one, two)
    one.restore(whole)
    both_ways(one, two)
    for number in (11, 13):
        job(two, number)
        job(one, number)
    both_ways(one, two)
    assert numbers(two) == [0, 1, 2, 11, 12, 13]


@pytest.mark.hazard("W18")
def test_w18_columns_of_two_types_are_told_with_commands_that_lead_on(tmp_path):
    run = lambda *words: CliRunner().invoke(build(), [*map(str, words)])
    one, two = tmp_path / "one", tmp_path / "a copy"
    table = Table.create(str(one), events(1).schema, time_column="at")
    append(table, events(2))
    assert run("replicate", one, two).exit_code == 0
    for n, (root, kind) in enumerate(((one, pa.int64()), (two, pa.string())), 1):
        t = Table.open(str(root))
        t.add_columns(events(1).schema.append(pa.field("x", kind)))
        one_more(t, 100 * n)
    for take in ((), ("--take", "source"), ("--take", "target")):
        refused = run("merge", one, two, *take)
        assert refused.exit_code == 3
        assert "the columns differ: column 'x' of type" in refused.output
        assert "`--take" not in refused.output
    lead_on(run, refused, ("merge", one, two), ("merge", two, one))
    assert numbers(Table.open(str(one))) == numbers(Table.open(str(two))) == [0, 1, 100, 200]


@pytest.mark.hazard("W18")
def test_w18_columns_of_two_types_of_a_branch_are_told_with_commands_that_lead_on(tmp_path):
    run = lambda *words: CliRunner().invoke(build(), [*map(str, words)])
    table = Table.create(str(tmp_path / "t"), events(1).schema, time_column="at")
    append(table, events(2))
    for t, kind, number in ((table.branch("audit"), pa.int64(), 100), (table, pa.string(), 200)):
        t.add_columns(events(1).schema.append(pa.field("x", kind)))
        one_more(t, number)
    refused = run("merge", "--branch", "audit", table.uri)
    lead_on(run, refused, ("merge", "--branch", "audit", table.uri))
    assert numbers(table) == [0, 1, 100, 200]


def lead_on(run, refused, *merges):
    """Run the two commands that a message names, and the merges after them."""
    named = [shlex.split(part.split("`")[0]) for part in refused.output.split("`eventlog ")[1:]]
    assert [words[0] for words in named] == ["columns", "columns"]
    for words in (*named, *merges):
        assert run(*words).exit_code == 0
