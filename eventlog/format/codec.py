"""Canonical JSON of commits and key frame roots, and the hashes over it.

Pure layer. There is one encoding of every value (FORMAT.md "Canonical JSON"): UTF-8, no white
space, fields in the order of `eventlog.model.records`, no floats, optional fields always written.
Decoding is strict: after the size and depth bounds, whatever does not encode back to the very same
bytes is refused, which rules out duplicate keys, other number forms and unknown fields in one
stroke.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from eventlog import limits
from eventlog.errors import Corrupt, InvalidInput, UnsupportedFormat
from eventlog.format import keys, wellformed
from eventlog.format.seal import sealed, unsealed
from eventlog.model.records import (
    FORMAT_NAME,
    FORMAT_VERSION,
    KNOWN_FEATURES,
    Commit,
    Header,
    KeyFrame,
    Meta,
    Segment,
    Transaction,
)

MAX_COMMIT_BYTES = limits.COMMIT_BYTES
MAX_KEYFRAME_BYTES = limits.KEYFRAME_BYTES
MAX_INTENT_BYTES = limits.INTENT_BYTES
HEADER_BYTES = limits.HEADER_BYTES
MAX_DEPTH = limits.JSON_DEPTH
HASH_MODULUS = 2**256

_HEADER_START = b'{"header":'
_encoder = msgspec.json.Encoder()
_PLAIN = rb'[^"\[\]{}]++|"(?:[^"\\]|\\.)*+"'
_Model = TypeVar("_Model", Commit, KeyFrame, Transaction)


class _Format(msgspec.Struct, frozen=True):
    """The fields that say whether the rest can be understood at all."""

    format: str
    min_reader: int
    features: tuple[str, ...] = ()
    min_writer: int = FORMAT_VERSION


class _Envelope(msgspec.Struct, frozen=True):
    header: _Format


def encode_commit(commit: Commit) -> bytes:
    """Return the commit's canonical bytes: header and whole each end with their own sha256.

    Raises:
        InvalidInput: the commit would pass `MAX_COMMIT_BYTES`, its header `HEADER_BYTES`.
    """
    try:
        plain = _encoder.encode(commit.header)
    except OverflowError:
        raise InvalidInput("the table's totals would pass 64 bits") from None
    head = _HEADER_START + sealed(plain)
    if len(head) > HEADER_BYTES:
        raise InvalidInput(
            f"the commit's header takes {len(head)} bytes of {HEADER_BYTES}: "
            "shorten the writer's name"
        )
    body = sealed(head + _encoder.encode(commit)[len(_HEADER_START) + len(plain) :])
    if len(body) > MAX_COMMIT_BYTES:
        raise InvalidInput(
            f"the commit takes {len(body)} bytes of {MAX_COMMIT_BYTES}: "
            "shorten its schema, properties or info, or remove app ids"
        )
    return body


def decode_commit(body: bytes, version: int | None = None) -> Commit:
    """Return the commit in `body`, refusing whatever is not exactly its canonical encoding.

    Raises:
        Corrupt: not a commit, not canonical, or not the commit of `version`.
        UnsupportedFormat: written for a newer reader.
    """
    _check_size(body, MAX_COMMIT_BYTES)  # against size-checked-after-parsing
    _check_readable(_decode(body, _Envelope, "commit").header)
    text = unsealed(body, "commit")
    header_end = _header_end(text)
    header = unsealed(text[len(_HEADER_START) : header_end], "commit header")
    plain = _HEADER_START + header + text[header_end:]
    commit = _decode_canonical(plain, Commit, "commit")
    wellformed.check_header(commit.header, version)
    wellformed.check_commit(commit)
    return commit


def decode_header(prefix: bytes, version: int | None = None) -> Header:
    """Return the header from the first `HEADER_BYTES` bytes of a commit (or from all of it).

    Raises:
        Corrupt: no header of the commit of `version` lies there.
        UnsupportedFormat: written for a newer reader.
    """
    whole = prefix[len(_HEADER_START) : _header_end(prefix)]
    _check_readable(_decode(whole, _Format, "commit header"))
    text = unsealed(whole, "commit header")
    header: Header = _decode(text, Header, "commit header")
    if _encoder.encode(header) != text:
        raise Corrupt("the commit header is not in canonical form", version=version)
    wellformed.check_header(header, version)
    return header


def encode_keyframe(keyframe: KeyFrame) -> bytes:
    """Return the root's canonical bytes, with their own sha256 as the last field.

    Raises:
        InvalidInput: the root would pass `MAX_KEYFRAME_BYTES`: nobody could read it.
    """
    body = sealed(_encoder.encode(keyframe))
    if len(body) > MAX_KEYFRAME_BYTES:
        raise InvalidInput(
            f"the key frame's root takes {len(body)} bytes of {MAX_KEYFRAME_BYTES}: "
            "remove properties of your own, and use fewer app ids"
        )
    return body


def decode_keyframe(body: bytes, version: int) -> KeyFrame:
    """Return the key frame root in `body`.

    Raises:
        Corrupt: not a key frame root, not canonical, or of another version.
        UnsupportedFormat: written for a newer reader.
    """
    _check_size(body, MAX_KEYFRAME_BYTES)
    _check_readable(_decode(body, _Format, "key frame"))
    # No hash of a commit covers what a root says of its leaves, and that decides what is read.
    root = _decode_canonical(unsealed(body, "key frame"), KeyFrame, "key frame")
    wellformed.check_root(root)
    if root.version != version:
        raise Corrupt(
            f"the key frame of version {version} says it is of {root.version}", version=version
        )
    return root


def encode_transaction(transaction: Transaction, table: str) -> bytes:
    """Return a published transaction's canonical bytes; their digest covers the table's id too."""
    return sealed(_encoder.encode(transaction), table)


def decode_transaction(body: bytes, table: str) -> Transaction:
    """Return the transaction in `body` that was published for a table.

    Raises:
        Corrupt: not a transaction, not canonical, or published for another table.
    """
    _check_size(body, MAX_INTENT_BYTES)
    # Whoever takes it along commits it for another: no later check would see a flipped bit.
    text = unsealed(body, "published transaction", table)
    transaction = _decode_canonical(text, Transaction, "published transaction")
    wellformed.check_transaction(transaction)
    return transaction


def decode_whole(transaction: Transaction) -> None:
    """Check that a transaction made in this program is one of the format, whatever its size.

    Raises:
        Corrupt: a value that the format does not have, such as a negative count.
    """
    try:
        body = _encoder.encode(transaction)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Corrupt(f"not a transaction: {error}") from None
    _decode(body, Transaction, "transaction")


def sha256(body: bytes | memoryview) -> str:
    """Return the sha256 of the bytes, lower-case hexadecimal."""
    return hashlib.sha256(body).hexdigest()


def entry_hash(segment: Segment) -> int:
    """Return the sha256 of the entry's canonical JSON as an integer."""
    return _digest(segment)


