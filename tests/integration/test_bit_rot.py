"""Bytes of segments change: the right rows or DataLoss, whatever is asked, and soon.

By default a sample: of large segments the whole tail, the start of every column chunk (where page
headers are) and a stride through the rest. `EVENTLOG_EXAMPLES` set to anything flips every byte.
"""

import os
import random
from itertools import chain

import pyarrow as pa
import pytest
from support.builders import DAY_US, commit, create, drop_of, live, reopen, replaced

from eventlog import compaction, limits
from eventlog.errors import DataLoss
from eventlog.format import keys, parts
from eventlog.readers import count, scan
from eventlog.staging.encoding import SegmentWriter
from eventlog.state.delta import add_of
from eventlog.store.memory import MemoryStore
from eventlog.writers import append

EVERY = "EVENTLOG_EXAMPLES" in os.environ
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("station", pa.string()),
        ("value", pa.float64()),
        ("tags", pa.list_(pa.struct([("k", pa.string()), ("v", pa.int32())]))),
        ("id", pa.string()),
        ("n", pa.int64()),
    ]
)
SCANS = {
    "all": lambda t: scan(t).to_table(),
    "two columns": lambda t: scan(t, ["n", "station"]).to_table(),
    "filtered": lambda t: scan(t, ["id"], where="station = 'Oslo' AND n > 100").to_table(),
    "pruned": lambda t: scan(t, ["tags"], where="n < 150").to_table(),
    "count": lambda t: count(t, where="value > 0.5 AND n >= 10"),
    "fallback": lambda t: scan(t, ["value", "n"], fallback=True).to_table(),
}


def rows(day, number):
    """Rows of one day with a dictionary, random text, nested values and nulls."""
    chance = random.Random(day)
    return pa.table(
        [
            [day * DAY_US + n for n in range(number)],
            [("Oslo", "Kyoto", None)[chance.randrange(3)] for _ in range(number)],
            [None if n % 7 == 0 else chance.random() for n in range(number)],
            [[{"k": "a", "v": n}] * (n % 3) for n in range(number)],
            [f"{chance.getrandbits(48):012x}" for _ in range(number)],
            list(range(number)),
        ],
        schema=SCHEMA,
    )


class Rotting(MemoryStore):
    """A store that gives other bytes of some objects than were put there."""

    def __init__(self):
        super().__init__()
        self.rotten = {}

    def get(self, key, *, start=0, length=None):
        body = self.rotten.get(key)
        if body is None:
            return super().get(key, start=start, length=length)
        return bytes(body[start : None if length is None else start + length])


def large_table(monkeypatch, whole_bytes, groups=2):
    """A table of two large segments of several row groups, and a small one."""
    monkeypatch.setattr(limits, "WHOLE_BYTES", whole_bytes)
    monkeypatch.setattr(limits, "ROW_GROUP_ROWS", 200)
    store = Rotting()
    table = create(store, schema=SCHEMA)
    append(table, rows(0, 200 * groups))
    append(table, rows(1, 200 * groups))
    append(table, rows(2, 5))
    segments = sorted(live(table.session.head()), key=lambda segment: segment.version)
    assert [segment.tail is not None for segment in segments] == [True, True, False]
    return store, reopen(store), segments


def footer_of(store, segment):
    body = store.get(keys.key_of(segment))
    return body, *parts.parse_tail(body[-segment.tail.size :], len(body))


def places(store, segment):
    """Where to flip a bit of a segment."""
    body, _, known = footer_of(store, segment)
    if EVERY:
        return range(len(body))
    tail = range(len(body) - segment.tail.size, len(body), 29)
    headers = chain(*(range(start, start + 24, 11) for start in known.bounds[:-1]))
    return sorted({*tail, *headers, *range(0, len(body), 997)})


def check(store, table, right, key, body, *names):
    """Ask with these bytes in place of the object: the right answer, or DataLoss that names it."""
    store.rotten[key] = body
    found = {}
    for name in names:
        try:
            found[name] = SCANS[name](table)
        except DataLoss as error:
            found[name] = DataLoss if error.key == key else error
        assert found[name] in (DataLoss, right[name])
    del store.rotten[key]
    return found


@pytest.mark.verify
@pytest.mark.hazard("W6")
def test_every_flipped_byte_of_a_large_segment_is_found(monkeypatch):
    store, table, segments = large_table(monkeypatch, 6_000)
    right = {name: ask(table) for name, ask in SCANS.items()}
    names = list(SCANS)
    for segment in segments[:2]:
        key = keys.key_of(segment)
        body, _, known = footer_of(store, segment)
        # What stands between column chunks and tail is for readers of page indexes.
        unread = range(known.bounds[-2], known.bounds[-1])
        for number, at in enumerate(places(store, segment)):
            bad = bytearray(body)
            bad[at] ^= 1 << number % 8
            found = check(store, table, right, key, bad, "all", names[1 + number % 5])
            assert (found["all"] is DataLoss) == (at not in unread)
    assert {name: ask(table) for name, ask in SCANS.items()} == right


@pytest.mark.verify
def test_a_flipped_byte_of_a_segment_of_megabytes_is_found(monkeypatch):
    """The real bound between small and large."""
    monkeypatch.setattr(limits, "ROW_GROUP_ROWS", 30_000)
    store = Rotting()
    table = create(store, schema=SCHEMA)
    append(table, rows(0, 70_000))
    (segment,) = live(table.session.head())
    body, footer, known = footer_of(store, segment)
    assert len(body) > limits.WHOLE_BYTES
    assert footer.num_row_groups == 3
    right = {name: ask(table) for name, ask in SCANS.items()}
    places = (5, known.bounds[4] + 3, known.bounds[9], len(body) - 10, len(body) - 2000, 700_000)
    for number, at in enumerate(places):
        bad = bytearray(body)
        bad[at] ^= 1 << number
        check(store, table, right, keys.key_of(segment), bad, *list(SCANS)[: 1 + number % 6])


