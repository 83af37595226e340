"""Spans and counters, as OpenTelemetry's own exporters receive them."""

import sys
from datetime import timedelta

import pyarrow as pa
import pytest
from support import builders
from support.effort import calls_of

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.compaction import run, vacuum
from eventlog.errors import CommitConflict, DataLoss, InvalidInput, Unavailable
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore
from eventlog.store.retry import retrying
from eventlog.telemetry import signals as telemetry
from eventlog.writers import append, delete, upsert

trace = pytest.importorskip("opentelemetry.trace")
metrics = pytest.importorskip("opentelemetry.metrics")
tracing = pytest.importorskip("opentelemetry.sdk.trace")
trace_export = pytest.importorskip("opentelemetry.sdk.trace.export")
in_memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
metering = pytest.importorskip("opentelemetry.sdk.metrics")
metric_export = pytest.importorskip("opentelemetry.sdk.metrics.export")


class Received:
    """What the exporters received."""

    def __init__(self):
        self._spans = in_memory.InMemorySpanExporter()
        self._reader = metric_export.InMemoryMetricReader()
        self.traces = tracing.TracerProvider()
        self.traces.add_span_processor(trace_export.SimpleSpanProcessor(self._spans))
        self.meters = metering.MeterProvider([self._reader])

    def spans(self, name=None):
        found = self._spans.get_finished_spans()
        return [span for span in found if name in (None, span.name)]

    def facts(self, name):
        """The attributes of the spans of a name, without the prefix."""
        return [
            {key.removeprefix("eventlog."): v for key, v in span.attributes.items()}
            for span in self.spans(name)
        ]

    def counted(self, name):
        """The values of a counter, by its attributes."""
        data = self._reader.get_metrics_data()
        metrics = [
            metric
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        return {
            tuple(point.attributes.values()): point.value
            for metric in metrics
            if metric.name == f"eventlog.{name}"
            for point in metric.data.data_points
        }


@pytest.fixture
def received(monkeypatch):
    made = Received()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: made.traces)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: made.meters)
    sent = telemetry.Signals()
    monkeypatch.setattr(telemetry, "signals", lambda: sent)
    return made


def test_an_append_is_a_span_with_its_commit_inside(received):
    t = builders.create()
    append(t, builders.events(3))
    [outer], [inner] = received.spans("eventlog.append"), received.spans("eventlog.commit")
    assert inner.parent.span_id == outer.context.span_id
    assert received.facts("eventlog.append") == [{"table": t.uri, "version": 1}]
    [commit] = received.facts("eventlog.commit")
    assert commit.pop("bytes") == t.snapshot().totals.bytes
    assert commit == {
        "table": t.uri, "operation": "append", "version": 1, "transactions": 1,
        "adds": 1, "drops": 0, "rows": 3,
    }  # fmt: skip


def test_other_verbs_have_the_rows_that_they_touched(received):
    t = builders.create()
    append(t, builders.events(4))
    delete(t, where="value < 1")
    assert received.facts("eventlog.delete") == [
        {"table": t.uri, "version": 2, "added": 0, "deleted": 2}
    ]
    keyed = builders.create(key="name", buckets=1)
    upsert(keyed, builders.events(2))
    assert received.facts("eventlog.upsert") == [{"table": keyed.uri, "version": 1}]


def test_a_scan_is_a_span_from_the_first_row_to_the_last(received):
    t = builders.create()
    for n in range(3):
        append(t, builders.events(4, day=n))
    query = scan(t, where="name >= 'row 1'")
    assert not received.spans("eventlog.scan")
    assert query.to_table().num_rows == 9
    whole = {"table": t.uri, "version": 3, "segments": 3}
    assert received.facts("eventlog.scan") == [{**whole, "rows": 9}]
    rows = iter(scan(t).to_batches())
    next(rows)
    rows.close()
    assert received.facts("eventlog.scan")[1] == {**whole, "rows": 4}
    assert received.spans("eventlog.scan")[1].status.is_ok


def test_the_span_of_a_scan_that_fails_names_the_error(received):
    t = builders.create()
    append(t, builders.events(2))
    t.store.delete([row.key for row in t.store.list("data/")])
    with pytest.raises(DataLoss):
        scan(t).to_table()
    [span] = received.spans("eventlog.scan")
    assert (span.attributes["error.type"], span.status.is_ok) == ("DataLoss", False)


def test_tasks_of_compaction_and_vacuums_are_spans(received):
    t = builders.create()
    for _ in range(3):
        append(t, builders.events(2))
    size = t.snapshot().totals.bytes
    t.clock.advance(60_000)
    run(t)
    t.clock.advance(60_000)
    [task] = received.facts("eventlog.compaction.task")
    assert (task["status"], task["segments_in"]) == ("done", 3)
    assert (task["segments_out"], task["rows"], task["bytes_in"]) == (1, 6, size)
    vacuum(t, dry_run=False, retention=timedelta(0), staging=timedelta(0))
    [gone] = received.facts("eventlog.vacuum")
    assert (gone["dry_run"], gone["objects"], gone["bytes"]) == (False, 3, size)


