"""S2: locks on segments and time chunks; overshadowing, atomic groups and fallback.

After Druid's proposal "Segment locking" (background compaction).
"""

import random
from itertools import permutations
from operator import attrgetter

import pytest
from support.arrivals import Arrivals
from support.builders import live
from support.replacements import replace, rewrite
from support.scenario_tables import chunks, cut_in, fresh, ids, names, objects, once, other, rows

from eventlog import errors
from eventlog.compaction.execute import perform
from eventlog.compaction.planner.planning import plan
from eventlog.compaction.policy import Policy
from eventlog.format import keys
from eventlog.log import spills
from eventlog.readers import scan
from eventlog.recovery.lineage import change_of, members
from eventlog.recovery.overshadowing import resolve
from eventlog.writers import append

POLICY = Policy(min_gain=0)


class Numbered:
    """A table whose segments are known by the numbers of the proposal's example."""

    def __init__(self, place):
        self.table, self.ids = fresh(place, inline_bytes="0"), {}

    def append(self, number):
        """Add segment `number`."""
        self._note(append(other(self.table), rows(number)), number)

    def start(self, drops, *numbers):
        """Begin to put other segments in the place of some; return what commits it."""
        inputs = [s for s in live(self.table.refresh()) if s.id in {self.ids[n] for n in drops}]
        compactor = other(self.table)
        transaction = rewrite(compactor, inputs, parts=len(numbers))
        return lambda: self._note(compactor.commit(transaction), *numbers)

    def visible(self):
        """The numbers of the live segments, in order."""
        known = {name: number for number, name in self.ids.items()}
        return sorted(known[name] for name in ids(self.table))

    def _note(self, version, *numbers):
        head = self.table.refresh()
        new = sorted((s for s in live(head) if s.version == version), key=lambda s: s.partition)
        self.ids.update(zip(numbers, (s.id for s in new), strict=True))


@pytest.mark.scenario("S2.1")
def test_s2_1_the_example_of_the_proposal_at_every_point(place):
    found = Numbered(place)
    for number in (1, 2, 3):
        found.append(number)
    assert found.visible() == [1, 2, 3]
    commit_4 = found.start((2, 3), 4)
    found.append(5)
    assert found.visible() == [1, 2, 3, 5]
    commit_4()
    assert found.visible() == [1, 4, 5]
    commit_67 = found.start((4, 5), 6, 7)
    found.append(8)
    assert found.visible() == [1, 4, 5, 8]
    commit_67()
    assert found.visible() == [1, 6, 7, 8]
    assert names(found.table) == ["row 1", "row 2", "row 3", "row 5", "row 8"]
    assert names(found.table, 4) == ["row 1", "row 2", "row 3", "row 5"]
    states = resolve(history(found.table))
    assert states.visible == ids(found.table)
    assert states.overshadowed == {found.ids[n] for n in (2, 3, 4, 5)}


def history(table):
    """What the log says of every segment that it has seen."""
    changes = []
    for version in range(table.refresh().version + 1):
        commit = spills.unpack(table.session.log.read(version)[0], table.session.log.spill)
        accepted = table.session.log.effect(commit).accepted
        changes += [change_of(t) for t in commit.transactions if t.id in accepted]
    return list(members(changes).values())


def compacted_again_and_again(place):
    """Days that were appended to and compacted, in groups of up to three; some stay as they are."""
    table = fresh(place, inline_bytes="0")
    for turn in range(3):
        append(table, rows(*(24 * day + turn for day in range(3)), name=f"turn {turn}"))
        there = live(table.session.head())
        for day in range(2):
            chosen = [s for s in there if s.chunk == f"2013-01-0{7 + day}"]
            replace(table, chosen, parts=1 + (turn + day) % 3)
    return table


@pytest.mark.scenario("S2.2")
def test_s2_2_bulk_and_incremental_construction_agree_in_any_order(place):
    table = compacted_again_and_again(place)
    everyone = history(table)
    whole = resolve(everyone)
    assert whole.visible == ids(table)
    assert len(whole.overshadowed) > 10
    for seed in range(20):
        order = random.Random(seed).sample(everyone, len(everyone))
        replica = Arrivals()
        for arrived, member in enumerate(order):
            replica.add(member)
            assert replica.states == resolve(sorted(order[: arrived + 1], key=attrgetter("id")))
        assert replica.states == whole


