"""eventlog: a table format on object storage with no server.

All state is an append-only sequence of immutable JSON commits, numbered by conditional PUT, with
periodic key frames; the rows are in immutable Parquet segments. The specification is FORMAT.md in
this folder; docs/architecture.md describes the packages. Reading order: `model`, `state`, `log`,
`commit`, `session`, `table`.
"""

from eventlog import errors
from eventlog.log.snapshot import Snapshot
from eventlog.model.chunks import TimeChunk
from eventlog.model.entries import Segment
from eventlog.query.moments import Ms
from eventlog.table.table import Table

DISTRIBUTION = "eventlog-tables"  # the name on PyPI, where `eventlog` is another project

__all__ = ["Ms", "Segment", "Snapshot", "Table", "TimeChunk", "errors"]
