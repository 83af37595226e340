"""Log lines as JSON objects, one per line, which a log service can filter and count.

A line has `level`, `event` (a constant text) and the record's `facts` as fields.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON; values that JSON cannot represent become text."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without a line end."""
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
    """Writes to the process's current standard output."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record as a line."""
        try:
            sys.stdout.write(f"{self.format(record)}\n")
            sys.stdout.flush()
        except Exception:  # noqa: BLE001 - as logging's own handlers do
            self.handleError(record)


def write_lines(*names: str) -> None:
    """Make the loggers of these names, and those below them, write JSON lines from level INFO.

    Idempotent. They no longer propagate to the root logger, so that a runtime with a root handler
    does not print every line twice.
    """
    for name in names:
        logger = logging.getLogger(name)
        if not any(isinstance(known, _Output) for known in logger.handlers):
            output = _Output()
            output.setFormatter(JsonLines())
            logger.addHandler(output)
        logger.setLevel(logging.INFO)
        logger.propagate = False
