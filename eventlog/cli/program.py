"""The click group of `eventlog`: all verbs, and how errors are printed. Needs the extra `cli`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from eventlog import DISTRIBUTION
from eventlog.cli import terminal
from eventlog.cli.demo import demo_
from eventlog.cli.verbs import GROUPS
from eventlog.display import plain
from eventlog.errors import Corrupt, EventLogError, InvalidInput
from eventlog.model.records import FORMAT_VERSION, KNOWN_FEATURES

INTERRUPTED = 130


class _OutputClosed(Exception):
    """The reader of standard output has closed it."""


_ELSEWHERE = {  # verbs of other programs, with those of this one
    "history": "log",
    "optimize": "compact",
    "rename": "columns URI rename",
    "rollback": "restore, or drop --version for one load",
    "undo": "drop --version for one load, or restore",
}


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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As the base class; a verb of another program leads to the one of that purpose."""
        if args and args[0] in _ELSEWHERE:
            ctx.fail(f"No such command {args[0]!r}: see eventlog {_ELSEWHERE[args[0]]}")
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - of the base class
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the verbs by group, each with the first line of its help, which is not cut."""
        for group, verbs in _HELP_GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(verb.name or "", purpose_of(verb)) for verb in verbs])

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
            terminal.discard_output()
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
    """Return the program with all its verbs."""
    program = Program(name="eventlog", help=_HELP, context_settings={"max_content_width": 100})
    program.params.append(
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Show the version of the program and the format that it reads, and exit.",
        )
    )
    for verbs in _HELP_GROUPS.values():
        for verb in verbs:
            verb.short_help = purpose_of(verb)  # of completion, which would cut it
            program.add_command(verb)
    return program


def purpose_of(verb: click.Command) -> str:
    """Return what a verb does, in one line."""
    return (verb.help or "").partition("\n")[0].removesuffix(".")


_HELP_GROUPS = {"Start": (demo_,), **GROUPS}


def _print_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from importlib import metadata  # noqa: PLC0415 - other calls start faster without it

    try:
        release = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:  # run from a folder of sources
        release = "(not installed)"
    features = ", ".join(sorted(KNOWN_FEATURES))
    terminal.say(f"eventlog {release}, format {FORMAT_VERSION} with {features}")
    context.exit()


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
            text = f"eventlog: {error if debug else _for_people(error)}"
            if isinstance(error, InvalidInput):  # may show a line of the call, and a place in it
                terminal.note(text.replace("\n", "\n  "), kept="\n")
            else:
                terminal.note(text)
        return
    message = f"{type(error).__name__}: {error}"
    if as_json:
        terminal.json_error(type(error).__name__, str(error), 1)
    else:
        terminal.note(f"eventlog: {message} (--debug shows the traceback)")


def _for_people(error: EventLogError) -> str:
    """Return the message, with the object that is damaged, but without other internals."""
    damaged = isinstance(error, Corrupt) and error.key and error.key not in error.message
    return f"{error.message} (in {error.key})" if damaged else error.message


_FACTS = ("table", "key", "version", "transaction")
