"""The commit protocol: one transaction takes effect in one version, exactly once.

No I/O, no clock, no threads: generators yield `commands` and are sent the answers (FORMAT.md
"Committing", "Combining"). `Committer` drives them against a store, a simulation against a model of
one. A writer can `race` for a `slot` of the log, `ride` along with another writer's commit, and
settle an unknown outcome. Nothing is ever deleted here. Imports the room above, except `committer`.
Start at `carry`.
"""
