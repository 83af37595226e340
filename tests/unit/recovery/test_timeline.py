"""The timeline: what is visible when segments arrive, and go away, one by one."""

import itertools

import pytest

from eventlog.errors import InvalidInput
from eventlog.recovery.lineage import Change, Member, members
from eventlog.recovery.timeline import Swap, Timeline


def plain(*names):
    return [Member(name) for name in names]


def group(names, overshadows=""):
    """The members of one transaction that put some segments in the place of others."""
    return [Member(name, frozenset(overshadows), frozenset(names)) for name in names]


def arrive(timeline, *arriving):
    for member in arriving:
        timeline.add(member)
    return timeline


def seen(timeline):
    return "".join(sorted(timeline.visible))


# Druid's example: 4 overshadows {2, 3} while 5 is appended; {6, 7} overshadow {4, 5} while 8 is.
PROPOSAL = [*plain("1", "2", "3"), *group("4", "23"), *plain("5"), *group("67", "45"), *plain("8")]


@pytest.mark.scenario("S2.1")
def test_s2_1_the_example_of_the_proposal_at_every_point():
    timeline, points = Timeline(), []
    for member in PROPOSAL:
        timeline.add(member)
        points.append(seen(timeline))
    assert points == ["1", "12", "123", "14", "145", "145", "167", "1678"]
    assert timeline.overshadowed == frozenset("2345")
    assert timeline == Timeline(PROPOSAL)


@pytest.mark.scenario("S2.1")
def test_s2_1_it_ends_the_same_in_every_order_of_arrival():
    for order in itertools.permutations(PROPOSAL[1:]):
        timeline = arrive(Timeline(), *order, PROPOSAL[0])
        assert seen(timeline) == "1678"


@pytest.mark.scenario("S2.3")
def test_s2_3_a_group_waits_for_its_last_member_and_swaps_in_one_step():
    timeline = Timeline(plain(*"ab"))
    c, d, e = group("cde", "ab")
    assert timeline.add(c) == timeline.add(e) == Swap()
    assert seen(timeline) == "ab"
    assert timeline.standby == frozenset("ce")
    assert timeline.add(d) == Swap(frozenset("cde"), frozenset("ab"))
    assert seen(timeline) == "cde"
    assert timeline.overshadowed == frozenset("ab")


def test_s2_3_a_group_that_is_all_there_is_shows_when_it_is_complete():
    a, b = group("ab", "xy")
    timeline = Timeline([a])
    assert seen(timeline) == ""
    assert arrive(timeline, b).visible == frozenset("ab")


def test_s2_4_a_lost_segment_brings_back_what_its_group_overshadows():
    timeline = Timeline([*plain(*"abz"), *group("cd", "ab")])
    assert timeline.remove("c") == Swap(frozenset("ab"), frozenset("cd"))
    assert seen(timeline) == "abz"
    assert timeline.standby == frozenset("d")
    assert not timeline.missing
    assert timeline.add(group("cd", "ab")[0]) == Swap(frozenset("cd"), frozenset("ab"))


def test_s2_4_the_newest_complete_generation_comes_back():
    timeline = Timeline([*plain(*"ab"), *group("cd", "ab"), *group("e", "cd"), *group("f", "e")])
    assert seen(timeline) == "f"
    timeline.remove("e")
    assert seen(timeline) == "f"
    timeline.remove("f")
    assert seen(timeline) == "cd"
    timeline.remove("d")
    assert seen(timeline) == "ab"
    timeline.add(Member("e", frozenset("cd")))
    assert seen(timeline) == "e"


@pytest.mark.scenario("S2.4")
def test_s2_4_where_none_is_complete_nothing_changes():
    timeline = Timeline([*plain(*"abz"), *group("cd", "ab")])
    timeline.remove("b")
    assert seen(timeline) == "cdz"
    assert timeline.remove("c") == Swap(frozenset(), frozenset("c"))
    assert seen(timeline) == "dz"
    assert timeline.overshadowed == frozenset("a")
    assert timeline.missing == frozenset("c")
    assert timeline.add(Member("b")) == Swap(frozenset("ab"), frozenset("d"))
    assert not timeline.missing


def test_the_example_of_the_format():
    timeline = Timeline(PROPOSAL)
    told = [(seen(timeline), timeline.standby, timeline.missing)]
    for lost in "642":
        timeline.remove(lost)
        told.append((seen(timeline), timeline.standby, timeline.missing))
    assert told == [
        ("1678", frozenset(), frozenset()),
        ("1458", frozenset("7"), frozenset()),
        ("12358", frozenset("7"), frozenset()),
        ("178", frozenset(), frozenset("6")),
    ]


