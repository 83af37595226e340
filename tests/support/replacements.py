"""Replacements as compaction does them, small and by hand: rows read, staged anew, one commit.

`rewrite` stages the outputs and returns the transaction, so that a test can let others commit
before it does.
"""

from io import BytesIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from eventlog.format import codec, keys
from eventlog.model.records import Replace
from eventlog.model.schema import to_arrow
from eventlog.staging.encoding import Recipe
from eventlog.staging.stager import Stager
from eventlog.state.delta import drop_of


def read(table, segments):
    """All rows of the segments, straight from their objects."""
    schema = to_arrow(table.head().stored_schema)
    parts = []
    for segment in segments:
        body = table.store.get(keys.key_of(segment))
        assert codec.sha256(body) == segment.checksum
        parts.append(pq.read_table(BytesIO(body)).select(schema.names).cast(schema))
    return pa.concat_tables([schema.empty_table(), *parts])


def rewrite(table, inputs, *, parts=1, granularity=None, keep=None, claim=None):
    """Stage the rows of live segments anew; return the transaction that puts them in their place.

    Args:
        table: the handle; its newest known version is the one that the rewrite is planned at.
        inputs: live segments of that version.
        parts: into how many segments a chunk.
        granularity: of the new segments, if another than the table's.
        keep: given all rows, the mask of those that stay; the others are deleted.
        claim: the token of a lease.
    """
    head, rows = table.head(), read(table, inputs)
    kept = rows if keep is None else rows.filter(keep(rows))
    adds = []
    for part in range(parts):
        with Stager(table.store, table.clock, recipe(table, granularity)) as stager:
            for batch in kept.take(
                pa.array(range(part, len(kept), parts), pa.int64())
            ).to_batches():
                stager.write(batch)
            adds += stager.finish()
    declared = Replace(head.version, len(rows) - len(kept))
    actions = [declared, *(drop_of(segment) for segment in inputs), *adds]
    return table.transaction("replace", actions, claim=claim)


def replace(table, inputs, **options):
    """Rewrite live segments of the newest version and commit it; return the version."""
    table.refresh()
    return table.commit(rewrite(table, inputs, **options))


def recipe(table, granularity=None):
    """How rows become segments, at another granularity if one is given."""
    found = Recipe.of(table.head())
    wanted = granularity or found.layout.granularity
    layout = msgspec.structs.replace(found.layout, granularity=wanted)
    return Recipe(found.epoch, found.schema, layout, found.stats_columns, found.segment_bytes)
