"""A second reader, which knows the text of FORMAT.md alone, finds what the vectors say."""

import json

import pytest
from golden import checks, vectors

from eventlog.format import keys

VECTORS = json.loads(vectors.VECTORS.read_text(encoding="utf-8"))
READER = checks.reader()
EACH = 10  # versions whose rows are read


def test_it_finds_the_same_entries_and_rows():
    for name, known in VECTORS.items():
        contents = checks.objects(name.split("/", maxsplit=1)[0])
        second = READER.Reader(contents, checks.branches_of(name))
        newest = second.head()
        for one in known:
            if "cut" in one:
                assert second.commit(one["version"])[1] == one["commit"]
                continue
            found = second.open(one["version"])
            assert found.commit_hash == one["commit"]
            assert (found.base, found.header["state_hash"]) == (one["key_frame"], one["state_hash"])
            names = ("segments", "rows", "bytes", "deleted")
            totals = found.header["totals"]
            assert [totals[name] for name in names if name in totals] == one["totals"]
            ids = sorted(entry["id"][:8] for entry in found.live.values())
            assert " ".join(ids) == one["live"]
            if one["version"] % EACH and one is not known[-1]:
                continue
            try:
                rows = second.rows(found, newest)
                said = one["rows"] if rows is None else vectors.rows_digest(rows)
            except READER.Lost:
                said = "lost"
            except READER.Vacuumed:
                said = "vacuumed"
            assert said == one["rows"] or "keyed" in found.state["layout"], (name, one["version"])


@pytest.fixture(scope="module")
def results():
    return checks.judged()


def commits_cut(case):
    """The commits above its version that a case takes away, so that its version is the head."""
    gone = [change["key"] for change in case["changes"] if change.get("absent")]
    parsed = ((key, keys.parse_log_key(key)) for key in gone)
    return tuple(key for key, at in parsed if at and not at[1] and at[0] > case["version"])


@pytest.mark.verify
def test_it_does_with_changed_tables_what_the_vectors_say(results):
    plain = {}
    for case, said, _ in results:
        cut = commits_cut(case)
        at = case["table"], case["version"], case["what"] == "vacuumed", cut
        if at not in plain:
            contents = dict(checks.objects(case["table"].split("/", maxsplit=1)[0]))
            for key in cut:
                del contents[key]
            plain[at] = checks.verdict(
                READER, case | {"what": "vacuumed" if at[2] else "same"}, contents
            )
        assert checks.as_it_should(case, said, plain[at]), (case["name"], said)
    names = [case["name"] for case, _, _ in results]
    assert len(set(names)) == len(names)


def test_each_check_fails_for_a_vector_or_has_a_reason(results):
    assert [checks.text_of(check) for check in checks.never_failed(results)] == []
    assert {checks.text_of(check) for check in checks.all_checks()} >= checks.UNNOTICED.keys()


@pytest.mark.long
def test_each_check_is_noticed_where_it_is_missing_or_has_a_reason(results):
    left = [checks.text_of(check) for check in checks.unnoticed(results)]
    assert {*left} == {*checks.UNNOTICED}
