"""Puts the manifests, deletes and manifest lists of versions, unless they are there.

What lies there is the only state. An object's key stands for what it has, so one that is listed is
not written again; one that appears meanwhile is compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from eventlog.display import command
from eventlog.errors import Corrupt, KeyNotFound
from eventlog.format import entry_order, keys
from eventlog.format.deletion_vectors import vector_hash
from eventlog.format.frames import entry_columns
from eventlog.log.snapshot import Snapshot
from eventlog.model.entries import Segment, deleted_rows
from eventlog.model.records import Leaf
from eventlog.publishing.iceberg.translation.avro_files import (
    DATA,
    DELETES,
    EntryRecord,
    Record,
    avro_records,
    compact_json,
    manifest_list_bytes,
    same_avro,
)
from eventlog.publishing.iceberg.translation.manifest_groups import (
    Group,
    by_spec,
    data_groups,
    hidden_group,
    lost,
    vector_group,
)
from eventlog.publishing.iceberg.translation.manifest_records import (
    DeleteFile,
    ManifestFacts,
    Translation,
    data_manifest,
    delete_manifest,
    facts_of,
    facts_of_leaf,
    list_record,
    manifest_key,
)
from eventlog.publishing.iceberg.translation.position_deletes import (
    PUFFIN_OFFSET,
    positions_parquet,
    same_positions,
    vector_puffin,
)
from eventlog.publishing.iceberg.translation.table_metadata import MetadataFile
from eventlog.publishing.positions import ChunkSlices, ShownRows
from eventlog.publishing.publication import made_again
from eventlog.segments.vectors import VectorReader
from eventlog.session.session import Session
from eventlog.state.delta import drop_of
from eventlog.state.pieces.places import containing
from eventlog.store.parallel import each
from eventlog.store.port import ObjectStore
from eventlog.store.retry import retrying

PREFIX = "metadata/"
HINT = "metadata/version-hint.text"
# Catalogs of directories delete the whole directory with a table that is dropped. They take the
# highest number for the newest version, unless the hint is a number, and then find no metadata.
# pyiceberg and DuckDB read `v7` in the hint as the name of a file.
BARRIER = "metadata/v999999999.gz.metadata.json"
BARRIER_BODY = (
    b"No metadata: a DROP TABLE by a catalog of directories would delete the table with its log. "
    b"Open the file of a version, v<N>.metadata.json, or register it in another catalog.\n"
)
_METADATA = re.compile(r"metadata/v(0|[1-9]\d{0,11})\.metadata\.json", re.ASCII)
_LIST = re.compile(r"(metadata/snap-[0-9a-f]{32})\.avro", re.ASCII)
_MANIFEST = re.compile(r"(metadata/manifest-[0-9a-f]{32})-(\d)-(\d+)-(\d+)\.avro", re.ASCII)
_DELETES = re.compile(
    r"(metadata/deletes-[0-9a-f]{32}-[0-9a-f]{32})(?:\.parquet|-(\d+)\.puffin)", re.ASCII
)

Same = Callable[[bytes, bytes], bool]


def metadata_key(version: int) -> str:
    """Return the key of the metadata file of a version."""
    return f"{PREFIX}v{version}.metadata.json"


def parse_metadata_key(key: str) -> int | None:
    """Return the version of the key of a metadata file, or None for other keys."""
    found = _METADATA.fullmatch(key)
    return int(found[1]) if found else None


def is_published_key(key: str) -> bool:
    """Return whether a key under `metadata/` has the form of a publisher's."""
    return key in {HINT, BARRIER} or any(
        form.fullmatch(key) for form in (_METADATA, _LIST, _MANIFEST, _DELETES)
    )


def hint_body(version: int) -> bytes:
    """Return the hint that names a version.

    It is what DuckDB and ClickHouse read, and no number: a catalog of directories finds no table.
    """
    return f"v{version}".encode()  # against dropped-by-the-hint


def names_metadata(store: ObjectStore) -> bool | None:
    """Return whether the hint names a metadata file that is there; None if there is no hint."""
    try:
        named = store.get(HINT)
    except KeyNotFound:
        return None
    key = f"{PREFIX}{named.decode(errors='replace')}.metadata.json"
    try:
        return parse_metadata_key(key) is not None and bool(store.get(key, length=1))
    except KeyNotFound:
        return False


