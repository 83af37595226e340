"""Mutants of committing: slots, chains, retries, combining, late writers."""

from mutants.swap import Edit, Mutant

FAULTS = "tests/integration/test_commit_faults.py::"
COMBINING = "tests/integration/test_combining.py::"
PUBLISH = "tests/unit/test_publish.py::"
RESTAGE = "tests/integration/test_restage.py::"
S3 = "tests/unit/test_s3_faults.py::"
GUARDS = "tests/mutants/test_guards.py::"

COMMITS = (
    Mutant(
        "refused-publication-taken-for-sent",
        "C3",
        "what may have been sent before it was refused is not taken for refused",
        (Edit("eventlog.publish:Intents.publish", "if unclear:", "if False:"),),
        (PUBLISH + "test_who_may_have_published_before_it_was_denied_does_not_know",),
    ),
    Mutant(
        "own-commit-taken-for-anothers",
        "C1",
        "a refused slot is read back for the own transaction",
        (
            Edit(
                "eventlog.slot:_try_slot",
                "return None if body == proposal.body else Stored(commit, body)",
                "return Stored(commit, body)",
            ),
            Edit(
                "eventlog.commit:Committer._try_slot",
                "listed = any(t.id == transaction.id for t in stored.commit.transactions)",
                "listed = False",
            ),
        ),
        (FAULTS + "test_c1_applied_then_412_on_the_retry",),
    ),
    Mutant(
        "unknown-taken-for-failure",
        "C1 C2",
        "an unclear answer stays unclear when the tries are spent",
        (
            Edit(
                "eventlog.slot:_try_slot",
                "        why = error.message\n",
                "        raise Unavailable(error.message) from None\n",
            ),
        ),
        (FAULTS + "test_c2_find_transaction_answers_after_unknown",),
    ),
    Mutant(
        "unknown-taken-for-success",
        "C1",
        "an unclear answer is no acknowledgement",
        (
            Edit(
                "eventlog.slot:_try_slot", "        why = error.message\n", "        return None\n"
            ),
        ),
        (FAULTS + "test_c2_find_transaction_answers_after_unknown",),
    ),
    Mutant(
        "another-slot-while-unclear",
        "C2",
        "the slot of an earlier call is settled before another is tried",
        (
            Edit(
                "eventlog.commit:Committer._carry",
                "        if transaction.id in self._unsettled:\n            found",
                "        if False:\n            found",
            ),
        ),
        (
            FAULTS + "test_c2_put_lands_while_a_refreshed_handle_tries_again",
            FAULTS + "test_c2_same_transaction_after_unknown_while_its_put_lands",
        ),
    ),
    Mutant(
        "sent-and-forgotten",
        "C1 C2",
        "what was sent is unknown also where a later read fails",
        (
            Edit(
                "eventlog.commit:Committer.commit",
                "if transaction.id not in self._unsettled:",
                "if True:",
            ),
        ),
        (COMBINING + "test_an_open_append_is_never_called_not_committed",),
    ),
    Mutant(
        "new-id-on-retry",
        "C8",
        "a transaction keeps its id through every race it loses",
        (
            Edit(
                "eventlog.commit:Committer._carry",
                "step = self._attempt(transaction, head, others)",
                'new = __import__("msgspec").structs.replace(transaction, id=self._clock.token())\n'
                "        step = self._attempt(new, head, others)",
            ),
        ),
        (FAULTS + "test_c8_a_lost_race_keeps_the_transaction_id",),
    ),
    Mutant(
        "conflict-read-as-exists",
        "C3",
        "409 says nothing of the slot",
        (Edit("eventlog.s3:S3Store._put_once", "if status == 412:", "if status in (409, 412):"),),
        (S3 + "TestConditionalPut::test_409_is_sent_again_with_the_same_bytes",),
    ),
    Mutant(
        "put-without-condition",
        "C2 C6",
        "every put to S3 is conditional",
        (
            Edit(
                "eventlog.s3:S3Store._put_once",
                '{"Key": name, "Body": content, "IfNoneMatch": "*"}',
                '{"Key": name, "Body": content}',
            ),
        ),
        ("tests/contract/test_store.py::test_second_put_is_refused_and_changes_nothing",),
    ),
    Mutant(
        "local-put-overwrites",
        "C2 C6",
        "a local put gives way to what is there",
        (
            Edit(
                "eventlog.local:LocalStore.put_if_absent",
                "created = self._link(temporary, path, key)",
                "self.delete([key])\n        created = self._link(temporary, path, key)",
            ),
        ),
        ("tests/contract/test_store.py::test_second_put_is_refused_and_changes_nothing",),
    ),
    Mutant(
        "chain-not-checked",
        "C5 C6",
        "the next commit names the hash of the one known",
        (
            Edit(
                "eventlog.chain:check_follows",
                "commit.header.prev != known.commit_hash or ",
                "",
            ),
        ),
        (
            FAULTS + "test_c5_wrong_prev_is_corrupt",
            FAULTS + "test_c6_foreign_overwrite_is_seen_by_a_warm_handle",
        ),
    ),
    Mutant(
        "chain-not-folded",
        "C5 C6",
        "the fold checks the chain",
        (Edit("eventlog.fold:check_follows", "if header.prev != state.commit_hash:", "if False:"),),
        ("tests/unit/test_fold.py::test_a_commit_that_does_not_follow_is_corrupt",),
    ),
    Mutant(
        "gap-not-checked",
        "C5",
        "a head listing with a gap is corrupt",
        (Edit("eventlog.chain:check_contiguous", "if newer - older != 1:", "if False:"),),
        (FAULTS + "test_c5_gap_is_corrupt_on_open_and_never_served",),
    ),
    Mutant(
        "version-not-compared",
        "C5",
        "a commit says the version of its key",
        (
            Edit(
                "eventlog.wellformed:check_header",
                "if version is not None and header.version != version:",
                "if False:",
            ),
        ),
        (FAULTS + "test_c5_version_in_the_body_must_be_that_of_the_key",),
    ),
    Mutant(
        "failing-writer-deletes",
        "C7",
        "a writer that fails leaves what it staged",
        (
            Edit(
                "eventlog.table:Table.commit",
                "self.refresh()  # so",
                "self.store.delete([f'data/{a.epoch:012d}/{a.chunk}/{a.id}.parquet' "
                "for a in transaction.actions if hasattr(a, 'checksum')])\n"
                "        self.refresh()  # so",
            ),
        ),
        (FAULTS + "test_c7_a_failing_writer_deletes_nothing",),
    ),
    Mutant(
        "session-goes-backwards",
        "R3",
        "a stale listing does not take a handle back",
        (
            Edit(
                "eventlog.log:Log.newer",
                "if head > commit.header.version:",
                "if head != commit.header.version:",
            ),
        ),
        (FAULTS + "test_r3_a_stale_list_never_takes_a_handle_backwards",),
    ),
    Mutant(
        "overtaken-refresh-wins",
        "R3",
        "of two threads the one that saw less has not the last word",
        (
            Edit(
                "eventlog.table:Table._advance",
                "if self._head is None or newest.version >= self._head.version:",
                "if True:",
            ),
        ),
        (FAULTS + "test_r3_a_refresh_that_was_overtaken_does_not_take_the_handle_back",),
    ),
    Mutant(
        "attempts-share-keys",
        "I1",
        "every attempt stages under fresh ids",
        (
            Edit(
                "eventlog.encoding:make_add",
                "id=clock.token(),",
                "id=codec.sha256(encoded.body)[:32],",
            ),
        ),
        (FAULTS + "test_i1_every_attempt_stages_under_keys_of_its_own",),
    ),
    Mutant(
        "done-work-not-found",
        "I3 I4",
        "a unit of work that is in the state is done",
        (
            Edit(
                "eventlog.rebase:rebase",
                "if mark is not None and mark.seq >= app.seq:",
                "if False:",
            ),
        ),
        (FAULTS + "test_i4_concurrent_deliveries_of_one_event_take_effect_once",),
    ),
    Mutant(
        "listed-taken-for-accepted",
        "C1 R11.3",
        "a published append is acknowledged when its mark is there, not when it is listed",
        (
            Edit(
                "eventlog.resolve:holds",
                "return mark is not None and mark.version == after.version",
                "return True",
            ),
        ),
        (COMBINING + "test_a_dead_one_that_a_commit_lists_is_void",),
    ),
    Mutant(
        "void-taken-for-accepted",
        "C1",
        "of a commit with void transactions the fold says which took effect",
        (Edit("eventlog.resolve:holds", "return True if whole else None", "return True"),),
        ("tests/integration/test_review.py::test_a_void_transaction_is_not_found",),
    ),
    Mutant(
        "void-ones-taken-along",
        "R11.2",
        "a leader leaves out what would be void",
        (Edit("eventlog.rebase:rebase", " if t.id in effect.accepted)", ")"),),
        (COMBINING + "test_what_cannot_take_effect_is_left_out",),
    ),
    Mutant(
        "restage-under-a-new-id",
        "C8",
        "what is staged again is committed under the same id",
        (
            Edit(
                "eventlog.restage:restaged",
                "replace(transaction, actions=actions)",
                "replace(transaction, actions=actions, id=t.clock.token())",
            ),
        ),
        (RESTAGE + "test_the_second_form_keeps_the_id_of_the_transaction",),
    ),
    Mutant(
        "restage-deletes",
        "C7",
        "who stages again deletes nothing",
        (
            Edit(
                "eventlog.restage:_copied",
                "    return fresh",
                "    t.store.delete([key])\n    return fresh",
            ),
        ),
        (RESTAGE + "test_a_fenced_append_is_staged_again_and_lands_once",),
    ),
    Mutant(
        "restage-copies-anything",
        "V1",
        "a copy has the checksum that was committed to",
        (Edit("eventlog.restage:_copied", "if codec.sha256(body) != add.checksum:", "if False:"),),
        (RESTAGE + "test_a_damaged_upload_is_not_copied",),
    ),
)
