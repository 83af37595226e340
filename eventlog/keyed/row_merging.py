"""Rows of one key become one row: the merge rules of keyed tables, on Arrow tables. No I/O.

Rows are given in commit order. A row is an upsert or, by its column `_op`, a delete. A delete with
an order value has a place among the rows of its key, like any row. A delete without one is a
barrier: it hides all rows of its key that were committed before it, whatever their order values
(FORMAT.md "Merge rules").

`visible` returns the rows that a reader sees; a merge stores them as a base. `condensed` returns
the fewest rows that have the same effect as the given ones, whatever is merged with them later; a
merge stores them as a log. `residue` returns the condensed rows that a base hides and later rows
may need; a merge stores them beside the base, as a late segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.keyed import key_lookup
from eventlog.keyed.key_lookup import (
    among,
    in_one_piece,
    key_aliases,
    numbered_keys,
    row_numbers,
)
from eventlog.keyed.log_rows import deleted, upserts
from eventlog.keyed.rule import OP, UPSERT, VERSION, MergeRule

_WIDE_SUM = pa.decimal256(76, 0)


class SumOverflow(InvalidInput):
    """The sum of a key does not fit its column.

    Attributes:
        column: the column.
        total: the sum, as text.
        kind: the column's type, as text.
        keys: the key columns of all keys whose sum does not fit; `total` is the sum of the first.
    """

    column: str
    total: str
    kind: str
    keys: pa.Table

    @classmethod
    def of(cls, column: str, total: str, kind: str, keys: pa.Table) -> SumOverflow:
        """Return the error."""
        error = cls(
            f"the sum of column {column!r} of key {_key_text(keys)} is {total}, which does not fit "
            f"{kind}"
        )
        error.column, error.total, error.kind, error.keys = column, total, kind, keys
        return error


def visible(rows: pa.Table, rule: MergeRule) -> pa.Table:
    """Return one row for each key that is present after all rows were applied.

    Args:
        rows: in commit order; the columns `rule.needed(…)` of those wanted, and `_op` if there are
            deletes.
        rule: the merge rule.

    Returns:
        The columns of `rows` without `_op` and `_version`, in no particular order of keys.

    Raises:
        SumOverflow: a sum does not fit its column, and the rule does not ask for a null there.
    """
    several = key_lookup.shared(rows, rule.key) if rule.kind in ("last", "first") else None
    if several is None or 2 * len(several) > rows.num_rows:
        return _Merging(rows, rule).visible()
    # Rows whose key no other row has need no grouping.
    alone = upserts(key_lookup.without_rows(rows, several))
    merged = _Merging(rows.take(several), rule).visible()
    return pa.concat_tables([alone.select(merged.column_names), merged])


def condensed(rows: pa.Table, rule: MergeRule, *, bottom: bool) -> pa.Table:
    """Return the fewest rows that have the effect of the given ones, whatever they are merged with.

    Args:
        rows: in commit order, with all columns of the table; `_op` and `_version` if there are
            deletes. Each delete has the version of its commit in `_version`.
        rule: the merge rule.
        bottom: whether nothing can come before them.

    Returns:
        The columns of `rows`; the rows of a key are in commit order.

    Raises:
        SumOverflow: a sum does not fit its column. `fitting` separates the rows of such keys.
    """
    return _Merging(rows, rule).condensed(bottom=bottom)


def fitting(rows: pa.Table, rule: MergeRule) -> tuple[pa.Table, pa.Table]:
    """Return the rows of the keys whose sums fit, and the rows of the other keys.

    A sum that does not fit may do so together with later rows, so a merge leaves its rows as they
    are.

    Args:
        rows: in commit order.
        rule: the merge rule.
    """
    if "sum" not in rule.functions.values() and "count" not in rule.functions.values():
        return rows, rows.slice(0, 0)
    strict = replace(rule, overflow="error")
    unfit: list[pa.Table] = []
    while True:
        try:
            visible(rows, strict)
        except SumOverflow as error:  # of one column; others may follow
            apart = among(rows, error.keys, rule.key)
            unfit.append(rows.filter(apart))
            rows = rows.filter(pc.invert(apart))
        else:
            return rows, pa.concat_tables([rows.slice(0, 0), *unfit])


def residue(rows: pa.Table, rule: MergeRule) -> pa.Table:
    """Return the condensed rows of those keys whose visible row alone is not enough for a merge.

    Args:
        rows: what `condensed` returned for the bottom of a slice.
        rule: the merge rule.
    """
    keys = numbered_keys(rows, rule.key)
    counted = _grouped(keys, [("row", "count")])
    several = counted.filter(pc.greater(counted.column("row_count"), 1))
    several_rows = among(
        rows, several.select(key_aliases(rule.key)).rename_columns(list(rule.key)), rule.key
    )
    return rows.filter(pc.or_(several_rows, deleted(rows)))


class _Merging:
    """The rows to merge, as columns; a row is named by its number, which is its commit order."""

    def __init__(self, rows: pa.Table, rule: MergeRule) -> None:
        self.rows, self.rule = rows, rule
        self.values = [name for name in rows.column_names if name not in (*rule.key, OP, VERSION)]
        self.keys = numbered_keys(rows, rule.key)
        self.deleted = deleted(rows)
        self.has_deletes = bool(pc.any(self.deleted, min_count=0).as_py())
        self.alive = pc.invert(self.deleted)
        self._orders: dict[str | None, tuple[pa.Array, pa.Array]] = {}

    def visible(self) -> pa.Table:
        """Return one row for each key that readers see."""
        rule = self.rule
        if rule.kind in ("last", "first"):
            won = self._winners()
            picked = self.rows.take(won.filter(self.alive.take(won)))
            return picked.select([n for n in picked.column_names if n not in (OP, VERSION)])
        alive = self._alive()
        sources = self._sources(alive)
        keys = self.keys.take(sources.column("first_min"))
        columns = {
            name: keys.column(alias)
            for name, alias in zip(rule.key, key_aliases(rule.key), strict=True)
        }
        for place, name in enumerate(self.values):
            columns[name] = self._value(name, place, sources, alive)
        wanted = [n for n in self.rows.column_names if n not in (OP, VERSION)]
        return pa.table(
            [columns[n] for n in wanted],
            schema=pa.schema([self.rows.schema.field(n) for n in wanted]),
        )

    def condensed(self, *, bottom: bool) -> pa.Table:
        """Return the rows that a base keeps of these; `bottom`: whether none lie below them."""
        rule = self.rule
        self._renew_tombstones()
        barriers = pa.nulls(0, pa.int64())
        if self.has_deletes and not bottom and (rule.order is not None or rule.kind != "last"):
            barriers = self._last_barriers()
        if rule.kind == "last":
            won = self._winners()
            if rule.order is None and bottom:
                won = won.filter(self.alive.take(won))
            chosen = [won, barriers]
            if not bottom:  # against young-tombstone-lost-behind-an-upsert
                # One below may be older and of a greater order: it is renewed by this one (R15.13).
                chosen.append(self._last_deletes())
            return self._take(chosen)
        alive = self._alive()
        if rule.kind == "first":
            return self._take([self._firsts(alive), barriers])
        deletes = self._last_deletes()
        if rule.kind == "partial" and rule.order is None and not rule.orders:
            return self._with(self.visible(), barriers)
        if rule.kind == "partial":
            sources = self._sources(alive)
            named = [in_one_piece(sources.column(f"v{n}")) for n in range(len(self.values))]
            # A key is present even if none of its values counts.
            empty = pa.repeat(pa.scalar(True), sources.num_rows)
            for column in named:
                empty = pc.and_(empty, pc.is_null(column))
            bare = in_one_piece(sources.column("first_min")).filter(empty)
            return self._take([*named, bare, deletes, barriers])
        return self._with(self._aggregated(alive), barriers)

    def _with(self, merged: pa.Table, barriers: pa.Array) -> pa.Table:
        """Return merged rows after the barriers of their keys."""
        fields = self.rows.schema
        columns = []
        for field in fields:
            if field.name == OP:
                columns.append(pa.repeat(pa.scalar(UPSERT, field.type), merged.num_rows))
            elif field.name in merged.column_names:
                columns.append(merged.column(field.name))
            else:
                columns.append(pa.nulls(merged.num_rows, field.type))
        upserts = pa.table(columns, schema=fields)
        return pa.concat_tables([self.rows.take(barriers), upserts])

    def _take(self, numbers: Iterable[pa.Array]) -> pa.Table:
        """Return the rows of these numbers, each once, in commit order."""
        together = pa.concat_arrays([n.cast(pa.int64()) for n in numbers])
        once = pc.unique(together.drop_null())
        return self.rows.take(once.take(pc.sort_indices(once)))

    def _positions(self, order: str | None) -> tuple[pa.Array, pa.Array]:
        """Return the place of each row in the order of a column, and the row of each place."""
        if order not in self._orders:
            numbers = row_numbers(self.rows.num_rows)
            if order is None:
                self._orders[order] = numbers, numbers
            else:
                # Stable: equal values stay in commit order.
                column = in_one_piece(self.rows.column(order))
                nulls = numbers.filter(pc.is_null(column))
                valid = numbers.filter(pc.is_valid(column))
                ranked = valid.take(pc.sort_indices(column.drop_null()))
                by = pa.concat_arrays([nulls, ranked])
                self._orders[order] = pc.sort_indices(by).cast(pa.int64()), by
        return self._orders[order]

    def _barred(self) -> pa.Array:
        """Return which deletes are barriers."""
        if self.rule.order is None or not self.rule.ordered_deletes:
            return self.deleted
        return pc.and_(self.deleted, pc.is_null(in_one_piece(self.rows.column(self.rule.order))))

    def _last_barriers(self) -> pa.Array:
        """Return the number of the last barrier of each key that has one."""
        return self._best(self._barred(), row_numbers(self.rows.num_rows), "max")

    def _behind_barriers(self) -> pa.Array | None:
        """Return which rows no barrier hides; None: there is no barrier."""
        barred = self._barred()
        if not pc.any(barred, min_count=0).as_py():
            return None
        numbers = row_numbers(self.rows.num_rows)
        return pc.greater(numbers, self._of_key(self._best(barred, numbers, "max"), numbers))

    def _of_key(self, rows: pa.Array, values: pa.Array) -> pa.Array:
        """Return for each row the value of the one among `rows` with its key; -1 without one."""
        aliases = key_aliases(self.rule.key)
        right = self.keys.select(aliases).take(rows).append_column("value", values.take(rows))
        joined = self.keys.join(right, keys=aliases, join_type="left outer", use_threads=False)
        joined = joined.select(["row", "value"]).sort_by("row")
        return pc.fill_null(in_one_piece(joined.column("value")), -1)

    def _best(self, mask: pa.Array, places: pa.Array, function: str) -> pa.Array:
        """Return the row of the least or greatest place of each key, among rows in the mask."""
        chosen = self.keys.append_column("place", places).filter(mask)
        best = _grouped(chosen, [("place", function)]).column(f"place_{function}")
        return in_one_piece(best)

    def _winners(self) -> pa.Array:
        """Return the row that decides each key under `last` or `first`."""
        if self.rule.kind == "first":
            return self._firsts(self._alive())
        places, rows = self._positions(self.rule.order)
        mask = self._behind_barriers() if self.has_deletes and self.rule.order is not None else None
        if mask is None:
            mask = pa.repeat(pa.scalar(True), len(places))
        elif self.rule.order is not None:
            mask = pc.and_(mask, pc.invert(self._barred()))
        return rows.take(self._best(mask, places, "max"))

    def _firsts(self, alive: pa.Array) -> pa.Array:
        places, rows = self._positions(self.rule.order)
        return rows.take(self._best(alive, places, "min"))

    def _last_deletes(self) -> pa.Array:
        """Return the ordered delete of the greatest place of each key that has one."""
        if not self.has_deletes or not self.rule.ordered_deletes:
            return pa.nulls(0, pa.int64())
        places, rows = self._positions(self.rule.order)
        mask = pc.and_(self.deleted, pc.invert(self._barred()))
        behind = self._behind_barriers()
        if behind is not None:
            mask = pc.and_(mask, behind)
        return rows.take(self._best(mask, places, "max"))

    def _renew_tombstones(self) -> None:
        """Give each tombstone the newest version of those of its key.

        One of them is kept, that of the greatest place. It stands for the others, which may be
        younger, and must not be forgotten before them.
        """
        if not self.has_deletes or not self.rule.ordered_deletes:
            return
        if VERSION not in self.rows.column_names:  # all are of one commit
            return
        mask = pc.and_(self.deleted, pc.invert(self._barred()))
        behind = self._behind_barriers()
        if behind is not None:
            mask = pc.and_(mask, behind)
        versions = in_one_piece(self.rows.column(VERSION))
        places, rows = self._positions(VERSION)
        newest = rows.take(self._best(mask, places, "max"))
        if len(newest) == (pc.sum(mask).as_py() or 0):  # no key has several
            return
        renewed = pc.if_else(mask, self._of_key(newest, versions), versions)
        at = self.rows.schema.get_field_index(VERSION)
        self.rows = self.rows.set_column(at, self.rows.schema.field(at), renewed)

    def _alive(self) -> pa.Array:
        """Return which upserts no delete hides."""
        if not self.has_deletes:
            return self.alive
        mask = self.alive
        behind = self._behind_barriers()
        if behind is not None:
            mask = pc.and_(mask, behind)
        deletes = self._last_deletes()
        if len(deletes):
            places, _ = self._positions(self.rule.order)
            mask = pc.and_(mask, pc.greater(places, self._of_key(deletes, places)))
        return mask

    def _sources(self, alive: pa.Array) -> pa.Table:
        """Return for each key: a row of it, and by column the row that its value comes from."""
        table = self.keys.append_column("first", row_numbers(self.rows.num_rows))
        functions: list[tuple[str, str]] = [("first", "min")]
        for place, name in enumerate(self.values):
            places, _ = self._positions(self.rule.order_of(name))
            usable = pc.is_valid(in_one_piece(self.rows.column(name)))
            order = self.rule.order_of(name)
            if order is not None and order != name:
                usable = pc.and_(usable, pc.is_valid(in_one_piece(self.rows.column(order))))
            nothing = pa.nulls(len(places), pa.int64())
            table = table.append_column(f"p{place}", pc.if_else(usable, places, nothing))
            functions.append((f"p{place}", "min" if self._function(name) == "first" else "max"))
        best = _grouped(table.filter(alive), functions)
        columns = {"first_min": best.column("first_min")}
        for place, name in enumerate(self.values):
            _, rows = self._positions(self.rule.order_of(name))
            function = "min" if self._function(name) == "first" else "max"
            columns[f"v{place}"] = rows.take(in_one_piece(best.column(f"p{place}_{function}")))
        return pa.table(columns)

    def _function(self, name: str) -> str:
        return self.rule.functions.get(name, "last") if self.rule.kind == "aggregate" else "last"

    def _value(self, name: str, place: int, sources: pa.Table, alive: pa.Array) -> pa.Array:
        """Return the merged values of a column, in the order of the keys of `sources`."""
        function = self._function(name)
        column = in_one_piece(self.rows.column(name))
        if function in ("last", "first"):
            return column.take(in_one_piece(sources.column(f"v{place}")))
        return self._reduced(name, column, "sum" if function == "count" else function, alive)

    def _reduced(self, name: str, column: pa.Array, function: str, alive: pa.Array) -> pa.Array:
        kind = column.type
        whole = pa.types.is_integer(kind)
        if function == "sum":
            # Exact, whatever the order: partial sums may exceed the type of the column.
            scale = 0 if whole else kind.scale
            column = column.cast(pa.decimal128(19, 0) if whole else kind)
            column = column.cast(pa.decimal256(76 - 0, scale) if not whole else _WIDE_SUM)
        elif pa.types.is_floating(kind):
            column = pc.add(column, pa.scalar(0.0, kind))  # -0.0 becomes 0.0
        first = pc.if_else(alive, row_numbers(len(column)), pa.nulls(len(column), pa.int64()))
        table = self.keys.append_column("value", column).append_column("first", first)
        groups = _grouped(table.filter(alive), [("value", function), ("first", "min")])
        # `_sources` groups the same rows, so the keys come in the same order.
        merged = in_one_piece(groups.column(f"value_{function}"))
        if function == "sum":
            merged = self._fitted(name, merged, kind, groups)
        return merged.cast(kind)

    def _fitted(self, name: str, sums: pa.Array, kind: pa.DataType, groups: pa.Table) -> pa.Array:
        """Return sums that fit a type: null in place of others, if that was asked for."""
        low, high = _limits(kind, sums.type)
        outside = pc.fill_null(pc.or_(pc.less(sums, low), pc.greater(sums, high)), False)
        if not pc.any(outside, min_count=0).as_py():
            return sums
        if self.rule.overflow == "null":
            return pc.if_else(outside, pa.nulls(len(sums), sums.type), sums)
        numbers = in_one_piece(groups.column("first_min")).filter(outside)
        keys = self.rows.select(list(self.rule.key)).take(numbers)
        raise SumOverflow.of(name, str(sums.filter(outside)[0].as_py()), str(kind), keys)

    def _aggregated(self, alive: pa.Array) -> pa.Table:
        """Return the merged rows, and a row for each value with an order of its own."""
        merged = self.visible()
        order = self.rule.order
        if order is None:
            return merged
        sources = self._sources(alive)
        main = in_one_piece(merged.column(order))
        orders = in_one_piece(self.rows.column(order))
        extras: list[pa.Table] = []
        for place, name in enumerate(self.values):
            if self._function(name) not in ("last", "first") or name == order:
                continue
            source = in_one_piece(sources.column(f"v{place}"))
            apart = pc.fill_null(pc.not_equal(orders.take(source), main), False)
            if not pc.any(apart, min_count=0).as_py():
                continue
            position = merged.schema.get_field_index(name)
            field = merged.schema.field(name)
            blank = pc.if_else(
                apart, pa.nulls(len(apart), field.type), in_one_piece(merged.column(name))
            )
            extras.append(self._extra(name, source.filter(apart)))
            merged = merged.set_column(position, field.with_nullable(True), blank)
        if not extras:
            return merged
        schema = pa.schema([field.with_nullable(True) for field in merged.schema])
        return pa.concat_tables([part.cast(schema) for part in [merged, *extras]])

    def _extra(self, name: str, source: pa.Array) -> pa.Table:
        """Return rows with the values of one column and their order, and nulls elsewhere."""
        rows = self.rows.take(source)
        filled = (*self.rule.key, name, self.rule.order)
        columns = [
            rows.column(field.name) if field.name in filled else pa.nulls(rows.num_rows, field.type)
            for field in rows.schema
            if field.name not in (OP, VERSION)
        ]
        names = [field.name for field in rows.schema if field.name not in (OP, VERSION)]
        return pa.table(columns, names)


def _limits(kind: pa.DataType, wide: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    """Return the least and the greatest value of a type of integers or decimals."""
    if pa.types.is_integer(kind):
        half = 2 ** (kind.bit_width - 1)
        bounds = Decimal(-half), Decimal(half - 1)
    else:  # made from text: arithmetic would depend on the context of decimals
        nines = f"{'9' * kind.precision}E{-kind.scale}"
        bounds = Decimal(f"-{nines}"), Decimal(nines)
    low, high = (pa.scalar(bound, wide) for bound in bounds)
    return low, high


def _key_text(keys: pa.Table) -> str:
    """Return the first of some keys as text."""
    values = []
    for name in keys.column_names:
        value = keys.column(name)[0]
        try:
            text = repr(value.as_py())
        except (OverflowError, ValueError):  # a time that Python does not have
            text = str(value.cast(pa.string()).as_py())
        values.append(f"{name}={text[:60]}")
    return ", ".join(values)


def _grouped(table: pa.Table, functions: Sequence[tuple[str, str]]) -> pa.Table:
    """Return the aggregates of each key. The order of the keys depends on the keys alone."""
    aliases = [name for name in table.column_names if name.startswith("k")]
    return table.group_by(aliases, use_threads=False).aggregate(list(functions))
