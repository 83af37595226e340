"""Mutants of deletes, updates, overwrites and merges of rows in tables without a key."""

from mutants.swap import always, becomes, mutant, never, skip

CHANGED_ROWS = (
    mutant(
        "rows-that-came-meanwhile-changed",
        "R20.3",
        "a change of rows leaves those that others add while it runs",
        always,
        "test_rows_that_are_appended_meanwhile_are_not_searched",
    ),
    mutant(
        "moved-rows-not-followed",
        "R20.3",
        "a change of rows finds them where a compaction or an update has put them",
        never,
        "test_a_compaction_that_is_committed_first_is_searched_and_nothing_else",
    ),
    mutant(
        "rows-unseen-when-it-landed",
        "R20.3",
        "a merge adds no row that another has added meanwhile",
        never,
        "test_two_merges_of_one_new_key_add_it_once",
    ),
    mutant(
        "earlier-deletes-forgotten",
        "R20.3",
        "deletes of other rows of a segment are united",
        becomes("one.positions"),
        "test_deletes_of_other_rows_of_a_segment_are_united",
    ),
    mutant(
        "rows-that-others-deleted-found",
        "R20.3",
        "a row that another has deleted is not deleted, or updated, once more",
        never,
        "test_rows_that_others_deleted_need_no_delete",
    ),
    mutant(
        "more-rows-kept-than-fit",
        "W15",
        "rows that an update keeps between finding and staging them are bounded in memory",
        never,
        "test_rows_that_do_not_fit_into_memory_are_read_again",
    ),
    mutant(
        "some-of-the-rows-kept",
        "W15",
        "a segment of which not all rows fit into memory is read again",
        skip,
        "test_rows_that_do_not_fit_into_memory_are_read_again",
    ),
    mutant(
        "repeated-without-a-reason",
        "R20.3",
        "a change that cannot be committed although nobody is in the way is given up",
        becomes("False"),
        "test_rows_that_a_vacuum_has_deleted_are_not_tried_again_and_again",
    ),
)
