"""How large scores are, what softmax makes of them, and how much of a gradient it lets through."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from jaxtyping import Float
from scipy import integrate, stats
from torch import Tensor

from measured_transformer.internals.capture import capture
from measured_transformer.parts.attention import attention_scores
from measured_transformer.tasks.task import Task
from measured_transformer.training.loop import Model, predict
from measured_transformer.training.seeding import make_generator


def drawn_scores(
    d_head: int, n_keys: int, *, rows: int, seed: int, scale: float = 1.0
) -> Float[Tensor, "row key"]:
    """Scores of queries against keys whose entries are independent unit normal numbers, in float64.

    Every row has a query and keys of its own. The same seed draws the same vectors, whatever the scale.

    Args:
        d_head: width of query and key.
        n_keys: keys a query.
        rows: number of queries.
        seed: of the vectors.
        scale: factor on the dot products.

    Raises:
        ValueError: when a number is not positive.
    """
    if min(d_head, n_keys, rows) < 1:
        raise ValueError(
            f"sizes must be positive, got d_head={d_head}, n_keys={n_keys} and rows={rows}"
        )
    generator = make_generator(seed, f"scores-{d_head}-{n_keys}")
    scores = []
    for part in torch.arange(rows).split(100):  # a hundred rows at a time keep memory small
        queries = torch.randn(len(part), 1, d_head, generator=generator)
        keys = torch.randn(len(part), n_keys, d_head, generator=generator)
        scores.append(attention_scores(queries.double(), keys.double(), scale=scale).squeeze(1))
    return torch.cat(scores)


def exact_variances(d_head: int) -> tuple[float, float]:
    r"""Variance of $q \cdot k / \sqrt{d}$ over all vectors of signs: any q with any k, and each q with itself.

    Signs have mean 0 and variance 1, as the argument for the scale asks, and can be counted out.

    >>> [round(variance, 9) for variance in exact_variances(3)]
    [1.0, 0.0]

    Raises:
        ValueError: when there are more than 2^20 pairs to go through, so that `d_head` is above 10.
    """
    if not 1 <= d_head <= 10:
        raise ValueError(f"d_head must lie between 1 and 10 to go through all pairs, got {d_head}")
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=d_head)))
    scores = signs @ signs.T / math.sqrt(d_head)
    return float(scores.var()), float(scores.diagonal().var())


def share_beyond(bound: float, d_head: int) -> float:
    """Probability that a score of unit normal query and key, not scaled, lies beyond a bound on either side.

    Given the query, the score is normal with the query's length as its standard deviation; the squared
    length has a chi-squared distribution, over which the tails are averaged by quadrature.

    >>> round(share_beyond(2.0, 1), 3)  # the product of two normal numbers
    0.062

    Raises:
        ValueError: when the bound is negative or the width is not positive.
    """
    if bound < 0 or d_head < 1:
        raise ValueError(f"expected bound >= 0 and d_head >= 1, got {bound} and {d_head}")
    length = stats.chi(d_head)

    def beyond(x: float) -> float:
        return float(2 * stats.norm.sf(bound / x) * length.pdf(x))

    low, high = map(float, length.ppf([1e-12, 1 - 1e-12]))
    found, _ = integrate.quad(beyond, low, high, limit=200)
    return float(found)


def jacobian_norm(weights: Float[Tensor, "*row key"]) -> Float[Tensor, "*row"]:
    r"""Frobenius norm of softmax's Jacobian $\operatorname{diag}(p) - p p^\top$ at these weights.

    How strongly the weights answer to a small change of the scores, in the root mean square over directions.

    >>> jacobian_norm(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    tensor([0.5000, 0.0000])
    """
    second = weights.square().sum(-1)
    squared = second - 2 * weights.pow(3).sum(-1) + second.square()
    return squared.clamp(min=0).sqrt()  # rounding may leave a little less than nothing


def query_gradient_norm(
    d_head: int, n_keys: int, *, scale: float, rows: int, seed: int
) -> Float[Tensor, "row"]:
    r"""Length of the gradient that reaches a query, when a unit normal gradient arrives at the weights.

    With $s = \text{scale} \cdot K q$ and $p = \operatorname{softmax}(s)$, a gradient g at the weights becomes
    $\text{scale} \cdot K^\top (\operatorname{diag}(p) - p p^\top) g$ at the query. Same vectors and same g for
    every scale.

    Raises:
        ValueError: when a number is not positive.
    """
    if min(d_head, n_keys, rows) < 1:
        raise ValueError(
            f"sizes must be positive, got d_head={d_head}, n_keys={n_keys} and rows={rows}"
        )
    generator = make_generator(seed, f"query-gradients-{d_head}-{n_keys}")
    found = []
    for part in torch.arange(rows).split(100):
        queries = torch.randn(len(part), 1, d_head, generator=generator).double().requires_grad_()
        keys = torch.randn(len(part), n_keys, d_head, generator=generator).double()
        arriving = torch.randn(len(part), 1, n_keys, generator=generator).double()
        weights = attention_scores(queries, keys, scale=scale).softmax(-1)
        (gradient,) = torch.autograd.grad((weights * arriving).sum(), queries)
        found.append(gradient.squeeze(1).norm(dim=-1))
    return torch.cat(found)


@torch.no_grad()
def first_look(model: Model, task: Task, *, seed: int, size: int = 64) -> dict[str, float]:
    """What the heads of the first block make of a batch: of fresh models, how softmax starts.

    Causal rows see fewer keys than others; every number is over what a row may see, from two keys on.

    Returns:
        `spread`: standard deviation of scores; `largest`: mean largest weight of a row; `entropy`: mean
        entropy of a row, as a share of its largest value.

    Raises:
        ValueError: when no row sees more than one key.
    """
    batch = task.batch(make_generator(seed, "first-look"), size)
    names = ("blocks.0.attention.scores", "blocks.0.attention.pattern")
    with capture(model, "blocks.0.attention.*") as seen:
        predict(model, batch)
    scores, pattern = (seen[name].double() for name in names)
    n = pattern.shape[-1]
    allowed = torch.ones(n, n, dtype=torch.bool)
    allowed = allowed.tril() if task.causal else allowed
    several = allowed.sum(-1) > 1
    if not several.any():
        raise ValueError("every row sees a single key: there is nothing that softmax could choose")
    rows = pattern[..., several, :]
    entropy = torch.special.entr(rows).sum(-1) / allowed.sum(-1)[several].log()
    return {
        "spread": float(scores[..., allowed].std()),
        "largest": float(rows.amax(-1).mean()),
        "entropy": float(entropy.mean()),
    }
