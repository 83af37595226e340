"""Versions as a Delta log: `_delta_log/` beside the table's own log (docs/decisions/0040).

Delta's version N is version N of the table. `delta_schema`, `statistics`, `delta_vectors`,
`delta_commits` and `checkpoints` translate and do no I/O, and `written_names` decides which columns
can be described; `publisher` lists, decides and puts, and `publication_check` compares. Start at
`delta_commits`.
"""
