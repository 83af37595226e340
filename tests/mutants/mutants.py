"""The mutants: the protocol with one guard removed at a time, and the tests that fail."""

from mutants.branches import BRANCHES
from mutants.changed_rows import CHANGED_ROWS
from mutants.checked_rows import CHECKED_ROWS
from mutants.commits import COMMITS
from mutants.compactions import COMPACTIONS
from mutants.copies import COPIES
from mutants.cuts import CUTS
from mutants.engines import ENGINES
from mutants.erasures import ERASURES
from mutants.expressions import EXPRESSIONS
from mutants.frames import FRAMES
from mutants.groups import GROUPS
from mutants.iceberg_publications import ICEBERG_PUBLICATIONS
from mutants.inline import INLINE
from mutants.merges import MERGES
from mutants.moves import MOVES
from mutants.publications import PUBLICATIONS
from mutants.replacements import REPLACEMENTS
from mutants.row_changes import ROW_CHANGES
from mutants.rules import RULES
from mutants.slices import SLICES
from mutants.sweeps import SWEEPS
from mutants.vector_objects import VECTOR_OBJECTS
from mutants.vectors import VECTORS

MUTANTS = (
    *(*COMMITS, *RULES, *REPLACEMENTS, *COMPACTIONS, *FRAMES, *SLICES, *SWEEPS, *MOVES),
    *(
        *VECTORS,
        *BRANCHES,
        *COPIES,
        *CUTS,
        *MERGES,
        *EXPRESSIONS,
        *VECTOR_OBJECTS,
        *ROW_CHANGES,
        *CHANGED_ROWS,
        *CHECKED_ROWS,
        *ENGINES,
        *INLINE,
        *PUBLICATIONS,
        *ICEBERG_PUBLICATIONS,
        *GROUPS,
        *ERASURES,
    ),
)
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
assert len(BY_NAME) == len(MUTANTS)
