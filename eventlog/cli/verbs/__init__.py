"""The verbs of the program, by subject. They only ask the libraries, and show.

`GROUPS` has them as the help lists them.
Needs the extra `cli`. `tables` is a good one to begin with.
"""

import click

from eventlog.cli.verbs import (
    branches,
    compaction,
    copies,
    fsck,
    monitoring,
    reading,
    rows,
    settings,
    tables,
    upkeep,
    vacuum,
    versions,
)
from eventlog.cli.verbs.engines import publishing, sql

GROUPS: dict[str, tuple[click.Command, ...]] = {
    "Rows": (tables.create, *rows.VERBS, *reading.VERBS, *sql.VERBS),
    "Versions": (
        versions.log_, tables.show, tables.ls, tables.diff, upkeep.restore,
        upkeep.pin, upkeep.unpin, upkeep.pins, *versions.VERBS,
    ),
    "Columns and settings": settings.VERBS,
    "Upkeep": (
        *monitoring.VERBS, *compaction.VERBS, *vacuum.VERBS, *fsck.VERBS, upkeep.claims,
        upkeep.drop, upkeep.clock,
    ),
    "Copies and branches": (*branches.VERBS, *copies.VERBS),
    "Publish": publishing.VERBS,
}  # fmt: skip

__all__ = ["GROUPS"]
