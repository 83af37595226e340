"""Mutants of granularities that follow the data of a table."""

from mutants.swap import always, becomes, mutant, never, without

MOVES = (
    mutant(
        "fixed-granularity-moves",
        "R14.4",
        "a granularity that somebody sets does not follow the data any more",
        never,
        "test_a_granularity_is_fixed_and_follows_again",
    ),
    mutant(
        "granularity-moved-though-fixed",
        "R14.4",
        "a change by itself is void where the granularity was fixed meanwhile",
        becomes("[SetGranularity(now, better)]"),
        "test_a_granularity_that_is_fixed_meanwhile_stays",
        "test_somebody_fixes_it_between_the_plan_and_the_run",
    ),
    mutant(
        "later-rows-choose-the-granularity",
        "R14.4",
        "only the first rows of a table choose its granularity",
        without(1),
        "test_later_rows_follow_and_choose_nothing",
    ),
    mutant(
        "first-rows-of-an-old-handle",
        "R14.4",
        "a handle looks for rows of others before it changes the granularity",
        always,
        "test_rows_that_an_old_handle_has_not_seen_are_the_first",
    ),
    mutant(
        "chunks-joined-to-be-cut-again",
        "R14.4",
        "chunks do not become coarser if they would be large then",
        never,
        "test_small_chunks_beside_one_that_would_be_large_stay",
    ),
    mutant(
        "moved-granularity-is-a-conflict",
        "R19.6",
        "merged logs of which both follow their data need nobody to choose a granularity",
        always,
        "test_two_granularities_that_followed_the_data_are_no_conflict",
        "test_a_granularity_that_was_set_counts_against_one_that_followed",
    ),
)
