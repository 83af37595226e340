"""Compares rows before and after a version, on Arrow tables. No I/O.

Imports eventlog and readers.keyed only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.keyed import key_lookup, row_merging
from eventlog.keyed.rule import MergeRule
from eventlog.readers.keyed.segment_rows import AT

# Columns beside the table's.
CHANGE, VERSION, TIME = "_change", "_version", "_time"
INSERT, BEFORE, AFTER, DELETE = "insert", "update_before", "update_after", "delete"
COLUMNS = pa.schema(
    [
        pa.field(CHANGE, pa.string(), nullable=False),
        pa.field(VERSION, pa.int64(), nullable=False),
        pa.field(TIME, pa.timestamp("us", "UTC"), nullable=False),
    ]
)


def of_versions(
    rows: pa.Table, rule: MergeRule, after: int, compared: Collection[str], most_bytes: int
) -> Iterator[pa.Table]:
    """Yield the changes that each version made to the keys that it wrote.

    Args:
        rows: the rows of those keys, as `SliceReader.written` returns them.
        rule: the merge rule.
        after: the version before the first one.
        compared: the columns whose values make an update. Other columns, such as one that orders
            the rows of a key, may differ without a change.
        most_bytes: of rows that are merged at once, each once for every version that wrote its key
            after it. All rows of one version are merged at once.

    Returns:
        The columns of `rows` without `_op` and `AT`, then `_change` and `_version`. Those of a
        key are in the order of versions; `update_before` stands directly before its `update_after`.

    Raises:
        SumOverflow: a sum does not fit its column; the error has the version.
    """
    keys = key_lookup.distinct(rows, rule.key)
    key = free_name(rows.column_names)
    numbers = key_lookup.places(rows, keys, rule.key)
    names = [name for name in rows.column_names if name not in rule.key]
    bare = replace(rule, key=(key,))
    for part in _of_few_keys(rows.select(names).append_column(key, numbers), key, most_bytes):
        try:
            for change in _of_keys(part, bare, after, key, compared, most_bytes):
                yield _with_keys(change, keys, key)
        except row_merging.SumOverflow as error:
            raise _with_names(error, keys, key) from None


def _of_few_keys(rows: pa.Table, key: str, most_bytes: int) -> Iterator[pa.Table]:
    """Yield rows in parts of about `most_bytes`, each with all rows of its keys."""
    count = -(-rows.nbytes // most_bytes)
    if count < 2:
        yield rows.combine_chunks()
        return
    numbers = rows.column(key)
    each = -(-(pc.max(numbers).as_py() + 1) // count)
    for first in range(0, each * count, each):
        mask = pc.and_(pc.greater_equal(numbers, first), pc.less(numbers, first + each))
        part = rows.filter(mask).combine_chunks()
        if part.num_rows:
            yield part


def _of_keys(  # noqa: PLR0917 - those of `of_versions`, and the name of the key
    rows: pa.Table,
    rule: MergeRule,
    after: int,
    key: str,
    compared: Collection[str],
    most_bytes: int,
) -> Iterator[pa.Table]:
    """Yield the changes of some keys, which have numbers; see `of_versions`."""
    before = rows.filter(pc.less_equal(rows.column(AT), after))
    rows = rows.filter(pc.greater(rows.column(AT), after))
    for window in _windows(before, rows, key, most_bytes):
        known = pa.concat_tables([before, window]).combine_chunks()
        yield from _of_window(known, rule, after, key, compared)
        # The rows of this window are condensed, so that a key that is written again and again does
        # not cost all its former rows in each window.
        after = pc.max(window.column(AT)).as_py()
        fits, others = row_merging.fitting(known.drop_columns([AT]), rule)
        rest = pa.concat_tables([row_merging.condensed(fits, rule, bottom=True), others])
        before = rest.append_column(AT, pa.repeat(pa.scalar(after, pa.int64()), rest.num_rows))
        before = before.select(known.column_names)


def between(
    before: pa.Table,
    after: pa.Table,
    rule: MergeRule,
    version: int,
    compared: Collection[str],
) -> pa.Table:
    """Return the changes of a version of a keyed table, from all rows before and after it.

    Args:
        before: the rows before it, one a key.
        after: the rows after it, in the same columns.
        rule: the merge rule, for the key.
        version: the version.
        compared: as in `of_versions`.

    Returns:
        As `of_versions`.
    """
    rows = pa.concat_tables([before, after]).combine_chunks()
    keys = key_lookup.distinct(rows, rule.key)
    key = free_name(rows.column_names)
    versions = [pa.repeat(pa.scalar(-1, pa.int64()), before.num_rows)]
    versions.append(pa.repeat(pa.scalar(version, pa.int64()), after.num_rows))
    images = rows.select([name for name in rows.column_names if name not in rule.key])
    images = images.append_column(key, key_lookup.places(rows, keys, rule.key))
    images = images.append_column(AT, pa.concat_arrays(versions))
    every = key_lookup.row_numbers(keys.num_rows)
    touches = pa.table(
        {
            key: pa.concat_arrays([every, every]),
            AT: pa.concat_arrays(
                [pa.repeat(pa.scalar(at, pa.int64()), keys.num_rows) for at in (-1, version)]
            ),
        }
    )
    changes = _with_keys(_differences(images, touches, -1, key, compared), keys, key)
    return changes.select([*before.column_names, CHANGE, VERSION])


def _with_names(
    error: row_merging.SumOverflow, keys: pa.Table, key: str
) -> row_merging.SumOverflow:
    """Return an error with the key columns in place of their number, and with its version."""
    number, version = (error.keys.column(name)[0].as_py() for name in (key, AT))
    named = row_merging.SumOverflow.of(error.column, error.total, error.kind, keys.slice(number, 1))
    named.version = version
    return named


def inserted(rows: pa.Table, versions: pa.Array) -> pa.Table:
    """Return rows that were added in these versions."""
    return _marked(rows, pa.repeat(pa.scalar(INSERT), rows.num_rows), versions)


def exchanged(before: pa.Table, after: pa.Table, version: int) -> pa.Table:
    """Return the rows that a version removed from a table without a key, and those that it added.

    Equal rows cancel out, one against one.

    Args:
        before: rows that only the version before it has.
        after: rows that only this version has, in the same columns.
        version: the version.

    Returns:
        As `of_versions`, deletes first.
    """
    if not before.column_names:  # all rows are alike
        fewer = after.num_rows < before.num_rows
        some = (before if fewer else after).slice(0, abs(after.num_rows - before.num_rows))
        kinds = pa.repeat(pa.scalar(DELETE if fewer else INSERT), some.num_rows)
        return _marked(some, kinds, pa.repeat(pa.scalar(version, pa.int64()), some.num_rows))
    rows = pa.concat_tables([before, after]).combine_chunks()
    aliases = [f"c{place}" for place in range(rows.num_columns)]
    marked = pa.table([_comparable(column) for column in rows.columns], aliases)
    signs = [pa.repeat(pa.scalar(-1, pa.int64()), before.num_rows)]
    signs.append(pa.repeat(pa.scalar(1, pa.int64()), after.num_rows))
    marked = marked.append_column("sign", pa.concat_arrays(signs))
    marked = marked.append_column("row", key_lookup.row_numbers(rows.num_rows))
    grouped = marked.group_by(aliases, use_threads=False).aggregate(
        [("sign", "sum"), ("row", "min")]
    )
    parts = []
    for change, sign in ((DELETE, -1), (INSERT, 1)):
        counts = pc.multiply(grouped.column("sign_sum"), sign)
        chosen = pc.greater(counts, 0)
        numbers = _repeated(grouped.column("row_min").filter(chosen), counts.filter(chosen))
        some = rows.take(numbers.take(pc.sort_indices(numbers)))
        at = pa.repeat(pa.scalar(version, pa.int64()), some.num_rows)
        parts.append(_marked(some, pa.repeat(pa.scalar(change), some.num_rows), at))
    return pa.concat_tables(parts)


def updated(before: pa.Table, after: pa.Table, version: int, compared: Collection[str]) -> pa.Table:
    """Return the changes of a version that updated rows of a table without a key.

    Args:
        before: the old rows.
        after: the new forms of these rows, in their order and in the same columns.
        version: the version.
        compared: as in `of_versions`.

    Returns:
        As `of_versions`: each `update_before` stands directly before its `update_after`.
    """
    rows = pa.concat_tables([before, after]).combine_chunks()
    firsts = key_lookup.row_numbers(before.num_rows)
    seconds = pc.add(firsts, before.num_rows)
    differ = pc.invert(_alike(rows, firsts, seconds, compared))
    firsts, seconds = firsts.filter(differ), seconds.filter(differ)
    twice = pc.multiply(key_lookup.row_numbers(len(firsts)), 2)
    order = pc.sort_indices(pa.concat_arrays([twice, pc.add(twice, 1)]))
    kinds = [pa.repeat(pa.scalar(kind), len(firsts)) for kind in (BEFORE, AFTER)]
    return _marked(
        rows.take(pa.concat_arrays([firsts, seconds]).take(order)),
        pa.concat_arrays(kinds).take(order),
        pa.repeat(pa.scalar(version, pa.int64()), len(order)),
    )


def _windows(before: pa.Table, rows: pa.Table, key: str, most_bytes: int) -> Iterator[pa.Table]:
    """Yield the written rows in windows of whole versions.

    A row counts once for every version of the window that wrote its key at that version or later.
    The rows of a window are bounded, except those of a single version.
    """
    everything = before.num_rows + rows.num_rows
    if not rows.num_rows:
        return
    each = max(1, (before.nbytes + rows.nbytes) // everything)
    most = max(1, most_bytes // each)
    versions = pc.unique(
        key_lookup.in_one_piece(rows.column(AT))
    ).to_pylist()  # rows are in their order
    if len(versions) == 1 or _at_most(before, rows, key) <= most:
        yield rows
        return
    counts = _counted(before, key)
    waiting: list[pa.Table] = []
    touched: dict[int, int] = {}
    cost = 0
    starts = _offsets(rows, versions)
    for place in range(len(versions)):
        some = rows.slice(starts[place], starts[place + 1] - starts[place])
        own = _counted(some, key)
        added = sum(touched.get(k, counts.get(k, 0)) + n for k, n in own.items())
        if waiting and cost + added > most:
            yield pa.concat_tables(waiting)
            counts |= dict.fromkeys(touched, 1)
            waiting, touched, cost = [], {}, 0
            added = sum(counts.get(k, 0) + n for k, n in own.items())
        for k, n in own.items():
            touched[k] = touched.get(k, counts.get(k, 0)) + n
        cost += added
        waiting.append(some)
    yield pa.concat_tables(waiting)


def _at_most(before: pa.Table, rows: pa.Table, key: str) -> int:
    """Return at most how often rows count in one window, counted by key."""
    keys = pa.concat_tables([t.select([key]) for t in (before, rows)])
    known = keys.group_by(key).aggregate([([], "count_all")]).rename_columns(["key", "all"])
    new = rows.select([key]).group_by(key).aggregate([([], "count_all")])
    both = new.rename_columns(["key", "new"]).join(known, keys="key", join_type="inner")
    most = pc.sum(pc.multiply(both.column("all"), pc.add(both.column("new"), 1)))
    return int(most.as_py() or 0)


def _offsets(rows: pa.Table, versions: Sequence[int]) -> list[int]:
    """Return where the rows of each version begin, and where the last ones end."""
    counted = pa.table({"at": rows.column(AT)}).group_by("at").aggregate([([], "count_all")])
    counts = dict(zip(*(counted.column(n).to_pylist() for n in ("at", "count_all")), strict=True))
    offsets = [0]
    for version in versions:
        offsets.append(offsets[-1] + counts[version])
    return offsets


def _counted(rows: pa.Table, key: str) -> dict[int, int]:
    """Return the number of rows of each key."""
    counts = pc.value_counts(key_lookup.in_one_piece(rows.column(key)))
    return dict(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True))


def _of_window(
    known: pa.Table, rule: MergeRule, after: int, key: str, compared: Collection[str]
) -> Iterator[pa.Table]:
    """Yield the changes of the versions after `after`, given rows in commit order."""
    touches = pa.table({key: known.column(key), AT: known.column(AT)})
    touches = touches.filter(pc.greater(touches.column(AT), after))
    touches = touches.group_by([key, AT], use_threads=False).aggregate([])
    bases = touches.group_by(key, use_threads=False).aggregate([])
    first = pa.repeat(pa.scalar(after, pa.int64()), bases.num_rows)
    touches = pa.concat_tables([touches.select([key, AT]), bases.append_column(AT, first)])
    rows = pa.table(
        {
            "key": known.column(key),
            "at": known.column(AT),
            "row": key_lookup.row_numbers(known.num_rows),
        }
    )
    wanted = pa.table({"key": touches.column(key), "until": touches.column(AT)})
    spread = rows.join(wanted, keys="key", join_type="inner", use_threads=False)
    spread = spread.filter(pc.less_equal(spread.column("at"), spread.column("until")))
    spread = spread.take(pc.sort_indices(spread.column("row")))
    copies = known.drop_columns([AT]).take(key_lookup.in_one_piece(spread.column("row")))
    copies = copies.append_column(
        AT, key_lookup.in_one_piece(spread.column("until"))
    ).combine_chunks()
    images = row_merging.visible(copies, replace(rule, key=(key, AT)))
    yield _differences(images, touches, after, key, compared)


def _differences(
    images: pa.Table, touches: pa.Table, after: int, key: str, compared: Collection[str]
) -> pa.Table:
    """Return how the images of each key differ from one touch to the next.

    Args:
        images: rows with the columns `key` and `AT`, at most one for each touch.
        touches: `key` and `AT`; of each key one with `AT` = `after`, which is where it begins.
        after: the version before the first one.
        key: the column that numbers the keys.
        compared: the columns whose values make an update.
    """
    numbered = pa.table(
        {
            "key": images.column(key),
            "at": images.column(AT),
            "image": key_lookup.row_numbers(images.num_rows),
        }
    )
    wanted = pa.table({"key": touches.column(key), "at": touches.column(AT)})
    line = wanted.join(numbered, keys=["key", "at"], join_type="left outer", use_threads=False)
    line = line.sort_by([("key", "ascending"), ("at", "ascending")])
    at, now = (
        key_lookup.in_one_piece(line.column("at")),
        key_lookup.in_one_piece(line.column("image")),
    )
    then = pa.concat_arrays(
        [pa.nulls(min(1, len(now)), pa.int64()), now.slice(0, max(0, len(now) - 1))]
    )
    later = pc.greater(at, after)
    at, now, then = at.filter(later), now.filter(later), then.filter(later)
    values = images.drop_columns([AT])
    both = pc.and_(pc.is_valid(now), pc.is_valid(then))
    same = _alike(values, then.filter(both), now.filter(both), compared)
    updated = pc.replace_with_mask(both, both, pc.invert(same))
    parts = []
    for change, rows, mask in (
        (INSERT, now, pc.and_(pc.is_valid(now), pc.is_null(then))),
        (DELETE, then, pc.and_(pc.is_null(now), pc.is_valid(then))),
        (BEFORE, then, updated),
        (AFTER, now, updated),
    ):
        some = values.take(rows.filter(mask))
        parts.append(_marked(some, pa.repeat(pa.scalar(change), some.num_rows), at.filter(mask)))
    changes = pa.concat_tables(parts).combine_chunks()
    # "update_before" follows "update_after" in the alphabet.
    order = [(VERSION, "ascending"), (key, "ascending"), (CHANGE, "descending")]
    return changes.take(pc.sort_indices(changes.select([VERSION, key, CHANGE]), sort_keys=order))


def of_view(changes: pa.Table, passes: pa.Array, columns: Sequence[str]) -> pa.Table:
    """Return the changes of a filtered view: those of the rows that pass, in some columns.

    An update of which one row passes becomes that row. One of which both rows pass stays if they
    differ in these columns.

    Args:
        changes: in which each `update_before` stands directly before its `update_after`.
        passes: whether each row passes the filter.
        columns: the columns of the view.
    """
    before = pc.equal(key_lookup.in_one_piece(changes.column(CHANGE)), BEFORE)
    firsts = pc.indices_nonzero(before)
    seconds = pc.add(firsts, pa.scalar(1, firsts.type))
    both = pc.and_(passes.take(firsts), passes.take(seconds))
    firsts, seconds = firsts.filter(both), seconds.filter(both)
    same = _alike(changes, firsts, seconds, columns)
    hidden = pa.concat_arrays([firsts.filter(same), seconds.filter(same)])
    numbers = pc.indices_nonzero(passes)
    return changes.take(numbers.filter(pc.invert(pc.is_in(numbers, value_set=hidden))))


def _with_keys(changes: pa.Table, keys: pa.Table, key: str) -> pa.Table:
    """Return changes with the key columns in place of their number."""
    numbers = key_lookup.in_one_piece(changes.column(key))
    changes = changes.drop_columns([key])
    for name in reversed(keys.column_names):
        changes = changes.add_column(0, keys.schema.field(name), keys.column(name).take(numbers))
    return changes


def _marked(rows: pa.Table, change: pa.Array, versions: pa.Array) -> pa.Table:
    rows = rows.append_column(COLUMNS.field(CHANGE), change)
    return rows.append_column(COLUMNS.field(VERSION), versions)


def _alike(rows: pa.Table, left: pa.Array, right: pa.Array, columns: Iterable[str]) -> pa.Array:
    """Return which pairs of rows are the same in some columns, bit by bit.

    Args:
        rows: the rows.
        left: the number of one row of each pair.
        right: the number of the other.
        columns: the columns; those that `rows` does not have are left out.
    """
    same = pa.repeat(pa.scalar(True), len(left))
    for name in columns:
        if name not in rows.column_names:
            continue
        column = rows.column(name)
        a, b = _comparable(column.take(left)), _comparable(column.take(right))
        equal = pc.fill_null(pc.equal(a, b), False)
        same = pc.and_(same, pc.or_(equal, pc.and_(pc.is_null(a), pc.is_null(b))))
    return same


def _comparable(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as values that are equal where it has the same value.

    A NaN is the same as itself here, and -0.0 is not 0.0.
    """
    combined = key_lookup.in_one_piece(column)
    if pa.types.is_floating(combined.type):
        return combined.view(f"int{combined.type.bit_width}")
    if pa.types.is_nested(combined.type):
        values = combined.cast(_without_times(combined.type)).to_pylist()
        return pa.array([None if value is None else repr(value) for value in values], pa.string())
    return combined


def _without_times(kind: pa.DataType) -> pa.DataType:
    """Return a type with numbers in place of times, which Python has of some years only."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_without_times(kind.key_type), _without_times(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _without_times(field.type)) for field in kind])
    return kind


def _repeated(values: pa.ChunkedArray, counts: pa.ChunkedArray) -> pa.Array:
    """Return each value as many times as its count."""
    if pc.all(pc.equal(counts, 1), min_count=0).as_py():
        return key_lookup.in_one_piece(values)
    parts = [pa.repeat(value, count.as_py()) for value, count in zip(values, counts, strict=True)]
    return pa.concat_arrays([pa.nulls(0, values.type), *parts])


def free_name(names: Sequence[str]) -> str:
    """Return a name that no column has."""
    name = "_key"
    while name in names:
        name += "_"
    return name
