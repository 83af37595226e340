"""The picture of a history: its blocks and lanes are those of the log, and its page is data."""

import html
import json
import re

import pytest
from click.testing import CliRunner
from support.builders import add, commit, create, events
from support.keyed_tables import merged

from eventlog import Table
from eventlog.cli.program import build
from eventlog.errors import InvalidInput
from eventlog.model.actions import Horizon, Replace, Restore
from eventlog.state.delta import add_of, drop_of
from eventlog.view import history_picture, page_of

HOSTILE = "</script><script>alert(1)</script>{{script}}\u202e&lt;"


@pytest.fixture(scope="module")
def table():
    """A table with every state of segments, and every kind of lane."""
    t = create()
    t.append(events(4, days=2))
    t.append(events(4, days=2, first=4))
    first, second = t.snapshot().segments(chunks=["1970-01-01"])
    merged = add(t, "1970-01-01", rows=first.rows + second.rows)
    t.pin("early", 1)
    version = t.snapshot().version
    commit(t, Replace(version, 0), drop_of(first), drop_of(second), merged, operation="compact")
    t.unpin("early")
    t.delete(where="value >= 2.5 AND at >= TIMESTAMP '1970-01-02 00:00:00'")
    t.branch("what-if")
    t.claim("1970-01-01", "1970-01-02", owner=HOSTILE)
    t.overwrite(events(2, day=1), start="1970-01-02", end="1970-01-03")
    return t


def data(page):
    return json.loads(re.search(r'id="history">(.*?)</script>', page, re.DOTALL)[1])


def live(picture, version):
    """The rows by segment of a version, as the picture has them."""
    of = [t.version for t in picture.transactions]
    found = {}
    for block in picture.blocks:
        begin = picture.first if block.made < 0 else of[block.made]
        if begin <= version and (block.ended is None or version < of[block.ended]):
            masked = [rows for at, rows in block.masks if at <= version]
            found[block.entry.id] = block.entry.rows - (masked[-1] if masked else 0)
    return found


def test_the_blocks_of_each_version_are_its_live_segments(table):
    picture = history_picture(table)
    assert (picture.first, picture.last) == (0, table.snapshot().version)
    for version in range(picture.last + 1):
        stored = table.snapshot(version).segments()
        assert live(picture, version) == {s.id: s.live_rows for s in stored}, version


def test_a_range_has_the_same_blocks_as_the_whole(table):
    whole = history_picture(table)
    part = history_picture(table, 3, whole.last - 1)
    assert (part.first, part.last) == (3, whole.last - 1)
    for version in range(3, whole.last):
        assert live(part, version) == live(whole, version)


def test_a_segment_that_is_added_with_deleted_rows_is_masked():
    t = create()
    t.append(events(20))
    t.branch("work").delete(where="value < 2.5")
    t.merge("work")
    picture = history_picture(t)
    assert data(page_of(picture))["blocks"]["masks"] == [[1, picture.last, 5]]
    (segment,) = t.snapshot().segments()
    assert live(picture, picture.last) == {segment.id: t.count()} == {segment.id: 15}


@pytest.mark.parametrize("order", [1, -1], ids=["drop first", "add first"])
def test_a_segment_that_gets_another_vector_has_a_second_block(order):
    t = create()
    t.append(events(20))
    (before,) = t.snapshot().segments()
    t.delete(where="value < 2.5")
    (masked,) = t.snapshot().segments()
    exchange = [drop_of(masked), add_of(before)][::order]
    commit(t, Restore(1), *exchange, operation="restore")
    commit(t, Restore(2), drop_of(t.snapshot().segments()[0]), add_of(masked), operation="restore")
    picture = history_picture(t)
    assert [live(picture, version)[before.id] for version in range(1, 5)] == [20, 15, 20, 15]
    assert [block.ended for block in picture.blocks] == [3, 4, None]


def test_a_rewrite_ends_its_sources_and_makes_its_result_in_one_transaction(table):
    picture = history_picture(table)
    (number,) = [n for n, t in enumerate(picture.transactions) if t.rewrite]
    ended = [block for block in picture.blocks if block.ended == number]
    made = [block for block in picture.blocks if block.made == number]
    assert len(ended) == 2
    assert [block.entry.rows for block in made] == [sum(block.entry.rows for block in ended)]


def test_lanes_begin_and_end_where_the_log_sets_and_removes_them(table):
    lanes = {lane.kind: lane for lane in history_picture(table).lanes}
    assert set(lanes) == {"pin", "branch", "claim"}
    assert (lanes["pin"].name, lanes["pin"].held) == ("early", [(3, 1)])
    assert (lanes["pin"].begin, lanes["pin"].end) == (3, 5)
    assert (lanes["branch"].name, lanes["branch"].end) == ("what-if", None)
    assert "1970-01-01T00:00Z to 1970-01-02T00:00Z" in lanes["claim"].text


