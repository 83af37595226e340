"""Mutants of committing: slots, chains, retries, combining, late writers."""

from mutants.swap import always, becomes, first, instead, keep, mutant, never

COMMITS = (
    mutant(
        "refused-publication-taken-for-sent",
        "C3",
        "a transaction that may have been sent before a refusal does not count as refused",
        never,
        "test_who_may_have_published_before_it_was_denied_does_not_know",
    ),
    mutant(
        "own-commit-taken-for-anothers",
        "C1",
        "a refused slot is read back for the own transaction",
        becomes("stored"),
        "test_c1_applied_then_412_on_the_retry",
        also={"own-id-not-looked-for": never},
    ),
    mutant(
        "unknown-taken-for-failure",
        "C1 C2",
        "an unclear answer stays unclear when the tries are spent",
        instead("raise Unavailable(answer.message)"),
        "test_c2_find_transaction_answers_after_unknown",
    ),
    mutant(
        "unknown-taken-for-success",
        "C1",
        "an unclear answer is no acknowledgement",
        instead("return None"),
        "test_c2_find_transaction_answers_after_unknown",
    ),
    mutant(
        "another-slot-while-unclear",
        "C2",
        "the slot of an earlier call is resolved before another is tried",
        never,
        "test_c2_put_lands_while_a_refreshed_handle_tries_again",
        "test_c2_same_transaction_after_unknown_while_its_put_lands",
    ),
    mutant(
        "sent-and-forgotten",
        "C1 C2",
        "a sent transaction stays unknown even if a later read fails",
        always,
        "test_an_open_append_is_never_called_not_committed",
    ),
    mutant(
        "interrupted-and-forgotten",
        "C1 C2",
        "what was committed is remembered until the handle has an answer",
        first("memory.unsettled.pop(transaction.id, None)"),
        "test_an_interrupt_after_the_commit_leaves_its_transaction_to_be_settled",
    ),
    mutant(
        "new-id-on-retry",
        "C8",
        "a transaction keeps its id through every race it loses",
        instead(
            "new = type(transaction)(**{f: getattr(transaction, f)"
            " for f in transaction.__struct_fields__ if f != 'id'}, id='f' * 32)\n"
            "step = yield from race(memory, new, head, others)"
        ),
        "test_c8_a_lost_race_keeps_the_transaction_id",
    ),
    mutant(
        "conflict-read-as-exists",
        "C3",
        "a 409 does not decide the slot",
        becomes("status in (409, 412)"),
        "TestConditionalPut::test_409_is_sent_again_with_the_same_bytes",
    ),
    mutant(
        "put-without-condition",
        "C2 C6",
        "every put to S3 is conditional",
        becomes("self._send(client, 'put_object', {'Key': name, 'Body': content})"),
        "test_second_put_is_refused_and_changes_nothing",
    ),
    mutant(
        "local-put-overwrites",
        "C2 C6",
        "a local put does not overwrite an existing object",
        first("self.delete([key])"),
        "test_second_put_is_refused_and_changes_nothing",
    ),
    mutant(
        "chain-not-checked",
        "C5 C6",
        "the next commit names the hash of the one known",
        keep(1),
        "test_c5_wrong_prev_is_corrupt",
        "test_c6_foreign_overwrite_is_seen_by_a_warm_handle",
    ),
    mutant(
        "chain-not-folded",
        "C5 C6",
        "the fold checks the chain",
        never,
        "test_a_commit_that_does_not_follow_is_corrupt",
    ),
    mutant(
        "gap-not-checked",
        "C5",
        "a head listing with a gap is corrupt",
        never,
        "test_c5_gap_is_corrupt_on_open_and_never_served",
    ),
    mutant(
        "version-not-compared",
        "C5",
        "a commit has the version of its key",
        never,
        "test_c5_version_in_the_body_must_be_that_of_the_key",
    ),
    mutant(
        "failing-writer-deletes",
        "C7",
        "a failing writer keeps the objects that it staged",
        first(
            "self.store.delete([f'data/{a.epoch:012d}/{a.chunk}/{a.id}.parquet'"
            " for a in transaction.actions if hasattr(a, 'checksum')])"
        ),
        "test_c7_a_failing_writer_deletes_nothing",
    ),
    mutant(
        "session-goes-backwards",
        "R3",
        "a stale listing does not take a handle back",
        becomes("head != commit.header.version"),
        "test_r3_a_stale_list_never_takes_a_handle_backwards",
    ),
    mutant(
        "overtaken-refresh-wins",
        "R3",
        "of two threads the one with the older head does not win",
        always,
        "test_r3_a_refresh_that_was_overtaken_does_not_take_the_handle_back",
    ),
    mutant(
        "attempts-share-keys",
        "I1",
        "every attempt stages under fresh ids",
        becomes("codec.sha256(encoded.body)[:32]"),
        "test_i1_every_attempt_stages_under_keys_of_its_own",
    ),
    mutant(
        "done-work-not-found",
        "I3 I4",
        "a unit of work that is in the state is done",
        never,
        "test_i4_concurrent_deliveries_of_one_event_take_effect_once",
    ),
    mutant(
        "listed-taken-for-accepted",
        "C1 R11.3",
        "a published append is acknowledged when its mark is there, not when it is listed",
        always,
        "test_a_dead_one_that_a_commit_lists_is_void",
    ),
    mutant(
        "void-taken-for-accepted",
        "C1",
        "the fold decides which transactions of a commit are void",
        always,
        "test_a_void_transaction_is_not_found",
    ),
    mutant(
        "void-ones-taken-along",
        "R11.2",
        "a leader leaves out transactions that would be void",
        becomes("(t for t in (transaction, *candidates.values()))"),
        "test_what_cannot_take_effect_is_left_out",
    ),
    mutant(
        "restage-under-a-new-id",
        "C8",
        "rows that are staged again are committed under the same id",
        becomes("msgspec.structs.replace(transaction, actions=actions, id=t.clock.token())"),
        "test_the_second_form_keeps_the_id_of_the_transaction",
    ),
    mutant(
        "restage-deletes",
        "C7",
        "staging again deletes nothing",
        first("t.store.delete([key])"),
        "test_a_fenced_append_is_staged_again_and_lands_once",
    ),
    mutant(
        "restage-copies-anything",
        "V1",
        "a copy has the checksum of the add",
        never,
        "test_a_damaged_upload_is_not_copied",
    ),
)
