"""The program `eventlog`: its entry point, importable without the extra `cli`.

Everything that needs click or rich is imported inside `main`.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NoReturn

_MISSING = "the program eventlog needs click and rich: pip install 'eventlog-tables[cli]'\n"


def main() -> NoReturn:
    """Run the program with the arguments of this process, and exit.

    Exit codes: 0 ok, 1 failure, 2 usage, 3 conflict, 4 corrupt, 130 interrupted.
    """
    try:
        import click  # noqa: F401, PLC0415
        import rich  # noqa: F401, PLC0415
    except ImportError:
        sys.stderr.write(_MISSING)
        sys.exit(1)
    from eventlog.cli.program import INTERRUPTED, build  # noqa: PLC0415 - needs click

    try:
        build().main(prog_name="eventlog")
    except SystemExit as end:
        if end.code == INTERRUPTED:
            # A thread of Arrow may still read a file; Python, ending around it, would abort.
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, AttributeError):  # closed, or none
                    stream.flush()
            os._exit(INTERRUPTED)
        raise
