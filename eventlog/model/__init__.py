"""The values of the format: commits, actions, segments, schema, time chunks.

    Commit ─┬─ Header         version, hash of the commit before, totals, state hash
            ├─ state          what changed in Meta, the small state
            ├─ Transaction    what one writer wants: actions such as Add, Drop, SetPin
            └─ DeltaRecord    adds and drops since the key frame
    KeyFrame                  the full state at one version: Meta, and the entries of all segments

`records` has these objects, `actions` the changes that a transaction may make, `entries` the parts
of both, such as Segment, Schema and Layout. `chunks`, `schema`, `stats` and `properties` interpret
the parts.

No I/O; imports only `errors`, `arguments` and `limits`. Start at `records`, then `actions`.
"""
