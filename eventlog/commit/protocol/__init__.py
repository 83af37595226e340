"""The commit protocol: one transaction takes effect in one version, exactly once.

No I/O, no clock, no threads: generators that yield `commands` and are sent what came of them
(FORMAT.md "Committing", "Combining"). `Committer` drives them against a store, a simulation against
a model of one. Over one `slot` of the log three things are done: `race` for it, `ride` along with
another writer's commit, and settle an unknown outcome. Nothing is ever deleted here. Start at
`carry`.
"""
