"""Tags: names of versions. A tag is a pin without a holder, so that a name is found in the log.

Its owner is one word for all tables: whoever may commit may remove it. Wherever a version is asked
for, the name of a tag, or of any other pin but those of branches, names one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias
from unicodedata import normalize

from eventlog.arguments import shown, text, whole
from eventlog.errors import InvalidInput, VersionNotFound
from eventlog.model.records import Meta
from eventlog.query.moments import to_ms
from eventlog.session.branch_pins import PREFIX
from eventlog.session.session import Session

VersionOrName: TypeAlias = "int | str"

TAG_OWNER = "eventlog tag"

_NUMBER = re.compile(r"[+-]?\d+")
_LISTED = 20  # names in a message


def tag_versions(meta: Meta) -> dict[str, int]:
    """Return the versions of the tags, by name."""
    return {name: pin.version for name, pin in meta.pins.items() if pin.owner == TAG_OWNER}


def check_tag_name(name: str) -> None:
    """Check that a tag may have a name: it reads as nothing else that can stand for a version.

    Raises:
        InvalidInput: it may not; the message has the reason.
    """
    text(name, "a tag's name")
    if hint := composed_hint(name):
        raise InvalidInput(f"a tag cannot be called {shown(name)}{hint}")
    if why := _misread(name):
        raise InvalidInput(f"a tag cannot be called {shown(name)}, {why}: choose another name")


def parse_version(given: str) -> VersionOrName:
    """Return the version that a text names: a number as such, and any other name as it is.

    Raises:
        InvalidInput: it is empty, or a number that no version has.
    """
    if not _NUMBER.fullmatch(given):
        return text(given, "a version")
    plain = given.isascii() and given.isdigit() and len(given) < 20
    return whole(int(given) if plain else given, "a version")


def version_number(session: Session, version: VersionOrName, name: str = "version") -> int:
    """Return the number of a version that is given by its number or by the name of a tag or pin.

    A number costs no request. A name is looked up in the newest version.

    Args:
        session: of the table.
        version: the number, or the name.
        name: of the argument, for the message.

    Raises:
        InvalidInput: it is neither.
        VersionNotFound: there is no such tag or pin; the message lists the tags.
    """
    if not isinstance(version, str):
        return whole(version, name)
    if _NUMBER.fullmatch(version):
        raise InvalidInput(
            f"{name} is a whole number from 0, or the name of a tag, not the text {version!r}"
        )
    meta = session.refresh().meta
    known = text(version, name) in meta.pins and not version.startswith(PREFIX)
    if not known:
        raise VersionNotFound(
            f"no tag is called {shown(version)}{composed_hint(version)}; "
            f"tags: {_tags_text(tag_versions(meta))}",
            table=session.uri,
        )
    return meta.pins[version].version


def composed_hint(name: str) -> str:
    """Return how a message continues behind a name that is spelled otherwise than tags are.

    A letter with an accent is one character or two, which look alike. Unicode's form NFC has one:
    https://www.unicode.org/reports/tr15/.
    """
    composed = normalize("NFC", name)
    if composed == name:
        return ""
    return f", which is {name!a}: write {shown(composed)} ({composed!a}), its NFC form"


def _misread(name: str) -> str | None:
    """Return what else a name could be read as, or why it cannot be written in a shell."""
    if _NUMBER.fullmatch(name):
        return "which is a number"
    if name == "main":
        return "as Iceberg calls the newest version"
    if name.startswith("-"):
        return "which a shell takes for an option"
    if name.startswith(PREFIX):
        return "the beginning of the names of branches' pins"
    if any(one in "@/" or one.isspace() or not one.isprintable() for one in name):
        return "with @, / or a space"
    try:
        to_ms(name)
    except InvalidInput:
        return None
    return "which is a time"


def _tags_text(tags: Mapping[str, int]) -> str:
    shown_tags = [f"{name} ({version})" for name, version in list(tags.items())[:_LISTED]]
    more = [f"and {len(tags) - _LISTED:,} more"] if len(tags) > _LISTED else []
    return ", ".join([*shown_tags, *more]) or "none; `eventlog tag` makes one"
