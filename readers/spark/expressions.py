"""Pyarrow expressions as text, so that they fit into an option of Spark.

Imports eventlog only. Arrow's own form of an expression, never a pickle: options may come from
people who may write SQL but not run Python on the driver.
"""

from __future__ import annotations

import base64
import binascii

import pyarrow as pa
import pyarrow.compute as pc

from eventlog.errors import InvalidInput


def pack_expression(expression: pc.Expression) -> str:
    """Return the expression as text.

    Raises:
        InvalidInput: Arrow has no form for it, as where it names a column by its position.
    """
    try:
        _, (buffer,) = expression.__reduce__()
    except pa.ArrowNotImplementedError as error:
        raise InvalidInput(
            f"this pyarrow expression cannot be sent to Spark ({error}): name its columns"
        ) from None
    return base64.b64encode(buffer).decode()


def unpack_expression(text: str) -> pc.Expression:
    """Return the expression that `pack_expression` made text of.

    Raises:
        InvalidInput: the text is damaged.
    """
    try:
        buffer = pa.py_buffer(base64.b64decode(text, validate=True))
        return pc.Expression._deserialize(buffer)  # noqa: SLF001 - what its pickle calls
    except (binascii.Error, ValueError, OSError, pa.ArrowException):
        raise InvalidInput("option whereArrow is not a packed pyarrow expression") from None
