"""A copy takes over, by the program's commands: planned, and when the table was just gone."""

import json
import re

import pytest
from click.testing import CliRunner
from support.builders import Crash, create, events, sorted_names
from support.copies import objects
from support.crashes import MortalStore

from eventlog import Table
from eventlog.cli.program import build
from eventlog.format import keys
from eventlog.replication import follow
from eventlog.store.location import open_store
from eventlog.writers import append


def run(*words, code=0):
    done = CliRunner().invoke(build(), words)
    assert done.exit_code == code, done.output
    return done.output


def write(root, count, first):
    append(Table.open(root), events(count, first=first))


def vacuumed(root):
    """Vacuum as much as is allowed; return the horizon."""
    run("vacuum", root, "--run", "--retention-hours", "0", "--staging-hours", "0")
    return Table.open(root).session.head().meta.horizon


def names_at(root):
    return sorted_names(Table.open(root))


def attached(root):
    return json.loads(run("replicas", root, "--json"))


@pytest.fixture
def roots(tmp_path):
    """The roots of a table, and of two copies to be."""
    table, *copies = ((tmp_path / name).as_uri() for name in ("table", "us", "asia"))
    create(open_store(table), properties={"keyframe_commits": "3"})
    for n in range(5):
        write(table, 2, 10 * n)
    return table, *copies


@pytest.mark.scenario("S5.1")
def test_a_copy_takes_over_and_the_table_follows_it(roots):
    table, us, asia = roots
    run("replicate", table, us, "--name", "us")
    run("replicate", table, asia, "--name", "asia")
    run("replicate", table, us, "--name", "us")  # what asia has, too
    stores = [open_store(root) for root in roots]
    assert objects(stores[0]) == objects(stores[1]) == objects(stores[2])
    assert {(r["name"], r["behind"]) for r in attached(table)} == {("us", 0), ("asia", 0)}

    assert f"eventlog replicas {us} --break us" in run("replicas", us)
    told = re.sub(r"\s+", " ", run("replicate", us, table, "--name", "eu", code=3))
    (command,) = re.findall(r"`eventlog ([^`]*)`", told)
    assert command == f"replicas {us} --break us"
    run(*command.split())
    write(us, 2, 200)
    run("replicate", us, table, "--name", "eu")
    told = re.sub(r"\s+", " ", run("replicate", table, us, "--name", "us", code=3))  # forgotten
    assert "is a copy itself, attached as 'eu'" in told
    run("replicate", us, asia, "--name", "asia")  # as it was attached, without a new copy
    run("replicate", us, table, "--name", "eu")
    assert objects(stores[0]) == objects(stores[1]) == objects(stores[2])
    assert names_at(table)[-2:] == names_at(us)[-2:]
    assert {(r["name"], r["owner"]) for r in attached(us)} == {("asia", asia), ("eu", table)}
    assert vacuumed(us) > 4  # what was attached to the table before does not hold it


def test_an_inherited_name_holds_the_horizon_and_the_vacuum_says_how_to_end_it(roots):
    table, us, _ = roots
    run("replicate", table, us, "--name", "us")
    write(us, 1, 200)
    write(us, 1, 201)
    told = re.sub(r"\s+", " ", run("vacuum", us, "--retention-hours", "0"))
    command = f"eventlog replicas {us} --break us"
    assert f"`{command}` if it does not follow here" in told
    held = vacuumed(us)
    run(*command.split()[1:])
    assert vacuumed(us) > held


@pytest.mark.hazard("G2")
@pytest.mark.parametrize("lost", [True, False])
def test_where_neither_can_follow_the_commands_that_are_named_work(roots, lost):
    """The table came back: with a write that the copy lacks, or only an acknowledgement."""
    table, us, _ = roots

    class Cut(MortalStore):
        """Dies once the acknowledgement is committed."""

        def put_if_absent(self, key, body):
            newest = self.inner.list(keys.LOG_PREFIX, limit=1)
            self.dead |= [keys.parse_log_key(o.key)[0] for o in newest] == [had]
            return super().put_if_absent(key, body)

    if lost:
        run("replicate", table, us, "--name", "us")
        write(table, 1, 300)
    else:
        had = Table.open(table).session.head().version + 1  # with the attachment
        with pytest.raises(Crash):
            follow(table, Table(Cut(open_store(us))), name="us")
    write(us, 2, 200)
    write(us, 1, 202)

    for words in (("replicate", table, us, "--name", "us"), ("replicate", us, table)):
        told = re.sub(r"\s+", " ", run(*words, code=3))
        assert "neither can follow the other" in told
        assert ("acknowledgements alone" in told) == (not lost)
    commands = re.findall(r"`eventlog ([^`]*)`", told)
    assert set(commands) == {f"merge {us} {table}"} | ({f"merge {table} {us}"} if lost else set())
    for command in commands:
        run(*command.split())
    assert names_at(table) == names_at(us)
    assert "row 202" in names_at(table)
    assert ("row 300" in names_at(us)) == lost
    told = re.sub(r"\s+", " ", run("replicate", table, us, "--name", "us", code=3))
    (command,) = re.findall(r"`eventlog (replicas [^`]*)`", told)
    run(*command.split())
    assert attached(table) == []


def test_a_copy_that_is_ahead_is_followed_by_the_command_that_is_named(roots):
    table, us, _ = roots
    run("replicate", table, us)
    write(us, 1, 200)
    told = re.sub(r"\s+", " ", run("replicate", table, us, code=3))
    (command,) = re.findall(r"`eventlog ([^`]*)`", told)
    run(*command.split())
    assert objects(open_store(table)) == objects(open_store(us))


def test_a_table_is_not_copied_into_itself_by_a_link(roots, tmp_path):
    table, _, _ = roots
    (tmp_path / "link").symlink_to(tmp_path / "table")
    assert "cannot follow itself" in run("replicate", table, str(tmp_path / "link"), code=2)
    assert "lies in" in run("replicate", table, str(tmp_path / "link" / "copy"), code=2)


def test_json_of_a_copy_and_its_older_versions_is_one_object(roots):
    table, us, _ = roots
    done = run("replicate", table, us, "--from", "keyframe", "--backfill", "--json")
    (facts,) = map(json.loads, done.splitlines())
    assert facts["start"] > 0 < facts["backfilled"]["versions"]
    assert objects(open_store(table)) == objects(open_store(us))


@pytest.mark.hazard("W18")
def test_a_copy_that_took_writes_is_filled_by_the_command_that_a_merge_names(tmp_path):
    table, one, two = (str(tmp_path / name) for name in ("table", "one", "two"))
    create(open_store(table))
    write(table, 1, 0)
    run("replicate", table, one)
    for number in (1, 2):
        write(table, 1, number)
    Table.open(table).write_keyframe()
    write(table, 1, 3)
    run("replicate", table, two, "--from", "keyframe")
    for root, number in ((one, 10), (two, 20), (table, 30)):
        write(root, 1, number)
    named = "replicate", table, two, "--backfill"
    assert "eventlog replicate TABLE" in run("merge", one, two, code=2)
    said = run(*named)
    assert "backfilled" in said
    assert "took writes of its own" in said
    assert "backfilled 0 versions" in run(*named)
    run("merge", one, two)
    run("merge", two, one)
    assert names_at(one) == names_at(two)
    assert len(names_at(one)) == 6
