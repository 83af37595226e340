"""The check of a whole table: every commit and key frame is compared with the fold of the log.

Imports the packages below, including `recovery` and `table`. Start at `check`; `log_walk` reads the
log, `audit` compares, `keyframe_check` looks at key frames, `objects` at the objects beside the
log, `contents` reads segments, `repair` writes missing key frames.
"""
