"""The verbs that change rows: delete, update, overwrite, merge-rows. Needs the extra `cli`.

The verb `merge` brings what another copy or branch did. So the merge of rows has a name of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click
import pyarrow as pa

from eventlog import Table
from eventlog.arguments import parse_names, shown
from eventlog.cli import terminal
from eventlog.cli.place import Place, VersionType, common, unless_dry
from eventlog.cli.terminal import committed
from eventlog.cli.verbs.rows.adding import done_text, write_files
from eventlog.cli.verbs.rows.file_options import (
    MEGABYTE,
    Input,
    evolve_table,
    evolving,
    of_files,
    of_work,
    replaced_columns,
    rows_of,
)
from eventlog.cli.verbs.rows.interruption import ctrl_c_explained
from eventlog.errors import InvalidInput
from eventlog.keyed.rule import keyed_of
from eventlog.log.snapshot import Snapshot
from eventlog.quantities import count_text, size_text
from eventlog.session.tags import VersionOrName
from eventlog.staging.upsert_rows import Missing
from eventlog.writers.batch import already, check_evolving, make_app, naming_version
from eventlog.writers.changing.joining import merge
from eventlog.writers.changing.landing import ISOLATIONS, RowChange
from eventlog.writers.changing.updating import update
from eventlog.writers.files import Lacking
from eventlog.writers.keyed import delete, rule_or_refuse, timed_by
from eventlog.writers.overwriting import overwrite

_isolation = click.option(
    "--isolation",
    type=click.Choice(ISOLATIONS),
    default="snapshot",
    show_default=True,
    help="Of rows that others add meanwhile: snapshot leaves them, serializable is a conflict.",
)
_values = click.option(
    "--set",
    "given",
    multiple=True,
    metavar="COLUMN=EXPRESSION",
    help="The new value of a column, a SQL expression over the row as it was. Repeatable.",
)


@click.command("delete")
@common
@click.argument("files", nargs=-1)
@click.option("--where", help="Delete the rows that this SQL expression selects.")
@_isolation
@unless_dry
@of_files
def delete_(
    place: Place, *, where: str | None, isolation: str, dry_run: bool, **given: Any
) -> None:
    """Delete the rows that --where selects, or those of keys.

    The keys of a keyed table are in FILES, which are as for append, and have the key columns only.
    --isolation and --dry-run are for tables without a key.
    """
    table, wanted = place.open(), Input(**given)
    if where is None:
        _delete_keys(place, table, wanted, alone=isolation == "snapshot" and not dry_run)
        return
    if wanted.files:
        raise InvalidInput("give either FILES or --where")
    change = delete(
        table,
        where=where,
        app_id=wanted.app_id,
        app_seq=wanted.app_seq,
        isolation=isolation,  # type: ignore[arg-type] # click has checked it
        dry_run=dry_run,
        memory_bytes=wanted.memory_mb * MEGABYTE,
    )
    if keyed_of(table.session.head().layout) is None:
        _answer(place, table, change, dry_run=dry_run, app_id=wanted.app_id)
        return
    done, nothing = f"deleted the rows where {where}", "nothing was deleted: no row is selected"
    with committed(change):
        text = done if change.committed else nothing
        place.answer(table, int(change), text, committed=change.committed)


@click.command("update")
@common
@_values
@click.option("--where", help="Update the rows that this SQL expression selects; default: all.")
@_isolation
@unless_dry
@of_work
def update_(
    place: Place,
    *,
    given: Sequence[str],
    where: str | None,
    isolation: str,
    dry_run: bool,
    app_id: str | None,
    app_seq: int | None,
    memory_mb: int,
) -> None:
    """Give columns of the rows that --where selects new values.

    The table has no key; those that have are changed by upsert. A text is quoted twice, for the
    shell and for SQL: --set "status = 'closed'".
    """
    table = place.open()
    change = update(
        table,
        _new_values(given),
        where,
        app_id=app_id,
        app_seq=app_seq,
        isolation=isolation,  # type: ignore[arg-type] # click has checked it
        dry_run=dry_run,
        memory_bytes=memory_mb * MEGABYTE,
    )
    _answer(place, table, change, dry_run=dry_run, app_id=app_id)


@click.command("overwrite")
@common
@click.argument("files", nargs=-1, required=True)
@click.option("--where", help="Replace the rows that this SQL expression selects.")
@click.option("--start", help="Replace the rows from this time on: where a time chunk begins.")
@click.option("--end", help="Replace the rows before this time: where a time chunk begins.")
@click.option(
    "--read-version",
    type=VersionType(),
    help="The version that the rows were computed from; later rows are kept.",
)
@_isolation
@unless_dry
@replaced_columns
@evolving
@of_files
def overwrite_(  # noqa: PLR0913 - one argument an option
    place: Place,
    *,
    where: str | None,
    start: str | None,
    end: str | None,
    read_version: VersionOrName | None,
    isolation: str,
    dry_run: bool,
    missing: Missing | None,
    evolve: bool,
    **given: Any,
) -> None:
    """Replace rows by those of FILES, as one commit.

    Give --where, whose rows the new ones must belong to, or a range of whole time chunks. Without
    any of them all rows of the table are replaced. FILES are as for append.
    """
    table, wanted = place.open(), Input(**given)

    def write(head: Snapshot) -> RowChange:
        columns, time_column = head.schema, head.layout.time_column
        lacking = "refused" if missing is None else "null"
        with rows_of(wanted, columns, time_column, lacking=lacking) as rows:  # type: ignore[arg-type]
            return overwrite(
                table,
                rows.reader,
                start=start,
                end=end,
                where=where,
                isolation=isolation,  # type: ignore[arg-type] # click has checked it
                read_version=read_version,
                app_id=wanted.app_id,
                app_seq=wanted.app_seq,
                memory_bytes=wanted.memory_mb * MEGABYTE,
                missing=missing,
                dry_run=dry_run,
            )

    _write_once(place, table, wanted, write, dry_run=dry_run, evolve=evolve)


@click.command("merge-rows")
@common
@click.argument("files", nargs=-1, required=True)
@click.option("--on", required=True, help="Comma-separated names of the columns to match.")
@click.option(
    "--when-matched",
    type=click.Choice(["update", "delete", "ignore"]),
    help="What becomes of rows that match one of FILES; default: update. Where rows are only "
    "deleted or ignored, FILES have the columns of --on alone.",
)
@_values
@click.option(
    "--when-not-matched",
    type=click.Choice(["insert", "ignore"]),
    default="insert",
    show_default=True,
    help="What becomes of rows of FILES that match none of the table.",
)
@click.option(
    "--when-not-matched-by-source",
    type=click.Choice(["ignore", "delete"]),
    default="ignore",
    show_default=True,
    help="What becomes of rows of the table that match none of FILES.",
)
@unless_dry
@evolving
@of_files
def merge_rows(
    place: Place,
    *,
    on: str,
    when_matched: str | None,
    given: Sequence[str],
    when_not_matched: str,
    when_not_matched_by_source: str,
    dry_run: bool,
    evolve: bool,
    **options: Any,
) -> None:
    """Update, insert or delete rows by those of FILES that match.

    Rows of a table without a key match by the values of the columns --on. A row of FILES updates
    the row that has the same values there, or is added. It is held in memory. A column that FILES
    lack keeps its values. With --set the new values are those of SQL expressions, which name the
    columns of FILES as source.price.

    (The verb merge brings the changes of another copy or branch.)
    """
    if given and when_matched is not None:
        raise InvalidInput("give either --set or --when-matched")
    if given and evolve:
        raise InvalidInput("give either --set or --evolve: add the columns by: eventlog columns")
    table, wanted, names = place.open(), Input(**options), parse_names(on, "--on")
    matched: Any = _new_values(given) if given else when_matched or "update"
    inserts = when_not_matched == "insert"

    def write(head: Snapshot) -> RowChange:
        columns, time_column = head.schema, head.layout.time_column
        lacking: Lacking = "alike"
        if not inserts:
            columns, time_column = pa.schema([f.with_nullable(True) for f in columns]), None
            if matched in ("delete", "ignore"):
                columns = pa.schema([field for field in columns if field.name in names])
                lacking = "alone"
        with rows_of(wanted, columns, time_column, lacking=lacking) as rows:
            return merge(
                table,
                rows.reader,
                names,
                when_matched=matched,
                when_not_matched=when_not_matched,  # type: ignore[arg-type] # checked by click
                when_not_matched_by_source=when_not_matched_by_source,  # type: ignore[arg-type]
                app_id=wanted.app_id,
                app_seq=wanted.app_seq,
                dry_run=dry_run,
                memory_bytes=wanted.memory_mb * MEGABYTE,
            )

    _write_once(place, table, wanted, write, dry_run=dry_run, evolve=evolve)


def _delete_keys(place: Place, table: Table, wanted: Input, *, alone: bool) -> None:
    """Delete the rows of the keys in files."""
    head = table.session.head()
    if keyed_of(head.layout) is None:
        raise InvalidInput(
            f"the table {table.uri} has no key: select the rows to delete with --where"
        )
    if not wanted.files:
        raise InvalidInput("give FILES with keys, or --where")
    if not alone:
        raise InvalidInput("--isolation and --dry-run are for tables without a key")
    rule = rule_or_refuse(head, table.uri)
    named = (*rule.key, *timed_by(head.layout))
    write_files(
        place,
        table,
        wanted,
        lambda t, keys, **options: delete(t, keys=keys, **options),
        "deleted the keys of",
        keys=pa.schema([field for field in head.schema if field.name in named]),
    )


def _new_values(given: Sequence[str]) -> dict[str, str]:
    """Return the expressions of the option --set, by column.

    Raises:
        InvalidInput: there are none, one has another form, or a column has two.
    """
    values: dict[str, str] = {}
    for text in given:
        column, separator, expression = (part.strip() for part in text.partition("="))
        if not separator or not column or not expression:
            raise InvalidInput(
                f"--set {shown(text)}: give it in the form COLUMN=EXPRESSION, such as "
                '--set "price = price * 2" or --set "status = \'closed\'"'
            )
        if column in values:
            raise InvalidInput(f"--set has two values for column {shown(column)}: give one")
        values[column] = expression
    if not values:
        raise InvalidInput('give the new values: --set "price = price * 2"')
    return values


def _write_once(
    place: Place,
    table: Table,
    given: Input,
    write: Callable[[Snapshot], RowChange],
    *,
    dry_run: bool,
    evolve: bool,
) -> None:
    """Change rows by those of files, which are not opened if the unit of work is done already."""
    done, version = already(table.refresh(), make_app(given.app_id, given.app_seq)), None
    if evolve and done is None:
        check_evolving(dry_run=dry_run)
        version = evolve_table(table, given)
    with naming_version(version), ctrl_c_explained(table):
        change = write(table.session.head()) if done is None else RowChange(done)
    _answer(place, table, change, dry_run=dry_run, app_id=given.app_id)


def _answer(
    place: Place, table: Table, change: RowChange, *, dry_run: bool, app_id: str | None
) -> None:
    """Print what was changed, or would be."""
    with committed(change):
        if place.as_json:
            place.answer(
                table, int(change), "", committed=change.committed,
                rows_deleted=change.deleted, rows_added=change.added, rows_updated=change.updated,
                segments_dropped=change.dropped, segments_changed=change.changed,
                bytes=change.bytes,
            )  # fmt: skip
        elif change.committed:
            terminal.say(f"version {change}: {_counts(change) or 'no row is selected'}")
        elif dry_run and _counts(change):
            terminal.say(f"nothing was committed (--dry-run): {_counts(change)}")
        elif app_id in table.session.head().meta.apps:
            terminal.say(f"nothing was changed: {done_text(table, app_id, change)}")
        else:
            terminal.say("nothing was changed: no row is selected")


def _counts(change: RowChange) -> str:
    """Return the rows, segments and bytes of a change as text; an empty string without rows."""
    rows = {
        "updated": change.updated,
        "deleted": change.deleted - change.updated,
        "added": change.added - change.updated,
    }
    parts = [f"{count_text(number, 'row')} {verb}" for verb, number in rows.items() if number]
    if not parts:
        return ""
    segments = {"dropped": change.dropped, "changed": change.changed}
    others = [f"{count_text(n, 'segment')} {verb}" for verb, n in segments.items() if n]
    return f"{', '.join(parts)} ({', '.join([*others, size_text(change.bytes)])} stored)"


VERBS = (delete_, update_, overwrite_, merge_rows)
