"""Mutants of what engines push into a table: they trust what a dataset returns."""

from mutants.swap import becomes, mutant, never, skip

ENGINES = (
    mutant(
        "float-read-by-polars",
        "R7.4",
        "a pushed literal is the one of the query",
        never,
        "test_polars_expressions_have_the_form_that_is_pushed",
    ),
    mutant(
        "renamed-column-in-a-list-of-files",
        "R7.2",
        "a list of files has the columns of its version under their names",
        never,
        "test_files_are_listed_again_once_all_rows_were_written_again",
    ),
    mutant(
        "renamed-column-read-by-the-jvm",
        "R7.10 W19",
        "an engine that finds columns by name reads no files with columns under other names",
        never,
        "test_spark_s_own_reader_is_refused_where_names_do_not_show_the_columns",
    ),
    mutant(
        "files-without-added-columns",
        "R7.2",
        "each file of a list has all columns of its version",
        never,
        "test_files_that_would_mislead_are_refused",
    ),
    mutant(
        "nan-lost",
        "R7.4",
        "a row with NaN passes the lower bound of an engine, in whose order it lies above all",
        never,
        "test_nan_is_above_all_numbers_and_equal_to_itself",
    ),
    mutant(
        "null-not-looked-up",
        "R7.4",
        "a row with null passes no negated lookup of an engine",
        becomes("given"),
        "test_a_lookup_of_null_is_null",
    ),
    mutant(
        "polars-filter-trusted",
        "R7.4",
        "a row that a part of a predicate lets through passes the whole of it, too",
        skip,
        "test_a_predicate_that_is_known_in_part_is_applied_as_a_whole",
    ),
)
