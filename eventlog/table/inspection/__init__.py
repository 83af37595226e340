"""What a table's log records, as Arrow tables: `Table.inspect`.

`columns` has the schemas, which are part of the public API; `inspector` fills them. `choosing`
filters a history.
"""
