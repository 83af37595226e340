"""The report of `fsck`: findings, leftovers, repairs.

The fields have the names that the JSON report uses, which must not change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

MAX_LISTED = 10_000  # findings, and void transactions, that a report lists; all are counted

Severity = Literal["error", "warning"]
# The kinds of leftovers, by place:
# under data/     dropped: no longer live, waits for vacuum; staged: of an upload that may be in
#                 progress; abandoned: of an upload that can no longer be committed; earlier: of an
#                 epoch before the folded versions, so the kind is unknown
# under _frames/  unnamed: leaves and spills that nothing refers to; swept: records of earlier
#                 vacuums; earlier: unknown, since earlier versions were not folded
# under _packs/   unnamed: packs that no key frame names; earlier: unknown, as under _frames/
# under _intents/ open: may still take effect; ended: its window has passed
# under _probe/   probe
# anywhere        foreign: the key does not belong to the format
LeftoverKind = Literal[
    "dropped", "staged", "abandoned", "earlier", "unnamed", "swept", "open", "ended", "probe",
    "foreign",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem: an error violates FORMAT.md, a warning does not.

    Attributes:
        severity: error or warning.
        message: what is wrong.
        key: of the object concerned, if it is one.
        version: the version concerned.
        repaired: whether this run repaired it.
    """

    severity: Severity
    message: str
    key: str | None = None
    version: int | None = None
    repaired: bool = False


@dataclass(frozen=True, slots=True)
class VoidTransaction:
    """A transaction in the log that the fold refused, which is not an error."""

    version: int
    transaction: str
    reason: str


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Objects of one kind that nothing in the table refers to; never an error."""

    place: str
    kind: LeftoverKind
    objects: int
    bytes: int
    example: str


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done to repair a key frame object, or why it could not be repaired."""

    key: str
    version: int
    done: bool
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """What fsck checked and found.

    Attributes:
        table: the root URI.
        start: the version that the fold started from: 0, or that of the trusted key frame.
        head: the newest version.
        versions: number of commits that were folded and agree with their header.
        transactions: number of transactions in those commits.
        void: those of them without effect; the first `MAX_LISTED`.
        keyframes: number of key frames that agree with the fold, leaves included.
        bad_keyframes: number of those that do not. Readers skip them.
        missing_keyframes: number of missing key frames that commits start from, or that are due.
        leaves: number of leaf objects that were read and agree.
        segments_version: the version whose segments were checked; None if none were.
        segments: number of live segments that were checked; None if none were.
        checksummed: bytes of segments that were read and hashed.
        keys_checked: rows whose keys were checked; None if none were.
        leftovers: objects that nothing refers to.
        repairs: what was repaired, and what could not be.
        errors: number of errors, without those that were repaired.
        warnings: number of warnings, likewise.
        findings: in the order of discovery; the first `MAX_LISTED`.
    """

    table: str
    start: int
    head: int
    versions: int
    transactions: int
    void: tuple[VoidTransaction, ...]
    keyframes: int
    bad_keyframes: int
    missing_keyframes: int
    leaves: int
    segments_version: int | None
    segments: int | None
    checksummed: int
    keys_checked: int | None
    leftovers: tuple[Leftovers, ...]
    repairs: tuple[Repair, ...]
    errors: int
    warnings: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether there are no errors left; there may be warnings."""
        return not self.errors


class Findings:
    """The findings of one run; all are counted, and the first `MAX_LISTED` are kept."""

    def __init__(self) -> None:
        self._listed: list[Finding] = []
        self._counts: dict[Severity, int] = {"error": 0, "warning": 0}

    @property
    def listed(self) -> tuple[Finding, ...]:
        """The first `MAX_LISTED` of them."""
        return tuple(self._listed)

    @property
    def errors(self) -> int:
        """The number of errors that were not repaired."""
        return self._counts["error"]

    @property
    def warnings(self) -> int:
        """The number of warnings that were not repaired."""
        return self._counts["warning"]

    def add(
        self, severity: Severity, message: str, key: str | None, version: int | None = None
    ) -> None:
        """Add one finding."""
        self._counts[severity] += 1
        if len(self._listed) < MAX_LISTED:
            self._listed.append(Finding(severity, message, key, version))

    def repaired(self, key: str) -> None:
        """Mark the findings about this object as repaired."""
        for at, finding in enumerate(self._listed):
            if finding.key == key and not finding.repaired:
                self._listed[at] = replace(finding, repaired=True)
                self._counts[finding.severity] -= 1
