"""Pure: columns by id: their types, the ids that they get, and what may follow a schema.

Start with `column_types` (stored types and Arrow's) and `ids` (which id a column or field gets).
"""
