"""The check of a whole table: every commit and key frame is compared with the fold of the log.

Imports the packages below, including `recovery` and `table`. Start at `check`; `walk` reads the
log, `audit` compares, `leftovers` counts unnamed objects, `repair` writes missing key frames.
"""
