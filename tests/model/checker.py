"""An explicit-state model checker: every state that a model can reach, breadth first.

It is independent of tables: a model has an initial state, steps, and properties of states.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Protocol


class Model(Protocol):
    """A model to check. States are hashable; `steps` depends on the state only."""

    name: str

    def initial(self) -> Hashable:
        """The initial state."""
        ...

    def steps(self, state: Hashable) -> Iterable[tuple[str, Hashable]]:
        """The possible steps: a label and the next state of each."""
        ...

    def problem(self, state: Hashable) -> str | None:
        """The violation in the state, or None."""
        ...

    def canonical(self, state: Hashable) -> Hashable:
        """The representative of all states that differ only in names."""
        ...


@dataclass
class Result:
    """The result of a search. `trace` leads from the initial state to the violation."""

    name: str
    states: int = 0
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0
    whole: bool = False  # no bound stopped the search
    problem: str | None = None
    trace: list[str] = field(default_factory=list)

    def line(self) -> str:
        """The result as one line of text."""
        whole = "all" if self.whole else "bounded" if not self.problem else "stopped"
        return (
            f"{self.name:<28} {self.states:>9,} states {self.transitions:>10,} transitions "
            f"depth {self.depth:>3} {self.seconds:>6.1f} s {whole:<8} "
            f"violations: {1 if self.problem else 0}"
        )

    def story(self) -> str:
        """The counterexample, one step per line."""
        steps = [f"{n:>3}. {label}" for n, label in enumerate(self.trace, 1)]
        return "\n".join([f"{self.name}: {self.problem}", *steps])


def explore(model: Model, *, max_states: int | None = None) -> Result:
    """Visit every reachable state, or `max_states` of them; stop at the first violation."""
    result = Result(model.name)
    started = time.perf_counter()
    first = model.canonical(model.initial())
    canonical = model.canonical
    parents: dict[Hashable, Hashable] = {first: None}
    layer = [first]
    wrong = model.problem(first)
    last = first
    while layer and wrong is None and not _full(parents, max_states):
        following = []
        for state in layer:
            for _, after in model.steps(state):
                result.transitions += 1
                found = canonical(after)
                if found in parents:
                    continue
                parents[found] = state
                wrong = model.problem(found)
                if wrong is not None:
                    last = found
                    break
                following.append(found)
            if wrong is not None or _full(parents, max_states):
                break
        layer = following
        result.depth += bool(layer) or wrong is not None
    result.states = len(parents)
    result.seconds = time.perf_counter() - started
    result.whole = wrong is None and not layer
    if wrong is not None:
        result.problem = wrong
        result.trace = _trace(model, parents, last)
    return result


def _full(parents: dict, max_states: int | None) -> bool:
    return max_states is not None and len(parents) >= max_states


def _trace(model: Model, parents: dict, last: Hashable) -> list[str]:
    """The labels of the steps that led to `last`, replayed with the original names."""
    targets = [last]
    while parents[targets[-1]] is not None:
        targets.append(parents[targets[-1]])
    labels, state = [], model.initial()
    for target in targets[-2::-1]:
        following = ((label, s) for label, s in model.steps(state) if model.canonical(s) == target)
        label, state = next(following)
        labels.append(label)
    return labels
