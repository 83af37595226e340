"""How programs write to a published table, each in its own words.

A write takes a target and does what its name says, or raises. It returns nothing. What it needs
before is marked as preparation: an error of that says nothing about the write.
"""

# ruff: noqa: PLC0415 - no environment has all programs
import datetime as dt
import tempfile
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import duckdb_writes
import pyarrow as pa
from readings import HERE, OTHERS, SPARKS, duckdb_with_extensions
from spark_sessions import DELTA, ICEBERG, release
from spark_sessions import session as spark_session

ROW = "TIMESTAMP '2013-01-05 00:00:00+00:00', 99, 'theirs', 1.0"


class NotPrepared(Exception):
    """What a write needs is not there: the write was not tried."""


@contextmanager
def preparation():
    """Raise `NotPrepared` for each error of a function: a decorator."""
    try:
        yield
    except Exception as error:
        raise NotPrepared(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class Target:
    """A published table: its directory, its newest version, and its name in catalogs."""

    path: str
    version: int

    @property
    def metadata(self):
        """The URI of the metadata of the newest version."""
        return f"file://{self.path}/metadata/v{self.version}.metadata.json"

    @property
    def name(self):
        """A name that no other target has."""
        return Path(self.path).name

    def rows(self):
        """A row that the table has not, as Arrow."""
        at = dt.datetime(2013, 1, 5, tzinfo=dt.UTC)
        schema = pa.schema(
            [
                pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
                pa.field("id", pa.int64(), nullable=False),
                ("name", pa.string()),
                ("real", pa.float64()),
            ]
        )
        return pa.Table.from_pylist([{"at": at, "id": 99, "name": "theirs", "real": 1.0}], schema)


@dataclass(frozen=True)
class Program:
    """A row of the table: a program, what it takes the table for, and its writes by name."""

    engine: str
    package: str  # whose version is shown
    home: str  # the directory of its environment
    form: str  # `delta` or `iceberg`
    by: str
    writes: Mapping[str, Callable[[Target], object]]
    format_version: int = 2  # of Iceberg


# To Delta.


@preparation()
def _delta(target):
    from deltalake import DeltaTable

    return DeltaTable(target.path)


def _written_by_deltalake(mode):
    def write(target):
        from deltalake import write_deltalake

        write_deltalake(target.path, target.rows(), mode=mode)

    return write


def _merged_by_deltalake(target):
    merger = _delta(target).merge(target.rows(), "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


def _vacuumed_by_deltalake(*, full):
    return lambda t: _delta(t).vacuum(0, dry_run=False, enforce_retention_duration=False, full=full)


def _converted_by_deltalake(target):
    from deltalake import convert_to_deltalake

    convert_to_deltalake(target.path, mode="ignore")


def _replaced_by_deltalake(target):
    from deltalake import DeltaTable

    DeltaTable.create(target.path, target.rows().schema, mode="overwrite")


def _field():
    from deltalake import Field
    from deltalake.schema import PrimitiveType

    return Field("more", PrimitiveType("integer"))


def _feature():
    from deltalake import TableFeatures

    return TableFeatures.AppendOnly


DELTALAKE = {
    "append": _written_by_deltalake("append"),
    "overwrite": _written_by_deltalake("overwrite"),
    "delete": lambda t: _delta(t).delete("id = 5"),
    "delete of all": lambda t: _delta(t).delete(),
    "update": lambda t: _delta(t).update(new_values={"name": "'theirs'"}),
    "merge": _merged_by_deltalake,
    "optimize": lambda t: _delta(t).optimize.compact(),
    "z-order": lambda t: _delta(t).optimize.z_order(["id"]),
    "vacuum": _vacuumed_by_deltalake(full=False),
    "full vacuum": _vacuumed_by_deltalake(full=True),
    "restore": lambda t: _delta(t).restore(1),
    "repair": lambda t: _delta(t).repair(),
    "properties": lambda t: _delta(t).alter.set_table_properties({"delta.appendOnly": "true"}),
    "feature": lambda t: _delta(t).alter.add_feature(
        _feature(), allow_protocol_versions_increase=True
    ),
    "columns": lambda t: _delta(t).alter.add_columns(_field()),
    "constraint": lambda t: _delta(t).alter.add_constraint({"positive": "id >= 0"}),
    "create or replace": _replaced_by_deltalake,
    "convert": _converted_by_deltalake,
    "checkpoint": lambda t: _delta(t).create_checkpoint(),
    "log cleanup": lambda t: _delta(t).cleanup_metadata(),
    "log compaction": lambda t: _delta(t).compact_logs(1, t.version),
    "manifests": lambda t: _delta(t).generate(),
}


@preparation()
def _frame(target):
    import polars as pl

    return pl.from_arrow(target.rows())


def _delta_by_polars(mode, **options):
    return lambda t: _frame(t).write_delta(t.path, mode=mode, **options)


def _merged_by_polars(target):
    on = {"predicate": "s.id = t.id", "source_alias": "s", "target_alias": "t"}
    merger = _frame(target).write_delta(target.path, mode="merge", delta_merge_options=on)
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


POLARS_DELTA = {
    "append": _delta_by_polars("append"),
    "overwrite": _delta_by_polars("overwrite"),
    "merge": _merged_by_polars,
    "append by sink": lambda t: _frame(t).lazy().sink_delta(t.path, mode="append"),
    "overwrite by sink": lambda t: _frame(t).lazy().sink_delta(t.path, mode="overwrite"),
}


def _delta_by_daft(mode):
    def write(target):
        import daft

        daft.from_arrow(target.rows()).write_deltalake(target.path, mode=mode)

    return write


DAFT_DELTA = {"append": _delta_by_daft("append"), "overwrite": _delta_by_daft("overwrite")}


@preparation()
def _attached(target):
    """Return a connection of DuckDB that has the table under its name."""
    connection = duckdb_with_extensions().cursor()
    connection.execute(f"ATTACH '{target.path}' AS {target.name} (TYPE delta)")
    return connection


def _delta_by_duckdb(statement):
    return lambda t: _attached(t).execute(statement.format(table=t.name))


DUCKDB_DELTA = {
    "append": _delta_by_duckdb(f"INSERT INTO {{table}} VALUES ({ROW})"),
    "delete": _delta_by_duckdb("DELETE FROM {table} WHERE id = 5"),
    "update": _delta_by_duckdb("UPDATE {table} SET name = 'theirs'"),
    "checkpoint": _delta_by_duckdb("CHECKPOINT {table}"),
}


# To Iceberg, in a catalog of pyiceberg.


@preparation()
@cache
def _catalog():
    from pyiceberg.catalog.sql import SqlCatalog

    folder = tempfile.mkdtemp()
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    return catalog


@preparation()
def _registered(target):
    return _catalog().register_table(f"n.{target.name}", target.metadata)


def _purged(target):
    _registered(target)
    _catalog().purge_table(f"n.{target.name}")


def _dropped(target):
    _registered(target)
    _catalog().drop_table(f"n.{target.name}")


def _column_by_pyiceberg(target):
    from pyiceberg.types import IntegerType

    with _registered(target).update_schema() as update:
        update.add_column("more", IntegerType())


def _renamed_by_pyiceberg(target):
    with _registered(target).update_schema() as update:
        update.rename_column("name", "other")


def _partitioned_by_pyiceberg(target):
    with _registered(target).update_spec() as update:
        update.add_identity("name")


def _transacted(change):
    def write(target):
        with _registered(target).transaction() as transaction:
            change(transaction)

    return write


def _expired_by_pyiceberg(target):
    after = dt.datetime(2030, 1, 1)
    _registered(target).maintenance.expire_snapshots().older_than(after).commit()


@preparation()
def _segments(target):
    return [str(next(Path(target.path).rglob("data/**/*.parquet")))]


PYICEBERG = {
    "append": lambda t: _registered(t).append(t.rows()),
    "overwrite": lambda t: _registered(t).overwrite(t.rows()),
    "delete": lambda t: _registered(t).delete("id = 5"),
    "delete of all": lambda t: _registered(t).delete("id >= 0"),
    "upsert": lambda t: _registered(t).upsert(t.rows(), join_cols=["id"]),
    "add files": lambda t: _registered(t).add_files(_segments(t), check_duplicate_files=False),
    "expire": _expired_by_pyiceberg,
    "properties": _transacted(lambda change: change.set_properties({"team": "they"})),
    "columns": _column_by_pyiceberg,
    "rename": _renamed_by_pyiceberg,
    "partitions": _partitioned_by_pyiceberg,
    "tag": lambda t: _registered(t).manage_snapshots().create_tag(1, "theirs").commit(),
    "rollback": lambda t: _registered(t).manage_snapshots().rollback_to_snapshot(1).commit(),
    "drop": _dropped,
    "purge": _purged,
    "purge with gc.enabled": lambda t: (
        _transacted(lambda change: change.set_properties({"gc.enabled": "true"}))(t),
        _catalog().purge_table(f"n.{t.name}"),
    ),
}
POLARS_ICEBERG = {
    "append": lambda t: _frame(t).write_iceberg(_registered(t), mode="append"),
    "overwrite": lambda t: _frame(t).write_iceberg(_registered(t), mode="overwrite"),
    "append by sink": lambda t: _frame(t).lazy().sink_iceberg(_registered(t), mode="append"),
    "overwrite by sink": lambda t: _frame(t).lazy().sink_iceberg(_registered(t), mode="overwrite"),
}


def _iceberg_by_daft(mode):
    def write(target):
        import daft

        daft.from_arrow(target.rows()).write_iceberg(_registered(target), mode=mode)

    return write


DAFT_ICEBERG = {"append": _iceberg_by_daft("append"), "overwrite": _iceberg_by_daft("overwrite")}


# By Spark.


@preparation()
def session():
    """Return Spark's session of this process."""
    return spark_session()


def _sql(table, *statements):
    """Return a write by statements, where {T} is what `table` makes of the target."""

    def write(target):
        name = table(target)
        for statement in statements:
            names = {"{T}": name, "{N}": name.partition(".")[2], "{P}": target.path, "{V}": ROW}
            for mark, value in names.items():
                statement = statement.replace(mark, value)  # noqa: PLW2901
            session().sql(statement).collect()

    return write


def _saved(kind, mode):
    return lambda t: (
        session().createDataFrame(t.rows().to_pandas()).write.format(kind).mode(mode).save(t.path)
    )


def _by_path(target):
    return f"delta.`{target.path}`"


@preparation()
def _in_session_catalog(target):
    """Register a target, once, and return its name."""
    name = f"default.{target.name}"
    session().sql(f"CREATE TABLE IF NOT EXISTS {name} USING delta LOCATION '{target.path}'")
    return name


ROWS = {
    "append": "INSERT INTO {T} VALUES ({V})",
    "overwrite": "INSERT OVERWRITE {T} VALUES ({V})",
    "delete": "DELETE FROM {T} WHERE id = 5",
    "delete of all": "DELETE FROM {T}",
    "update": "UPDATE {T} SET name = 'theirs' WHERE id = 6",
    "merge": "MERGE INTO {T} t USING (SELECT 5 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "properties": "ALTER TABLE {T} SET TBLPROPERTIES ('team' = 'they')",
    "columns": "ALTER TABLE {T} ADD COLUMN more INT",
    "drop": "DROP TABLE {T}",
}


def _all(table, statements):
    return {name: _sql(table, statement) for name, statement in statements.items()}


SPARK_DELTA = {
    **_all(
        _by_path,
        {
            **ROWS,
            "optimize": "OPTIMIZE {T}",
            "vacuum": "VACUUM {T} RETAIN 0 HOURS",
            "restore": "RESTORE TABLE {T} TO VERSION AS OF 1",
            "convert": "CONVERT TO DELTA parquet.`{P}`",
            "create or replace": "CREATE OR REPLACE TABLE {T} (at TIMESTAMP NOT NULL, "
            "id BIGINT NOT NULL, name STRING, real DOUBLE) USING delta",
            "manifests": "GENERATE symlink_format_manifest FOR TABLE {T}",
        },
    ),
    "append by save": _saved("delta", "append"),
    "overwrite by save": _saved("delta", "overwrite"),
    "drop where registered": _sql(_in_session_catalog, "DROP TABLE {T}"),
}


@preparation()
def _in_catalog(target):
    """Register a target, once, and return its name."""
    spark, name = session(), f"theirs.db.{target.name}"
    spark.sql("CREATE NAMESPACE IF NOT EXISTS theirs.db")
    if not spark.catalog.tableExists(name):
        spark.sql(
            f"CALL theirs.system.register_table('db.{target.name}', '{target.metadata}')"
        ).collect()
    return name


LATE, OLD = "TIMESTAMP '2030-01-01 00:00:00'", "TIMESTAMP '2026-01-01 00:00:00'"
UNDONE = "ALTER TABLE {T} SET TBLPROPERTIES ('gc.enabled' = 'true')"
EXPIRE = (
    f"CALL theirs.system.expire_snapshots(table => '{{N}}', older_than => {LATE}, retain_last => 1)"
)
ORPHANS = f"CALL theirs.system.remove_orphan_files(table => '{{N}}', older_than => {OLD})"
SPARK_ICEBERG = {
    **_all(
        _in_catalog,
        {
            **ROWS,
            "truncate": "TRUNCATE TABLE {T}",
            "rewrite": "CALL theirs.system.rewrite_data_files(table => '{N}', "
            "options => map('rewrite-all', 'true'))",
            "rewrite of deletes": "CALL theirs.system.rewrite_position_delete_files(table => '{N}'"
            ", options => map('rewrite-all', 'true'))",
            "rewrite of manifests": "CALL theirs.system.rewrite_manifests('{N}')",
            "expire": EXPIRE,
            "orphan files": ORPHANS,
            "rollback": "CALL theirs.system.rollback_to_snapshot('{N}', 1)",
            "rename": "ALTER TABLE {T} RENAME COLUMN name TO other",
            "branch": "ALTER TABLE {T} CREATE BRANCH theirs",
            "create or replace": "CREATE OR REPLACE TABLE {T} (id INT) USING iceberg",
            "purge": "DROP TABLE {T} PURGE",
        },
    ),
    "purge with gc.enabled": _sql(_in_catalog, UNDONE, "DROP TABLE {T} PURGE"),
    "expire with gc.enabled": _sql(_in_catalog, UNDONE, EXPIRE),
    "orphan files with gc.enabled": _sql(_in_catalog, UNDONE, ORPHANS),
}


def _in_files(target):
    return f"files.{Path(target.path).parent.name}.{target.name}"


def _dropped_by_path(target):
    java = session()._jvm
    tables = java.org.apache.iceberg.hadoop.HadoopTables()
    tables.dropTable(target.path, False)


SPARK_FILES = {
    **_all(
        _in_files,
        {
            **{name: ROWS[name] for name in ("append", "delete of all", "properties", "drop")},
            "purge": "DROP TABLE {T} PURGE",
            "create": "CREATE TABLE {T} (id INT) USING iceberg",
        },
    ),
    "append by save": _saved("iceberg", "append"),
    "overwrite by save": _saved("iceberg", "overwrite"),
    "drop by path": _dropped_by_path,
}

PROGRAMS = (
    Program("deltalake", "deltalake", HERE, "delta", "", DELTALAKE),
    Program("Polars", "polars", HERE, "delta", "", POLARS_DELTA),
    Program("Daft", "daft", OTHERS, "delta", "", DAFT_DELTA),
    Program("DuckDB", "duckdb", OTHERS, "delta", "", DUCKDB_DELTA),
    Program("pyiceberg", "pyiceberg", HERE, "iceberg", "registered", PYICEBERG),
    Program("Polars", "polars", HERE, "iceberg", "registered", POLARS_ICEBERG),
    Program("Daft", "daft", OTHERS, "iceberg", "registered", DAFT_ICEBERG),
    *(
        Program("DuckDB", "duckdb", OTHERS, "iceberg", "registered", duckdb_writes.REGISTERED, form)
        for form in (2, 3)
    ),
    Program("DuckDB", "duckdb", OTHERS, "iceberg", "`COPY`", duckdb_writes.BY_PATH),
    *(
        Program("Spark", "pyspark", home, "delta", f"delta-spark {release(jar)}", SPARK_DELTA)
        for home, jar in zip(SPARKS, DELTA.values(), strict=True)
    ),
    *(
        Program("Spark", "pyspark", home, "iceberg", f"Iceberg {release(jar)}, {how}", writes, form)
        for form, (home, jar) in enumerate(zip(SPARKS, ICEBERG.values(), strict=True), 2)
        for how, writes in (("registered", SPARK_ICEBERG), ("`type=hadoop`", SPARK_FILES))
    ),
)
