"""The verbs about versions: tag, untag, tags and bisect, and view, the picture of all of them.

Needs the extra `cli`.
"""

from eventlog.cli.verbs.versions import bisecting, tagging, viewing

VERBS = (*tagging.VERBS, *bisecting.VERBS, viewing.view)

__all__ = ["VERBS"]
