"""Slices: which segments count in which buckets, and what a merge may replace."""

import random

import pytest
from msgspec import UNSET
from support.builders import HASH, SCHEMA, commit, create, drop_of, live, reopen, replaced, view_of

from eventlog import errors
from eventlog.format import keys
from eventlog.keyed import placement, slices
from eventlog.keyed.slice_pruning import is_plain
from eventlog.log import spills
from eventlog.model.actions import Add, Merge, Replace
from eventlog.model.columns.named_layout import NamedKey
from eventlog.model.entries import Segment, Slice
from eventlog.state import fold

BUCKETS = 8


def entry(name, kind="log", first=0, last=3, low=1, high=None, level=0, **other):  # noqa: PLR0917
    """A segment with the first letters of its id, by its place."""
    high = low if high is None else high
    place = Slice(kind, first, last, low, high, level, other.get("partition", 0))
    fields = {"version": place.high + 100 * level, "partition": 0, "rows": 1, **other}
    return Segment(
        f"{name:0<32}", "all", 0, fields["version"], fields["partition"], fields["rows"], 9,
        HASH, 1, slice=place,
    )  # fmt: skip


def counted(*segments):
    """The runs as {(first, last): "names in order"}."""
    found = slices.runs(segments)
    return {(r.first, r.last): "".join(s.id[0] for s in r.segments) for r in found}


# ------------------------------------------------------------------------------- which count


def test_logs_count_in_their_buckets_in_the_order_of_commits():
    b, a = entry("b", low=2, first=2, last=5), entry("a", low=1)
    assert counted(b, a) == {(0, 1): "a", (2, 3): "ab", (4, 5): "b"}


def test_segments_of_one_commit_count_in_their_order():
    a, b = entry("b", partition=0), entry("a", partition=1)
    assert counted(b, a) == {(0, 3): "ba"}


def test_a_merged_segment_takes_in_what_lies_within_its_versions():
    logs = [entry(name, low=n) for n, name in enumerate("abc", 1)]
    merged = entry("m", "base", first=1, last=2, low=1, high=2, level=1)
    assert counted(*logs, merged) == {(0, 0): "abc", (1, 2): "mc", (3, 3): "abc"}


def test_a_base_lies_under_its_late_rows_and_these_under_logs():
    base = entry("z", "base", low=1, high=5, level=1)
    late = entry("y", "late", low=1, high=5, level=1)
    log = entry("a", low=6)
    assert counted(log, late, base) == {(0, 3): "zya"}
    (run,) = slices.runs([log, late, base])
    assert [p.segment.id[0] for p in (*run.base, *run.late, *run.logs)] == ["z", "y", "a"]


def test_a_higher_merge_takes_in_a_lower_one_of_the_same_versions():
    low = entry("a", "base", low=1, high=5, level=1)
    high = entry("b", "base", low=1, high=5, level=2)
    assert counted(low, high) == {(0, 3): "b"}


def test_two_segments_of_one_merge_both_count():
    a = entry("a", "base", low=1, high=5, level=1, partition=0)
    b = entry("b", "base", low=1, high=5, level=1, partition=1)
    assert counted(b, a) == {(0, 3): "ab"}


def test_an_empty_base_takes_in_what_it_was_made_of():
    shared = entry("a")
    empty = entry("m", "base", first=1, last=1, level=1, rows=0)
    assert counted(shared, empty) == {(0, 0): "a", (1, 1): "m", (2, 3): "a"}


def test_chunks_have_slices_of_their_own():
    a, b = entry("a"), replaced(entry("b", "base", low=1, high=9, level=3), chunk="2013-01-07")
    assert [(r.chunk, r.segments) for r in slices.runs([a, b])] == [
        ("2013-01-07", (b,)),
        ("all", (a,)),
    ]


def test_neighbours_with_the_same_segments_are_one_run():
    a, b = entry("a", last=1), entry("b", first=2, low=2)
    assert counted(a, b) == {(0, 1): "a", (2, 3): "b"}
    assert counted(a, replaced(b, slice=replaced(b.slice, first=3))) == {(0, 1): "a", (3, 3): "b"}
    assert counted() == {}


