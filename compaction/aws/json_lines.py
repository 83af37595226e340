"""Log lines as JSON objects, one a line: what a log service can filter and count.

Shell. A line has `level`, `event` (what happened, a constant text) and the facts of the record's
`facts`; nobody has to parse a sentence.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON; values that JSON has no form for become text."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        line: dict[str, Any] = {
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= getattr(record, "facts", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class _Output(logging.Handler):
    """Writes to the standard output that the process has at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stdout.write(f"{self.format(record)}\n")
            sys.stdout.flush()
        except Exception:  # noqa: BLE001 - logging's own way with what it cannot write
            self.handleError(record)


def write_lines(*names: str) -> None:
    """Have the loggers of these names, and those below them, write JSON lines from INFO on.

    Idempotent. Nothing reaches the root logger any more, so that a runtime that has
    set that one up does not print every line twice.
    """
    for name in names:
        logger = logging.getLogger(name)
        if not any(isinstance(known, _Output) for known in logger.handlers):
            output = _Output()
            output.setFormatter(JsonLines())
            logger.addHandler(output)
        logger.setLevel(logging.INFO)
        logger.propagate = False
