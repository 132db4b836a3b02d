"""Ablation from a reference set: its values are seen once and then stand in for a model's own.

`ablation.ablated` runs the reference for each component anew and takes its sequences in order. Here a
`Reference` keeps what passed some taps on a set of sequences, and gives three kinds of replacement, which
answer three questions:

- `zero`: what is lost when nothing is written? The model has never seen that.
- `mean`: what is lost when only that is written which is common to the set? Position by position, or over all
  positions too.
- `drawn`: what is lost when the value belongs to a wrong input (*resample ablation*)? The sequences that stand
  in are drawn with a generator that is handed in, so that the draw can be repeated. They are the same ones for
  all components, or *apart*, drawn for each tap by itself.

`replaced` puts any of them in place of some components' values, at some positions if need be.

Sources: Wang et al. (2023), mean ablation with a reference set; Chan et al. (2022), "Causal Scrubbing", whose
resampling draws for each component by itself; Zhang and Nanda (2024), on how the three differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.analysis.ablation import Component, listed
from measured_transformer.analysis.attribution import Explained
from measured_transformer.analysis.texts import takes_text
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.internals.places import Places

Replaced = Literal["zero", "mean", "resample"]
"""What stands in for a value: nothing, what is usual, or what belongs to another input."""
Values = Mapping[str, Tensor]
"""What passes taps, by their names: with one row for each sequence, or one row for all."""
_SQUARES = ("pattern", "scores")


@dataclass(frozen=True)
class Reference:
    """What passed some taps on a set of sequences.

    Attributes:
        values: by the tap's name, one row for each sequence.
    """

    values: Values

    def __len__(self) -> int:
        """The number of sequences."""
        return len(next(iter(self.values.values())))

    def zero(self) -> dict[str, Tensor]:
        """Zeros, as one row."""
        return {tap: torch.zeros_like(value[:1]) for tap, value in self.values.items()}

    def mean(self, *, over_positions: bool = False) -> dict[str, Tensor]:
        """The mean over the sequences, as one row.

        Args:
            over_positions: the mean over all positions too, so that it stands in at any of them, also in
                sequences of another length. Patterns and scores have no such mean.

        Raises:
            ValueError: when a pattern or scores are to be averaged over positions.
        """
        squares = [tap for tap in self.values if tap.endswith(_SQUARES)]
        if over_positions and squares:
            raise ValueError(
                f"{squares[0]} has one row for each query and one column for each key: a mean over positions "
                "would mix queries that see different keys; take the mean over sequences alone"
            )
        means = {tap: value.mean(0, keepdim=True) for tap, value in self.values.items()}
        if not over_positions:
            return means
        return {tap: value.mean(-2, keepdim=True) for tap, value in means.items()}

    def drawn(
        self, size: int, generator: torch.Generator, *, apart: bool = False
    ) -> dict[str, Tensor]:
        """The values of sequences that are drawn from the set, with repetition.

        Args:
            size: number of sequences to draw: of those that will be changed.
            generator: where the numbers come from.
            apart: draw for each tap by itself; otherwise one sequence gives the values of all taps.
        """
        rows = torch.randint(len(self), (size,), generator=generator)
        found = {}
        for tap, value in self.values.items():
            found[tap] = value[rows.to(value.device)]
            if apart:
                rows = torch.randint(len(self), (size,), generator=generator)
        return found


@takes_text("tokens")
@torch.no_grad()
def seen_on(
    model: Explained,
    tokens: Int[Tensor, "sequence position"],
    components: Sequence[Component] | Component,
) -> Reference:
    """Run the model on a reference set, and keep what passes these components' taps.

    Args:
        model: run once; of an encoder-decoder one of its `interop.sides`.
        tokens: the set, without padding.
        components: whose taps are kept, whole.

    Raises:
        ValueError: when there is no component or no sequence.
        KeyError: when there is no such tap.

    >>> from measured_transformer.analysis.handmade import reversal_model
    >>> head = Component("blocks.0.attention.mixed", 0)
    >>> seen = seen_on(reversal_model(vocab=3, length=2), torch.tensor([[0, 1], [2, 1]]), [head])
    >>> seen.mean()[head.tap][0, 0].float().round(decimals=1)    # the last token, and the first
    tensor([[0.0000, 1.0000, 0.0000],
            [0.5000, 0.0000, 0.5000]])
    """
    components = listed("components", components)
    if not components or not len(tokens):
        raise ValueError(
            "a reference needs at least one component and one sequence, got "
            f"{len(components)} components and {len(tokens)} sequences"
        )
    with capture(model, *{each.tap for each in components}) as seen:
        model(tokens)
    return Reference(dict(seen))


@takes_text("tokens", "reference")
def replacements(
    model: Explained,
    tokens: Int[Tensor, "example position"],
    components: Sequence[Component] | Component,
    how: Replaced,
    *,
    reference: Int[Tensor, "sequence position"] | None = None,
    generator: torch.Generator | None = None,
) -> dict[str, Tensor]:
    """What stands in for the components' values on some sequences, by the name of the way.

    Args:
        model, components: as for `seen_on`.
        tokens: the sequences that will be changed.
        how: `zero`, `mean` (position by position) or `resample` (one drawn sequence gives all values).
        reference: the set, for `mean` and `resample`.
        generator: for `resample`, where the draw comes from.

    Raises:
        ValueError: when `how` is another one, or the reference or the generator that it needs is missing; and
            as `seen_on`.
    """
    if how not in get_args(Replaced):
        raise ValueError(f"values are replaced by {', '.join(get_args(Replaced))}; got {how!r}")
    if how == "zero":
        return seen_on(model, tokens[:1], components).zero()
    if reference is None:
        raise ValueError(f"{how!r} replaces by what is seen on other sequences: give a reference")
    if how == "mean":
        return seen_on(model, reference, components).mean()
    if generator is None:
        raise ValueError("'resample' draws sequences of the reference: give a generator")
    return seen_on(model, reference, components).drawn(len(tokens), generator)


@takes_text()
@contextmanager
def replaced(
    model: Explained,
    components: Sequence[Component] | Component,
    values: Values,
    *,
    positions: Places | None = None,
) -> Iterator[None]:
    """Run the block with the components' values replaced by these.

    Args:
        model: is changed only while the block runs.
        components: which parts of the values are put in, each in the place of the same part.
        values: for each component's tap, as a `Reference` gives them or `capture` sees them.
        positions: at which positions; all when None. Of patterns and scores they are those of the query.

    Raises:
        KeyError: when a component's tap has no value here, or the model no such tap.
        ValueError: in the forward pass, when a value does not fit.

    >>> from measured_transformer.analysis.ablation import heads
    >>> from measured_transformer.analysis.handmade import reversal_model
    >>> model, tokens = reversal_model(vocab=5, length=4), torch.tensor([[3, 1, 4, 2]])
    >>> usual = seen_on(model, torch.tensor([[0, 1, 2, 3]]), heads(model)).mean()
    >>> with replaced(model, heads(model), usual, positions=0):
    ...     model(tokens).argmax(-1)
    tensor([[3, 4, 1, 3]])
    """
    components = listed("components", components)
    if missing := [each.label for each in components if each.tap not in values]:
        raise KeyError(
            f"no value is given for {missing[0]}; the taps with values are {', '.join(values)}"
        )
    with ExitStack() as stack:
        for each in components:
            value = values[each.tap]
            places = None if value.shape[-2] == 1 else positions
            part = part_of(value, head=each.head, positions=places)
            change = at(part, heads=each.head, positions=positions)
            stack.enter_context(intervene(model, {each.tap: change}))
        yield


def part_of(value: Tensor, *, head: int | None = None, positions: Places | None = None) -> Tensor:
    """The part of a value that `at` would change, with all its axes.

    Raises:
        ValueError: when the value has no heads, or a number lies outside.

    >>> part_of(torch.arange(6.0).view(1, 3, 2), positions=-1)
    tensor([[[4., 5.]]])
    """
    found: list[Tensor] = []

    def keep(part: Tensor) -> Tensor:
        found.append(part)
        return part

    at(keep, heads=head, positions=positions)(value)
    return found[0]
