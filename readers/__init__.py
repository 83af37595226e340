"""Readers: the rows of one version, or the changes between two, as Arrow or for its libraries.

    scan      pins a version, prunes segments by the log, and yields the rows that pass the filter
    count     answers from the log where it can
    changes   yields the changes of rows in a range of versions
    dataset   a version as an Arrow dataset, into which engines push columns and filters
    lazy      the same as a lazy frame of Polars
    bisect    finds the first version at which a question is true
    blame     finds the commits that wrote a segment, a time chunk, a key, or rows
    files     the files of a version, where they alone have its rows

A reader sees exactly one version. Bytes are compared with the log before they are decoded; a
segment that is missing or damaged is `DataLoss`.

Imports eventlog; never writers or compaction. The Spark source is in `eventlog.readers.spark` and
needs the extra `spark`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eventlog.readers.bisection import Turn, bisect
    from eventlog.readers.blaming.blame import blame
    from eventlog.readers.changefeed import Changes, changes
    from eventlog.readers.engines.file_list import DataFile, files
    from eventlog.readers.engines.pushdown import dataset, lazy
    from eventlog.readers.first_rows import FirstRows
    from eventlog.readers.scanner import Scan, count, scan

__all__ = [
    "Changes",
    "DataFile",
    "FirstRows",
    "Scan",
    "Turn",
    "bisect",
    "blame",
    "changes",
    "count",
    "dataset",
    "files",
    "lazy",
    "scan",
]

# A scan loads what it needs alone: each module is time before the first answer of a new process.
_MODULES = {
    "Turn": "bisection",
    "bisect": "bisection",
    "blame": "blaming.blame",
    "Changes": "changefeed",
    "changes": "changefeed",
    "DataFile": "engines.file_list",
    "files": "engines.file_list",
    "dataset": "engines.pushdown",
    "lazy": "engines.pushdown",
    "FirstRows": "first_rows",
    "Scan": "scanner",
    "count": "scanner",
    "scan": "scanner",
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
