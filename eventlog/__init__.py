"""eventlog: a table format on object storage that needs the bucket alone.

A table is a root under which each object is created once. Its history is a log of commits, numbered
by conditional PUT; its rows lie in immutable Parquet segments, cut by time.

                           ┌─ root ─────────────────────────────────┐
    append, upsert,        │ _log/       commits 0 … v, key frames  │     scan, count: any version
    overwrite, delete ──►  │ _frames/    leaves of key frames       │ ──► changes: between versions
    compaction.run    ──►  │ data/       segments, by time chunk    │ ──► copies that follow
    vacuum            ──►  │ _branches/  logs that leave this one   │ ──► branches
                           └────────────────────────────────────────┘

Concepts:

- A *transaction* contains the changes of one writer. A *commit* holds one or several; its number is
  the *version*.
- The *state* at a version is computed by the *fold*, the one function that decides which
  transactions take effect. A *key frame* stores the state, so that any version opens in two
  requests.
- A *snapshot* is one version opened for reading.

Main types: `Table`, the handle; `Snapshot`; `Segment`; `TimeChunk`; the tree in `errors`, ordered
by what the caller does next. Packages beside the core: `eventlog.readers` (`scan`, `count`,
`changes`), `eventlog.writers` (`append`, `overwrite`, `upsert`, `delete`), `eventlog.compaction`
(`plan`, `run`, `vacuum`). Copies and merges are in `eventlog.replication` (`follow`, `merge`).

The specification is FORMAT.md in this folder; docs/architecture.md describes the rooms of the code.
Reading order: `model`, `state`, `log`, `commit`, `session`, `table`.
"""

from eventlog import errors
from eventlog.log.snapshot import Snapshot
from eventlog.model.chunks import TimeChunk
from eventlog.model.entries import Segment
from eventlog.query.moments import Ms
from eventlog.table.table import Table

__version__ = "0.1.0"
DISTRIBUTION = "eventlog-tables"  # the name on PyPI, where `eventlog` is another project

__all__ = ["Ms", "Segment", "Snapshot", "Table", "TimeChunk", "__version__", "errors"]

_PACKAGES = ("compaction", "publishing", "readers", "replication", "writers")


def __dir__() -> list[str]:
    """Return the public names, and the public packages that were imported."""
    return sorted([*__all__, *(name for name in _PACKAGES if name in globals())])
