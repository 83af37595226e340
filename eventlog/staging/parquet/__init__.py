"""How rows are written as Parquet: which columns have a dictionary and what compresses them.

Pure. `column_forms` decides by the values.
"""