def entry_digests(entries: Sequence[Segment]) -> list[bytes]:
    """Return the sha256 of each entry's canonical JSON: `entry_hash` in bytes, for many at once."""
    # A line break inside a text is escaped, so that one in the bytes only ever ends an entry.
    lines = _encoder.encode_lines(entries).split(b"\n")
    return [hashlib.sha256(line).digest() for line in lines[:-1]]


def hex_hash(value: int) -> str:
    """Return a hash or a sum of hashes, mod 2^256, as 64 hexadecimal digits."""
    return f"{value % HASH_MODULUS:064x}"


def parse_hash(text: str) -> int:
    """Return the integer of 64 hexadecimal digits.

    Raises:
        Corrupt: the text is something else.
    """
    keys.frame_key(text)
    return int(text, 16)


def meta_hash(meta: Meta) -> int:
    """Return the sum mod 2^256 of the sha256 of each entry of the small state.

    A field that is a map has one entry a name, the JSON `[field, name, value]`; any other has the
    entry `[field, null, value]` while it is not its default.
    """
    return meta_hash_change(_EMPTY_META, meta)


def meta_hash_change(old: Meta, new: Meta) -> int:
    """Return `meta_hash(new) - meta_hash(old)` at the cost of what differs."""
    total = 0
    for (field, before), (_, after) in zip(_fields(old), _fields(new), strict=True):
        if before is after or before == after:
            continue
        if not isinstance(after, dict):
            total += _whole(field, after) - _whole(field, before)
            continue
        for name in before.keys() | after.keys():
            if before.get(name) != after.get(name):
                total += _item(field, name, after.get(name)) - _item(field, name, before.get(name))
    return total % HASH_MODULUS


def meta_diff(old: Meta, new: Meta) -> dict[str, Any]:
    """Return what of `new` differs from `old`, as a commit's `state` field holds it.

    Fields in model order, names in UTF-8 byte order.
    """
    diff: dict[str, Any] = {}
    for (field, before), (_, after) in zip(_fields(old), _fields(new), strict=True):
        if isinstance(after, dict):
            names = sorted((before.keys() | after.keys()), key=str.encode)
            change = {n: after.get(n) for n in names if before.get(n) != after.get(n)}
            if change:
                diff[field] = {n: msgspec.to_builtins(v) for n, v in change.items()}
        elif before != after:
            diff[field] = msgspec.to_builtins(after)
    return diff


