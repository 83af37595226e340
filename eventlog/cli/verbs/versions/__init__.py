"""The verbs about single versions: tag, untag, tags and bisect.

Needs the extra `cli`.
"""

from eventlog.cli.verbs.versions import bisecting, tagging

VERBS = (*tagging.VERBS, *bisecting.VERBS)

__all__ = ["VERBS"]
