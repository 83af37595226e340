"""The verb view: the history of a table as a picture, in one file or served to a browser.

Needs the extra `cli`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from eventlog.cli import terminal
from eventlog.cli.place import Place, common
from eventlog.errors import EventLogError, InvalidInput
from eventlog.quantities import count_text, size_text
from eventlog.view import (
    LiveHistory,
    Picture,
    chosen_versions,
    history_picture,
    page_of,
    png_of,
    serve_history,
    still_of,
)

_version = click.IntRange(min=0)
_PAGES, _STILLS = (".html", ".htm"), (".svg", ".png")
_PANELS = 6
_HOST, _PORT, _OWN = "127.0.0.1", 8765, ("127.0.0.1", "::1", "localhost")


@click.command()
@common
@click.option(
    "--output", "-o", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="What to write: a page (.html), or a still (.svg, .png).",
)  # fmt: skip
@click.option("--from", "first", type=_version, help="The first version; by default the oldest.")
@click.option("--to", "last", type=_version, help="The last version; by default the newest.")
@click.option(
    "--panels", metavar="N", type=int, help="How many versions a still shows. Default: 6."
)
@click.option("--serve", is_flag=True, help="Serve a page that follows the table, until Ctrl-C.")
@click.option(
    "--host", help="With --serve: the name or address to listen on. Default: 127.0.0.1, which only "
    "this machine reaches.",
)  # fmt: skip
@click.option(
    "--port", type=click.IntRange(0, 65535),
    help="With --serve: the port; 0 picks a free one. Default: 8765.",
)  # fmt: skip
def view(place: Place, *, first: int | None, serve: bool, **options: Any) -> None:
    """Draw the history as a page for a browser, or as a still: segments by time chunk.

    The page is one file that needs no network; a slider chooses the version. A still has some
    versions side by side, at equal distances. Every commit of these versions is read. With --serve
    the page goes on with new versions, which the program reads while a browser shows it.
    """
    given = {name for name, value in options.items() if value is not None}
    if odd := given & ({"output", "last", "panels"} if serve else {"host", "port"}):
        names = ", ".join(f"--{'to' if name == 'last' else name}" for name in sorted(odd))
        raise InvalidInput(f"{names} {'is not for' if serve else 'is for'} --serve")
    if serve:
        _serve(place, first, options["host"] or _HOST, options["port"])
    elif options["output"] is None:
        raise InvalidInput("name a file to write with --output, or give --serve")
    else:
        _write(place, options["output"], (first, options["last"]), options["panels"])


def _serve(place: Place, first: int | None, host: str, port: int | None) -> None:
    table = place.open()
    with terminal.progress() as advance:
        history = LiveHistory(table, first, lambda done, total: advance("commits", done, total))
    told = set[str]()

    def ready(url: str) -> None:
        if place.as_json:
            terminal.json_document({"table": table.uri, "url": url})
        else:
            terminal.say(f"{url} follows {table.uri}; Ctrl-C ends it")
        if host not in _OWN:
            terminal.note(f"everybody who reaches {host} can look at this history")
        sys.stdout.flush()

    def failed(error: EventLogError) -> None:
        if error.message not in told:  # a page asks again and again
            told.add(error.message)
            terminal.note(f"{type(error).__name__}: {error.message}")

    try:
        serve_history(history, host, _PORT if port is None else port, ready=ready, failed=failed)
    except KeyboardInterrupt:
        terminal.note(f"stopped: pages show {table.uri} up to version {history.picture.last}")


def _write(
    place: Place, output: Path, versions: tuple[int | None, int | None], panels: int | None
) -> None:
    suffix = output.suffix.lower()
    _check_output(output, panels)
    table = place.open()
    with terminal.progress() as advance:
        picture = history_picture(
            table, *versions, lambda done, total: advance("commits", done, total)
        )
    body = page_of(picture).encode() if suffix in _PAGES else _still(picture, suffix, panels)
    try:
        output.write_bytes(body)
    except OSError as error:
        raise InvalidInput(f"{output} cannot be written: {error.strerror}") from None
    count, segments = len(picture.times), len(picture.blocks)
    if place.as_json:
        terminal.json_document(
            {
                "table": table.uri,
                "from": picture.first,
                "to": picture.last,
                "versions": count,
                "segments": segments,
                "output": str(output),
                "bytes": len(body),
            }
        )
        return
    what = f"{count_text(count, 'version')}, {count_text(segments, 'segment')}"
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
