"""The picture of a table's history: one self-contained page, on which a slider chooses a version.

`history_picture` (`history_reading`) reads the log of a table, and `picture` has the model without
I/O. `page` makes the page of it, from the files of `page_files/`: HTML, CSS and plain JavaScript.
`still` draws some versions side by side, from where `stacks` puts their blocks.
"""

from eventlog.view.history_reading import history_picture
from eventlog.view.page import page_of
from eventlog.view.picture import Picture
from eventlog.view.raster import png_of
from eventlog.view.still import chosen_versions, still_of

__all__ = ["Picture", "chosen_versions", "history_picture", "page_of", "png_of", "still_of"]
