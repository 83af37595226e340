"""The Lambda function: what it takes on, what it leaves, and what it reports as failed."""

import importlib
import json
import logging
import subprocess
import sys

import pytest
from support import builders
from support.keyed_histories import check_answers, shapes, written
from support.lambda_queue import Invocation, commits, logging_of_its_own, row_list
from tidy.tables import EXTRAS

from eventlog import Table
from eventlog.clock import ManualClock, SystemClock
from eventlog.compaction import lambda_handler, run
from eventlog.compaction.aws import bundle, json_lines
from eventlog.compaction.aws import work as lambda_work
from eventlog.compaction.aws.lambda_settings import Settings
from eventlog.compaction.execute import Outcome
from eventlog.compaction.lambda_handler import Container, handler
from eventlog.compaction.planner.planning import plan
from eventlog.compaction.policy import MIB, Policy
from eventlog.errors import EventLogError, InvalidInput, Unavailable
from eventlog.format import keys
from eventlog.log.log import Log
from eventlog.table.leases import SILENT_S
from eventlog.writers import append, overwrite

# The package exports a function of the module's name.
performing = importlib.import_module("eventlog.compaction.execute")

EACH = Policy(small_task_bytes=0)  # a task for each chunk


@pytest.fixture
def root(tmp_path):
    return (tmp_path / "tables").as_uri()


@pytest.fixture
def make(root):
    """A function: a table below the root with so many segments in each of so many days."""

    def made(name="one", times=3, days=1):
        own = {"inline_bytes": "0"}
        uri = f"{root}/{name}"
        table = Table.create(uri, builders.SCHEMA, time_column="at", properties=own)
        for number in range(times):
            append(table, builders.events(2 * days, days=days, first=100 * number))
        return table

    return made


@pytest.fixture
def sent():
    return []


@pytest.fixture
def container(root, sent):
    return Container(Settings(allowed=(root,), policy=EACH), lambda *given: sent.append(given))


@pytest.fixture
def queued(root, sent):
    """A container with a queue to go on through."""
    settings = Settings(allowed=(root,), policy=EACH, queue_url="q")
    return Container(settings, lambda *given: sent.append(given))


@pytest.fixture
def lines(caplog):
    """A function: the facts of what was logged under a name."""
    caplog.set_level(logging.INFO, logger="eventlog.compaction")

    def said(event):
        return [r.facts for r in caplog.records if r.getMessage() == event]

    return said


def batch(*bodies):
    return {
        "Records": [
            {"eventSource": "aws:sqs", "messageId": f"m{n}", "body": json.dumps(body)}
            for n, body in enumerate(bodies)
        ]
    }


def look(*tables):
    return {"tables": [table.uri for table in tables]}


def failed(answer):
    return [item["itemIdentifier"] for item in answer["batchItemFailures"]]


class Fake:
    """Stands for `perform`: ends as it is told, and notes what it was given."""

    def __init__(self, monkeypatch, *ends):
        self.ends, self.given = list(ends), []
        self.real = lambda_work.perform
        monkeypatch.setattr(lambda_work, "perform", self)

    def __call__(self, table, task, policy, *, deadline_s):
        self.given.append((task, policy, deadline_s))
        if self.ends:
            return Outcome(task=task.id, status=self.ends.pop(0), error="told so")
        return self.real(table, task, policy, deadline_s=deadline_s)


# --- what it takes on -----------------------------------------------------------------------------


def test_it_compacts_what_a_schedule_names(make, container, lines):
    table = make(days=2)
    rows = row_list(table)
    assert container.respond(look(table), Invocation()) == {"batchItemFailures": []}
    assert table.refresh().totals.segments == 2
    assert row_list(table) == rows
    (done,) = lines("table done")
    assert (done["done"], done["unfinished"], done["turn"]) == (2, False, 0)
    assert done["table"] == table.uri
    ended = lines("task ended")
    assert [line["segments"] for line in ended] == [3, 3]
    assert all(line["reason"] and line["status"] == "done" for line in ended)


def test_it_changes_the_granularity_of_a_table_that_follows_its_data(make, container):
    table = make(times=1)
    append(table, builders.events(39, day=1, days=39))
    container.respond(look(table), Invocation())
    assert table.refresh().layout.granularity == "month"
    assert table.refresh().totals.segments == 2
    head = table.refresh().version
    container.respond(look(table), Invocation())
    assert table.refresh().version == head


