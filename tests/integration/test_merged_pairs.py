"""Any two of a table, its branches, their branches and copies of these are merged by the program.

Where the program refuses, the commands that its message names lead on.
"""

import itertools
import re
import shlex

import pytest
from click.testing import CliRunner
from support.builders import create, events, sorted_names

from eventlog import Table
from eventlog.cli.program import build
from eventlog.replication import follow
from eventlog.store.memory import MemoryStore
from eventlog.writers import append

BRANCH, DEEP = "/_branches/one", "/_branches/one/_branches/two"
# Which store each is in, and where.
FAMILY = {
    "table": (0, ""),
    "copy": (1, ""),
    "branch": (0, BRANCH),
    "branch of the branch": (0, DEEP),
    "copy of the branch": (2, ""),
    "copy of the branch of the branch": (3, ""),
}
COPY_OF = "branch of the branch"  # what the one that shares least with the others is a copy of
PROGRAM = build()


@pytest.fixture(scope="module")
def objects():
    """What is in each of the stores."""
    stores = [MemoryStore() for _ in range(4)]
    table = create(stores[0])
    append(table, events(2))
    follow(table, Table(stores[1]))
    branch = table.branch("one")
    for number in (10, 11):
        append(branch, events(1, first=number))
    deep = branch.branch("two")
    append(deep, events(1, first=20))
    follow(branch, Table(stores[2]))
    follow(deep, Table(stores[3]))
    return [all_of(store) for store in stores]


def all_of(store):
    return {row.key: store.get(row.key) for row in store.list("")}


class Places:
    """The family in stores of its own, and the program."""

    def __init__(self, objects):
        self.stores = [MemoryStore() for _ in objects]
        for store, found in zip(self.stores, objects, strict=True):
            for key, body in found.items():
                store.put_if_absent(key, body)

    def uri(self, name):
        number, path = FAMILY[name]
        return self.stores[number].uri + path

    def everything(self):
        return [all_of(store) for store in self.stores]

    def names(self, name):
        return sorted_names(Table.open(self.uri(name)))

    def run(self, *words):
        return CliRunner().invoke(PROGRAM, [*words])

    def joined(self, source, target):
        """Merge, as the dry run tells before; where it is refused, by the commands that it names.

        Returns: the output of what led to the end.
        """
        words, before = ("merge", self.uri(source), self.uri(target)), self.everything()
        tried = self.run(*words, "--dry-run")
        assert self.everything() == before
        done = self.run(*words)
        assert tried.exit_code == done.exit_code, done.output
        if done.exit_code:
            assert self.everything() == before
            named = re.findall(r"`eventlog ([^`]*)`", done.output)
            assert named, done.output
            for command in named:
                of = [self.uri(COPY_OF) if w == "TABLE" else w for w in shlex.split(command)]
                done = self.run(*of)
        assert done.exit_code == 0, done.output
        return done.output

    def rows_of_both(self, source, target):
        return sorted({*self.names(source), *self.names(target)})

    def both_ways(self, source, target):
        """Return the rows that both have in the end."""
        both = self.rows_of_both(source, target)
        self.joined(source, target)
        assert self.names(target) == both
        self.joined(target, source)
        assert self.names(source) == both
        assert "nothing to merge" in self.joined(source, target)
        return self.names(target)


@pytest.mark.sample(10, verify=18)
@pytest.mark.hazard("W18")
@pytest.mark.parametrize(("source", "target"), [*itertools.permutations(FAMILY, 2)])
def test_w18_any_two_of_a_family_are_merged_into_one_that_did_nothing(objects, source, target):
    family = Places(objects)
    wanted = family.rows_of_both(source, target)
    assert family.both_ways(source, target) == wanted


@pytest.mark.sample(5, verify=9)
@pytest.mark.hazard("W18")
@pytest.mark.parametrize(("source", "target"), [*itertools.combinations(FAMILY, 2)])
def test_w18_any_two_of_a_family_that_both_went_on_are_merged(objects, source, target):
    family = Places(objects)
    for number, name in enumerate((source, target), 98):
        append(Table.open(family.uri(name)), events(1, first=number))
    wanted = family.rows_of_both(source, target)
    assert {"row 98", "row 99"} <= {*wanted}
    assert family.both_ways(source, target) == wanted


def test_what_a_target_that_did_nothing_copies_as_it_is_is_told(objects):
    family = Places(objects)
    append(Table.open(family.uri("table")), events(1, first=99))
    told = family.joined("table", "copy")
    assert f"of {family.uri('table')} as they are" in told


@pytest.mark.hazard("W18")
@pytest.mark.parametrize("source", ["branch", "branch of the branch"])
def test_w18_what_holds_a_branch_is_not_left_in_the_table_that_it_is_merged_into(objects, source):
    family = Places(objects)
    append(Table.open(family.uri("branch")), events(1, first=99))
    family.joined(source, "table")
    table = Table.open(family.uri("table"))
    for parent, name in ((table.uri + BRANCH, "two"), (table.uri, "one")):
        Table.open(parent).delete_branch(name)
    assert table.refresh().meta.pins == {}
