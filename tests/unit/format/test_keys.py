"""Keys as FORMAT.md has them, and what is no key."""

import pytest

from eventlog import errors
from eventlog.format import keys


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
