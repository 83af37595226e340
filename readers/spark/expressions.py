"""Pyarrow expressions as text, to pass them in a Spark option.

Imports eventlog only. The text is Arrow's own serialization, never a pickle: options may come from
users who are allowed to write SQL but not to run Python on the driver.
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
        InvalidInput: Arrow cannot serialize it, for example because it refers to a column by
            position.
    """
    try:
        _, (buffer,) = expression.__reduce__()
    except pa.ArrowNotImplementedError as error:
        raise InvalidInput(
            f"this pyarrow expression cannot be sent to Spark ({error}): name its columns"
        ) from None
    return base64.b64encode(buffer).decode()


def unpack_expression(text: str) -> pc.Expression:
    """Return the expression that `pack_expression` encoded.

    Raises:
        InvalidInput: the text is damaged.
    """
    try:
        buffer = pa.py_buffer(base64.b64decode(text, validate=True))
        return pc.Expression._deserialize(buffer)  # noqa: SLF001 - as its pickle does
    except (binascii.Error, ValueError, OSError, pa.ArrowException):
        raise InvalidInput("option whereArrow is not a packed pyarrow expression") from None
