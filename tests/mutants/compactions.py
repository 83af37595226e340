"""Mutants of compaction: one task's effect, what a rewrite keeps, and what planning repeats."""

from mutants.swap import Edit, Mutant

PERFORMED = "tests/unit/test_perform.py::"
REWRITTEN = "tests/unit/test_rewrite.py::"
PLANNED = "tests/unit/test_planning.py::"
SCORED = "tests/unit/test_scoring.py::"
QUEUED = "tests/unit/test_queueing.py::"
GUARDS = "tests/mutants/test_guards.py::"

TWICE = PERFORMED + "test_i4_the_second_delivery_reads_no_rows_and_is_done_too"
CLAIMED = PERFORMED + "test_a_claim_is_taken_and_given_up_with_the_commit"
CHANGED = REWRITTEN + "test_k6_a_rewrite_that_changes_rows_is_refused"
RESTS = PLANNED + "test_a_chunk_whose_task_fails_rests_longer_each_time_and_then_runs_alone"
FIXED = PLANNED + "test_what_a_task_left_is_stable_whatever_its_sizes"

ATTEMPT = "compaction.perform:_Attempt"
REPLACEMENT = "compaction.perform:replacement"


def guard(name, hazards, what, edit, *killers):
    return Mutant(name, hazards, what, (Edit(*edit),), killers)