def meta_patch(old: Meta, diff: dict[str, Any]) -> Meta:
    """Return the small state that `diff` makes of `old`.

    Raises:
        Corrupt: a field that this format does not have, a value of the wrong shape, or one that
            changes nothing: `diff` is not what `meta_diff` returns.
    """
    changed: dict[str, Any] = {}
    for field, change in diff.items():
        if field not in _CHANGE_TYPES:
            raise Corrupt(f"the commit's state has an unknown field {field[:80]!r}")
        try:
            value = msgspec.convert(change, _CHANGE_TYPES[field], strict=True)
        except msgspec.ValidationError as error:
            raise Corrupt(f"the commit's state breaks the format: {error}") from None
        before = getattr(old, field)
        if not isinstance(before, dict):
            idle = value == before
            changed[field] = value
        else:
            idle = not value or any(before.get(n) == v for n, v in value.items())
            changed[field] = _merged(before, value)
        if idle:
            raise Corrupt(f"the commit's state repeats in {field!r} what its key frame says")
        if _encoder.encode(value) != _encoder.encode(change):
            raise Corrupt(f"the commit's state field {field!r} is not in canonical form")
    return msgspec.structs.replace(old, **changed)


def _merged(before: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return a map after a change of it, in UTF-8 byte order of the names."""
    merged = {**before, **change}
    return {name: merged[name] for name in sorted(merged) if merged[name] is not None}


_EMPTY_META = Meta()
# What the commit's field `state` holds of each field: maps by name, null for a removed name.
_CHANGE_TYPES: dict[str, Any] = {
    field.name: dict[str, field.type.__args__[1] | None]  # type: ignore[name-defined]
    if isinstance(getattr(_EMPTY_META, field.name), dict)
    else field.type
    for field in msgspec.structs.fields(Meta)
}


def _fields(meta: Meta) -> list[tuple[str, Any]]:
    return [(field, getattr(meta, field)) for field in Meta.__struct_fields__]


def _whole(field: str, value: Any) -> int:
    return 0 if value == getattr(_EMPTY_META, field) else _digest([field, None, value])


def _item(field: str, name: str, value: Any) -> int:
    return 0 if value is None else _digest([field, name, value])


def _digest(entry: Any) -> int:
    return int.from_bytes(hashlib.sha256(_encoder.encode(entry)).digest(), "big")


def _header_end(text: bytes) -> int:
    start = len(_HEADER_START)
    found = _OBJECT.match(text[:HEADER_BYTES], start) if text.startswith(_HEADER_START) else None
    if found is None:
        raise Corrupt("the first 2 KB hold no commit header")
    return found.end()


def _check_size(body: bytes, limit: int) -> None:
    """Bound the size before any parser sees the bytes (hostile input)."""
    if len(body) > limit:
        raise Corrupt(f"{len(body)} bytes of JSON, more than the {limit} that the format allows")


def _object_pattern() -> re.Pattern[bytes]:
    """Return what matches one object, as deep as the format allows, in time that is linear."""
    inside = b"(?:" + _PLAIN + b")*+"
    for _ in range(MAX_DEPTH):
        inside = b"(?:" + _PLAIN + rb"|[\[{]" + inside + rb"[\]}])*+"
    return re.compile(rb"\{" + inside + rb"\}", re.DOTALL)


_OBJECT = _object_pattern()


# Resolved once, here: threads that meet a type for the first time at once crash msgspec.
_MODELS = (_Envelope, _Format, Commit, Header, KeyFrame, Meta, Transaction)
_DECODERS: dict[type[Any], Any] = {m: msgspec.json.Decoder(m, strict=True) for m in _MODELS}


def _decode(body: bytes, model: type[Any], what: str) -> Any:
    try:
        return _DECODERS[model].decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"not a {what}: {error}") from None


def _decode_canonical(body: bytes, model: type[_Model], what: str) -> _Model:
    value: _Model = _decode(body, model, what)
    try:
        again = _encoder.encode(value)
    except (ValueError, OverflowError, RecursionError) as error:
        raise Corrupt(f"the {what} is not in canonical form: {error}") from None
    if again != body:  # against other-spellings-accepted
        raise Corrupt(f"the {what} is not in canonical form (FORMAT.md R5.3)")
    return value


def _check_readable(fields: _Format) -> None:
    if fields.format != FORMAT_NAME:
        raise Corrupt(f"format {fields.format[:80]!r} is not {FORMAT_NAME!r}")
    unknown = sorted(set(fields.features) - KNOWN_FEATURES)
    if fields.min_reader > FORMAT_VERSION or unknown:  # against newer-format-read
        needs = f"format {fields.min_reader}" + (f" with {', '.join(unknown)}" if unknown else "")
        raise UnsupportedFormat(
            f"the table needs a reader of {needs}; this release reads format {FORMAT_VERSION}: "
            "upgrade eventlog"
        )
