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
from eventlog.view import Picture, chosen_versions, history_picture, page_of, png_of, still_of

_version = click.IntRange(min=0)
_PAGES, _STILLS = (".html", ".htm"), (".svg", ".png")
_PANELS = 6


@click.command()
@common
@click.option(
    "--output", "-o", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    required=True, help="What to write: a page (.html), or a still (.svg, .png).",
)  # fmt: skip
@click.option("--from", "first", type=_version, help="The first version; by default the oldest.")
@click.option("--to", "last", type=_version, help="The last version; by default the newest.")
@click.option(
    "--panels", metavar="N", type=int, help="How many versions a still shows. Default: 6."
)
def view(
    place: Place, *, output: Path, first: int | None, last: int | None, panels: int | None
) -> None:
    """Draw the history as a page for a browser, or as a still: segments by time chunk.

    The page is one file that needs no network; a slider chooses the version. A still has some
    versions side by side, at equal distances. Every commit of these versions is read.
    """
    suffix = output.suffix.lower()
    _check_output(output, panels)
    table = place.open()
    with terminal.progress() as advance:
        picture = history_picture(
            table, first, last, lambda done, total: advance("commits", done, total)
        )
    body = page_of(picture).encode() if suffix in _PAGES else _still(picture, suffix, panels)
    try:
        output.write_bytes(body)
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
                "bytes": len(body),
            }
        )
        return
    what = f"{count_text(versions, 'version')}, {count_text(segments, 'segment')}"
    then = "; open it in a browser" if suffix in _PAGES else ""
    terminal.say(f"{output}: {what}, {size_text(len(body))}{then}")


def _check_output(output: Path, panels: int | None) -> None:
    """Check, before anything is read, that the name of the file shows what to write.

    Raises:
        InvalidInput: it does not, or a page was asked to have panels.
    """
    suffix = output.suffix.lower()
    if suffix not in (*_PAGES, *_STILLS):
        raise InvalidInput(
            f"the name {output} does not show what to write: let it end with .html for a page, or "
            "with .svg or .png for a still"
        )
    if panels is not None and suffix in _PAGES:
        raise InvalidInput("--panels is for a still: name a file that ends with .svg or .png")


def _still(picture: Picture, suffix: str, panels: int | None) -> bytes:
    versions = chosen_versions(picture, _PANELS if panels is None else panels)
    still = still_of(picture, versions)
    return png_of(still) if suffix == ".png" else still.encode()
