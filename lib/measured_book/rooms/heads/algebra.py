r"""Attention as a sum of heads: identities on drawn layers, each beside a control that must fail.

Vectors are rows. `heads_of` gives each head's output $O^i$ and its block $W^{O_i}$ of the output projection, so
that attention is $\sum_i O^i W^{O_i}$.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from measured_transformer.analysis.circuits import module_circuits
from measured_transformer.analysis.residual import random_model
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.parts.attention import (
    MultiHeadAttention,
    attend,
    attention_pattern,
    attention_scores,
)
from measured_transformer.parts.norms import LayerNorm
from measured_transformer.training.seeding import make_generator, seeded
from torch import Tensor, nn

from measured_book.rooms.heads.single_head import map_values

Which = Bool[np.ndarray, "pair"]
Composition = Literal["q", "k", "v"]


@torch.no_grad()
def drawn_attention(
    seed: int, *, bias: bool = False, d_head: int | None = None, wide: bool = False
) -> tuple[MultiHeadAttention, Float[Tensor, "batch position d_model"]]:
    """Attention of random size with random weights, and an input for it, in double precision.

    Two to five heads of width two to five (or `d_head`), three to eight positions.

    Args:
        seed: of sizes, weights and input.
        bias: whether there are biases (random ones).
        d_head: width of a head.
        wide: whether heads are as wide as the model; else the model is as wide as its heads together.
    """
    with seeded(seed):
        heads, width, n = (
            int(torch.randint(low, high, ())) for low, high in ((2, 6), (2, 6), (3, 9))
        )
        width = width if d_head is None else d_head
        d_model = width if wide else heads * width
        attention = MultiHeadAttention(d_model, heads, d_head=width, bias=bias).double()
        for parameter in attention.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64) / math.sqrt(d_model))
        return attention, torch.randn(2, n, d_model, dtype=torch.float64)


@torch.no_grad()
def heads_of(
    attention: MultiHeadAttention, x: Float[Tensor, "batch position d_model"]
) -> tuple[
    Float[Tensor, "head batch position d_head"],
    Float[Tensor, "head d_head d_model"],
]:
    """Each head's output, before the output projection, and its block of that projection."""
    with capture(attention, "mixed") as seen:
        attention(x)
    blocks = attention.output.weight.detach().T.unflatten(0, (attention.n_heads, -1))
    return seen["mixed"].transpose(0, 1), blocks


@torch.no_grad()
def concatenated(
    attention: MultiHeadAttention, x: Float[Tensor, "batch position d_model"]
) -> Float[Tensor, "batch position d_model"]:
    """Equation 9 of the exercise sheet without its residual: heads written out, side by side, times $W^O$.

    For heads without biases. Source: Vaswani et al. (2017), section 3.2.2.
    """
    outputs = []
    for head in range(attention.n_heads):
        rows = slice(head * attention.d_head, (head + 1) * attention.d_head)
        query, key, value = (
            x @ linear.weight[rows].T
            for linear in (attention.query, attention.key, attention.value)
        )
        outputs.append(attend(attention_pattern(attention_scores(query, key)), value))
    return torch.cat(outputs, dim=-1) @ attention.output.weight.T


@torch.no_grad()
def as_torch(attention: MultiHeadAttention) -> nn.MultiheadAttention:
    """PyTorch's own multi-head attention with the same weights.

    Raises:
        ValueError: when heads share keys and values, or are not `d_model / n_heads` wide: PyTorch's are.
    """
    d, h = attention.d_model, attention.n_heads
    if attention.n_kv_heads != h or attention.d_head * h != d:
        raise ValueError(
            "PyTorch's heads have their own keys and values and are d_model / n_heads wide, got "
            f"n_kv_heads={attention.n_kv_heads}, n_heads={h}, d_head={attention.d_head}, d_model={d}"
        )
    theirs = nn.MultiheadAttention(d, h, bias=attention.query.bias is not None, batch_first=True)
    theirs = theirs.to(attention.query.weight.dtype)
    projections = (attention.query, attention.key, attention.value)
    theirs.in_proj_weight.copy_(torch.cat([each.weight for each in projections]))
    theirs.out_proj.weight.copy_(attention.output.weight)
    if attention.query.bias is not None:
        theirs.in_proj_bias.copy_(torch.cat([each.bias for each in projections]))
        theirs.out_proj.bias.copy_(attention.output.bias)
    return theirs


