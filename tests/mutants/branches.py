"""Mutants of branches: what lies where, who writes where, and what holds what a branch reads."""

from mutants.swap import becomes, mutant, never, skip

BRANCHES = (
    mutant(
        "branch-sees-the-parents-future",
        "C5",
        "a branch has its parent's versions up to the fork",
        becomes("parsed is not None"),
        "test_a_branch_begins_as_its_parent_and_both_go_on",
    ),
    mutant(
        "segment-sought-in-the-wrong-root",
        "R1",
        "segments of epochs from the fork on are the branch's",
        becomes("epoch is not None"),
        "test_a_branch_begins_as_its_parent_and_both_go_on",
    ),
    mutant(
        "branch-writes-into-its-parent",
        "P1",
        "what is the parent's is not written by a branch",
        never,
        "test_a_branch_writes_nothing_into_its_parent",
    ),
    mutant(
        "fork-of-another-log",
        "W9",
        "the parent's commit at the fork is the one that was forked",
        never,
        "test_a_parent_that_is_another_log_by_now_is_noticed",
    ),
    mutant(
        "fork-of-another-branch",
        "W9",
        "a copy under another name is no branch: no pin holds what it reads",
        never,
        "test_a_fork_is_read_strictly",
    ),
    mutant(
        "taken-over-pin-rises",
        "V2",
        "who takes over a pin holds what the one before it may have forked at",
        becomes("version"),
        "test_a_pin_that_is_taken_over_never_rises",
    ),
    mutant(
        "branch-without-its-pin",
        "V2",
        "a branch that was made is held",
        skip,
        "test_another_program_at_every_moment_of_a_making",
    ),
    mutant(
        "branch-deleted-under-its-branches",
        "V2",
        "a branch with branches is not deleted",
        never,
        "test_a_branch_of_a_branch",
    ),
    mutant(
        "branch-counts-its-parents-segments",
        "V4",
        "a vacuum of a branch says nothing of its parent's segments",
        becomes("dropped"),
        "test_a_vacuum_of_a_branch_deletes_its_own_only",
    ),
    mutant(
        "late-write-in-the-next-branch",
        "W9",
        "what is written late to a deleted branch is not part of another one of its name",
        becomes("keys.branch_root(self.name) + '/'"),
        "test_w9_what_a_deleted_branch_acknowledged_was_there",
    ),
    mutant(
        "commit-to-a-deleted-branch",
        "W9",
        "a commit to a branch that was deleted is not acknowledged",
        skip,
        "test_w9_what_a_deleted_branch_acknowledged_was_there",
    ),
    mutant(
        "unconfirmed-and-forgotten",
        "C8",
        "a commit that could not be confirmed is looked for before it is sent again",
        skip,
        "test_an_outcome_that_cannot_be_confirmed_is_unknown_until_it_can",
    ),
    mutant(
        "next-branch-deleted-too",
        "W9",
        "a program that deletes late leaves a branch that was made meanwhile",
        becomes("list(names)"),
        "test_only_what_is_certainly_dead_is_deleted",
    ),
    mutant(
        "deleted-branch-called-damaged",
        "R1",
        "what is missing of a deleted branch is not called a loss",
        skip,
        "test_a_reader_is_told_that_the_branch_was_deleted",
    ),
)
