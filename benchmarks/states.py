"""Layers whose state has a fixed size beside softmax attention: linear attention and the delta rule."""

from __future__ import annotations

import torch
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.variants.delta import DeltaRule
from measured_transformer.variants.linear import LinearAttention
from torch import nn

from benchmarks.measure import Workload

SOFTMAX, LINEAR, DELTA = "softmax, fused", "linear", "delta rule"
WIDTH, HEAD = 256, 64


def states(length: int, *, device: str = "cpu") -> dict[str, Workload]:
    """Forward and backward pass of a causal layer of each kind on one text, by the products of all pairs.

    Four heads of 64 in a stream of 256. Softmax attention runs in PyTorch's fused kernel; the other two are as
    the library trains them, in PyTorch's operations, so they are what a reader pays here and not what kernels
    written for them take, which go through a text in pieces.
    """
    torch.manual_seed(0)
    made: dict[str, nn.Module] = {
        SOFTMAX: MultiHeadAttention(WIDTH, WIDTH // HEAD),
        LINEAR: LinearAttention(MultiHeadAttention(WIDTH, WIDTH // HEAD)),
        DELTA: DeltaRule(MultiHeadAttention(WIDTH, WIDTH // HEAD)),
    }
    x = torch.randn(1, length, WIDTH, device=device)
    given = torch.randn_like(x)

    def work(layer: nn.Module) -> Workload:
        leaves = [x.clone().requires_grad_(), *layer.parameters()]

        def both_ways() -> None:
            torch.autograd.grad(layer(leaves[0], causal=True), leaves, given)

        return both_ways

    return {name: work(layer.to(device)) for name, layer in made.items()}