def best_numbers(
    outputs: Float[Tensor, "head batch position d_model"],
    total: Float[Tensor, "batch position d_model"],
) -> float:
    """How much of `total` the best combination with one number a head misses, as a share of its length.

    Raises:
        ValueError: when heads are not as wide as the total.
    """
    if outputs.shape[1:] != total.shape:
        raise ValueError(
            "numbers can only weigh heads that are as wide as the model, got heads of shape "
            f"{tuple(outputs.shape[1:])} for {tuple(total.shape)}"
        )
    columns, goal = outputs.flatten(1).T, total.flatten()
    weights = torch.linalg.lstsq(columns, goal[:, None]).solution[:, 0]
    return ((goal - columns @ weights).norm() / goal.norm()).item()


# Drawn layers ---------------------------------------------------------------------------------------

DRAWS = 50
CHECKS = (
    "joined", "split", "printed", "stacked", "sum", "matrices", "torch", "parameters", "sizes",
    "removed", "causal", "ov", "ov with bias", "qk", "stream", "two maps",
)  # fmt: skip
"""What is checked on drawn layers, each with a control that must fail."""


def largest_gap(found: Tensor, expected: Tensor) -> float:
    """The largest absolute difference between two tensors."""
    return float((found - expected).abs().max())


def parameters(d: int, k: int, d_h: int | None = None, *, bias: bool = False) -> int:
    """The number of weights of a layer of attention with k heads, counted."""
    return sum(w.numel() for w in MultiHeadAttention(d, k, d_head=d_h, bias=bias).parameters())


def sum_errors(seed: int) -> dict[str, tuple[float, float]]:
    """Heads as wide as the model, as the exercise sheet has them: concatenated, and as a sum."""
    attention, x = drawn_attention(seed, wide=True)
    outputs, blocks = heads_of(attention, x)
    terms, whole = outputs @ blocks[:, None], attention(x) + x
    side_by_side = torch.cat(list(outputs), dim=-1) @ blocks.flatten(0, 1)
    w_o = attention.output.weight.T
    other = torch.randn(blocks.shape, dtype=blocks.dtype, generator=make_generator(seed, "other"))
    return {
        "joined": (
            largest_gap(concatenated(attention, x) + x, whole),
            largest_gap(whole, whole - x),
        ),
        "split": (
            largest_gap(terms.sum(0), side_by_side),
            largest_gap((outputs @ blocks.flip(0)[:, None]).sum(0), side_by_side),
        ),
        "printed": (
            largest_gap(blocks.mT.flatten(0, 1), w_o),
            largest_gap(blocks.mT.flip(0).flatten(0, 1), w_o),
        ),
        "stacked": (
            largest_gap(blocks.flatten(0, 1), w_o),
            largest_gap(blocks.flip(0).flatten(0, 1), w_o),
        ),
        "sum": (largest_gap(terms.sum(0) + x, whole), largest_gap(terms[1:].sum(0) + x, whole)),
        "matrices": (
            largest_gap((outputs @ blocks[:, None]).sum(0), whole - x),
            largest_gap((outputs @ other[:, None]).sum(0), whole - x),
        ),
    }


def module_errors(seed: int) -> dict[str, tuple[float, float]]:
    """Against PyTorch's module, and what a layer's weights number."""
    attention, x = drawn_attention(seed, bias=True)
    theirs = as_torch(attention)(x, x, x, need_weights=False)[0]
    swapped = drawn_attention(seed, bias=True)[0]
    out = attention.output.weight.unflatten(1, (attention.n_heads, -1))
    swapped.output.weight.copy_(out.flip(1).flatten(1))
    extra, k, d_h = np.random.default_rng(seed).integers(2, 9, size=3).tolist()
    d = extra + d_h + 1  # wider than a head
    counted, narrow = parameters(d, k, d_h), parameters(k * d_h, k, bias=True)
    return {
        "torch": (largest_gap(theirs, attention(x)), largest_gap(theirs, swapped(x))),
        "parameters": (
            float(narrow - parameters(k * d_h, 1, bias=True)),
            float(parameters(k * d_h, k, k * d_h, bias=True) - narrow),
        ),
        "sizes": (float(counted - 4 * k * d * d_h), float(counted - 4 * k * d * d)),
    }