@pytest.mark.parametrize("seed", range(20))
def test_what_counts_is_what_brute_force_says(seed):
    chance = random.Random(seed)
    made = []
    for n in range(12):
        first = chance.randrange(6)
        low = chance.randrange(1, 8)
        level = chance.choice([0, 0, 1, 2])
        high = low + (chance.randrange(4) if level else 0)
        kind = chance.choice(["base", "late", "log"]) if level else "log"
        made.append(entry(f"{n:x}", kind, first, chance.randrange(first, 6), low, high, level))
    found = slices.runs(made)
    for bucket in range(6):
        here = [s for s in made if s.slice.first <= bucket <= s.slice.last]
        wanted = {
            s.id
            for s in here
            if not any(
                t.slice.level > s.slice.level
                and t.slice.low <= s.slice.low
                and s.slice.high <= t.slice.high
                for t in here
            )
        }
        runs = [r for r in found if r.first <= bucket <= r.last]
        assert {s.id for r in runs for s in r.segments} == wanted
        assert len(runs) == bool(wanted)
    assert {s.id for s in slices.ineffective(made)} == {s.id for s in made} - {
        s.id for r in found for s in r.segments
    }


def test_a_run_is_plain_where_its_base_lies_in_it_and_nothing_above():
    base, log = entry("b", "base", low=1, high=5, level=1), entry("a", low=6, first=3)
    below, above = slices.runs([base, log])
    assert not is_plain(above)
    assert not is_plain(below)  # its base has rows of the other run, too
    (alone,) = slices.runs([base])
    assert is_plain(alone)


def test_entries_without_a_place_are_corrupt():
    with pytest.raises(errors.Corrupt, match="no slice"):
        placement.slice_of(replaced(entry("a"), slice=UNSET))
    with pytest.raises(errors.Corrupt, match="span of versions"):
        placement.span(replaced(entry("a"), slice=Slice("log", 0, 0, None, None, 0)))


# ---------------------------------------------------------------------- what is void, and why


@pytest.fixture(params=["1", "64"])
def table(request):
    """Three upserts: of buckets 0 to 3, 2 to 5, and 0 to 7."""
    table = create(
        key="name",
        buckets=BUCKETS,
        granularity="all",
        properties={"keyframe_commits": request.param},
    )
    for first, last in ((0, 3), (2, 5), (0, 7)):
        commit(table, log(table, first, last), operation="upsert")
    return table


def log(table, first=0, last=0, low=None, high=None, level=0, kind="log", *, rows=10, chunk="all"):  # noqa: PLR0917
    place = Slice(kind, first, last, low, high, level)
    token = table.clock.random_id()
    return Add(token, chunk, table.session.head().version, rows, 100, HASH, 1, slice=place)


def base(table, first, last, high=3, **other):
    return log(table, first, last, 1, high, 1, "base", **other)


def ids(table, *versions):
    return tuple(sorted(s.id for s in live(table.refresh()) if s.version in versions))


def merge(table, first=0, last=7, low=1, high=3, inputs=None, rows=30, superseded=20, **other):  # noqa: PLR0917
    inputs = ids(table, 1, 2, 3) if inputs is None else inputs
    fields = {"version": 3, "chunk": "all", **other}
    return Merge(
        fields["version"], fields["chunk"], first, last, low, high, inputs, rows, superseded
    )


def drops(table, *versions):
    return [drop_of(s) for s in live(table.refresh()) if s.version in versions]


def void(table, match, *actions, read=3, operation="compact"):
    """The transaction has no effect, for this reason; the fold from 0 agrees."""
    before = live(table.refresh())
    with pytest.raises(errors.CommitConflict, match=match):
        commit(table, *actions, operation=operation, read_version=read)
    return live(reopen(table.store).session.head()) == before