def test_heads_of_branches_and_merges_are_in_the_picture():
    t = create()
    t.append(events(2))
    t.branch("empty")
    b = t.branch("what-if")
    b.append(events(1, first=2))
    b.branch("deeper")
    b.append(events(1, first=3))
    t.merge(b)
    b.append(events(1, first=4))
    picture = history_picture(t)
    heads = {head.name: (head.fork, head.version) for head in picture.heads}
    assert heads == {"empty": (2, 2), "what-if": (3, 7)}
    assert (picture.fork, history_picture(b).fork) == (None, 3)
    assert [(h.name, h.fork) for h in history_picture(b).heads] == [("what-if/deeper", 5)]
    (merge,) = picture.merges
    assert (merge.version, merge.last) == (4, 6)
    page = data(page_of(picture))
    assert page["merges"] == [[4, 6, "what-if"]]
    lanes = {lane[1]: lane[-1] for lane in page["lanes"]}
    time_ms = b.snapshot().header.time
    then = max(v for v, at in enumerate(picture.times) if at <= time_ms)
    assert lanes["what-if"] == [3, 7, time_ms, then]
    b.delete_branch("deeper")
    t.delete_branch("what-if")
    assert [head.name for head in history_picture(t).heads] == ["empty"]


def test_a_keyed_table_has_the_places_of_its_segments():
    t = create(key="name", buckets=4, granularity="all")
    for n in range(2):
        t.upsert(events(40, first=4 * n))
    t.commit(merged(t, t.snapshot(), "all", 2, 2, 1, 2))
    t.set_buckets(8)
    blocks = data(page_of(history_picture(t)))["blocks"]
    kinds = [blocks["kind"]["texts"][at] for at in blocks["kind"]["at"]]
    places = zip(kinds, blocks["bucket"], blocks["wide"], blocks["level"], strict=True)
    assert list(places) == [("log", 0, 8, 0), ("log", 0, 8, 0), ("base", 4, 2, 1)]
    assert (blocks["buckets"], blocks["low"], blocks["high"]) == (8, [1, 1, -1], [0, 0, 1])


def test_the_horizon_is_in_the_picture():
    t = create()
    t.append(events(2))
    commit(t, Horizon(1), operation="vacuum")
    assert history_picture(t).horizons == ((0, 0), (2, 1))
    assert history_picture(t, 2).horizons == ((2, 1),)


def test_names_in_a_log_are_data_of_the_page(table):
    page = page_of(history_picture(table))
    own = page.replace(data_text(page), "")
    assert page.count("</script>") == own.count("</script>") == 2
    (claim,) = [lane for lane in data(page)["lanes"] if lane[0] == "claim"]
    assert claim[2] == HOSTILE.replace("\u202e", "\\u202e")
    assert html.escape(HOSTILE) not in own


def data_text(page):
    return re.search(r'id="history">(.*?)</script>', page, re.DOTALL)[1]


def test_the_page_needs_no_other_file(table):
    page = page_of(history_picture(table)).replace(table.uri, "")
    assert "{{" not in page.replace(data_text(page), "").replace("=> ({", "")
    assert not re.search(r"https?://|@import|\bsrc=|<link|url\(|\bfetch\(", page)


def test_columns_take_few_bytes_a_segment():
    t = create()
    commit(t, *(add(t, f"2013-01-{1 + n % 28:02}", rows=n + 1) for n in range(1000)))
    few, many = (page_of(history_picture(t, 0, until)) for until in (0, 1))
    assert (len(many) - len(few)) / 1000 < 60


def test_versions_that_are_not_there_are_refused(table):
    head = table.snapshot().version
    for first, last in ((None, head + 1), (4, 3), (head + 1, None)):
        with pytest.raises(InvalidInput, match=f"the newest is {head}"):
            history_picture(table, first, last)


def test_the_verb_writes_the_page_and_says_where(tmp_path):
    uri = str(tmp_path / "t")
    Table.create(uri, "at timestamp", time_column="at").append([{"at": "2013-01-07T05:00:00Z"}])
    to = tmp_path / "history.html"
    answer = CliRunner().invoke(build(), ["view", uri, "-o", str(to), "--from", "1", "--json"])
    facts = json.loads(answer.stdout)
    assert (facts["from"], facts["to"], facts["segments"]) == (1, 1, 1)
    assert facts["bytes"] == to.stat().st_size
    assert data(to.read_text())["blocks"]["rows"] == [1]
    refused = CliRunner().invoke(build(), ["view", uri, "-o", str(tmp_path / "no" / "x.html")])
    assert refused.exit_code == 2
    assert "cannot be written" in refused.stderr