def removal_errors(seed: int) -> tuple[float, float]:
    """A head removed: by how much the layer's output changes, and the same behind a norm."""
    attention, x = drawn_attention(seed)
    outputs, blocks = heads_of(attention, x)
    whole = attention(x) + x
    with intervene(attention, {"mixed": at(0.0, heads=0)}):  # the first head is silent
        without = attention(x) + x
    own, norm = outputs[0] @ blocks[0], LayerNorm(x.shape[-1]).double()
    return largest_gap(whole - without, own), largest_gap(norm(whole) - norm(without), own)


def circuit_errors(seed: int, *, bias: bool) -> dict[str, tuple[float, float]]:
    """A head's write and pattern from its two circuits."""
    attention, x = drawn_attention(seed, bias=bias)
    with capture(attention, "pattern", "head_outputs") as seen:
        attention(x)
    (qk, ov), (_, other) = (module_circuits(attention, head) for head in (0, 1))
    a, write = seen["pattern"][:, 0], seen["head_outputs"][:, 0]
    factors = a @ x @ ov.form.left @ ov.form.right + ov.bias
    crossed = a @ x @ ov.form.left @ other.form.right + ov.bias  # values of one, output of another
    scores = qk.scores(x, x)
    sharper = scores * attention.d_head**0.5
    return {
        "ov": (
            max(largest_gap(factors, write), largest_gap(ov.writes(a, x), write)),
            largest_gap(crossed, write),
        ),
        "qk": (largest_gap(scores.softmax(-1), a), largest_gap(sharper.softmax(-1), a)),
    }


def mask_errors(seed: int) -> tuple[tuple[float, float], tuple[int, int]]:
    """A head's write when what is ahead changes, with and without a mask; ranks of writes less the width."""
    attention, x = drawn_attention(seed, d_head=2)
    cut = x.shape[1] // 2
    changed = x.clone()
    changed[:, cut:] += torch.randn(
        changed[:, cut:].shape, dtype=x.dtype, generator=make_generator(seed, "ahead")
    )
    moved, found = [], []
    for causal in (True, False):
        pair = []
        for given in (x, changed):
            with capture(attention, "head_outputs") as seen:
                attention(given, causal=causal)
            pair.append(seen["head_outputs"])
        moved.append(largest_gap(pair[0][:, 0, :cut], pair[1][:, 0, :cut]))
        found.append(pair[0])
    rank = torch.linalg.matrix_rank
    one, all_heads = found[0][:, 0].flatten(0, 1), found[0].sum(1).flatten(0, 1)
    return (moved[0], moved[1]), (int(rank(one)) - 2, int(rank(all_heads)) - 2)


def stream_errors(seed: int) -> tuple[float, float]:
    """What a block's attention adds to the stream, against the sum of its heads."""
    model, tokens = random_model(seed, placement="pre", attention_bias=False, n_heads=4)
    taps = ("blocks.0.residual_*", "blocks.0.attention.head_outputs")
    with capture(model, *taps) as seen:
        model(tokens)
    added = seen["blocks.0.residual_mid"] - seen["blocks.0.residual_pre"]
    heads = seen["blocks.0.attention.head_outputs"]
    return largest_gap(heads.sum(1), added), largest_gap(heads[:, 1:].sum(1), added)


def rank_excess(seed: int) -> tuple[int, int, int, int]:
    """Rank of score forms less the width, of a free form; heads that two patterns and one amount to."""
    attention, x = drawn_attention(seed)
    with capture(attention, "pattern") as seen:
        attention(x)
    circuits = [module_circuits(attention, head) for head in (0, 1)]
    d = attention.d_model
    free = torch.randn(d, d, dtype=torch.float64, generator=make_generator(seed, "free"))
    patterns = seen["pattern"][0, :2]
    forms = torch.stack([ov.form.matrix for _, ov in circuits])
    two, one = (int((map_values(patterns[:n], forms[:n]) > 1e-9).sum()) for n in (2, 1))
    largest = max(qk.form.rank() for qk, _ in circuits)
    return (
        largest - attention.d_head,
        int(torch.linalg.matrix_rank(free)) - attention.d_head,
        two,
        one,
    )
