"""Programs that die, or race, while they make, write to or delete a branch."""

from contextlib import suppress

import pytest
from support.builders import check_sound, create, events, row_names
from support.crashes import ENDS, HOWS, MortalStore, fresh, sweep

from eventlog import Table, errors, readers
from eventlog.fsck.check import fsck
from eventlog.model.actions import SetPin, Unpin
from eventlog.model.records import Pin
from eventlog.store.branching.branch import BranchStore
from eventlog.store.memory import MemoryStore
from eventlog.table.branching.making import pin_actions
from eventlog.writers import append, overwrite

pytestmark = pytest.mark.usefixtures("in_turn")

MOST = 40  # calls of one operation
ROWS = [f"row {n}" for n in range(4)]


def table_in(store):
    table = create(store)
    append(table, events(4))
    return table


def on(store, name, seed):
    branch = BranchStore(store, name)
    return Table(branch, fresh(store, seed).clock)


QUICK = ("before", "lost")
hows = pytest.mark.parametrize(
    "how",
    [pytest.param(h, marks=[] if h in QUICK else pytest.mark.long) for h in (*HOWS, "half")],
)


def dies_everywhere(act, prepare, how):
    """Yield the store after a death at each call of `act`, until it needs no more calls."""
    for at in range(1, MOST):
        store = MemoryStore()
        prepare(store)
        mortal = MortalStore(store, at, how)
        try:
            act(mortal)
        except ENDS:
            assert mortal.calls >= at
        if mortal.calls < at:
            return
        yield store
    raise AssertionError(f"more than {MOST} calls")


def make(store, seed=100):
    return fresh(store, seed).branch("audit")


def remade(store, seed):
    """What a program does that starts again: it makes the branch, or finds that it is there."""
    try:
        return make(store, seed)
    except errors.AlreadyExists:
        return on(store, "audit", seed)


@hows
def test_a_death_while_a_branch_is_made_leaves_at_most_what_the_next_one_goes_on_with(how):
    deaths = 0
    for store in dies_everywhere(make, table_in, how):
        deaths += 1
        assert fsck(fresh(store, 110)).errors == 0
        branch = remade(store, 120)
        append(branch, events(1, first=10))
        (found,) = fresh(store, 130).branches()
        assert (found.held, found.unfinished) == (True, False)
        assert found.head == found.fork + 1
        assert row_names(on(store, "audit", 140)) == [*ROWS, "row 10"]
        assert fsck(fresh(store, 150)).findings == fsck(on(store, "audit", 160)).findings == ()
        assert row_names(check_sound(store)) == ROWS
    assert deaths > 6


def with_branch(store):
    table = table_in(store)
    branch = table.branch("audit")
    append(branch, events(2, first=10))
    append(table, events(1, first=20))


@hows
def test_a_death_while_a_branch_is_deleted_leaves_what_can_be_deleted_again(how):
    deaths = 0
    for store in dies_everywhere(lambda s: fresh(s, 100).delete_branch("audit"), with_branch, how):
        deaths += 1
        table = fresh(store, 120)
        if (found := table.branches()) and not found[0].unfinished:
            assert row_names(on(store, "audit", 130)) == [*ROWS, "row 10", "row 11"]
        else:
            with pytest.raises(errors.TableNotFound):
                on(store, "audit", 130).session.head()
        try:
            table.delete_branch("audit")
        except errors.TableNotFound:
            assert not found
        assert fresh(store, 140).branches() == []
        assert not list(store.list("_branches/"))
        assert not table.refresh().meta.pins
        assert row_names(check_sound(store)) == [*ROWS, "row 20"]
        make(store, 150)
    assert deaths > 6


@hows
def test_a_death_while_a_branch_is_written_to_is_as_in_any_table(how):
    def write(store, seed=100):
        append(on(store, "audit", seed), events(2, first=30), app_id="job", app_seq=1)

    deaths = 0
    for store in dies_everywhere(write, with_branch, how):
        deaths += 1
        write(store, 120)
        branch = check_sound(BranchStore(store, "audit"))
        assert row_names(branch) == [*ROWS, "row 10", "row 11", "row 30", "row 31"]
        assert row_names(check_sound(store)) == [*ROWS, "row 20"]
    assert deaths > 3


def test_another_program_at_every_moment_of_a_making():
    """What is there in the end is held by its pin, whoever made it, or nothing is there."""
    for other in (
        lambda store: make(store, 300),
        lambda store: fresh(store, 300).branch("audit", at=0),
        lambda store: fresh(store, 300).delete_branch("audit"),
        lambda store: append(fresh(store, 300), events(1, first=70)),
    ):
        for pause in range(1, MOST):
            store, said = MemoryStore(), []
            table_in(store)

            def meanwhile(store=store, said=said, other=other):
                try:
                    other(store)
                except (errors.AlreadyExists, errors.TableNotFound) as error:
                    said.append(error)

            mortal = MortalStore(store, pause=pause, meanwhile=meanwhile)
            made = None
            try:
                made = make(mortal)
            except (errors.AlreadyExists, errors.CommitConflict) as error:
                said.append(error)
            if mortal.calls < pause:
                break
            found = fresh(store, 400).branches()
            assert all(b.held or b.unfinished for b in found), (pause, found, said)
            if made is not None:
                assert [b.unfinished for b in found] == [False]
                append(made, events(1, first=10))
                assert "row 10" in row_names(on(store, "audit", 410))
            assert fsck(fresh(store, 420)).errors == 0
            check_sound(store)


