"""A table that comes to a store which ignores preconditions (hazard W10).

It was created on a store that keeps the promise, so that the probe of its creation said nothing of
where it lies now. The first commit of a program finds out.
"""

import pytest
from support.builders import add, commit, create, events, reopen

from eventlog import Table, errors
from eventlog.format import keys
from eventlog.store.memory import MemoryStore
from eventlog.store.s3.adapter import S3Store
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, overwrite


class Strange(MemoryStore):
    """A store of which nobody knows whether it keeps the promise; it does."""

    @property
    def unproven(self):
        return self.uri


class Overwriting(Strange):
    """One that answers 200 and overwrites."""

    def put_if_absent(self, key, body):
        self.delete([key])
        return super().put_if_absent(key, body)


class Generous(Strange):
    """One that keeps the first object, and tells everybody that they created it."""

    def put_if_absent(self, key, body):
        super().put_if_absent(key, body)
        return True


class Loose(S3Store):
    """An S3 store that does not look at If-None-Match."""

    def _send(self, client, operation, request):
        kept = {name: value for name, value in request.items() if name != "IfNoneMatch"}
        return super()._send(client, operation, kept)


def copied(source, target, *, probes):
    """Copy the objects of a table, as `aws s3 sync` does."""
    for found in source.list(""):
        if probes or not found.key.startswith(keys.PROBES_PREFIX):
            assert target.put_if_absent(found.key, source.get(found.key))
    return target


def good_table():
    table = create()
    append(table, events(2))
    return table


VERBS = {
    "append": lambda t: append(t, events(1, first=9)),
    "overwrite": lambda t: overwrite(t, events(1, first=9), start="1970-01-01", end="1970-01-02"),
    "commit": lambda t: commit(t, add(t)),
    "pin": lambda t: t.pin("mine"),
}


@pytest.mark.hazard("W10")
@pytest.mark.parametrize("probes", [True, False], ids=["with its probe", "without"])
@pytest.mark.parametrize("kind", [Overwriting, Generous])
@pytest.mark.parametrize("verb", VERBS)
def test_w10_the_first_commit_is_refused(verb, kind, probes):
    store = copied(good_table().store, kind(), probes=probes)
    log = {found.key: store.get(found.key) for found in store.list("_log/")}
    first, second = reopen(store, 10), reopen(store, 20)
    for table in (first, second, first):
        with pytest.raises(errors.InvalidInput, match="ignores preconditions"):
            VERBS[verb](table)
    assert {found.key: store.get(found.key) for found in store.list("_log/")} == log


@pytest.mark.hazard("W10")
@pytest.mark.parametrize("probes", [True, False], ids=["with its probe", "without"])
def test_w10_on_s3(s3, bucket, probes):
    source = good_table().store
    good = copied(source, S3Store(f"s3://{bucket}/good"), probes=probes)
    loose = copied(source, Loose(f"s3://{bucket}/loose"), probes=probes)
    with pytest.raises(errors.InvalidInput, match="ignores preconditions"):
        append(Table.open(loose.uri, store=loose), events(1, first=9))
    with s3.measure() as counts:
        append(Table.open(good.uri), events(1, first=9))
    opening = 2
    # The segment, the commit, and the probe; a copy without it costs another try and a look.
    assert counts.put == 3 + (not probes)
    assert counts.total == opening + counts.put + (not probes)
    with s3.measure() as counts:
        append(Table.open(good.uri), events(1, first=10))
    assert (counts.put, counts.total) == (2, opening + 2)


@pytest.mark.hazard("W10")
def test_w10_a_store_that_keeps_the_promise_is_asked_once():
    store = CountingStore(copied(good_table().store, Strange(), probes=True))
    table = reopen(store)
    for extra in (1, 0, 0):
        with store.measure() as counts:
            append(table, events(1, first=9))
        assert (counts.put, counts.total) == (2 + extra, 2 + extra)
    with store.measure() as counts:  # and so for all handles of this program
        append(reopen(store, 3), events(1, first=9))
    assert counts.put == 2


@pytest.mark.hazard("W10")
def test_w10_an_unclear_answer_proves_nothing():
    class Silent(Strange):
        silent = True

        def put_if_absent(self, key, body):
            if self.silent and key.startswith(keys.PROBES_PREFIX):
                raise errors.OutcomeUnknown("no answer", key=key)
            return super().put_if_absent(key, body)

    store = copied(good_table().store, Strange(), probes=True)
    silent = Silent(store.uri)
    table = reopen(silent)
    with pytest.raises(errors.Unavailable):
        append(table, events(1, first=9))
    assert reopen(store).session.head().version == 1
    silent.silent = False
    assert append(table, events(1, first=9)) == 2


@pytest.mark.hazard("W10")
def test_w10_creating_a_table_is_proof_for_its_program():
    store = CountingStore(Strange())
    table = create(store)
    with store.measure() as counts:
        append(table, events(1))
    assert counts.total == 2


@pytest.mark.hazard("W10")
@pytest.mark.parametrize(
    ("endpoint", "known"),
    [
        ("https://s3.amazonaws.com", True),
        ("https://s3.eu-central-1.amazonaws.com", True),
        ("https://s3-us-west-2.amazonaws.com/", True),
        ("https://s3.cn-north-1.amazonaws.com.cn", True),
        ("https://s3.dualstack.us-gov-west-1.amazonaws.com", True),
        ("https://s3-fips.dualstack.us-east-1.amazonaws.com", True),
        ("https://s3-accelerate.amazonaws.com", True),
        ("https://bucket.vpce-0a1b-1c.s3.us-east-1.vpce.amazonaws.com:443", True),
        ("http://minio.example.com:9000", False),
        ("https://minio.example.com", False),
        ("https://s3.amazonaws.com.example.com", False),
        ("https://ec2-1-2-3-4.compute-1.amazonaws.com", False),
        ("https://s3.ec2-1-2-3-4.compute-1.amazonaws.com", False),
        ("https://s3-123.us-east-1.elb.amazonaws.com", False),
        ("https://nots3.amazonaws.com", False),
        ("https://s3.us-east-1.example.amazonaws.com", False),
    ],
)
def test_w10_only_amazons_own_s3_is_known(endpoint, known):
    options = {"endpoint_url": endpoint, "access_key_id": "a", "secret_access_key": "b"}
    store = S3Store("s3://bucket/prefix", {**options, "region": "us-east-1"})
    assert (store.unproven is None) == known
