"""The verbs about versions: tag, untag, tags, bisect, blame, and view, a picture of all of them.

Needs the extra `cli`.
"""

from eventlog.cli.verbs.versions import bisecting, blaming, tagging, viewing

VERBS = (*tagging.VERBS, *bisecting.VERBS, *blaming.VERBS, viewing.view)

__all__ = ["VERBS"]
