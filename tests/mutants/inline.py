"""Mutants of segments in commits: what bytes an add may have, and which readers take."""

from mutants.swap import becomes, mutant, never

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
        "rows-bring-key-frames",
        "R9.7",
        "the bytes of rows in a commit make no key frame due",
        becomes("len(body) + spilled"),
        "test_their_bytes_bring_no_key_frame",
    ),
)
