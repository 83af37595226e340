"""Overshadowing: what is visible when segments arrive, and go away, one by one."""

import itertools

import pytest
from support.arrivals import Arrivals, Swap

from eventlog.errors import InvalidInput
from eventlog.recovery.lineage import Change, Member, members
from eventlog.recovery.overshadowing import resolve


def plain(*names):
    return [Member(name) for name in names]


def group(names, overshadows=""):
    """The members of one transaction that put some segments in the place of others."""
    return [Member(name, frozenset(overshadows), frozenset(names)) for name in names]


def arrive(arrivals, *arriving):
    for member in arriving:
        arrivals.add(member)
    return arrivals


def seen(arrivals):
    return "".join(sorted(arrivals.visible))


# Druid's example: 4 overshadows {2, 3} while 5 is appended; {6, 7} overshadow {4, 5} while 8 is.
PROPOSAL = [*plain("1", "2", "3"), *group("4", "23"), *plain("5"), *group("67", "45"), *plain("8")]


@pytest.mark.scenario("S2.1")
def test_s2_1_the_example_of_the_proposal_at_every_point():
    arrivals, points = Arrivals(), []
    for member in PROPOSAL:
        arrivals.add(member)
        points.append(seen(arrivals))
    assert points == ["1", "12", "123", "14", "145", "145", "167", "1678"]
    assert arrivals.overshadowed == frozenset("2345")
    assert arrivals.states == resolve(PROPOSAL)


@pytest.mark.verify
@pytest.mark.scenario("S2.1")
def test_s2_1_it_ends_the_same_in_every_order_of_arrival():
    for order in itertools.permutations(PROPOSAL[1:]):
        arrivals = arrive(Arrivals(), *order, PROPOSAL[0])
        assert seen(arrivals) == "1678"


@pytest.mark.scenario("S2.3")
def test_s2_3_a_group_waits_for_its_last_member_and_swaps_in_one_step():
    arrivals = Arrivals(plain(*"ab"))
    c, d, e = group("cde", "ab")
    assert arrivals.add(c) == arrivals.add(e) == Swap()
    assert seen(arrivals) == "ab"
    assert arrivals.standby == frozenset("ce")
    assert arrivals.add(d) == Swap(frozenset("cde"), frozenset("ab"))
    assert seen(arrivals) == "cde"
    assert arrivals.overshadowed == frozenset("ab")


def test_s2_3_a_group_that_is_all_there_is_shows_when_it_is_complete():
    a, b = group("ab", "xy")
    arrivals = Arrivals([a])
    assert seen(arrivals) == ""
    assert arrive(arrivals, b).visible == frozenset("ab")


def test_s2_4_a_lost_segment_brings_back_what_its_group_overshadows():
    arrivals = Arrivals([*plain(*"abz"), *group("cd", "ab")])
    assert arrivals.remove("c") == Swap(frozenset("ab"), frozenset("cd"))
    assert seen(arrivals) == "abz"
    assert arrivals.standby == frozenset("d")
    assert not arrivals.missing
    assert arrivals.add(group("cd", "ab")[0]) == Swap(frozenset("cd"), frozenset("ab"))


def test_s2_4_the_newest_complete_generation_comes_back():
    arrivals = Arrivals([*plain(*"ab"), *group("cd", "ab"), *group("e", "cd"), *group("f", "e")])
    assert seen(arrivals) == "f"
    arrivals.remove("e")
    assert seen(arrivals) == "f"
    arrivals.remove("f")
    assert seen(arrivals) == "cd"
    arrivals.remove("d")
    assert seen(arrivals) == "ab"
    arrivals.add(Member("e", frozenset("cd")))
    assert seen(arrivals) == "e"


@pytest.mark.scenario("S2.4")
def test_s2_4_where_none_is_complete_nothing_changes():
    arrivals = Arrivals([*plain(*"abz"), *group("cd", "ab")])
    arrivals.remove("b")
    assert seen(arrivals) == "cdz"
    assert arrivals.remove("c") == Swap(frozenset(), frozenset("c"))
    assert seen(arrivals) == "dz"
    assert arrivals.overshadowed == frozenset("a")
    assert arrivals.missing == frozenset("c")
    assert arrivals.add(Member("b")) == Swap(frozenset("ab"), frozenset("d"))
    assert not arrivals.missing


def test_the_example_of_the_format():
    arrivals = Arrivals(PROPOSAL)
    told = [(seen(arrivals), arrivals.standby, arrivals.missing)]
    for lost in "642":
        arrivals.remove(lost)
        told.append((seen(arrivals), arrivals.standby, arrivals.missing))
    assert told == [
        ("1678", frozenset(), frozenset()),
        ("1458", frozenset("7"), frozenset()),
        ("12358", frozenset("7"), frozenset()),
        ("178", frozenset(), frozenset("6")),
    ]


def test_a_lost_segment_without_inputs_is_missing():
    arrivals = Arrivals(plain(*"ab"))
    assert arrivals.remove("a") == Swap(frozenset(), frozenset("a"))
    assert (seen(arrivals), arrivals.missing) == ("b", frozenset("a"))


def test_what_was_built_upon_the_lost_group_falls_with_it():
    """{c, d} came from {a, b}, and f from d and e: to read a and b again, f has to go."""
    below = [*plain(*"abe"), *group("cd", "ab")]
    arrivals = Arrivals([*below, *group("f", "de")])
    assert seen(arrivals) == "cf"
    assert arrivals.remove("c") == Swap(frozenset("abe"), frozenset("cf"))
    assert "d" in arrivals.standby


