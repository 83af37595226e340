"""Random rows and predicates, with the meaning of each predicate in plain Python.

The meaning does not use Arrow, SQL or statistics, so that every engine can be compared with it.
Rows are dictionaries of plain values: times are whole microseconds or days, other values are
Python's. `EVENTLOG_EXAMPLES=2000` draws that many fresh questions instead of a few fixed ones.
"""

import os
import random
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

DAY_US = 86_400_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAN, INF = float("nan"), float("inf")
PREFIX = "p" * 40

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("dec9", pa.decimal128(9, 2)),
        ("dec18", pa.decimal128(18, 4)),
        ("dec38", pa.decimal128(38, 10)),
        ("d", pa.date32()),
        ("ntz", pa.timestamp("us")),
        ("raw", pa.binary()),
        ("in.struct", pa.struct([("x y", pa.float64()), ("k", pa.int32())])),
        ("in`list", pa.list_(pa.float64())),
        ("in map", pa.map_(pa.string(), pa.float32())),
        ("odd.`name`", pa.float64()),
    ]
)


def micros(text: str) -> int:
    """The microseconds of a time in UTC."""
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def days(text: str) -> int:
    """The days of a date."""
    return date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal()


TIMES = [micros(text) for text in (
    "1969-12-31T23:59:59.999999", "1970-01-01", "1970-01-01T12:00:00.000001",
    "2013-01-06T23:59:59.999999", "2013-01-07", "2013-01-07T05:00:00.000500",
    "2013-03-10T07:30:00", "2013-01-08",
)]  # fmt: skip
OLD_TIMES = [micros(text) for text in (
    "0001-01-01", "1582-10-04T23:59:59.999999", "1582-10-15", "1883-11-18T12:03:58",
    "9999-12-31T23:59:59.999999", "1677-09-21", "2262-04-12",
)]  # fmt: skip
NINES = "9" * 28 + "." + "9" * 10
NUMBERS = ["-0.01", "0", "5", "5.55", "99"]
VALUES: dict[str, list[Any]] = {
    "i8": [-128, -1, 0, 5, 6, 127],
    "i16": [-(2**15), -1, 0, 5, 200, 2**15 - 1],
    "i32": [-(2**31), -1, 0, 5, 2**31 - 1],
    "i64": [-(2**63), -(2**63) + 1, -1, 0, 5, 2**53, 2**53 + 1, 2**63 - 1],
    "f32": [-INF, -1.5, -0.0, 0.0, 2.0**-149, 0.5, 5.0, 16777216.0, INF, NAN],
    "f64": [-INF, -1.5, -0.0, 0.0, 5e-324, 0.5, 5.0, 1e300, INF, NAN],
    "flag": [True, False],
    "text": [
        "", "a", "A", "ab", "a%b", "a_b", "b", "\n", "a\nb", "ä", "Ä", "x'y", "back\\slash",
        PREFIX, PREFIX + "a", PREFIX + "b", "p" * 5000 + "a", "p" * 5000 + "b",
        "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff" * 40,
    ],
    "dec9": [Decimal(n) for n in (*NUMBERS, "-9999999.99", "9999999.99")],
    "dec18": [Decimal(n) for n in (*NUMBERS, "-99999999999999.9999", "99999999999999.9999")],
    "dec38": [
        Decimal(n)
        for n in (*NUMBERS, f"-{NINES}", NINES, str(2**63), "1e-10")
    ],
    "d": [days(text) for text in (
        "0001-01-01", "1582-10-10", "1582-10-15", "1969-12-31", "1970-01-01", "2013-01-07",
        "2013-01-08", "9999-12-31",
    )],
    "ntz": [*TIMES, *OLD_TIMES],
    "raw": [b"", b"\0", b"a", b"\xff" * 3, bytes(range(256))],
    "odd.`name`": [-1.0, -0.0, 0.0, 7.0, NAN],
}  # fmt: skip
FLOAT_COLUMNS = ("f32", "f64", "odd.`name`")


@dataclass(frozen=True)
class Question:
    """A predicate as SQL text, and whether it is True, False or None (NULL) for a row."""

    sql: str
    holds: Callable[[dict[str, Any]], bool | None]

    def ids(self, rows: list[dict[str, Any]]) -> list[int]:
        """The ids of the rows that pass."""
        return [row["id"] for row in rows if self.holds(row) is True]


def examples(few: int) -> tuple[random.Random, int]:
    """A random source and the number of questions: a few fixed ones by default."""
    wanted = os.environ.get("EVENTLOG_EXAMPLES")
    if wanted is None:
        return random.Random(few), few
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - pytest shows it with a failure
    return random.Random(seed), int(wanted)


# --------------------------------------------------------------------------------------- rows


def rows(chance: random.Random, count: int, times: Sequence[int] = TIMES) -> list[dict[str, Any]]:
    """Rows with edge-case values, some of them null; ids count from 0."""
    return [_row(chance, number, times) for number in range(count)]


