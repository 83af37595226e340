"""Publishing a branch: everything that it did, in one version, once."""

import shlex

import pyarrow as pa
import pytest
from click.testing import CliRunner
from support.builders import check_sound, create, events

from eventlog import Table, compaction, errors, replication
from eventlog.cli.program import build
from eventlog.clock import ManualClock
from eventlog.readers import scan
from eventlog.writers import append, overwrite

DAY_1 = {"start": "1970-01-02", "end": "1970-01-03"}


@pytest.fixture
def table():
    t = create()
    append(t, events(4, days=2))
    append(t, events(4, days=2, first=4))
    return t


def numbers(table):
    names = scan(table.refresh() and table).to_table().column("name").to_pylist()
    return sorted(int(name.removeprefix("row ")) for name in names)


def test_a_branch_is_published_in_one_version_and_again_when_it_goes_on(table):
    b = table.branch("audit")
    append(b, events(2, first=100), app_id="job", app_seq=1)
    overwrite(b, events(1, first=200, day=1), **DAY_1)
    b.set_properties({"user.checked": "yes"})
    b.add_columns(b.session.head().schema.append(pa.field("more", pa.int64())))
    compaction.run(b)
    append(table, events(1, first=300, day=1))
    before = table.refresh().version
    done = table.merge(b)
    assert (table.refresh().version, done.commits) == (before + 1, 1)
    assert numbers(table) == [0, 2, 4, 6, 100, 101, 200, 300]
    assert table.session.head().properties["user.checked"] == "yes"
    assert "more" in table.session.head().schema.names
    assert table.merge("audit").commits == 0
    append(table, events(2, first=100), app_id="job", app_seq=1)  # it is done
    append(b, events(1, first=400))
    assert table.merge(b).transactions == 1
    assert numbers(table) == [0, 2, 4, 6, 100, 101, 200, 300, 400]
    table.delete_branch("audit")
    assert numbers(table) == [0, 2, 4, 6, 100, 101, 200, 300, 400]
    check_sound(table.store)


def test_the_mark_of_an_app_is_the_greatest_of_what_is_published(table):
    b = table.branch("audit")
    other = table.branch("other", at=b.session.head().version)
    append(b, events(1, first=100), app_id="job", app_seq=7)
    append(other, events(1, first=200), app_id="job", app_seq=5)
    replication.merge(other, b)
    table.merge(b)
    append(table, events(1, first=100), app_id="job", app_seq=7)  # it is done
    assert numbers(table) == [*range(8), 100, 200]


@pytest.mark.hazard("G3")
def test_branches_that_were_merged_into_each_other_are_published_and_brought_up_to_date(table):
    at = table.session.head().version
    joint, one, two = (table.branch(name, at=at) for name in ("joint", "one", "two"))
    append(table, events(1, first=50))
    for first, b in ((100, one), (200, two), (500, joint)):
        append(b, events(1, first=first))
    replication.merge(table, one)
    for b in (one, two):
        replication.merge(b, joint)
    table.merge(joint)
    assert numbers(table) == [*range(8), 50, 100, 200, 500]
    replication.merge(table, two)
    assert numbers(two) == numbers(table)
    replication.merge(joint, two)
    append(one, events(1, first=600))
    table.merge(one)
    replication.merge(table, two)
    assert table.merge(two).segments == 0
    assert table.merge(two).commits == 0
    assert numbers(table) == numbers(two) == [*range(8), 50, 100, 200, 500, 600]


def test_a_restore_on_a_branch_is_published_beside_what_was_written_to_the_table(table):
    b = table.branch("audit")  # its pin is a commit of the table
    append(b, events(1, first=100))
    before = b.refresh().version
    overwrite(b, events(0), **DAY_1)
    b.restore(before)
    append(b, events(1, first=200))
    table.merge(b)
    assert numbers(table) == numbers(b) == [*range(8), 100, 200]
    b.restore(before)
    append(table, events(1, first=300))
    table.merge(b)  # what it undid, and not what the table did
    assert numbers(table) == [*range(8), 100, 300]


def test_a_conflict_commits_nothing(table):
    b = table.branch("audit")
    append(b, events(1, first=100))
    overwrite(b, events(0), **DAY_1)
    overwrite(table, events(1, first=300, day=1), **DAY_1)
    before = table.session.head().version
    named = f"`eventlog merge --branch audit {shlex.quote(table.uri)} --take source`"
    with pytest.raises(errors.CommitConflict, match="nothing was committed") as refused:
        table.merge(b)
    assert named in str(refused.value)
    assert [left.versions for left in table.merge(b, take="target", dry_run=True).left_out] == [
        (5,)
    ]
    assert table.refresh().version == before
    table.merge(b, take="source")
    assert numbers(table) == numbers(b)
    assert table.merge(b).commits == 0


def test_what_is_no_branch_of_the_table_is_refused(table):
    b = table.branch("one")
    with pytest.raises(errors.InvalidInput, match="is no branch of"):
        b.merge(table)
    with pytest.raises(errors.InvalidInput, match="is no branch of"):
        table.merge(create(seed=5))
    with pytest.raises(errors.TableNotFound):
        table.merge("two")


def test_a_branch_of_a_branch_is_published_step_by_step(table):
    b = table.branch("one")
    append(b, events(1, first=100))
    c = b.branch("two")
    append(c, events(1, first=200))
    b.merge(c)
    table.merge(b)
    assert numbers(table) == [*range(8), 100, 200]
    assert table.merge(b).commits == 0
    with pytest.raises(errors.InvalidInput, match="is no branch of"):
        table.merge(c)


def test_two_publish_at_once_and_it_is_there_once(table):
    b = table.branch("audit")
    append(b, events(3, first=100))
    other = Table.open("", store=table.store, clock=ManualClock(1_600_000_900_000, 9))
    real = other.session.commit

    def overtaken(transaction):
        table.merge("audit")
        other.session.commit = real
        return real(transaction)

    other.session.commit = overtaken
    assert other.merge("audit").commits == 0
    assert numbers(table) == [*range(8), 100, 101, 102]


def test_the_command_publishes_and_joins(tmp_path):
    root = (tmp_path / "t").as_uri()
    t = Table.create(root, events().schema, time_column="at")
    append(t, events(2))
    run = lambda *args: CliRunner().invoke(build(), args)
    b = t.branch("audit")
    append(b, events(1, first=100))
    published = run("merge", root, "--branch", "audit")
    assert "1 transaction carried in 1 version, 1 segment" in published.output
    assert "nothing to merge" in run("merge", root, "--branch", "audit").output
    assert "give a TARGET" in run("merge", root).output
    copy = (tmp_path / "copy").as_uri()
    assert run("replicate", root, copy).exit_code == 0
    append(t, events(1, first=200))
    append(Table.open(copy), events(1, first=300))
    assert '"transactions":1' in run("merge", root, copy, "--json").output.replace(" ", "")
    assert run("merge", copy, root).exit_code == 0
    assert numbers(t) == numbers(Table.open(copy)) == [0, 1, 100, 200, 300]
    assert "merged from" in run("show", root).output
