"""Row groups that a rewrite takes as they are stored."""

import random
from functools import cache
from io import BytesIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.builders import SCHEMA, commit, create, drop_of, live, reopen
from support.compaction_tasks import rewrite_task, task_of

from eventlog import errors
from eventlog.compaction import Policy
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.model import stats
from eventlog.model.actions import Replace
from eventlog.readers import scan
from eventlog.rewriting import stored_rows
from eventlog.staging import encoding
from eventlog.staging.parquet.joined_files import JoinedFile, footer_tree
from eventlog.staging.parquet.thrift_trees import parse_tree, tree_bytes
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, delete

LARGE = 100_000
ENOUGH = Policy(memory_bytes=2**29)


@cache
def some_rows(count, seed):
    """`count` rows of one day, which do not compress."""
    draw = random.Random(seed)
    at = range(seed, seed + count)
    values = [draw.random() for _ in range(count)]
    return pa.table([at, [f"name {v:.9f}" for v in values], values], schema=SCHEMA)


def filled(*counts, store=None):
    table = create(store=store)
    for seed, count in enumerate(counts):
        append(table, some_rows(count, seed))
    return table


def rewritten(table, settings=ENOUGH, **options):
    """Rewrite all segments as they stand, and commit."""
    task = task_of(table)
    made = rewrite_task(table, task, settings, **options)
    assert made.rows == task.rows == sum(add.rows for add in made.adds)
    actions = [Replace(task.version, 0), *map(drop_of, task.inputs), *made.adds]
    commit(table, *actions, operation="compact", read_version=task.version)
    return made


def bodies(table, segments):
    return [table.store.get(keys.key_of(segment)) for segment in segments]


def chunks_of(body):
    """The bytes of the column chunks of a file, by row group."""
    footer = pq.read_metadata(BytesIO(body))
    groups = [footer.row_group(n) for n in range(footer.num_row_groups)]
    spans = [
        [encoding.parts.chunk_span(group.column(n)) for n in range(group.num_columns)]
        for group in groups
    ]
    return [[body[start:end] for start, end in group] for group in spans]


@pytest.mark.sample(3)
@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize(
    "counts", [(LARGE, LARGE + 5), (LARGE, 10, 20, LARGE, 30), (10, LARGE), (300_000, 7)]
)
def test_rows_of_large_segments_stay_as_they_are_stored(counts, verify):
    table = filled(*counts)
    before, inputs = scan(table).to_table(), live(table.session.head())
    taken = [chunks_of(b) for b in bodies(table, inputs) if len(b) > 2**20]
    assert len(taken) == sum(count >= LARGE for count in counts)
    (add,) = rewritten(table, verify=verify).adds
    assert scan(table).to_table().equals(before)
    (body,) = bodies(table, live(table.session.head()))
    made = chunks_of(body)
    assert all(group in made for groups in taken for group in groups)
    assert fsck(reopen(table.store), checksums=True).ok
    stored = pq.ParquetFile(BytesIO(body), page_checksum_verification=True)
    assert stored.read().cast(SCHEMA).equals(before)
    columns = encoding.Recipe.of(table.session.head()).stats_columns
    assert add.stats == stats.compute(before, columns)


def test_pages_are_found_by_their_indexes():
    table = filled(LARGE, LARGE)
    rewritten(table)
    (body,) = bodies(table, live(table.session.head()))
    footer = footer_tree(memoryview(body))
    for group in footer[4][1][1]:
        for chunk in group[1][1][1]:
            at, size = chunk[4][1], chunk[5][1]
            index, end = parse_tree(body[at : at + size])
            assert end == size
            start = chunk[3][1][9][1]  # the first page of values
            assert index[1][1][1][0][1][1] == start
            if 6 in chunk:  # not of floats, which have no statistics
                at, size = chunk[6][1], chunk[7][1]
                assert parse_tree(body[at : at + size])[1] == size


def test_outputs_are_below_the_target():
    table = filled(*[LARGE] * 6)
    before, (one, *_) = scan(table).to_table(), live(table.session.head())
    settings = Policy(target_bytes=int(one.bytes * 2.5), memory_bytes=2**29)
    adds = rewritten(table, settings).adds
    assert [add.rows for add in adds] == [2 * LARGE] * 3
    assert max(add.bytes for add in adds) <= settings.target_bytes
    assert scan(table).to_table().equals(before)


