"""Key frames of ten and a hundred million segments: one day's plan, and the key frame after it.

Neither the segments nor most of the leaves exist. The root, and the stems below it, describe as
many leaves as such a table has, with bounds as different as real ones; only the leaves of the days
that are asked for are stored. So a table of a hundred million segments takes seconds, and what is
read and written of it is what a real one would take.
"""

import hashlib
import statistics

import cold
import msgspec
import synthetic
from harness import MEGABYTE, child

from eventlog import Table
from eventlog.format import codec, keys
from eventlog.format.frames import entry_columns, frame_bytes
from eventlog.model.entries import ColumnStats, Segment
from eventlog.model.records import KeyFrame, Leaf, Totals
from eventlog.state import keyframe
from eventlog.state.delta import drop_of
from eventlog.state.pieces import stems
from eventlog.store.local import LocalStore

SIZES = (1_000_000, 10_000_000, 100_000_000)
PER_DAY = 2_740  # as a million segments over a year
DAY_MS = 86_400_000
_FIRST_MS = synthetic._FIRST_SECOND * 1000
RUNS = 3


def run(bench):
    """Emit the rows of each size."""
    for segments in SIZES if bench.size(1, 0) else (2_000_000,):
        folder = bench.folder / f"made-{segments}"
        build(folder, segments)
        told = [
            child("cold.py", "eventlog", folder, question, timeout_s=120)
            for question in ("day", "where")
            for _ in range(bench.size(RUNS, 1))
        ]
        if {one["found"] for one in told} != {PER_DAY}:
            raise AssertionError(f"a day has {told[0]['found']} segments, not {PER_DAY}")
        work = f"cold plan of one day, {segments:,} made segments"
        for key, unit, goal in (("requests", "requests", 5), ("bytes_read", "MB read", 1)):
            value = statistics.median(one[key] for one in told)
            value = value / MEGABYTE if key == "bytes_read" else value
            met = value <= goal if key == "requests" else value < goal
            bench.emit(work, {"eventlog": value}, unit, goal=f"{goal}", met=met)
        bench.emit(work, {"eventlog": statistics.median(one["cpu_s"] for one in told)}, "CPU s")
        for words, change in (("10 segments for all of a day", _replaced), ("one more", _appended)):
            written, objects = _written(folder, change, segments)
            work = f"key frame after {words}, {segments:,} made segments"
            bench.emit(
                work, {"eventlog": written / MEGABYTE}, "MB written",
                goal="< 0.5", met=written < MEGABYTE / 2, note=f"{objects} objects",
            )  # fmt: skip


def build(folder, segments, per_day=PER_DAY):
    """Store a table with a made commit 1 of so many segments, and its key frame."""
    table = Table.create(str(folder), synthetic.COLUMNS, time_column=synthetic.peers.TIME)
    store, head = table.store, table.session.head()
    real = {cold.DAY_NUMBER, cold.DAY_NUMBER + 1}
    bodies = {day: _real_leaf(day, per_day) for day in real}
    size = len(bodies[cold.DAY_NUMBER][1])
    leaves = [
        bodies[day][0] if day in real else _made_leaf(day, per_day, size)
        for day in range(segments // per_day)
    ]
    objects = {keys.frame_key(leaf.sha256): body for leaf, body in bodies.values()}
    named = []
    if len(leaves) > keyframe.ROOT_LEAVES:
        named = stems.cut_stems(leaves, keyframe.STEM_TARGET, objects, {})
    for key, body in objects.items():
        store.put_if_absent(key, body)
    total = sum(int(leaf.hash_sum, 16) for leaf in leaves) + codec.meta_hash(head.meta)
    totals = Totals(
        *(sum(getattr(leaf, name) for leaf in leaves) for name in ("segments", "rows", "bytes"))
    )
    commit, body = table.session.log.read(0)
    header = msgspec.structs.replace(
        commit.header, version=1, prev=codec.sha256(body), time=commit.header.time + 1,
        totals=totals, state_hash=codec.hex_hash(total),
    )  # fmt: skip
    body = codec.encode_commit(msgspec.structs.replace(commit, header=header))
    store.put_if_absent(keys.commit_key(1), body)
    root = KeyFrame(
        header.format, header.min_reader, (), header.table, 1, codec.sha256(body), header.time,
        totals, header.state_hash, head.meta, (), () if named else tuple(leaves),
        tuple(named) or msgspec.UNSET,
    )  # fmt: skip
    store.put_if_absent(keys.keyframe_key(1), codec.encode_keyframe(root))


def _real_leaf(day, per_day):
    entries = []
    for number in range(day * per_day, (day + 1) * per_day):
        add = synthetic.add_of(number, day, 0, 1)
        fields = (add.rows, add.bytes, add.checksum, add.schema, add.stats)
        entries.append(Segment(add.id, add.chunk, 0, 1, number, *fields))
    table = entry_columns.from_segments(entries).sort_by(entry_columns.ORDER)
    body = frame_bytes.to_parquet(table)
    return keyframe._leaf(table, body), body


def _made_leaf(day, per_day, size):
    """Return the entry of a root for a leaf that is not stored."""
    one, two = (hashlib.sha256(f"{day} {n}".encode()).hexdigest() for n in range(2))
    stats = tuple(
        ColumnStats(column, synthetic._encoded(low), synthetic._encoded(high), 0)
        for column, (low, high) in enumerate(synthetic.bounds(day * per_day, day)[:4], start=1)
    )
    end, place = _FIRST_MS + (day + 1) * DAY_MS, f"{synthetic.name_of(day)}/{two[-32:]}"
    rows, size_of_all = per_day * 1000, per_day * 100_000 - int(one[:6], 16)
    size -= int(two[:2], 16)
    return Leaf(one, size, place, end, per_day, rows, size_of_all, two, stats)


def _appended(table, segments):
    head = table.session.head()
    day = cold.DAY_NUMBER + 1
    add = synthetic.add_of(segments + 99, day, head.version, 1)
    table.session.log.staged.vouch([add])
    table.commit(table.transaction("append", [add]))


def _replaced(table, segments):
    head, day = table.session.head(), cold.DAY_NUMBER
    old = head.segments(chunks=[synthetic.name_of(day)])
    adds = [synthetic.add_of(segments + n, day, head.version, 1) for n in range(10)]
    table.session.log.staged.vouch(adds)
    table.commit(table.transaction("replace", [*map(drop_of, old), *adds]))


def _written(folder, change, segments):
    """Change a table; return the bytes and the number of the objects of the key frame after it."""
    table = Table.open("", store=LocalStore(folder))
    before = table.session.head().base
    change(table, segments)
    table.write_keyframe()
    root = table.session.head().base
    new = table.session.log.key_frames.new_in(root, before)
    return sum(piece.size for piece in new) + len(codec.encode_keyframe(root)), len(new) + 1
