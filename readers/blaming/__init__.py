"""Who wrote the rows of a table: the commits, jobs and rewrites through which they came.

Imports eventlog and the other modules of readers. Start at `blame`.

blame            the functions of users: a segment, a time chunk, a key, or rows that pass a filter
segment_lineage  through which commits the rows of segments came: reads the log, no segment
row_writers      which of these commits may have written a row: reads segments that vacuum has kept
stored_keys      the stored rows of keys of a keyed table
blame_columns    the columns of the results
"""
