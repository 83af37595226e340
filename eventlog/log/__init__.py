"""Reading the log: the head, any version, snapshots, differences, history, with caches.

    Log.session.head(), Log.snapshot(version)  ──►  Snapshot: one version, as callers see it
    Log.answer(state, question)        ──►  the answer to a question of `state`, from fetched leaves
    Log.load_view(head, transactions)  ──►  what the fold needs to judge transactions

`chain` compares commits that follow each other. `keyframes` and `spills` read the objects that
commits name, `starts` finds the versions that a copy lacks, and `staged_segments` the objects that
adds name. `history` and `diff` list and compare versions.

Imports `state` and below, and writes nothing. Start at `log`, then read `snapshot`.
"""
