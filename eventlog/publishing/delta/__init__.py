"""Versions as a Delta log: `_delta_log/` beside the table's own log (docs/decisions/0040).

Delta's version N is version N of the table. Without I/O: `translation` makes actions of versions,
`written_names` decides which columns can be described, and `delta_plan` what is put. The others
read and write: `delta_listing` lists, `delta_versions` reads what a description needs, `publisher`
and `checkpoint_publisher` put, `delta_removal` deletes, and `publication_check` compares. Start at
`publisher`.
"""