def test_a_merge_of_everything_takes_its_place(table):
    commit(
        table, merge(table), *drops(table, 1, 2, 3), base(table, 0, 7), operation="compact",
        read_version=3,
    )  # fmt: skip
    (left,) = live(reopen(table.store).session.head())
    assert left.slice == Slice("base", 0, 7, 1, 3, 1, 0)


def test_a_merge_of_one_bucket_leaves_shared_logs_to_the_others(table):
    one = merge(table, 3, 3, rows=12, superseded=2)
    commit(table, one, base(table, 3, 3), operation="compact", read_version=3)
    found = live(reopen(table.store).session.head())
    assert len(found) == 4
    assert {r.first for r in slices.runs(found) if r.base} == {3}
    assert not slices.ineffective(found)


def test_the_last_merge_of_a_shared_log_drops_it(table):
    first = merge(table, 0, 1, inputs=ids(table, 1, 3), rows=11, superseded=1)
    commit(table, first, base(table, 0, 1), operation="compact", read_version=3)
    rest = merge(table, 2, 7, rows=20, superseded=10)
    commit(
        table, rest, base(table, 2, 7), *drops(table, 1, 2, 3), operation="compact", read_version=3
    )
    assert sorted(s.version for s in live(table.session.head())) == [4, 5]


@pytest.mark.hazard("K4")
def test_k4_a_log_that_lands_before_the_merge_stays_above_it(table):
    planned, new = merge(table), base(table, 0, 7)
    gone = drops(table, 1, 2, 3)
    commit(reopen(table.store), log(table, 0, 7), operation="upsert")
    commit(table, planned, *gone, new, operation="compact", read_version=3)
    (run,) = slices.runs(live(table.refresh()))
    assert [placement.span(s) for s in run.segments] == [(1, 3), (4, 4)]
    assert run.segments[0].version == 5


@pytest.mark.hazard("K4")
def test_k4_a_merge_cannot_claim_versions_that_it_was_not_planned_on(table):
    commit(table, log(table, 0, 7), operation="upsert")
    late = merge(table, high=4, inputs=ids(table, 1, 2, 3, 4), rows=40, superseded=30)
    new = base(table, 0, 7, high=4)
    assert void(table, "wrong order", late, *drops(table, 1, 2, 3, 4), new)
    assert void(table, "after the version that it read", replaced(late, version=4), new)
    own, mine = merge(table), base(table, 0, 7)
    assert void(table, "even without rows", own, *drops(table, 1, 2, 3), new)
    assert void(table, "belongs to none", own, *drops(table, 1, 2, 3), mine, new)


@pytest.mark.hazard("K5")
def test_k5_a_run_without_one_of_its_segments_is_void(table):
    new = base(table, 0, 7)
    for missing in (1, 2, 3):
        others = {1, 2, 3} - {missing}
        gap = merge(table, inputs=ids(table, *others), rows=20, superseded=10)
        assert void(table, "not among its inputs", gap, *drops(table, *others), new)


@pytest.mark.hazard("K5")
def test_k5_a_run_above_others_is_a_log_and_no_base(table):
    run = merge(table, 2, 3, low=2, high=3, inputs=ids(table, 2, 3), rows=20, superseded=10)
    assert void(table, "a log elsewhere", run, log(table, 2, 3, 2, 3, 1, "base"))
    assert void(
        table, "a log elsewhere", run, log(table, 2, 3, 2, 3, 1), log(table, 2, 3, 2, 3, 1, "late")
    )
    commit(table, run, log(table, 2, 3, 2, 3, 1), operation="compact", read_version=3)
    found = {r.first: r for r in slices.runs(live(table.session.head()))}
    assert [placement.span(s) for s in found[2].segments] == [(1, 1), (2, 3)]


@pytest.mark.hazard("K5")
def test_k5_a_run_at_the_bottom_is_no_log(table):
    run = merge(table)
    assert void(
        table, "where nothing lies below", run, *drops(table, 1, 2, 3), log(table, 0, 7, 1, 3, 1)
    )


