"""The options of verbs that list something, and the pager for what is longer than the terminal."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

_META = "eventlog.cli.screen"
_LESS = "-RSFX"  # colours; long lines are cut, arrows move; no pager for what fits
_NO_COMMAND = (126, 127)  # of a shell


def listing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --wide, --records and --no-pager, see `asked`, and run a verb in `paged`."""

    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        with paged():
            return function(*arguments, **options)

    verb: Callable[..., Any] = called
    for name, words in _OPTIONS.items():
        verb = click.option(
            f"--{name}",
            is_flag=True,
            expose_value=False,
            help=words,
            callback=lambda context, parameter, value: context.meta.setdefault(
                f"{_META}.{parameter.name}", value
            ),
        )(verb)
    return verb


def unpaged(context: click.Context, _option: click.Parameter, wanted: bool) -> bool:
    """Return the value of a flag with which a verb prints at once, whatever it prints."""
    if wanted:
        context.meta[f"{_META}.no_pager"] = True
    return wanted


_OPTIONS = {
    "no-pager": "Print all at once, also on a terminal.",
    "records": "Print one column a line.",
    "wide": "Print whole cells and all columns, however wide the terminal is.",
}


def asked(option: str) -> bool:
    """Return whether the running verb was given one of the options of `listing`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(f"{_META}.{option}", False))


def terminal_width() -> int | None:
    """Return the width of the terminal that the output goes to; None if it goes elsewhere."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


class Paper:
    """Takes lines, on two streams, until it is known whether they need a pager."""

    def __init__(self) -> None:
        self._lines: list[tuple[str, bool]] = []

    def put(self, text: str, *, err: bool) -> None:
        """Take a line for standard output, or for stderr."""
        self._lines.append((text, err))

    def show(self, pager: str) -> None:
        """Print the lines, those of standard output by a pager if they are too many.

        Args:
            pager: a command for a shell.
        """
        lines = [text for text, err in self._lines if not err]
        paged = len(lines) >= shutil.get_terminal_size().lines and _run(pager, lines)
        for text, err in self._lines:
            if err or not paged:
                click.echo(text, err=err)


def _run(pager: str, lines: Sequence[str]) -> bool:
    """Show lines by a pager, and return whether there was one."""
    environment = {"LESS": _LESS, **os.environ}
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pager's to handle
    try:
        done = subprocess.run(  # noqa: S603 - the user's own command
            ["/bin/sh", "-c", pager], input="\n".join([*lines, ""]).encode(), env=environment,
            check=False,
        )  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)
    return done.returncode not in _NO_COMMAND


_papers: list[Paper] = []


def echo(text: str, *, err: bool = False) -> None:
    """Print a line, or keep it until `paged` ends."""
    if _papers:
        _papers[-1].put(text, err=err)
    else:
        click.echo(text, err=err)


@contextmanager
def paged() -> Iterator[None]:
    """A context whose lines go through the pager PAGER if a terminal has no room for them."""
    pager = os.environ.get("PAGER", "less").strip()
    if terminal_width() is None or asked("no_pager") or pager in ("", "cat"):
        yield
        return
    _papers.append(Paper())
    try:
        yield
    finally:
        _papers.pop().show(pager)
