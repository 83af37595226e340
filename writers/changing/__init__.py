"""Changes of rows by a predicate or a source, in tables without a key.

finding     which rows a predicate selects: segments as a whole, or positions in them
landing     commits what was found, and finds it again where other commits have moved it
deletes     deletes the rows that a predicate selects
replacing   overwrites them by other rows
updating    gives their columns new values
joining     merges rows of a source, by columns that both have
"""
