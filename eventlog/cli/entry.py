"""The program `eventlog`: its entry point, importable without the extra `cli`.

Everything that needs click or rich is imported inside `main`.
"""

from __future__ import annotations

import sys
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
    from eventlog.cli.program import build  # noqa: PLC0415 - needs click

    build().main(prog_name="eventlog")