@pytest.mark.hazard("K5")
@pytest.mark.parametrize("beside", ["base", "late"])
@pytest.mark.parametrize("bottom", [True, False])
def test_k5_a_merge_below_a_base_of_later_versions_is_void(bottom, beside):
    """In bucket 1 it has no input: what it must add for that bucket would lie below the base."""
    table = create(key="name", buckets=2, granularity="all")
    for bucket in (0, 1) if bottom else (0, 0, 1):
        commit(table, log(table, bucket, bucket), operation="upsert")
    head = table.refresh().version
    above = merge(table, 1, 1, head, head, ids(table, head), 10, 0, version=head)
    new = [
        log(table, 1, 1, head, head, 1, kind, rows=10) for kind in dict.fromkeys(("base", beside))
    ]
    commit(table, above, *new, operation="compact", read_version=head)
    low, head = head - 1, head + 1
    both = merge(table, 0, 1, low, low, ids(table, low), 10, 0, version=head)
    output = log(table, 0, 1, low, low, 1, "base" if bottom else "log")
    assert void(table, "lies above it", both, *drops(table, low), output, read=head)
    alone = log(table, 0, 0, low, low, 1, "base" if bottom else "log")
    own = merge(table, 0, 0, low, low, ids(table, low), 10, 0, version=head)
    commit(table, own, *drops(table, low), alone, operation="compact", read_version=head)
    assert all(
        r.segments[0].slice.kind == "base"
        for r in slices.runs(live(table.session.head()))
        if r.base
    )


@pytest.mark.hazard("K6")
@pytest.mark.parametrize(
    ("rows", "superseded", "match"),
    [(30, 19, "lost or duplicated"), (30, 21, "lost or duplicated"), (29, 19, "have 30 rows")],
)
def test_k6_rows_of_a_merge_add_up(table, rows, superseded, match):
    wrong = merge(table, rows=rows, superseded=superseded)
    assert void(table, match, wrong, *drops(table, 1, 2, 3), base(table, 0, 7))


@pytest.mark.hazard("K6")
def test_k6_a_merge_of_some_buckets_counts_no_more_than_there_is(table):
    wrong = merge(table, 3, 3, rows=31, superseded=21)
    assert void(table, "have 30 rows", wrong, base(table, 3, 3))


def test_an_input_that_counts_in_some_buckets_of_a_merge_is_counted_there_only():
    table = create(key="name", buckets=BUCKETS, granularity="all")
    commit(table, log(table, 0, 3), operation="upsert")
    commit(table, log(table, 2, 5), operation="upsert")
    below = merge(table, 0, 3, 1, 2, ids(table, 1, 2), 16, 6, version=2)
    commit(table, below, log(table, 0, 3, 1, 2, 1, "base"), operation="compact", read_version=2)
    # The second log has rows of buckets 2 and 3, too, which are in the base.
    both = merge(table, 0, 5, 1, 2, ids(table, 2, 3), 14, 4, version=3)
    new = log(table, 0, 5, 1, 2, 2, "base")
    assert void(table, "have 20 rows", replaced(both, rows=21, superseded=11), new)
    commit(table, both, new, operation="compact", read_version=3)


@pytest.mark.hazard("K7")
def test_k7_a_merge_below_what_a_restore_brought_back_meanwhile_is_void(table):
    table.restore(2)  # without the log of version 3
    run = merge(table, high=2, inputs=ids(table, 1, 2), rows=20, superseded=10, version=4)
    new = log(table, 0, 7, 1, 2, 1, "base")
    commit(table, log(table, 4, 4), operation="upsert")  # later than the plan: no conflict
    for entry in table.snapshot(3).segments():
        place = entry.slice
        if place.low == 3:
            table.store.put_if_absent(keys.key_of(entry), b"-" * entry.bytes)
    table.restore(3)
    assert [placement.span(s) for s in live(table.refresh()) if s.version > 4] == [(3, 3)]
    assert void(table, "restored above it", run, *drops(table, 1, 2), new, read=4)
    again = replaced(run, version=table.session.head().version)
    commit(
        table, again, *drops(table, 1, 2), new, operation="compact",
        read_version=table.session.head().version,
    )  # fmt: skip


