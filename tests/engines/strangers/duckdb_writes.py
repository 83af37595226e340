"""How DuckDB writes to a table that is published to Iceberg: in a catalog, and by COPY."""

from functools import cache

from readings import connected_with
from rest_catalog import NAMESPACE, RestCatalog


@cache
def _catalog():
    return RestCatalog()


def _registered(statement):
    def write(target):
        catalog = _catalog()
        catalog.tables[target.name] = target.metadata
        connection = connected_with("avro", "httpfs", "iceberg")  # an error may end it
        connection.execute(
            f"ATTACH '' AS theirs (TYPE iceberg, ENDPOINT '{catalog.uri}', "
            "AUTHORIZATION_TYPE 'none')"
        )
        name = f"theirs.{NAMESPACE}.{target.name}"
        connection.execute(statement.format(table=name, path=target.path))

    return write


ROW = "TIMESTAMPTZ '2013-01-05 00:00:00+00:00', 99, 'theirs', 1.0"
MERGE = (
    "MERGE INTO {table} AS t USING (SELECT 5 AS id) AS s ON t.id = s.id WHEN MATCHED THEN DELETE"
)
REGISTERED = {
    "append": _registered(f"INSERT INTO {{table}} VALUES ({ROW})"),
    "delete": _registered("DELETE FROM {table} WHERE id = 5"),
    "delete of all": _registered("DELETE FROM {table}"),
    "update": _registered("UPDATE {table} SET name = 'theirs' WHERE id = 6"),
    "merge": _registered(MERGE),
    "merge of new rows": _registered(
        f"MERGE INTO {{table}} AS t USING (SELECT 99 AS id) AS s ON t.id = s.id "
        f"WHEN NOT MATCHED THEN INSERT VALUES ({ROW})"
    ),
    "truncate": _registered("TRUNCATE {table}"),
    "properties": _registered("CALL set_iceberg_table_properties({table}, {{'team': 'they'}})"),
    "columns": _registered("ALTER TABLE {table} ADD COLUMN more INTEGER"),
    "rename": _registered("ALTER TABLE {table} RENAME COLUMN name TO other"),
    "create": _registered("CREATE TABLE {table}x (id INTEGER) WITH (location = '{path}')"),
    "create or replace": _registered("CREATE OR REPLACE TABLE {table} (id INTEGER)"),
    "drop": _registered("DROP TABLE {table}"),
}
BY_PATH = {
    "copy": _registered("COPY (SELECT 1 AS id) TO '{path}' (FORMAT iceberg)"),
    "copy with overwrite": _registered(
        "COPY (SELECT 1 AS id) TO '{path}' (FORMAT iceberg, OVERWRITE true)"
    ),
}
