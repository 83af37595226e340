"""Filters of engines, which mean by NaN and by null what SQL does, as filters of Arrow.

In DuckDB, DataFusion and Polars, as in this table's own SQL, NaN is greater than every number and
equal to itself, and a lookup of null is null. In Arrow every comparison with NaN is false, and so
is a lookup of null. Engines that push a filter into an Arrow dataset do not apply it again, so rows
would be lost, or shown against the engine's own rule.

An expression cannot be looked at in Python, so it is rewritten in Arrow's serialized form: its
calls stand in order in the metadata of a record batch, whose columns are literals and options.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput

_Token: TypeAlias = tuple[bytes, bytes]
_MIRRORED = {b"greater": b"less", b"greater_equal": b"less_equal"}
_COMPARISONS = {*_MIRRORED, *_MIRRORED.values(), b"equal", b"not_equal"}
_BOTH_WAYS = (b"and_kleene", b"or_kleene")  # no row passes because a part of them is false


@dataclass(frozen=True, slots=True)
class EngineFilter:
    """A filter that an engine pushes into a scan.

    Attributes:
        pushed: the engine's filter, in its terms.
        own: the filter that the scan had before, in Arrow's terms; or None.
    """

    pushed: pc.Expression
    own: pc.Expression | None = None

    def pruning(self) -> pc.Expression:
        """Return the filter by which segments are pruned.

        Segments with NaN have no bounds of that column (FORMAT.md R7.4), so bounds decide nothing
        about NaN.
        """
        pushed = simplified(self.pushed)
        return pushed if self.own is None else self.own & pushed

    def rows(self, schema: pa.Schema) -> pc.Expression:
        """Return the filter of rows, in Arrow's terms.

        Args:
            schema: of the rows.
        """
        pushed = in_arrow_terms(simplified(self.pushed), schema)
        return pushed if self.own is None else self.own & pushed


def in_arrow_terms(expression: pc.Expression, schema: pa.Schema) -> pc.Expression:
    """Return the filter that has the same rows in Arrow as an engine's filter has in the engine.

    Args:
        expression: the engine's, over rows of `schema`.
        schema: of the rows.

    Raises:
        InvalidInput: the expression refers to columns by position, or does not fit the rows.
    """
    return _rewritten(expression, lambda form: _EngineTerms(form, schema))


def simplified(expression: pc.Expression) -> pc.Expression:
    """Return a filter with the same rows in a form by which segments can be pruned.

    DuckDB writes a lookup as `if_else(is_valid(a), is_in(a, …), null)`, which prunes nothing. Where
    null is as good as false, it is `is_valid(a) and is_in(a, …)`.
    """
    return _rewritten(expression, _Simplification)


class _Form(NamedTuple):
    """Arrow's serialized form of an expression: the calls in order, and literals and options."""

    tokens: list[_Token]
    values: pa.RecordBatch


class _Node(NamedTuple):
    """A part of an expression: its tokens, or the parts that they are in."""

    parts: tuple[Any, ...]
    call: bytes = b""
    arguments: tuple[_Node, ...] = ()


def _call(name: bytes, *arguments: _Node, options: tuple[_Token, ...] = ()) -> _Node:
    parts = ((b"call", name), *arguments, *options, (b"end", name))
    return _Node(parts, name, arguments)


@dataclass(slots=True)
class _Open:
    """A call whose end is not read yet.

    Attributes:
        name: the function.
        filters: whether null is as good as false in its place.
        arguments: those that are read.
        options: its options, if it has some.
    """

    name: bytes
    filters: bool
    arguments: list[_Node] = field(default_factory=list)
    options: tuple[_Token, ...] = ()


def _rewritten(expression: pc.Expression, rules: Any) -> pc.Expression:
    """Return an expression after rules for its calls.

    Args:
        expression: the expression.
        rules: returns for a form what has `finished`, the part for a call.
    """
    form = _form_of(expression)
    rewriter = rules(form)
    calls = [_Open(b"", filters=True)]  # the expression is its only argument
    tokens = iter(form.tokens)
    for key, value in tokens:
        if key == b"call":
            filters = calls[-1].filters and calls[-1].name in (b"", *_BOTH_WAYS)
            calls.append(_Open(value, filters))
        elif key == b"options":
            calls[-1].options = ((key, value),)
        elif key == b"end":
            done = calls.pop()
            calls[-1].arguments.append(rewriter.finished(done))
        else:
            inner = int(value) if key == b"nested_field_ref" else 0
            parts = ((key, value), *(next(tokens) for _ in range(inner)))
            calls[-1].arguments.append(_Node(parts))
    return _expression_of(calls[0].arguments[0], form.values)


def _form_of(expression: pc.Expression) -> _Form:
    try:
        _, (buffer,) = expression.__reduce__()
    except pa.ArrowNotImplementedError:
        raise InvalidInput("the filter refers to a column by position: name the column") from None
    values = pa.ipc.open_file(buffer).get_batch(0)
    return _Form(_metadata(values.schema), values)


