"""A whole GPT in one file: the function of `Decoder`, with nothing between the reader and the arithmetic.

Norms stand before the sublayers, as in GPT-2 (Radford et al. 2019), and positions are told by rotation, as in
most language models since (Su et al. 2021). `Decoder` adds what experiments need: taps, padding, a cache,
dropout, other positions, norms and gates. `interop.bare` takes over its weights; a test holds the two equal.

    B  sequences in a batch      C  width of the residual stream (d_model)      H  heads
    T  positions in a sequence   V  different tokens (vocab)                    D  width of a head, C / H
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class BareGPT(nn.Module):
    """Tokens in, for each position the logits of the next token out."""

    def __init__(
        self,
        vocab: int,
        d_model: int,
        n_layers: int,
        n_heads: int,
    ) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(vocab, d_model)
        self.embedding_scale = 1.0
        layers = (Block(d_model, n_heads) for _ in range(n_layers))
        self.blocks = nn.ModuleList(layers)
        self.final_norm = nn.LayerNorm(d_model)
        self.unembedding = nn.Linear(d_model, vocab, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, T, V) of the tokens (B, T)."""
        # (B, T) -> (B, T, C)
        x = self.embedding_scale * self.token_embedding(tokens)
        for block in self.blocks:
            x = block(x)
        # (B, T, C) -> (B, T, V)
        return self.unembedding(self.final_norm(x))


class Block(nn.Module):
    """Attention, then the network; each adds its part to the stream."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(d_model)
        self.attention = Attention(d_model, n_heads)
        self.feedforward_norm = nn.LayerNorm(d_model)
        self.feedforward = FeedForward(d_model)

    def forward(self, x: Tensor) -> Tensor:
        """The stream (B, T, C) after this layer."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.feedforward(self.feedforward_norm(x))


class Attention(nn.Module):
    """Each position takes in a mean of values, here and before."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """What all heads together add to the stream (B, T, C)."""
        B, T, C = x.shape
        H, D = self.n_heads, C // self.n_heads
        # (B, T, C) -> (B, H, T, D): a head reads D of the C numbers
        queries = self.query(x).view(B, T, H, D).transpose(1, 2)
        keys = self.key(x).view(B, T, H, D).transpose(1, 2)
        values = self.value(x).view(B, T, H, D).transpose(1, 2)
        queries, keys = rotate(queries), rotate(keys)
        # (B, H, T, T): query, key
        scores = queries @ keys.transpose(-2, -1) / math.sqrt(D)
        everywhere = torch.ones(T, T, dtype=torch.bool, device=x.device)
        ahead = everywhere.triu(1)  # keys after the query
        pattern = scores.masked_fill(ahead, -math.inf).softmax(-1)
        # (B, H, T, D) -> (B, T, C): the heads side by side again
        mixed = (pattern @ values).transpose(1, 2).reshape(B, T, C)
        return self.output(mixed)


def rotate(x: Tensor) -> Tensor:
    """Turn pairs of numbers (B, H, T, D) by angles that grow with T."""
    T, D = x.shape[-2:]
    kind, device = torch.float64, x.device
    pair = torch.arange(0, D, 2, dtype=kind, device=device)
    place = torch.arange(T, dtype=kind, device=device)
    angle = place[:, None] * 10000 ** (-pair / D)  # (T, D / 2)
    cos, sin = angle.cos().to(x), angle.sin().to(x)
    first, second = x[..., 0::2], x[..., 1::2]
    turned = (first * cos - second * sin, first * sin + second * cos)
    return torch.stack(turned, -1).flatten(-2)


class FeedForward(nn.Module):
    """Two layers that every position goes through by itself."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, 4 * d_model)
        self.down = nn.Linear(4 * d_model, d_model)
        self.activate: Callable[[Tensor], Tensor] = F.gelu

    def forward(self, x: Tensor) -> Tensor:
        """What the network adds to the stream (B, T, C)."""
        return self.down(self.activate(self.up(x)))
