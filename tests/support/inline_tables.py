"""Tables whose small appends stand in their commits."""

from support.builders import create

from eventlog.inline import inline_objects

SMALL = {"inline_bytes": "16384", "keyframe_commits": "8"}


def small(store=None, **options):
    """A table whose small appends stand in their commits."""
    options["properties"] = {**SMALL, **options.get("properties", {})}
    return create(store, **options)


def stored(table, prefix):
    """The keys under a prefix."""
    return [row.key for row in table.store.list(prefix)]


def forget():
    """A process that has read nothing yet."""
    inline_objects.forget_objects()


def in_order(rows):
    """Rows as values, in the order of their names."""
    return sorted(rows.to_pylist(), key=lambda row: row["name"])
