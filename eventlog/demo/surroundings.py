"""What the parts of the demo need around them: packages, an environment, a terminal."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from eventlog.errors import EventLogError

_UNWANTED = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3")
# The server is on this machine, whatever a proxy is for.
_NO_PROXY = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


class Terminal(Protocol):
    """What prints for people: `eventlog.cli.terminal`, which stands above the demo."""

    def say(self, text: str = "") -> None:
        """Print a line."""

    def title(self, text: str) -> None:
        """Print a heading."""

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        *,
        right: Sequence[str] = (),
    ) -> None:
        """Print rows under their column names."""

    def progress(self) -> AbstractContextManager[Callable[[str, int, int | None], None]]:
        """Yield a function that shows what is done, how much of it, and of how much."""


@contextmanager
def counted(terminal: Terminal | None, what: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar while the context lasts; the function that it yields counts one thing as done.

    Args:
        terminal: where; nothing is shown if None.
        what: is being done.
        total: number of things. The function may be called from any thread.
    """
    if terminal is None:
        yield lambda: None
        return
    lock, done = threading.Lock(), 0
    with terminal.progress() as advance:

        def count_one() -> None:
            nonlocal done
            with lock:
                done += 1
                advance(what, done, total)

        advance(what, 0, total)
        yield count_one


def check_packages(names: Sequence[str], install: str) -> None:
    """Check that packages are installed.

    Args:
        names: of the packages, as they are imported.
        install: what pip installs them with.

    Raises:
        EventLogError: one is missing; the message has the command.
    """
    missing = [name for name in names if not is_installed(name)]
    if missing:
        raise EventLogError(
            f"the demo needs {', '.join(missing)}: pip install '{install}', or from a clone "
            "`make setup`"
        )


@contextmanager
def server_environment(wanted: dict[str, str]) -> Iterator[None]:
    """Set the environment variables for the embedded server while the context lasts."""
    before = dict(os.environ)
    for name in _UNWANTED:
        os.environ.pop(name, None)
    os.environ.update(wanted | _NO_PROXY)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def activation() -> str | None:
    """Return the command with which this shell finds the program; None if it does already."""
    activate = Path(sys.prefix, "bin", "activate")
    if shutil.which("eventlog") is None and activate.is_file():
        return f". {shlex.quote(str(activate))}"
    return None


def is_installed(name: str) -> bool:
    """Return whether a package is installed; an import hook may hide it."""
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