def test_again_it_finds_nothing_and_commits_nothing(make, container):
    table = make()
    container.respond(look(table), Invocation())
    head = table.refresh().version
    for _ in range(3):
        container.respond(look(table), Invocation())
    assert table.refresh().version == head


def test_one_look_at_a_table_answers_all_messages_that_ask_for_it(make, container, lines):
    table = make()
    assert failed(container.respond(batch(*[look(table)] * 5), Invocation())) == []
    assert len(lines("table done")) == 1


def test_settings_of_the_policy_reach_the_task(make, container, monkeypatch):
    fake = Fake(monkeypatch)
    container.respond(look(make()), Invocation(timeout_s=100.0, memory_limit_in_mb=512))
    ((_, policy, deadline_s),) = fake.given
    assert policy.memory_bytes == 256 * MIB
    assert policy.max_task_bytes == 512 * MIB
    assert policy.small_task_bytes == 0
    assert 20 < deadline_s <= 80  # 20 s are kept for the end


# --- commits that are announced -------------------------------------------------------------------


@pytest.fixture
def announced(bucket, sent):
    """A table on S3, a container for it, and a function that announces its commits."""
    table = Table.create(f"s3://{bucket}/tables/one", builders.SCHEMA, time_column="at")
    container = Container(
        Settings(allowed=(f"s3://{bucket}/tables",)), lambda *given: sent.append(given)
    )

    def announce(*versions, name="one"):
        bodies = [
            {"source": "aws.s3", "detail-type": "Object Created",
             "detail": {"bucket": {"name": bucket},
                        "object": {"key": f"tables/{name}/{keys.commit_key(version)}"}}}
            for version in versions
        ]  # fmt: skip
        return failed(container.respond(batch(*bodies), Invocation()))

    return table, announce


def test_an_append_is_a_reason_to_look_and_compactions_own_commit_is_none(announced, s3, lines):
    table, announce = announced
    versions = [append(table, builders.events(2, first=n)) for n in range(3)]
    assert announce(*versions) == []
    head = table.refresh()
    assert head.totals.segments == 1
    own = [e.version for e in table.history() if e.operation not in ("append", "create")]
    assert own
    looks = len(lines("table done"))
    with s3.measure() as counts:
        assert announce(*own) == []
    assert counts.get <= len(own)
    assert (counts.put, counts.list) == (0, 0)
    assert len(lines("table done")) == looks
    assert table.refresh().version == head.version


def test_a_compaction_that_took_appends_along_is_a_reason_to_look(announced, lines, monkeypatch):
    table, announce = announced
    versions = [append(table, builders.events(2, first=n)) for n in range(3)]
    announce(*versions)
    (own,) = (entry.version for entry in table.history() if entry.operation == "compact")
    looks = len(lines("table done"))
    assert announce(own) == []
    assert len(lines("table done")) == looks
    real = Log.header

    def combined(log, version):
        header = real(log, version)
        return builders.replaced(header, changes=builders.replaced(header.changes, transactions=2))

    monkeypatch.setattr(Log, "header", combined)
    assert announce(own) == []
    assert len(lines("table done")) == looks + 1


def test_a_commit_without_rows_is_no_reason_to_look(announced, lines):
    table, announce = announced
    quiet = [0, table.set_properties({"user.a": "b"}), table.session.head().version]
    table.pin("x")
    assert announce(*quiet, table.refresh().version) == []
    assert lines("table done") == []
    assert lines("nothing to do")


def test_an_announcement_that_comes_late_costs_no_request(announced, s3, lines):
    table, announce = announced
    versions = [append(table, builders.events(2, first=n)) for n in range(3)]
    announce(*versions)
    announce(*versions)  # and once more at the version that came of it
    with s3.measure() as counts:
        for version in versions:
            assert announce(version) == []
    assert counts.get + counts.put + counts.list + counts.head == 0


def test_an_announcement_of_what_is_not_there_is_said_and_harmless(announced, lines):
    table, announce = announced
    assert announce(7) == []
    assert lines("no such commit") == [{"table": table.uri, "version": 7}]


