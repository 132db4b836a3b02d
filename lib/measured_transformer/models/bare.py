"""A whole GPT in one file: the function of `Decoder`, with nothing between the reader and the arithmetic.

Read it from top to bottom. Norms stand before the sublayers, as in GPT-2 (Radford et al. 2019), and positions
are told by rotation, as in most language models since (Su et al. 2021). `Decoder` adds what experiments need:
taps, padding, a cache, dropout, other positions, norms and gates. Parts have the same names here and there, so
that `from_decoder` can take over the weights; a test holds the two equal.

    B  sequences in a batch      C  width of the residual stream (d_model)      H  heads
    T  positions in a sequence   V  different tokens (vocab)                    D  width of a head, C / H
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.feedforward import activation_function


class BareGPT(nn.Module):
    """Tokens in, for each position the logits of the next token out.

    >>> gpt = BareGPT(vocab=10, d_model=16, n_layers=2, n_heads=4)
    >>> gpt(torch.tensor([[1, 2, 3]])).shape
    torch.Size([1, 3, 10])
    """

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


def from_decoder(decoder: Decoder) -> BareGPT:
    """A bare GPT with a decoder's weights. Raises ValueError when that has what a bare GPT has not."""
    c = decoder.config
    gpt = BareGPT(c.vocab, c.d_model, c.n_layers, c.n_heads)
    weights = decoder.state_dict()
    same = {"placement": "pre", "residual": True, "attention_scale": None, "logit_scale": 1.0}
    places = {"positions": "rotary", "rotary_base": 10000.0, "rotary_pairing": "interleaved"}
    shapes, own = ({n: w.shape for n, w in each.items()} for each in (weights, gpt.state_dict()))
    if shapes != own or c != c.replace(**same, **places, norm_eps=1e-5):
        raise ValueError(f"expected a decoder with no other parts than BareGPT, got {c}")
    gpt.to(decoder.token_embedding.weight).load_state_dict(weights)
    gpt.embedding_scale = decoder.embedding_scale
    for part in gpt.modules():
        if isinstance(part, FeedForward):
            part.activate = activation_function(c.activation)
    return gpt.eval()