def mend_hint(store: ObjectStore) -> None:
    """Let the hint name the newest version if the one that it names is gone. Two small GETs.

    If it is gone, a LIST more.
    """
    if names_metadata(store) is not False:  # one that is absent is put by the next publisher
        return
    versions = (parse_metadata_key(row.key) for row in store.list(PREFIX))
    newest = max((v for v in versions if v is not None), default=None)
    if newest is not None:
        store.put_hint(HINT, hint_body(newest))


class PublishedObjects:
    """The objects of a publication.

    Args:
        session: of the table.
        sizes: their sizes, by key.

    Attributes:
        store: of the table.
        sizes: of the objects that lie there, by key.
    """

    def __init__(self, session: Session, sizes: Mapping[str, int]) -> None:
        self.store, self._retrying = session.store, retrying(session.clock)
        self.sizes = dict(sizes)
        self._stems = {self._stem(key): key for key in sizes}

    def stem(self, stem: str) -> re.Match[str] | None:
        """Return the key of an object whose key begins so, up to what its contents show."""
        key = self._stems.get(stem)
        return None if key is None else _MANIFEST.fullmatch(key) or _DELETES.fullmatch(key)

    def put(self, key: str, body: bytes, same: Same) -> int:
        """Create an object unless it exists, and return the size of the one that is there.

        Args:
            key: of the object.
            body: its bytes.
            same: whether other bytes stand for the same.

        Raises:
            Corrupt: another object is there.
            Unavailable: the store does not answer.
        """
        size = len(body)
        if not self._retrying(self.store.put_if_absent, key, body):
            found = self.store.get(key)
            if not same(found, body):  # against object-of-a-stranger-taken-for-ours
                raise stranger_error(self.store.uri, key)
            size = len(found)
        self.note(key, size)
        return size

    def note(self, key: str, size: int) -> None:
        """Note that an object of this size lies there."""
        self.sizes[key] = size
        self._stems[self._stem(key)] = key

    def _stem(self, key: str) -> str:
        found = _MANIFEST.fullmatch(key) or _DELETES.fullmatch(key)
        return found[1] if found else key


