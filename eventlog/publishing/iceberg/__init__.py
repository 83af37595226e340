"""Versions of a table as snapshots of an Iceberg table: pure translators, and a publisher.

Sources: the Iceberg table spec (https://iceberg.apache.org/spec/), and its Puffin spec for deletion
vectors of format version 3.
"""

from eventlog.publishing.iceberg.iceberg_audit import audit_iceberg
from eventlog.publishing.iceberg.iceberg_publisher import IcebergPublisher
from eventlog.publishing.iceberg.iceberg_removal import cut_iceberg, unpublish_iceberg

__all__ = ["IcebergPublisher", "audit_iceberg", "cut_iceberg", "unpublish_iceberg"]
