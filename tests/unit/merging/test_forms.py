"""Parts of segments: rows that all forms of a segment show or lack together."""

import random

import pytest
from pyroaring import BitMap64
from support.acts import segment_of

from eventlog.merging.planning.forms import divide, form_id, is_part, segment_id

S = segment_of("s")


def divided(rows, forms, passed=None):
    """The parts of a segment of so many rows: what each form lacks is by a letter; "" is plain."""
    entry = type(S)(**{name: getattr(S, name) for name in S.__struct_fields__} | {"rows": rows})
    named = {
        form_id(S.id, letter) if letter else S.id: None if lacks is None else BitMap64(lacks)
        for letter, lacks in forms.items()
    }
    later = {form_id(S.id, k): {form_id(S.id, f) for f in v} for k, v in (passed or {}).items()}
    return divide({S.id: entry}, named, later)


def shown(parts, letter):
    """The positions of the rows of a form."""
    name = form_id(S.id, letter) if letter else S.id
    return set(range(6)) - set(parts.lacking(S.id, parts.ids(name)))


@pytest.mark.parametrize("seed", range(20))
def test_parts_tell_each_form_and_do_not_overlap(seed):
    chance = random.Random(seed)
    forms = {"": []} | {c: chance.sample(range(6), chance.randint(1, 5)) for c in "abc"}
    parts = divided(6, forms)
    for letter, lacks in forms.items():
        assert shown(parts, letter) == set(range(6)) - set(lacks)
    pieces = [set(range(6)) - set(parts.lacking(S.id, [p])) for p in parts.ids(S.id)]
    assert sum(map(len, pieces)) == 6
    assert set.union(*pieces) == set(range(6))


def test_a_part_is_an_entry_with_its_own_rows_and_leads_back_to_the_segment():
    parts = divided(6, {"": [], "a": [0, 1]})
    both = parts.of(parts.whole(S))
    assert sorted(part.rows for part in both) == [2, 4]
    assert len({part.checksum for part in both}) == 2
    for part in both:
        assert is_part(part.id)
        assert segment_id(part.id) == S.id
        whole = parts.whole(part)
        assert (whole.id, whole.rows, whole.checksum) == (S.id, 6, S.checksum)


def test_other_segments_are_their_own_parts():
    parts, other = divided(6, {"": []}), segment_of("t")
    assert not parts.divides(other.id)
    assert parts.of(other) == [other]
    assert parts.ids(other.id) == {other.id}


def test_a_form_without_its_vector_has_the_rows_of_the_forms_after_it_if_it_is_passed():
    forms = {"": [], "a": None, "b": None, "c": [0, 1, 2], "d": [0, 3]}
    parts = divided(6, forms, {"a": "b", "b": "cd"})
    assert shown(parts, "a") == shown(parts, "b") == {1, 2, 3, 4, 5}
    assert not divided(6, forms, {"b": "cd"}).divides(S.id)


def test_a_form_that_comes_later_is_noted():
    parts = divided(6, {"": [], "a": [0], "b": [1]})
    new = form_id(S.id, "n")
    assert not parts.is_known(new)
    parts.note(new, parts.ids(form_id(S.id, "a")) & parts.ids(form_id(S.id, "b")))
    assert parts.is_known(new)
    assert shown(parts, "n") == {2, 3, 4, 5}
