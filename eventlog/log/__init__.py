"""Reading the log: the head, any version, snapshots, differences, history, with caches.

Imports `state` and below, and writes nothing. Start at `log`, whose method `answer` fetches the
leaves that the questions of `state` need; then read `snapshot`, the interface that callers use.
"""
