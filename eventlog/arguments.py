"""Arguments of the public functions: their types and bounds, checked before anything is sent.

Pure layer. What is wrong is an `InvalidInput` that names the argument, never an error of the
library that would have met it first; nothing is rounded, cut or read as something else.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
import pyarrow as pa

from eventlog.errors import InvalidInput

MAX_VERSION = 2**63 - 1
MAX_SECONDS = 10**9


def whole(value: Any, name: str, low: int = 0, high: int = MAX_VERSION) -> int:
    """Return a whole number (of NumPy too) as an int.

    Raises:
        InvalidInput: it is a bool, a float, a text or anything else, or lies outside [low, high].
    """
    number = index(value)
    if number is None or not low <= number <= high:
        most = {MAX_VERSION: "2^63 - 1"}.get(high, str(high))
        raise InvalidInput(f"{name} is a whole number from {low} to {most}, not {shown(value)}")
    return number


def opened(value: Any) -> None:
    """Check that a value is an open table, and no path of one.

    Raises:
        InvalidInput: it is not.
    """
    if not hasattr(value, "snapshot"):
        raise InvalidInput(f"{shown(value)} is not an open table: take Table.open(uri)")


def index(value: Any) -> int | None:
    """Return a whole number (of NumPy too) as an int, or None; bools are none."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def text(value: Any, name: str, least: int = 1, most: int = 255) -> str:
    """Return a text.

    Raises:
        InvalidInput: it is none, has other than `least` to `most` characters, or is no Unicode.
    """
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is a text, not {shown(value)}")
    if not least <= len(value) <= most or not is_unicode(value):
        raise InvalidInput(
            f"{name} has {least} to {most} characters of Unicode, not {shown(value)}"
        )
    return value


def choice(value: Any, name: str, options: Sequence[str]) -> str:
    """Return one of several texts.

    Raises:
        InvalidInput: it is none of them.
    """
    if isinstance(value, str) and value in options:
        return value
    raise InvalidInput(f"{name} is one of {', '.join(options)}, not {shown(value)}")


def name_list(value: Any, name: str) -> list[str]:
    """Return a list of names from anything that yields texts in an order.

    Raises:
        InvalidInput: it is one text, has no order, or holds what is no text.
    """
    if isinstance(value, str):
        raise InvalidInput(f"{name} is a list of names: write [{value[:80]!r}]")
    unordered = isinstance(value, AbstractSet | Mapping | bytes | bytearray)
    if isinstance(value, Iterable) and not unordered:
        found = list(value)
        if all(isinstance(item, str) for item in found):
            return found
    raise InvalidInput(f"{name} is a list of names, not {shown(value)}")


def mapping(value: Any, name: str) -> Mapping[str, Any]:
    """Return a mapping of names to values, empty where there is none.

    Raises:
        InvalidInput: it is something else, or a name is no text.
    """
    if value is None:
        return {}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return value
    raise InvalidInput(f"{name} maps names to values, not {shown(value)}")


def schema(value: Any) -> pa.Schema:
    """Return an Arrow schema.

    Raises:
        InvalidInput: it is none.
    """
    if isinstance(value, pa.Schema):
        return value
    raise InvalidInput(f"schema is a pyarrow.Schema, not {shown(value)}")


def seconds(value: Any, name: str) -> float:
    """Return a number of seconds, 0 or more.

    Raises:
        InvalidInput: it is no number, is negative, or has no end.
    """
    if is_number(value) and 0 <= value < MAX_SECONDS:
        return float(value)
    raise InvalidInput(f"{name} is a number of seconds, 0 or more, not {shown(value)}")


def names(value: str, name: str) -> list[str]:
    """Return the names of columns in a text: comma-separated, or as a JSON list.

    In a JSON list a name may hold commas, and begin and end with spaces.

    Raises:
        InvalidInput: the text begins as a JSON list, and is no list of names.
    """
    if not value.lstrip().startswith("["):
        return [part.strip() for part in value.split(",") if part.strip()]
    try:
        return msgspec.json.decode(value, type=list[str])
    except (msgspec.MsgspecError, UnicodeEncodeError):
        raise InvalidInput(
            f'{name} is a,b or a JSON list such as ["a","b"], not {shown(value)}'
        ) from None


def is_number(value: Any) -> bool:
    """Say whether a value is an int or a float, and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_unicode(value: str) -> bool:
    """Say whether a text can be stored: surrogates, which stand for no character, cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def shown(value: Any) -> str:
    """Return a value for a message, whatever it is: its type and its start."""
    if isinstance(value, str):
        return ascii(value[:80]) if not is_unicode(value) else repr(value[:80])
    if isinstance(value, int | float) and abs(value) < 10**80:
        return str(value)
    try:
        return f"{type(value).__name__} {str(value)[:80]}"
    except Exception:  # noqa: BLE001 - only for a message, of an object that nobody knows
        return type(value).__name__
