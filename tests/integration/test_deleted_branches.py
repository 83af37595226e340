"""Programs that still have a branch open which is deleted, and perhaps made again, meanwhile."""

from contextlib import suppress
from itertools import product

import pytest
from support.builders import Crash, check_sound, create, events, live, row_names
from support.crashes import ENDS, MortalStore, fresh

from eventlog import Table, errors, replication
from eventlog.compaction import Policy, plan, run, vacuum
from eventlog.fsck.check import fsck
from eventlog.readers import changes, scan
from eventlog.segments.segment_object import check_sizes
from eventlog.store.branching.branch import BranchStore
from eventlog.store.location import open_store
from eventlog.store.memory import MemoryStore
from eventlog.table.branching.deleting import of_others
from eventlog.writers import append

pytestmark = pytest.mark.usefixtures("in_turn")

MOST = 60  # calls of one operation
FORK = 2
ROWS = ["row 0", "row 1", "row 10"]


def with_branch(store, commits=1):
    """A table with two versions, and a branch of the second with `commits` of its own."""
    table = create(store, properties={"keyframe_commits": "3"})
    append(table, events(2))
    append(table, events(1, first=10))
    branch = table.branch("audit", at=FORK)
    for n in range(commits):
        append(branch, events(1, first=20 + n))


def on(store, seed):
    """A handle of another process, which has read the head of the branch."""
    table = Table(BranchStore(store, "audit"), fresh(store, seed).clock)
    table.session.head()
    return table


def rows_of(store, seed=700):
    return row_names(on(store, seed))


def replaced(store, seed=300):
    """The branch is deleted and made again, where the one before forked; it goes on."""
    fresh(store, seed).delete_branch("audit")
    append(fresh(store, seed + 1).branch("audit", at=FORK), events(1, first=77))


MEANWHILE = {"deleted": lambda store: fresh(store, 300).delete_branch("audit"), "again": replaced}


def check_what_is_left(store, became):
    assert fsck(fresh(store, 600)).errors == 0
    check_sound(store)
    if became == "again":
        assert rows_of(store) == [*ROWS, "row 77"]
        append(on(store, 710), events(1, first=78))
        assert rows_of(store, 720) == [*ROWS, "row 77", "row 78"]
        assert fsck(on(store, 730), checksums=True).findings == ()
        check_sound(on(store, 740).store)
    else:
        with pytest.raises(errors.TableNotFound):
            on(store, 700)
    with suppress(errors.TableNotFound):
        fresh(store, 800).delete_branch("audit")
    assert not list(store.list("_branches/"))


def plain(branch):
    append(branch, events(1, first=50))


def of_an_app(branch):
    append(branch, events(1, first=50), app_id="job", app_seq=1)


def merged_into(branch):
    parent = fresh(branch.store.parent, 450)
    append(parent, events(1, first=50))
    replication.merge(parent, branch)


def compacted(branch):
    append(branch, events(1, first=50))
    run(branch, policy=Policy(claim_bytes=0, small_task_bytes=0))


def leased(branch):
    with branch.claim("1970-01-01", "1970-01-02") as lease:
        append(branch, events(1, first=50))
        lease.renew()


VERBS = {
    "append": plain,
    "unit of work": of_an_app,
    "merge": merged_into,
    "compaction": compacted,
    "lease": leased,
    "key frame": lambda branch: (append(branch, events(1, first=50)), branch.write_keyframe()),
    "vacuum": lambda branch: (plain(branch), vacuum(branch, dry_run=False)),
}
QUICK = [("append", 0, "deleted"), ("append", 1, "again")]
CASES = [
    pytest.param(*case, marks=[] if case in QUICK else pytest.mark.long)
    for case in product(VERBS, (0, 1, 2), MEANWHILE)
]


