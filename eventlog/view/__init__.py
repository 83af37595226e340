"""The picture of a table's history: one self-contained page, on which a slider chooses a version.

`history_picture` (`history_reading`) reads the log of a table, `picture` has the model without I/O,
and `page` makes the page of it, from the files of `page_files/`: HTML, CSS and plain JavaScript.
"""

from eventlog.view.history_reading import history_picture
from eventlog.view.page import page_of
from eventlog.view.picture import Picture

__all__ = ["Picture", "history_picture", "page_of"]