def test_it_does_not_fall_where_what_was_built_upon_it_cannot():
    arrivals = Arrivals([*plain(*"abe"), *group("cd", "ab"), *group("f", "de")])
    arrivals.remove("e")
    arrivals.remove("c")
    assert (seen(arrivals), arrivals.missing) == ("f", frozenset("c"))


def test_a_generation_that_never_came_does_no_harm_between_two_that_did():
    middle = group("cd", "ab")
    arrivals = Arrivals([*plain(*"ab"), *group("e", "cd")], known=middle)
    assert seen(arrivals) == "e"
    assert arrivals.states == resolve([*group("e", "cd"), *plain(*"ab")], known=middle)
    arrivals.remove("e")
    assert seen(arrivals) == "ab"


def test_what_a_generation_that_is_not_known_replaced_stays_visible():
    arrivals = Arrivals([*plain(*"ab"), *group("e", "cd")])
    assert seen(arrivals) == "abe"


def test_an_older_group_that_is_not_all_there_holds_back_a_newer_one():
    """Of {c, d} only c was replaced again: d's rows are in a and b, and so are e's."""
    arrivals = Arrivals([*plain(*"ab"), *group("e", "c")])
    assert seen(arrivals) == "abe"
    assert arrivals.add(group("cd", "ab")[0]) == Swap(frozenset(), frozenset("e"))
    assert seen(arrivals) == "ab"
    assert arrivals.standby == frozenset("ce")
    assert arrivals.add(group("cd", "ab")[1]) == Swap(frozenset("de"), frozenset("ab"))


def test_a_loss_counts_as_having_arrived():
    """Else a group that lost a member would be unlike one that waits for it."""
    c, d = group("cd", "ab")
    assert seen(Arrivals([c], lost=[d])) == "c"
    assert seen(Arrivals([c])) == ""
    assert resolve([c], lost=[d]) != resolve([c])
    assert resolve([c], lost=[c, d]) == resolve([c], lost=[d])


@pytest.mark.parametrize(
    ("there", "wrong", "why"),
    [
        ([], Member("a", frozenset(), frozenset("b")), "not in its own group"),
        ([], Member("a", frozenset("b"), frozenset("ab")), "overshadows a part of itself"),
        (plain("a"), Member("a", frozenset("b")), "known with another group"),
        (group("ab"), Member("b"), "known with another group"),
        (group("ab"), group("cb")[0], "in two groups"),
        (group("c", "ab"), group("d", "b")[0], "overshadowed by two groups"),
    ],
)
def test_members_that_do_not_fit_together_are_refused(there, wrong, why):
    with pytest.raises(InvalidInput, match=why):
        resolve([*there, wrong])
    with pytest.raises(InvalidInput, match=why):
        resolve([wrong, *there], known=there)
    with pytest.raises(InvalidInput):
        resolve(there, known=[wrong])


class Counted(str):
    """An id that counts how often it is looked up."""

    __slots__ = ()
    lookups = 0

    def __hash__(self):
        Counted.lookups += 1
        return super().__hash__()


def a_day(day, kind=Counted):
    """Twenty segments of one chunk: appended, compacted, appended to and compacted again."""
    names = [kind(f"{day}/{n}") for n in range(20)]
    first, second, late, last = names[:12], names[12:18], names[18], names[19]
    return [*plain(*first), *group(second, first), *plain(late), *group([last], [*second, late])]


def test_it_costs_the_same_for_each_segment_however_many_there_are():
    """Look-ups are counted, not time."""
    costs = []
    for days in (1, 500):
        crowd = [member for day in range(days) for member in a_day(day)]
        crowd += plain(*(Counted(n) for n in range(40 * days)))
        before = Counted.lookups
        states = resolve(crowd)
        costs.append((Counted.lookups - before) / days)
        assert len(states.visible) == 41 * days
    assert max(costs) < 1.1 * min(costs) < 5_000


def test_members_follow_from_the_transactions():
    found = members(
        [
            Change(("1", "2", "3")),
            Change(("4",), ("2", "3"), exact=True),
            Change(("5",)),
            Change(("6", "7"), ("4", "5"), exact=True),
            Change(("8",)),
        ]
    )
    assert found == {member.id: member for member in PROPOSAL}


def test_what_an_overwrite_dropped_does_not_come_back():
    """Nor does what it had replaced: its rows were deleted by name of the newer segments."""
    found = members(
        [
            Change(("a", "b")),
            Change(("c", "d"), ("a", "b"), exact=True),
            Change(("e",), ("d",), exact=True),
            Change(("f",), ("c",)),
        ]
    )
    assert found == {"d": Member("d"), "e": Member("e", frozenset("d")), "f": Member("f")}
    arrivals = Arrivals(found.values())
    assert seen(arrivals) == "ef"
    arrivals.remove("f")
    assert seen(arrivals) == "e"


def test_what_a_restore_brought_back_stands_for_itself():
    found = members(
        [
            Change(("a", "b")),
            Change(("c",), ("a", "b"), exact=True),
            Change(("a", "b"), ("c",)),
        ]
    )
    assert found == {"a": Member("a"), "b": Member("b")}


def test_a_replacement_that_left_nothing_overshadows_nothing():
    assert members([Change(("a", "b")), Change((), ("a",), exact=True)]) == {"b": Member("b")}
