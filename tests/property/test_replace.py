"""Rewrites in any order, of any plan: rows are neither lost nor doubled, whoever was first."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import check_sound, commit, create, drop_of, live, reopen

from eventlog import errors
from eventlog.model.actions import Add, Replace

DAYS = ("2013-01-07", "2013-01-08")
TARGETS = {"2013-01-07": ("2013-01-07", "2013-01-07T05", "2013-01"), "2013-01-08": DAYS[1:]}


class Rows:
    """A table, and which rows each of its segments was made to hold."""

    def __init__(self, keyframe_commits):
        self.table = create(properties={"keyframe_commits": str(keyframe_commits)})
        self.rows = {}
        self.made = 0

    def segment(self, chunk, rows):
        made = self.table.clock.random_id()
        self.rows[made] = tuple(rows)
        epoch = self.table.session.head().version
        return Add(made, chunk, epoch, len(rows), 100, made * 2, 1)

    def fresh(self, count):
        self.made += count
        return range(self.made - count, self.made)

    def append(self, day, count):
        commit(self.table, self.segment(DAYS[day], self.fresh(count)))

    def plan(self, day, pick, parts, lies):
        """Return a rewrite of some segments of a day as they are now; None: there are none.

        Args:
            day: which.
            pick: bits that say which of its segments.
            parts: how many outputs.
            lies: rows that it leaves out without a word, or (negative) takes twice.
        """
        head = self.table.refresh()
        inputs = [s for s in live(head) if s.chunk.startswith(DAYS[day]) or s.chunk == "2013-01"]
        inputs = [s for n, s in enumerate(inputs) if pick >> (n % 6) & 1]
        rows = [row for s in inputs for row in self.rows[s.id]]
        if not inputs or lies > len(rows) or (lies < 0 and not rows):
            return None
        rows = rows[max(lies, 0) :] + rows[:1] * max(-lies, 0)
        outputs = [self.segment(TARGETS[DAYS[day]][0], rows[n::parts]) for n in range(parts)]
        actions = [Replace(head.version, 0), *map(drop_of, inputs), *outputs]
        return self.table.transaction("compact", actions, read_version=head.version), inputs, lies

    def live_rows(self):
        return Counter(row for s in live(self.table.refresh()) for row in self.rows[s.id])


appends = st.tuples(st.just("append"), st.integers(0, 1), st.integers(1, 4))
plans = st.tuples(
    st.just("plan"),
    st.integers(0, 1),
    st.integers(1, 63),
    st.integers(1, 3),
    st.sampled_from((0, 0, 0, 1, -1)),
)
lands = st.tuples(st.just("land"), st.integers(0, 5))


@pytest.mark.hazard("K6")
@given(
    keyframe_commits=st.integers(1, 4),
    steps=st.lists(appends | plans | plans | lands, min_size=5, max_size=30),
)
def test_rewrites_in_any_order_keep_every_row_once(keyframe_commits, steps):
    world = Rows(keyframe_commits)
    world.append(0, 3)
    waiting = []
    for kind, *how in [*steps, *[("land", 0)] * len(steps)]:
        before = world.live_rows()
        if kind == "append":
            world.append(*how)
        elif kind == "plan":
            waiting += filter(None, [world.plan(*how)])
        elif waiting:
            transaction, inputs, lies = waiting.pop(how[0] % len(waiting))
            there = {s.id for s in live(world.table.session.head())}
            due = not lies and there.issuperset(s.id for s in inputs)
            try:
                world.table.commit(transaction)
            except errors.CommitConflict:
                assert not due
            else:
                assert due
            assert world.live_rows() == before
        assert world.live_rows() == Counter(range(world.made))
    check_sound(world.table.store)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 3), st.data())
def test_deletes_are_rows_that_a_rewrite_says_it_leaves_out(counts, deletes, data):
    table = create()
    commit(table, *(_segment(table, n) for n in counts))
    kept = data.draw(st.integers(0, sum(counts) + 1))
    actions = [
        Replace(1, deletes),
        *map(drop_of, live(table.session.head())),
        _segment(table, kept),
    ]
    if kept + deletes == sum(counts):
        commit(table, *actions, operation="compact")
        assert reopen(table.store).session.head().totals.rows == kept
    else:
        with pytest.raises(errors.CommitConflict, match="lost or duplicated"):
            commit(table, *actions, operation="compact")
        assert reopen(table.store).session.head().totals.rows == sum(counts)


def _segment(table, rows):
    made = table.clock.random_id()
    return Add(made, DAYS[0], table.session.head().version, rows, 100, made * 2, 1)
