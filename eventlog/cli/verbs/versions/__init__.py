"""The verbs about single versions: tag, untag and tags.

Needs the extra `cli`.
"""

from eventlog.cli.verbs.versions import tagging

VERBS = tagging.VERBS

__all__ = ["VERBS"]
