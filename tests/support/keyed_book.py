"""The book of a keyed table: which rows each of its versions has, from its log and its writers.

Rows come from those who wrote them, their order from the log, and answers from `keyed_model`. Of
merges it knows one thing: which tombstones they have left out, and whether they might (FORMAT.md
R15.14); everything else that a merge does must not show.
"""

from bisect import bisect_right
from collections import Counter
from io import BytesIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from support.folds import advance
from support.keyed_model import answer

from eventlog import Table
from eventlog.format import codec, keys
from eventlog.format.buckets import buckets_of
from eventlog.keyed.rule import splits_of, stored_rule
from eventlog.log import spills
from eventlog.model.actions import Add, Merge, Restore
from eventlog.model.columns.named_layout import named_layout
from eventlog.model.properties import setting
from eventlog.model.schema import to_arrow

HOUR_MS = 3_600_000


def model_of(rows, rule):
    """What a reader must see, by key: `keyed_model`."""
    return answer(
        rows,
        key=rule.key,
        order=rule.order,
        kind=rule.kind,
        functions=rule.functions,
        orders=rule.orders,
    )


class Book:
    """The rows of every version of a keyed table.

    Attributes:
        given: by app id, what a writer handed in: ("rows", rows), ("where", function of a row) or
            ("overwrite", (first chunk, last chunk) or None, rows).
        at: the rows of each version as (chunk, version, row), in their order. The version is that
            of their place: of an overwrite's rows, the one that it read.
        taken: (version, transaction) of all that took effect.
        changed: the versions in which segments were added or dropped.
        counts: how often what was in the log.
    """

    def __init__(self, store, chunk_of):
        self.store, self.chunk_of = store, chunk_of
        self.given, self.at, self.rules, self.columns, self.times = {}, {}, {}, {}, {}
        self.counts, self.changed, self.taken = Counter(), set(), []
        self.state, self.version = None, -1
        self.rows = []
        self.born = {}  # by id of a row that lies below its commit's version: that version
        self._buckets = {}
        self._answers = {}

    @property
    def horizon(self):
        return self.state.meta.horizon

    @property
    def kept(self):
        """The versions that can be read."""
        return range(self.horizon, self.version + 1)

    def follow(self):
        """Fold the commits that are new; return their versions."""
        log = Table(self.store).session.log
        found = (keys.parse_log_key(o.key) for o in self.store.list(keys.LOG_PREFIX, limit=4))
        newest = max(place[0] for place in found if place is not None and not place[1])
        fresh = range(self.version + 1, newest + 1)
        for version in fresh:
            commit, body = log.read(version)
            whole = spills.unpack(commit, log.spill)
            self.state, effect = advance(self.state, whole, codec.sha256(body))
            meta = self.state.meta
            self.rules[version] = stored_rule(meta.layout, meta.schema)
            self.columns[version] = [column.name for column in meta.schema.columns]
            self.times[version] = commit.header.time
            self.version = version
            if effect.adds or effect.drops:
                self.changed.add(version)
            for segment in effect.adds:
                late = splits_of(segment.slice) < self.rules[version].splits
                self.counts["adds over a split"] += late
            for transaction in effect.taken:
                self.taken.append((version, transaction))
                self._apply(transaction)
            self.at[version] = list(self.rows)
        return fresh

    def answer(self, version):
        """The rows that a reader of a version must see."""
        if version not in self._answers:
            chunks = {}
            for chunk, _, row in self.at[version]:
                chunks.setdefault(chunk, []).append(self._whole(row, version))
            rule = self.rules[version]
            self._answers[version] = [
                row for rows in chunks.values() for row in model_of(rows, rule).values()
            ]
        return self._answers[version]

    def _whole(self, row, version):
        """A row with all columns of a version: those added since have no values in it."""
        whole = {name: row.get(name) for name in self.columns[version]}
        return whole | {"_op": row["_op"]}

    def _apply(self, transaction):
        self.counts[transaction.operation] += 1
        for action in transaction.actions:
            if isinstance(action, Restore):
                self.rows = list(self.at[action.version])
            if isinstance(action, Merge):
                self._merge(action, transaction)
        if transaction.app is None:
            return
        kind, *what = self.given[transaction.app.id]
        read = transaction.read_version
        if kind == "where":
            rows = self._deletes(what[0], read)
        elif kind == "overwrite":
            within, rows = what
            # What a restore has brought back since was not there when it was read, and stays.
            seen = {id(one) for one in self.at[read]}
            self.rows = [
                one
                for one in self.rows
                if id(one) not in seen or not (within is None or one[0] in within)
            ]
            self._put_below(rows, read)
            return
        else:
            (rows,) = what
        self.rows += [(self.chunk_of(row), self.version, row) for row in rows]

    def _put_below(self, rows, read):
        """The rows of an overwrite: those that came after its read version lie above them."""
        self.counts["overwrites below others"] += any(place > read for _, place, _ in self.rows)
        new = [(self.chunk_of(row), read, row) for row in rows]
        self.born |= {id(row): self.version for row in rows}
        at = bisect_right(self.rows, read, key=lambda one: one[1])
        self.rows[at:at] = new

    def _deletes(self, holds, read):
        """The deletes of the keys that a predicate selects at a version."""
        rule, meta = self.rules[read], self.state.meta
        layout = named_layout(meta.layout, meta.schema)
        names = {*rule.key, *([] if layout.granularity == "all" else [layout.time_column])}
        blank = dict.fromkeys(self.columns[read])
        hit = [row for row in self.answer(read) if holds(row) is True]
        return [blank | {n: row[n] for n in names} | {"_op": "d"} for row in hit]

    # -------------------------------------------------------------------- forgotten tombstones

    def _merge(self, merge, transaction):
        self.counts["merged rows superseded"] += merge.superseded
        own = [
            action
            for action in transaction.actions
            if isinstance(action, Add)
            and action.chunk == merge.chunk
            and action.slice.splits == merge.splits
            and merge.first <= action.slice.first <= merge.last
        ]
        bottom = any(add.slice.kind == "base" for add in own)
        self.counts["merges to a base" if bottom else "merges to a log"] += 1
        rule = self.rules[self.version]
        self.counts["merges over a split"] += splits_of(merge) < rule.splits
        # A log keeps every tombstone; what it forgot would show later.
        if not bottom or not rule.ordered_deletes:
            return
        told = self._told(own, rule)
        by_key = {}
        for place, (chunk, version, row) in enumerate(self.rows):
            if chunk == merge.chunk:
                name = tuple(row[k] for k in rule.key)
                by_key.setdefault(name, []).append((place, version, row))
        gone = set()
        for name, rows in by_key.items():
            if merge.first <= self.bucket(name, rule, merge) <= merge.last:
                gone |= self._forgotten(merge, rule, rows, told.get(name, []), name)
        if gone:
            self.rows = [row for place, row in enumerate(self.rows) if place not in gone]

    def _told(self, adds, rule):
        """The order values of the tombstones in the late segments of a merge, by key."""
        told = {}
        for add in adds:
            if add.slice.kind != "late":
                continue
            body = self.store.get(keys.segment_key(add.epoch, add.chunk, add.id))
            rows = pq.read_table(BytesIO(body))
            for row in rows.to_pylist() if "_op" in rows.column_names else ():
                if row["_op"] == "d":
                    name = tuple(row[k] for k in rule.key)
                    told.setdefault(name, []).append(row[rule.order])
        return told

    def _forgotten(self, merge, rule, rows, told, name):
        """The places of the tombstones of a key that a merge left out, and of what they hid."""
        inside = [(p, v, row) for p, v, row in rows if merge.low <= v <= merge.high]
        barriers = [p for p, _, row in inside if row["_op"] == "d" and row[rule.order] is None]
        behind = [one for one in inside if one[0] > max(barriers, default=-1)]
        best = max(
            ((row[rule.order], p) for p, _, row in behind if row["_op"] != "d"), default=None
        )
        tombs = [(row[rule.order], p) for p, _, row in behind if row["_op"] == "d"]
        if rule.kind == "last" and best is not None and best > max(tombs, default=best):
            return set()  # the row that is shown is later than all that a tombstone would hide
        gone = []
        for place, version, row in behind:
            if row["_op"] != "d" or any(row[rule.order] <= order for order in told):
                continue
            mine = row[rule.order], place
            self._check_forgettable(merge, rule, self.born.get(id(row), version), name)
            gone.append(mine)
        if not gone:
            return set()
        self.counts["tombstones forgotten"] += len(gone)
        lost = {
            p for p, _, row in behind if (row[rule.order], p) <= max(gone)
        }  # the tombstones, and what they hid
        planned = [(p, row) for p, v, row in rows if v <= merge.version]
        before = self._seen([row for _, row in planned])
        assert before == self._seen([row for p, row in planned if p not in lost]), (
            f"a merge changed what was there when it was planned, of key {name}"
        )
        return lost

    def _check_forgettable(self, merge, rule, version, name):
        """Check that a merge might forget a tombstone of a version: R15.14, word for word."""
        hours = setting(self.state.meta.properties, "tombstone_hours")
        then, now = self.times[version], self.times[merge.version]
        between = (self.times[v] for v in range(version + 1, merge.version))
        passed = (t - then > hours * HOUR_MS < now - t for t in between)
        assert any(passed), f"forgotten after {now - then} ms: key {name}"
        for chunk, v, row in self.at[merge.version]:
            if chunk == merge.chunk and v > merge.high:
                bucket = self.bucket(tuple(row[k] for k in rule.key), rule, merge)
                assert bucket != self.bucket(name, rule, merge), (
                    f"logs lay above the merge: key {name}"
                )

    def _seen(self, rows):
        whole = [self._whole(row, self.version) for row in rows]
        return model_of(whole, self.rules[self.version])

    def bucket(self, name, rule, merge):
        """The bucket of a key as a merge numbers it, which may be planned before a split."""
        splits = splits_of(merge)
        buckets = rule.buckets >> (rule.splits - splits)
        if (name, splits) not in self._buckets:
            fields = to_arrow(self.state.meta.schema)
            columns = [
                pa.array([v], fields.field(k).type) for k, v in zip(rule.key, name, strict=True)
            ]
            row = pa.table(columns, list(rule.key))
            found = buckets_of(row, rule.key, buckets, splits)
            self._buckets[name, splits] = pc.sum(found).as_py()
        return self._buckets[name, splits]