def disturbed(store, verb, became, pause, how=""):
    """Run a verb on a branch that is replaced before a call; return whether the pause came.

    What is acknowledged was there when the branch was deleted, or is there now.
    """
    shown, said = [], []

    def meanwhile():
        shown.extend(rows_of(store, 200))
        MEANWHILE[became](store)

    at = pause if how else 0
    mortal = MortalStore(store, at, how or "before", pause=pause, meanwhile=meanwhile)
    mortal.armed = False
    branch = on(mortal, 100)
    mortal.armed = True
    try:
        verb(branch)
    except (errors.EventLogError, Crash) as error:
        said.append(error)
    mortal.armed = False
    if not shown:
        return False
    assert said or "row 50" in shown  # acknowledged: so it was there
    for error in said:
        if not isinstance(error, ENDS):
            assert isinstance(error, errors.TableNotFound), error
            assert "was deleted" in str(error)
    check_what_is_left(store, became)
    return True


@pytest.mark.hazard("W9")
# Rewriting leaves the file that it was about to upload to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("verb", "commits", "became"), CASES)
def test_w9_what_a_deleted_branch_acknowledged_was_there(verb, commits, became):
    """And a branch that is made again has none of it."""
    for pause in range(1, MOST):
        store = MemoryStore()
        with_branch(store, commits)
        if not disturbed(store, VERBS[verb], became, pause):
            assert pause > 2
            return
    raise AssertionError(f"more than {MOST} calls")


@pytest.mark.long
@pytest.mark.parametrize("place", ["directory", "s3"])
def test_on_every_kind_of_store(place, request, tmp_path):
    roots = (
        f"s3://{request.getfixturevalue('bucket')}/{n}" if place == "s3" else str(tmp_path / str(n))
        for n in range(MOST)
    )
    for pause in range(1, MOST):
        store = open_store(next(roots))
        with_branch(store)
        if not disturbed(store, plain, "again", pause):
            assert pause > 3
            return
    raise AssertionError(f"more than {MOST} calls")


class Late(MemoryStore):
    """Calls `before` once, right before the first commit of a branch."""

    before = None

    def put_if_absent(self, key, body):
        if "/_log/" in key and self.before is not None:
            call, self.before = self.before, None
            call()
        return super().put_if_absent(key, body)


QUESTIONS = {
    "append": lambda branch: append(branch, events(1, first=60)),
    "key frame": lambda branch: branch.write_keyframe(),
    "head": lambda branch: branch.refresh(),
    "version": lambda branch: scan(branch, version=FORK + 2).to_table(),
    "history": lambda branch: list(branch.history()),
    "vacuum": lambda branch: vacuum(branch, dry_run=False),
    "check": lambda branch: branch.verify(),
    "opened": lambda branch: Table(BranchStore(branch.store.parent, "audit")).session.head(),
}