def test_a_making_that_dies_beside_a_deletion_leaves_nothing_that_takes_rows():
    """Of a branch that no pin holds, which the program that made it does not know of."""
    unheld = 0
    for at in range(2, MOST):
        for pause in range(1, at + 1):
            store = MemoryStore()
            table_in(store)

            def meanwhile(store=store):
                with suppress(errors.TableNotFound):
                    fresh(store, 300).delete_branch("audit")

            mortal = MortalStore(store, at, pause=pause, meanwhile=meanwhile)
            with suppress(*ENDS):
                make(mortal)
            for found in fresh(store, 400).branches():
                if found.unfinished or found.held:
                    continue
                unheld += 1
                with pytest.raises(errors.CommitConflict, match="create it again"):
                    append(on(store, "audit", 410), events(1, first=10))
                fresh(store, 420).delete_branch("audit")
                append(make(store, 430), events(1, first=10))
                assert fsck(fresh(store, 440)).errors == 0
        if mortal.calls < at:
            assert unheld
            return
    raise AssertionError(f"more than {MOST} calls")


def test_a_making_at_every_moment_of_a_deletion():
    for pause in range(1, MOST):
        store, said = MemoryStore(), []
        with_branch(store)

        def meanwhile(store=store, said=said):
            try:
                make(store, 300)
            except (errors.AlreadyExists, errors.InvalidInput) as error:
                said.append(error)

        mortal = MortalStore(store, pause=pause, meanwhile=meanwhile)
        fresh(mortal, 100).delete_branch("audit")
        if mortal.calls < pause:
            break
        found = fresh(store, 400).branches()
        assert all(b.held or b.unfinished for b in found), (pause, found, said)
        assert fsck(fresh(store, 420)).errors == 0


def test_a_pin_that_is_taken_over_never_rises():
    known = Pin(3, "someone", 4, 0)
    assert pin_actions("branch:x", 9, known) == [
        Unpin("branch:x", "someone", 4),
        SetPin("branch:x", 3, "eventlog branch"),
    ]
    assert pin_actions("branch:x", 2, known)[1].version == 2
    assert pin_actions("branch:x", 9, None) == [SetPin("branch:x", 9, "eventlog branch")]


def with_drops(store):
    """A table whose versions have segments that the newest one dropped."""
    table = table_in(store)
    overwrite(table, events(2, first=40), start="1970-01-01", end="1970-01-02")
    append(table, events(1, first=50))
    overwrite(table, events(1, first=60), start="1970-01-01", end="1970-01-02")
    return table


SHOWN = {1: ROWS, 2: ["row 40", "row 41"], 3: ["row 40", "row 41", "row 50"], 4: ["row 60"]}


def check_held(store, at):
    """Check that a branch that was forked at a version has all that it is promised."""
    branch = on(store, "audit", 600)
    held = branch.store.forks[0].held
    assert at is None or held == at
    for version in range(held, min(branch.refresh().version, 4) + 1):
        found = readers.scan(on(store, "audit", 610), version=version).to_table()
        assert sorted(found.column("name").to_pylist()) == SHOWN[version], version
    assert fsck(on(store, "audit", 620), checksums=True).errors == 0
    if at is not None:
        on(store, "audit", 630).restore(at)
        sweep(fresh(store, 640))
        assert row_names(on(store, "audit", 650)) == SHOWN[at]


@pytest.mark.verify
@pytest.mark.hazard("V2")
@pytest.mark.parametrize(
    "at", [None, 2, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 3))]
)
def test_v2_a_vacuum_at_every_moment_of_a_making_and_the_other_way_round(at):
    for making_first in (True, False):
        for pause in range(1, MOST):
            store, refused = MemoryStore(), []
            with_drops(store)

            def fork(place, refused=refused):
                try:
                    fresh(place, 200).branch("audit", at)
                except (errors.VersionVacuumed, errors.CommitConflict) as error:
                    refused.append(error)

            def clean(place):
                sweep(fresh(place, 210))

            first, second = (fork, clean) if making_first else (clean, fork)
            mortal = MortalStore(
                store, pause=pause, meanwhile=lambda store=store, second=second: second(store)
            )
            first(mortal)
            if mortal.calls < pause:
                break
            sweep(fresh(store, 500))
            assert not refused or at is not None
            if not refused:
                check_held(store, at)
