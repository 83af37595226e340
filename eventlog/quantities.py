"""Quantities as text for people."""

from __future__ import annotations

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def count_text(number: int, noun: str) -> str:
    """Return a number with its noun as text for display: 1 segment, 2,000 segments."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def signed_text(number: int) -> str:
    """Return a number with its sign as text for display; an empty string for 0."""
    return f"{number:+,}" if number else ""


def size_text(number: int) -> str:
    """Return a number of bytes as text for display, in powers of 1000."""
    value, unit = float(abs(number)), _UNITS[0]
    for unit in _UNITS:  # noqa: B007 - anything larger is shown in the last unit
        if value < 999.5:
            break
        value /= 1000
    sign = "-" if number < 0 else ""
    return f"{sign}{value:.0f} B" if unit == "B" else f"{sign}{value:.3g} {unit}"