def test_a_table_that_is_not_there_comes_again(announced, lines):
    _, announce = announced
    assert announce(1, name="nowhere") == ["m0"]
    assert "TableNotFound" in lines("table failed")[0]["why"]


def test_an_overwrite_is_a_reason_to_look(announced):
    table, announce = announced
    for number in range(3):
        append(table, builders.events(2, first=number))
    assert announce(overwrite(table, builders.events(1, day=7), start="1970-01-08")) == []
    assert table.refresh().totals.segments == 2


# --- what it leaves -------------------------------------------------------------------------------


def test_a_task_above_the_bound_is_left_to_others(make, root, lines):
    table = make()
    append(table, builders.events(5000, day=3))  # one segment that is to be cut
    small = Policy(small_task_bytes=0, target_bytes=1024, max_task_bytes=4096)
    container = Container(Settings(allowed=(root,), policy=small, max_bytes=4096))
    assert failed(container.respond(batch(look(table)), Invocation())) == []
    (done,) = lines("table done")
    (said,) = lines("task too large")
    assert (done["too_large"], said["first_chunk"]) == (1, "1970-01-04")
    assert said["bytes"] > 4096


class OneTask(Invocation):
    """An invocation that has time for so many tasks."""

    def __init__(self, fake, tasks=1):
        super().__init__()
        self.fake, self.until = fake, len(fake.given) + tasks

    def get_remaining_time_in_millis(self):
        return 300_000 if len(self.fake.given) < self.until else 19_999


def test_what_there_is_no_time_for_is_asked_for_again(make, queued, sent, monkeypatch):
    table = make(days=3)
    fake = Fake(monkeypatch)
    event = look(table)
    for turn in (1, 2):
        assert queued.respond(event, OneTask(fake)) == {"batchItemFailures": []}
        ((url, body, delay),) = sent
        assert (url, delay) == ("q", lambda_handler.RESUME_DELAY_S)
        event = json.loads(body)
        assert event == {"eventlog": {"resume": table.uri, "turn": turn, "skip": []}}
        sent.clear()
    queued.respond(event, OneTask(fake))
    queued.respond(event, OneTask(fake))
    assert len(fake.given) == 3
    assert table.refresh().totals.segments == 3


def test_without_a_queue_the_rest_waits_for_the_schedule(make, container, sent, lines, monkeypatch):
    table = make(days=3)
    fake = Fake(monkeypatch)
    assert container.respond(batch(look(table)), OneTask(fake)) == {"batchItemFailures": []}
    assert sent == []
    assert lines("left to the schedule") == [{"table": table.uri, "turn": 0}]


def test_continuations_end(make, queued, sent, lines, monkeypatch):
    table = make(days=3)
    body = {"eventlog": {"resume": table.uri, "turn": lambda_handler.MAX_TURNS}}
    queued.respond(body, OneTask(Fake(monkeypatch)))
    assert sent == []
    assert lines("left to the schedule")


def test_a_table_that_no_time_was_left_for_is_asked_for_again(make, queued, sent, monkeypatch):
    one, two = make("one"), make("two")
    fake = Fake(monkeypatch)
    assert failed(queued.respond(batch(look(one), look(two)), OneTask(fake))) == []
    assert [json.loads(body)["eventlog"]["resume"] for _, body, _ in sent] == [two.uri]


def test_a_continuation_that_cannot_be_sent_has_the_message_come_again(make, root, monkeypatch):
    def refuse(*_):
        raise ConnectionError("no queue")

    settings = Settings(allowed=(root,), policy=EACH, queue_url="q")
    table = make(days=3)
    respond = Container(settings, refuse).respond
    assert failed(respond(batch(look(table)), OneTask(Fake(monkeypatch)))) == ["m0"]


def test_a_task_that_takes_more_than_a_whole_invocation_is_not_tried_for_ever(
    make, queued, sent, lines, monkeypatch
):
    table = make(days=2)
    fake = Fake(monkeypatch, "out of time")
    queued.respond(look(table), OneTask(fake))
    ((task, _, _),) = fake.given
    (said,) = lines("task too slow")
    assert said["task"] == task.id
    ((_, body, _),) = sent
    assert json.loads(body)["eventlog"]["skip"] == [task.id]
    # A new event knows of no skip list: the log itself says that the chunk rests (hazard K8).
    assert table.refresh().meta.chunks[task.chunks[0]].failures == 1
    fake.ends.append("claimed")
    queued.respond(json.loads(body), Invocation())
    assert task.id not in {given[0].id for given in fake.given[1:]}
    assert len(fake.given) == 2


