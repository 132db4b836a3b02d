"""Interchange interventions: whether a part of a network holds a variable of an algorithm.

A *causal abstraction* says that a variable of some algorithm lies in certain components, at certain positions,
perhaps in a subspace of their values (`Aligned`). The test: run the network on a base, with that part taken
from the run of a source. If it holds the variable, the answer is the one that the algorithm gives on the base
with the *source's value of the variable*, and that answer is known beforehand. The share of right answers is
the interchange accuracy (`interchange_accuracy`).

Where the counterfactual answer is that of the base anyway, a part that does nothing is right as well. So the
score tells apart those pairs in which the answer has to change.

Sources: Geiger et al. (2021), "Causal Abstractions of Neural Networks"; Geiger et al. (2024), whose subspaces
are found by training: here they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from measured_transformer.analysis.ablation import Component, listed
from measured_transformer.analysis.attribution import Explained
from measured_transformer.analysis.references import part_of, seen_on
from measured_transformer.analysis.texts import takes_text
from measured_transformer.internals.at import at
from measured_transformer.internals.intervene import intervene
from measured_transformer.internals.places import Places

_ORTHONORMAL = 1e-4
"""How far the products of a subspace's directions may be from 0 and 1: float32 keeps them nearer."""


@dataclass(frozen=True)
class Aligned:
    """Where a variable is said to lie.

    Attributes:
        components: one or several, all of them together.
        positions: at which positions; all when None. Of patterns and scores they are those of the query.
        source_positions: at which positions of the source, as many; the same ones when None.
        subspace: orthonormal directions of the values, one a column, that alone are exchanged; the whole value
            when None.
    """

    components: Sequence[Component] | Component
    positions: Places | None = None
    source_positions: Places | None = None
    subspace: Float[Tensor, "width direction"] | None = None


@takes_text("base", pairs=["sources"])
@torch.no_grad()
def interchanged(
    model: Explained,
    base: Int[Tensor, "example position"],
    sources: Sequence[tuple[Aligned, Int[Tensor, "example source"]]],
) -> Float[Tensor, "example answer vocab"]:
    """The logits of a base with the variables' values of other sequences.

    Args:
        model: of an encoder-decoder one of its `interop.sides`.
        base: the tokens of the run that is changed.
        sources: variables, and for each one the tokens of the run that its value comes from: a row for each of
            the base.

    Raises:
        ValueError: when there is no variable, the parts of base and source differ in shape, or a subspace is
            not of orthonormal directions of the values.
        KeyError: when there is no such tap.

    >>> from measured_transformer.analysis.handmade import reversal_model
    >>> model, noted = reversal_model(vocab=6, length=4), Component("blocks.0.attention.mixed", 0)
    >>> base, source = torch.tensor([[3, 1, 4, 2]]), torch.tensor([[5, 5, 0, 0]])
    >>> interchanged(model, base, [(Aligned((noted,), positions=[0, -1]), source)]).argmax(-1)
    tensor([[0, 4, 1, 5]])
    """
    if not sources or not all(variable.components for variable, _ in sources):
        raise ValueError("an interchange needs at least one variable with a component, got none")
    with ExitStack() as stack:
        for variable, source in sources:
            where = variable.positions
            places = where if variable.source_positions is None else variable.source_positions
            components = listed("components", variable.components)
            seen = seen_on(model, source, components).values
            for each in components:
                part = part_of(seen[each.tap], head=each.head, positions=places)
                change = at(_exchange(part, variable.subspace), heads=each.head, positions=where)
                stack.enter_context(intervene(model, {each.tap: change}))
        return model(base)


def _exchange(source: Tensor, subspace: Tensor | None) -> Callable[[Tensor], Tensor]:
    """The change that takes a value, or its part in a subspace, from the source."""
    if subspace is not None:
        width, number = source.shape[-1], subspace.shape[-1]
        identity = torch.eye(number, dtype=subspace.dtype, device=subspace.device)
        fits = len(subspace) == width
        if not fits or not torch.allclose(subspace.T @ subspace, identity, atol=_ORTHONORMAL):
            raise ValueError(
                f"a subspace is given by orthonormal columns of height {width}, got shape "
                f"{tuple(subspace.shape)}"
                + (" with columns that are not orthonormal" if fits else "")
            )

    def change(own: Tensor) -> Tensor:
        if own.shape != source.shape:
            raise ValueError(
                "the same part must be taken from base and source, as many rows and positions; got shapes "
                f"{tuple(own.shape)} and {tuple(source.shape)}"
            )
        if subspace is None:
            return source.to(own)
        directions = subspace.to(own)
        return own + (source.to(own) - own) @ directions @ directions.T

    return change


@dataclass(frozen=True)
class InterchangeScore:
    """The answers after interchange beside those that the algorithm gives.

    Attributes:
        answers: the network's, after interchange.
        expected: the algorithm's, with the source's value of the variable.
        before: the network's on the base alone.
    """

    answers: Int[Tensor, "example"]
    expected: Int[Tensor, "example"]
    before: Int[Tensor, "example"]

    @property
    def accuracy(self) -> float:
        """The interchange accuracy: the share of examples with the expected answer."""
        return _share(self.answers == self.expected)

    @property
    def to_change(self) -> float:
        """The share of examples whose answer has to change."""
        return _share(self.expected != self.before)

    @property
    def accuracy_where_it_has_to_change(self) -> float:
        """The accuracy on those examples alone, 0 for a part that does nothing; NaN where there is none."""
        return _share((self.answers == self.expected)[self.expected != self.before])


@takes_text("base", pairs=["sources"])
def interchange_accuracy(
    model: Explained,
    base: Int[Tensor, "example position"],
    sources: Sequence[tuple[Aligned, Int[Tensor, "example source"]]],
    expected: Int[Tensor, "example"],
    *,
    position: int = -1,
) -> InterchangeScore:
    """Exchange variables, and compare the most likely answers with those of the algorithm.

    Args:
        model, base, sources: as for `interchanged`.
        expected: the algorithm's answer on each base, with its sources' values of the variables.
        position: where the answer is read.

    Raises:
        ValueError: as `interchanged`.
    """
    with torch.no_grad():
        before = model(base)[:, position].argmax(-1)
    answers = interchanged(model, base, sources)[:, position].argmax(-1)
    return InterchangeScore(answers, expected, before)


def _share(right: Tensor) -> float:
    return float(right.double().mean())
