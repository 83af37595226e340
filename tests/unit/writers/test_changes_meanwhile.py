"""Deletes, updates, overwrites, merges and compactions of the same rows at once.

Each test places another writer's commit between what one writer found and its own commit: nothing
waits, and nothing fails. `Crossed.tries` counts the commits that were sent.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta

import msgspec
import pyarrow as pa
import pytest
from support.builders import SCHEMA, Spy, check_sound, create, events, live, reopen

from eventlog import errors
from eventlog.compaction import Policy, perform, plan, vacuum
from eventlog.format import keys
from eventlog.readers import count, scan
from eventlog.writers import append, delete, merge, overwrite, update

EMPTY = SCHEMA.empty_table()
POLICY = Policy(target_bytes=2**20, backoff_s=1)


class Crossed(Spy):
    """A store on which others commit just before a writer's commit arrives.

    Args:
        inner: the store.
        others: what they do, on a handle of their own, before one commit each.
    """

    def __init__(self, inner, others: Sequence[Callable]):
        super().__init__(inner)
        self.tries = 0
        self.read: list[str] = []
        self._others = list(others)
        self.before_put = self._cross

    def get(self, key, *, start=0, length=None):
        self.read.append(key)
        return super().get(key, start=start, length=length)

    def segments_read(self):
        """The keys of the segments that were read, sorted."""
        return sorted({key for key in self.read if keys.parse_segment_key(key)})

    def _cross(self, key):
        if key.startswith(keys.LOG_PREFIX):
            self.tries += 1
            if self._others:
                objects = len([*self.inner.list("")])  # never the same, so ids are other ones, too
                self._others.pop(0)(reopen(self.inner, 500 + objects))


def crossed(table, act, *others):
    """Do something while others commit; return its result and the store, which counted."""
    store = Crossed(table.store, others)
    result = act(reopen(store, 8))
    assert not store._others
    return result, store


def compact(t, policy=POLICY):
    """Rewrite each chunk of several segments as one."""
    tasks = plan(t, policy).tasks
    assert tasks
    for task in tasks:
        outcome = perform(t, task, policy)
        assert outcome.status == "done", outcome.error


def compact_under_a_claim(t):
    compact(t, msgspec.structs.replace(POLICY, claim_bytes=0))


def table_of(first=3, then=3, **options):
    """Rows in two segments of one chunk."""
    t = create(**options)
    append(t, events(first))
    append(t, events(then, first=first))
    return t


@pytest.fixture
def table():
    return table_of()


def values(*numbers, plus=0.0):
    return {n: n / 2 + plus for n in numbers}


def held(table):
    rows = scan(table, ["name", "value"]).to_table().to_pylist()
    found = {int(row["name"].removeprefix("row ")): row["value"] for row in rows}
    assert len(found) == len(rows) == count(table)
    return found


def checked(table):
    return held(check_sound(table.store))


def drop(*numbers):
    return lambda t: delete(t, where=where(*numbers))


def where(*numbers):
    names = ", ".join(f"'row {n}'" for n in numbers)
    return f"name in ({names})"


def raise_(plus, *numbers):
    return lambda t: update(t, {"value": f"value + {plus}"}, where(*numbers))


def one(n, value, at=0):
    return pa.table([[at], [f"row {n}"], [value]], schema=SCHEMA)


VERBS = {
    "delete": (drop(1, 4), {}),
    "update": (raise_(10, 1, 4), values(1, 4, plus=10)),
    "overwrite": (lambda t: overwrite(t, one(1, 7.0), where=where(1, 4)), {1: 7.0}),
    "merge": (
        lambda t: merge(t, pa.concat_tables([one(1, 7.0), one(4, 8.0)]), "name"),
        {1: 7.0, 4: 8.0},
    ),
}
each_verb = pytest.mark.parametrize("verb", VERBS)


# An append.


@pytest.mark.parametrize("verb", ["delete", "update", "overwrite"])
def test_rows_that_are_appended_meanwhile_are_not_searched(table, verb):
    act, made = VERBS[verb]

    def others(t):
        append(t, one(100, 0.5).set_column(1, "name", [["row 1"]]))
        drop(0)(t)  # so that the rows are found again

    done, store = crossed(table, act, others)
    names = scan(check_sound(table.store), ["name"], "value = 0.5 and name = 'row 1'")
    assert names.to_table().num_rows == 1
    assert (done.deleted, store.tries) == (2, 2)
    assert delete(table, where="name = 'row 1' and value = 0.5").deleted == 1
    assert checked(table) == values(2, 3, 5) | made


def test_a_merge_matches_rows_that_are_appended_meanwhile(table):
    done, store = crossed(
        table,
        lambda t: merge(t, pa.concat_tables([one(1, 7.0), one(9, 9.0)]), "name"),
        lambda t: append(t, one(9, 1.0)),
        lambda t: append(t, one(8, 8.0)),
    )
    assert checked(table) == values(0, 2, 3, 4, 5) | {1: 7.0, 8: 8.0, 9: 9.0}
    assert (done.deleted, done.added) == (2, 2)
    assert store.tries <= 3


@pytest.mark.parametrize("verb", ["delete", "update", "overwrite"])
def test_rows_that_are_appended_meanwhile_are_a_conflict_when_serializable(table, verb):
    acts = {
        "delete": lambda t: delete(t, where=ever, isolation="serializable"),
        "update": lambda t: update(t, {"value": "0"}, ever, isolation="serializable"),
        "overwrite": lambda t: overwrite(t, EMPTY, where=ever, isolation="serializable"),
    }
    ever = "at < timestamp '1970-01-02' and value < 1"
    before = held(table)
    with pytest.raises(errors.CommitConflict, match="version 3 added rows to chunk 1970-01-01"):
        crossed(table, acts[verb], lambda t: append(t, one(9, 0.0)))
    assert checked(table) == before | {9: 0.0}
    done, store = crossed(table, acts[verb], lambda t: append(t, events(1, day=5, first=70)))
    assert (done.deleted, store.tries) == (3, 2)


# Another delete or update of other rows of the segment.


@each_verb
def test_deletes_of_other_rows_of_a_segment_are_united(table, verb):
    act, made = VERBS[verb]
    done, store = crossed(table, act, drop(0, 5), drop(2))
    assert checked(table) == values(3) | made
    assert done.deleted == 2
    assert store.tries == 3


def test_segments_are_not_read_again_to_unite_deletes(table):
    _, store = crossed(table, drop(1, 4), drop(0, 5))
    read = [key for key in store.read if keys.parse_segment_key(key)]
    again = Crossed(table_of().store, [])
    drop(1, 4)(reopen(again, 8))
    assert len(read) == len([key for key in again.read if keys.parse_segment_key(key)])
    assert checked(table) == values(2, 3)


@each_verb
def test_updates_of_other_rows_of_a_segment_both_count(table, verb):
    act, made = VERBS[verb]
    _, store = crossed(table, act, raise_(100, 0, 3))
    assert checked(table) == values(2, 5) | values(0, 3, plus=100) | made
    assert store.tries == 2


@each_verb
def test_rows_that_others_leave_where_they_are_are_not_read_again(table, verb):
    act, made = VERBS[verb]
    _, store = crossed(table, act, drop(0, 3))
    assert checked(table) == values(2, 5) | made
    assert store.tries == 2
    read = [key for key in store.read if keys.parse_segment_key(key)]
    assert sorted(read) == store.segments_read()
    assert len(read) == 2


@each_verb
def test_what_empties_a_segment_together_drops_it(table, verb):
    act, made = VERBS[verb]
    crossed(table, act, drop(0, 2, 3, 5))
    assert checked(table) == made
    assert len(live(table.refresh())) == (1 if made else 0)


@each_verb
def test_rows_that_others_deleted_need_no_delete(table, verb):
    act, made = VERBS[verb]
    done, store = crossed(table, act, drop(1, 4))
    if verb == "update":  # there is no row any more whose value it could raise
        made = {}
    assert checked(table) == values(0, 2, 3, 5) | made
    assert done.deleted == 0
    assert store.tries == (2 if made else 1)


# An update of a row that this one changes, too.


def test_an_update_of_the_same_row_is_done_on_what_the_other_made_of_it(table):
    done, store = crossed(table, raise_(10, 0, 1, 4), raise_(100, 1, 2))
    assert checked(table) == (
        values(3, 5) | values(0, 4, plus=10) | values(2, plus=100) | values(1, plus=110)
    )
    assert (done.deleted, done.added, store.tries) == (3, 3, 2)


def test_updates_of_the_same_row_may_come_again_and_again(table):
    done, store = crossed(table, raise_(10, 1), *[raise_(100, 1, 2)] * 4)
    assert checked(table) == values(0, 3, 4, 5) | values(1, plus=410) | values(2, plus=400)
    assert (done.deleted, store.tries) == (1, 5)


def test_an_update_that_no_longer_selects_the_row_leaves_it(table):
    done, _ = crossed(
        table, lambda t: update(t, {"value": "value + 10"}, "value > 2"), raise_(-100, 5)
    )
    assert checked(table) == values(0, 1, 2, 3, 4) | values(5, plus=-100)
    assert done.deleted == 0


def test_a_delete_of_a_row_that_an_update_moved_finds_it(table):
    done, _ = crossed(
        table, drop(1, 4), lambda t: update(t, {"at": "timestamp '1999-01-01'"}, where(1, 2))
    )
    assert checked(table) == values(0, 2, 3, 5)
    assert done.deleted == 2


def test_rows_that_moved_several_times_are_found(table):
    def others(t):
        raise_(100, 1)(t)
        compact(t)
        raise_(100, 1, 0)(t)
        append(t, events(1, first=9))
        compact(t)

    done, store = crossed(table, raise_(10, 1, 4), others)
    assert checked(table) == (
        values(2, 3, 5, 9) | values(0, plus=100) | values(1, plus=210) | values(4, plus=10)
    )
    assert (done.deleted, store.tries) == (2, 2)


@pytest.mark.parametrize("verb", ["update", "overwrite"])
def test_rows_that_a_vacuum_has_deleted_are_not_tried_again_and_again(table, verb):
    act = {
        "update": raise_(10, 1),
        "overwrite": lambda t: overwrite(t, one(1, 7.0), where=where(1)),
    }[verb]

    def others(t):
        append(t, one(9, 4.5))
        vacuum(t, dry_run=False, retention=timedelta(0), staging=timedelta(0))

    store = Crossed(table.store, [others])
    with pytest.raises(errors.CommitConflict, match="write the rows again"):
        act(reopen(store, 8))
    assert len(store.read) < 50
    assert checked(table) == values(*range(6), 9)


def test_two_merges_of_one_new_key_add_it_once(table):
    crossed(
        table,
        lambda t: merge(t, one(9, 1.0), "name", when_matched={"value": "value + source.value"}),
        lambda t: merge(t, one(9, 100.0), "name"),
    )
    assert checked(table) == values(*range(6)) | {9: 101.0}


def test_a_merge_of_a_row_that_was_deleted_meanwhile_adds_it(table):
    done, _ = crossed(table, lambda t: merge(t, one(1, 7.0), "name"), drop(1, 2))
    assert checked(table) == values(0, 3, 4, 5) | {1: 7.0}
    assert (done.deleted, done.added) == (0, 1)


# A compaction of the same segments, committed first.


@each_verb
@pytest.mark.parametrize("order", [None, ["value"]])
def test_a_compaction_that_is_committed_first_is_searched_and_nothing_else(verb, order):
    table = table_of(order_by=order)
    append(table, events(3, day=3, first=6))  # a chunk of its own
    act, made = VERBS[verb]
    done, store = crossed(table, act, compact)
    assert checked(table) == values(0, 2, 3, 5, 6, 7, 8) | made
    assert (done.deleted, store.tries) == (2, 2)
    (other,) = [s for s in live(table.refresh()) if s.chunk == "1970-01-04"]
    assert store.read.count(keys.key_of(other)) <= 1


@each_verb
def test_a_compaction_with_deletes_of_others_before_and_after_it(table, verb):
    act, made = VERBS[verb]

    def others(t):
        drop(0)(t)
        compact(t)
        drop(5)(t)

    done, store = crossed(table, act, others)
    assert checked(table) == values(2, 3) | made
    assert (done.deleted, store.tries) == (2, 2)


# A delete that is committed while a compaction runs.


@each_verb
@pytest.mark.parametrize("order", [None, ["value"]])
@pytest.mark.parametrize("before", [(), (5,)])
def test_a_compaction_takes_over_what_was_deleted_while_it_ran(verb, order, before):
    table = table_of(order_by=order)
    if before:
        drop(*before)(table)
    act, made = VERBS[verb]
    _, store = crossed(table, compact, act, drop(2))
    assert checked(table) == values(*{0, 3, 5} - {*before}) | made
    assert store.tries == 3
    assert [s for s in live(table.refresh()) if s.version <= 2] == []


@each_verb
def test_a_compaction_under_a_claim_stops_no_change(table, verb):
    act, made = VERBS[verb]
    _, store = crossed(table, compact_under_a_claim, lambda t: None, act, drop(2))
    assert checked(table) == values(0, 3, 5) | made
    assert store.tries == 4
    assert table.refresh().meta.claims == {}


@each_verb
@pytest.mark.parametrize("order", [None, ["value"]])
def test_a_change_of_granularity_stops_no_change(verb, order):
    table = table_of(granularity="hour", order_by=order)
    table.set_granularity("day")
    act, made = VERBS[verb]
    crossed(table, compact_under_a_claim, lambda t: None, act, drop(2))
    assert checked(table) == values(0, 3, 5) | made
    assert {s.chunk for s in live(table.refresh())} == {"1970-01-01"}


def test_a_compaction_of_which_an_input_is_emptied_loses_no_row(table):
    (task,) = plan(table, POLICY).tasks

    def others(t):
        update(t, {"value": "7"}, where(0, 1, 2))
        drop(3, 4)(t)

    outcome, _ = crossed(table, lambda t: perform(t, task, POLICY), others)
    assert outcome.ok
    assert checked(table) == values(5) | dict.fromkeys(range(3), 7.0)


# An overwrite or a drop.


@each_verb
def test_what_is_dropped_needs_no_delete(table, verb):
    act, made = VERBS[verb]
    done, _ = crossed(table, act, lambda t: overwrite(t, events(1, first=50)))
    made = {} if verb == "update" else made
    assert checked(table) == values(50) | made
    assert done.deleted == 0


@pytest.mark.parametrize("verb", ["delete", "overwrite"])
def test_an_overwrite_of_the_range_drops_what_lost_rows_meanwhile(table, verb):
    act, made = VERBS[verb]
    crossed(table, lambda t: overwrite(t, events(1, first=50)), act)
    # Rows that came meanwhile stay, as appended ones do.
    assert checked(table) == values(50) | made


@pytest.mark.parametrize("verb", ["update", "merge"])
def test_an_overwrite_of_the_range_is_a_conflict_where_rows_were_updated_meanwhile(table, verb):
    act, made = VERBS[verb]
    with pytest.raises(errors.CommitConflict, match="no longer live"):
        crossed(table, lambda t: overwrite(t, events(1, first=50)), act)
    assert checked(table) == values(0, 2, 3, 5) | made


def read_modify_write(t):
    """Overwrite rows by what was made of them as of version 2, whatever came since."""
    rows = pa.concat_tables([one(1, 101.0), one(4, 104.0)])
    return overwrite(t, rows, where=where(1, 4), read_version=2)


CHANGED = {
    "updated": raise_(10, 1),
    "updated out of the predicate": lambda t: update(t, {"name": "'row 9'"}, where(1)),
    "overwritten": lambda t: overwrite(t, one(4, 7.0), where=where(4)),
    "deleted": drop(1),
    "merged": lambda t: merge(t, one(1, 7.0), "name"),
}


@pytest.mark.parametrize("change", CHANGED)
def test_rows_that_were_read_and_changed_since_are_not_overwritten(table, change):
    CHANGED[change](table)
    before = held(table)
    with pytest.raises(errors.CommitConflict, match="changed or deleted since"):
        read_modify_write(table)
    assert checked(table) == before


@pytest.mark.parametrize("change", CHANGED)
def test_rows_of_a_range_that_were_read_and_changed_since_are_not_overwritten(table, change):
    CHANGED[change](table)
    before = held(table)
    with pytest.raises(errors.CommitConflict, match="no longer live"):
        overwrite(table, events(6), read_version=2)
    assert checked(table) == before


@pytest.mark.parametrize("change", ["others updated", "appended", "compacted", "deleted others"])
def test_what_else_was_changed_since_the_rows_were_read_stays(table, change):
    acts = {
        "others updated": (raise_(10, 2), values(2, plus=10)),
        "appended": (lambda t: append(t, one(50, 5.0)), {50: 5.0}),
        "compacted": (compact, {}),
        "deleted others": (drop(2), {2: None}),
    }
    act, made = acts[change]
    act(table)
    read_modify_write(table)
    wanted = values(*range(6)) | {1: 101.0, 4: 104.0} | made
    assert checked(table) == {n: value for n, value in wanted.items() if value is not None}


def test_rows_that_came_after_those_that_were_read_are_not_overwritten_unseen(table):
    append(table, one(1, 5.0))
    compact(table)
    with pytest.raises(errors.CommitConflict, match="later ones into one segment"):
        read_modify_write(table)
    rows = scan(table, ["value"], where=where(1)).to_table().column("value").to_pylist()
    assert sorted(rows) == [0.5, 5.0]


def exchange_names(t):
    """Give `value` and `name` each other's name, and delete a row of the first segment."""
    for old, new in (("value", "other"), ("name", "value"), ("other", "name")):
        t.rename_column(old, new)
    delete(t, where="value = 'row 0'")