@pytest.mark.hazard("W9")
@pytest.mark.parametrize("ahead", [False, True], ids=["same head", "one ahead"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_w9_what_another_writer_stored_late_is_no_damage(question, ahead):
    """Of two writers of a branch that is deleted, one stores a commit afterwards."""
    store = Late("memory://late-branches")
    store.delete(row.key for row in list(store.list("")))
    with_branch(store)
    one, two = on(store, 100), on(store, 200)

    def between():
        if ahead:
            append(one, events(1, first=50))
        fresh(store, 300).delete_branch("audit")

    store.before = between
    with pytest.raises(errors.TableNotFound, match="was deleted"):
        append(two, events(1, first=55))
    with pytest.raises(errors.TableNotFound, match=r"was deleted|there is no branch"):
        QUESTIONS[question](one)


@pytest.mark.parametrize(
    "how", ["lost", *(pytest.param(h, marks=pytest.mark.long) for h in ("before", "after"))]
)
def test_an_answer_is_lost_and_the_branch_replaced(how):
    for pause in range(1, MOST):
        store = MemoryStore()
        with_branch(store)
        if not disturbed(store, plain, "again", pause, how):
            return


def test_an_outcome_that_cannot_be_confirmed_is_unknown_until_it_can():
    store = MemoryStore()
    with_branch(store)
    answers = MortalStore(store)
    branch = on(answers, 100)
    transaction = branch.transaction("note", [], info={"a": "b"})
    down = []

    def get(key, **options):
        if down and key.endswith("_fork.json"):
            raise errors.Unavailable("down")
        return store.get(key, **options)

    answers.get = get
    down.append(True)
    with pytest.raises(errors.CommitUnknown) as caught:
        branch.commit(transaction)
    assert caught.value.version == caught.value.until == FORK + 2
    down.clear()
    assert branch.commit(transaction) == FORK + 2
    assert branch.refresh().version == FORK + 2
    down.append(True)
    with pytest.raises(errors.CommitUnknown):
        branch.commit(other := branch.transaction("note", []))
    down.clear()
    fresh(store, 300).delete_branch("audit")
    with pytest.raises(errors.TableNotFound, match="was deleted"):
        branch.commit(other)


def disturbed_deletions(how):
    """Delete a branch, which is replaced before a call, and then perhaps die; yield the store."""
    for pause in range(1, MOST):
        store, paused = MemoryStore(), []
        with_branch(store)

        def meanwhile(store=store, paused=paused):
            paused.append(True)
            replaced(store)

        at = pause if how else 0
        mortal = MortalStore(store, at, how or "before", pause=pause, meanwhile=meanwhile)
        with suppress(*ENDS, errors.TableNotFound):
            fresh(mortal, 100).delete_branch("audit")
        if not paused:
            assert pause > 5
            return
        yield store
    raise AssertionError(f"more than {MOST} calls")


@pytest.mark.hazard("W9")
@pytest.mark.parametrize(
    "how", ["", *(pytest.param(h, marks=pytest.mark.long) for h in ("before", "lost", "half"))]
)
def test_w9_a_deletion_leaves_the_next_branch_whole_or_takes_it_whole(how):
    """However long a program that deletes is held up."""
    seen = set()
    for store in disturbed_deletions(how):
        (found,) = fresh(store, 400).branches() or [None]
        seen.add(found is not None and not found.unfinished)
        if found is None or found.unfinished:
            with pytest.raises(errors.TableNotFound):
                on(store, 410)
        else:
            assert found.held
            assert rows_of(store) == [*ROWS, "row 77"]
            assert fsck(on(store, 430), checksums=True).findings == ()
        assert fsck(fresh(store, 420)).errors == 0
    assert seen == {True, False}


def test_only_what_is_certainly_dead_is_deleted():
    root, old, new = "_branches/audit/", "a" * 32, "b" * 32
    fork = f"{root}_fork.json"
    listed = [fork, f"{root}{old}/_log/1", f"{root}{new}/_log/1", f"{root}remains"]
    assert of_others(listed, root, None) == listed[1:]
    assert of_others(listed, root, new) == [listed[1], listed[3]]


READS = {
    "scan": lambda branch: scan(branch).to_table(),
    "count": lambda branch: scan(branch, where="name <> 'none'").count(),
    "older": lambda branch: scan(branch, version=FORK + 1).to_table(),
    "changes": lambda branch: changes(branch, FORK).to_table(),
    "snapshot": lambda branch: branch.snapshot(FORK + 1),
    "history": lambda branch: list(branch.history()),
    "refresh": lambda branch: branch.refresh(),
    "publish": lambda branch: fresh(branch.store.parent, 400).merge(branch),
    "copy": lambda branch: replication.follow(branch, Table(MemoryStore())),
    "vacuum": vacuum,
    "plan": lambda branch: plan(branch, Policy(small_task_bytes=0)),
}


@pytest.mark.parametrize("became", ["deleted", pytest.param("again", marks=pytest.mark.long)])
@pytest.mark.parametrize("read", READS)
def test_a_reader_is_told_that_the_branch_was_deleted(read, became):
    """And not of a loss, whatever it has read by then."""
    for later in (False, True):
        store = MemoryStore()
        with_branch(store, 2)
        branch = on(MortalStore(store), 100)  # a store that is far: nothing looks every time
        if later:
            scan(branch).to_table()
        MEANWHILE[became](store)
        with pytest.raises(errors.TableNotFound, match="the opened branch 'audit' was deleted"):
            READS[read](branch)


def test_a_scan_that_has_begun_is_told_that_the_branch_was_deleted():
    store = MemoryStore()
    with_branch(store, 2)
    branch = on(MortalStore(store), 100)
    begun, head = scan(branch), branch.session.head()
    fresh(store, 300).delete_branch("audit")
    for read in (
        begun.to_table,
        lambda: scan(branch, version=head.version).to_table(),
        lambda: check_sizes(branch.store, live(head), head.version),
    ):
        with pytest.raises(errors.TableNotFound, match="the opened branch 'audit' was deleted"):
            read()
