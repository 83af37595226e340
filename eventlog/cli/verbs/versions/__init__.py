"""The verbs about versions: log, tag, untag, tags, bisect, blame, and view, a picture of all.

Needs the extra `cli`.
"""

from eventlog.cli.verbs.versions import bisecting, blaming, tagging, viewing
from eventlog.cli.verbs.versions.log_listing import log_

VERBS = (*tagging.VERBS, *bisecting.VERBS, *blaming.VERBS, viewing.view)

__all__ = ["VERBS", "log_"]
