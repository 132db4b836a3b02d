"""Statistics by layer: where attention looks, how evenly, and at what depth a score is gained.

Layers are counted from 1, and stand as shares of the depth: of L blocks, block l reaches from (l - 1) / L to
l / L and has its middle at (l - 1/2) / L. All statistics of attention are those of a causal model and leave out
the first position, which has no choice. Patterns are (..., query, key), each row of weights summing to one
over the keys up to the query.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from measured_transformer.internals.capture import capture
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.task import Batch

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


# From layer to layer ------------------------------------------------------------------------------


def slope(values: Float[ndarray, "layer"]) -> float:
    """The growth of a statistic per layer: the slope of a least-squares line.

    >>> slope(np.array([1.0, 3.0, 5.0]))
    2.0
    """
    place = np.arange(len(values)) - (len(values) - 1) / 2
    return float(place @ np.asarray(values, dtype=float) / (place @ place))


def gains(scores: Float[ndarray, "state"]) -> Float[ndarray, "layer"]:
    """The gain of each block over the best score so far; zero when the score falls or only recovers.

    Args:
        scores: of the embedding and after each block.

    >>> gains(np.array([0.0, 0.5, 0.25, 0.5, 1.0])).tolist()
    [0.5, 0.0, 0.0, 0.5]
    """
    return np.diff(np.maximum.accumulate(scores))


def centre_of_gravity(scores: Float[ndarray, "state"]) -> float:
    r"""Mean depth at which a score is gained: $\sum_l g_l (l - 1/2) / L$ over $\sum_l g_l$ with the `gains` g.

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


@torch.no_grad()
def states_by_depth(model: Decoder, batch: Batch) -> Float[Tensor, "state batch position d_model"]:
    """The residual stream as embedded, and after each block."""
    names = [f"blocks.{i}.residual_post" for i in range(model.config.n_layers)]
    with capture(model, "embedding", *names) as seen:
        model(batch.inputs)
    return torch.stack([seen[name] for name in ("embedding", *names)])
