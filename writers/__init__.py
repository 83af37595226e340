"""Writers: each call commits its rows as one version.

    append      adds rows; conflicts with no other append, nor with compaction
    overwrite   replaces whole time chunks, or the rows that a predicate selects
    delete      deletes the rows that a predicate selects; in a keyed table also those of keys
    update      gives columns of the rows that a predicate selects new values
    merge       merges rows of a source into a table without a key, by columns that they share
    upsert      inserts rows into a keyed table, or merges them with those of their keys
    Appender    commits the appends of many callers in groups, in a thread of its own

Each takes `app_id` and `app_seq`, with which a repeated call has no second effect. Rows are
whatever speaks Arrow; they are stored unchanged, or refused with a reason.

Imports eventlog (and readers where rows must be read back); never compaction. The Spark sink is in
`eventlog.writers.spark` and needs the extra `spark`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventlog.writers.appending import Appender
    from eventlog.writers.batch import append
    from eventlog.writers.changing.joining import Matched, merge
    from eventlog.writers.changing.landing import Isolation, RowChange
    from eventlog.writers.changing.updating import update
    from eventlog.writers.keyed import delete, upsert
    from eventlog.writers.overwriting import overwrite

__all__ = [
    "Appender",
    "Isolation",
    "Matched",
    "RowChange",
    "append",
    "delete",
    "merge",
    "overwrite",
    "update",
    "upsert",
]

# An append loads what it needs alone: each module is time before the first answer of a new process.
_MODULES = {
    "Appender": "appending",
    "append": "batch",
    "Matched": "changing.joining",
    "merge": "changing.joining",
    "Isolation": "changing.landing",
    "RowChange": "changing.landing",
    "update": "changing.updating",
    "delete": "keyed",
    "upsert": "keyed",
    "overwrite": "overwriting",
}


def __getattr__(name: str) -> Any:
    """Import a name of this package when it is first used (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
