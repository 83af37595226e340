"""What `fsck` tells: findings, leftovers, repairs, and the report of them all.

Words layer: values, and the list that collects them. The names of the fields are those of the
report in JSON, and stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

MAX_LISTED = 10_000  # findings, and void transactions, that a report names; all are counted

Severity = Literal["error", "warning"]
# What a leftover is, by the place where it lies:
# under data/     dropped: no longer live, waits for vacuum; staged: of an upload that may be under
#                 way; abandoned: of one that can never be committed; earlier: of before what was
#                 folded, so that nobody can tell
# under _frames/  unnamed: leaves and spills that nothing names; swept: records of earlier vacuums;
#                 earlier
# under _intents/ open: may still take effect; ended: its window has passed
# under _probe/   probe
# anywhere        foreign: a key that is none of the format's
LeftoverKind = Literal[
    "dropped", "staged", "abandoned", "earlier", "unnamed", "swept", "open", "ended", "probe",
    "foreign",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be: an error breaks FORMAT.md, a warning does not.

    Attributes:
        severity: error or warning.
        message: what is wrong.
        key: of the object concerned.
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
    """A transaction that the log holds and the fold refused, which is no fault."""

    version: int
    transaction: str
    reason: str


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Objects of one kind that nothing in the table names; never a fault."""

    place: str
    kind: LeftoverKind
    objects: int
    bytes: int
    example: str


@dataclass(frozen=True, slots=True)
class Repair:
    """What was done about a key frame object, or why nothing could be done."""

    key: str
    version: int
    done: bool
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """What fsck looked at and what it found.

    Attributes:
        table: the root URI.
        start: the version that the fold started from: 0, or that of the trusted key frame.
        head: the newest version.
        versions: commits that were folded and agree with their header.
        transactions: transactions in those commits.
        void: those of them without effect; the first `MAX_LISTED`.
        keyframes: key frames that agree with the fold, leaves included.
        bad_keyframes: those that do not. Readers step over them.
        missing_keyframes: those that commits start from, or that is due, and are not there.
        leaves: leaf objects that were read and agree.
        segments_version: the version whose segments were looked for; None: they were not.
        segments: live segments that were looked for; None likewise.
        checksummed: bytes of segments that were read and hashed.
        leftovers: objects that nothing names.
        repairs: what was repaired, and what could not be.
        errors: number of errors that stand, those that were repaired left out.
        warnings: likewise.
        findings: in the order in which they were met; the first `MAX_LISTED`.
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
    leftovers: tuple[Leftovers, ...]
    repairs: tuple[Repair, ...]
    errors: int
    warnings: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether no error stands; warnings may be there."""
        return not self.errors


class Findings:
    """The findings of one run, as they come; bounded, whatever a table holds."""

    def __init__(self) -> None:
        self._listed: list[Finding] = []
        self._counts: dict[Severity, int] = {"error": 0, "warning": 0}

    @property
    def listed(self) -> tuple[Finding, ...]:
        """The first `MAX_LISTED` of them."""
        return tuple(self._listed)

    @property
    def errors(self) -> int:
        """The number of errors that stand."""
        return self._counts["error"]

    @property
    def warnings(self) -> int:
        """The number of warnings that stand."""
        return self._counts["warning"]

    def add(self, severity: Severity, message: str, key: str, version: int | None = None) -> None:
        """Note one finding."""
        self._counts[severity] += 1
        if len(self._listed) < MAX_LISTED:
            self._listed.append(Finding(severity, message, key, version))

    def repaired(self, key: str) -> None:
        """Note that what was found of this object stands no more."""
        for at, finding in enumerate(self._listed):
            if finding.key == key and not finding.repaired:
                self._listed[at] = replace(finding, repaired=True)
                self._counts[finding.severity] -= 1