def test_a_task_that_others_hold_is_theirs(make, queued, sent, monkeypatch):
    table = make()
    Fake(monkeypatch, "claimed")
    assert failed(queued.respond(batch(look(table)), Invocation())) == []
    assert sent == []


def test_the_claim_of_a_dead_function_does_not_hold_up_a_warm_one_for_ever(make, root):
    """Hazard K3: a container counts what it waited between its invocations."""
    table = make()
    table.claim(segments=builders.live(table.refresh()), group="gone", owner="who died")
    append(table, builders.events(1, first=900))
    rows = row_list(table)
    settings = Settings(allowed=(root,), policy=Policy(small_task_bytes=0, claim_bytes=0))
    warm = Container(settings, lambda *_: None)
    assert failed(warm.respond(batch(look(table)), Invocation())) == []
    assert len(table.claims()) == 1
    known = warm._tables.get(table.uri)
    known.session.clock = Later(known.clock)
    assert failed(warm.respond(batch(look(table)), Invocation())) == []
    assert not table.claims()
    assert commits(table, "compact") == 1
    assert row_list(table) == rows


class Later(SystemClock):
    """The machine's clock, once a holder has been silent for long."""

    def __init__(self, before):
        self._at_s = before.elapsed_s() + SILENT_S

    def elapsed_s(self):
        return self._at_s


def test_what_others_changed_is_planned_again(make, container, monkeypatch):
    table = make()
    fake = Fake(monkeypatch)
    real = fake.real

    def late(*args, **options):
        if len(fake.given) == 1:
            # Somebody replaces all of it first.
            overwrite(table, builders.events(4, first=900), start="1970-01-01")
            append(table, builders.events(2, first=950))
            append(table, builders.events(2, first=970))
        return real(*args, **options)

    fake.real = late
    container.respond(look(table), Invocation())
    assert len(fake.given) == 2
    assert table.refresh().totals.segments == 1
    assert len(row_list(table)) == 8


def test_what_waits_for_others_is_planned_again_once_those_have_ended(
    make, root, lines, monkeypatch
):
    """Days are cut into hours, in parts, before the hours that they fall into are looked at."""
    table = make(times=0)
    for number in range(6):
        append(table, builders.events(300, first=1000 * number))
    table.set_granularity("hour")
    for number in range(12):
        append(table, builders.events(5, first=9000 + 100 * number))
    rows = row_list(table)
    policy = Policy(granularity="hour", target_bytes=4096, max_task_bytes=16384)
    assert any(task.after for task in plan(table, policy).tasks)
    fake = Fake(monkeypatch)
    container = Container(Settings(allowed=(root,), policy=policy))
    assert failed(container.respond(batch(look(table)), Invocation())) == []
    assert not [task for task, _, _ in fake.given if task.after]
    assert {segment.chunk for segment in builders.live(table.refresh())} == {"1970-01-01T00"}
    assert row_list(table) == rows
    assert not lines("task failed")
    assert not plan(table, policy).tasks


@pytest.mark.parametrize("kind", [pytest.param("last", marks=pytest.mark.long), "groups"])
def test_slices_are_merged_as_by_a_program_whatever_is_delivered_again(root, container, kind):
    here, answers = written(f"{root}/here", kind)
    assert all(outcome.ok for outcome in run(here, policy=EACH).outcomes)
    table, _ = written(f"{root}/one", kind)
    for _ in range(2):
        assert failed(container.respond(batch(look(table), look(table)), Invocation())) == []
    check_answers(table, answers)
    assert shapes(table) == shapes(here)
    assert not plan(table, EACH).tasks
    assert commits(table, "upsert") == len(answers) - 1


def test_a_look_at_a_whole_table_is_noted_once(make, container):
    table = make(times=1)
    for _ in range(3):
        assert failed(container.respond(batch(look(table)), Invocation())) == []
    assert [entry.operation for entry in table.history()] == ["assess", "append", "create"]


