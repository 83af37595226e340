"""Versions of a table in Iceberg's metadata: values to values and bytes, no I/O."""
