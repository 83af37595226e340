"""Mutants of an erasure: what it waits for, what it takes for clean, what vacuums leave."""

from mutants.swap import becomes, instead, mutant, never

ERASURES = (
    mutant(
        "undecoded-object-counts-as-clean",
        "",
        "an object that was not decoded may have rows",
        never,
        "test_an_object_that_cannot_be_read_is_never_taken_for_clean",
    ),
    mutant(
        "large-object-taken-for-empty",
        "",
        "a large object that is no segment is decoded as any other",
        becomes('b""'),
        "test_leaves_stems_and_spills_are_searched_and_large_objects_in_parts",
    ),
    mutant(
        "vacuum-before-its-second",
        "",
        "the vacuum of an erasure waits until its own commits are as old as the retention",
        instead("return"),
        "test_all_rows_of_an_erased_key_go_from_a_keyed_table",
    ),
    mutant(
        "intent-that-stays-open",
        "R22.5",
        "intents with rows or statistics end with their windows",
        never,
        "test_an_intent_with_bounds_of_the_rows_ends_with_its_window",
    ),
    mutant(
        "bounds-of-a-clean-segment-count",
        "",
        "a bound of a segment that has no such row is none of theirs",
        becomes("set()"),
        "test_bounds_of_rows_that_are_left_are_no_traces",
    ),
    mutant(
        "packs-of-another-time-kept",
        "R21.6",
        "a full vacuum looks for packs also where no row stands in a commit any more",
        becomes("not had"),
        "test_a_full_vacuum_takes_packs_of_a_table_that_has_no_rows_in_commits_any_more",
    ),
    mutant(
        "publication-of-a-cut-log-refused",
        "",
        "a publication is compared without the versions that were cut off",
        becomes("set()"),
        "test_a_publication_goes_on_above_a_log_that_was_cut",
    ),
    mutant(
        "publication-at-the-cut-refused",
        "",
        "a manifest list of the version of the cut may be that of before the cut",
        instead("pass"),
        "test_a_publication_goes_on_above_a_log_that_was_cut",
    ),
    mutant(
        "audit-of-delta-below-the-cut",
        "",
        "versions that were cut off are not compared with what is published of them",
        becomes("listing.commits[0]"),
        "test_a_publication_that_a_cut_overtook_is_named_and_goes_on",
    ),
    mutant(
        "delta-of-a-cut-log-refused",
        "",
        "the published commit of the version at the cut is told by its ids",
        becomes("True"),
        "test_a_publication_goes_on_above_a_log_that_was_cut",
    ),
    mutant(
        "temporary-file-not-searched",
        "",
        "a file that a writer into a directory left may have rows",
        becomes('""'),
        "test_what_a_writer_into_a_directory_left_is_found_and_deleted",
    ),
    mutant(
        "branch-deleted-from-the-wrong-root",
        "",
        "a branch is deleted from the table that it is a branch of",
        never,
        "test_branches_that_hold_rows_are_named_with_the_table_that_deletes_them",
    ),
    mutant(
        "texts-of-an-expression-not-sought",
        "",
        "a text in an Arrow expression is sought among names, as one in SQL is",
        becomes("()"),
        "test_a_name_that_a_user_gave_is_found_by_the_texts_of_an_arrow_expression",
    ),
)
