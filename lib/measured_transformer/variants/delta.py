r"""The delta rule: a state of fixed size that overwrites what it holds for a key.

Linear attention adds to its state. Here, with a key $k$ of length one and a value $v$, the state $S$ first
reads what it has for the key and then adds the difference, $S \leftarrow S + \beta\, k^\top (v - k S)$. With
$\beta = 1$ it returns the newest value for each of as many keys as have right angles to one another; with
$\beta = 0$ a token leaves no trace. A query $q$ reads $q S$.

Source: Schlag et al. (2021), "Linear Transformers Are Secretly Fast Weight Programmers"; Yang et al. (2024),
"Parallelizing Linear Transformers with the Delta Rule over Sequence Length", from which the form that takes all
tokens at once comes. Their layer has a short convolution before it, too, which this one has not.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.block import Block
from measured_transformer.parts.kernels.linear import Linear
from measured_transformer.parts.norms import RMSNorm
from measured_transformer.parts.tap import Tap
from measured_transformer.training.loop import Model


def delta_rule(
    queries: Float[Tensor, "*batch position d_head"],
    keys: Float[Tensor, "*batch position d_head"],
    values: Float[Tensor, "*batch position d_value"],
    strengths: Float[Tensor, "*batch position"],
) -> Float[Tensor, "*batch position d_value"]:
    """What queries read, one position after another, with a state that does not grow.

    Each position writes first and then reads.

    Args:
        queries: taken as they are.
        keys: of length one; others write more or less than the difference.
        values: what is kept.
        strengths: how much of the difference is written, from 0 to 1.

    >>> keys = torch.eye(2)[[0, 1, 0]]
    >>> delta_rule(keys, keys, torch.tensor([[5.0], [7.0], [9.0]]), torch.ones(3)).T
    tensor([[5., 7., 9.]])
    """
    state = values.new_zeros(*values.shape[:-2], keys.shape[-1], values.shape[-1])
    read = []
    for t in range(values.shape[-2]):
        key, strength = keys[..., t, :], strengths[..., t, None]
        change = strength * (values[..., t, :] - (key[..., None, :] @ state).squeeze(-2))
        state = state + key[..., :, None] * change[..., None, :]
        read.append((queries[..., t, None, :] @ state).squeeze(-2))
    return torch.stack(read, dim=-2)


def delta_rule_by_pairs(
    queries: Float[Tensor, "*batch position d_head"],
    keys: Float[Tensor, "*batch position d_head"],
    values: Float[Tensor, "*batch position d_value"],
    strengths: Float[Tensor, "*batch position"],
) -> Float[Tensor, "*batch position d_value"]:
    r"""The same for all positions at once, by the products of all pairs of keys.

    What position $t$ adds to the state is $k_t^\top u_t$, with
    $u_t = \beta_t (v_t - \sum_{j<t} (k_t \cdot k_j)\, u_j)$. These are as many equations as positions, in a
    triangle, which are solved at once.
    """
    pairs = (strengths[..., None] * (keys @ keys.transpose(-2, -1))).tril(-1)
    changes = torch.linalg.solve_triangular(
        pairs, strengths[..., None] * values, upper=False, unitriangular=True
    )
    return (queries @ keys.transpose(-2, -1)).tril() @ changes


class DeltaRule(nn.Module):
    """The delta rule in the place of `MultiHeadAttention`, with the same projections.

    Queries and keys are bent by SiLU and brought to length one; a map of the stream gives each head its
    strength at each token, between 0 and 1; what a head reads is brought to a root mean square of one and
    scaled by a gain for each entry, as nothing else keeps its size. In the beginning all strengths are a half
    and all gains one.

    Taps: `strength` (batch head position), `out` (batch position d_model).
    """

    def __init__(self, old: MultiHeadAttention) -> None:
        """Take over the projections of an attention sublayer.

        Raises:
            ValueError: when it has fewer key-value heads than query heads.
        """
        super().__init__()
        if old.n_kv_heads != old.n_heads:
            raise ValueError(
                f"expected as many key-value heads as heads, got {old.n_kv_heads} and {old.n_heads}"
            )
        self.n_heads = old.n_heads
        self.query, self.key, self.value, self.output = old.query, old.key, old.value, old.output
        like = old.query.weight
        self.rate = Linear(like.shape[1], old.n_heads).to(like)
        nn.init.zeros_(self.rate.weight)
        nn.init.zeros_(self.rate.bias)
        self.norm = RMSNorm(like.shape[0] // old.n_heads).to(like)
        self.strength, self.out = Tap(), Tap()

    def forward(
        self, x: Float[Tensor, "batch position d_model"], *, causal: bool = False, **other: Any
    ) -> Float[Tensor, "batch position d_model"]:
        """What the sublayer writes to the stream.

        Raises:
            ValueError: when it is not causal, or anything else is given that attention can take.
        """
        if given := [name for name, value in other.items() if value is not None]:
            raise ValueError(f"the delta rule takes the stream alone, got {', '.join(given)}")
        if not causal:
            raise ValueError("expected a causal model, got causal=False")
        asking, asked, told = (
            layer(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        asking, asked = (F.normalize(F.silu(each), dim=-1) for each in (asking, asked))
        strength = self.strength(self.rate(x).sigmoid().transpose(1, 2))
        read = self.norm(delta_rule_by_pairs(asking, asked, told, strength))
        return self.out(self.output(read.transpose(1, 2).flatten(2)))


@dataclass(frozen=True)
class Delta:
    """Preparation for training: put the delta rule in the place of self-attention in a decoder.

    Attributes:
        blocks: the blocks, from 0, that get it; None: all. With some of them the model is a hybrid.
    """

    blocks: Collection[int] | None = None

    def __call__(self, model: Model) -> None:
        """Change the model.

        Raises:
            ValueError: when the model is an encoder-decoder, or has no such block.
        """
        if isinstance(model, EncoderDecoder):
            raise ValueError("expected a Decoder, got an EncoderDecoder")
        count = len(model.blocks)
        chosen = range(count) if self.blocks is None else self.blocks
        if beyond := sorted(set(chosen) - set(range(count))):
            raise ValueError(f"expected blocks from 0 to {count - 1}, got {beyond}")
        for number in chosen:
            block = model.blocks[number]
            assert isinstance(block, Block)
            block.attention = DeltaRule(block.attention)  # type: ignore[assignment]
