"""Arithmetic in SQL expressions.

Integers compute in int64, decimals (also with integers) exactly in up to 38 digits, and everything
with a float in float64, by the rules of IEEE 754. Division is always of two float64. A result that
does not fit its type, and a division by zero, fail for the row.
"""

from __future__ import annotations

from fractions import Fraction

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput
from eventlog.query.conditions import FLOATS
from eventlog.query.sql.values import (
    INTEGERS,
    MAX_DIGITS,
    Lit,
    Operand,
    Term,
    any_fails,
    as_float,
    as_wide_decimal,
    digits_of,
    family_of,
    in_digits,
    sure,
    to_term,
)

_WIDE_DIGITS = 76  # of a decimal with 256 bits
_LEAST, _MOST = -(2**63), 2**63 - 1


def negate(operand: Operand) -> Operand:
    """Return `-operand`.

    Raises:
        InvalidInput: it is not a number.
    """
    if isinstance(operand, Lit):
        if isinstance(operand.value, Fraction):
            return Lit(-operand.value)
        if operand.value is None:
            return operand
    term = to_term(operand)
    if family_of(term.type) != "number" or term.type in INTEGERS:
        return arithmetic("Sub", Lit(Fraction(0)), operand)
    kind = "float64" if term.type in FLOATS else term.type
    value = as_float(term) if kind == "float64" else term.expression
    return Term(pc.negate(value), kind, term.names, term.fails)


def absolute(operand: Operand) -> Operand:
    """Return the distance from zero of a number.

    Raises:
        InvalidInput: it is not a number.
    """
    term = to_term(operand)
    if term.type is None:
        return Lit(None)
    if family_of(term.type) != "number":
        raise InvalidInput(f"ABS needs a number, not {term.type}")
    if term.type in INTEGERS:
        value = _int64(term)
        fails = any_fails(term.fails, sure(value == _LEAST))
        return Term(pc.abs(value), "int64", term.names, fails)
    kind = "float64" if term.type in FLOATS else term.type
    value = as_float(term) if kind == "float64" else term.expression
    return Term(pc.abs(value), kind, term.names, term.fails)


def arithmetic(kind: str, left: Operand, right: Operand) -> Operand:
    """Return a sum, difference, product, quotient or remainder (of integers).

    Args:
        kind: `Add`, `Sub`, `Mul`, `Div` or `Mod`.
        left: the left operand.
        right: the right operand.

    Raises:
        InvalidInput: an operand is not a number, or not an integer for a remainder, or the result
            may have more digits than a decimal.
    """
    a, b = to_term(left), to_term(right)
    if a.type is None or b.type is None:
        return Lit(None)
    if {family_of(a.type), family_of(b.type)} != {"number"}:
        raise InvalidInput(f"arithmetic needs numbers, not {a.type} and {b.type}")
    integers = a.type in INTEGERS and b.type in INTEGERS
    if kind == "Mod":
        if not integers:
            raise InvalidInput(
                f"% is the remainder of two integers, and here of {a.type} and {b.type}: CAST them"
            )
        value, fails = _remainder(_int64(a), _int64(b))
        result = "int64"
    elif kind == "Div":
        x, y = as_float(a), as_float(b)
        value, result = pc.divide(x, y), "float64"
        # A null numerator is null, whatever it is divided by.
        fails = sure((y == 0.0) & x.is_valid())  # against division-by-zero
    elif a.type in FLOATS or b.type in FLOATS:
        call = {"Add": pc.add, "Sub": pc.subtract, "Mul": pc.multiply}[kind]
        value, fails, result = call(as_float(a), as_float(b)), None, "float64"
    elif integers:
        value, fails = _of_integers(kind, _int64(a), _int64(b))
        result = "int64"
    else:
        value, fails, result = _of_decimals(kind, a, b)
    # Arrow adds and multiplies a chain in another order, which rounds in another way. It does not
    # join a chain through another function.
    value = pc.coalesce(value)  # against sums-in-another-order
    return Term(value, result, a.names | b.names, any_fails(a.fails, b.fails, fails))


def _int64(term: Term) -> pc.Expression:
    return term.expression if term.type == "int64" else term.expression.cast(pa.int64())


def _of_integers(
    kind: str, x: pc.Expression, y: pc.Expression
) -> tuple[pc.Expression, pc.Expression]:
    """Return the result, which wraps around, and for which rows it does."""
    if kind == "Mul":
        wide = pc.multiply(x.cast(pa.decimal256(19, 0)), y.cast(pa.decimal256(19, 0)))
        least, most = (pc.scalar(pa.scalar(n, pa.decimal256(39, 0))) for n in (_LEAST, _MOST))
        return pc.multiply(x, y), sure((wide < least) | (wide > most))
    if kind == "Add":
        value, others = pc.add(x, y), (x, y)
    else:
        value, others = pc.subtract(x, y), (x, pc.bit_wise_not(y))
    # It has wrapped around if both operands have one sign, and the result the other one.
    signs = [pc.bit_wise_xor(other, value) for other in others]
    wraps = sure(pc.bit_wise_and(*signs) < 0)  # against overflow-of-integers
    return value, wraps


def _of_decimals(kind: str, a: Term, b: Term) -> tuple[pc.Expression, pc.Expression | None, str]:
    (digits, scale), (other_digits, other_scale) = digits_of(a.type), digits_of(b.type)
    if kind == "Mul":
        precision, point = digits + other_digits, scale + other_scale
        if point > MAX_DIGITS or precision >= _WIDE_DIGITS:
            raise _too_many(a, b)
        x, y = as_wide_decimal(a, scale, digits), as_wide_decimal(b, other_scale, other_digits)
        wide = pc.multiply(x, y)
    else:
        point = max(scale, other_scale)
        precision = max(digits - scale, other_digits - other_scale) + point + 1
        if precision > _WIDE_DIGITS:
            raise _too_many(a, b)
        x, y = (as_wide_decimal(term, point, precision - 1) for term in (a, b))
        wide = (pc.add if kind == "Add" else pc.subtract)(x, y)
    wide = wide.cast(pa.decimal256(_WIDE_DIGITS, point))
    value, fails = in_digits(wide, min(precision, MAX_DIGITS), point)
    result = f"decimal({min(precision, MAX_DIGITS)},{point})"
    return value, fails if precision > MAX_DIGITS else None, result


def _too_many(a: Term, b: Term) -> InvalidInput:
    return InvalidInput(
        f"a result of {a.type} and {b.type} may have more than {MAX_DIGITS} digits: CAST them to "
        "decimals of fewer digits, or to DOUBLE"
    )


def _remainder(x: pc.Expression, y: pc.Expression) -> tuple[pc.Expression, pc.Expression]:
    # The remainder by -1 is always 0, but dividing the least int64 by -1 would overflow.
    safe = pc.if_else((y == 0) | (y == -1), pc.scalar(1), y)
    return pc.subtract(x, pc.multiply(pc.divide(x, safe), safe)), sure((y == 0) & x.is_valid())
