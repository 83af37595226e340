"""Credentials that expire while a commit is in flight."""

import pytest
from support import builders
from support.builders import create, reopen

from eventlog import errors


class Expiring:
    """A store whose credentials expire: from some request on it denies everything."""

    def __init__(self, inner, *, landed):
        self.inner, self.landed = inner, landed
        self.armed = self.denied = False

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def get(self, key, **span):
        if self.denied:
            raise errors.InvalidInput("denied (ExpiredToken)")
        return self.inner.get(key, **span)

    def put_if_absent(self, key, body):
        if self.denied:
            raise errors.InvalidInput("denied (ExpiredToken)")
        if self.armed and key.startswith("_log/"):
            self.denied = True
            if self.landed:
                self.inner.put_if_absent(key, body)
            raise errors.OutcomeUnknown("the answer was lost")
        return self.inner.put_if_absent(key, body)


@pytest.mark.parametrize("landed", [True, False])
def test_credentials_that_expire_in_a_commit_leave_its_outcome_unknown(landed):
    store = Expiring(create().store, landed=landed)
    table = reopen(store)
    store.armed = True
    transaction = table.transaction("append", [builders.add(table)])
    with pytest.raises(errors.CommitUnknown):
        table.commit(transaction)
    store.armed = store.denied = False
    assert table.commit(transaction) == 1
    assert reopen(store).session.head().totals.segments == 1
    builders.check_sound(store.inner)
