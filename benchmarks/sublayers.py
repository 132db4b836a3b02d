"""A block's attention beside its feed-forward network: the same tokens, cut into ever longer sequences."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from measured_transformer import capture
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.feedforward import FeedForward
from torch import Tensor, nn

from benchmarks.measure import Workload

NETWORK = "feed-forward network"
ATTENTION = "attention"
SHORTEST = 64
HEAD = 64


def lengths(tokens: int) -> list[int]:
    """The lengths, from 64 on, of which equal sequences of so many tokens can be made.

    Raises:
        ValueError: fewer than 64 tokens.
    """
    if tokens < SHORTEST:
        raise ValueError(f"expected at least {SHORTEST} tokens, got {tokens}")
    return [n for n in range(SHORTEST, tokens + 1) if tokens % n == 0]


def sublayers(
    length: int, *, tokens: int, width: int, gradients: bool, device: str = "cpu"
) -> dict[str, Workload]:
    """The work of both sublayers on `tokens / length` sequences, forward or forward and backward.

    Heads are 64 wide (one head where the stream is narrower), the network is four times as wide as the stream
    and bends by GELU. Attention runs without a mask in PyTorch's fused kernel; forward also with a causal mask,
    and written out, scores and weights as matrices that are stored.
    """
    torch.manual_seed(0)
    attention: nn.Module = MultiHeadAttention(width, max(1, width // HEAD)).to(device)
    network: nn.Module = FeedForward(width, 4 * width, activation="gelu").to(device)
    x = torch.randn(tokens // length, length, width, device=device)
    if gradients:
        return {
            NETWORK: _both_ways(network, x, device),
            ATTENTION: _both_ways(attention, x, device),
        }

    def forward(layer: nn.Module, **how: bool) -> Workload:
        def work() -> None:
            with torch.inference_mode(), _precision(device):
                layer(x, **how)

        return work

    def written_out() -> None:
        with (
            torch.inference_mode(),
            _precision(device),
            capture(attention, "pattern", transform=lambda pattern: pattern[:0]),
        ):
            attention(x)

    return {
        NETWORK: forward(network),
        ATTENTION: forward(attention),
        f"{ATTENTION}, causal": forward(attention, causal=True),
        f"{ATTENTION}, written out": written_out,
    }


def _both_ways(layer: nn.Module, x: Tensor, device: str) -> Workload:
    x = x.clone().requires_grad_()
    leaves = [x, *layer.parameters()]
    given = torch.randn_like(x)

    def work() -> tuple[Tensor, ...]:
        with _precision(device):
            out = layer(x)
        return torch.autograd.grad(out, leaves, given.to(out.dtype))

    return work


def _precision(device: str) -> AbstractContextManager[None]:
    if device == "cuda":
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return nullcontext()
