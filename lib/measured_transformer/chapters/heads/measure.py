r"""Multi-head attention taken apart: a sum of heads, what one head cannot do, and what two heads do together.

Vectors are rows. `heads_of` gives each head's output $O^i$ and its block $W^{O_i}$ of the output projection, so
that attention is $\sum_i O^i W^{O_i}$. Everything about sums is an identity; `pair_effects` measures models.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from measured_transformer.analysis.handmade import set_head
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.parts.attention import (
    MultiHeadAttention,
    attend,
    attention_pattern,
    attention_scores,
)
from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import Model, predict
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import seeded

Which = Bool[np.ndarray, "pair"]


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


# What one head cannot do ----------------------------------------------------------------------------


def map_values(
    patterns: Float[Tensor, "head query key"], forms: Float[Tensor, "head d_model d_model"]
) -> Float[Tensor, "value"]:
    r"""The singular values of $X \mapsto \sum_h A_h X W_h$, a sum of products of two maps each.

    How many are not zero is the number of heads, with patterns that do not depend on the input, that the map
    needs. And the root of the sum of the squares of all but the first is how far the best single such head
    stays away: the root of the mean square over inputs with independent standard normal entries (Eckart and
    Young 1936).
    """
    products = torch.einsum("hij,hde->ijde", patterns, forms)
    return torch.linalg.svdvals(products.flatten(2).flatten(0, 1))


@dataclass(frozen=True)
class TwoMaps:
    r"""A target that brings two positions at once, $y_i = c_{i-1} W_1 + c_{i-3} W_2$, and heads that reach it.

    Attributes:
        attention: two heads with hand-set weights; without residual connection.
        x: the stream: random contents $c$, and the place, one entry for each.
        target: the answers from the fourth position on, zero where the place stands.
        one_head: what the best single head misses that looks at places, whatever its weights, as a share of
            the target (root mean squares).
    """

    attention: MultiHeadAttention
    x: Float[Tensor, "1 position d_model"]
    target: Float[Tensor, "answer d_model"]
    one_head: float


@torch.no_grad()
def two_maps(seed: int, *, length: int = 8, width: int = 4) -> TwoMaps:
    """Draw contents and two matrices, and write two heads that look one and three places back.

    Args:
        seed: of contents and matrices.
        length: number of positions, more than three.
        width: entries of a content.
    """
    with seeded(seed):
        contents = torch.randn(length, width, dtype=torch.float64)
        forms = torch.randn(2, width, width, dtype=torch.float64)
    d_model = width + length
    eye = torch.eye(d_model, dtype=torch.float64)
    content, place = eye[:, :width], eye[:, width:]
    attention = MultiHeadAttention(
        d_model, 2, d_head=max(width, length), bias=False, scale=1.0
    ).double()
    shifts = []
    for head, back in enumerate((1, 3)):
        shift = torch.diag(torch.ones(length - back, dtype=torch.float64), -back)
        set_head(
            attention,
            head,
            query=60.0 * place @ shift,
            key=place,
            value=content,
            output=forms[head] @ content.T,
        )
        shifts.append(shift[3:])
    patterns = torch.stack(shifts)
    values = map_values(patterns, forms)
    target = torch.einsum("hij,jd,hde->ie", patterns, contents, forms)
    missed = values[1:].square().sum().sqrt() / values.square().sum().sqrt()
    x = torch.cat((contents, torch.eye(length, dtype=torch.float64)), dim=1)[None]
    return TwoMaps(attention, x, target @ content.T, missed.item())


# What two heads do together -------------------------------------------------------------------------


@dataclass(frozen=True)
class PairEffects:
    """What removing heads does to a model's loss, one at a time and two at a time.

    Attributes:
        heads: (layer, head) of each.
        pairs: the numbers, in `heads`, of the two of each pair.
        single: rise of the loss without one head, in nats.
        joint: rise of the loss without both heads of a pair.
    """

    heads: Int[np.ndarray, "head 2"]
    pairs: Int[np.ndarray, "pair 2"]
    single: Float[np.ndarray, "head"]
    joint: Float[np.ndarray, "pair"]

    @property
    def interaction(self) -> Float[np.ndarray, "pair"]:
        """What the joint effect has beyond the sum of the two single ones; independent heads have none."""
        return self.joint - self.single[self.pairs].sum(axis=1)

    @property
    def same_layer(self) -> Which:
        """Which pairs stand in one layer."""
        layers = self.heads[self.pairs, 0]
        same: Which = layers[:, 0] == layers[:, 1]
        return same

    def share(self, chosen: Which) -> float:
        """Sizes of the interactions over sizes of the joint effects, both summed over the chosen pairs.

        Raises:
            ValueError: when the chosen pairs have no effect at all.
        """
        size = float(np.abs(self.joint[chosen]).sum())
        if size == 0:
            raise ValueError("the chosen pairs have no joint effect that could be taken apart")
        return float(np.abs(self.interaction[chosen]).sum()) / size


@torch.no_grad()
def pair_effects(model: Model, batch: Batch) -> PairEffects:
    """Remove each head and each pair of heads of a decoder or encoder and see what the loss does.

    A head is removed by setting what it mixed to zero, so that it writes nothing.

    Args:
        model: in evaluation mode.
        batch: what the loss is computed on.

    Raises:
        KeyError: when the model is an encoder-decoder, whose blocks have other names.
    """
    with capture(model, "blocks.*.attention.mixed", transform=lambda mixed: mixed[:1]) as seen:
        predict(model, batch)
    counts = [mixed.shape[1] for mixed in seen.values()]
    heads = [(layer, head) for layer, count in enumerate(counts) for head in range(count)]

    def loss(*removed: tuple[int, int]) -> float:
        changes = {}
        for layer in {layer for layer, _ in removed}:
            these = [head for at_layer, head in removed if at_layer == layer]
            changes[f"blocks.{layer}.attention.mixed"] = at(0.0, heads=these)
        with intervene(model, changes):
            logits = predict(model, batch).double()
        return cross_entropy(logits, batch.targets, batch.scored).item()

    whole = loss()
    pairs = list(itertools.combinations(range(len(heads)), 2))
    return PairEffects(
        np.array(heads),
        np.array(pairs),
        np.array([loss(head) - whole for head in heads]),
        np.array([loss(heads[a], heads[b]) - whole for a, b in pairs]),
    )
