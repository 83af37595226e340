"""In what form a table is published as Iceberg, decided from what is published."""

import pytest

from eventlog.errors import InvalidInput
from eventlog.publishing.iceberg.iceberg_plan import IcebergForm, check_form, iceberg_form
from eventlog.publishing.publication import successive

TABLE = "0123456789abcdef0123456789abcdef"
UUID = "01234567-89ab-cdef-0123-456789abcdef"
S3 = "s3://bucket/t"


def form(root=S3, before=None, scheme=None, format_version=None):
    return iceberg_form(
        TABLE, root, before or {}, uri=root, scheme=scheme, format_version=format_version
    )


def published(one):
    """The fields of a metadata file in a form."""
    return {
        "table-uuid": one.table_uuid,
        "location": one.location,
        "format-version": one.format_version,
    }


def test_a_new_publication_has_the_form_that_is_asked_for():
    assert form() == IcebergForm(UUID, S3, 2)
    assert form(scheme="s3a", format_version=3) == IcebergForm(UUID, "s3a://bucket/t", 3)
    assert form("file:///t", scheme="s3a").location == "file:///t"


def test_a_publication_keeps_its_form_and_its_options_give_it_again():
    before = form(scheme="s3n", format_version=3)
    assert form(before=published(before)) == before
    assert before.options(S3) == ("--format-version", "3", "--scheme", "s3n")
    assert form().options(S3) == ()


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (IcebergForm("another", S3, 2), "the table of"),
        (IcebergForm(UUID, "s3a://bucket/t", 2), "the place, or its scheme of"),
        (IcebergForm(UUID, S3, 3), "the format version of"),
    ],
)
def test_another_form_is_refused_by_name(other, named):
    form().check_same(published(form()), S3)
    form().check_same({}, S3)
    with pytest.raises(InvalidInput, match=named):
        form().check_same(published(other), S3)


@pytest.mark.parametrize("root", ["s3://b/a%20b", "s3://b/a#b", "file:///a?b"])
def test_places_that_engines_read_in_different_ways_are_refused(root):
    with pytest.raises(InvalidInput, match="in different ways"):
        form(root)


def test_schemes_and_format_versions_that_there_are_not_are_refused():
    check_form("s3a", 3)
    check_form(None, None)
    for scheme, version in (("gs", None), (None, 1)):
        with pytest.raises(InvalidInput):
            check_form(scheme, version)
    with pytest.raises(InvalidInput, match="has no other scheme"):
        form("memory://t", scheme="s3")


def test_objects_of_a_parent_have_the_scheme_of_the_branch():
    one = form(scheme="s3a")
    assert one.uri_below("s3://bucket/parent", "data/x") == "s3a://bucket/parent/data/x"
    assert form("file:///b").uri_below("file:///a%20b", "data/x") == "file:///a b/data/x"


def test_successive_versions_are_spans():
    assert list(successive({5, 1, 2, 7, 6})) == [(1, 2), (5, 7)]
    assert list(successive(())) == []
