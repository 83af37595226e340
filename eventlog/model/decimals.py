"""Exact conversion of decimals to and from unscaled integers.

Arithmetic with `decimal.Decimal` rounds to the precision of the caller's context, and raises the
errors that it traps; so nothing here computes with a `Decimal`.
"""

from __future__ import annotations

from decimal import Decimal


def to_units(value: Decimal, scale: int) -> int:
    """Return `value * 10**scale`.

    Raises:
        ValueError: the value has more than `scale` digits after the point, or is NaN or infinite.
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):  # NaN or infinity, which columns of the format cannot hold
        raise ValueError(f"{value} is not a number")  # noqa: TRY004 - the type is right
    units: int = int("".join(map(str, digits)) or "0")
    shift = exponent + scale
    if shift >= 0:
        units *= 10**shift
    else:
        units, remainder = divmod(units, 10**-shift)
        if remainder:
            raise ValueError(f"{value} has more than {scale} digits after the point")
    return -units if sign else units


def from_units(units: int, scale: int) -> Decimal:
    """Return `units / 10**scale`."""
    digits = tuple(int(digit) for digit in str(abs(units)))
    return Decimal((int(units < 0), digits, -scale))
