"""Any history, any order of arrival and loss: the states are those of the definition."""

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrivals import Arrivals

from eventlog.recovery.lineage import Change, Member, members
from eventlog.recovery.overshadowing import resolve


@dataclass
class History:
    """Transactions that a log would accept, with the rows of every segment."""

    changes: list = field(default_factory=list)
    rows: dict = field(default_factory=dict)
    live: list = field(default_factory=list)
    appended: set = field(default_factory=set)

    def append(self, count):
        self._change([[len(self.rows) * 100 + n * 10 + r for r in range(6)] for n in range(count)])
        self.appended.update(self.changes[-1].adds)

    def replace(self, picks, parts):
        """Deal the rows of some live segments into new ones."""
        drops = self._picked(picks)
        rows = [row for name in drops for row in self.rows[name]]
        self._change([rows[n::parts] for n in range(parts)], drops, exact=True)

    def overwrite(self, picks):
        """Put other rows in the place of some live segments."""
        self._change([[-len(self.rows)]], self._picked(picks))

    def _picked(self, picks):
        return list(dict.fromkeys(self.live[pick % len(self.live)] for pick in picks))

    def _change(self, parts, drops=(), *, exact=False):
        adds = [f"s{len(self.rows) + n}" for n in range(len(parts))]
        self.rows.update(zip(adds, parts, strict=True))
        self.live = [name for name in self.live if name not in drops] + adds
        self.changes.append(Change(tuple(adds), tuple(drops), exact=exact))


some = st.integers(0, 99)
appends = st.tuples(st.just("append"), st.integers(1, 3))
replaces = st.tuples(st.just("replace"), st.lists(some, min_size=1, max_size=4), st.integers(1, 3))
overwrites = st.tuples(st.just("overwrite"), st.lists(some, min_size=1, max_size=3))


@st.composite
def histories(draw, *, steps=(appends, replaces, replaces)):
    history = History()
    history.append(draw(st.integers(1, 3)))
    for verb, *args in draw(st.lists(st.one_of(*steps), max_size=6)):
        getattr(history, verb)(*args)
    return history


def everyone(history):
    """The members of all transactions, replaced ones too: none was an overwrite."""
    found = members(history.changes)
    assert len(found) == len(history.rows)
    return list(found.values())


def sets(states):
    return states.visible, states.standby, states.overshadowed, states.missing


def defined(online, lost, known):
    """The states as FORMAT.md R14.9 to R14.12 define them, by trying every set of groups."""
    arrived = {m.id for m in (*online, *lost)}
    there = {m.id for m in online}
    made_of = {m.group: m.overshadows for m in (*online, *lost, *known)}
    sets = [
        frozenset(chosen)
        for size in range(len(made_of) + 1)
        for chosen in itertools.combinations(made_of, size)
    ]

    def shadow(groups):
        return {name for group in groups for name in made_of[group]}

    def content(groups):
        return {name for group in groups for name in group}

    def in_order(groups):
        below = shadow(groups)
        return all(group in groups or group.isdisjoint(below) for group in made_of)

    formed = frozenset().union(
        *(s for s in sets if in_order(s) and content(s) <= arrived | shadow(s))
    )
    fell = set()
    for group in formed:
        if group & (content(formed) - shadow(formed)) & (arrived - there):
            falls = [
                s
                for s in sets
                if group in s
                and s <= formed
                and in_order(formed - s)
                and all(made_of[g] for g in s)
                and shadow(s) - content(s) <= there
            ]
            if falls:
                fell |= frozenset.intersection(*falls)
    in_force = formed - fell
    front = content(in_force) - shadow(in_force)
    hidden = content(in_force) & shadow(in_force) & there
    return front & there, there - front - hidden, hidden, front - there


@st.composite
def arrivals(draw):
    """A history, and members that arrive, go and come back; of the rest some are known."""
    history = draw(histories())
    everybody = draw(st.permutations(everyone(history)))
    came = draw(st.integers(0, len(everybody))) if draw(st.booleans()) else len(everybody)
    events = [("add", m) for m in everybody[:came]]
    for member in everybody[:came]:
        if draw(st.integers(0, 3)) == 0:
            first = events.index(("add", member))
            at = draw(st.integers(first + 1, len(events)))
            events.insert(at, ("remove", member))
            if draw(st.integers(0, 3)) == 0:
                events.insert(draw(st.integers(at + 1, len(events))), ("add", member))
    known = [member for member in everybody[came:] if draw(st.booleans())]
    return history, events, known


def sets_of(events):
    last = {member: verb for verb, member in events}
    online, lost = [], []
    for member, verb in last.items():
        {"add": online, "remove": lost}[verb].append(member)
    return online, lost


@pytest.mark.scenario("S2.2")
@given(arrivals())
def test_s2_2_step_by_step_the_states_are_those_that_are_defined(case):
    _, events, known = case
    for done in range(len(events) + 1):
        online, lost = sets_of(events[:done])
        states = resolve(online, lost=lost, known=known)
        assert states == resolve(online[::-1], lost=lost[::-1], known=known[::-1])
        assert states == resolve(online, lost=[*lost, *online], known=[*known, *lost])
    assert sets(states) == defined(online, lost, known)


@given(arrivals())
def test_no_row_is_seen_twice_and_none_that_came_is_lost_unsaid(case):
    history, events, _ = case
    reader = Arrivals(known=everyone(history))
    arrived = set()
    for verb, member in events:
        getattr(reader, verb)(member.id if verb == "remove" else member)
        if verb == "add":
            arrived.add(member.id)
        seen = [row for name in reader.visible for row in history.rows[name]]
        assert len(seen) == len(set(seen))
        if history.appended <= arrived:
            gone = [row for name in reader.missing for row in history.rows[name]]
            everything = {row for name in history.appended for row in history.rows[name]}
            assert len(seen) + len(gone) == len(everything)
            assert everything == {*seen, *gone}


@given(histories(steps=(appends, replaces, replaces, overwrites)), st.lists(some, max_size=4))
def test_what_the_log_says_is_visible_and_what_is_fallen_back_on_has_its_rows(history, lose):
    found = list(members(history.changes).values())
    reader = Arrivals(found)
    assert reader.visible == frozenset(history.live)
    for pick in lose:
        reader.remove(found[pick % len(found)].id)
    wanted = sorted(row for name in history.live for row in history.rows[name])
    seen = sorted(row for n in reader.visible | reader.missing for row in history.rows[n])
    assert seen == wanted


@given(histories())
def test_the_order_of_arrival_of_known_members_is_all_the_same(history):
    everybody = everyone(history)
    forwards, backwards = resolve(everybody), resolve(everybody[::-1])
    assert forwards == backwards
    assert forwards.visible == frozenset(history.live)
    assert resolve([Member("lone")]).visible == {"lone"}
