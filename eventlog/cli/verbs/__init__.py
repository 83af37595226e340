"""The verbs of the program, by subject. They only ask the libraries, and show.

Needs the extra `cli`. `tables` is a good one to begin with.
"""

from eventlog.cli.verbs import (
    branches,
    compaction,
    copies,
    fsck,
    publishing,
    reading,
    rows,
    sql,
    tables,
    upkeep,
    vacuum,
)

VERBS = (
    *tables.VERBS,
    *reading.VERBS,
    *sql.VERBS,
    *rows.VERBS,
    *compaction.VERBS,
    *vacuum.VERBS,
    *upkeep.VERBS,
    *fsck.VERBS,
    *branches.VERBS,
    *copies.VERBS,
    *publishing.VERBS,
)

__all__ = ["VERBS"]
