"""The comparison behind `make test-engines`: what is equal, refused, or neither."""

import importlib.util
import sys
from pathlib import Path

import pyarrow as pa
import pytest


def _module(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


outcomes, questions = _module("outcomes"), _module("questions")
ROWS = pa.table({"id": [1, 2, 3], "real": [1.5, None, float("nan")]})


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (ROWS, "equal"),
        (ROWS.take([2, 0, 1]), "equal"),
        (ROWS.select(["real", "id"]), "equal"),
        (ROWS.slice(0, 2), "other"),
        (ROWS.take([0, 0, 1]), "other"),
        (ROWS.select(["id"]), "other"),
        (ROWS.set_column(1, "real", pa.array([1.5, None, None], pa.float64())), "other"),
        (ROWS.set_column(1, "real", pa.array(["a", "b", "c"])), "other"),
    ],
)
def test_an_answer_is_equal_only_with_the_same_columns_rows_and_values(found, kind):
    assert outcomes.outcome_of_rows(found, ROWS).kind == kind


def test_many_rows_are_compared_whole():
    many = pa.table({"id": range(outcomes.MANY)})
    assert outcomes.outcome_of_rows(many.take([*range(outcomes.MANY)][::-1]), many).kind == "equal"
    doubled = many.take([1, *range(1, outcomes.MANY)])
    assert outcomes.outcome_of_rows(doubled, many).kind == "other"


def test_null_and_nan_are_one_only_where_an_engine_says_so():
    null = ROWS.set_column(1, "real", pa.array([1.5, None, None], pa.float64()))
    assert outcomes.outcome_of_rows(null, ROWS, nan_is_null=True).kind == "equal"


def test_an_error_is_a_refusal_unless_it_is_a_mistake_of_the_test():
    told = outcomes.outcome_of_error("ReadError", "\n/tmp/x/t: vectors\nmore", "/tmp/x")
    assert (told.kind, told.text) == ("refused", "`ReadError`: /t: vectors")
    assert outcomes.outcome_of_error("ModuleNotFoundError", "no x", "/tmp").kind == "other"


def test_a_cell_has_the_number_of_each_kind_and_both_sides_where_they_differ():
    equal, no = outcomes.Outcome("equal"), outcomes.Outcome("refused", "why")
    assert outcomes.cell([equal], [equal], {}.get) == "equal 2"
    assert outcomes.cell([no], [equal], {"why": 3}.get) == "before: refused 1 [3]; after: equal 1"
    assert outcomes.cell([equal, outcomes.Outcome("other", "x")], [], {}.get) == (
        "equal 1, **other 1**"
    )


def test_the_end_of_a_process_is_one_problem_however_many_questions_it_left():
    good, ended = outcomes.Outcome(outcomes.EQUAL), outcomes.Outcome(outcomes.OTHER, "it died")
    wrong = outcomes.Outcome(outcomes.OTHER, "1 rows, not 2")
    cells = {"plain": ([good, wrong], [ended, ended]), "keyed": ([ended], [good])}
    assert outcomes.problems_of(cells, "it died") == [
        "plain: 1 rows, not 2",
        "3 questions without an answer: it died",
    ]
    assert outcomes.problems_of({"plain": ([good], [])}, "no answer") == []


def test_the_matrix_is_put_between_the_markers_of_the_page():
    page = Path(__file__).parents[2].joinpath("docs/guides/engine-matrix.md").read_text("utf-8")
    written = outcomes.put_between(page, "| new |\n")
    assert f"{outcomes.BEGIN}\n| new |\n\n{outcomes.END}" in written
    assert outcomes.put_between(written, "| new |\n") == written
    with pytest.raises(ValueError, match="no place"):
        outcomes.put_between("a page", "")


def test_a_question_is_the_same_in_each_form():
    one = questions.Question("", ("id",), ("id", "<", 3))
    assert one.sql("t") == 'SELECT "id" FROM t WHERE "id" < 3'
    assert one.answer(ROWS).to_pydict() == {"id": [1, 2]}
    none = questions.Question("", where=("real", "is null", None), count=True)
    assert none.sql("t") == 'SELECT count(*) AS n FROM t WHERE "real" IS NULL'
    assert none.answer(ROWS).to_pydict() == {"n": [1]}
    since = questions.Question("", where=("at", ">=", questions.MIDNIGHT))
    assert since.condition() == "at >= '2013-01-02T00:00:00+00:00'"
