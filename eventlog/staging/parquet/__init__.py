"""How rows are written as Parquet: which columns have a dictionary and what compresses them.

`column_forms` decides that by the values; `joined_files` makes a file of row groups of others, with
footers as trees (`thrift_trees`). Imports `format` and below, and does no I/O.
"""
