"""Mutated bytes in front of every parser: refused with an error of ours, or accepted as they are.

`EVENTLOG_EXAMPLES=2000` runs every target with so many fresh examples; `run.py` for minutes or
hours, guided by coverage where atheris is installed.
"""

import io
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzz import corpus, mutation, run, targets
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support import builders
from support.repeatable import EXAMPLES

from eventlog import errors
from eventlog.format import codec, keys
from eventlog.format.frames import frame_bytes
from eventlog.model import schema_text
from eventlog.model.schema import from_arrow
from eventlog.query import predicate, pruning
from eventlog.query.predicate import SqlPredicate

RUN = Path(__file__).with_name("run.py")
EACH = 4  # mutations an example


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", targets.TARGETS)
@settings(
    max_examples=EXAMPLES or 20,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(number=st.integers(0, 2**48))
def test_whatever_comes_is_refused_or_means_what_it_says(name, number):
    rng = random.Random(number)
    for _ in range(EACH):
        body = mutation.mutate(name, rng.choice(corpus.seeds(name)), rng)
        try:
            targets.outcome(targets.TARGETS[name], body)
        except Exception as error:
            error.add_note(f"target {name}, number {number}, bytes {body[:2000]!r}")
            raise


@pytest.mark.parametrize("name", ["commit", "keyframe", "intent", "fork", "leaf", "vector"])
@given(body=st.binary(max_size=300))
def test_bytes_of_no_shape_are_refused(name, body):
    with pytest.raises(errors.Corrupt):
        targets.TARGETS[name](body)


# --- what was found ------------------------------------------------------------------------------


def leaf_with_bytes_that_are_no_text():
    body = next(b for b in corpus.seeds("leaf") if {"min_2", "drop"} & columns_of(b) == {"min_2"})
    table = frame_bytes.from_parquet(body, targets._claimed_rows(body))
    broken = pa.array([b"\xed\xa0\x80"] * table.num_rows, pa.binary()).view(pa.string())
    at = table.column_names.index("min_2")
    return frame_bytes.to_parquet(table.set_column(at, "min_2", broken))


def columns_of(body):
    return {*frame_bytes.read_frame(body, targets._claimed_rows(body)).column_names}


def root_with_statistics_out_of_order():
    body = next(b for b in corpus.seeds("keyframe") if b'"stats":[[1,' in b)
    root = codec.decode_keyframe(body, targets.version_in(body))
    first = root.segments[0]
    turned = builders.replaced(first, stats=first.stats[::-1])
    total = int(root.state_hash, 16) - codec.entry_hash(first) + codec.entry_hash(turned)
    return codec.encode_keyframe(
        builders.replaced(
            root, segments=(turned, *root.segments[1:]), state_hash=codec.hex_hash(total)
        )
    )


def commit_of_no_transaction():
    body = corpus.seeds("opened")[0]
    return codec.encode_commit(builders.replaced(codec.decode_commit(body), transactions=()))


def leaf_with_text_for_numbers():
    body = corpus.seeds("leaf")[0]
    table = frame_bytes.read_frame(body, pq.ParquetFile(io.BytesIO(body)).metadata.num_rows)
    at = table.column_names.index("chunk_start")
    text = pa.array([b"\xed\xa0\x80"] * table.num_rows).view(pa.string())
    return frame_bytes.to_parquet(table.set_column(at, "chunk_start", text))


FOUND = {
    "text that is no UTF-8 in place of numbers": ("leaf", leaf_with_text_for_numbers),
    "a commit of no transaction": ("opened", commit_of_no_transaction),
    "statistics that do not ascend": ("keyframe", root_with_statistics_out_of_order),
    "text bounds of a leaf that are no UTF-8": ("leaf", leaf_with_bytes_that_are_no_text),
    "a column's name that is no UTF-8": ("schema_text", lambda: b"\xff:int8"),
    "no bytes of a vector": ("vector", lambda: b"\1\0\0\0"),
    "a type that nests without end": ("schema_text", lambda: b"a:" + b"list<" * 2000 + b">" * 2000),
}


@pytest.mark.parametrize("what", FOUND)
def test_what_was_found_is_refused(what):
    name, make = FOUND[what]
    assert targets.outcome(targets.TARGETS[name], make()) != "accepted"


@pytest.mark.parametrize(("opening", "closing"), [("n % ", ""), ("n / (", ")")])
def test_an_expression_that_would_outgrow_its_text_is_refused(opening, closing):
    stored = from_arrow(pa.schema([("n", pa.int64())]))

    def parsed(levels):
        text = "n <> " + opening * levels + "5" + closing * levels
        return predicate.parse_predicate(text, stored)

    assert len(str(parsed(2).to_arrow())) < 10_000
    with pytest.raises(errors.InvalidInput, match=r"nests|longer"):
        parsed(200)


# --- the checker itself --------------------------------------------------------------------------


@pytest.mark.parametrize("name", targets.TARGETS)
def test_what_the_mutations_start_from_is_accepted(name):
    seeds = corpus.seeds(name)
    assert len(seeds) >= 4
    assert {targets.outcome(targets.TARGETS[name], body) for body in seeds} == {"accepted"}


@pytest.mark.sample(2, verify=4)
@pytest.mark.parametrize(
    ("name", "outcomes", "accepted"),
    [
        ("commit", 40, 10),
        ("keyframe", 40, 5),
        ("intent", 40, 10),
        ("leaf", 15, 10),
        ("opened", 40, 20),
        ("predicate", 8, 10),
        ("schema_text", 4, 10),
        ("keys", 2, 4),
        ("vector", 5, 3),
    ],
)
def test_mutations_get_past_the_first_check(name, outcomes, accepted):
    rng = random.Random(5)
    seeds = corpus.seeds(name)
    bodies = [mutation.mutate(name, rng.choice(seeds), rng) for _ in range(200)]
    told = Counter(targets.outcome(targets.TARGETS[name], body) for body in bodies)
    assert len(told) >= outcomes, told
    assert told["accepted"] >= accepted, told
    again = random.Random(5)
    assert bodies == [mutation.mutate(name, again.choice(seeds), again) for _ in range(200)]


def believes_any_spelling(monkeypatch):
    monkeypatch.setattr(codec, "_decode_canonical", codec._decode)


def counts_versions_wrongly(monkeypatch):
    monkeypatch.setattr(keys, "_inverted", lambda version: f"{version:012d}")


def prunes_everything(monkeypatch):
    monkeypatch.setattr(pruning, "may_be", lambda *_: False)


def covers_everything(monkeypatch):
    monkeypatch.setattr(SqlPredicate, "covers", lambda *_: True)


def lets_the_parser_trip(monkeypatch):
    monkeypatch.setattr(predicate, "parse_sql", lambda text, schema: int(text))


def loses_the_types(monkeypatch):
    monkeypatch.setattr(schema_text, "type_text", lambda stored: "int8")
    monkeypatch.setattr(targets, "type_text", lambda stored: "int8")


def believes_any_footer(monkeypatch):
    monkeypatch.setattr(frame_bytes, "_exact", lambda schema, **_: schema)
    monkeypatch.setattr(frame_bytes, "check_entry_rows", lambda table, **_: None)


def believes_any_sum(monkeypatch):
    monkeypatch.setattr("eventlog.state.keyframe.check_key_frame", lambda root: None)
    monkeypatch.setattr("eventlog.state.verification.check_sums", lambda *parts: None)


@pytest.mark.parametrize(
    ("name", "plant"),
    [
        ("commit", believes_any_spelling),
        ("keyframe", believes_any_spelling),
        ("intent", believes_any_spelling),
        ("keys", counts_versions_wrongly),
        ("predicate", prunes_everything),
        ("predicate", covers_everything),
        ("predicate", lets_the_parser_trip),
        ("schema_text", loses_the_types),
        ("leaf", believes_any_footer),
        ("opened", believes_any_sum),
    ],
)
def test_a_planted_fault_is_found(name, plant, monkeypatch):
    seeds = corpus.seeds(name)
    targets._table()  # as it is without the fault
    plant(monkeypatch)
    rng = random.Random(3)
    with pytest.raises(Exception) as caught:  # noqa: PT012 - any but a refusal, after some tries
        for _ in range(600):
            targets.outcome(targets.TARGETS[name], mutation.mutate(name, rng.choice(seeds), rng))
    assert not isinstance(caught.value, targets.REFUSALS)


@pytest.mark.verify
def test_the_long_run_tells_figures_and_ends_well(tmp_path):
    command = [sys.executable, str(RUN), "0.2", "--target", "keys", "--plain"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "pip install atheris" in done.stdout
    assert " 0 crashes" in done.stdout.splitlines()[-1]


def test_the_long_run_keeps_the_smallest_input_of_a_crash(tmp_path, monkeypatch, capsys):
    def trips(body):
        if b"x" in body:
            raise KeyError(len(body))

    monkeypatch.setitem(targets.TARGETS, "keys", trips)
    tally = run.Tally(tmp_path)
    for body in (b"a", b"xxx", b"x", b"xx"):
        tally.run("keys", body)
    told = {"seconds": 1, "slowest": 0, "outcomes": [], "executions": 4, "accepted": 1}
    monkeypatch.setattr(run, "run_one", lambda name, options: {**told, "crashes": tally_crashes})
    tally_crashes = {what: [trace, body.hex()] for what, (trace, body) in tally.crashes.items()}
    assert run.main(["1", "--target", "keys", "--save", str(tmp_path / "saved")]) == 1
    assert "1 crashes" in capsys.readouterr().out
    assert (tmp_path / "saved" / "keys-0").read_bytes() == b"x"
