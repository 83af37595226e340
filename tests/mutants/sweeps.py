"""Mutants of vacuum: marks, what is dead, what is deleted, what is recorded."""

from mutants.rules import rule
from mutants.swap import Edit, Mutant

VACUUM = "tests/integration/test_vacuum.py::"
POINTS = "tests/integration/test_crash_points.py::"
GUARDS = "tests/mutants/test_guards.py::"

SWEEPS = (
    rule(
        "live-set-read-before-the-marks",
        "V3",
        "what is live is read behind the marks",
        "compaction.reclaim:_mark",
        "return t.snapshot(version), found",
        "return head, found",
        GUARDS + "test_v3_what_is_added_between_the_look_and_the_marks_keeps_its_object",
    ),
    rule(
        "no-fence-committed",
        "V1",
        "the fence is in the log before anything is deleted",
        "compaction.reclaim:_mark",
        "if found.fence > head.meta.fence:",
        "if False:",
        VACUUM + "test_v1_an_upload_that_the_fence_passed_goes_and_its_commit_is_void",
    ),
    rule(
        "no-horizon-committed",
        "V2 R1",
        "the horizon is in the log before anything is deleted",
        "compaction.reclaim:_mark",
        "if found.horizon > head.meta.horizon:",
        "if False:",
        VACUUM + "test_r1_a_missing_segment_is_vacuumed_below_the_horizon_and_lost_above",
    ),
    Mutant(
        "uploads-above-the-fence-deleted",
        "V1",
        "an upload under way is of no fenced epoch",
        (
            Edit(
                "compaction.reclaim:_Sweep._listed",
                "if parsed[0] >= self._marks.fence and not whole:",
                "if False:",
            ),
            Edit("eventlog.sweep:unnamed", " and epoch_of(key) < fence", ""),
        ),
        (VACUUM + "test_v1_an_upload_under_way_is_left_alone",),
    ),
    rule(
        "dropped-above-the-fence-deleted",
        "V1",
        "a dropped segment waits until its epoch is fenced",
        "eventlog.sweep:verdict",
        "if one.version <= horizon and epoch_of(one.key) < fence)",
        "if one.version <= horizon)",
        GUARDS + "test_v1_a_dropped_segment_whose_add_may_come_again_waits",
    ),
    rule(
        "dropped-above-the-horizon-deleted",
        "V2",
        "what a kept version shows stays",
        "eventlog.sweep:verdict",
        "if one.version <= horizon and epoch_of(one.key) < fence)",
        "if epoch_of(one.key) < fence)",
        VACUUM + "test_versions_within_the_retention_stay_readable",
    ),
    rule(
        "live-again-deleted",
        "V2",
        "what was dropped and came back is live",
        "eventlog.sweep:verdict",
        "for key, one in sorted(dropped.items()) if key not in live]",
        "for key, one in sorted(dropped.items())]",
        VACUUM + "test_a_restored_segment_survives_below_the_fence",
    ),
    rule(
        "live-uploads-deleted",
        "V2",
        "what is listed and live stays",
        "eventlog.sweep:unnamed",
        "if key not in live and key not in dropped",
        "if key not in dropped",
        POINTS + "test_there_is_something_to_vacuum",
    ),
    rule(
        "marks-pass-holds",
        "V2",
        "a vacuum stops at pins and replicas",
        "eventlog.sweep:marks",
        "horizon = min([aged, *(hold.version for hold in held)])",
        "horizon = aged",
        VACUUM + "test_v2_what_is_held_stays_until_it_is_let_go",
    ),
    Mutant(
        "foreign-keys-deleted",
        "V4",
        "only keys that a writer of the table builds are deleted",
        (
            Edit(
                "compaction.reclaim:_Sweep._listed",
                "parsed = keys.parse_segment_key(found.key)",
                'parsed = keys.parse_segment_key(found.key) or (0, "", "")',
            ),
            Edit(
                "eventlog.sweep:epoch_of",
                "    if parsed is None or keys.segment_key(*parsed) != key:",
                "    if parsed is None:\n        return 0\n    if False:",
            ),
        ),
        (VACUUM + "test_v4_foreign_keys_are_never_deleted",),
    ),
    rule(
        "newer-table-vacuumed",
        "V5",
        "a vacuum asks whether it may write before it deletes",
        "compaction.reclaim:_mark",
        "        check_writable(head.header)\n",
        "",
        VACUUM + "test_v5_an_older_program_does_not_touch_a_newer_table",
        GUARDS + "test_v5_not_even_where_the_marks_are_there_already",
    ),
    rule(
        "recorded-before-the-deletes",
        "V6 R12.6",
        "the record comes after the deletes",
        "compaction.reclaim:vacuum",
        "    run.judge(last, delete=not dry_run)\n",
        "    run.judge(last, delete=False)\n"
        "    run.record()\n"
        "    run.judge(last, delete=not dry_run)\n",
        POINTS + "test_a_vacuum_after_one_that_died_leaves_nothing_dead",
    ),
    rule(
        "waiting-not-recorded",
        "R12.6",
        "what waits is left to the next vacuum",
        "compaction.reclaim:_Sweep.record",
        "if self._found.waiting:",
        "if False:",
        VACUUM + "test_what_waits_is_remembered_by_the_next_vacuum",
    ),
    rule(
        "lost-record-taken-for-empty",
        "R12.6",
        "without a record a vacuum looks at everything",
        "compaction.reclaim:_Sweep._left",
        "        return None",
        "        return {}",
        VACUUM + "test_a_lost_record_costs_time_and_no_row",
    ),
    rule(
        "conflict-of-marks-ignored",
        "V2",
        "marks that were refused are looked at again",
        "compaction.reclaim:_mark",
        "            continue\n",
        "            return t.refresh(), found\n",
        VACUUM + "test_v2_a_pin_that_comes_between_the_look_and_the_marks_is_seen",
        GUARDS + "test_v2_a_pin_that_comes_between_keeps_its_objects",
    ),
)
