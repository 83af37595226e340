"""A still as PNG. Needs the extra `png`."""

from __future__ import annotations

from eventlog.errors import InvalidInput

_ZOOM = 2.0  # pixels of the PNG for one of the still
_PROBE = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">{}</svg>'
_LETTER = (
    "<text y=\"9\" font-family=\"Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans'\">E</text>"
)


def png_of(still: str) -> bytes:
    """Return a still as PNG, twice as wide and high in pixels.

    Args:
        still: the SVG of `still_of`.

    Raises:
        InvalidInput: the extra is missing, or the machine has no font for the texts.
    """
    try:
        from resvg_py import svg_to_bytes  # noqa: PLC0415 - an extra
    except ImportError:
        raise InvalidInput(
            "a PNG needs resvg-py: pip install 'eventlog-tables[png]'; or name a file that ends "
            "with .svg, which needs nothing"
        ) from None
    # The converter leaves out a text that no font can show.
    letter, blank = (bytes(svg_to_bytes(svg_string=_PROBE.format(t))) for t in (_LETTER, ""))
    if letter == blank:
        raise InvalidInput(
            "this machine has no font for the texts of a PNG: install DejaVu Sans (Debian: "
            "fonts-dejavu-core) or Liberation Sans; or name a file that ends with .svg"
        )
    return bytes(svg_to_bytes(svg_string=still, zoom=_ZOOM))
