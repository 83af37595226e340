"""eventlog: a table format on object storage with no server.

All state is an append-only sequence of immutable JSON commits, numbered by conditional PUT, with
periodic key frames; the rows lie in immutable Parquet segments. The specification is FORMAT.md in
this folder. Reading order: `model`, `fold`, `rebase`, `proposal`, `snapshot`, `keyframe`, `log`,
`commit`, `table`.
"""

from eventlog import errors
from eventlog.chunks import TimeChunk
from eventlog.model import Segment
from eventlog.moments import Ms
from eventlog.snapshot import Snapshot
from eventlog.table import Table

DISTRIBUTION = "eventlog-tables"  # what pip calls it; `eventlog` is another project there

__all__ = ["Ms", "Segment", "Snapshot", "Table", "TimeChunk", "errors"]
