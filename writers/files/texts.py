"""Text to values of the table's types, exactly: what CSV fields, JSON strings and paths say.

A text that is no value of the type is refused, never made null. Floats are the nearest ones to what
is written, NaN and infinities included; every other type takes a text only if nothing is lost.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.staging.rows import HAS_OFFSET

_UTC = pa.timestamp("us", tz="UTC")
_NAIVE = pa.timestamp("us")
# Arrow reads beyond its table of powers of ten where a decimal has more places than this.
_PLACES = 38
_CALLED = {pa.float64(): "float64", pa.float32(): "float32"}  # as a schema has them
_PLAIN_DECIMAL = r"^[+-]?\d{1,38}(\.\d{0,38})?$"
_ANY_DECIMAL = re.compile(r"([+-]?)(\d*)\.?(\d*)(?:[eE]([+-]?\d{1,4}))?", re.ASCII)


class Misfit(ValueError):
    """A value that does not fit its column's type.

    Attributes:
        index: which one of the values.
    """

    def __init__(self, index: int, shown: str, kind: pa.DataType, why: str = "") -> None:
        called = _CALLED.get(kind, kind)
        super().__init__(f"{shown[:80]} does not fit {called}{': ' if why else ''}{why}")
        self.index, self.shown, self.kind, self.why = index, shown, kind, why

    def at(self, index: int) -> Misfit:
        """Return the same misfit as that of the value it is a part of."""
        return Misfit(index, self.shown, self.kind, self.why)


def is_text(kind: pa.DataType) -> bool:
    """Say whether values of the type are text."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()
    )


def parse(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array of texts as values of a type; null stays null.

    Raises:
        Misfit: a text is no value of the type.
    """
    if pa.types.is_string(kind):
        return values.cast(kind)
    for attempt in (_plain, _trimmed, _spelled_otherwise):
        try:
            return attempt(values, kind)
        except pa.ArrowInvalid:
            continue
    for index, value in enumerate(values):
        try:
            _spelled_otherwise(pa.array([value.as_py()], pa.string()), kind)
        except pa.ArrowInvalid:
            raise Misfit(index, repr(value.as_py()), kind) from None
    raise ValueError(f"texts cannot be read as {kind}")


def short_fractions(values: pa.Array) -> pa.Array:
    """Return texts of times without the zeros of nanoseconds, which microseconds do not have."""
    if not pc.any(pc.match_substring_regex(values, r"\.\d{7}")).as_py():
        return values
    return pc.replace_substring_regex(values, r"(\.\d{6})0+(\D|$)", r"\1\2")


def _plain(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return _times(values, kind)
    if pa.types.is_decimal(kind):
        return _decimals(values, kind)
    # Arrow takes 0xFF for -1 where a column has 8 bits.
    if pa.types.is_integer(kind) and pc.any(pc.match_substring_regex(values, "[xX]")).as_py():
        raise pa.ArrowInvalid("whole numbers are written in decimal digits")
    found = values.cast(kind)
    if pa.types.is_floating(kind):
        _check_finite(values, found)
    return found


def _trimmed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return _plain(pc.ascii_trim_whitespace(values), kind)


def _spelled_otherwise(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Read `1.0` for 1, as pandas writes integers beside nulls, and zeros of nanoseconds."""
    values = pc.ascii_trim_whitespace(values)
    if pa.types.is_timestamp(kind):
        values = short_fractions(values)
    elif pa.types.is_integer(kind):
        values = pc.replace_substring_regex(values, r"^(?:\+|(-)|)(\d+)(\.0*)?$", r"\1\2")
    return _plain(values, kind)


def _times(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Parse ISO 8601: with an offset, or without one as UTC; a type without a zone takes none."""
    if kind.tz is None:
        return values.cast(_NAIVE)
    try:
        return values.cast(_UTC)
    except pa.ArrowInvalid:
        zoned = pc.match_substring_regex(values, HAS_OFFSET)
        naive = pc.if_else(zoned, None, values).cast(_NAIVE).cast(_UTC)
        return pc.coalesce(pc.if_else(zoned, values, None).cast(_UTC), naive)


def _decimals(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Parse decimals exactly.

    Arrow multiplies by a power of ten modulo 2^128 and looks at the precision only then. Where
    that may wrap around, the numbers go by way of 256 bits, which hold 38 digits times 10^38.
    """
    values = _plain_decimals(values)
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    if longest + kind.scale > _PLACES:
        values = values.cast(pa.decimal256(2 * _PLACES, kind.scale))
    return values.cast(kind)


def _plain_decimals(values: pa.Array) -> pa.Array:
    """Return decimals without exponents and with no more places than Arrow can have."""
    plain = pc.match_substring_regex(values, _PLAIN_DECIMAL)
    if pc.all(plain, min_count=0).as_py():
        return values
    return pa.array([text and _plain_decimal(text) for text in values.to_pylist()], pa.string())


def _plain_decimal(text: str) -> str:
    """Return a decimal without its exponent."""
    match = _ANY_DECIMAL.fullmatch(text)
    if not match or not (match[2] or match[3]):
        raise pa.ArrowInvalid(f"{text[:80]!r} is no decimal")
    written = match[2] + match[3]
    digits = written.rstrip("0")
    places = len(match[3]) - int(match[4] or 0) - (len(written) - len(digits))
    digits = digits.lstrip("0")
    if not digits:
        return "0"
    if not len(digits) - _PLACES <= places <= _PLACES:
        raise pa.ArrowInvalid(f"{text[:80]!r} has more digits than a decimal")
    if places <= 0:
        return match[1] + digits + "0" * -places
    digits = digits.rjust(places + 1, "0")
    return f"{match[1]}{digits[:-places]}.{digits[-places:]}"


def _check_finite(values: pa.Array, found: pa.Array) -> None:
    """Refuse numbers that overflow: infinity is only what says so."""
    infinite = pc.is_inf(found)
    if pc.any(infinite).as_py():
        said = pc.match_substring_regex(values.filter(infinite), r"(?i)inf")
        if not pc.all(said).as_py():
            raise pa.ArrowInvalid("a number is out of range")