def test_a_lost_segment_without_inputs_is_missing():
    timeline = Timeline(plain(*"ab"))
    assert timeline.remove("a") == Swap(frozenset(), frozenset("a"))
    assert (seen(timeline), timeline.missing) == ("b", frozenset("a"))


def test_what_was_built_upon_the_lost_group_falls_with_it():
    """{c, d} came from {a, b}, and f from d and e: to read a and b again, f has to go."""
    below = [*plain(*"abe"), *group("cd", "ab")]
    timeline = Timeline([*below, *group("f", "de")])
    assert seen(timeline) == "cf"
    assert timeline.remove("c") == Swap(frozenset("abe"), frozenset("cf"))
    assert "d" in timeline.standby


def test_it_does_not_fall_where_what_was_built_upon_it_cannot():
    timeline = Timeline([*plain(*"abe"), *group("cd", "ab"), *group("f", "de")])
    timeline.remove("e")
    timeline.remove("c")
    assert (seen(timeline), timeline.missing) == ("f", frozenset("c"))


def test_a_generation_that_never_came_does_no_harm_between_two_that_did():
    middle = group("cd", "ab")
    timeline = Timeline([*plain(*"ab"), *group("e", "cd")], known=middle)
    assert seen(timeline) == "e"
    assert timeline == arrive(Timeline(known=middle), *group("e", "cd"), *plain(*"ab"))
    timeline.remove("e")
    assert seen(timeline) == "ab"


def test_what_a_generation_that_is_not_known_replaced_stays_visible():
    timeline = Timeline([*plain(*"ab"), *group("e", "cd")])
    assert seen(timeline) == "abe"


def test_an_older_group_that_is_not_all_there_holds_back_a_newer_one():
    """Of {c, d} only c was replaced again: d's rows are in a and b, and so are e's."""
    timeline = Timeline([*plain(*"ab"), *group("e", "c")])
    assert seen(timeline) == "abe"
    assert timeline.add(group("cd", "ab")[0]) == Swap(frozenset(), frozenset("e"))
    assert seen(timeline) == "ab"
    assert timeline.standby == frozenset("ce")
    assert timeline.add(group("cd", "ab")[1]) == Swap(frozenset("de"), frozenset("ab"))


def test_a_step_that_changes_nothing_says_so():
    timeline = Timeline(plain("a"))
    assert timeline.add(Member("a")) == Swap()
    assert timeline.remove("unheard of") == Swap()
    assert timeline == Timeline(plain("a"))
    assert timeline != Timeline(plain("b"))
    assert timeline != "a"


def test_a_loss_counts_as_having_arrived():
    """Else a group that lost a member would be unlike one that waits for it."""
    c, d = group("cd", "ab")
    assert seen(Timeline([c], lost=[d])) == "c"
    assert seen(Timeline([c])) == ""
    assert Timeline([c], lost=[d]) != Timeline([c])
    assert Timeline([c], lost=[c, d]) == Timeline([c], lost=[d])


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
def test_members_that_do_not_fit_together_are_refused_and_change_nothing(there, wrong, why):
    timeline = Timeline(there)
    with pytest.raises(InvalidInput, match=why):
        timeline.add(wrong)
    assert timeline == Timeline(there)
    with pytest.raises(InvalidInput):
        Timeline(there, known=[wrong])


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


def test_a_step_costs_what_it_is_connected_with_not_what_is_there():
    """The same among tens of thousands of segments as alone; look-ups are counted, not time."""
    crowd = plain(*map(str, range(20_000)))
    crowd += [member for day in range(500) for member in a_day(day, str)]
    costs = []
    for timeline in (Timeline(), Timeline(crowd)):
        visible = len(timeline.visible)
        for day in ("one", "two"):
            before = Counted.lookups
            arrive(timeline, *a_day(day))
            timeline.remove(f"{day}/19")
            timeline.add(a_day(day)[19])
            costs.append(Counted.lookups - before)
        assert len(timeline.visible) == visible + 2
    assert len(timeline.visible) == 20_502
    assert max(costs) == min(costs) < 5_000


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
    timeline = Timeline(found.values())
    assert seen(timeline) == "ef"
    timeline.remove("f")
    assert seen(timeline) == "e"


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
