"""Converts text from CSV fields, JSON strings and paths to the table's types, exactly.

Text that is not a value of the type is refused, never turned into null. Floats are rounded to the
nearest value (NaN and infinities included); for every other type nothing may be lost.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.staging.incoming.times import HAS_OFFSET

_UTC = pa.timestamp("us", tz="UTC")
_NAIVE = pa.timestamp("us")
# With more places than this Arrow reads past the end of its table of powers of ten.
_PLACES = 38
_CALLED = {pa.float64(): "float64", pa.float32(): "float32"}  # the names used in schemas
_PLAIN_DECIMAL = r"^[+-]?\d{1,38}(\.\d{0,38})?$"
_ANY_DECIMAL = re.compile(r"([+-]?)(\d*)\.?(\d*)(?:[eE]([+-]?\d{1,4}))?", re.ASCII)


class Misfit(ValueError):
    """A value that does not fit its column's type.

    Attributes:
        index: the index of the value.
    """

    def __init__(self, index: int, shown: str, kind: pa.DataType, why: str = "") -> None:
        called = _CALLED.get(kind, kind)
        super().__init__(f"{shown[:80]} does not fit {called}{': ' if why else ''}{why}")
        self.index, self.shown, self.kind, self.why = index, shown, kind, why

    def at(self, index: int) -> Misfit:
        """Return the same misfit with the index of the value around it."""
        return Misfit(index, self.shown, self.kind, self.why)


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of the type are text."""
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()
    )


def parse_texts(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an array of strings as values of a type; null stays null.

    Raises:
        Misfit: a string is not a value of the type.
    """
    if pa.types.is_string(kind):
        return values.cast(kind)
    for attempt in (_plain, _trimmed, _normalized):
        try:
            return attempt(values, kind)
        except pa.ArrowInvalid:
            continue
    for index, value in enumerate(values):
        try:
            _normalized(pa.array([value.as_py()], pa.string()), kind)
        except pa.ArrowInvalid:
            raise Misfit(index, repr(value.as_py()), kind) from None
    raise ValueError(f"strings cannot be read as {kind}")


def short_fractions(values: pa.Array) -> pa.Array:
    """Return times as text without trailing zeros beyond microseconds."""
    if not pc.any(pc.match_substring_regex(values, r"\.\d{7}")).as_py():
        return values
    return pc.replace_substring_regex(values, r"(\.\d{6})0+(\D|$)", r"\1\2")


def _plain(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return _times(values, kind)
    if pa.types.is_decimal(kind):
        return _decimals(values, kind)
    # Arrow reads 0xFF as -1 in a column of 8 bits.
    if pa.types.is_integer(kind) and pc.any(pc.match_substring_regex(values, "[xX]")).as_py():
        raise pa.ArrowInvalid("whole numbers must be in decimal digits")
    parsed = values.cast(kind)
    if pa.types.is_floating(kind):
        _check_finite(values, parsed)
    return parsed


def _trimmed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return _plain(pc.ascii_trim_whitespace(values), kind)


def _normalized(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Read `1.0` as 1, as pandas writes integers in columns with nulls, and nanoseconds of 0."""
    values = pc.ascii_trim_whitespace(values)
    if pa.types.is_timestamp(kind):
        values = short_fractions(values)
    elif pa.types.is_integer(kind):
        values = pc.replace_substring_regex(values, r"^(?:\+|(-)|)(\d+)(\.0*)?$", r"\1\2")
    return _plain(values, kind)


def _times(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Parse ISO 8601. Without an offset it is UTC; a type without a zone allows no offset."""
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

    Arrow multiplies by a power of ten modulo 2^128 and checks the precision only afterwards. If
    that may overflow, the numbers are parsed with 256 bits, which can represent 38 digits times
    10^38.
    """
    values = _plain_decimals(values)
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    if longest + kind.scale > _PLACES:
        values = values.cast(pa.decimal256(2 * _PLACES, kind.scale))
    return values.cast(kind)


def _plain_decimals(values: pa.Array) -> pa.Array:
    """Return decimals without exponents and with no more places than Arrow supports."""
    plain = pc.match_substring_regex(values, _PLAIN_DECIMAL)
    if pc.all(plain, min_count=0).as_py():
        return values
    return pa.array([text and _plain_decimal(text) for text in values.to_pylist()], pa.string())


def _plain_decimal(text: str) -> str:
    """Return a decimal without its exponent."""
    match = _ANY_DECIMAL.fullmatch(text)
    if not match or not (match[2] or match[3]):
        raise pa.ArrowInvalid(f"{text[:80]!r} is not a decimal")
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


def _check_finite(values: pa.Array, parsed: pa.Array) -> None:
    """Refuse numbers that overflow: only the text `inf` is an infinity."""
    infinite = pc.is_inf(parsed)
    if pc.any(infinite).as_py():
        spelled = pc.match_substring_regex(values.filter(infinite), r"(?i)inf")
        if not pc.all(spelled).as_py():
            raise pa.ArrowInvalid("a number is out of range")
