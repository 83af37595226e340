"""Mutants of claims as leases, of replacements, of changes of granularity and of analyses."""

from mutants.swap import Edit, Mutant

FOLD = "tests/unit/test_fold.py::"
CLAIMS = "tests/unit/test_claims.py::"
LEASES = "tests/unit/test_leases.py::"
ASSESSMENT = "tests/unit/test_assessment.py::"
REWRITES = "tests/property/test_replace.py::test_rewrites_in_any_order_keep_every_row_once"
BALANCE = FOLD + "test_k6_k7_a_replacement_holds_the_rows_that_it_was_planned_on"
LATE = FOLD + "test_k7_what_arrives_after_the_plan_stays"
ONCE = FOLD + "test_k6_a_replacement_drops_something_and_says_once_that_it_is_one"
WORKED = LEASES + "test_a_claim_is_taken_worked_under_and_given_up"
REVOKED = LEASES + "test_k2_a_challenger_of_greater_priority_revokes_and_the_loser_has_no_effect"
VOID = ASSESSMENT + "test_what_is_not_taken_changes_nothing"

REPLACE = "eventlog.rules:replace_problem"
BREAK = "eventlog.holding:Holding.break_claim"
CLAIM = "eventlog.holding:Holding.claim"
CHANGES = "eventlog.assessment:_changes_problem"


def guard(name, hazards, what, edit, *killers):
    return Mutant(name, hazards, what, (Edit(*edit),), killers)


