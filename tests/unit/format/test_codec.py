"""Hashes and sizes of what is stored."""

import pytest
from support.builders import create, replaced
from support.effort import calls_of

from eventlog import errors
from eventlog.format import codec, wellformed
from eventlog.model.actions import AppReset, Restore
from eventlog.model.entries import Segment
from eventlog.model.records import AppMark, Meta, Transaction


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
    head = create().session.head()
    stored, _ = head.log.read(0)
    changes = replaced(stored.header.changes, writer="x" * 2000)
    with pytest.raises(errors.InvalidInput, match="header"):
        codec.encode_commit(replaced(stored, header=replaced(stored.header, changes=changes)))


def test_names_of_apps_that_a_restore_resets_are_in_order():
    """FORMAT.md R5.1, as of every map."""
    a, b = AppReset(1, None), AppReset(3, 2)
    for apps in ({"a": a, "b": b}, {}):
        wellformed.check_transaction(_restore(apps))
    with pytest.raises(errors.Corrupt, match="names of the map apps are not in order"):
        wellformed.check_transaction(_restore({"b": b, "a": a}))


def _restore(apps):
    return Transaction("0" * 32, "restore", "w", 3, actions=(Restore(2, apps=apps),))


def test_of_many_marks_only_those_that_change_are_hashed_and_named():
    marks = {f"app {n:05d}": AppMark(n, 1, 2) for n in range(2000)}
    before = Meta(apps=marks)
    after = Meta(apps={**marks, "app 00007": AppMark(9, 9, 9), "new": AppMark(1, 1, 1)})
    gone = Meta(apps={name: mark for name, mark in marks.items() if name != "app 00003"})
    for made in (after, gone):
        whole = codec.meta_hash(made) - codec.meta_hash(before)
        assert codec.meta_hash_change(before, made) == whole % codec.HASH_MODULUS
    assert [*codec.meta_diff(before, after)["apps"]] == ["app 00007", "new"]
    assert codec.meta_diff(before, gone) == {"apps": {"app 00003": None}}
    assert codec.meta_diff(before, before) == {}
    many = calls_of(lambda: codec.meta_hash(before))
    for few in (codec.meta_hash_change, codec.meta_diff):
        assert calls_of(lambda few=few: few(before, after)) < 1.5 * len(marks) < many
