"""Mutants of appends that are committed in groups, and of the units of work in them."""

from mutants.swap import instead, mutant, never

GROUPS = (
    mutant(
        "hole-in-the-units-of-an-app",
        "I4",
        "after an append of an app failed, no later one is committed unasked",
        never,
        "test_i4_after_a_failure_no_later_unit_of_the_app_is_committed",
    ),
    mutant(
        "group-refused-for-rows-of-one",
        "I4",
        "rows that cannot be committed fail alone",
        instead("self._fail(group, error)"),
        "test_a_check_that_is_added_meanwhile_fails_the_rows_that_break_it_alone",
    ),
    mutant(
        "appender-used-after-a-fork",
        "I1",
        "a child does not wait for the thread of its parent",
        never,
        "test_a_child_has_no_part_in_the_appender_of_its_parent",
    ),
)