@pytest.mark.parametrize("verb", ["delete", "update"])
def test_columns_that_get_other_names_meanwhile_are_a_conflict(table, verb):
    act, _ = VERBS[verb]
    with pytest.raises(errors.CommitConflict, match="columns were changed since version 2"):
        crossed(table, act, exchange_names)
    left = scan(table, ["value"]).to_table().column("value").to_pylist()
    assert sorted(left) == [f"row {n}" for n in range(1, 6)]


@each_verb
def test_a_restore_meanwhile(table, verb):
    act, made = VERBS[verb]
    drop(2)(table)
    _, store = crossed(table, act, lambda t: append(t, events(1, first=60)), lambda t: t.restore(3))
    assert checked(table) == values(0, 3, 5) | made
    assert store.tries == 3


# Whatever happens, a change is made once.


@each_verb
def test_a_lost_answer_and_others_in_between(table, verb):
    act, made = VERBS[verb]
    store = Crossed(table.store, [drop(0), compact])
    put = store.put_if_absent
    lost = []

    def lose(key, body):
        landed = put(key, body)
        if landed and store.tries and not lost and key.startswith(keys.LOG_PREFIX):
            lost.append(key)
            raise errors.OutcomeUnknown("no answer")
        return landed

    store.put_if_absent = lose
    done = act(reopen(store, 8))
    assert lost
    assert checked(table) == values(2, 3, 5) | made
    assert done.deleted == 2
