"""The options that all verbs have, and the table that they name. Needs the extra `cli`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from eventlog import Table
from eventlog.cli import terminal
from eventlog.errors import InvalidInput
from eventlog.format.keys import branch_uri
from eventlog.session.tags import VersionOrName, parse_version
from eventlog.store.parallel import DriverName

Function = TypeVar("Function", bound=Callable[..., Any])


class VersionType(click.ParamType):  # type: ignore[type-arg] # not generic in older releases
    """The number of a version, or the name of a tag."""

    name = "version"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> VersionOrName:
        """Return the number, or the name as it is."""
        try:
            return value if isinstance(value, int) else parse_version(value)
        except InvalidInput as error:
            self.fail(error.message, param, ctx)


at_version = click.option(
    "--version", type=VersionType(), help="The version or tag to use; by default the newest."
)
at_timestamp = click.option(
    "--timestamp",
    help="The version at this time, such as 2013-01-07T05:00:00Z; UTC if it has no offset.",
)

# One habit of dry runs: a verb that does what its arguments say acts at once, and one that gives up
# stored objects, or chooses what to rewrite, only with --run. Both kinds know both words.
unless_dry = click.option(
    "--dry-run/--run",
    "dry_run",
    default=False,
    help="Commit nothing: show what would change. --run, the default, does it.",
)
only_with_run = click.option(
    "--run/--dry-run",
    "run",
    default=False,
    help="Do it. --dry-run, the default, shows what would change.",
)


@dataclass(frozen=True, slots=True)
class Place:
    """The table and the output format of a command: the options that every command has.

    Attributes:
        uri: the table's root, or that of the branch which --branch names.
        storage_options: see `eventlog.store.options`.
        as_json: print JSON for programs instead of tables for people.
    """

    uri: str
    storage_options: dict[str, str] = field(repr=False)
    as_json: bool

    def open(self) -> Table:
        """Return a handle that has read the newest version of the table.

        Raises:
            TableNotFound: there is no table at `uri`.
        """
        table = self.unread()
        table.session.head()
        return table

    def unread(self) -> Table:
        """Return a handle that has read nothing yet: for one version, or a log with damage."""
        return Table.open(self.uri, self.storage_options)

    def answer(
        self, table: Table, version: int, text: str, *, committed: bool = True, **more: Any
    ) -> None:
        """Print what a verb committed.

        Args:
            table: that it changed.
            version: the version that has the change, or the newest if there was nothing to change.
            text: says what was done, for people.
            committed: whether this call committed it.
            more: further facts for programs.
        """
        if self.as_json:
            terminal.json_document(
                {"table": table.uri, "version": version, "committed": committed, **more}
            )
        else:
            terminal.say(f"version {version}: {text}" if committed else text)


def common(function: Function) -> Function:
    """Add the argument URI and the options of every command; the function gets a `Place`."""

    def called(
        *,
        uri: str,
        branch: str | None,
        storage_option: dict[str, str],
        as_json: bool,
        debug: bool,
        **rest: Any,
    ) -> Any:
        del debug  # read from the raw arguments, so that it applies to usage errors too
        root = uri if branch is None else branch_uri(uri, branch)
        return function(Place(root, storage_option, as_json), **rest)

    called.__name__, called.__doc__ = function.__name__, function.__doc__
    called.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    wrapped = options(
        click.option("--branch", metavar="NAME", help="Use this branch of the table.")(called)
    )
    return click.argument("uri")(wrapped)  # type: ignore[return-value]


def options(function: Function) -> Function:
    """Add the options --json, --storage-option and --debug, passed as keyword arguments."""
    for option in (
        click.option(
            "--debug",
            is_flag=True,
            help="With an error, show its traceback, table, key and version.",
        ),
        click.option(
            "--storage-option",
            metavar="NAME=VALUE",
            multiple=True,
            callback=pairs,
            help="Overrides the AWS environment: endpoint_url, region, profile, … Repeatable.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs."),
    ):
        function = option(function)
    return function


def driver_option(text: str) -> Callable[[Function], Function]:
    """Return a decorator that adds the option --driver, the name of a driver.

    Args:
        text: its help: what the drivers do.
    """
    return click.option(
        "--driver",
        type=click.Choice(("local", "spark")),
        default="local",
        show_default=True,
        help=text,
    )


def start_driver(driver: DriverName) -> None:
    """Start a session of Spark, unless there is one, for the driver `spark`.

    Raises:
        InvalidInput: PySpark is not installed.
    """
    if driver == "spark":
        from eventlog.compaction import spark  # noqa: PLC0415 - the extra `spark`

        spark.spark_session()


def pairs(
    _context: click.Context, parameter: click.Parameter, values: Sequence[str]
) -> dict[str, str]:
    """Parse a repeatable option of the form NAME=VALUE."""
    parsed: dict[str, str] = {}
    for value in values:
        name, separator, text = value.partition("=")
        if not separator or not name:
            # The value is not shown: it may be a secret.
            raise click.BadParameter("give it in the form NAME=VALUE", param=parameter)
        if name in parsed:
            raise click.BadParameter(f"{name} is given twice: give it once", param=parameter)
        parsed[name] = text
    return parsed
