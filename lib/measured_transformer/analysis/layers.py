"""What changes from layer to layer: where it looks, how evenly, and what it adds.

Layers are counted from 1, and stand as shares of the depth: of L blocks, block l reaches from (l - 1) / L to
l / L and has its middle at (l - 1/2) / L. All statistics of attention are those of a causal model and leave out
the first position, which has no choice. Patterns are (..., query, key), each row of weights summing to one
over the keys up to the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from measured_transformer.analysis.ablation import Component, effects
from measured_transformer.analysis.ablation import loss as mean_loss
from measured_transformer.internals.capture import capture
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.task import Batch
from measured_transformer.training.losses import cross_entropy

Pattern = Float[Tensor, "*batch query key"]
# Where a layer looks ------------------------------------------------------------------------------


def mean_distance(pattern: Pattern) -> float:
    r"""Mean over all rows but the first of $\sum_k A_{qk} (q - k)$: how many positions back a query looks.

    Even attention has q / 2 in row q, and so a quarter of the length over all of them.

    >>> round(mean_distance(torch.ones(4, 4).tril() / torch.arange(1, 5)[:, None]), 6)
    1.0
    """
    place = torch.arange(pattern.shape[-1])
    back = place[:, None] - place
    return float((pattern.double() * back).sum(-1)[..., 1:].mean())


def previous_mass(pattern: Pattern) -> float:
    """Mean weight on the token just before, over all rows but the first.

    >>> round(previous_mass(torch.ones(4, 4).tril() / torch.arange(1, 5)[:, None]), 6)
    0.361111
    """
    return float(pattern.diagonal(-1, dim1=-2, dim2=-1).double().mean())


def relative_entropy(pattern: Pattern) -> float:
    """Mean entropy of a row over the largest it can have, the logarithm of its number of keys.

    1 for even attention, 0 for a single key. The first row is left out.
    """
    seen = torch.arange(1, pattern.shape[-1] + 1, dtype=torch.float64)
    nats = torch.special.entr(pattern.double()).sum(-1)
    return float((nats[..., 1:] / seen[1:].log()).mean())


def gini(pattern: Pattern) -> float:
    r"""Mean Gini coefficient of a row's weights over the keys that it may see; not the first row.

    With m weights in rising order, $\frac{1}{m - 1} \sum_j (2 j - m - 1) a_{(j)}$: 0 for even attention, 1 for
    a single key, whatever m (the usual coefficient, times m / (m - 1), which a row of few keys needs).
    """
    n = pattern.shape[-1]
    rising = (
        pattern.double().sort(dim=-1).values
    )  # what a row may not see are zeros, and come first
    seen = torch.arange(1, n + 1, dtype=torch.float64)[:, None]
    rank = torch.arange(1, n + 1) - (n - seen)  # among the keys that are seen
    weight = torch.where(rank > 0, 2 * rank - seen - 1, 0.0)
    rows = (weight * rising).sum(-1)[..., 1:] / (seen[1:, 0] - 1)
    return float(rows.mean())


def row_statistics(weights: Sequence[float]) -> dict[str, float]:
    """Distance, entropy and Gini coefficient of a single row: of the last position's weights on all positions.

    >>> row_statistics([0.0, 0.5, 0.0, 0.5])
    {'distance': 1.0, 'entropy': 0.5, 'gini': 0.666667}
    """
    n = len(weights)
    pattern = torch.zeros(n, n, dtype=torch.float64)
    pattern[1:, 0] = 1.0  # single keys, so that only the last row has any entropy
    pattern[-1] = torch.tensor(list(weights))
    others = n - 2  # rows but the first and the last
    return {
        "distance": round(mean_distance(pattern) * (n - 1) - sum(range(1, n - 1)), 6),
        "entropy": round(relative_entropy(pattern) * (n - 1), 6),
        "gini": round(gini(pattern) * (n - 1) - others, 6),
    }


STATISTICS = {
    "distance": mean_distance,
    "adjacent": previous_mass,
    "entropy": relative_entropy,
    "gini": gini,
}
"""The statistics of `attention_by_layer`, by name."""


def attention_by_layer(model: Decoder, batch: Batch) -> dict[str, Float[ndarray, "layer"]]:
    """Each of `STATISTICS` for each layer: means over heads, sequences and all positions but the first."""
    patterns = patterns_of(model, batch)
    return {name: np.array([of(p) for p in patterns]) for name, of in STATISTICS.items()}


@torch.no_grad()
def patterns_of(model: Decoder, batch: Batch) -> list[Float[Tensor, "batch head query key"]]:
    """The patterns of all layers, from the first to the last."""
    with capture(model, "blocks.*.attention.pattern") as seen:
        model(batch.inputs)
    return [seen[f"blocks.{i}.attention.pattern"] for i in range(model.config.n_layers)]


def locality(patterns: list[Float[Tensor, "batch head query key"]]) -> Float[Tensor, "offset"]:
    """How much weight falls on each offset, mean over all layers, heads, sequences and rows that have it.

    The row of the first position is left out. Sums to one or more: short rows know only small offsets.
    """
    stacked = torch.stack([p.double().mean((0, 1)) for p in patterns]).mean(0)[1:]
    n = stacked.shape[-1]
    rows = torch.arange(1, n)
    back = rows[:, None] - torch.arange(n)
    total = torch.zeros(n, dtype=torch.float64)
    total.index_add_(0, back[back >= 0], stacked[back >= 0])
    return total / torch.bincount(back[back >= 0], minlength=n)


def random_attention(
    profile: Float[Tensor, "offset"], shape: tuple[int, ...], generator: torch.Generator
) -> Float[Tensor, "*batch query key"]:
    """Patterns that attend at random with a given locality, and with no regard to layer or token.

    Each row picks one key. A key at offset o is picked with a chance in proportion to `profile[o]`, among the
    keys that the row may see; a row that sees no offset of the profile picks any key.

    Args:
        profile: weight of each offset, such as that of `locality`.
        shape: of the axes before query and key.
        generator: of the picks.
    """
    n = len(profile)
    place = torch.arange(n)
    back = place[:, None] - place
    chance = torch.where(back >= 0, profile[back.clamp_min(0)], 0.0)
    chance[chance.sum(-1) == 0] = (back >= 0).to(chance)[chance.sum(-1) == 0]
    count = int(np.prod(shape))
    picks = torch.multinomial(chance, count, replacement=True, generator=generator)
    one = torch.nn.functional.one_hot(picks.T, n).double()
    return one.reshape(*shape, n, n)


def null_distances(
    patterns: list[Float[Tensor, "batch head query key"]], generator: torch.Generator
) -> Float[ndarray, "layer"]:
    """The mean distances of a model of the same locality whose layers have no order, by one draw.

    Every head of every layer attends at random by the locality of all layers together.

    Args:
        patterns: of the model that is copied, layer by layer.
        generator: of the picks.
    """
    profile, shape = locality(patterns), tuple(patterns[0].shape[:2])
    found = [mean_distance(random_attention(profile, shape, generator)) for _ in patterns]
    return np.array(found)


# From layer to layer ------------------------------------------------------------------------------


def slope(values: Float[ndarray, "layer"]) -> float:
    """By how much a statistic grows from one layer to the next: the slope of the line of least squares.

    >>> slope(np.array([1.0, 3.0, 5.0]))
    2.0
    """
    place = np.arange(len(values)) - (len(values) - 1) / 2
    return float(place @ np.asarray(values, dtype=float) / (place @ place))


def thirds(values: Float[ndarray, "layer"]) -> tuple[float, float, float]:
    """The means of the first, the middle and the last third of the layers.

    Raises:
        ValueError: when the number of layers cannot be divided by three.

    >>> thirds(np.array([1.0, 3.0, 5.0, 5.0, 0.0, 2.0]))
    (2.0, 5.0, 1.0)
    """
    if len(values) % 3:
        raise ValueError(f"thirds need a number of layers that three divides, got {len(values)}")
    first, middle, last = np.asarray(values, dtype=float).reshape(3, -1).mean(1).tolist()
    return first, middle, last


def gains(scores: Float[ndarray, "state"]) -> Float[ndarray, "layer"]:
    """What each block adds to the best score so far; nothing where a score falls or comes back.

    Args:
        scores: of the embedding and after each block.

    >>> gains(np.array([0.0, 0.5, 0.25, 0.5, 1.0])).tolist()
    [0.5, 0.0, 0.0, 0.5]
    """
    return np.diff(np.maximum.accumulate(scores))


def centre_of_gravity(scores: Float[ndarray, "state"]) -> float:
    r"""Where in the depth a score is gained: $\sum_l g_l (l - 1/2) / L$ over $\sum_l g_l$ with the `gains` g.

    After the centre of gravity of Tenney et al. (2019), which takes scores of probes that see all layers up to
    one; here each probe sees one depth.

    Args:
        scores: of the embedding and after each block.

    Raises:
        ValueError: when no block gains anything.

    >>> centre_of_gravity(np.array([0.0, 0.0, 0.5, 0.5, 1.0]))  # halves by blocks 2 and 4 of 4
    0.625
    """
    gained = gains(scores)
    if not gained.sum() > 0:
        raise ValueError("there is no centre: no block gains anything")
    return float(gained @ (np.arange(len(gained)) + 0.5) / len(gained) / gained.sum())


# What a layer adds --------------------------------------------------------------------------------


@torch.no_grad()
def states_by_depth(model: Decoder, batch: Batch) -> Float[Tensor, "state batch position d_model"]:
    """The residual stream as embedded, and after each block."""
    names = [f"blocks.{i}.residual_post" for i in range(model.config.n_layers)]
    with capture(model, "embedding", *names) as seen:
        model(batch.inputs)
    return torch.stack([seen[name] for name in ("embedding", *names)])


def rise_without(model: Decoder, batch: Batch, reference: Batch) -> Float[ndarray, "layer"]:
    """By how many nats the loss rises when all that a layer writes is replaced by its mean.

    What attention and feed-forward network write is replaced, position by position, by its mean over the
    sequences of `reference`, taken from the whole model; one layer at a time.

    Args:
        model: trained.
        batch: what the loss is measured on.
        reference: other sequences of the same length.
    """
    writes = [
        [Component(f"blocks.{i}.attention.out"), Component(f"blocks.{i}.feedforward.out")]
        for i in range(model.config.n_layers)
    ]
    return effects(model, writes, batch, reference=reference, metric=mean_loss)


@dataclass(frozen=True)
class Lens:
    """What the final norm and the unembedding read from the stream at each depth.

    Attributes:
        agreement: share of positions at which the most likely next word is the one that the whole model names.
        kinds: the same for the most likely kind of word.
        loss: cross-entropy of what is read, in nats per scored position.
    """

    agreement: Float[ndarray, "state"]
    kinds: Float[ndarray, "state"]
    loss: Float[ndarray, "state"]


@torch.no_grad()
def lens(model: Decoder, batch: Batch, kind: Int[Tensor, "vocab"]) -> Lens:
    """Read predictions early: from the stream as embedded, and after each block (the last is the model's own).

    Known as the logit lens (nostalgebraist, 2020).

    Args:
        model: whose stream is read.
        batch: of its task.
        kind: number of each word's kind, such as `word_kinds`; a kind is as likely as its words together.
    """
    read = [model.unembed(state) for state in states_by_depth(model, batch)]
    of_kind = torch.nn.functional.one_hot(kind).to(read[0])
    named = [(each.argmax(-1), (each.softmax(-1) @ of_kind).argmax(-1)) for each in read]
    agreement, kinds = (
        np.array([float((each[i] == named[-1][i]).double().mean()) for each in named])
        for i in (0, 1)
    )
    losses = [float(cross_entropy(each, batch.targets, batch.scored)) for each in read]
    return Lens(agreement, kinds, np.array(losses))