# --- what it reports ------------------------------------------------------------------------------


def test_exactly_the_messages_that_failed_come_again(make, container, lines, monkeypatch):
    good, bad = make("good"), make("bad")
    real = lambda_handler.compact_table

    def compact(table, *rest):
        if table.uri == bad.uri:
            raise Unavailable("the store does not answer", table=table.uri)
        return real(table, *rest)

    monkeypatch.setattr(lambda_handler, "compact_table", compact)
    event = batch(look(good), {"no": "sense"}, look(bad), look(good, bad), look(good))
    assert failed(container.respond(event, Invocation())) == ["m1", "m2", "m3"]
    assert good.refresh().totals.segments == 1
    assert lines("message not understood")[0]["message"] == "m1"
    assert "the store does not answer" in lines("table failed")[0]["why"]


def test_a_task_that_failed_has_its_message_come_again_and_the_others_run(
    make, container, lines, monkeypatch
):
    table = make(days=3)
    segment = builders.live(table.refresh())[0]
    table.store.delete([keys.key_of(segment)])
    assert failed(container.respond(batch(look(table)), Invocation())) == ["m0"]
    (said,) = lines("task failed")
    assert segment.id in json.dumps(said, default=str)
    assert commits(table, "compact") == 2
    # Its chunk rests for a while: the message that comes again finds nothing to do.
    assert failed(container.respond(batch(look(table)), Invocation())) == []
    # And then it is tried again, though nobody has committed anything.
    known = container._tables.get(table.uri)
    known.session.clock = ManualClock(known.clock.now_ms() + 1000 * EACH.backoff_s)
    assert failed(container.respond(batch(look(table)), Invocation())) == ["m0"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_function_that_dies_at_its_commit_leaves_it_to_the_next_delivery(
    when, make, root, monkeypatch
):
    """Hazards I2, I3, I4: the message comes again, to another container."""
    table = make(days=2)
    rows = row_list(table)
    real = performing.commit_staged

    def die(*given):
        if when == "after":
            real(*given)
        raise builders.Crash(when)

    settings = Settings(allowed=(root,))
    with monkeypatch.context() as patch:
        patch.setattr(performing, "commit_staged", die)
        with pytest.raises(builders.Crash):
            Container(settings).respond(batch(look(table)), Invocation())
    assert table.refresh().totals.segments == (6 if when == "before" else 2)
    for _ in range(2):
        assert failed(Container(settings).respond(batch(look(table)), Invocation())) == []
    assert table.refresh().totals.segments == 2
    assert row_list(table) == rows
    assert commits(table, "compact") == 1


def test_an_event_that_is_no_batch_fails_as_a_whole(make, container):
    with pytest.raises(EventLogError, match="the event failed"):
        container.respond({"no": "sense"}, Invocation())
    with pytest.raises(EventLogError, match="the event failed"):
        container.respond({"tables": [f"{make().uri}-not"]}, Invocation())


def test_a_table_that_is_not_allowed_is_not_opened(make, tmp_path, lines, monkeypatch):
    table = make()
    container = Container(Settings(allowed=(f"{table.uri}x", (tmp_path / "other").as_uri())))
    monkeypatch.setattr(Table, "open", lambda *_: pytest.fail("opened"))
    for uri in (table.uri, f"{table.uri}x/../one", "s3://somewhere/else"):
        assert container.respond({"tables": [uri]}, Invocation()) == {"batchItemFailures": []}
    assert len(lines("table not allowed")) == 3


# --- the function itself --------------------------------------------------------------------------


def test_the_handler_reads_its_settings_and_writes_json_lines(make, root, monkeypatch, capsys):
    table = make()
    monkeypatch.setenv("EVENTLOG_TABLES", root)
    with logging_of_its_own():
        for _ in range(2):
            assert handler(look(table), Invocation()) == {"batchItemFailures": []}
    assert table.refresh().totals.segments == 1
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    events = [line["event"] for line in said]
    assert events.count("invoked") == events.count("table done") == 2
    assert {"level", "logger", "event", "table", "version"} <= said[-1].keys()


def test_a_line_is_json_whatever_is_in_it(capsys):
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "what %s", ("now",), None)
    record.facts = {"odd": object(), "text": 'a "b"\n\ud800'.encode("utf-8", "replace").decode()}
    try:
        int("inside")
    except ValueError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    text = json_lines.JsonLines().format(record)
    line = json.loads(text)
    assert "\n" not in text
    assert (line["level"], line["event"]) == ("ERROR", "what now")
    assert "ValueError: invalid literal" in line["traceback"]


