"""Mutants of SQL expressions: which rows fail, and how values are rounded."""

from mutants.swap import always, becomes, mutant, never

_NOTHING = becomes("pc.scalar(False)")
_FAILURES = "test_rows_that_fail_are_counted_and_shown"

EXPRESSIONS = (
    mutant(
        "failing-rows",
        "W3",
        "a value that cannot be computed is not written as null",
        never,
        _FAILURES,
    ),
    mutant(
        "filter-that-fails",
        "W3",
        "a predicate that fails for a row does not leave it out",
        always,
        "test_a_predicate_that_fails_for_a_row_ends_the_scan",
    ),
    mutant(
        "failure-that-decides",
        "W3",
        "a part that fails does not decide an AND",
        becomes("decided.append(alone)"),
        "test_failures_reach_the_result",
    ),
    mutant(
        "failure-that-a-coalesce-hides",
        "W3",
        "a value that fails is not null to COALESCE",
        never,
        "test_failures_reach_the_result",
    ),
    mutant(
        "failure-that-a-case-hides",
        "W3",
        "a branch that fails is not null to CASE",
        never,
        "test_failures_reach_the_result",
    ),
    mutant("overflow-of-integers", "W3", "integers do not wrap around", _NOTHING, _FAILURES),
    mutant("division-by-zero", "W3", "a division by zero is no infinity", _NOTHING, _FAILURES),
    mutant(
        "sums-in-another-order",
        "W5",
        "a sum is added in the order in which it is written",
        becomes("value"),
        "test_floats_are_added_in_the_order_of_the_text",
    ),
    mutant("digits-that-do-not-fit", "W3", "a decimal loses no digits", _NOTHING, _FAILURES),
    mutant("cast-out-of-range", "W3", "a cast to integers does not clamp", _NOTHING, _FAILURES),
    mutant("float-that-overflows", "W3", "a cast makes no infinity", _NOTHING, _FAILURES),
    mutant("text-of-a-float-that-overflows", "W3", "text makes no infinity", _NOTHING, _FAILURES),
    mutant("date-out-of-range", "W3", "a day wraps around to no time", _NOTHING, _FAILURES),
    mutant("start-before-the-first-time", "W3", "a cut time is not later", _NOTHING, _FAILURES),
    mutant(
        "type-with-two-meanings",
        "W7",
        "a type that has two meanings is refused",
        never,
        "test_what_has_no_value_of_the_type_is_refused",
    ),
)
