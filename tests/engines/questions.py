"""The questions that every engine is asked, each in the forms that engines take.

No question compares with NaN or zero: engines agree neither on the order of NaN
(docs/guides/engine-matrix.md), nor on -0.0, which Daft has below 0.0.
"""

import datetime as dt
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

MIDNIGHT = dt.datetime(2013, 1, 2, tzinfo=dt.UTC)
NOON = MIDNIGHT.replace(hour=12)


@dataclass(frozen=True)
class Question:
    """Rows of a version: of `columns`, or all, where `where` holds; or their number."""

    name: str
    columns: tuple[str, ...] = ()
    where: tuple[str, str, object] | None = None  # column, operator, value; `is null` has none
    count: bool = False

    def sql(self, relation, moment="TIMESTAMP '{:%Y-%m-%d %H:%M:%S}+00:00'", quote='"'):
        """Return the question in SQL; `moment` is the form of the dialect's instants."""
        columns = ", ".join(f"{quote}{name}{quote}" for name in self.columns) or "*"
        asked = "count(*) AS n" if self.count else columns
        return f"SELECT {asked} FROM {relation}{self._where_sql(moment, quote)}"

    def _where_sql(self, moment, quote):
        if self.where is None:
            return ""
        return f" WHERE {self.condition(moment, quote)}"

    def condition(self, moment="'{:%Y-%m-%dT%H:%M:%S}+00:00'", quote=""):
        """Return what must hold of a row, in SQL; None if nothing."""
        if self.where is None:
            return None
        column, operator, value = self.where
        if operator == "is null":
            return f"{quote}{column}{quote} IS NULL"
        literal = moment.format(value) if isinstance(value, dt.datetime) else repr(value)
        return f"{quote}{column}{quote} {operator} {literal}"

    def arrow(self):
        """Return what must hold of a row as an expression of Arrow; None if nothing."""
        return self.compared(pc.field, pa.scalar)

    def polars(self):
        """Return it as an expression of Polars."""
        import polars as pl  # noqa: PLC0415 - not every environment that asks has it loaded

        return self.compared(pl.col, pl.lit)

    def compared(self, column_of, value_of):
        """Return it as an expression, of a column and a value in the terms of an engine."""
        if self.where is None:
            return None
        name, operator, value = self.where
        column = column_of(name)
        if operator == "is null":
            return column.is_null()
        if isinstance(value, dt.datetime) and value_of is pa.scalar:
            value = pa.scalar(value, pa.timestamp("us", "UTC"))
        else:
            value = value_of(value)
        return {"<": column.__lt__, ">=": column.__ge__, "=": column.__eq__}[operator](value)

    def answer(self, rows):
        """Return the answer from all rows of a version, which Arrow gives."""
        if self.where is not None:
            rows = rows.filter(self.arrow())
        if self.count:
            return pa.table({"n": pa.array([rows.num_rows], pa.int64())})
        return rows.select(list(self.columns)) if self.columns else rows


def questions_of(schema, *, large=False):
    """Return the questions about a version with these columns.

    Of a `large` one only those whose answers are narrow, so that they are compared in little time.
    """
    if large:
        return [
            Question("count", count=True),
            Question("one column", ("id",)),
            Question("some numbers", where=("id", "<", 9)),
            Question("count from a moment on", where=("at", ">=", NOON), count=True),
        ]
    asked = [
        Question("all rows"),
        Question("count", count=True),
        Question("one column", ("id",)),
        Question("from a moment on", ("id", "at"), ("at", ">=", MIDNIGHT)),
        Question("count from a moment on", where=("at", ">=", MIDNIGHT), count=True),
        Question("some numbers", where=("id", "<", 9)),
    ]
    if "real" in schema.names:
        asked.append(Question("negative reals", ("id", "real"), ("real", "<", -0.25)))
    for name in ("name", "label"):
        if name in schema.names:
            asked.append(Question("a text", ("id", name), (name, "=", "row 7")))
            asked.append(Question("no text", ("id",), (name, "is null", None)))
    if "added" in schema.names:
        asked.append(Question("a column more", ("id", "added"), ("added", "is null", None)))
    return asked