SETTINGS = {"EVENTLOG_TABLES": '["s3://a/x y, z", "s3://b"]'}


def test_settings():
    plain = Settings.of(SETTINGS)
    assert plain == Settings(allowed=("s3://a/x y, z", "s3://b"))
    assert Settings.of({"EVENTLOG_TABLES": " s3://a/x, y "}).allowed == ("s3://a/x, y",)
    more = Settings.of(
        SETTINGS
        | {"EVENTLOG_POLICY": '{"target_bytes": 4096}', "EVENTLOG_MAX_BYTES": "16384",
           "EVENTLOG_RESERVE_MS": "0", "EVENTLOG_QUEUE_URL": "q"}
    )  # fmt: skip
    assert (more.policy.target_bytes, more.max_bytes) == (4096, 16384)
    assert (more.reserve_ms, more.queue_url, more.publish) == (0, "q", ())
    for text, formats in (("delta", ("delta",)), ('["iceberg", "delta"]', ("iceberg", "delta"))):
        assert Settings.of(SETTINGS | {"EVENTLOG_PUBLISH": text}).publish == formats
    assert more.policy_within(1024 * MIB).check().max_task_bytes == 16384


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("EVENTLOG_TABLES", " ", "must list"),
        ("EVENTLOG_TABLES", "bucket", "must list"),
        ("EVENTLOG_TABLES", "[]", "must list"),
        ("EVENTLOG_TABLES", "[7]", "not a list"),
        ("EVENTLOG_POLICY", "{", "not a policy"),
        ("EVENTLOG_POLICY", '{"unknown": 1}', "not a policy"),
        ("EVENTLOG_POLICY", '{"target_bytes": 1}', "target_bytes"),
        ("EVENTLOG_MAX_BYTES", "1e9", "whole number"),
        ("EVENTLOG_MAX_BYTES", "1000", "four times"),
        ("EVENTLOG_RESERVE_MS", "-1", "whole number"),
        ("EVENTLOG_PUBLISH", "paper", "delta, iceberg"),
        ("EVENTLOG_PUBLISH", "[7]", "not a list of formats"),
    ],
)
def test_a_setting_that_is_wrong_is_said(name, text, said):
    with pytest.raises(InvalidInput, match=said):
        Settings.of(SETTINGS | {name: text})


def test_a_container_forgets_the_tables_that_it_used_longest_ago(make, root, monkeypatch):
    monkeypatch.setattr(lambda_handler, "MAX_OPEN", 2)
    container = Container(Settings(allowed=(root,)), lambda *_: None)
    opened = []
    real = Table.open

    def count(uri):
        opened.append(uri)
        return real(uri)

    monkeypatch.setattr(Table, "open", count)
    tables = [make(str(number), times=1) for number in range(3)]
    for table in (*tables, tables[2], tables[0]):
        container.respond(look(table), Invocation())
    assert opened == [t.uri for t in (*tables, tables[0])]


ALONE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        missing = sys.argv[1].split(",")
        if name.partition(".")[0] in missing or ".".join(name.split(".")[:2]) in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import eventlog.compaction.lambda_handler, eventlog.compaction.aws.bundle_check
print(*sys.modules)
"""


@pytest.mark.verify
def test_it_needs_nothing_that_a_bundle_lacks():
    """Neither an extra, nor the packages that are left out; boto3 only once it is used."""
    ours = ("eventlog.writers", "pyspark_eventlog")
    missing = (*EXTRAS, *bundle.IN_THE_RUNTIME, "botocore", "numpy", *ours)
    command = [sys.executable, "-c", ALONE, ",".join(missing)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    loaded = {"/".join(name.split(".")[:2]) for name in done.stdout.split()}
    parts = {f"eventlog/{part}" for part in ("readers", "writers", "compaction")}
    assert {"eventlog", *(loaded & parts)} == set(bundle.PACKAGES)
