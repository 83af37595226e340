"""What may be published as Delta, where a publication begins, and what is put of it. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from eventlog.display import command
from eventlog.errors import Corrupt, InvalidInput
from eventlog.log.snapshot import Snapshot
from eventlog.publishing.delta.delta_listing import DeltaListing
from eventlog.publishing.delta.translation import delta_commits
from eventlog.publishing.delta.translation.checkpoints import is_due
from eventlog.publishing.delta.translation.delta_schema import check_types
from eventlog.publishing.positions import shows_stored_rows
from eventlog.publishing.publication import made_again

_FORMAT = "delta"


class VersionPuts(NamedTuple):
    """What is put of a version.

    Attributes:
        commit: whether its commit is put; if not, the one that lies there is compared.
        checkpoint: whether its checkpoint is put, before or after the commit; None: it is not.
    """

    commit: bool
    checkpoint: Literal["before", "after"] | None


@dataclass(frozen=True, slots=True)
class DeltaPlan:
    """What a call has to put.

    Attributes:
        listing: what lies in the Delta log.
        start: where the publication begins.
        known: the newest version that is published, which is compared; None: none is.
    """

    listing: DeltaListing
    start: int
    known: int | None

    @classmethod
    def of(cls, listing: DeltaListing, start: int) -> DeltaPlan:
        """Return the plan of a publication.

        Args:
            listing: what lies in the Delta log.
            start: where the publication begins.
        """
        known = listing.commits[-1] if listing.commits else None
        # A vacuum overtook a publication that ends before it begins.
        return cls(listing, start, None if known is not None and known < start else known)

    def first_step(self, target: int) -> int:
        """Return the version to begin at: the newest known one is compared.

        Args:
            target: the last version to publish.
        """
        return self.start if self.known is None else min(self.known, target)

    @property
    def reached(self) -> int:
        """The newest published version; the one before the first if none is."""
        return self.start - 1 if self.known is None else self.known

    def puts(self, version: int) -> VersionPuts:
        """Return what is put of a version."""
        is_new, listing = version > self.reached, self.listing
        if not is_due(version, self.start):
            return VersionPuts(is_new, None)
        if version == self.start:  # before the commit, which is no table by itself
            return VersionPuts(is_new, "before" if is_new else None)
        # A publisher that was killed may have put the commit without its checkpoint.
        named = version in listing.checkpoints and (listing.hinted or 0) >= version
        return VersionPuts(is_new, None if named else "after")


def check_beginning(start: int, first: int | None, target: int, uri: str) -> None:
    """Refuse a publication that begins too late.

    Args:
        start: where it begins.
        first: where it is asked to begin; None: anywhere.
        target: the last version to publish.
        uri: of the table.

    Raises:
        InvalidInput: it begins above `first` or `target`.
    """
    if first is not None and first < start:
        raise InvalidInput(
            f"the publication begins at version {start}. This publishes again from version "
            f"{first}: {begun_again(uri, first)}",
            table=uri,
        )
    if start > target:
        raise InvalidInput(
            f"version {target} cannot be the last one of a publication that begins at version "
            f"{start}",
            table=uri,
        )


def check_whole(listing: DeltaListing, head: Snapshot, uri: str) -> None:
    """Check that no published version is missing.

    Args:
        listing: what lies in the Delta log.
        head: the newest version of the table.
        uri: of the table.

    Raises:
        Corrupt: one is missing between others, or readers find no beginning.
    """
    horizon, mend = head.meta.horizon, made_again(_FORMAT, uri, listing.spans(head))
    lost = listing.gap(horizon)
    if lost is not None:  # against gap-in-a-publication
        raise Corrupt(
            f"version {lost} is missing in the publication: {mend}",
            table=uri,
            key=delta_commits.delta_commit_key(lost),
            version=lost,
        )
    if listing.lacks_beginning(horizon):  # against publication-without-a-beginning
        first = listing.commits[0]
        raise Corrupt(
            f"the beginning of the publication is missing: engines need version {first - 1}, or "
            f"the checkpoint of version {first}, to open the later ones: {mend}",
            table=uri,
            key=delta_commits.delta_commit_key(first - 1),
            version=first - 1,
        )


def check_table(snapshot: Snapshot, uri: str, root: str, *, is_branch: bool) -> None:
    """Refuse by name the tables that a Delta log cannot describe.

    Args:
        snapshot: of the table.
        uri: of the table.
        root: the URI that engines open.
        is_branch: whether segments lie outside of that root.

    Raises:
        InvalidInput: it is one.
    """
    if is_branch:  # against branch-published-as-delta
        raise InvalidInput(
            "a branch is not published as Delta, whose readers find no segments outside of its "
            "root: publish it as Iceberg, or publish the branch into its parent with "
            f"{command('merge', uri)}",
            table=uri,
        )
    rule = snapshot.merge_rule
    if rule is not None and not shows_stored_rows(rule):  # against made-rows-published-as-delta
        raise InvalidInput(
            f"a table with merge={rule.kind} is not published as Delta: its readers are shown "
            "rows that are stored nowhere. Publish its compacted versions as Iceberg, or a "
            "copy of its rows without a key",
            table=uri,
        )
    if "%" in root:  # against path-that-delta-decodes
        raise InvalidInput(
            "readers of Delta decode the path, and look in another place: publish a table "
            "whose path has no '%'",
            table=uri,
        )
    check_types(snapshot.stored_schema)


def other_object(uri: str, key: str, version: int, body: bytes, table: str = "") -> Corrupt:
    """Return the error for an object that another publication, or program, put.

    Args:
        uri: of the table.
        key: of the object.
        version: that it stands for.
        body: its bytes.
        table: the id of the table; empty: it does not matter.
    """
    named, _ = delta_commits.publisher_of(body)
    why = "is not what this version is published as: another program wrote it, or the table"
    why += " was restored from an older copy"
    if named is not None and table and named != table:
        why = f"publishes another table (id {named}), which was replaced or copied"
    return Corrupt(
        f"the object {why}. {taking_back(uri)}, and publish again",
        table=uri,
        key=key,
        version=version,
    )


def begun_again(uri: str, first: int | Literal["N"]) -> str:
    """Return the commands that take a publication back, and let it begin at a version."""
    publishing = command("publish", _FORMAT, uri, "--from", str(first))
    return f"{command('unpublish', _FORMAT, uri, '--run')}, then {publishing}"


def taking_back(uri: str) -> str:
    """Return the advice to take the publication of a table back."""
    return f"Take the publication back with {command('unpublish', _FORMAT, uri, '--run')}"