@pytest.mark.scenario("S2.3")
def test_s2_3_the_members_of_a_group_swap_in_one_step(place):
    """A replica that receives segments one by one shows what the version before shows, or all."""
    table = fresh(place, inline_bytes="0")
    for hour in range(3):
        append(table, rows(hour))
    before = ids(table)
    replace(table, live(table.session.head()), parts=3)
    after, everyone = ids(table), history(table)
    for order in permutations([member for member in everyone if member.id in after]):
        replica = Arrivals(member for member in everyone if member.id in before)
        for member in order[:-1]:
            replica.add(member)
            assert replica.visible == before
        swap = replica.add(order[-1])
        assert (swap.shown, swap.hidden) == (after, before)
        assert replica.visible == after


@pytest.mark.verify
@pytest.mark.scenario("S2.4")
def test_s2_4_a_lost_segment_brings_back_the_newest_complete_group(place):
    table = fresh(place, inline_bytes="0")
    for hour in range(4):
        append(table, rows(hour))
    wanted = names(table)
    generations = [live(table.session.head())]
    for parts in (2, 3, 2):
        replace(table, live(table.session.head()), parts=parts)
        generations.append(live(table.session.head()))
    appended, first, second, third = generations
    append(table, rows(9))
    wanted.append("row 9")
    reader = Arrivals(history(table))

    def lose(segment):
        table.store.delete([keys.key_of(segment)])
        reader.remove(segment.id)
        with pytest.raises(errors.DataLoss, match="--fallback"):
            names(table)
        found = scan(table, fallback=True).to_table().column("name").to_pylist()
        assert sorted(found) == wanted
        (new,) = ids(table) - {s.id for s in third}
        return reader.visible - {new}

    assert lose(third[0]) == {s.id for s in second}
    assert lose(second[2]) == {s.id for s in first}
    assert lose(first[1]) == {s.id for s in appended}
    # Now no generation is complete any more: nothing changes, and the loss is said, not skipped.
    gone = {third[0].id, second[2].id, first[1].id, appended[0].id}
    table.store.delete([keys.key_of(appended[0])])
    members_left = history(table)
    left = resolve(
        (m for m in members_left if m.id not in gone),
        lost=(m for m in members_left if m.id in gone),
    )
    assert (left.visible, left.missing) == (ids(table) - gone, {third[0].id})
    with pytest.raises(errors.DataLoss) as caught:
        scan(table, fallback=True).to_table()
    assert "fallback" not in caught.value.message


HOURS = [f"2013-01-07T{hour:02d}" for hour in range(1, 5)]
CHUNKS = {"hour": HOURS, "day": ["2013-01-07"], "month": ["2013-01"]}
LATE = {**CHUNKS, "hour": HOURS[1:3]}
# From, to, and what the writer cuts by that does not know of it.
CUTS = [
    ("hour", "day", "hour"),
    ("hour", "day", "day"),
    ("hour", "day", "month"),
    ("day", "month", "day"),
    ("day", "month", "hour"),
    ("day", "hour", "day"),
]
# A default run has one of them on S3: which cut it is makes no difference to a store.
PLACED = [
    pytest.param(*cut, place, marks=[pytest.mark.long] * (place == "s3" and cut != CUTS[0]))
    for place in ("s3", "directory")
    for cut in CUTS
]


def knowing(table, granularity):
    """The handle of a process for which the table's granularity is this one, whatever comes."""
    if table.session.head().layout.granularity != granularity:
        table.set_granularity(granularity)
    return other(table)


@pytest.mark.scenario("S2.5")
@pytest.mark.parametrize(("old", "new", "late", "place"), PLACED, indirect=["place"])
@pytest.mark.parametrize("first", ["append", "compaction"])
def test_s2_5_an_append_of_any_granularity_lands_beside_a_change_of_granularity(
    old, new, late, place, first
):
    table = fresh(place, granularity=old)
    append(table, rows(1, 2, 3))
    append(table, rows(2, 4))
    writer = knowing(table, late)
    if new != late:
        table.set_granularity(new)
    policy = Policy(min_gain=0, granularity=new)
    (task,) = plan(table, policy).tasks
    assert task.granularity == new
    assert set(chunks(table)) == set(CHUNKS[old])
    claims, came, data = [], [], rows(2, 3, name="late")

    def compact(meanwhile):
        def look_around(*_):
            claims.extend(other(table).claims().values())
            meanwhile()

        return perform(other(table), task, policy, progress=once(look_around))

    if first == "append":
        outcome = compact(lambda: came.append(append(writer, data)))
    else:  # all of it happens while the append takes in its rows
        done = []
        came.append(append(writer, cut_in([data], lambda: done.append(compact(lambda: None)))))
        (outcome,) = done
    assert (came[0] < outcome.version) == (first == "append")
    assert (outcome.status, outcome.rows) == ("done", 5)
    assert [claim.group for claim in claims] == [task.id]
    assert not table.claims()
    wanted = ["late 2", "late 3", "row 1", "row 2", "row 2", "row 3", "row 4"]
    assert names(table) == wanted
    made = [s for s in live(table.refresh()) if s.version == outcome.version]
    assert sorted(segment.chunk for segment in made) == CHUNKS[new]
    beside = [segment for segment in live(table.session.head()) if segment not in made]
    assert {segment.version for segment in beside} == {*came}
    assert sorted(segment.chunk for segment in beside) == LATE[late]
    # What came late is compacted next.
    for again in plan(table, policy).tasks:
        assert perform(other(table), again, policy).ok
    assert set(chunks(table)) == set(CHUNKS[new])
    assert names(table) == wanted


