"""Random histories of keyed tables that are published while they go on, and read by engines."""

import tempfile

from support.iceberg_tables import polars_rows, pyiceberg_rows
from support.published import ENGINES, comparable, path_of
from support.random_histories import ENOUGH_TO_TELL, History, settings

from eventlog.errors import InvalidInput
from eventlog.fsck.check import fsck
from eventlog.publishing import publish
from eventlog.publishing.delta.translation.delta_commits import parse_delta_key
from eventlog.publishing.iceberg.manifest_publisher import parse_metadata_key
from eventlog.readers import scan
from eventlog.store.local import LocalStore

PLACES = ("metadata/", "_delta_log/", "_delta_vectors/")
FORMATS = {"delta": {}, "iceberg 2": {"format_version": 2}, "iceberg 3": {"format_version": 3}}
READERS = {
    "delta": (ENGINES["deltalake"], ENGINES["polars"]),
    "iceberg": (
        lambda path, version: pyiceberg_rows(f"{path}/metadata/v{version}.metadata.json"),
        lambda path, version: polars_rows(f"{path}/metadata/v{version}.metadata.json"),
    ),
}


def published_versions(t, name):
    """The versions of which a publication has the metadata."""
    if name == "delta":
        parsed = [parse_delta_key(row.key) for row in t.store.list("_delta_log/")]
        return sorted(one[0] for one in parsed if one and not one[1])
    parsed = [parse_metadata_key(row.key) for row in t.store.list("metadata/")]
    return sorted(version for version in parsed if version is not None)


def check_engines(t, name, versions=None):
    """Compare what engines read of published versions with `scan`; return how many were read.

    Versions below the horizon are left out: a publication that a vacuum overtook may have some.
    """
    path, there = path_of(t), published_versions(t, name)
    there = [version for version in there if version >= t.refresh().meta.horizon]
    for version in there if versions is None else versions:
        rows = scan(t, version=version).to_table()
        wanted = comparable(rows, rows.schema)
        for read in READERS[name]:
            assert comparable(read(path, version), rows.schema) == wanted, (name, version, read)
    return len(there)


def objects_under(t, name):
    """The objects of a publication, without its hints, by key."""
    prefixes = ("_delta_log/", "_delta_vectors/") if name == "delta" else ("metadata/",)
    found = {row.key: t.store.get(row.key) for prefix in prefixes for row in t.store.list(prefix)}
    return {key: body for key, body in found.items() if "hint" not in key and "_last" not in key}


def play_published(seed, path, steps=6):
    """Play a history, publish between its steps, and compare every version at its end.

    Args:
        seed: of all that is drawn.
        path: an empty folder.
        steps: how many.

    Returns:
        The history; its counts have how many versions were compared.
    """
    form = ("iceberg 2", "iceberg 3", "delta")[seed % 3]
    name = form.split()[0]
    with settings(seed):
        history = History(seed, LocalStore(str(path)))
        for _ in range(steps):
            history.step()
            if history.chance.random() < 0.5:
                publish_or_refuse(history, name, FORMATS[form])
        history.finish()
        if publish_or_refuse(history, name, FORMATS[form]):
            t = history.handle()
            history.counts[f"read, {form}"] += check_engines(t, name)
            assert [f for f in fsck(t).findings if str(f.key).startswith(PLACES)] == []
    return history


def play_anywhere(seed):
    """Play a history in a folder of its own, and return it."""
    with tempfile.TemporaryDirectory() as folder:
        return play_published(seed, folder)


def rare_publications(counts):
    """Which rules and formats so many histories have too rarely."""
    if counts["histories"] < ENOUGH_TO_TELL:
        return {}
    wanted = [*(f"read, {form}" for form in FORMATS), "refused", "restore", "split", "vacuum"]
    return {name: counts[name] for name in wanted if not counts[name]}


def publish_or_refuse(history, name, options):
    """Publish; return whether something is. A table whose rows are made may be refused."""
    t = history.handle()
    try:
        publish(t, name, **options)
    except InvalidInput as error:
        if t.session.head().merge_rule.kind in ("last", "first"):
            raise AssertionError("a version that can be said is refused") from error
        history.counts["refused"] += 1
        return False
    return True