@pytest.mark.hazard("W6")
def test_cut_longer_and_exchanged_objects_are_found(monkeypatch):
    store, table, segments = large_table(monkeypatch, 6_000)
    right = {name: ask(table) for name, ask in SCANS.items()}
    bodies = [store.get(keys.key_of(segment)) for segment in segments]
    body, _, known = footer_of(store, segments[0])
    size = segments[0].tail.size
    a, b = (body[known.bounds[n] : known.bounds[n + 1]] for n in (1, 2))
    damaged = {
        "empty": b"",
        "cut": body[:-1],
        "cut in the tail": body[: -size // 2],
        "without its tail": body[:-size],
        "cut to its tail": body[-size:],
        "cut at the front": body[1:],
        "longer": body + b"\0",
        "doubled": body + body,
        "a tail of its own": body + body[-size:],
        "a part of it gone": body.replace(a, b""),
        "parts exchanged": body.replace(a + b, b + a),
        "zeros": bytes(len(body)),
        "another segment": bodies[1],
        "a small one": bodies[2],
        "another one's tail": body[:-size] + bodies[1][-segments[1].tail.size :],
    }
    for what, bad in damaged.items():
        found = check(store, table, right, keys.key_of(segments[0]), bad, *SCANS)
        assert found["all"] is DataLoss, what
    store.rotten = {keys.key_of(segments[n]): bodies[1 - n] for n in (0, 1)}
    for ask in SCANS.values():
        with pytest.raises(DataLoss):
            ask(table)


@pytest.mark.hazard("W6")
def test_a_large_segment_without_a_tail_is_checked_whole(monkeypatch):
    store, table, segments = large_table(monkeypatch, 6_000)
    first = segments[0]
    right = {name: ask(table) for name, ask in SCANS.items()}
    untold = replaced(first, id="e" * 32, tail=None)
    body = store.get(keys.key_of(first))
    assert store.put_if_absent(keys.key_of(untold), body)
    commit(table, drop_of(first), add_of(untold), operation="overwrite")
    assert {name: ask(table) for name, ask in SCANS.items() if name != "fallback"} == {
        name: answer for name, answer in right.items() if name != "fallback"
    }
    for at in (*range(0, len(body), len(body) // 40), len(body) - 1):
        bad = bytearray(body)
        bad[at] ^= 4
        found = check(store, table, right, keys.key_of(untold), bad, "all", "two columns")
        assert set(found.values()) == {DataLoss}


@pytest.mark.hazard("W6")
def test_compaction_passes_no_damage_on_and_its_inputs_stand_in(monkeypatch):
    monkeypatch.setattr(limits, "WHOLE_BYTES", 6_000)
    monkeypatch.setattr(limits, "ROW_GROUP_ROWS", 200)
    store = Rotting()
    table = create(store, schema=SCHEMA)
    for _ in range(4):
        append(table, rows(0, 600))
    right = scan(table).to_table()
    inputs = live(table.session.head())
    body, _, known = footer_of(store, inputs[1])
    policy = compaction.Policy(small_task_bytes=0)
    for at in (3, known.bounds[3] + 2, known.bounds[-3] + 1, len(body) - 30):
        bad = bytearray(body)
        bad[at] ^= 8
        store.rotten = {keys.key_of(inputs[1]): bad}
        (task,) = compaction.plan(table, policy).tasks
        outcome = compaction.perform(table, task, policy)
        assert outcome.status == "failed"
        assert "DataLoss" in outcome.error
        assert live(table.refresh()) == inputs
    store.rotten = {}
    (task,) = compaction.plan(table, policy).tasks
    assert compaction.perform(table, task, policy).ok
    (output,) = live(table.refresh())
    body = store.get(keys.key_of(output))
    for at in (9, len(body) // 2, len(body) - output.tail.size, len(body) - 1):
        bad = bytearray(body)
        bad[at] ^= 2
        store.rotten = {keys.key_of(output): bad}
        with pytest.raises(DataLoss, match="fallback=True"):
            scan(table).to_table()
        found = scan(table, fallback=True).to_table()
        assert found.sort_by([("n", "ascending")]) == right.sort_by([("n", "ascending")])


@pytest.mark.hazard("W6")
@pytest.mark.parametrize("at", [3, -1, -100])
@pytest.mark.parametrize("large", [True, False])
def test_a_compaction_commits_no_segment_that_readers_would_refuse(monkeypatch, at, large):
    """An encoder, or memory, that goes wrong: a vacuum would then delete the readable inputs."""
    monkeypatch.setattr(limits, "WHOLE_BYTES", 2_000 if large else 2**20)
    table = create(schema=SCHEMA)
    for _ in range(4):
        append(table, rows(0, 300))
    right = scan(table).to_table()
    seal = SegmentWriter.seal

    def wrong(writer):
        add, body = seal(writer)
        bad = bytearray(body)
        bad[at] ^= 1
        return add, memoryview(bad)

    monkeypatch.setattr(SegmentWriter, "seal", wrong)
    policy = compaction.Policy(small_task_bytes=0)
    (task,) = compaction.plan(table, policy).tasks
    outcome = compaction.perform(table, task, policy)
    if large and at == 3:  # the whole is not read again: whoever reads it finds that
        assert outcome.ok
        return
    assert outcome.status == "failed"
    assert "cannot be read back after encoding" in outcome.error
    assert scan(table).to_table() == right
