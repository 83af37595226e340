"""Mutants of what publishes versions as an Iceberg table."""

from mutants.swap import always, becomes, mutant, never

ICEBERG_PUBLICATIONS = (
    mutant(
        "snapshot-zero-is-the-newest",
        "E",
        "version 0 has an id that no engine takes for none",
        becomes("version"),
        "test_version_zero_has_the_id_of_no_version",
        "test_polars_and_pyiceberg_take_no_version_for_another",
    ),
    mutant(
        "lower-zero-hides-negative-zero",
        "E",
        "a lower bound of 0 encloses -0.0 in the order of Iceberg, too",
        never,
        "test_a_lower_bound_of_zero_is_negative",
    ),
    mutant(
        "update-called-a-replacement",
        "E",
        "only what leaves the rows as they are is a replacement, which readers of changes skip",
        becomes("'replace'"),
        "test_only_rewrites_are_replacements",
    ),
    mutant(
        "deleted-rows-in-iceberg",
        "E",
        "a version whose segments have deletion vectors is published with them",
        always,
        "test_a_version_with_deletes_reads_as_scan_reads_it",
    ),
    mutant(
        "defaults-read-as-nulls",
        "E",
        "format 2 has no defaults for older rows: such a version is refused",
        never,
        "test_schemas_that_cannot_be_said_are_refused_by_name",
    ),
    mutant(
        "keyed-rows-in-iceberg",
        "E",
        "the segments of a keyed table have rows that no reader may show",
        never,
        "test_keyed_tables_are_refused",
    ),
    mutant(
        "metadata-of-a-stranger-not-noticed",
        "E",
        "a publisher stops where another program wrote metadata",
        never,
        "test_metadata_of_another_name_is_noticed",
    ),
    mutant(
        "metadata-of-a-stranger-taken-for-ours",
        "E",
        "the newest metadata is that of its version",
        never,
        "test_metadata_of_a_stranger_is_noticed",
    ),
    mutant(
        "object-of-a-stranger-taken-for-ours",
        "E",
        "an object that is there already is compared",
        never,
        "test_a_version_that_another_program_took_is_not_replaced",
        "test_a_manifest_of_other_contents_is_not_taken",
    ),
    mutant(
        "publication-of-another-table",
        "E",
        "a table that was replaced is not published into the publication of the old one",
        never,
        "test_a_table_that_was_replaced_is_not_published_into_the_old_publication",
        "test_the_form_of_a_publication_stays",
    ),
    mutant(
        "table-of-somebody-else-unpublished",
        "E",
        "only a publication of eventlog is taken back",
        never,
        "test_an_iceberg_table_of_somebody_else_is_left_alone",
    ),
    mutant(
        "published-object-not-compared",
        "E",
        "an audit compares each object of a publication",
        never,
        "test_an_audit_compares_each_object",
    ),
)
