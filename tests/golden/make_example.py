"""Writes the example of FORMAT.md once more: `python tests/golden/make_example.py`.

Only needed when the format changes; the test next to it reads what stands in the document.
"""

import base64
import sys
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

import eventlog
from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite

_TITLE = "### 14.5 An example\n"
_INTRO = """
Three versions: a table is created; one append adds two segments; an overwrite of the first day
replaces one of them; a key frame of version 2 was written. Live at version 2: 2013-01-01 with
(00:00:30, Kyoto, 4.0), 2013-01-02 with (00:00:00, Oslo, null). These are all of the table's
objects but the probe's, byte for byte; a test builds the table from this text, folds it and reads
it.

"""
_SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("station", pa.string()),
        pa.field("celsius", pa.float64()),
    ]
)
_MIDNIGHT_S = 1_356_998_400  # 2013-01-01T00:00Z


def _rows(*rows):
    columns = [
        [(_MIDNIGHT_S + s) * 10**6 for s, _, _ in rows],
        *zip(*(r[1:] for r in rows), strict=True),
    ]
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )


def _store():
    store, clock = MemoryStore(), ManualClock(1_357_000_000_000, seed=7)
    table = Table.create(
        store.uri,
        _SCHEMA,
        time_column="at",
        granularity="day",
        store=store,
        clock=clock,
        properties={"user.owner": "weather"},
    )
    clock.advance(1000)
    first = _rows((0, "Kyoto", 4.5), (60, "Oslo", -7.25), (86400, "Oslo", None))
    append(table, first, app_id="loader", app_seq=1)
    clock.advance(1000)
    overwrite(table, _rows((30, "Kyoto", 4.0)), start="2013-01-01", end="2013-01-02")
    table.write_keyframe()
    return store


def _shown(key, body):
    if key.endswith(".json"):
        return f"`{key}`\n\n```json\n{body.decode()}\n```\n"
    text = base64.b64encode(body).decode()
    lines = "\n".join(text[at : at + 110] for at in range(0, len(text), 110))
    return f"`{key}` (base64)\n\n```text\n{lines}\n```\n"


def main() -> int:
    """Write the example."""
    path = Path(eventlog.__file__).parent / "FORMAT.md"
    before = path.read_text(encoding="utf-8").split(_TITLE)[0]
    named = patch("eventlog.session.session.writer_name", lambda: "writer@example")
    alone = patch("eventlog.staging.stager._UPLOADS", 1)  # so that ids are drawn in one order
    objects = patch("eventlog.table.creation.INLINE_BYTES", 0)
    with named, alone, objects:
        store = _store()
    keys = [found.key for found in store.list("") if not found.key.startswith("_probe/")]
    shown = "\n".join(_shown(key, store.get(key)) for key in keys)
    path.write_text(before + _TITLE + _INTRO + shown, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
