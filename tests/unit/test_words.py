"""The small pure modules: chunks, keys, codec vectors, properties, errors of bad input."""

import pytest
from builders import create, replaced

from eventlog import chunks, codec, errors, keys, properties
from eventlog.chunks import MAX_MS, MIN_MS, TimeChunk, chunk_of, parse_chunk
from eventlog.model import AppMark, Meta, Segment


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [
        ("1970", 0, 31_536_000_000),
        ("1970-01", 0, 2_678_400_000),
        ("1970-01-01", 0, 86_400_000),
        ("1970-01-01T00", 0, 3_600_000),
        ("1969-12-31T23", -3_600_000, 0),
        ("2012-02-29", 1_330_473_600_000, 1_330_560_000_000),
        ("0001", MIN_MS, -62_104_060_800_000),
        ("9999-12-31T23", MAX_MS - 3_600_000, MAX_MS),
        ("all", MIN_MS, MAX_MS),
    ],
)
def test_chunks_have_these_names_and_bounds(name, start, end):
    assert parse_chunk(name) == TimeChunk(start, end)
    assert TimeChunk(start, end).name == name


@pytest.mark.parametrize(
    "name",
    [
        "", "ALL", "13", "20130107", "2013-1-7", "2013-01-07T5", "2013-01-07T24", "2013-02-29",
        "2013-00", "0000", "10000", "2013-01-07 ", " 2013", "2013-01-07T05:00", "\uff12013",
        "2013\n",
    ],
)  # fmt: skip
def test_other_text_names_no_chunk(name):
    with pytest.raises(errors.InvalidInput):
        parse_chunk(name)


@pytest.mark.parametrize("moment", [MIN_MS - 1, MAX_MS])
@pytest.mark.parametrize("granularity", chunks.GRANULARITIES)
def test_times_outside_the_years_have_no_chunk(moment, granularity):
    with pytest.raises(errors.InvalidInput):
        chunk_of(moment, granularity)
    assert chunk_of(max(MIN_MS, min(moment, MAX_MS - 1)), granularity)


@pytest.mark.parametrize(("start", "end"), [(0, 1), (0, 0), (5, 3_600_005), (0, 2 * 86_400_000)])
def test_intervals_that_no_granularity_cuts_have_no_name(start, end):
    with pytest.raises(errors.InvalidInput):
        _ = TimeChunk(start, end).name


@pytest.mark.parametrize("text", ["week", "", "Day", "days", None])
def test_unknown_granularities_are_refused(text):
    with pytest.raises(errors.InvalidInput):
        chunks.check_granularity(text)


def test_keys_are_those_of_the_format():
    assert keys.commit_key(0) == "_log/999999999999.json"
    assert keys.commit_key(7) == "_log/999999999992.json"
    assert keys.keyframe_key(7) == "_log/999999999992.keyframe.json"
    assert keys.frame_key("ab" * 32) == f"_frames/{'ab' * 32}.parquet"
    segment = keys.segment_key(3, "2013-01-07", "0f" * 16)
    assert segment == f"data/000000000003/2013-01-07/{'0f' * 16}.parquet"


@pytest.mark.parametrize("version", [-1, 10**12])
def test_versions_have_twelve_digits(version):
    for build in (keys.commit_key, keys.keyframe_key):
        with pytest.raises(errors.InvalidInput):
            build(version)


@pytest.mark.parametrize(
    "key",
    [
        "", "_log/", "_log/99999999999.json", "_log/9999999999999.json", "_log/999999999999.JSON",
        "_log/999999999999.json/", "x_log/999999999999.json", "_log/999999999999.keyframe.json.tmp",
        "_log/٩٩٩٩٩٩٩٩٩٩٩٩.json", "_log/999999999999.json\n",
    ],
)  # fmt: skip
def test_strangers_in_the_log_are_no_log_keys(key):
    assert keys.parse_log_key(key) is None
    assert keys.parse_segment_key(key) is None


@pytest.mark.parametrize(
    "key",
    [
        f"data/000000000003/2013-01-07/{'0F' * 16}.parquet",
        f"data/000000000003/2013-13-07/{'0f' * 16}.parquet",
        f"data/3/2013-01-07/{'0f' * 16}.parquet",
        f"data/000000000003/../{'0f' * 16}.parquet",
        f"data/000000000003/2013-01-07/x/{'0f' * 16}.parquet",
        f"data/000000000003/2013-01-07/{'0f' * 16}.parquet.crc",
    ],
)
def test_strangers_under_data_are_no_segment_keys(key):
    assert keys.parse_segment_key(key) is None


def test_hashes_of_the_format_do_not_change():
    """Vectors: a second implementation must arrive at these."""
    segment = Segment("0" * 32, "2013-01-07", 1, 2, 3, 4, 5, "ab" * 32, 1)
    text = (
        b'{"id":"' + b"0" * 32 + b'","chunk":"2013-01-07","epoch":1,"version":2,"partition":3,'
        b'"rows":4,"bytes":5,"checksum":"' + b"ab" * 32 + b'","schema":1,"stats":[],"tail":null}'
    )
    assert codec.hex_hash(codec.entry_hash(segment)) == codec.sha256(text)
    assert codec.meta_hash(Meta()) == 0
    note = Meta(properties={"user.note": "é"})
    entry = codec.sha256('["properties","user.note","é"]'.encode())
    assert codec.hex_hash(codec.meta_hash(note)) == entry
    mark = codec.sha256(b'["apps","job",{"seq":1,"version":2,"time":3}]')
    both = Meta(properties={"user.note": "é"}, apps={"job": AppMark(1, 2, 3)}, fence=9)
    fence = codec.sha256(b'["fence",null,9]')
    total = sum(int(h, 16) for h in (entry, mark, fence))
    assert codec.hex_hash(codec.meta_hash(both)) == codec.hex_hash(total)


@pytest.mark.parametrize("text", ["", "ab", "AB" * 32, "ab" * 32 + "0", "0x" + "ab" * 31])
def test_other_text_is_no_hash(text):
    with pytest.raises(errors.Corrupt):
        codec.parse_hash(text)


def test_a_header_that_is_too_long_is_refused_before_it_is_stored():
    head = create().head()
    stored, _ = head.frames.read(0)
    changes = replaced(stored.header.changes, writer="x" * 2000)
    with pytest.raises(errors.InvalidInput, match="header"):
        codec.encode_commit(replaced(stored, header=replaced(stored.header, changes=changes)))


@pytest.mark.parametrize(
    ("stored", "value"), [("5", 5), ("0", 1), ("99999", 1024), ("x", 64), ("-3", 64), ("²", 64)]
)
def test_stored_settings_are_brought_within_their_bounds(stored, value):
    assert properties.setting({"keyframe_commits": stored}, "keyframe_commits") == value


def test_defaults_lie_within_their_bounds():
    for name, rule in properties.SETTINGS.items():
        assert properties.setting({}, name) == rule.default
        properties.check_property(name, str(rule.default))
        properties.check_property(name, None)
