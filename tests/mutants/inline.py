"""Mutants of segments in commits: what bytes an add may have, and which readers take."""

from mutants.swap import becomes, mutant, never, skip

INLINE = (
    mutant(
        "inline-unannounced",
        "R21.3 W19",
        "a reader that knows no segments in commits refuses a version that has some",
        never,
        "test_a_small_append_is_one_request",
    ),
    mutant(
        "other-bytes-inlined",
        "R21.1 W6",
        "the bytes of an add are those that its entry describes",
        never,
        "test_bytes_that_are_not_those_of_the_entry_are_void",
    ),
    mutant(
        "bytes-in-any-commit",
        "R21.1",
        "only what was live before can have its bytes in an earlier commit",
        never,
        "test_bytes_that_are_not_those_of_the_entry_are_void",
    ),
    mutant(
        "bytes-in-a-later-commit",
        "R5.2",
        "no entry is older than the commit that has its bytes",
        never,
        "test_no_entry_is_older_than_its_bytes",
    ),
    mutant(
        "pack-bytes-not-compared",
        "R21.4 W6",
        "a pack is compared with the root that names it",
        never,
        "test_a_pack_of_other_rows_is_not_read",
    ),
    mutant(
        "large-rows-in-the-commit",
        "R21.1 W4",
        "rows that take more than the table allows have objects of their own",
        never,
        "test_larger_appends_have_objects_of_their_own",
    ),
    mutant(
        "commit-of-the-rows-of-all-tasks",
        "R21.1 W4",
        "tasks of Spark leave it to the driver whether their rows fit into the commit",
        skip,
        "test_beside_the_rows_of_a_large_task_they_have_an_object",
    ),
    mutant(
        "inline-bytes-not-copied",
        "R17.2 R21.2",
        "a copy has the objects of segments whose commits it lacks",
        becomes("False"),
        "test_a_copy_that_begins_at_a_key_frame_has_the_objects_of_older_appends",
    ),
    mutant(
        "inline-of-another-log",
        "R21.1",
        "a merge names no commit of the other log",
        becomes(
            "msgspec.structs.replace(add, epoch=self._staged[add.id], "
            "parquet=self._inline.get(add.id, UNSET))"
        ),
        "test_two_copies_that_took_writes_are_merged",
    ),
    mutant(
        "packs-of-kept-versions-deleted",
        "R21.6",
        "the packs of the oldest kept key frame stay",
        becomes("kept is not None"),
        "test_a_vacuum_drops_the_packs_that_no_kept_version_needs",
    ),
    mutant(
        "rows-bring-key-frames",
        "R9.7",
        "the bytes of rows in a commit make no key frame due",
        becomes("len(body) + spilled"),
        "test_their_bytes_bring_no_key_frame",
    ),
    mutant(
        "bytes-of-no-add",
        "R21.1 W6",
        "an audit reports an entry whose commit has no add with its bytes",
        never,
        "test_an_entry_that_names_a_commit_without_its_bytes_is_reported",
    ),
    mutant(
        "pack-of-dropped-segments",
        "R21.4 W6",
        "an audit compares what a pack has with what is live",
        never,
        "test_packs_with_another_index_are_errors",
    ),
    mutant(
        "pack-rows-not-compared",
        "R21.4 W6",
        "an audit finds a pack with other rows than the commits",
        never,
        "test_packs_of_other_rows_are_found_with_checksums",
    ),
    mutant(
        "another-object-published",
        "R21.2 W17",
        "what is at the key of a published segment is its object",
        never,
        "test_another_object_at_the_key_is_not_published",
    ),
    mutant(
        "published-without-objects",
        "R21.2 W17",
        "what Delta names is at its key before",
        skip,
        "test_every_version_that_is_published_has_its_objects",
    ),
    mutant(
        "iceberg-without-objects",
        "R21.2 W17",
        "what Iceberg names is at its key before",
        becomes("[]"),
        "test_every_version_that_is_published_has_its_objects",
    ),
)
