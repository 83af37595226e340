"""Tags: names of versions, which hold them as pins do and stand wherever a version does."""

import re

import pytest
from support import builders

from eventlog.compaction import plan
from eventlog.errors import CommitConflict, InvalidInput, VersionNotFound
from eventlog.fsck.check import fsck
from eventlog.model.actions import Horizon
from eventlog.publishing import publish
from eventlog.readers import changes, count, dataset, files, scan
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite

NAME = "report-2013"


@pytest.fixture
def table():
    """Four rows; version 1 has two of them, and a tag."""
    made = builders.create(MemoryStore())
    append(made, builders.events(2))
    append(made, builders.events(2, first=2))
    made.tag(NAME, 1)
    return made


def test_a_tag_stands_wherever_a_version_does(table):
    assert scan(table, version=NAME).to_table().num_rows == 2
    assert count(table, version=NAME) == dataset(table, NAME).count_rows() == 2
    assert [one.rows for one in files(table, version=NAME)] == [2]
    assert table.snapshot(NAME).version == 1
    assert table.diff(NAME, 2).added == table.diff(1, 2).added != ()
    assert [entry.version for entry in table.history(NAME)] == [1, 0]
    assert changes(table, NAME, 2).to_table().num_rows == 2
    assert changes(table, 0, NAME).to_table().num_rows == 2
    assert table.undone_units(NAME) == ()
    assert table.pin("mine", NAME) == table.tag("same", NAME) == 1
    assert plan(table, version=NAME).version == 1
    assert fsck(table, version=NAME).segments_version == 1
    table.restore(NAME)
    assert table.count() == 2


def test_an_overwrite_of_a_tagged_version_keeps_later_rows(table):
    overwrite(table, builders.events(1, first=8), read_version=NAME, missing="null")
    names = scan(table).to_table().column("name").to_pylist()
    assert sorted(names) == ["row 2", "row 3", "row 8"]


def test_branches_and_publications_start_and_end_at_a_tag(tmp_path):
    table = builders.create(LocalStore(str(tmp_path)))
    append(table, builders.events(2))
    table.tag(NAME)
    append(table, builders.events(2, first=2))
    branch = table.branch("audit", NAME)
    assert branch.count() == 2
    done = publish(table, "delta", version=NAME)
    assert done.last == 1


def test_a_handle_finds_the_tag_that_another_one_set(table):
    other = builders.reopen(table.store)
    table.tag("later", 2)
    assert scan(other, version="later").version == 2
    assert scan(builders.reopen(table.store), version="later").version == 2


def test_a_tag_holds_its_version_until_anybody_removes_it(table):
    refused = table.transaction("vacuum", [Horizon(2)])
    with pytest.raises(CommitConflict, match=NAME):
        table.commit(refused)
    other = builders.reopen(table.store)
    with pytest.raises(CommitConflict, match="untag"):
        other.unpin(NAME)
    other.untag(NAME)
    assert other.tags() == {}
    table.refresh()
    builders.commit(table, Horizon(2), operation="vacuum")
    assert [entry.operation for entry in table.history(limit=3)] == ["vacuum", "untag", "tag"]


def test_setting_a_tag_again_changes_nothing_and_never_moves_it(table):
    before = table.refresh().version
    assert table.tag(NAME) == table.tag(NAME, 1) == 1
    assert table.refresh().version == before
    with pytest.raises(CommitConflict, match="names version 1: untag it"):
        table.tag(NAME, 2)
    with pytest.raises(CommitConflict, match="names version 1: untag it"):
        table.pin(NAME)
    assert table.tags() == {NAME: 1}


def test_pins_name_versions_too_but_not_those_of_branches(tmp_path):
    table = builders.create(LocalStore(str(tmp_path)))
    append(table, builders.events(2))
    table.pin("audit", 0)
    table.branch("fix")
    assert table.snapshot("audit").version == 0
    with pytest.raises(VersionNotFound):
        table.snapshot("branch:fix")
    with pytest.raises(InvalidInput, match="no tag 'audit'"):
        table.untag("audit")
    assert table.tags() == {}


@pytest.mark.parametrize("name", ["report-2014", "Report-2013", "x y", "branch:fix"])
def test_an_unknown_name_lists_the_tags(table, name):
    with pytest.raises(VersionNotFound, match=r"tags: report-2013 \(1\)"):
        scan(table, version=name)


@pytest.mark.parametrize("given", ["1", "-1", "", True, 1.0])
def test_what_is_neither_number_nor_name_is_refused(table, given):
    with pytest.raises(InvalidInput, match="version"):
        table.snapshot(given)


@pytest.mark.parametrize(
    "name",
    ["7", "-1", "+3", "٣", "2013-01-07", "2013-01-07T05", "a@b", "a/b", "a b", "a\tb", "a\x1b",
     "-x", "branch:x", "main", "", "x" * 256, 7],
)  # fmt: skip
def test_names_that_read_as_something_else_are_refused(table, name):
    before = table.refresh().version
    with pytest.raises(InvalidInput):
        table.tag(name)
    assert table.refresh().version == before


def test_one_name_has_one_spelling(table):
    composed, apart = "\xe9t\xe9", "e\u0301te\u0301"
    hint = re.escape(rf"which is '{ascii(apart)[1:-1]}': write '{composed}' ({composed!a})")
    with pytest.raises(InvalidInput, match=hint):
        table.tag(apart)
    table.tag(composed, 1)
    assert table.snapshot(composed).version == 1
    with pytest.raises(VersionNotFound, match=hint):
        table.snapshot(apart)
    with pytest.raises(InvalidInput, match=hint):
        table.untag(apart)


@pytest.mark.parametrize("name", ["7", "main", "plain"])
def test_a_pin_with_the_owner_of_tags_is_refused(table, name):
    before = table.refresh().version
    with pytest.raises(InvalidInput, match="`eventlog tag` sets"):
        table.pin(name, owner="eventlog tag")
    assert table.refresh().version == before


@pytest.mark.parametrize("name", ["v7", "7a", "2013-Q1", "größe", "a.b:c", "x" * 255])
def test_other_names_are_taken(table, name):
    table.tag(name, 0)
    assert table.snapshot(name).version == 0