REPLACEMENTS = (
    guard(
        "dropped-before-in-the-same-commit",
        "F5 K1",
        "drops see what earlier transactions of the commit dropped",
        ("eventlog.fold:_judge_drops", "live.pop(segment.id, None)", "pass"),
        FOLD + "test_k1_of_two_rewrites_of_one_segment_the_second_is_void",
    ),
    guard(
        "rows-not-counted",
        "F10 K6",
        "a rewrite that lost or doubled rows is void",
        (REPLACE, "if before != after + planned.deletes:", "if False:"),
        BALANCE,
        REWRITES,
    ),
    guard(
        "rows-lost-are-fine",
        "F10 K6",
        "a rewrite keeps every row",
        (
            REPLACE,
            "if before != after + planned.deletes:",
            "if before < after + planned.deletes:",
        ),
        BALANCE,
        REWRITES,
    ),
    guard(
        "deletes-not-counted",
        "F10 K6",
        "rows that are left out are said to be",
        (REPLACE, "if before != after + planned.deletes:", "if before != after:"),
        BALANCE,
        "tests/property/test_replace.py::test_deletes_are_rows_that_a_rewrite_says_it_leaves_out",
    ),
    guard(
        "replaces-nothing",
        "F10 K6",
        "a rewrite drops something",
        (REPLACE, "if len(replaces) > 1 or not drops:", "if len(replaces) > 1:"),
        ONCE,
    ),
    guard(
        "two-plans",
        "F10 K7",
        "a rewrite has one plan",
        (REPLACE, "if len(replaces) > 1 or not drops:", "if not drops:"),
        ONCE,
    ),
    guard(
        "inputs-later-than-the-plan",
        "F10 K7",
        "a late append is not dropped with its chunk",
        (REPLACE, "if late is not None:", "if False:"),
        BALANCE,
        LATE,
    ),
    guard(
        "plan-later-than-read",
        "F10 K7",
        "a plan is of a version that was read",
        (REPLACE, "if planned.version > txn.read_version:", "if False:"),
        BALANCE,
    ),
    guard(
        "replacement-never-judged",
        "F10 K6 K7",
        "the fold judges replacements at all",
        ("eventlog.fold:_judge_one", "rules.replace_problem(txn, drops, added)", "None"),
        BALANCE,
        REWRITES,
    ),
    guard(
        "released-claim-stands",
        "F8 K2",
        "a released claim covers nothing any more",
        (
            "eventlog.claims:release",
            "{i: c for i, c in meta.claims.items() if i != action.id}",
            "dict(meta.claims)",
        ),
        CLAIMS + "test_a_replace_under_a_claim_needs_the_claim_of_that_token",
        WORKED,
    ),
    guard(
        "revoked-claim-stands",
        "K2",
        "a claim of greater priority revokes what is in its way",
        (
            "eventlog.claims:take",
            "if i not in blocking}",
            "}",
        ),
        CLAIMS + "test_a_greater_priority_revokes",
        REVOKED,
    ),
    guard(
        "claim-renewed-by-another-token",
        "F8 K2",
        "only the claim of that token is renewed",
        (
            "eventlog.claims:renew",
            "claim = held(meta, Token(action.id, action.token))",
            "claim = meta.claims.get(action.id, '')",
        ),
        CLAIMS + "test_a_renewal_or_release_is_of_the_claim_of_that_token",
    ),
    guard(
        "claim-released-by-another-token",
        "F8 K2",
        "only the claim of that token is released",
        (
            "eventlog.claims:release",
            "claim = held(meta, Token(action.id, action.token))",
            "claim = meta.claims.get(action.id, '')",
        ),
        CLAIMS + "test_a_renewal_or_release_is_of_the_claim_of_that_token",
    ),
    guard(
        "group-asked-again-gets-a-new-claim",
        "K2 I4",
        "one work that asks again keeps its claim",
        ("eventlog.claims:take", "if found(meta.claims, action) is not None:", "if False:"),
        CLAIMS + "test_the_same_group_asking_again_keeps_what_it_has",
    ),
    guard(
        "another-work-taken-for-the-same",
        "K2",
        "one work that asks again is the same group, range, segments and kind",
        (
            "eventlog.claims:found",
            "same = (claim.group, claim.start, claim.end, claim.segments, claim.kind)",
            "same = (wanted.group, claim.start, claim.end, claim.segments, claim.kind)",
        ),
        LEASES + "test_one_work_asking_again_has_the_claim_that_it_has",
    ),
    guard(
        "two-shared-and-one-not",
        "K2",
        "an exclusive claim stands with no shared one",
        (
            "eventlog.claims:conflicts",
            'if a.kind == b.kind == "shared":',
            'if "shared" in (a.kind, b.kind):',
        ),
        CLAIMS + "test_which_claims_conflict",
    ),
    guard(
        "work-without-its-token",
        "F8 K2",
        "what is done under a lease carries its token",
        ("eventlog.table:Table.transaction", "claim=claim,", "claim=None,"),
        REVOKED,
    ),
    guard(
        "lost-claim-taken-for-a-conflict",
        "K2",
        "who lost the claim is told to stop, not to try again",
        ("eventlog.rebase:refusal", "ClaimLost if lost else CommitConflict", "CommitConflict"),
        REVOKED,
    ),
    guard(
        "silence-not-waited-for",
        "K3",
        "a claim is watched as long as was asked",
        (BREAK, "while waited < silent_s:", "while False:"),
        LEASES + "test_k3_a_silent_holder_is_waited_for_and_then_broken",
        LEASES + "test_k3_no_clock_ends_the_claim_of_a_holder_that_renews",
    ),
    guard(
        "renewal-not-seen-while-watching",
        "K3",
        "a renewal ends the watch",
        (BREAK, "if now != seen:", "if now is None:"),
        LEASES + "test_k3_no_clock_ends_the_claim_of_a_holder_that_renews",
    ),
    guard(
        "break-names-the-latest-renewal",
        "K3",
        "a break names the renewal that the watch began with",
        (
            BREAK,
            "seen.token, seen.renewed)",
            "seen.token, self.refresh().meta.claims[claim_id].renewed)",
        ),
        LEASES + "test_k3_a_renewal_after_the_last_look_is_seen",
    ),
    guard(
        "renewal-without-a-sign",
        "K3",
        "a renewal can be seen",
        (
            "eventlog.claims:renew",
            "renewed = msgspec.structs.replace(claim, renewed=version)",
            "renewed = claim",
        ),
        LEASES + "test_a_renewal_is_seen_by_others",
        LEASES + "test_k3_no_clock_ends_the_claim_of_a_holder_that_renews",
    ),
    guard(
        "silence-of-no-time",
        "K3",
        "a holder passes for dead after its time only",
        (
            "eventlog.leases:is_silent",
            "claim, table.clock.elapsed_s()) >= SILENT_S",
            "claim, 0) >= 0",
        ),
        LEASES + "test_k3_a_silent_holder_is_broken_by_who_waited_long_between_its_calls",
    ),
    guard(
        "silence-by-own-clock",
        "K3",
        "a challenger's clock ends no claim",
        ("eventlog.leases:is_silent", "table.store.now_ms() or 0", "table.clock.now_ms()"),
        LEASES + "test_k3_no_clock_of_a_challenger_takes_a_claim_over",
    ),
    guard(
        "watch-that-misses-a-renewal",
        "K3",
        "a renewal begins the wait anew",
        ("eventlog.leases:_last_sign", "claim.token, claim.renewed", "claim.token, 0"),
        LEASES + "test_k3_a_holder_that_renews_is_not_taken_over",
    ),
    guard(
        "who-joined-releases",
        "I4 K3",
        "a second delivery that ends early leaves the first its claim",
        ("eventlog.leases:Lease.__exit__", "if self.joined:", "if False:"),
        LEASES + "test_who_joined_a_claim_does_not_end_it_for_who_took_it",
        "tests/unit/test_perform.py::"
        "test_i4_a_second_delivery_that_ends_early_leaves_the_first_its_claim",
    ),
    guard(
        "lease-forgets-to-release",
        "K3",
        "a block gives its claim up",
        ("eventlog.leases:Lease.__exit__", "self.release()", "pass"),
        WORKED,
    ),
    guard(
        "granularity-changed-unseen",
        "F9 R14.4",
        "the old granularity is compared",
        (
            "eventlog.rules:_set_granularity",
            "if meta.layout is None or now != action.old:",
            "if meta.layout is None:",
        ),
        FOLD + "test_a_granularity_is_changed_as_it_was_seen",
        LEASES + "test_granularity_is_changed_as_it_was_seen",
    ),
    guard(
        "analysis-over-another",
        "F9 K8 R14.6",
        "an analysis is compared with the one it was made on",
        ("eventlog.assessment:assess", "if action.old != meta.analysed:", "if False:"),
        VOID,
        ASSESSMENT + "test_of_two_analyses_at_once_the_second_is_void",
    ),
    guard(
        "analysis-of-the-future",
        "F9 K8 R14.6",
        "an analysis is of a version that was there",
        ("eventlog.assessment:_analysed_problem", "if analysed.version >= version:", "if False:"),
        VOID,
    ),
    guard(
        "state-of-the-future",
        "F9 K8 R14.6",
        "a state is of a version that was there",
        (
            CHANGES,
            "if change.state is not None and change.state.version >= version:",
            "if False:",
        ),
        VOID,
    ),
    guard(
        "states-without-bound",
        "F9 R14.6",
        "there are 500 states at most",
        ("eventlog.assessment:assess", "if len(chunks) > MAX_STATES:", "if False:"),
        ASSESSMENT + "test_there_are_so_many_states_at_most",
    ),
    guard(
        "state-counts-for-ever",
        "K8",
        "a state counts while its chunk is as it was",
        (
            "eventlog.assessment:is_current",
            "(state.version, state.segments) == (version, segments)",
            "state.version == version",
        ),
        ASSESSMENT + "test_a_state_counts_while_its_chunk_is_as_it_was",
    ),
)
