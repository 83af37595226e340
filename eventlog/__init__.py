"""eventlog: a table format on object storage with no server.

All state is an append-only sequence of immutable JSON commits, numbered by conditional PUT, with
periodic key frames; the rows lie in immutable Parquet segments. The specification is FORMAT.md in
this folder; docs/architecture.md has the picture of the rooms. Reading order: `model`, `state`,
`log`, `commit`, `table`.
"""

from eventlog import errors
from eventlog.log.snapshot import Snapshot
from eventlog.model.chunks import TimeChunk
from eventlog.model.records import Segment
from eventlog.query.moments import Ms
from eventlog.table.table import Table

DISTRIBUTION = "eventlog-tables"  # what pip calls it; `eventlog` is another project there

__all__ = ["Ms", "Segment", "Snapshot", "Table", "TimeChunk", "errors"]