def _row(chance: random.Random, number: int, times: Sequence[int]) -> dict[str, Any]:
    def some(values: list[Any]) -> Any:
        return None if chance.random() < 0.2 else chance.choice(values)

    floats = VALUES["f64"]
    return {
        "id": number,
        "ts": chance.choice(times),
        **{name: some(values) for name, values in VALUES.items()},
        "in.struct": some([{"x y": some(floats), "k": some([1, 2])} for _ in range(3)]),
        "in`list": some([[some(floats) for _ in range(chance.randrange(4))] for _ in range(3)]),
        "in map": some([[("key", some(VALUES["f32"]))], []]),
    }


def to_arrow(some_rows: list[dict[str, Any]]) -> pa.Table:
    """The rows as an Arrow table."""
    columns = []
    for field in SCHEMA:
        values = [row[field.name] for row in some_rows]
        if pa.types.is_timestamp(field.type):
            columns.append(pa.array(values, pa.int64()).cast(field.type))
        elif pa.types.is_date(field.type):
            columns.append(pa.array(values, pa.int32()).cast(field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.table(columns, schema=SCHEMA)


def bits(table: pa.Table) -> list[list[Any]]:
    """The values by column, with floats as their bits and times as whole numbers."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            columns.append(column.cast(pa.int64()))
        elif pa.types.is_date(column.type):
            columns.append(column.cast(pa.int32()))
        else:
            columns.append(column)
    return [[_bare(value) for value in column.to_pylist()] for column in columns]


def _bare(value: Any) -> Any:
    if isinstance(value, float):
        return struct.pack("d", value)
    if isinstance(value, dict):
        return {name: _bare(part) for name, part in value.items()}
    return [_bare(part) for part in value] if isinstance(value, list | tuple) else value


# --------------------------------------------------------------------------------- predicates


def ask(chance: random.Random, *, plain: bool = False, depth: int = 3) -> Question:
    """A random predicate.

    Args:
        chance: the random source.
        plain: only what Spark columns can express: no patterns except prefixes, no arithmetic.
        depth: the depth of AND, OR and NOT.
    """
    if depth and chance.random() < 0.6:
        left = ask(chance, plain=plain, depth=depth - 1)
        kind = chance.choice(["AND", "OR", "NOT", "IS"])
        if kind == "NOT":
            return Question(f"NOT ({left.sql})", lambda row: _not(left.holds(row)))
        if kind == "IS":
            value = chance.random() < 0.5
            return Question(
                f"({left.sql}) IS {str(value).upper()}", lambda row: left.holds(row) is value
            )
        right = ask(chance, plain=plain, depth=depth - 1)
        join = _and if kind == "AND" else _or
        return Question(
            f"({left.sql}) {kind} ({right.sql})",
            lambda row: join([left.holds(row), right.holds(row)]),
        )
    return chance.choice([_compare, _compare, _in, _between, _null, _distinct, _like])(
        chance, plain
    )


def _compare(chance: random.Random, plain: bool) -> Question:
    name, op = _name(chance), chance.choice([*_OPS])
    sql, value = literal(chance, name)
    if chance.random() < 0.3:
        return Question(f"{sql} {op} {quoted(name)}", lambda r: compare(op, value, key(name, r)))
    return Question(f"{quoted(name)} {op} {sql}", lambda row: compare(op, key(name, row), value))


def _in(chance: random.Random, plain: bool) -> Question:
    name, negated = _name(chance), chance.random() < 0.4
    several = [literal(chance, name) for _ in range(chance.choice([1, 2, 5, 12]))]
    if chance.random() < 0.25:
        several.append(("NULL", None))

    def holds(row: dict[str, Any]) -> bool | None:
        found = _or([compare("=", key(name, row), value) for _, value in several])
        return _not(found) if negated else found

    listed = ", ".join(sql for sql, _ in several)
    return Question(f"{quoted(name)} {'NOT ' * negated}IN ({listed})", holds)


def _between(chance: random.Random, plain: bool) -> Question:
    name, negated = _name(chance), chance.random() < 0.4
    (low, least), (high, most) = literal(chance, name), literal(chance, name)

    def holds(row: dict[str, Any]) -> bool | None:
        at = key(name, row)
        found = _and([compare(">=", at, least), compare("<=", at, most)])
        return _not(found) if negated else found

    return Question(f"{quoted(name)} {'NOT ' * negated}BETWEEN {low} AND {high}", holds)


def _null(chance: random.Random, plain: bool) -> Question:
    name, negated = chance.choice([*VALUES]), chance.random() < 0.5
    return Question(
        f"{quoted(name)} IS {'NOT ' * negated}NULL", lambda row: (row[name] is None) is not negated
    )


def _distinct(chance: random.Random, plain: bool) -> Question:
    name, negated = _name(chance), chance.random() < 0.5
    sql, value = literal(chance, name)
    return Question(
        f"{quoted(name)} IS {'NOT ' * negated}DISTINCT FROM {sql}",
        lambda row: (compare("=", key(name, row), value) is True) is negated,
    )


def _like(chance: random.Random, plain: bool) -> Question:
    patterns = ["%", "a%", PREFIX + "%", "ä%", "", "a", "\U0010ffff%"]
    if not plain:
        patterns += ["%b", "a_b", "_", "%\n%", "a%b", "%%", "%p_", "back\\%", "_'_"]
    any_case = not plain and chance.random() < 0.2
    escape = "" if plain else chance.choice(["", "", "!"])
    pattern = chance.choice([*patterns, "a!%b", "!_%", "a!_b"] if escape else patterns)
    negated = chance.random() < 0.3
    regex, characters = "", iter(pattern.lower() if any_case else pattern)
    for character in characters:
        if character == escape:
            regex += re.escape(next(characters))
        else:
            regex += {"%": ".*", "_": "."}.get(character, re.escape(character))

    def holds(row: dict[str, Any]) -> bool | None:
        text = row["text"]
        if text is None:
            return None
        found = re.fullmatch(regex, text.lower() if any_case else text, re.DOTALL)
        return (found is None) is negated

    escaping = f" ESCAPE '{escape}'" if escape else ""
    like = "ILIKE" if any_case else "LIKE"
    return Question(f"text {'NOT ' * negated}{like} {_text(pattern)}{escaping}", holds)


# ------------------------------------------------------------------------ literals and order


def quoted(name: str) -> str:
    """The name in SQL."""
    return name if name.isalnum() else '"' + name.replace('"', '""') + '"'


def key(name: str, row: dict[str, Any]) -> Any:
    """A value of a row, in the form for `compare`."""
    value = row[name]
    if value is None or name not in (*FLOAT_COLUMNS, "dec9", "dec18", "dec38", "d", "ts", "ntz"):
        return value
    if name == "d":
        return value * DAY_US
    return Fraction(value) if isinstance(value, Decimal) else value


def literal(chance: random.Random, name: str) -> tuple[str, Any]:
    """A literal comparable with a column, and its value in the form for `compare`."""
    if name == "flag":
        value = chance.random() < 0.5
        return str(value).upper(), value
    if name == "text":
        text = chance.choice(VALUES["text"])
        return _text(text), text
    if name in ("ts", "ntz", "d"):
        return _time_literal(chance, name)
    if name in FLOAT_COLUMNS:
        text = chance.choice(["-1.5", "0", "-0.0", "0.0", "0.5", "5", "16777216", "-7"])
        return text, float(text)
    if chance.random() < 0.3:
        text = chance.choice(["5.5", "-0.5", "1e3", "5.555", "200", "-200", "1e30", "5.0", "-1e40"])
        return text, Fraction(text)
    value = chance.choice(VALUES[name])
    return (format(value, "f") if isinstance(value, Decimal) else str(value)), Fraction(value)


def _time_literal(chance: random.Random, name: str) -> tuple[str, int]:
    at = chance.choice([*TIMES, *OLD_TIMES])
    if (name == "d" and chance.random() < 0.7) or chance.random() < 0.2:
        at -= at % DAY_US
        day = (EPOCH + timedelta(microseconds=at)).date().isoformat()
        return chance.choice([f"DATE '{day}'", f"'{day}'"]), at
    text = _clock(at)
    if name == "d":  # other engines truncate the text of a time to its day here
        return f"TIMESTAMP '{text}'", at
    form = chance.randrange(4 if name != "ntz" else 2)
    if form >= 2 and TIMES[0] <= at <= TIMES[-1]:
        return f"'{_clock(at + 19_800_000_000)}+05:30'", at
    return (f"TIMESTAMP '{text}'" if form else f"'{text}'"), at


def _clock(at: int) -> str:
    return (EPOCH + timedelta(microseconds=at)).replace(tzinfo=None).isoformat(sep=" ")


_OPS: dict[str, Callable[[int], bool]] = {
    "=": lambda order: order == 0, "<>": lambda order: order != 0, "!=": lambda order: order != 0,
    "<": lambda order: order < 0, "<=": lambda order: order <= 0,
    ">": lambda order: order > 0, ">=": lambda order: order >= 0,
}  # fmt: skip


def compare(op: str, left: Any, right: Any) -> bool | None:
    """`left op right`; NaN equals itself and is greater than every number."""
    if left is None or right is None:
        return None
    nan = [isinstance(side, float) and side != side for side in (left, right)]  # noqa: PLR0124
    if any(nan):
        return _OPS[op](nan[0] - nan[1])
    return _OPS[op]((left > right) - (left < right))


def _name(chance: random.Random) -> str:
    return chance.choice([name for name in ("ts", *VALUES) if name != "raw"])


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _and(values: list[bool | None]) -> bool | None:
    return False if False in values else None if None in values else True


def _or(values: list[bool | None]) -> bool | None:
    return _not(_and([_not(value) for value in values]))
