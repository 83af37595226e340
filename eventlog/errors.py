"""The errors of eventlog: one tree, ordered by what the caller does next.

No exception of boto3, pyarrow or the operating system leaves the storage adapters; every error
that a caller can see is defined here.
"""

from __future__ import annotations

from typing import Any


class EventLogError(Exception):
    """Base of every error raised by eventlog.

    Attributes:
        table: root URI of the table, where known.
        key: key of the object concerned, relative to the root, where known.
        version: the version concerned, where known.
        transaction: id of the transaction concerned, where known.
    """

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        key: str | None = None,
        version: int | None = None,
        transaction: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.table = table
        self.key = key
        self.version = version
        self.transaction = transaction

    def __str__(self) -> str:
        facts = {
            "table": self.table,
            "key": self.key,
            "version": self.version,
            "transaction": self.transaction,
        }
        known = ", ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
        return f"{self.message} ({known})" if known else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments: Spark carries these errors between processes by pickle.
        return (type(self), (self.message,), self.__dict__)


class InvalidInput(EventLogError, ValueError):
    """The call is wrong: fix it and call again."""

    exit_code = 2


class NotFound(EventLogError):
    """The requested table, version or object does not exist."""


class TableNotFound(NotFound):
    """There is no log under this root, or it is not the one that the handle was opened on."""


class VersionNotFound(NotFound):
    """The table does not have this version (yet), or did not exist at this time."""


class VersionNotReplicated(VersionNotFound):
    """This copy of the table does not have the version; the one that it follows may have it."""


class VersionVacuumed(NotFound):
    """The version is below the table's horizon: its segments may be gone."""


class VersionCut(VersionVacuumed):
    """The log is cut above the version: of its commit only the header is left."""


class KeyNotFound(NotFound):
    """The store has no object under this key."""


class AlreadyExists(EventLogError):
    """The name is taken: choose another."""

    exit_code = 3


class CommitConflict(EventLogError):
    """The transaction cannot be rebased onto the head: read again and decide again.

    Nothing was committed. The message names what changed, and in which version.
    """

    exit_code = 3


class CommitUnknown(EventLogError):
    """The outcome of a commit is still unknown after all retries.

    Pass the same transaction to `Table.commit` of the same handle again, which first checks whether
    it was committed. Or call
    `Table.find_transaction(error.transaction, start=error.version, until=error.until)`. Until the
    table has reached version `until`, the commit may still arrive, and the call raises this error
    again.

    Attributes:
        until: the last version in which the transaction can take effect, where known.
    """

    def __init__(self, message: str, *, until: int | None = None, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.until = until


class ClaimLost(EventLogError):
    """The claim of this writer was revoked or broken: stop."""

    exit_code = 3


class Unavailable(EventLogError):
    """The store did not answer in time: try later. Nothing was changed by a read."""


class OutcomeUnknown(Unavailable):
    """A `put_if_absent` got no clear answer: the object may be there, or may still arrive."""


class UnsupportedFormat(EventLogError):
    """The table, or this request, needs a newer release of eventlog: upgrade."""


class Corrupt(EventLogError):
    """Stored bytes violate FORMAT.md: stop and investigate. Nothing is skipped silently."""

    exit_code = 4


class DataLoss(Corrupt):
    """A segment that this version needs is missing or damaged.

    Attributes:
        damage: what is wrong with its object, where known.
    """

    def __init__(self, message: str, *, damage: str | None = None, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.damage = damage
