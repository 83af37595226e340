"""Any history, any loss: what is read instead is what the whole log's lineage says, row by row."""

from hypothesis import given
from hypothesis import strategies as st
from support.builders import bodies, create, events, live
from support.replacements import replace

from eventlog import errors
from eventlog.format import codec, keys
from eventlog.log import spills
from eventlog.readers import scan
from eventlog.recovery import fallback
from eventlog.recovery.lineage import change_of, members
from eventlog.recovery.overshadowing import resolve
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite

some = st.integers(0, 99)
steps = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 3)),
    st.tuples(st.just("replace"), st.lists(some, min_size=1, max_size=3), st.integers(1, 2)),
    st.tuples(st.just("replace"), st.lists(some, min_size=1, max_size=3), st.integers(1, 2)),
    st.tuples(st.just("overwrite"), st.integers(0, 2)),
    st.tuples(st.just("restore"), some),
)


def take(table, step, number):
    """Do one step of a history; return the number of the next row."""
    verb, *args = step
    there = live(table.refresh())
    if verb == "append" or not there:
        append(table, events(6, first=number, days=args[0] if verb == "append" else 1))
        return number + 6
    if verb == "replace":
        picks, parts = args
        replace(table, list({there[p % len(there)].id: there[p % len(there)] for p in picks}
                            .values()), parts=parts)  # fmt: skip
    elif verb == "overwrite":
        day = f"1970-01-0{1 + args[0]}"
        new = events(2, day=args[0], first=number)
        overwrite(table, new, start=day, end=f"1970-01-0{2 + args[0]}")
        return number + 2
    else:
        table.restore(args[0] % (table.session.head().version + 1))
    return number


def whole_states(table, lost):
    """What every accepted transaction of the log says, with these objects lost."""
    changes = []
    for version, body in enumerate(bodies(table.store)):
        commit = spills.unpack(codec.decode_commit(body, version), table.session.log.spill)
        changes += [change_of(transaction) for transaction in commit.transactions]
    found = members(changes).values()
    return resolve((m for m in found if m.id not in lost), lost=(m for m in found if m.id in lost))


@given(st.lists(steps, min_size=1, max_size=7), st.lists(some, min_size=1, max_size=3))
def test_what_is_read_instead_is_what_the_whole_log_says(history, picks):
    table, number = create(MemoryStore()), 0
    for step in history:
        number = take(table, step, number)
    wanted = sorted(scan(table).to_table().column("name").to_pylist())
    objects = [row.key for row in table.store.list("data/")]
    gone = {objects[pick % len(objects)] for pick in picks}
    table.store.delete(gone)
    lost = {keys.parse_segment_key(key)[2] for key in gone}
    current = live(table.refresh())
    found = fallback.find_fallback(
        table.session.log, table.session.head(), [s for s in current if s.id in lost]
    )
    states = whole_states(table, lost)
    assert {s.id for s in found.missing} == states.missing
    assert {s.id for s in found.back} == states.visible - {s.id for s in current}
    left = {s.id for s in current} - {s.id for s in (*found.out, *found.missing)}
    assert left | {s.id for s in found.back} == states.visible
    try:
        read = scan(table, fallback=True).to_table().column("name").to_pylist()
    except errors.DataLoss:
        assert states.missing
    else:
        assert not states.missing
        assert sorted(read) == wanted
