"""The systems under measurement behind one small protocol.

Each is constructed with a root (a folder or `s3://bucket/prefix`) and, for S3, the server's
`storage_options()`. What is not installed is left out, and `missing()` says how to install it.
Every adapter uses its library's documented public names with their defaults.
"""

# ruff: noqa: PLC0415 - what is optional or measured is imported where it is used
import os
import tempfile
import uuid
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import pyarrow as pa

INSTALL = "pip install 'eventlog-tables[bench]'"
TIME = "t"


class System(Protocol):
    """One table of one system, held by a warm handle once created or opened."""

    def create(self, schema: pa.Schema) -> None: ...
    def attach(self) -> None: ...  # the handle of a process that did not create the table
    def append(self, rows: pa.Table) -> None: ...
    def open_head(self) -> object: ...  # a fresh handle at the newest version
    def open_version(self, number: int) -> object: ...  # … as it was after `number` appends
    def list_files(self, opened: object) -> int: ...
    def rows(self) -> int: ...


class Eventlog:
    def __init__(self, root, options=None):
        self.root, self.options = root, options

    def create(self, schema):
        from eventlog import Table

        self.table = Table.create(self.root, schema, time_column=TIME, storage_options=self.options)

    def attach(self):
        self.table = self.open_head()

    def append(self, rows):
        from eventlog.writers import append

        append(self.table, rows)

    def open_head(self):
        from eventlog import Table

        table = Table.open(self.root, self.options)
        table.session.head()
        return table

    def open_version(self, number):
        from eventlog import Table
        from eventlog.store.location import open_store

        return Table(open_store(self.root, self.options)).snapshot(number)

    def list_files(self, opened):
        snapshot = opened.session.head() if hasattr(opened, "session") else opened
        return snapshot.entries().num_rows

    def rows(self):
        return self.open_head().session.head().totals.rows


class Delta:
    def __init__(self, root, options=None):
        self.root = root
        self.options = options and {
            "AWS_ENDPOINT_URL": options["endpoint_url"],
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": options["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
            "AWS_REGION": options["region"],
        }

    def create(self, schema):
        from deltalake import DeltaTable

        self.table = DeltaTable.create(self.root, schema, storage_options=self.options)

    def attach(self):
        self.table = self.open_head()

    def append(self, rows):
        from deltalake import write_deltalake

        write_deltalake(self.table, rows, mode="append")

    def open_head(self):
        from deltalake import DeltaTable

        return DeltaTable(self.root, storage_options=self.options)

    def open_version(self, number):
        from deltalake import DeltaTable

        return DeltaTable(self.root, version=number, storage_options=self.options)

    def list_files(self, opened):
        return len(opened.file_uris())

    def rows(self):
        actions = pa.table(self.open_head().get_add_actions(flatten=True))
        return sum(actions.column("num_records").to_pylist())


class Lance:
    def __init__(self, root, options=None):
        self.root = root
        self.options = options and {
            "aws_endpoint": options["endpoint_url"],
            "allow_http": "true",
            "aws_access_key_id": options["access_key_id"],
            "aws_secret_access_key": options["secret_access_key"],
            "aws_region": options["region"],
        }

    def create(self, schema):
        import lance

        self.table = lance.write_dataset(
            schema.empty_table(), self.root, storage_options=self.options
        )

    def attach(self):
        self.table = self.open_head()

    def append(self, rows):
        self.table.insert(rows, storage_options=self.options)

    def open_head(self):
        import lance

        return lance.dataset(self.root, storage_options=self.options)

    def open_version(self, number):
        import lance

        return lance.dataset(self.root, version=number + 1, storage_options=self.options)

    def list_files(self, opened):
        return len(opened.get_fragments())

    def rows(self):
        return self.open_head().count_rows()


class Iceberg:
    """With PyIceberg's SQL catalog on SQLite, whose own queries are not counted as requests."""

    def __init__(self, root, options=None):
        self.root = root
        # One catalog per root, found again by other processes.
        name = uuid.uuid5(uuid.NAMESPACE_URL, root).hex
        where = Path(os.environ.get("BENCH_CATALOGS", tempfile.gettempdir())) / f"{name}.db"
        self.settings = {
            "uri": f"sqlite:///{where}",
            "warehouse": root if "://" in root else f"file://{root}",
        }
        if options:
            self.settings |= {
                "s3.endpoint": options["endpoint_url"],
                "s3.access-key-id": options["access_key_id"],
                "s3.secret-access-key": options["secret_access_key"],
                "s3.region": options["region"],
            }

    def _catalog(self):
        from pyiceberg.catalog.sql import SqlCatalog

        return SqlCatalog("bench", **self.settings)

    def create(self, schema, partition=None):
        self.catalog = self._catalog()
        self.catalog.create_namespace("n")
        self.table = self.catalog.create_table("n.t", schema)
        if partition is not None:
            with self.table.update_spec() as update:
                update.add_identity(partition)

    def attach(self):
        self.catalog = self._catalog()
        self.table = self.catalog.load_table("n.t")

    def append(self, rows):
        self.table.append(rows)

    def open_head(self):
        table = self._catalog_of_process().load_table("n.t")
        return table.scan()

    def open_version(self, number):
        table = self._catalog_of_process().load_table("n.t")
        snapshot = table.snapshots()[number - 1]
        return table.scan(snapshot_id=snapshot.snapshot_id)

    def list_files(self, opened):
        return len(list(opened.plan_files()))

    def rows(self):
        return sum(task.file.record_count for task in self.open_head().plan_files())

    def _catalog_of_process(self):
        if not hasattr(self, "catalog"):
            self.catalog = self._catalog()
        return self.catalog


SYSTEMS = {"eventlog": Eventlog, "deltalake": Delta, "pylance": Lance, "pyiceberg": Iceberg}
_MODULES = {
    "deltalake": ("deltalake",),
    "pylance": ("lance",),
    "pyiceberg": ("pyiceberg", "sqlalchemy"),
}


def present(*wanted):
    """Return the systems that are installed, eventlog first; all of them unless some are named."""
    return {
        name: system
        for name, system in SYSTEMS.items()
        if (not wanted or name in wanted)
        and all(find_spec(module) is not None for module in _MODULES.get(name, ()))
    }


def missing():
    """Return, for each system that is not installed, how to install it."""
    return {name: INSTALL for name in SYSTEMS if name not in present()}


def open_all(folder, options=None, names=None):
    """Create an empty table of each installed system under `folder` and return them by name.

    A system that cannot be created maps to the exception.
    """
    made = {}
    for name, system in present(*(names or ())).items():
        one = system(f"{str(folder).rstrip('/')}/{name}", options)
        try:
            one.create(SMALL)
        except Exception as error:
            made[name] = error
        else:
            made[name] = one
    return made


SMALL = pa.schema(
    [
        (TIME, pa.timestamp("us", tz="UTC")),
        ("id", pa.int64()),
        ("value", pa.float64()),
        ("name", pa.string()),
    ]
)


def small_rows(count=100, first=0):
    """Return the rows of one small append, all of one day."""
    start = 1_717_200_000_000_000  # 2024-06-01
    return pa.table(
        [
            pa.array(range(start + first, start + first + count), pa.timestamp("us", tz="UTC")),
            pa.array(range(first, first + count), pa.int64()),
            pa.array([i / 7 for i in range(count)], pa.float64()),
            pa.array([f"name {i % 10}" for i in range(count)], pa.string()),
        ],
        schema=SMALL,
    )
