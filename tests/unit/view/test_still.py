"""A still of a history: where its blocks stand, what it shows, and its files."""

import json
import sys
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner
from support.builders import add, commit, create, events
from support.keyed_tables import merged

from eventlog import Table
from eventlog.cli.program import build
from eventlog.errors import InvalidInput
from eventlog.model.actions import Horizon, Replace
from eventlog.state.delta import drop_of
from eventlog.view import chosen_versions, history_picture, png_of, still_of
from eventlog.view.stacks import Stacks

SVG = "{http://www.w3.org/2000/svg}"
DAY = "1970-01-01"


def partly_merged():
    """A keyed table with two logs of all four buckets, and a base of the first one."""
    t = create(key="name", buckets=4, granularity="all")
    for n in range(2):
        t.upsert(events(40, first=4 * n))
    t.commit(merged(t, t.snapshot(), "all", 0, 0, 1, 2))
    return t


def test_visible_blocks_stand_above_the_line_and_others_below_it():
    t = create()
    t.append(events(4, days=2))
    t.append(events(4, days=2, first=4))
    old = t.snapshot().segments(chunks=[DAY])
    new = add(t, DAY, rows=sum(s.rows for s in old))
    commit(t, Replace(2, 0), *map(drop_of, old), new, operation="compact")
    picture = history_picture(t)
    stacks = Stacks(picture, 10)
    before, after = stacks.at(2), stacks.at(3)
    assert [(one.state, one.above) for one in before] == [("visible", True)] * 4
    assert sorted((one.column, one.state, one.above) for one in after) == [
        (0, "overshadowed", False),
        (0, "overshadowed", False),
        (0, "visible", True),
        (1, "visible", True),
        (1, "visible", True),
    ]
    # Without a gap, from the line outwards, as high as the root of their bytes.
    first, second = (one for one in before if not one.column)
    assert (first.low, first.high) == (0, picture.blocks[first.block].entry.bytes ** 0.5)
    assert second.low == first.high
    commit(t, Horizon(3), operation="vacuum")
    dead = Stacks(history_picture(t), 10)
    assert all(one.above for one in dead.at(4))
    assert [dead.state_at(n, 4) for n in (0, 2)] == ["dead", "dead"]
    assert dead.state_at(4, 2) is None


def test_many_chunks_share_columns():
    t = create()
    commit(t, *(add(t, f"2013-01-{1 + n:02}", rows=n + 1) for n in range(20)))
    stacks = Stacks(history_picture(t), 8)
    assert stacks.columns == 7
    assert [stacks.first_chunk(n) for n in (0, 6)] == ["2013-01-01", "2013-01-19"]
    assert {one.column for one in stacks.at(1)} == set(range(7))


def test_versions_are_chosen_at_equal_distances():
    t = create()
    for n in range(10):
        t.append(events(1, first=n))
    picture = history_picture(t)
    assert chosen_versions(picture, 4) == [1, 4, 7, 10]
    assert chosen_versions(picture, 1) == [10]
    assert chosen_versions(history_picture(t, 8), 6) == [8, 9, 10]
    assert chosen_versions(history_picture(create()), 6) == [0]
    for count in (0, 25):
        with pytest.raises(InvalidInput, match="1 to 24 versions"):
            chosen_versions(picture, count)


def test_a_still_is_svg_with_the_versions_asked_for():
    t = create()
    for n in range(5):
        t.append(events(2, first=2 * n))
    picture = history_picture(t)
    root = ET.fromstring(still_of(picture, [1, 5]))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert [text for text in texts if text.startswith("Version ")] == ["Version 1", "Version 5"]
    assert any(text.startswith("5 segments, 10 rows") for text in texts)
    assert root.find(f"{SVG}title").text == f"History of {t.uri}"
    with pytest.raises(InvalidInput, match="version 6 is not in the picture"):
        still_of(picture, [6])


def test_low_neighbours_are_drawn_as_one():
    t = create()
    commit(t, add(t, DAY, rows=2_000_000))
    few = len(still_of(history_picture(t), [1]))
    commit(t, *(add(t, DAY) for _ in range(2000)))
    assert len(still_of(history_picture(t), [2])) < few + 5000


def test_blocks_of_a_keyed_table_are_as_wide_as_their_buckets():
    t = partly_merged()
    stacks = Stacks(history_picture(t), 10)
    logs = [(one.left, one.right, one.state) for one in stacks.at(2)]
    assert logs == [(0, 1, "visible")] * 2
    places = {(stacks.kind(one.block), one.left, one.right, one.state) for one in stacks.at(3)}
    assert places == {
        ("base", 0, 0.25, "visible"),
        ("log", 0, 0.25, "overshadowed"),
        ("log", 0.25, 1, "visible"),
    }
    assert all(one.above for one in stacks.at(3))
    t.set_buckets(8)
    split = Stacks(history_picture(t), 10)
    assert split.at(3) == stacks.at(3)
    assert "rows" in still_of(history_picture(t), [3])


def test_names_in_a_log_are_texts_of_a_still():
    name = "s3://b/<script>alert(1)</script>&quot;"
    still = still_of(replace(history_picture(create()), table=name), [0])
    root = ET.fromstring(still)
    assert not list(root.iter(f"{SVG}script"))
    assert f"{name}: versions 0 to 0" in [element.text for element in root.iter(f"{SVG}text")]


def test_a_picture_has_no_path_of_its_machine(tmp_path):
    t = Table.create(str(tmp_path / "weather"), "at timestamp", time_column="at")
    t.branch("what-if")
    assert history_picture(t).name == "weather"
    branch = Table.open(str(tmp_path / "weather"), branch="what-if")
    assert history_picture(branch).name == "weather/_branches/what-if"
    remote = replace(history_picture(t), table="s3://bucket/weather")
    assert remote.name == "s3://bucket/weather"


def test_the_verb_writes_what_the_name_of_the_file_shows(tmp_path):
    uri = str(tmp_path / "t")
    Table.create(uri, "at timestamp", time_column="at").append([{"at": "2013-01-07T05:00:00Z"}])

    def run(name, *options):
        return CliRunner().invoke(build(), ["view", uri, "-o", str(tmp_path / name), *options])

    assert json.loads(run("h.svg", "--json").stdout)["versions"] == 2
    assert ET.parse(tmp_path / "h.svg").getroot().tag == f"{SVG}svg"
    assert str(tmp_path) not in (tmp_path / "h.svg").read_text()
    for name, options, told in (
        ("h.gif", (), "end with .html"),
        ("h.html", ("--panels", "3"), "--panels is for a still"),
        ("h.svg", ("--panels", "99"), "1 to 24"),
    ):
        refused = run(name, *options)
        assert refused.exit_code == 2
        assert told in refused.stderr


def test_a_png_without_its_extra_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(InvalidInput, match=r"eventlog-tables\[png\].*\.svg"):
        png_of("<svg/>")


class Converter:
    """Stands for the library on a machine without fonts: texts leave no trace."""

    @staticmethod
    def svg_to_bytes(svg_string, zoom=1.0):
        return b"blank" if zoom == 1 else b"png"


def test_a_png_without_a_font_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", Converter)
    with pytest.raises(InvalidInput, match="no font"):
        png_of("<svg/>")
