"""Versions of a table as snapshots of an Iceberg table.

Without I/O: `translation` makes records and metadata of versions, and `iceberg_plan` decides in
what form they are published, and which can be. The others read and write: `iceberg_listing` lists,
`iceberg_versions` reads what a description needs, `iceberg_publisher` and `manifest_publisher` put,
`iceberg_removal` and `iceberg_cut` delete, and `iceberg_audit` compares. Start at
`iceberg_publisher`.

Sources: the Iceberg table spec (https://iceberg.apache.org/spec/), and its Puffin spec for deletion
vectors of format version 3.
"""

from eventlog.publishing.iceberg.iceberg_audit import audit_iceberg
from eventlog.publishing.iceberg.iceberg_cut import cut_iceberg
from eventlog.publishing.iceberg.iceberg_publisher import IcebergPublisher
from eventlog.publishing.iceberg.iceberg_removal import unpublish_iceberg

__all__ = ["IcebergPublisher", "audit_iceberg", "cut_iceberg", "unpublish_iceberg"]
