"""Arguments of the public functions: their types and bounds, checked before anything is sent.

A wrong argument is an `InvalidInput` that names it, not an error from a library further down.
Nothing is rounded, truncated or reinterpreted.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from eventlog.errors import InvalidInput

MAX_VERSION = 2**63 - 1
MAX_SECONDS = 10**9


def whole(value: Any, name: str, low: int = 0, high: int = MAX_VERSION) -> int:
    """Return a whole number (NumPy's included) as an int.

    Raises:
        InvalidInput: it is not an integer (bools and floats are not), or not in [low, high].
    """
    number = index(value)
    if number is None or not low <= number <= high:
        most = {MAX_VERSION: "2^63 - 1"}.get(high, str(high))
        raise InvalidInput(
            f"{name} must be a whole number from {low} to {most}, not {shown(value)}"
        )
    return number


def opened(value: Any) -> None:
    """Check that a value is an open table, not the path of one.

    Raises:
        InvalidInput: it is not.
    """
    if not hasattr(value, "snapshot"):
        raise InvalidInput(f"{shown(value)} is not an open table: pass Table.open(uri)")


def index(value: Any) -> int | None:
    """Return a whole number (NumPy's included) as an int; None for anything else and for bools."""
    if type(value).__name__ in ("bool", "bool_"):  # NumPy 1 takes its own for whole numbers
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def text(value: Any, name: str, least: int = 1, most: int = 255) -> str:
    """Return a string.

    Raises:
        InvalidInput: it is not a str, does not have `least` to `most` characters, or is not valid
            Unicode.
    """
    if not isinstance(value, str):
        raise InvalidInput(f"{name} must be a string, not {shown(value)}")
    if not least <= len(value) <= most or not is_unicode(value):
        raise InvalidInput(
            f"{name} must be {least} to {most} characters of valid Unicode, not {shown(value)}"
        )
    return value


def choice(value: Any, name: str, options: Sequence[str]) -> str:
    """Return one of several strings.

    Raises:
        InvalidInput: it is none of them.
    """
    if isinstance(value, str) and value in options:
        return value
    raise InvalidInput(f"{name} must be one of {', '.join(options)}, not {shown(value)}")


def name_list(value: Any, name: str) -> list[str]:
    """Return a list of names from any ordered iterable of strings.

    Raises:
        InvalidInput: it is a single string, is unordered, or has an item that is not a string.
    """
    if isinstance(value, str):
        raise InvalidInput(f"{name} must be a list of names: write [{value[:80]!r}]")
    unordered = isinstance(value, AbstractSet | Mapping | bytes | bytearray)
    if isinstance(value, Iterable) and not unordered:
        listed = list(value)
        if all(isinstance(item, str) for item in listed):
            return listed
    raise InvalidInput(f"{name} must be a list of names, not {shown(value)}")


def mapping(value: Any, name: str) -> Mapping[str, Any]:
    """Return a mapping of names to values; empty for None.

    Raises:
        InvalidInput: it is not a mapping, or a name is not a string.
    """
    if value is None:
        return {}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return value
    raise InvalidInput(f"{name} must map names to values, not {shown(value)}")


def seconds(value: Any, name: str) -> float:
    """Return a number of seconds, 0 or more.

    Raises:
        InvalidInput: it is not a number, is negative, or is `MAX_SECONDS` or more.
    """
    if is_number(value) and 0 <= value < MAX_SECONDS:
        return float(value)
    raise InvalidInput(f"{name} must be a number of seconds, 0 or more, not {shown(value)}")


def parse_names(value: str, name: str) -> list[str]:
    """Return the column names in a string: comma-separated, or a JSON list.

    In a JSON list a name may contain commas, and begin and end with spaces.

    Raises:
        InvalidInput: it starts like a JSON list, but is not a list of strings.
    """
    if not value.lstrip().startswith("["):
        return [part.strip() for part in value.split(",") if part.strip()]
    try:
        return msgspec.json.decode(value, type=list[str])
    except (msgspec.MsgspecError, UnicodeEncodeError):
        raise InvalidInput(
            f'{name} must be a,b or a JSON list such as ["a","b"], not {shown(value)}'
        ) from None


def is_number(value: Any) -> bool:
    """Say whether a value is an int or a float, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_unicode(value: str) -> bool:
    """Say whether a string is valid Unicode, without surrogates, and so can be stored as UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def shown(value: Any) -> str:
    """Return any value as short text for a message."""
    if isinstance(value, str):
        return ascii(value[:80]) if not is_unicode(value) else repr(value[:80])
    if isinstance(value, int | float) and abs(value) < 10**80:
        return str(value)
    try:
        return f"{type(value).__name__} {str(value)[:80]}"
    except Exception:  # noqa: BLE001 - only for a message, and the object may be anything
        return type(value).__name__
