"""Replication: copies of a table that follow it, and merging histories that have diverged.

Since a log is a chain of hashes over immutable objects, a replica, a backup and a move to another
bucket are the same thing: a copy, byte for byte, that can go on from where it stopped. Start at
`follow.follow`.
"""

from eventlog.merging.merger import Merged
from eventlog.replication.attachment import break_replica, detach, replicas
from eventlog.replication.backfill import Backfilled, backfill
from eventlog.replication.follow import Followed, Follower, follow
from eventlog.replication.merge import merge

__all__ = [
    "Backfilled",
    "Followed",
    "Follower",
    "Merged",
    "backfill",
    "break_replica",
    "detach",
    "follow",
    "merge",
    "replicas",
]