class ManifestPublisher:
    """The manifests of versions of one table.

    Args:
        session: of the table.
        objects: what lies there.
        shown: the rows that versions of a keyed table show.
    """

    def __init__(self, session: Session, objects: PublishedObjects, shown: ShownRows) -> None:
        self.objects, self._store, self._log = objects, session.store, session.log
        self._shown = shown
        self._records: dict[str, list[dict[str, Any]]] = {}  # by the name of a group

    def manifest_list(
        self, snapshot: Snapshot, form: Translation, *, put: bool
    ) -> tuple[str, int | None]:
        """Return the URI of the manifest list of a version, and the number of its delete files.

        That number is None in a keyed table: only a merge of its keys would show it.

        Args:
            snapshot: the version.
            form: how it is translated.
            put: put the list, and what it names, unless they are there.

        Raises:
            Corrupt: an object of another program is in the way; or a leaf or a vector is damaged.
            DataLoss: a segment of a keyed table is missing or damaged.
            Unavailable: the store does not answer.
        """
        base, delta = snapshot.base, snapshot.delta
        keyed = snapshot.merge_rule is not None
        slices = [*self._shown.slices(snapshot)] if keyed else []
        unread = {s.id: s for chunk in slices for s in chunk.unread}
        leaves = [] if base is None else self._log.key_frames.all_leaves(base)
        gone = self._gone(snapshot, leaves, unread.values())
        groups = data_groups(base, leaves, delta, gone, unread)
        records = each(lambda group: self._data(group, form, put=put), groups)
        found = [record for some in records for record in some]
        for group in self._vectors(snapshot, leaves):
            found += self._deletes(group, form, snapshot, put=put)
        hiding = [HidingManifest.of(chunk, form) for chunk in slices if chunk.merged]
        uris = [record["manifest_path"] for record in found]
        name = form.name(compact_json([*uris, *(form.place(one.key) for one in hiding)]))
        key = f"{PREFIX}snap-{name}.avro"
        if put and key not in self.objects.sizes:
            self._shown.merge_ahead(
                (snapshot, one.slices)
                for one in hiding
                if one.key not in self._records and one.key not in self.objects.sizes
            )
            for one in hiding:
                found += self._hides(one, form, snapshot)
            self.objects.put(key, manifest_list_bytes(found, form.format_version), same_avro)
        if keyed:
            return form.place(key), None
        deletes = sum(r["existing_files_count"] for r in found if r["content"] == DELETES)
        return form.place(key), deletes

    def _gone(
        self, snapshot: Snapshot, leaves: Sequence[Leaf], unread: Iterable[Segment]
    ) -> dict[str, frozenset[str]]:
        """Return the ids of the segments that each leaf lost, and of those that are not read."""
        base, adds = snapshot.base, snapshot.delta.adds
        drops = lost(base, snapshot.delta)
        drops += [drop_of(segment) for segment in unread if segment.id not in adds]
        if base is None or not drops:
            return {}
        places = [entry_order.entry_key(drop.chunk, drop.id) for drop in drops]
        ids = {drop.id for drop in drops}
        found = {
            leaves[i].sha256: frozenset(s.id for s in self._entries(leaves[i]) if s.id in ids)
            for i in containing(leaves, places)
        }
        return {sha: without for sha, without in found.items() if without}

    def _entries(self, leaf: Leaf) -> list[Segment]:
        table = self._log.key_frames.leaves([leaf])[leaf.sha256]
        return entry_columns.to_segments(table)

    def _data(self, group: Group, form: Translation, *, put: bool) -> list[dict[str, Any]]:
        """Return the records of the manifests of a group; of most groups it is one."""
        name = form.name(group.key)
        known = self._records.get(name) or self._whole_leaf(group, name, form)
        if known is None:
            known = []
            for spec, part in self._parts(group, form):
                facts = facts_of(part, spec, DATA)
                body = partial(data_manifest, part, spec, form) if put else None
                known.append(self._record(part, facts, form, body))
            if not put:
                return known
        self._records[name] = known
        return known

    def _whole_leaf(
        self, group: Group, name: str, form: Translation
    ) -> list[dict[str, Any]] | None:
        """Return the record of the manifest of a leaf that is listed: the leaf is not read."""
        listed = self.objects.stem(f"{PREFIX}manifest-{name}")
        if group.leaf is None or group.without or listed is None:
            return None
        facts = facts_of_leaf(group, *(int(listed[place]) for place in (2, 3, 4)))
        return [list_record(form.place(listed[0]), self.objects.sizes[listed[0]], facts)]

    def _parts(self, group: Group, form: Translation) -> list[tuple[int, Group]]:
        if group.leaf is not None:
            entries = self._entries(group.leaf)
            kept = tuple(s for s in entries if s.id not in group.without)
            group = group._replace(segments=kept)
        return by_spec(group, [form.spec(segment) for segment in group.segments or ()])

    def _vectors(self, snapshot: Snapshot, leaves: Sequence[Leaf]) -> list[Group]:
        """Return the groups of segments with deletion vectors: of leaves, and of what changed."""
        if snapshot.totals.deleted is UNSET:  # against deleted-rows-in-iceberg
            return []
        base, delta = snapshot.base, snapshot.delta
        deleted = (leaf for leaf in leaves if leaf.deleted is not UNSET)
        below = [*map(self._entries, deleted), base.segments if base else ()]
        parts = [[s for s in part if s.id not in delta.drops] for part in below]
        parts.append([*delta.adds.values()])
        return [group for group in map(vector_group, parts) if group is not None]

    def _deletes(
        self, group: Group, form: Translation, snapshot: Snapshot, *, put: bool
    ) -> list[dict[str, Any]]:
        name = form.name(group.key)
        known = self._records.get(name)
        if known is None:
            known = []
            for spec, part in self._parts(group, form):
                facts = facts_of(part, spec, DELETES)
                body = None
                if put:
                    files = self._delete_files(part, form, snapshot)
                    body = partial(delete_manifest, part, spec, form, files)
                known.append(self._record(part, facts, form, body))
            if put:
                self._records[name] = known
        return known

    def _hides(
        self, manifest: HidingManifest, form: Translation, snapshot: Snapshot
    ) -> list[dict[str, Any]]:
        """Return the record of the manifest of a time chunk's hidden rows; none if there are none.

        The manifest is put unless it is there. If it is, its keys need not be merged.
        """
        key, known = manifest.key, self._records.get(manifest.key)
        if known is None:
            if key in self.objects.sizes:
                entries = read_avro(self._store, key, EntryRecord)
                counts = len(entries), sum(entry.data_file.record_count for entry in entries)
            else:
                hidden = self._shown.with_vectors(snapshot, manifest.slices)
                counts = len(hidden), sum(deleted_rows(s.vector) for s in hidden)
                if hidden:
                    group = manifest.group._replace(segments=hidden_group("", hidden).segments)
                    deletes = self._delete_files(group, form, snapshot)
                    body = delete_manifest(group, manifest.facts.spec, form, deletes)
                    self.objects.put(key, body, same_avro)
            facts = manifest.facts._replace(files=counts[0], rows=counts[1])
            size = self.objects.sizes.get(key, 0)
            known = [list_record(form.place(key), size, facts)] if counts[0] else []
            self._records[key] = known
        return known

    def _record(
        self,
        group: Group,
        facts: ManifestFacts,
        form: Translation,
        body: Callable[[], bytes] | None,
    ) -> dict[str, Any]:
        """Return the record of a manifest, which is put unless it is there; None: it is not."""
        key = manifest_key(form.name(group.key), facts)
        size = self.objects.sizes.get(key, 0)
        if not size and body is not None:
            size = self.objects.put(key, body(), same_avro)
        return list_record(form.place(key), size, facts)

    def _delete_files(
        self, group: Group, form: Translation, snapshot: Snapshot
    ) -> dict[str, DeleteFile]:
        """Return the objects that have the deletes of segments, by their ids; puts absent ones."""
        segments = group.segments or ()
        table = snapshot.header.table
        vectors = VectorReader(self._store, snapshot.version, segments, table)

        def file_of(segment: Segment) -> DeleteFile:
            path = form.place(keys.key_of(segment))
            assert not isinstance(segment.vector, UnsetType)  # noqa: S101
            digest = form.name_of_deletes(path, vector_hash(segment.vector))
            stem = f"{PREFIX}deletes-{segment.id}-{digest}"
            listed = self.objects.stem(stem)
            if listed is None:
                deleted = vectors.deleted(segment)
                if form.format_version > 2:
                    body, length = vector_puffin(path, deleted)
                    self.objects.put(f"{stem}-{length}.puffin", body, bytes.__eq__)
                else:
                    body = positions_parquet(path, deleted)
                    self.objects.put(f"{stem}.parquet", body, same_positions)
                listed = self.objects.stem(stem)
            assert listed is not None  # noqa: S101
            uri, size = form.place(listed[0]), self.objects.sizes[listed[0]]
            if listed[2] is None:
                return DeleteFile(uri, size)
            return DeleteFile(uri, size, PUFFIN_OFFSET, int(listed[2]))

        return dict(zip((s.id for s in segments), each(file_of, segments), strict=True))


