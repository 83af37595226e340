"""Event times that are ISO 8601 text, as instants, naive times or dates."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.staging.incoming.problems import Problem, example_of, halved

_MICROSECOND = pa.timestamp("us", tz="UTC")
# In ISO 8601 text: an offset other than UTC.
_OTHER_OFFSET = r"[T ][0-9:.]*[+-]([1-9]|0[1-9]|00:?[0-9]*[1-9])"
HAS_OFFSET = r"[Tt ]\d\d.*(Z|z|[+-]\d\d(:?\d\d)?)$"  # any offset


def parse_times(values: pa.Array, field: pa.Field) -> pa.Array | Problem:
    """Return the event times of ISO 8601 text in the type of the column, or the first problem.

    Text without an offset is UTC.
    """
    if pa.types.is_date(field.type) or field.type.tz is None:
        shifted = pc.fill_null(pc.match_substring_regex(values, _OTHER_OFFSET), False)
        count = pc.sum(shifted).as_py()
        if count:
            why = f"event times have an offset from UTC, which {field.type} does not keep"
            return Problem(field.name, why, count, example_of(values.filter(shifted).slice(0, 1)))
    parsed, count, example = [], 0, ""
    for part, times in halved(values, _parsed):
        if times is not None:
            parsed.append(times)
            continue
        example = example or repr(part[0].as_py()[:80])
        count += 1
    if count:
        why = "event times cannot be read as ISO 8601 (2013-01-07T05:00:00Z)"
        return Problem(field.name, why, count, example)
    return _of_type(pa.concat_arrays(parsed), field)


def _of_type(times: pa.Array, field: pa.Field) -> pa.Array | Problem:
    """Return instants, or naive times, in the type of the column."""
    if not pa.types.is_date(field.type):
        return times.cast(field.type, safe=False)
    local = times.cast(pa.timestamp("us"), safe=False)
    days = local.cast(pa.date32())
    cut = pc.fill_null(pc.not_equal(days.cast(pa.timestamp("us")), local), False)
    count = pc.sum(cut).as_py()
    if count:
        example = example_of(times.filter(cut).slice(0, 1))
        return Problem(field.name, "event times have a time of day, but are dates", count, example)
    return days


def _parsed(values: pa.Array) -> pa.Array | None:
    """Return strings as instants; None if one of them is not a time."""
    for parse in (_with_offset, _without_offset, _with_some_offsets):
        try:
            return parse(values).cast(_MICROSECOND)
        except pa.ArrowInvalid:
            continue
    return None


def _with_offset(values: pa.Array) -> pa.Array:
    return values.cast(pa.string()).cast(_MICROSECOND)


def _without_offset(values: pa.Array) -> pa.Array:
    return values.cast(pa.string()).cast(pa.timestamp("us"))


def _with_some_offsets(values: pa.Array) -> pa.Array:
    texts, null = values.cast(pa.string()), pa.scalar(None, pa.string())
    has_offset = pc.match_substring_regex(texts, HAS_OFFSET)
    instants = _with_offset(pc.if_else(has_offset, texts, null))
    naive = _without_offset(pc.if_else(has_offset, null, texts))
    return pc.coalesce(instants, naive.cast(_MICROSECOND))
