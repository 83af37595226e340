"""Small replacements made by hand, as compaction does: rows read, staged again, one commit.

`rewrite` stages the outputs and returns the transaction, so that a test can let other writers
commit first.
"""

from io import BytesIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from support.deleting import deleted_positions

from eventlog.format import codec
from eventlog.inline.inline_objects import get_object
from eventlog.model.actions import Replace
from eventlog.model.schema import to_arrow
from eventlog.staging.encoding import Recipe
from eventlog.staging.stager import Stager
from eventlog.state.delta import drop_of


def read(table, segments):
    """All rows of the segments that are not deleted, read directly from their objects."""
    schema = to_arrow(table.session.head().stored_schema)
    parts = []
    for segment in segments:
        body = get_object(table.store, segment)
        assert codec.sha256(body) == segment.checksum
        rows = pq.read_table(BytesIO(body)).select(schema.names).cast(schema)
        deleted = deleted_positions(table, segment)
        parts.append(rows.take([n for n in range(len(rows)) if n not in deleted]))
    return pa.concat_tables([schema.empty_table(), *parts])


def rewrite(table, inputs, *, parts=1, granularity=None, keep=None, claim=None):
    """Stage the rows of live segments again; return the transaction that replaces them.

    Args:
        table: the handle; the rewrite is planned at its newest known version.
        inputs: live segments of that version.
        parts: number of new segments per chunk.
        granularity: granularity of the new segments; the table's if None.
        keep: a function from all rows to the mask of rows to keep; the others are deleted.
        claim: the token of a lease.
    """
    head, rows = table.session.head(), read(table, inputs)
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
    recipe = Recipe.of(table.session.head())
    wanted = granularity or recipe.layout.granularity
    layout = msgspec.structs.replace(recipe.layout, granularity=wanted)
    return Recipe(recipe.epoch, recipe.schema, layout, recipe.stats_columns, recipe.segment_bytes)