def test_what_is_rewritten_twice_is_taken_twice():
    table = filled(3 * LARGE // 2, 100, 3 * LARGE // 2)
    before = scan(table).to_table()
    for number in range(2):
        rewritten(table)
        append(table, some_rows(100, 50 + number))
        before = pa.concat_tables([before, some_rows(100, 50 + number)])
    assert scan(table).to_table().equals(before)
    first = max(live(table.session.head()), key=lambda one: one.rows)
    (body,) = bodies(table, [first])
    assert [len(group) for group in chunks_of(body)] == [3] * 4


def test_segments_of_which_rows_were_deleted_are_encoded_without_them():
    table = filled(LARGE, LARGE)
    delete(table, "value < 0.5")
    before = scan(table).to_table()
    (add,) = rewritten(table).adds
    assert add.rows == before.num_rows < 2 * LARGE
    assert scan(table).to_table().equals(before)


def test_sorted_rows_are_encoded():
    table = filled(LARGE, LARGE)
    rewritten(table, Policy(sort_by=("value",), memory_bytes=2**29))
    values = scan(table).to_table()["value"]
    assert pc.all(pc.less_equal(values[:-1], values[1:])).as_py()


def test_each_input_is_read_by_one_request():
    store = CountingStore(MemoryStore())
    table = filled(LARGE, LARGE, LARGE, store=store)
    task = task_of(table)
    with store.measure() as counts:
        rewrite_task(table, task, ENOUGH)
    assert (counts.get, counts.put) == (3, 1)


@pytest.mark.hazard("K6")
def test_k6_a_row_group_that_changes_on_its_way_is_refused(monkeypatch):
    class Changing(JoinedFile):
        def take(self, file, footer):
            changed = bytearray(file)
            changed[len(changed) // 2] ^= 1
            super().take(memoryview(changed), footer)

    table = filled(LARGE, LARGE)
    monkeypatch.setattr(encoding, "JoinedFile", Changing)
    with pytest.raises(errors.Corrupt, match="other bytes"):
        rewrite_task(table, task_of(table), ENOUGH)
    assert table.refresh().version == 2


@pytest.mark.hazard("K6")
def test_k6_a_damaged_segment_is_no_input(monkeypatch):
    table = filled(LARGE, LARGE)
    whole = type(table.store).get

    def damaged(self, key, **how):
        body = bytearray(whole(self, key, **how))
        if key.startswith("data/") and how.get("start", 0) == 0:
            body[5000] ^= 1
        return bytes(body)

    monkeypatch.setattr(type(table.store), "get", damaged)
    with pytest.raises(errors.DataLoss, match="not those that were committed"):
        rewrite_task(table, task_of(table), ENOUGH)


def column_indexes(body):
    """The bytes of the column indexes of a file."""
    chunks = [c for g in footer_tree(memoryview(body))[4][1][1] for c in g[1][1][1] if 6 in c]
    return [body[c[6][1] : c[6][1] + c[7][1]] for c in chunks]


@pytest.mark.hazard("K6")
def test_k6_what_decodes_but_differs_from_the_log_is_not_taken(monkeypatch):
    (whole,) = bodies(table := filled(LARGE), live(table.session.head()))
    at = whole.index(column_indexes(whole)[0])
    get = type(table.store).get

    def damaged(self, key, **how):
        body = bytearray(get(self, key, **how))
        if key.startswith("data/") and len(body) == len(whole):
            body[at + 5] ^= 1  # which no decoder looks at
        return bytes(body)

    with monkeypatch.context() as patch:
        patch.setattr(type(table.store), "get", damaged)
        rewritten(table)
    (body,) = bodies(table, live(table.session.head()))
    assert column_indexes(body) == column_indexes(whole)


@pytest.mark.hazard("K6")
@pytest.mark.parametrize("repeating", [False, True])
def test_k6_what_was_committed_and_does_not_decode_is_not_taken(repeating, monkeypatch):
    class Wrong(pq.ParquetWriter):
        """Writes texts that are no UTF-8."""

        def write_table(self, table, **how):
            odd = pa.array([b"\xff" + text.encode() for text in table["name"].to_pylist()])
            texts = pa.StringArray.from_buffers(len(odd), *odd.buffers()[1:])
            super().write_table(table.set_column(1, table.schema.field(1), texts), **how)

    rows = some_rows(3 * LARGE // 2, 0)
    if repeating:
        texts = pa.array([f"name {n % 20}" for n in range(rows.num_rows)])
        rows = rows.set_column(1, SCHEMA.field(1), texts)
    table = create()
    with monkeypatch.context() as patch:
        patch.setattr(pq, "ParquetWriter", Wrong)
        append(table, rows)
    (body,) = bodies(table, live(table.session.head()))
    assert len(body) > 2**20
    assert pq.read_metadata(BytesIO(body)).row_group(0).column(1).has_dictionary_page == repeating
    with pytest.raises(errors.DataLoss, match="does not decode"):
        rewrite_task(table, task_of(table), ENOUGH)


class OfItsOwnNames(pq.ParquetWriter):
    """Writes columns under the names that they have in the file."""

    def write_table(self, table, **how):
        super().write_table(table.rename_columns(self.schema.names), **how)


@pytest.mark.hazard("K6")
def test_k6_files_of_another_form_are_encoded(monkeypatch):
    ids = encoding.with_field_ids

    def older(rows, schema):
        """The same columns under other names, by which readers do not go."""
        fields = ids(rows, schema)
        return pa.schema([field.with_name(f"old {field.name}") for field in fields])

    table = create()
    with monkeypatch.context() as patch:
        patch.setattr(encoding, "with_field_ids", older)
        patch.setattr(pq, "ParquetWriter", OfItsOwnNames)
        append(table, some_rows(LARGE, 0))
    append(table, some_rows(LARGE, 1))
    before = scan(table).to_table()
    rewritten(table)
    assert scan(table).to_table().equals(before)
    (body,) = bodies(table, live(table.session.head()))
    assert pq.read_schema(BytesIO(body)).names == SCHEMA.names


def test_a_footer_that_is_written_again_is_the_same():
    (body,) = bodies(table := filled(LARGE), live(table.session.head()))
    footer = footer_tree(memoryview(body))
    size = int.from_bytes(body[-8:-4], "little")
    assert tree_bytes(footer) == body[-8 - size : -8]


@pytest.mark.hazard("W4")
def test_damaged_structs_are_refused_or_read():
    (body,) = bodies(table := filled(100), live(table.session.head()))
    size = int.from_bytes(body[-8:-4], "little")
    whole, draw = body[-8 - size : -8], random.Random(7)
    for _ in range(500):
        changed = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            changed[draw.randrange(size)] = draw.randrange(256)
        try:
            tree, end = parse_tree(bytes(changed))
        except pa.ArrowInvalid:
            continue
        assert end <= size
        assert parse_tree(tree_bytes(tree))[0] == tree


def test_small_segments_are_not_looked_at(monkeypatch):
    table = filled(100, 100)
    monkeypatch.setattr(stored_rows, "footer_tree", None)
    before = scan(table).to_table()
    rewritten(table)
    assert scan(table).to_table().equals(before)
