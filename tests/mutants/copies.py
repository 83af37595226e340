"""Mutants of replication: what is copied, in which order, and what a follower may believe."""

from mutants.swap import always, becomes, mutant, never

COPIES = (
    mutant(
        "given-up-versions-copied",
        "G1",
        "a copy starts at the horizon",
        becomes("min(first, head.version + 1)"),
        "test_a_copy_that_is_behind_the_horizon_goes_on_at_the_horizon",
    ),
    mutant(
        "other-bytes-taken-for-a-copy",
        "G2",
        "an object that is there has the same bytes",
        never,
        "test_a_write_to_the_copy_in_the_middle_of_a_pass_is_not_overwritten",
    ),
    mutant(
        "damage-replicated",
        "G1",
        "what is copied has the checksum in the log",
        always,
        "test_a_damaged_or_missing_segment_is_not_replicated",
    ),
    mutant(
        "damage-copied-within-the-store",
        "G1",
        "what the store copied by itself has the checksum in the log",
        never,
        "test_a_damaged_segment_is_not_copied_within_the_store",
    ),
    mutant(
        "damage-taken-for-a-copy",
        "G1",
        "what the store copied by itself counts as there only with the checksum in the log",
        becomes("True"),
        "test_damage_that_the_store_has_copied_is_not_taken_for_a_copy",
    ),
    mutant(
        "commit-of-another-chain",
        "G2",
        "a commit follows the one before",
        never,
        "test_a_source_that_is_replaced_in_the_middle_of_a_pass_is_noticed",
    ),
    mutant(
        "backfill-of-another-chain",
        "G2",
        "an older commit is the one that the next one names",
        never,
        "test_a_backfill_from_another_fork_is_refused",
    ),
    mutant(
        "emptied-taken-for-full",
        "G5",
        "a copy that lost what it acknowledged is attached anew",
        never,
        "test_g5_a_vacuum_waits_for_a_replica_and_an_emptied_one_never_counts_as_full",
    ),
    mutant(
        "memory-trusted",
        "G2",
        "what a follower remembers of a copy is looked at again",
        becomes("known"),
        "test_a_copy_that_is_replaced_under_its_follower_is_looked_at_again",
    ),
    mutant(
        "old-news-taken-for-emptied",
        "G5",
        "a copy is read again before it counts as emptied",
        becomes("known"),
        "test_g5_followers_of_one_pair_do_not_attach_it_anew_in_turns",
    ),
    mutant(
        "any-start-accepted",
        "C5",
        "a start that is there explains the gap",
        never,
        "test_a_start_that_does_not_explain_the_gap_is_not_taken",
    ),
    mutant(
        "given-up-taken-for-readable",
        "G1",
        "a copy gets commits without segments only where it knows that they are given up",
        becomes("0"),
        "test_g1_a_backfill_of_a_copy_that_is_behind_a_vacuum_waits_for_the_follower",
    ),
    mutant(
        "inherited-taken-for-kept",
        "G1",
        "a branch keeps what its parent keeps for it",
        becomes("head.meta.horizon"),
        "test_a_copy_of_a_branch_starts_at_what_the_parent_keeps_for_it",
    ),
    mutant(
        "lost-taken-for-left-out",
        "C5",
        "commits of a copy that are missing between others are told",
        never,
        "test_a_backfill_fills_a_hole_between_versions_that_are_there",
    ),
)
