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
    mutant(
        "commits-read-again-after-each-race",
        "R20.3",
        "a change that others overtake reads each of their commits once",
        becomes("progress.seen"),
        "test_no_commit_is_read_more_often_the_longer_a_change_is_overtaken",
    ),
    mutant(
        "commits-of-another-log-followed",
        "R20.3",
        "the commits that a change looks through are those of one log",
        never,
        "test_rows_are_not_followed_into_another_log",
    ),
    mutant(
        "staged-again-for-rows-that-only-moved",
        "R20.3",
        "new forms of rows that a compaction moved are not stored again",
        always,
        "test_rows_that_a_compaction_moved_are_not_stored_again",
    ),
    mutant(
        "other-rows-taken-for-the-same",
        "R20.3",
        "new forms are computed from the rows as others have changed them",
        becomes("self._others is None"),
        "test_rows_that_others_changed_are_stored_again",
    ),
    mutant(
        "uploads-of-slow-changes-fenced",
        "V1",
        "a change that is overtaken for long copies its uploads before a vacuum may delete them",
        never,
        "test_a_change_may_outlast_the_time_that_uploads_have",
    ),
    mutant(
        "copies-of-a-lost-race-forgotten",
        "V1",
        "a copy of a fenced upload serves the next attempt, too",
        skip,
        "test_a_copy_that_lost_its_race_is_not_made_again",
    ),
)