@pytest.mark.scenario("S2.5")
def test_s2_5_writers_learn_of_a_new_granularity_at_their_own_pace(place):
    table = fresh(place, granularity="hour")
    append(table, rows(1, 2))
    behind = other(table)
    table.set_granularity("day")
    append(behind, rows(3))  # it has not seen that yet
    append(table, rows(4))
    assert chunks(table) == ["2013-01-07", "2013-01-07T01", "2013-01-07T02", "2013-01-07T03"]
    append(behind, rows(5))
    assert chunks(table)[:2] == ["2013-01-07"] * 2
    for task in plan(table, POLICY).tasks:
        assert perform(other(table), task, POLICY).status == "done"
    assert names(table) == [f"row {n}" for n in range(1, 6)]


@pytest.mark.scenario("S2.6")
def test_s2_6_a_claim_of_higher_priority_ends_a_running_compaction(place):
    table = fresh(place)
    for hour in range(3):
        append(table, rows(hour))
    before, staged = ids(table), objects(table)
    claiming = Policy(min_gain=0, claim_bytes=0)
    (task,) = plan(table, claiming).tasks
    urgent = []

    def take_over():
        assert len(table.claims()) == 1
        urgent.append(other(table).claim("2013-01-07", "2013-01-08", priority=9, owner="a repair"))

    outcome = perform(other(table), task, claiming, progress=once(take_over))
    assert outcome.status == "failed"
    assert outcome.error.startswith("ClaimLost")
    assert ids(table) == before
    assert names(table) == ["row 0", "row 1", "row 2"]
    # What it staged is there, and nothing refers to it.
    left = objects(table) - staged
    assert left
    assert left.isdisjoint(keys.key_of(s) for s in live(table.refresh()))
    (standing,) = table.claims().values()
    assert standing.owner == "a repair"
    urgent[0].release()
    assert perform(other(table), task, claiming).status == "done"
    assert names(table) == ["row 0", "row 1", "row 2"]


@pytest.mark.scenario("S2.6")
def test_s2_6_a_commit_under_a_revoked_claim_says_so(place):
    table = fresh(place, inline_bytes="0")
    for hour in range(3):
        append(table, rows(hour))
    compactor = other(table)
    lease = compactor.claim("2013-01-07", "2013-01-08")
    transaction = rewrite(compactor, live(table.refresh()), claim=lease.token)
    version = table.refresh().version
    other(table).claim("2013-01-07T01:00Z", "2013-01-07T02:00Z", priority=1)
    with pytest.raises(errors.ClaimLost):
        compactor.commit(transaction)
    assert table.refresh().version == version + 1
    assert table.find_transaction(transaction.id, version, version + 1) is None
    assert not lease.held()
    # The same work under no claim may still be done: only the claim was lost, not the inputs.
    append(table, rows(9))
    assert compactor.commit(rewrite(compactor, live(compactor.refresh()))) == version + 3
    assert names(table) == ["row 0", "row 1", "row 2", "row 9"]


def test_s2_6_claims_on_segments_stand_beside_each_other_unless_they_share_one(place):
    table = fresh(place)
    for hour in range(4):
        append(table, rows(hour))
    a, b, c, d = live(table.refresh())
    one = other(table).claim(segments=[a, b], owner="one")
    two = other(table).claim(segments=[c, d], owner="two")
    with pytest.raises(errors.CommitConflict, match=r"of (one|two)"):
        other(table).claim(segments=[b, c])
    with pytest.raises(errors.CommitConflict):
        other(table).claim("2013-01-07", "2013-01-08")
    again = other(table).claim(segments=[b, a], group=one.claim.group)
    assert again.token == one.token
    append(table, cut_in([rows(9)], two.release))
    assert set(table.claims()) == {one.id}
