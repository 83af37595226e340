"""The picture of a table's history: one self-contained page, on which a slider chooses a version.

`history_picture` (`history_reading`) reads the log of a table, and `picture` has the model without
I/O. `page` makes the page of it, from the files of `page_files/`: HTML, CSS and plain JavaScript.
`still` draws some versions side by side, from where `stacks` puts their blocks. `serving` serves
the page of a table that goes on, with what `live_history` has read.
"""

from eventlog.view.history_reading import history_picture
from eventlog.view.live_history import LiveHistory
from eventlog.view.page import page_of
from eventlog.view.picture import Picture
from eventlog.view.raster import png_of
from eventlog.view.serving import serve_history
from eventlog.view.still import chosen_versions, still_of

__all__ = [
    "LiveHistory",
    "Picture",
    "chosen_versions",
    "history_picture",
    "page_of",
    "png_of",
    "serve_history",
    "still_of",
]
