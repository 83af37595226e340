"""Mutants of merging histories: nothing twice, nothing lost, conflicts are told."""

from mutants.swap import always, becomes, mutant, never

MERGES = (
    mutant(
        "own-rows-carried-back",
        "G3",
        "what came from the target is not carried back",
        never,
        "test_g3_what_came_from_the_target_is_not_carried_back",
    ),
    mutant(
        "third-log-carried-twice",
        "G3",
        "what both have of a third log is not carried",
        never,
        "test_g3_a_third_copy_is_merged_once_by_whatever_way",
    ),
    mutant(
        "unit-of-work-done-on-both-sides",
        "G3 I3",
        "a unit of work that both did is not carried",
        always,
        "test_g3_a_unit_of_work_that_both_did_is_there_once",
    ),
    mutant(
        "first-of-several-units-not-looked-up",
        "G3 I3",
        "each unit of work that is carried with others is looked up",
        becomes("all(self._seqs.get(a, -1) < d[-1][1] for a, d in act.units.items())"),
        "test_g3_units_of_work_that_were_carried_at_once_are_known_one_by_one",
    ),
    mutant(
        "carried-by-two-at-once",
        "G3 I3",
        "two merges that run at once carry a unit of work below the mark once",
        never,
        "test_g3_two_that_did_one_unit_of_work_are_merged_at_the_same_time",
    ),
    mutant(
        "another-fork-of-a-merged-log",
        "G3",
        "a log of which another fork was merged is refused",
        never,
        "test_g3_a_copy_of_what_was_merged_is_no_new_source",
    ),
    mutant(
        "another-fork-taken-for-the-target",
        "G3",
        "what the source has of another fork is not taken for the target's own",
        never,
        "test_g3_a_copy_of_what_was_merged_is_no_new_source",
    ),
    mutant(
        "rewrite-of-what-is-not-there",
        "G3 K6",
        "a rewrite whose inputs the target has rewritten is declined",
        never,
        "test_s5_4_both_compacted_the_same_segments_and_no_row_is_lost_or_doubled",
    ),
    mutant(
        "replaced-on-both-sides",
        "G3",
        "rows that both replaced are a conflict",
        never,
        "test_g3_rows_that_both_replaced_are_a_conflict",
    ),
    mutant(
        "rows-dropped-with-others",
        "G3",
        "rows of the target alone are not dropped with those of the source",
        never,
        "test_g3_rows_that_one_dropped_and_the_other_compacted_with_its_own_are_a_conflict",
    ),
    mutant(
        "merged-slices-carried",
        "G4 K4",
        "merges of slices are not carried: each log merges its own",
        never,
        "test_g4_merges_of_slices_stay_at_their_side",
    ),
    mutant(
        "orders-that-differ",
        "G4",
        "rules that depend on the order alone are refused where both wrote",
        never,
        "test_g4_a_rule_that_depends_on_the_order_alone_is_refused_where_both_wrote",
    ),
    mutant(
        "unseen-rows-dropped",
        "G4",
        "an overwrite drops nothing that its side had not seen",
        never,
        "test_g4_an_overwrite_of_what_was_merged_with_newer_rows_is_a_conflict",
    ),
    mutant(
        "damage-merged",
        "G3",
        "a segment is compared with the log before it is carried",
        always,
        "test_g3_a_damaged_segment_is_not_carried",
    ),
)