def _expression_of(node: _Node, values: pa.RecordBatch) -> pc.Expression:
    tokens: list[_Token] = []
    waiting: list[Any] = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, _Node):
            waiting += reversed(part.parts)
        else:
            tokens.append(part)
    batch = values.replace_schema_metadata(pa.KeyValueMetadata(tokens))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    rebuild, _ = pc.scalar(True).__reduce__()
    return rebuild(sink.getvalue())


class _Simplification:
    """The rules of `simplified`."""

    def __init__(self, form: _Form) -> None:
        self.form = form

    def finished(self, call: _Open) -> _Node:
        if call.filters and call.name == b"if_else" and self._is_null(call.arguments[2]):
            return _call(b"and_kleene", *call.arguments[:2])
        return _call(call.name, *call.arguments, options=call.options)

    def _is_null(self, node: _Node) -> bool:
        return _literal(node, self.form) is None and node.parts[0][0] == b"literal"


@dataclass(frozen=True, slots=True)
class _EngineTerms:
    """The rules of `in_arrow_terms`."""

    form: _Form
    schema: pa.Schema

    def finished(self, call: _Open) -> _Node:
        """Return the part for a call."""
        given = _call(call.name, *call.arguments, options=call.options)
        if call.name == b"is_in" and not call.filters:
            looked_up = call.arguments[0]
            null = _call(b"less", looked_up, looked_up)  # or false, also for NaN
            return _call(b"or_kleene", given, null)  # against null-not-looked-up
        if call.name not in _COMPARISONS or not any(map(self._is_float, call.arguments)):
            return given
        left, right = call.arguments
        for value, other, above in ((right, left, _MIRRORED), (left, right, _MIRRORED.values())):
            if value.parts[0][0] == b"literal":
                number = _literal(value, self.form)
                if number is None:
                    return given
                if not (isinstance(number, float) and math.isnan(number)):
                    if call.name in above:  # against nan-lost
                        return _call(b"or_kleene", given, _call(b"is_nan", other))
                    return given
        return _compared(call.name, left, right)

    def _is_float(self, node: _Node) -> bool:
        key, name = node.parts[0]
        if key == b"literal":
            return bool(pa.types.is_floating(self.form.values.column(int(name)).type))
        if key == b"field_ref":
            place = self.schema.get_field_index(name.decode())
            return place >= 0 and bool(pa.types.is_floating(self.schema.field(place).type))
        import pyarrow.dataset as ds  # noqa: PLC0415 - it loads pandas

        try:
            part = {"part": _expression_of(node, self.form.values)}
            rows = ds.dataset(pa.Table.from_batches([], self.schema))
            kind = rows.scanner(columns=part).projected_schema.field(0).type
        except (pa.ArrowException, ValueError) as error:
            reason = str(error).split("\n", 1)[0]
            raise InvalidInput(f"the filter does not fit the table: {reason[:300]}") from None
        return bool(pa.types.is_floating(kind))


def _compared(name: bytes, left: _Node, right: _Node) -> _Node:
    """Return a comparison of any two floats."""

    def below(low: _Node, high: _Node) -> _Node:
        number = _call(b"invert", _call(b"is_nan", low))
        nan = _call(b"and_kleene", _call(b"is_nan", high), number)
        return _call(b"or_kleene", _call(b"less", low, high), nan)

    both = _call(b"and_kleene", _call(b"is_nan", left), _call(b"is_nan", right))
    same = _call(b"or_kleene", _call(b"equal", left, right), both)
    return {
        b"equal": same,
        b"not_equal": _call(b"invert", same),
        b"less": below(left, right),
        b"greater": below(right, left),
        b"less_equal": _call(b"invert", below(right, left)),
        b"greater_equal": _call(b"invert", below(left, right)),
    }[name]


def _literal(node: _Node, form: _Form) -> Any:
    """Return the value of a literal; None if it is null, or no literal."""
    key, place = node.parts[0]
    return form.values.column(int(place))[0].as_py() if key == b"literal" else None


class _ArrowSchema(ctypes.Structure):
    """The first fields of the C data interface's `ArrowSchema`."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


def _metadata(schema: pa.Schema) -> list[_Token]:
    """Return the metadata of a schema in order; `Schema.metadata` drops keys that stand twice.

    By the C data interface: the number of pairs, then the size and the bytes of each text, sizes as
    int32 (https://arrow.apache.org/docs/format/CDataInterface.html#c.ArrowSchema.metadata).
    """
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    capsule = schema.__arrow_c_schema__()  # which owns the bytes
    at = _ArrowSchema.from_address(pointer(capsule, b"arrow_schema")).metadata

    def number() -> int:
        nonlocal at
        at += 4
        return ctypes.c_int32.from_address(at - 4).value

    def text() -> bytes:
        nonlocal at
        size = number()
        at += size
        return ctypes.string_at(at - size, size)

    return [(text(), text()) for _ in range(number())]
