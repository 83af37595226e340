"""The verb view: the history of a table as a picture, in one file.

Needs the extra `cli`.
"""

from __future__ import annotations

from pathlib import Path

import click

from eventlog.cli import terminal
from eventlog.cli.place import Place, common
from eventlog.errors import InvalidInput
from eventlog.quantities import count_text, size_text
from eventlog.view import history_picture, page_of

_version = click.IntRange(min=0)


@click.command()
@common
@click.option(
    "--output", "-o", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    required=True, help="The page to write, such as history.html.",
)  # fmt: skip
@click.option("--from", "first", type=_version, help="The first version; by default the oldest.")
@click.option("--to", "last", type=_version, help="The last version; by default the newest.")
def view(place: Place, *, output: Path, first: int | None, last: int | None) -> None:
    """Draw the history as a page for a browser: segments by time chunk, a slider for the version.

    The page is one file that needs no network. Every commit of these versions is read.
    """
    table = place.open()
    with terminal.progress() as advance:
        picture = history_picture(
            table, first, last, lambda done, total: advance("commits", done, total)
        )
    page = page_of(picture).encode()
    try:
        output.write_bytes(page)
    except OSError as error:
        raise InvalidInput(f"{output} cannot be written: {error.strerror}") from None
    versions, segments = len(picture.times), len(picture.blocks)
    if place.as_json:
        terminal.json_document(
            {
                "table": table.uri,
                "from": picture.first,
                "to": picture.last,
                "versions": versions,
                "segments": segments,
                "output": str(output),
                "bytes": len(page),
            }
        )
        return
    what = f"{count_text(versions, 'version')}, {count_text(segments, 'segment')}"
    terminal.say(f"{output}: {what}, {size_text(len(page))}; open it in a browser")