COMPACTIONS = (
    guard(
        "task-under-a-fresh-id",
        "I4 C8",
        "the commit of a task has the task's id",
        (REPLACEMENT, "return replace(formed, id=task.id)", "return formed"),
        TWICE,
    ),
    guard(
        "done-task-not-found",
        "I4",
        "a task whose inputs are gone looks for its own trace first",
        (ATTEMPT + "._settled", "if not gone:", "if True:"),
        TWICE,
    ),
    guard(
        "segment-that-came-back-taken-for-the-old",
        "I4 K1",
        "a segment that was restored is another input",
        (ATTEMPT + "._settled", "live.get(s.id) != s]", "s.id not in live]"),
        PERFORMED + "test_rows_that_came_back_can_be_compacted_again",
    ),
    guard(
        "drops-read-again-at-the-commit",
        "K7",
        "a rewrite drops what it read, not what is there now",
        (
            REPLACEMENT,
            "[drop_of(segment) for segment in task.inputs]",
            "[drop_of(s) for s in t.head().segments() if s.chunk in task.chunks]",
        ),
        PERFORMED + "test_what_arrives_meanwhile_stays_beside",
    ),
    guard(
        "rewrite-that-does-not-say-so",
        "K6 K7",
        "a rewrite says that it is one, and when it was planned",
        (REPLACEMENT, "[Replace(version=task.version, deletes=0)]", "[]"),
        PERFORMED + "test_k6_a_replacement_with_other_rows_is_void",
    ),
    guard(
        "costly-task-without-a-claim",
        "K2",
        "a costly task takes a claim",
        (ATTEMPT + ".run", "if needs_claim(task, self._policy):", "if False:"),
        CLAIMED,
    ),
    guard(
        "claim-not-carried",
        "K2",
        "the commit carries the claim's token",
        (REPLACEMENT, "claim=None if lease is None else lease.token,", "claim=None,"),
        PERFORMED + "test_k2_a_revoked_claim_ends_it_and_nothing_shows",
    ),
    guard(
        "claim-not-renewed",
        "K3",
        "a long task renews its claim",
        (ATTEMPT + "._pulse", "if now_s - self._renewed_s >= RENEW_S:", "if False:"),
        PERFORMED + "test_a_claim_is_renewed_about_every_minute",
        PERFORMED + "test_a_holder_that_works_for_long_is_not_taken_for_dead",
    ),
    guard(
        "taken-over-without-a-sign",
        "K3",
        "who goes on under a dead one's claim renews it",
        (ATTEMPT + ".run", "if claimed.joined:", "if False:"),
        PERFORMED + "test_who_takes_over_from_the_dead_shows_that_it_is_alive",
    ),
    guard(
        "dead-holder-not-broken",
        "K3",
        "a claim whose holder gives no sign of life does not block its chunk for ever",
        (ATTEMPT + "._claim", "take_over=True,", "take_over=False,"),
        PERFORMED + "test_a_dead_holders_claim_on_what_is_another_task_by_now_is_broken",
    ),
    guard(
        "outcome-of-foreseen-errors-only",
        "I4",
        "an error of any kind is the outcome of its task",
        ("compaction.perform:perform", "except Exception as error:", "except OSError as error:"),
        PERFORMED + "test_whatever_one_task_meets_is_its_outcome",
    ),
    guard(
        "task-id-without-versions",
        "I4 K1",
        "work that is due again after a restore has another id",
        ("compaction.tasks:task_id", "{name}@{version}", "{name}"),
        PERFORMED + "test_rows_that_came_back_can_be_compacted_again",
    ),
    guard(
        "claim-not-given-up",
        "K3",
        "the commit of a task gives its claim up",
        (REPLACEMENT, "if lease is not None:", "if False:"),
        CLAIMED,
    ),
    guard(
        "each-delivery-a-claim-of-its-own",
        "I4 K2",
        "all attempts at a task share its claim, the dead ones' too",
        (ATTEMPT + "._claim", "group=task.id,", "group=None,"),
        PERFORMED + "test_an_orphaned_claim_of_the_same_task_is_taken_over",
    ),
    guard(
        "fenced-outputs-given-up",
        "V1",
        "what a fence passed by is staged again",
        (ATTEMPT + ".run", "commit_staged(t, ", "t.commit("),
        PERFORMED + "test_a_fence_that_passes_by_is_no_failure",
    ),
    guard(
        "written-rows-not-compared",
        "K6",
        "what was written is what was read",
        (
            "compaction.rewriting.rewrite:_Work.run",
            "check_same(self._read, self._outputs.written, name, table)",
            "pass",
        ),
        CHANGED,
    ),
    guard(
        "only-rows-counted",
        "K6",
        "values are compared, not only the number of rows",
        ("compaction.rewriting.digest:check_same", "elif before.rows:", "elif False:"),
        CHANGED,
    ),
    guard(
        "values-that-change-places",
        "K6",
        "a value that ends up in another row is noticed",
        (
            "compaction.rewriting.digest:digest",
            "pc.add(pc.multiply(times, 2), 1)",
            "pc.add(pc.multiply(times, 0), 1)",
        ),
        REWRITTEN + "test_the_digest_notices_another_value",
        "tests/property/test_rewrite.py::test_a_digest_adds_up_in_any_order_and_misses_no_row",
        CHANGED,
    ),
    guard(
        "verification-that-decodes-nothing",
        "K6",
        "what is to be verified is decoded again",
        ("compaction.rewriting.outputs:Outputs._watch", "if not self._verify:", "if True:"),
        CHANGED,
    ),
    guard(
        "good-segments-rewritten",
        "K8",
        "a segment that is good enough stays (hysteresis)",
        (
            "compaction.planner.scoring:rewritten_of",
            "left = target.sums.odd(), ",
            "left = target.sums, ",
        ),
        SCORED + "test_only_small_and_large_ones_are_rewritten",
    ),
    guard(
        "rewritten-for-no-gain",
        "K8",
        "a rewrite lowers the number of segments by enough",
        (
            "compaction.planner.scoring:_rule",
            "if saved * policy.target_bytes < policy.min_gain * chosen.bytes:",
            "if False:",
        ),
        SCORED + "test_sizes_decide",
    ),
    guard(
        "rewritten-chunk-forgotten",
        "K8",
        "a chunk that a task left so is stable whatever its sizes",
        (
            "compaction.planner.scoring:score",
            "if noted and state is not None and is_current(state, sums.newest, sums.segments):",
            "if False:",
        ),
        SCORED + "test_a_note_holds_a_chunk_stable_while_it_is_as_it_was",
        FIXED,
    ),
    guard(
        "note-believed-for-ever",
        "K8",
        "a note holds while its chunk is as it was",
        (
            "compaction.planner.scoring:score",
            "is_current(state, sums.newest, sums.segments)",
            "True",
        ),
        SCORED + "test_a_note_holds_a_chunk_stable_while_it_is_as_it_was",
    ),
    guard(
        "fixed-point-not-noted",
        "K8",
        "what a rewrite would only repeat is noted as stable",
        (
            "compaction.planner.assessing:_state",
            "if not deferred and _is_fixed(verdict, ended, needed):",
            "if False:",
        ),
        FIXED,
    ),
    guard(
        "arrival-taken-for-rewritten",
        "K8",
        "what arrived after the plan is no work of the task's",
        (
            "compaction.planner.assessing:_is_fixed",
            "if any(s.id not in made for s in needed):",
            "if False:",
        ),
        PLANNED + "test_what_arrived_meanwhile_is_not_taken_for_rewritten",
    ),
    guard(
        "no-rest-after-a-failure",
        "K8",
        "a chunk whose task failed rests",
        (
            "compaction.planner.planning:_sorted_out",
            "if now_ms < until <= now_ms + 1000 * policy.max_backoff_s:",
            "if False:",
        ),
        RESTS,
    ),
    guard(
        "rest-that-does-not-grow",
        "K8",
        "it rests longer after every further failure",
        (
            "compaction.policy:Policy.backoff_ms",
            "self.backoff_s << min(failures - 1, 40)",
            "self.backoff_s",
        ),
        SCORED + "test_backoff_doubles_up_to_its_limit",
        RESTS,
    ),
    guard(
        "failures-not-counted",
        "K8",
        "failures in a row are counted",
        (
            "compaction.planner.assessing:_state",
            "failures = (old.failures if old is not None else 0) + 1",
            "failures = 1",
        ),
        RESTS,
    ),
    guard(
        "old-chunks-wait-for-ever",
        "K8",
        "a chunk gains on the others as it ages",
        (
            "compaction.planner.scoring:aged",
            "return priority + (1.0 - priority) * share",
            "return priority",
        ),
        SCORED + "test_age_leads_to_the_front",
        PLANNED + "test_no_stream_of_urgent_chunks_keeps_an_old_one_waiting",
    ),
    guard(
        "notes-left-out-taken-for-stable",
        "K8",
        "what the log has no room for is not called stable",
        (
            "compaction.planner.assessing:noted",
            "_foremost(states, after), 0",
            "_foremost(states, after), version",
        ),
        PLANNED + "test_states_that_do_not_fit_are_not_taken_for_stable",
    ),
    guard(
        "queue-without-bound",
        "K8",
        "the queue is bounded: the least urgent are shed",
        (
            "compaction.planner.queueing:Queue._shed",
            "if len(self._waiting) <= self._policy.max_queue:",
            "if True:",
        ),
        QUEUED + "test_above_its_length_the_lowest_priorities_are_shed",
    ),
    guard(
        "black-beside-red",
        "K1",
        "tasks of the same segments run one after another",
        (
            "compaction.planner.queueing:Queue._is_ready",
            "not any(name in self._waiting or name in self._running for name in task.after)",
            "True",
        ),
        QUEUED + "test_black_tasks_wait_for_all_that_they_name",
    ),
    guard(
        "black-as-it-was-planned",
        "K1",
        "a task that waited looks up its inputs again",
        (
            "compaction.runner:_Run._launch",
            "renewed(self._t, task, self._policy) if task.after else task",
            "task",
        ),
        GUARDS + "test_k1_what_waited_for_others_takes_in_what_they_made",
    ),
)
