"""The verbs that have to do with other engines.

Needs the extra `cli`.

sql         queries of versions of tables, by DuckDB
publishing  publish, unpublish: versions in the metadata of other formats
"""
