"""Headers of pages: what Arrow decodes, whatever the footer says."""

import io
import random
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eventlog.pages import DICTIONARY, pages

ROWS = 50_000
TABLE = pa.table({"s": [f"text {n % 700}" for n in range(ROWS)]})
PLAIN, DELTA_BYTE_ARRAY, IN_DICTIONARY = 0, 7, 8


def written(**how):
    """Return a file of the rows and its column chunk."""
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, **{"compression": "zstd", **how})
    source = pa.BufferReader(sink.getvalue())
    return source, pq.read_metadata(source).row_group(0).column(0)


def changed(column, **facts):
    """Return the metadata of a column chunk, some of it changed."""
    names = (
        "data_page_offset",
        "has_dictionary_page",
        "dictionary_page_offset",
        "total_compressed_size",
        "num_values",
    )
    return SimpleNamespace(**{**{name: getattr(column, name) for name in names}, **facts})


@pytest.mark.parametrize("statistics", [False, True])
@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_the_pages_have_what_the_footer_says(statistics, checksum, version):
    source, column = written(
        write_statistics=statistics,
        write_page_checksum=checksum,
        data_page_version=version,
        data_page_size=10_000,
    )
    first, *others = pages(source, column)
    assert (first.kind, first.encoding, first.values) == (DICTIONARY, PLAIN, 700)
    assert {page.encoding for page in others} == {IN_DICTIONARY}
    assert len(others) > 1
    assert sum(page.values for page in others) == ROWS
    size = first.size + sum(page.size for page in others)
    assert size < column.total_uncompressed_size < size + 100 * (1 + len(others))


def test_texts_that_repeat_the_one_before_are_seen():
    source, column = written(use_dictionary=False, column_encoding={"s": "DELTA_BYTE_ARRAY"})
    assert {page.encoding for page in pages(source, column)} == {DELTA_BYTE_ARRAY}


def test_a_dictionary_that_the_footer_does_not_name_is_seen():
    source, column = written()
    start = column.dictionary_page_offset
    hidden = changed(column, data_page_offset=start, has_dictionary_page=False)
    assert list(pages(source, hidden)) == list(pages(source, column))
    assert next(pages(source, hidden)).kind == DICTIONARY


@pytest.mark.hazard("W16")
def test_more_values_than_the_footer_says_are_refused():
    source, column = written()
    with pytest.raises(pa.ArrowInvalid, match="more values than its column chunk"):
        list(pages(source, changed(column, num_values=10)))


def test_statistics_of_long_texts_are_stepped_over():
    sink = io.BytesIO()
    texts = pa.table({"s": ["x" * 3000, "y" * 3000]})
    pq.write_table(texts, sink, use_dictionary=False)
    source = pa.BufferReader(sink.getvalue())
    (page,) = pages(source, pq.read_metadata(source).row_group(0).column(0))
    assert (page.values, page.encoding) == (2, PLAIN)
    assert page.size > 6000


@pytest.mark.hazard("W4")
@pytest.mark.parametrize("statistics", [False, True])
def test_damaged_headers_are_refused_or_read(statistics):
    source, column = written(write_statistics=statistics)
    whole, start = source.read_at(source.size(), 0), column.dictionary_page_offset
    draw = random.Random(7)
    for _ in range(300):
        body = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            body[start + draw.randrange(20)] = draw.randrange(256)
        try:
            found = list(pages(pa.BufferReader(bytes(body)), column))
        except pa.ArrowInvalid:
            continue
        assert all(page.values >= 0 and page.size >= 0 for page in found)
