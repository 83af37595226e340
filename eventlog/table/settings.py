"""What a table is set to: properties, columns, the granularity of new chunks, its clock.

Shell layer. Every change is a commit of its own, compared with what its writer saw.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from eventlog.arguments import mapping
from eventlog.model.chunks import check_granularity
from eventlog.model.records import SetClock, SetGranularity, SetProperties, SetSchema
from eventlog.model.schema import extend
from eventlog.model.stats import PROPERTY, stats_columns
from eventlog.query.moments import Moment, to_ms
from eventlog.table.creation import property_changes
from eventlog.table.leases import Committing


class Settings:
    """The part of `Table` that sets: properties, columns, granularity, clock."""

    def set_properties(self: Committing, properties: Mapping[str, str | None]) -> int:
        """Set properties (None removes one) and return the committed version.

        Raises:
            CommitConflict: somebody changed one of them meanwhile.
            InvalidInput: a name or a value is wrong.
        """
        head = self.refresh()
        changes = property_changes(mapping(properties, "properties"), head.properties)
        setting = {**head.properties, **properties}.get(PROPERTY)
        stats_columns(head.stored_schema, setting, head.layout.time_column)
        return self.commit(self.transaction("properties", [SetProperties(changes)]))

    def add_columns(self: Committing, schema: pa.Schema) -> int:
        """Extend the table's columns to those of `schema` and return the committed version.

        Raises:
            CommitConflict: somebody changed the schema meanwhile.
            InvalidInput: a column would vanish, change its type, or be new but not nullable.
        """
        successor = extend(self.refresh().stored_schema, schema)
        return self.commit(self.transaction("schema", [SetSchema(successor)]))

    def set_granularity(self: Committing, granularity: str) -> int:
        """Cut new rows into time chunks of another size, and return the committed version.

        Segments stay as they are until compaction rewrites them; writers that learn of it later
        write at the old granularity, and their rows count all the same.

        Raises:
            CommitConflict: somebody changed it meanwhile.
            InvalidInput: there is no such granularity.
        """
        wanted, now = check_granularity(granularity), self.refresh().layout.granularity
        if wanted == now:
            return self.head().version
        change = SetGranularity(now, wanted)
        return self.commit(self.transaction("granularity", [change]))

    def set_clock(self: Committing, moment: Moment | None = None) -> int:
        """Correct the table's time, which a wrong clock drove off; return the committed version.

        For a person who has looked (`eventlog clock`). The commit is stamped with the true time,
        and later ones go on from there. Versions before it that were stamped later are taken for
        ones of that time; where the clock goes ahead (by more than ten years, which nothing else
        may), all of them are: nobody knows better, and none is given up too early. Nothing else
        changes, whatever the time is set to.

        Args:
            moment: the true time; that of the store, else of this machine, if None.

        Raises:
            CommitConflict: others committed meanwhile; or the table's time needs no correction.
        """
        head = self.refresh()
        told = self.store.now_ms()
        now_ms = self.clock.now_ms() if told is None else told
        new = now_ms if moment is None else to_ms(moment)
        change = SetClock(head.version, head.header.time, new)
        return self.commit(self.transaction("clock", [change]))