@pytest.mark.hazard("K7")
def test_k7_of_two_merges_of_one_run_the_second_is_void(table):
    first, second = (merge(table, 3, 3, rows=12, superseded=2) for _ in range(2))
    commit(table, first, base(table, 3, 3), operation="compact", read_version=3)
    assert void(table, "not among its inputs", second, base(table, 3, 3))


def test_a_segment_that_no_longer_counts_is_no_input(table):
    commit(
        table, merge(table, 3, 3, rows=12, superseded=2), base(table, 3, 3), operation="compact",
        read_version=3,
    )  # fmt: skip
    again = ids(table, 1, 2, 3, 4)
    both = merge(table, 3, 3, inputs=again, version=4, rows=20)
    assert void(table, "does not count", both, log(table, 3, 3, 1, 3, 2, "base"), read=4)


def test_a_segment_across_the_end_of_a_run_is_no_input(table):
    whole = merge(table, 3, 3, rows=12, superseded=2)
    commit(table, whole, base(table, 3, 3), operation="compact", read_version=3)
    half = merge(table, 3, 3, 2, 4, ids(table, 4), 10, 0, version=4)
    assert void(table, "across the end", half, log(table, 3, 3, 2, 4, 2), read=4)


def test_a_shared_log_is_not_dropped_early(table):
    one = merge(table, 3, 3, rows=12, superseded=2)
    assert void(table, "still counts in a slice", one, base(table, 3, 3), *drops(table, 1))


def test_every_bucket_of_a_merge_gets_a_segment(table):
    whole = merge(table)
    gone = drops(table, 1, 2, 3)
    assert void(table, "even without rows", whole, *gone, base(table, 0, 6))
    assert void(
        table, "even without rows", whole, *gone, base(table, 0, 3), base(table, 5, 7, rows=0)
    )
    late = log(table, 0, 7, 1, 3, 1, "late")
    assert void(table, "even without rows", whole, *gone, late, base(table, 1, 7))
    parts = [base(table, 0, 3), base(table, 4, 7, rows=0), late]
    commit(table, whole, *gone, *parts, operation="compact", read_version=3)


@pytest.mark.parametrize("level", [0, 2])
def test_a_merge_is_one_level_above_its_inputs(table, level):
    wrong = log(table, 0, 7, 1, 3, level, "base")
    assert void(table, "one level above", merge(table), *drops(table, 1, 2, 3), wrong)


def test_the_form_of_a_merge(table):
    new, gone = base(table, 0, 7), drops(table, 1, 2, 3)
    whole = merge(table)
    backwards = replaced(whole, inputs=whole.inputs[::-1])
    assert void(table, "ascending order", backwards, *gone, new)
    assert void(
        table, "ascending order", replaced(whole, inputs=whole.inputs + whole.inputs[-1:]), new
    )
    assert void(table, "ascending order", replaced(whole, inputs=()), *gone, new)
    assert void(table, "wrong order", replaced(whole, first=7, last=0), *gone, new)
    assert void(table, "wrong order", replaced(whole, low=3, high=1), *gone, new)
    assert void(table, "meet", whole, replaced(whole, first=3, last=3), *gone, new)
    assert void(table, "after the version that it read", whole, *gone, new, read=2)
    assert void(table, "belongs to none", whole, *gone, new, log(table, 0, 0))
    elsewhere = replaced(whole, chunk="2013-01-07", inputs=("0" * 32,))
    assert void(table, "does not count", elsewhere, *gone, new)


