"""What the formula of attention promises, in forms that can be checked: weights, budgets, masks and reach.

The functions under test are those of `measured_transformer.parts.attention`. Here are drawn cases to try them
on, the same formulas written down a second time, and attention that breaks the promises, for comparison.

Source: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.optimize import linprog
from torch import Tensor

from measured_transformer.internals.capture import capture
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.attention import (
    MultiHeadAttention,
    attend,
    attention_pattern,
    attention_scores,
)
from measured_transformer.training.loop import Model
from measured_transformer.training.seeding import seeded


def one_head(
    x: Float[Tensor, "position d_model"],
    w_query: Float[Tensor, "d_model d_head"],
    w_key: Float[Tensor, "d_model d_head"],
    w_value: Float[Tensor, "d_model d_head"],
) -> Float[Tensor, "position d_head"]:
    """One head of self-attention on the matrix of a whole sequence, divided by the root of the *model's* width.

    This is how the exercise sheet writes it, for heads as wide as the model.

    Raises:
        ValueError: as `attention_scores` and `attend`.
    """
    scores = attention_scores(x @ w_query, x @ w_key, scale=1 / math.sqrt(x.shape[-1]))
    return attend(attention_pattern(scores), x @ w_value)


def in_hull(point: Float[Tensor, "dimension"], corners: Float[Tensor, "corner dimension"]) -> bool:
    """Whether a point is a weighted average of the corners, found by a linear program.

    It asks for weights, none negative and of sum one, that bring the corners to the point.

    Raises:
        ValueError: when point and corners have different widths.

    >>> corners = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> in_hull(torch.tensor([0.3, 0.3]), corners), in_hull(torch.tensor([0.6, 0.6]), corners)
    (True, False)
    """
    if corners.ndim != 2 or point.shape != corners.shape[1:]:
        raise ValueError(
            "expected a point (dimension,) and corners (corner, dimension), got shapes "
            f"{tuple(point.shape)} and {tuple(corners.shape)}"
        )
    equations = torch.cat([corners, corners.new_ones(len(corners), 1)], dim=1).T
    sums = torch.cat([point, point.new_ones(1)])
    found = linprog(np.zeros(len(corners)), A_eq=equations.numpy(), b_eq=sums.numpy())
    return bool(found.status == 0)


def sigmoid_pattern(scores: Float[Tensor, "*batch query key"]) -> Float[Tensor, "*batch query key"]:
    """Weights that know nothing of one another: each score through the logistic function, on its own."""
    return scores.sigmoid()


def weight_derivatives(
    scores: Float[Tensor, "key"],
    weights: Callable[[Tensor], Tensor] = attention_pattern,
) -> Float[Tensor, "key key"]:
    """How each weight (row) answers to each score (column), by automatic differentiation.

    Args:
        scores: those of one query.
        weights: turns a row of scores into a row of weights.
    """
    found = torch.autograd.functional.jacobian(lambda row: weights(row[None])[0], scores)
    return torch.as_tensor(found)


@torch.no_grad()
def looks_ahead(seed: int, *, causal: bool) -> tuple[float, float]:
    """What a drawn attention layer sees of the future, if anything.

    Args:
        seed: of sizes, weights, inputs and of the place from which on all inputs are replaced.
        causal: whether the layer hides the future.

    Returns:
        the largest weight on a later position, and the largest change of an earlier output when the later
        inputs are replaced by others (fused and explicit computation, the larger of the two).
    """
    generator = torch.Generator().manual_seed(seed)
    heads, width, n = (int(torch.randint(1, high, (), generator=generator)) for high in (4, 9, 10))
    n = n + 2
    with seeded(seed):
        layer = MultiHeadAttention(heads * width, heads).double()
    x, other = torch.randn(2, 1, n, heads * width, generator=generator, dtype=torch.float64)
    place = int(torch.randint(1, n, (), generator=generator))
    changed = torch.cat([x[:, :place], other[:, place:]], dim=1)
    outputs = [layer(x, causal=causal), layer(changed, causal=causal)]
    with capture(layer, "pattern") as seen:
        outputs += [layer(x, causal=causal)]
        weights = seen["pattern"].triu(1)
        outputs += [layer(changed, causal=causal)]
    changes = [(outputs[i] - outputs[i + 1])[:, :place].abs().max() for i in (0, 2)]
    return float(weights.max()), float(max(changes))


def in_three_lines(
    queries: Float[Tensor, "*batch position d_head"],
    keys: Float[Tensor, "*batch position d_head"],
    values: Float[Tensor, "*batch position d_value"],
    *,
    hide: bool = True,
) -> Float[Tensor, "*batch position d_value"]:
    """Causal attention as the deep dive writes it: scores, minus infinity ahead, softmax (and the average).

    Args:
        queries, keys, values: of one sequence.
        hide: whether the second line is there at all.
    """
    scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    if hide:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(ahead, -math.inf)
    return scores.softmax(dim=-1) @ values


def masked_too_late(
    scores: Float[Tensor, "*batch query key"], mask: Bool[Tensor, "query key"]
) -> Float[Tensor, "*batch query key"]:
    """A common mistake: the softmax over everything, and the forbidden weights set to zero afterwards."""
    return scores.softmax(dim=-1).masked_fill(~mask, 0.0)


def reach(
    model: Model,
    tokens: Int[Tensor, "query"],
    source: Int[Tensor, "key"] | None = None,
    *,
    of: Literal["tokens", "source"] = "tokens",
) -> Float[ndarray, "query input"]:
    """Which inputs can change which outputs: the length of each logits' gradient by each embedded token.

    An entry that is exactly zero says that no path leads from that input to that output, through any layer.

    Args:
        model: any of the three kinds.
        tokens: of one sequence; for an encoder-decoder those of the target.
        source: of an encoder-decoder.
        of: whose tokens the columns stand for.

    Raises:
        ValueError: when a source is given to a model without one, or none to a model that needs one.
    """
    both = isinstance(model, EncoderDecoder)
    if both != (source is not None) or (of == "source" and not both):
        raise ValueError(
            f"an EncoderDecoder needs a source, other models have none; got a {type(model).__name__}, "
            f"source={'None' if source is None else 'tokens'} and of={of!r}"
        )
    side = {"tokens": "decoder.", "source": "encoder."}[of] if both else ""
    with capture(model, f"{side}embedding", gradients=True) as seen:
        if isinstance(model, EncoderDecoder):
            assert source is not None
            logits = model(source[None], tokens[None])
        else:
            logits = model(tokens[None])
    direction = torch.linspace(-1, 1, logits.shape[-1], dtype=logits.dtype)
    rows = []
    for position in range(len(tokens)):
        target = logits[0, position] @ direction
        (gradient,) = torch.autograd.grad(target, seen[f"{side}embedding"], retain_graph=True)
        rows.append(gradient[0].norm(dim=-1))
    return torch.stack(rows).numpy()