def test_errors_are_named_without_examples_of_rows(received):
    t = builders.create()
    rows = pa.table({"at": ["secret"], "name": ["secret"], "value": [1.0]})
    with pytest.raises(InvalidInput, match="secret"):
        append(t, rows)
    [span] = received.spans("eventlog.append")
    assert (span.attributes["error.type"], span.status.is_ok) == ("InvalidInput", False)
    assert "secret" not in span.to_json()


def test_a_refused_transaction_is_a_conflict(received):
    store = MemoryStore()
    t, other = builders.create(store), builders.reopen(store)
    append(t, builders.events(2))
    other.refresh()
    [segment] = t.snapshot().segments()
    late = other.transaction("delete", [builders.drop_of(segment)])
    builders.commit(t, builders.drop_of(segment), operation="delete")
    with pytest.raises(CommitConflict):
        other.commit(late)
    assert received.counted("conflicts") == {("CommitConflict",): 1}
    assert received.counted("attempts_lost") == {(): 1}
    assert received.facts("eventlog.commit")[-1]["error.type"] == "CommitConflict"


def test_repeated_requests_and_the_seconds_between_them(received):
    clock, answers = ManualClock(), iter([Unavailable("no"), Unavailable("no"), None])

    def request():
        if (error := next(answers)) is not None:
            raise error

    before = clock.elapsed_s()
    retrying(clock)(request)
    assert received.counted("retries") == {(): 2}
    assert received.counted("waited")[()] == pytest.approx(clock.elapsed_s() - before, abs=0.01)


def test_requests_to_s3_by_kind_with_their_bytes(received, bucket):
    uri = f"s3://{bucket}/table"
    t = Table.create(uri, builders.SCHEMA, time_column="at")
    before = received.counted("requests")
    append(t, builders.events(3))
    sent = received.counted("requests")
    assert sent[("put_object",)] - before[("put_object",)] == 1
    assert received.counted("bytes")[("write",)] > t.snapshot().totals.bytes
    scan(Table.open(uri)).to_table()
    assert received.counted("bytes")[("read",)] > 0


class Broken(tracing.SpanProcessor):
    """A processor that raises in one of its methods."""

    def __init__(self, method):
        setattr(self, method, self.refuse)

    def refuse(self, *args, **named):
        raise RuntimeError("a processor of the program's own")


BROKEN = {
    "the processor, at the start": lambda patch, made: made.traces.add_span_processor(
        Broken("on_start")
    ),
    "the processor, at the end": lambda patch, made: made.traces.add_span_processor(
        Broken("on_end")
    ),
    "attributes of spans": lambda patch, made: [
        patch.setattr(tracing.Span, name, Broken.refuse)
        for name in ("set_attribute", "set_attributes", "set_status")
    ],
    "counters": lambda patch, made: patch.setattr(metering.Counter, "add", Broken.refuse),
    "the provider": lambda patch, made: [
        patch.setattr(trace, "get_tracer", Broken.refuse),
        patch.setattr(trace, "get_tracer_provider", Broken.refuse),
        patch.setattr(metrics, "get_meter_provider", Broken.refuse),
    ],
}


@pytest.mark.parametrize("part", BROKEN)
def test_what_opentelemetry_raises_changes_no_operation(received, monkeypatch, caplog, part):
    BROKEN[part](monkeypatch, received)
    sent = telemetry.Signals()
    monkeypatch.setattr(telemetry, "signals", lambda: sent)
    t = builders.create()
    telemetry.add_to("retries")
    assert append(t, builders.events(3)) == 1
    assert scan(t).to_table().num_rows == 3
    rows = iter(scan(t).to_batches())
    next(rows)
    rows.close()
    with pytest.raises(InvalidInput, match="at"):
        append(t, pa.table({"at": ["no time"], "name": ["a"], "value": [1.0]}))
    with telemetry.in_span("eventlog.append") as note:
        note({"version": 1})
    assert t.refresh().version == 1
    assert not trace.get_current_span().get_span_context().is_valid
    [record] = caplog.records
    assert "OpenTelemetry" in record.message
    assert "a processor of the program's own" in record.exc_text


def test_a_program_that_does_not_use_the_api_has_nothing(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert telemetry.signals() is None
    batches = iter([])
    assert telemetry.streamed("eventlog.scan", batches) is batches
    t = builders.create()
    assert append(t, builders.events(2)) == 1
    assert scan(t).to_table().num_rows == 2


def test_without_a_provider_an_append_makes_hardly_more_calls(monkeypatch):
    def work():
        t = builders.create()
        for n in range(10):
            append(t, builders.events(1, first=n))

    work()
    with_api = calls_of(work)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert with_api <= calls_of(work) * 1.01


def test_counters_have_a_unit_and_a_meaning(received):
    for name in telemetry.COUNTERS:
        telemetry.add_to(name, 2)
        assert received.counted(name) == {(): 2}
