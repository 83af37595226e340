"""Mutants of key frames, of decoding, and of readers."""

from mutants.swap import Mutant, always, becomes, first, instead, mutant, never, skip, without


def loses(field, killer):
    """A key frame without a field of the small state, and without the check of state hashes."""
    changes = {
        "key-frame-loses-state": becomes(
            f"type(head.meta)(**{{f: getattr(head.meta, f) for f in head.meta.__struct_fields__"
            f" if f != {field!r}}})"
        ),
        "root-not-added-up": without(0),
        "state-hash-not-compared": without(0),
    }
    guard = f"{field} survive a key frame"
    return Mutant(f"key-frame-loses-{field}", "P4", guard, changes, (killer,))


FRAMES = (
    loses("apps", "test_p4_app_marks_survive_key_frames_and_deduplicate"),
    *(
        loses(field, "test_what_is_held_survives_key_frames")
        for field in ("pins", "claims", "replicas")
    ),
    *(
        loses(field, "test_p4_marks_of_vacuum_and_windows_survive_key_frames")
        for field in ("fence", "horizon", "swept", "published")
    ),
    mutant(
        "state-hash-not-compared",
        "P1",
        "key frame and delta add up to the commit's state hash",
        without(0),
        "test_p1_unusable_key_frame_is_stepped_over",
    ),
    mutant(
        "root-not-added-up",
        "P1",
        "a root adds up to its own state hash",
        without(0),
        "test_p1_a_root_that_tells_of_another_segment_is_stepped_over",
    ),
    mutant(
        "key-frame-of-another-commit",
        "P1",
        "a key frame belongs to the commit of its version",
        skip,
        "test_p1_a_key_frame_of_another_commit_is_not_used",
    ),
    mutant(
        "key-frame-from-a-filtered-delta",
        "P3",
        "a key frame is stored only if it adds up",
        skip,
        "test_p3_a_key_frame_cannot_be_built_from_part_of_the_state",
    ),
    mutant(
        "leaf-hash-not-checked",
        "P1",
        "a leaf has the hash in its name",
        never,
        "test_every_bit_of_every_leaf_is_noticed",
        "test_flipped_or_cut_roots_and_leaves_never_change_the_answer",
    ),
    mutant(
        "stem-hash-not-checked",
        "P1",
        "a stem has the hash in its name",
        never,
        "test_a_stem_of_which_the_root_says_something_else_is_refused",
    ),
    mutant(
        "stem-not-compared",
        "P1 R9.9",
        "the entry for a stem follows from its leaves",
        never,
        "test_a_stem_of_which_the_root_says_something_else_is_refused",
    ),
    mutant(
        "stems-beside-leaves",
        "P1 R9.1",
        "a root has entries in one way",
        never,
        "test_an_empty_list_of_stems_and_stems_beside_leaves_are_refused",
    ),
    mutant(
        "shared-with-a-key-frame-of-before",
        "P1",
        "versions are compared over the key frames that are read",
        always,
        "test_p1_a_difference_is_right_where_a_leaf_turns_out_to_be_lost",
    ),
    mutant(
        "gap-in-a-spill",
        "R6.4",
        "a spilled delta says the places of adds that cannot be counted",
        never,
        "test_a_commit_that_drops_what_it_added_opens_from_its_spill",
    ),
    mutant(
        "stepped-back-into-another-log",
        "P1 R9.6",
        "the commit below an unusable key frame is of the same log",
        skip,
        "test_p1_a_reader_does_not_step_back_into_another_log",
    ),
    mutant(
        "fell-back-into-another-log",
        "P1 R9.6",
        "the state below an unusable leaf is of the same log",
        never,
        "test_p1_a_snapshot_does_not_fall_back_into_another_log",
    ),
    mutant(
        "bad-key-frame-ends-the-road",
        "P1",
        "an unusable key frame is skipped",
        always,
        "test_p1_unusable_key_frame_is_stepped_over",
    ),
    mutant(
        "key-frame-overwritten",
        "P2 C4",
        "an existing key frame is not replaced",
        first("log.store.delete([root_key])"),
        "test_c4_no_verb_deletes_or_reuses_a_key",
    ),
    mutant(
        "digest-not-checked",
        "C6 P1",
        "the digest at the end of an object is that of its text",
        never,
        "test_every_bit_of_every_root_is_noticed",
        "test_flipped_headers_are_detected_where_only_the_header_is_read",
    ),
    mutant(
        "other-spellings-accepted",
        "hostile input",
        "only canonical JSON is read",
        never,
        "test_a_commit_that_is_not_canonical_is_corrupt",
    ),
    mutant(
        "size-checked-after-reading",
        "hostile input",
        "no more of a commit is read than it may have",
        becomes("self.store.get(key)"),
        "test_every_request_names_how_much_it_takes",
        "test_an_object_of_a_gibibyte_is_refused_without_being_read",
    ),
    mutant(
        "size-checked-after-parsing",
        "hostile input",
        "the size is bounded before anything is parsed",
        skip,
        "test_a_commit_that_is_too_large_is_refused_before_it_is_parsed",
    ),
    mutant(
        "newer-format-read",
        "V5",
        "a table that needs a newer reader is refused",
        never,
        "test_what_needs_a_newer_reader_says_so",
    ),
    mutant(
        "newer-format-written",
        "V5",
        "a table that needs a newer writer is not written",
        never,
        "test_a_table_for_newer_writers_is_read_but_not_written",
    ),
    mutant(
        "branch-of-a-newer-table-deleted",
        "V5",
        "nothing is deleted from a table that needs a newer writer",
        skip,
        "test_nothing_is_written_or_deleted_in_a_table_for_newer_writers",
    ),
    mutant(
        "missing-segment-skipped",
        "R1",
        "a missing segment is an error",
        instead("try:\n    pieces += self._opened(segment).pieces()\nexcept DataLoss:\n    pass"),
        "test_damage_is_data_loss_and_named",
    ),
    mutant(
        "vacuumed-called-lost",
        "R1",
        "below the horizon a missing segment is not a data loss",
        skip,
        "test_r1_a_missing_segment_is_vacuumed_below_the_horizon_and_lost_above",
    ),
    mutant(
        "segment-bytes-not-compared",
        "R1",
        "a small segment has its checksum",
        becomes("True"),
        "test_every_flipped_bit_of_a_small_segment_is_found",
    ),
    mutant(
        "stream-goes-on-in-another-log",
        "R3",
        "a stream goes on only where the log still has the commit that it has read",
        never,
        "test_versions_that_were_replaced_by_others_end_the_stream",
    ),
    mutant(
        "epoch-that-no-key-has",
        "P1",
        "a leaf has no entry of which no key can be made",
        skip,
        "test_a_leaf_with_an_epoch_that_no_key_has_is_corrupt",
    ),
)
