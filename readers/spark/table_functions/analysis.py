"""What the analysis of a call returns, and how its arguments are taken.

Imports eventlog and pyspark (extra `spark`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyspark.sql.udtf
from pyspark.sql.types import StructType

from eventlog import Table
from eventlog.arguments import shown
from eventlog.errors import InvalidInput
from eventlog.store.location import open_store

HAS_ANALYSIS = hasattr(pyspark.sql.udtf, "AnalyzeResult")  # from Spark 4.0 on
_Base: Any = pyspark.sql.udtf.AnalyzeResult if HAS_ANALYSIS else object


@dataclass
class Analysis(_Base):  # type: ignore[misc] # the class is Any on Spark 3.5
    """What the analysis of a call returns: its columns, and what it is pinned to.

    Attributes:
        schema: the columns.
        table: the id of the table; None if the arguments are known in the task only.
        version: the version that is read: the newest one of a history or of changes.
    """

    schema: StructType
    table: str | None = None
    version: int | None = None


def constants_of(**arguments: Any) -> dict[str, Any] | None:
    """Return the values of a call's arguments; None if one is known in the task only.

    Args:
        arguments: as Spark describes them, by name; None for one that was left out.
    """
    if not all(one is None or one.isConstantExpression for one in arguments.values()):
        return None
    return {name: None if one is None else one.value for name, one in arguments.items()}


def opened_for(
    uri: Any, storage: Mapping[str, str] | None, analysis: Analysis | None = None
) -> Table:
    """Return a handle to the table, which must be the one that was analysed."""
    if not isinstance(uri, str):
        raise InvalidInput(
            "the first argument must be the root of a table, such as 's3://bucket/table', not "
            f"{shown(uri)}"
        )
    table = Table(open_store(uri, storage))
    if analysis is not None:
        table.session.log.table = analysis.table
    return table


def pinned_version(analysis: Analysis | None, version: Any) -> Any:
    """Return the version that was pinned, or else the one that the call names."""
    return version if analysis is None or analysis.version is None else analysis.version
