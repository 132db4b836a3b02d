"""Steering: a direction that is added to what a tap passes, with its dose, its controls and its side effects.

A *steering vector* is the difference of two means: of what passes a tap on prompts with a property, and on
prompts without it (`mean_difference`). `steer` adds it while a block of code runs, times a dose. Three
questions then decide what that has shown:

- Does the effect grow with the dose, and how far? (`dose_response`)
- Would another direction of the same length do as much? `random_controls` are such directions, and
  `shuffled_controls` are differences of means too, of the same prompts divided by chance. The second kind is
  the stricter one: it lies where the states lie, as the steering vector does.
- What else changes? The loss on a reference set and the divergence from the unsteered predictions are measured
  there at each dose, for the vector and for its controls.

Sources: Turner et al. (2023), "Steering Language Models With Activation Engineering"; Rimsky et al. (2024),
"Steering Llama 2 via Contrastive Activation Addition".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn

from measured_transformer.analysis.ablation import Component, listed
from measured_transformer.analysis.attribution import Explained, Target
from measured_transformer.analysis.references import part_of, seen_on
from measured_transformer.analysis.texts import takes_text
from measured_transformer.internals.at import at
from measured_transformer.internals.intervene import intervene
from measured_transformer.internals.places import Places
from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import predict
from measured_transformer.training.losses import cross_entropy

Prompts = Int[Tensor, "_prompt _position"] | Sequence[Int[Tensor, "_position"]]
"""Prompts of one length, or of several lengths one by one."""


@dataclass(frozen=True)
class SteeringVector:
    """A direction, and what it is added to.

    Attributes:
        component: a tap, or one head's part of it.
        vector: as wide as the values there.
    """

    component: Component
    vector: Float[Tensor, "width"]

    @property
    def norm(self) -> float:
        """Its length."""
        return float(self.vector.norm())


@takes_text(rows=["towards", "away"])
def mean_difference(
    model: Explained,
    towards: Prompts,
    away: Prompts,
    component: Component,
    *,
    positions: Places | None = -1,
) -> SteeringVector:
    """The mean of what passes a tap on some prompts, minus the mean on others.

    Args:
        model: of an encoder-decoder one of its `interop.sides`.
        towards: prompts with the property.
        away: prompts without it; as many or not.
        component: a tap whose values are (batch position width), or one head's part of values (batch head
            position width).
        positions: at which positions the values are taken, and averaged for each prompt; all when None.

    Raises:
        ValueError: when a set is empty, a position lies outside, or the tap's values have heads and none is
            named.
        KeyError: when there is no such tap.

    >>> from measured_transformer.analysis.handmade import previous_token_model
    >>> model, start = previous_token_model(vocab=4, length=3), Component("embedding")
    >>> found = mean_difference(model, torch.tensor([[0, 3]]), torch.tensor([[0, 1], [0, 2]]), start)
    >>> found.vector[:4]    # towards token 3, away from tokens 1 and 2
    tensor([ 0.0000, -0.5000, -0.5000,  1.0000], dtype=torch.float64)
    """
    (component,) = listed("component", [component])
    ends = [_states(model, prompts, component, positions).mean(0) for prompts in (towards, away)]
    return SteeringVector(component, ends[0] - ends[1])


def _states(
    model: Explained, prompts: Prompts, component: Component, positions: Places | None
) -> Float[Tensor, "prompt width"]:
    """What passes the tap on each prompt, averaged over positions."""
    if not len(prompts):
        raise ValueError("a mean is taken over at least one prompt, got none")
    rows = [prompts] if isinstance(prompts, Tensor) else [prompt[None] for prompt in prompts]
    found = []
    for tokens in rows:
        value = seen_on(model, tokens, [component]).values[component.tap]
        if value.ndim == 4 and component.head is None:
            raise ValueError(
                f"the values at {component.tap} have heads: say which one, as Component(tap, head)"
            )
        part = part_of(value, head=component.head, positions=positions)
        found.append(part.flatten(1, -2).mean(1))
    return torch.cat(found)


@takes_text()
@contextmanager
def steer(
    model: nn.Module, vector: SteeringVector, dose: float, *, positions: Places | None = None
) -> Iterator[None]:
    """Run the block with a multiple of the vector added to what passes its tap.

    Doses add up where such blocks are nested. Generation is steered too: at each step the position is the last.

    Args:
        model: is changed only while the block runs.
        vector: what is added, and where.
        dose: how often it is added; 0 changes nothing, negative doses lead away.
        positions: at which positions; all when None.

    Raises:
        KeyError: when there is no such tap.
        ValueError: in the forward pass, when a position or head lies outside.

    >>> from measured_transformer.analysis.handmade import previous_token_model
    >>> model, start = previous_token_model(vocab=4, length=3), Component("embedding")
    >>> vector = mean_difference(model, torch.tensor([[0, 3]]), torch.tensor([[0, 1]]), start)
    >>> with steer(model, vector, 1.0, positions=0):    # what stood first was 1 and is 3
    ...     model(torch.tensor([[1, 2]])).argmax(-1)[:, 1]
    tensor([3])
    """

    def added(part: Tensor) -> Tensor:
        return part + dose * vector.vector.to(part)

    where = vector.component
    with intervene(model, {where.tap: at(added, heads=where.head, positions=positions)}):
        yield


def random_controls(
    vector: SteeringVector, count: int, generator: torch.Generator
) -> list[SteeringVector]:
    """Vectors of the same length in directions drawn evenly from all.

    >>> vector = SteeringVector(Component("embedding"), torch.tensor([3.0, 4.0]))
    >>> [round(each.norm, 4) for each in random_controls(vector, 2, torch.Generator().manual_seed(0))]
    [5.0, 5.0]
    """
    drawn = torch.randn(count, len(vector.vector), generator=generator, dtype=torch.float64)
    return [_as_long(each, vector) for each in drawn]


@takes_text(rows=["towards", "away"])
def shuffled_controls(
    model: Explained,
    towards: Prompts,
    away: Prompts,
    vector: SteeringVector,
    count: int,
    generator: torch.Generator,
    *,
    positions: Places | None = -1,
) -> list[SteeringVector]:
    """Differences of means of the same prompts divided by chance, each scaled to the vector's length.

    Args:
        model, towards, away, positions: as for `mean_difference`.
        vector: what it gave.
        count: number of controls.
        generator: where the divisions come from.

    Raises:
        ValueError: as `mean_difference`, or when the prompts are so alike that a division leaves no
            difference.
    """
    sets = [_states(model, prompts, vector.component, positions) for prompts in (towards, away)]
    states, first = torch.cat(sets), len(sets[0])
    found = []
    for _ in range(count):
        order = torch.randperm(len(states), generator=generator).to(states.device)
        found.append(states[order[:first]].mean(0) - states[order[first:]].mean(0))
        if not found[-1].norm() > 0:
            raise ValueError(
                "a control has no direction, because both halves of the prompts have the same mean: give "
                "more or other prompts"
            )
    return [_as_long(each, vector) for each in found]


def _as_long(drawn: Tensor, vector: SteeringVector) -> SteeringVector:
    """The direction of one vector with the length of another."""
    return replace(vector, vector=(vector.norm * drawn / drawn.norm()).to(vector.vector))


@dataclass(frozen=True)
class DoseResponse:
    """What a steering vector and its controls do at each dose.

    The vector comes first, then the controls.

    Attributes:
        doses: as given.
        target: the mean target on the prompts.
        loss: cross-entropy on the reference set, in nats per scored position.
        divergence: KL divergence of the steered predictions from the unsteered ones there, the mean taken
            under the unsteered, in nats per scored position.
        unsteered: target and loss without any vector.
    """

    doses: Float[ndarray, "dose"]
    target: Float[ndarray, "vector dose"]
    loss: Float[ndarray, "vector dose"]
    divergence: Float[ndarray, "vector dose"]
    unsteered: tuple[float, float]

    def rows(self) -> list[dict[str, float]]:
        """A row for each dose: what the vector changes, and the largest change by a control beside it.

        A control's change counts by its size, as it may go either way; NaN where there are no controls.
        """
        target, loss = self.target - self.unsteered[0], self.loss - self.unsteered[1]
        named = {"target": target, "loss": loss, "divergence": self.divergence}
        found = []
        for number, dose in enumerate(self.doses.tolist()):
            row = {"dose": dose}
            for name, change in named.items():
                controls = np.abs(change[1:, number])
                row[name] = float(change[0, number])
                row[f"{name}, controls"] = float(controls.max()) if len(controls) else np.nan
            found.append(row)
        return found


@takes_text("prompts", batches=["reference"])
@torch.no_grad()
def dose_response(
    model: Explained,
    vector: SteeringVector,
    doses: Sequence[float],
    prompts: Int[Tensor, "prompt position"],
    target: Target,
    reference: Batch,
    *,
    controls: Sequence[SteeringVector] = (),
    positions: Places | None = None,
) -> DoseResponse:
    """Steer with each dose, and measure the wanted effect and the side effects.

    Args:
        model, positions: as for `steer`.
        vector: what is tried.
        doses: at least one.
        prompts: where the target is read, and what shall be steered.
        target: read off the logits of the prompts.
        reference: sequences with answers on which nothing shall change.
        controls: other vectors, tried with the same doses.

    Raises:
        ValueError: when there is no dose; and as `steer`.
        KeyError: when there is no such tap.
    """
    if not len(doses):
        raise ValueError("expected at least one dose, got none")
    before = predict(model, reference)[reference.scored].log_softmax(-1)
    found = np.empty((3, 1 + len(controls), len(doses)))
    for i, each in enumerate((vector, *controls)):
        for j, dose in enumerate(doses):
            with steer(model, each, dose, positions=positions):
                wanted, logits = target(model(prompts)).mean(), predict(model, reference)
            found[0, i, j] = float(wanted)
            found[1, i, j] = float(cross_entropy(logits, reference.targets, reference.scored))
            steered = logits[reference.scored].log_softmax(-1)
            found[2, i, j] = float((before.exp() * (before - steered)).sum(-1).mean())
    own = float(target(model(prompts)).mean())
    loss = float(cross_entropy(predict(model, reference), reference.targets, reference.scored))
    return DoseResponse(
        np.array(doses, dtype=np.float64), found[0], found[1], found[2], (own, loss)
    )