def test_merges_of_several_runs_may_be_one_transaction(table):
    low = merge(table, 0, 1, inputs=ids(table, 1, 3), rows=11, superseded=1)
    high = merge(table, 6, 7, inputs=ids(table, 3), rows=5, superseded=0)
    commit(
        table, low, high, base(table, 0, 1), base(table, 6, 7, rows=5), operation="compact",
        read_version=3,
    )  # fmt: skip
    assert [r.first for r in slices.runs(live(table.session.head())) if r.base] == [0, 6]


@pytest.mark.parametrize(
    ("match", "place"),
    [
        ("no slice of the table", Slice("log", 0, BUCKETS, None, None, 0)),
        ("no slice of the table", Slice("log", 3, 2, None, None, 0)),
        ("no slice of the table", UNSET),
        ("not committed in", Slice("log", 0, 0, 1, 1, 0)),
        ("not committed in", Slice("log", 0, 0, None, None, 1)),
        ("not committed in", Slice("base", 0, 0, None, None, 0)),
        ("no slice of the table", Slice("log", 0, 0, 9, 9, 0)),
    ],
)
def test_what_an_upsert_cannot_add(table, match, place):
    wrong = replaced(log(table), slice=place)
    assert void(table, match, wrong, operation="upsert")


def test_a_part_of_a_chunk_cannot_be_dropped(table):
    assert void(table, "a part of chunk all only", *drops(table, 1), operation="drop")
    assert void(table, "a part of chunk all only", *drops(table, 2, 3), operation="overwrite")
    commit(table, *drops(table, 1, 2, 3), operation="overwrite", read_version=3)
    assert live(table.session.head()) == []


def test_an_overwrite_keeps_what_arrived_meanwhile(table):
    gone = drops(table, 1, 2, 3)
    new = log(table, 0, 0)
    commit(reopen(table.store), log(table, 0, 1), operation="upsert")
    commit(table, *gone, new, operation="overwrite", read_version=3)
    assert sorted(s.version for s in live(table.refresh())) == [4, 5]


def test_replace_is_for_tables_without_a_key(table):
    assert void(
        table, "by `merge`", Replace(3, 0), *drops(table, 1, 2, 3), log(table, 0, 7, rows=30)
    )


def test_a_table_without_a_key_has_no_slices():
    table = create()
    place = Slice("log", 0, 0, None, None, 0)
    add = Add(table.clock.random_id(), "2013-01-07", 0, 1, 100, HASH, 1, slice=place)
    for actions in ([add], [Merge(0, "2013-01-07", 0, 0, 0, 0, ("0" * 32,), 0, 0)]):
        with pytest.raises(errors.CommitConflict, match="has no key"):
            commit(table, *actions)


def test_two_transactions_of_one_commit_are_judged_in_turn(table):
    head = table.refresh()
    one = table.transaction(
        "compact", [merge(table, 3, 3, rows=12, superseded=2), base(table, 3, 3)], read_version=3
    )
    two = table.transaction(
        "compact", [merge(table, 3, 3, rows=12, superseded=2), base(table, 3, 3)], read_version=3
    )
    three = table.transaction("upsert", [log(table, 3, 3)])
    view = view_of(table, one, two, three)
    effect = fold.judge([three, one, two], view, head.header.time + 1)
    assert effect.accepted == (three.id, one.id)
    assert "not among its inputs" in effect.void[two.id]


def test_spilled_merges_are_judged_alike(table, monkeypatch):
    monkeypatch.setattr(spills, "SPILL_BYTES", 1)
    assert void(table, "have 30 rows", merge(table, rows=29, superseded=19), *drops(table, 1, 2, 3),
         base(table, 0, 7))  # fmt: skip
    commit(
        table, merge(table), *drops(table, 1, 2, 3), base(table, 0, 7), operation="compact",
        read_version=3,
    )  # fmt: skip
    commit(table, log(table, 0, 7), operation="upsert")
    assert {placement.span(s) for s in live(reopen(table.store).session.head())} == {(1, 3), (5, 5)}


def test_the_layout_names_key_and_buckets(table):
    assert table.session.head().layout.keyed == NamedKey(("name",), BUCKETS)
    assert table.session.head().schema.names == SCHEMA.names