class HidingManifest(NamedTuple):
    """The manifest of the rows of one time chunk that a version of a keyed table does not show.

    Its key is known before these rows are.

    Attributes:
        slices: of the chunk.
        group: the segments of which rows may be hidden.
        facts: of the manifest, as if it had files of all of them.
        key: of the manifest.
    """

    slices: ChunkSlices
    group: Group
    facts: ManifestFacts
    key: str

    @classmethod
    def of(cls, slices: ChunkSlices, form: Translation) -> HidingManifest:
        """Return the manifest of a time chunk."""
        group = hidden_group(slices.name, slices.segments)
        facts = facts_of(group, form.spec(slices.segments[0]), DELETES)
        return cls(slices, group, facts, manifest_key(form.name(group.key), facts))


def read_avro(store: ObjectStore, key: str, kind: type[Record]) -> list[Record]:
    """Return the records of a manifest, or of a manifest list, that lies there.

    Args:
        store: of the table.
        key: of the object.
        kind: what is read of each record.

    Raises:
        Corrupt: it is damaged.
        InvalidInput: an extra is not installed.
        KeyNotFound: it is not there.
    """
    try:
        return avro_records(store.get(key), kind)
    except Corrupt as error:
        raise damaged_error(store, key, error) from None


def read_metadata(store: ObjectStore, key: str) -> MetadataFile:
    """Return a metadata file that lies there.

    Raises:
        Corrupt: it is damaged.
        KeyNotFound: it is not there.
    """
    try:
        return MetadataFile.of(store.get(key))
    except Corrupt as error:
        raise damaged_error(store, key, error) from None


def damaged_error(store: ObjectStore, key: str, why: Corrupt) -> Corrupt:
    """Return the error for an object that does not decode, with its key and what to do."""
    return Corrupt(
        f"an object of the publication is damaged: {why.message}. {command('fsck', store.uri)} "
        "names the commands that make it again",
        table=store.uri,
        key=key,
    )


def stranger_error(uri: str, key: str) -> Corrupt:
    """Return the error for an object of another program among those of a publication."""
    return Corrupt(
        "an object is not what this table is published as: another program wrote it, or the table "
        f"was restored from an older copy. Let nobody else write under `{PREFIX}`; this takes the "
        f"publication back, and makes it again: {made_again('iceberg', uri, ())}",
        table=uri,
        key=key,
    )
