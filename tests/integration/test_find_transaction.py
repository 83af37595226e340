"""What `find_transaction` may say of a transaction."""

import pytest
from support.builders import (
    LateStore,
    add,
    check_sound,
    commit,
    create,
    drop_of,
    events,
    live,
    reopen,
)
from support.damage import Damaged
from support.forked_histories import copied

from eventlog import errors
from eventlog.commit import proposal
from eventlog.format import keys
from eventlog.model.actions import PropertyChange, SetProperties
from eventlog.state import fold
from eventlog.store.memory import MemoryStore
from eventlog.writers import append


def test_a_transaction_that_may_still_arrive_is_not_called_absent():
    inner = MemoryStore()
    create(inner)
    late = LateStore(inner)
    table = reopen(late)
    late.stuck = True
    with pytest.raises(errors.CommitUnknown) as caught:
        append(table, events(1))
    late.stuck = False
    error = caught.value
    asking = reopen(inner, seed=5)
    with pytest.raises(errors.CommitUnknown, match="may still take effect"):
        asking.find_transaction(error.transaction, start=error.version, until=error.until)
    late.land()
    assert asking.find_transaction(error.transaction, start=error.version, until=error.until) == 1


def test_a_void_transaction_is_not_found():
    table = create()
    commit(table, add(table))
    head, (segment,) = table.session.head(), live(table.session.head())
    change = SetProperties((PropertyChange("user.a", None, "b"),))
    good = table.transaction("properties", [change])
    void = table.transaction("replace", [drop_of(segment), drop_of(segment)])
    _, view = table.session.log.load_view(head, [good, void])
    effect = fold.judge([good, void], view, head.header.time + 1)
    assert void.id in effect.void
    made = proposal.propose(
        head,
        [good, void],
        effect,
        table_id=head.header.table,
        time_ms=head.header.time + 1,
        log=table.session.log,
    )
    table.store.put_if_absent(keys.commit_key(2), made.body)
    other = reopen(table.store)
    assert other.find_transaction(good.id) == 2
    assert other.find_transaction(void.id) is None
    check_sound(table.store)


def test_a_transaction_is_not_called_absent_where_a_commit_of_another_log_stands():
    table = create()
    for n in range(3):
        append(table, events(1, first=n))
    other = Damaged.of(copied(table.store))
    for n in range(3):
        append(table, events(1, first=10 + n))
        append(other.table, events(1, first=20 + n))
    sought = table.session.log.read(5)[0].transactions[0].id
    wrong = Damaged.of(copied(table.store))
    wrong.replace(keys.commit_key(5), other.store.get(keys.commit_key(5)))
    with pytest.raises(errors.Corrupt, match="does not follow the version read before"):
        reopen(wrong.store).find_transaction(sought, start=1)
    assert table.find_transaction(sought, start=1) == 5
