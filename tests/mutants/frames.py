"""Mutants of key frames, of what is decoded, and of readers."""

from mutants.rules import rule
from mutants.swap import Edit, Mutant

FAULTS = "tests/integration/test_commit_faults.py::"
HOSTILE = "tests/integration/test_hostile_input.py::"
VACUUM = "tests/integration/test_vacuum.py::"
READERS = "tests/integration/test_readers.py::"
GUARDS = "tests/mutants/test_guards.py::"

STATE_HASH = Edit(
    "eventlog.verification:check_sums", "codec.hex_hash(total) != header.state_hash", "False"
)
ROOT_HASH = Edit("eventlog.keyframe:check", "codec.hex_hash(total) != root.state_hash", "False")


def loses(field):
    """A key frame without a field of the small state, and nobody compares state hashes."""
    return Mutant(
        f"key-frame-loses-{field}",
        "P4",
        f"{field} survive a key frame",
        (
            Edit(
                "eventlog.framing:write_keyframe",
                "meta=head.meta,",
                "meta=__import__('msgspec').structs.replace("
                f"head.meta, {field}=type(head.meta)().{field}),",
            ),
            ROOT_HASH,
            STATE_HASH,
        ),
        (FAULTS + "test_p4_app_marks_survive_key_frames_and_deduplicate",)
        if field == "apps"
        else (GUARDS + "test_p4_marks_of_vacuum_and_windows_survive_key_frames",)
        if field in ("fence", "horizon", "swept", "published")
        else ("tests/unit/test_claims.py::test_what_is_held_survives_key_frames",),
    )


FRAMES = (
    *map(loses, ("apps", "pins", "claims", "replicas", "fence", "horizon", "swept", "published")),
    Mutant(
        "state-hash-not-compared",
        "P1",
        "key frame and delta add up to the commit's state hash",
        (STATE_HASH,),
        (FAULTS + "test_p1_unusable_key_frame_is_stepped_over",),
    ),
    Mutant(
        "root-not-added-up",
        "P1",
        "a root adds up to its own state hash",
        (ROOT_HASH,),
        (GUARDS + "test_p1_a_root_that_tells_of_another_segment_is_stepped_over",),
    ),
    rule(
        "key-frame-of-another-commit",
        "P1",
        "a key frame is of the commit of its version",
        "eventlog.snapshot:Snapshot.on_keyframe",
        'raise Corrupt("the key frame is not of this commit", version=self.version)',
        "pass",
        FAULTS + "test_p1_a_key_frame_of_another_commit_is_not_used",
    ),
    rule(
        "key-frame-from-a-filtered-delta",
        "P3",
        "a key frame that is built adds up, else it is not stored",
        "eventlog.keyframe:build",
        "    check(frame)\n",
        "",
        FAULTS + "test_p3_a_key_frame_cannot_be_built_from_part_of_the_state",
    ),
    rule(
        "leaf-hash-not-checked",
        "P1",
        "a leaf has the hash in its name",
        "eventlog.keyframe:check_leaf",
        "if codec.sha256(body) != leaf.sha256:",
        "if False:",
        "tests/fuzz/test_bit_flips.py::test_every_bit_of_every_leaf_is_noticed",
        HOSTILE + "test_flipped_or_cut_roots_and_leaves_never_change_the_answer",
    ),
    rule(
        "bad-key-frame-ends-the-road",
        "P1",
        "an unusable key frame is stepped over",
        "eventlog.log:Log.resolve",
        "if start is None:",
        "if True:",
        FAULTS + "test_p1_unusable_key_frame_is_stepped_over",
    ),
    rule(
        "key-frame-overwritten",
        "P2 C4",
        "a key frame that is there stays",
        "eventlog.framing:write_keyframe",
        "put_once(log.store, clock, root_key, codec.encode_keyframe(frame.root))",
        "log.store.delete([root_key])\n"
        "    put_once(log.store, clock, root_key, codec.encode_keyframe(frame.root))",
        FAULTS + "test_c4_no_verb_deletes_or_reuses_a_key",
    ),
    rule(
        "digest-not-checked",
        "C6 P1",
        "the digest at the end of an object is that of its text",
        "eventlog.seal:unsealed",
        "if sealed(text, owner) != whole:",
        "if False:",
        "tests/fuzz/test_bit_flips.py::test_every_bit_of_every_root_is_noticed",
        HOSTILE + "test_flipped_headers_are_detected_where_only_the_header_is_read",
    ),
    rule(
        "other-spellings-accepted",
        "hostile input",
        "only canonical JSON is read",
        "eventlog.codec:_decode_canonical",
        "if again != body:",
        "if False:",
        HOSTILE + "test_a_commit_that_is_not_canonical_is_corrupt",
    ),
    rule(
        "size-checked-after-parsing",
        "hostile input",
        "the size is bounded before anything is parsed",
        "eventlog.codec:decode_commit",
        "    _check_size(body, MAX_COMMIT_BYTES)\n",
        "",
        HOSTILE + "test_a_commit_that_is_too_large_is_refused_before_it_is_parsed",
    ),
    rule(
        "newer-format-read",
        "V5",
        "what needs a newer reader is refused",
        "eventlog.codec:_check_readable",
        "if fields.min_reader > FORMAT_VERSION or unknown:",
        "if False:",
        HOSTILE + "test_what_needs_a_newer_reader_says_so",
    ),
    rule(
        "newer-format-written",
        "V5",
        "what needs a newer writer is not written",
        "eventlog.proposal:check_writable",
        "if header.min_writer > FORMAT_VERSION:",
        "if False:",
        HOSTILE + "test_a_table_for_newer_writers_is_read_but_not_written",
    ),
    rule(
        "missing-segment-skipped",
        "R1",
        "a missing segment is an error",
        "readers.fragments:Reading._open",
        "    return _Source(self, segment, fetchers).pieces()",
        "    try:\n        return _Source(self, segment, fetchers).pieces()\n"
        "    except DataLoss:\n        return []",
        READERS + "test_damage_is_data_loss_and_named",
    ),
    rule(
        "vacuumed-called-lost",
        "R1",
        "below the horizon a missing segment is no data loss",
        "readers.objects:SegmentObject.missing",
        "        return error\n",
        "        pass\n",
        VACUUM + "test_r1_a_missing_segment_is_vacuumed_below_the_horizon_and_lost_above",
    ),
    rule(
        "segment-bytes-not-compared",
        "R1",
        "a small segment has its checksum",
        "readers.objects:SegmentObject._fetch_whole",
        "return body if codec.sha256(body) == self.segment.checksum else None",
        "return body",
        READERS + "test_every_flipped_bit_of_a_small_segment_is_found",
    ),
)
