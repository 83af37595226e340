"""The click group of `eventlog`: collects the commands, and prints errors.

Needs the extra `cli`. Each package adds its commands through the entry-point group
`eventlog.commands`, as a list of click commands, so that the core does not import them.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, NoReturn, TypeVar

import click

from eventlog import Table
from eventlog.cli import terminal
from eventlog.display import plain
from eventlog.errors import EventLogError
from eventlog.format.keys import branch_uri
from eventlog.store.location import open_store

GROUP = "eventlog.commands"
INTERRUPTED = 130

Function = TypeVar("Function", bound=Callable[..., Any])

at_version = click.option(
    "--version", type=click.IntRange(min=0), help="The version to use; by default the newest."
)
at_timestamp = click.option(
    "--timestamp",
    help="The version at this time, such as 2013-01-07T05:00:00Z; UTC if it has no offset.",
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
        """Return a handle to the table.

        Raises:
            TableNotFound: there is no table at `uri`.
        """
        return Table.open(self.uri, self.storage_options)

    def unopened(self) -> Table:
        """Return a handle that has read nothing yet: for one version, or a log with damage."""
        return Table(open_store(self.uri, self.storage_options))


class _OutputClosed(Exception):
    """The reader of standard output has closed it."""


class Program(click.Group):
    """The group of all commands. An error becomes a message and an exit code."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run one command and exit; `args` are those of this process if None."""
        arguments = list(sys.argv[1:] if args is None else args)
        logger = logging.getLogger("eventlog")
        if not any(isinstance(handler, terminal.Warnings) for handler in logger.handlers):
            logger.addHandler(terminal.Warnings())
        extra.pop("standalone_mode", None)
        sys.exit(self._run(arguments, prog_name, extra))

    def invoke(self, ctx: click.Context) -> Any:
        """Run one command; handles a closed standard output, for which click would exit with 1."""
        try:
            answer = super().invoke(ctx)
            if sys.stdout is not None:  # None if the program was started without one
                sys.stdout.flush()
        except BrokenPipeError:
            raise _OutputClosed from None
        return answer

    def _run(self, arguments: list[str], prog_name: str | None, extra: dict[str, Any]) -> int:
        as_json, debug = "--json" in arguments, "--debug" in arguments
        try:
            code = super().main(arguments, prog_name, standalone_mode=False, **extra)
        except _OutputClosed:
            # The reader, such as `head`, needs no more output.
            _discard_output()
            return 0
        except (click.Abort, KeyboardInterrupt):
            click.echo("interrupted", err=True)
            return INTERRUPTED
        except click.ClickException as error:
            if as_json:
                terminal.json_error("InvalidInput", error.format_message(), error.exit_code)
            else:
                error.message = plain(error.message, kept="\n")  # type: ignore[misc] # for itself
                error.show()
            return error.exit_code
        except EventLogError as error:
            _show(error, as_json=as_json, debug=debug)
            return error.exit_code
        except Exception as error:  # noqa: BLE001 - print a message instead of a traceback
            _show(error, as_json=as_json, debug=debug)
            return 1
        return code if isinstance(code, int) else 0


def build() -> Program:
    """Return the program with the commands of every installed package."""
    program = Program(name="eventlog", help=_HELP, context_settings={"max_content_width": 100})
    for entry in sorted(entry_points(group=GROUP), key=lambda e: e.name):
        for command in entry.load():
            program.add_command(command)
    return program


@contextmanager
def committed(version: int) -> Iterator[None]:
    """A context for the output of a command that has committed: a failure to print is no error.

    A caller that sees an error exit code may run the command again, and commit twice.
    """
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _discard_output()
        terminal.note(
            f"eventlog: version {version} is committed; the output could not be written: {error}"
        )


def _discard_output() -> None:
    """Discard the rest of the output, so that Python's flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
        click.option("--debug", is_flag=True, help="Show the traceback of an error."),
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
        parsed[name] = text
    return parsed


_HELP = """A table format on object storage with no server.

URI is s3://bucket/prefix or a local directory. Exit codes: 0 ok, 1 failure, 2 usage, 3 conflict,
4 corrupt.
"""


def _show(error: Exception, *, as_json: bool, debug: bool) -> None:
    if debug:
        terminal.trace(error)
    if isinstance(error, EventLogError):
        if as_json:
            facts = {name: getattr(error, name) for name in _FACTS}
            terminal.json_error(type(error).__name__, error.message, error.exit_code, **facts)
        else:
            terminal.note(f"eventlog: {error}")
        return
    message = f"{type(error).__name__}: {error}"
    if as_json:
        terminal.json_error(type(error).__name__, str(error), 1)
    else:
        terminal.note(f"eventlog: {message} (--debug shows the traceback)")


_FACTS = ("table", "key", "version", "transaction")
