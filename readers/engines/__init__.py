"""Versions in the forms that engines ask for: Arrow datasets, lazy frames of Polars, files.

Imports eventlog and the other modules of readers. Engines trust an Arrow dataset: they do not apply
a filter again that they push into it. It is therefore applied as they mean it
(`eventlog.query.engine_filters`).
"""
