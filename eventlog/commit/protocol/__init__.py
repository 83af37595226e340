"""The commit protocol: one transaction takes effect in one version, exactly once.

No I/O, no clock, no threads: generators yield `commands` and are sent the answers (FORMAT.md
"Committing", "Combining"). `Committer` drives them against a store, a simulation against a model of
one. A writer makes an `attempt` to `put` the next commit, or has another writer's commit include
its transaction (`combining`), and resolves unknown outcomes. Nothing is ever deleted here. Imports
the room above, except `committer`. Start at `commit`.
"""
