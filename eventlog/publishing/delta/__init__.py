"""Versions as a Delta log: `_delta_log/` beside the table's own log (docs/decisions/0040).

Delta's version N is version N of the table. `schema`, `statistics`, `vectors`, `commits` and
`checkpoints` translate and do no I/O; `publisher` lists, decides and puts. Start at `commits`.
"""
