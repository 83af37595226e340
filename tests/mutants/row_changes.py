"""Mutants of what follows from deleted rows: changes, plans of compaction, translated deletes."""

from mutants.swap import becomes, mutant, never, without

ROW_CHANGES = (
    mutant(
        "changes-of-the-rows-deleted-before",
        "W14",
        "the changes of a delete are the rows that no earlier delete has",
        becomes("{s.id: vectors.deleted(known[s.id]) for s in both}"),
        "test_a_second_update_of_a_segment_has_its_own_pairs_only",
    ),
    mutant(
        "pairs-cut-by-time",
        "W14",
        "a pair of rows is read whole, also where its rows lie in different chunks",
        becomes("all(self._in_time(segment) for segment in (*step.old, *step.new))"),
        "test_pairs_are_whole_where_their_rows_lie_in_different_chunks",
    ),
    mutant(
        "restored-rows-taken-for-deleted",
        "W14",
        "rows that a restore brings back may cancel out with deleted ones",
        becomes("all(s.id in known for s in step.added)"),
        "test_rows_cancel_out_only_where_some_are_added_or_come_back",
    ),
    mutant(
        "deleted-rows-never-due",
        "K8",
        "a segment of which many rows are deleted is rewritten",
        becomes("pc.greater(share, 1.0)"),
        "test_a_segment_is_rewritten_once_enough_rows_are_deleted",
    ),
    mutant(
        "note-believed-beside-deletes",
        "K8",
        "a chunk recorded as stable is due once many rows of a segment are deleted",
        without(2),
        "test_a_chunk_noted_as_stable_is_due_once_many_of_its_rows_are_deleted",
    ),
    mutant(
        "deletes-meanwhile-taken-for-rewritten",
        "K8",
        "what a task made is not stable if many of its rows were deleted meanwhile",
        never,
        "test_what_a_task_made_is_not_stable_if_many_rows_were_deleted_meanwhile",
    ),
    mutant(
        "deletes-while-compacting-lost",
        "K7",
        "rows that are deleted while a rewrite runs are deleted in what it made",
        never,
        "test_rows_that_are_deleted_while_it_runs_stay_deleted",
    ),
    mutant(
        "emptied-output-kept",
        "K6",
        "a new segment of which all rows were deleted meanwhile is not committed",
        never,
        "test_outputs_of_which_all_rows_were_deleted_are_not_committed",
    ),
    mutant(
        "rows-deleted-before-marked-again",
        "K6",
        "rows that were deleted before a rewrite have no place in what it made",
        becomes("gone"),
        "test_rows_that_were_deleted_before_are_not_in_the_outputs",
    ),
    mutant(
        "inputs-of-another-rewrite-taken-for-deleted",
        "K2",
        "a task ends where another rewrite took one of its inputs",
        becomes("False"),
        "test_an_input_that_another_rewrite_took_is_still_the_end_of_a_task",
    ),
    mutant(
        "dry-run-that-stores",
        "W15",
        "a dry run of an overwrite stores no segment",
        becomes("session.store"),
        "test_overwrite_of_a_range",
    ),
    mutant(
        "dry-run-of-a-range-that-commits",
        "W15",
        "a dry run of an overwrite commits nothing",
        never,
        "test_a_dry_run_of_an_overwrite_checks_the_rows",
    ),
    mutant(
        "files-of-other-columns-merged",
        "W15",
        "files of a merge have the same columns: one that is missing in some is not null",
        never,
        "test_files_of_a_merge_of_rows_have_the_same_columns",
    ),
    mutant(
        "replaced-values-lost-by-a-file",
        "W15",
        "a file whose rows replace others has all columns, unless null is meant",
        never,
        "test_an_overwrite_refuses_rows_that_lack_columns",
    ),
)
