"""One more token with and without a cache, attention fused and by its formula, blocks that run twice."""

from __future__ import annotations

import torch
from measured_transformer import Config, Decoder
from measured_transformer.inference.writer import Writer
from measured_transformer.variants.checkpointing import Checkpointed
from torch import Tensor
from torch.nn import functional as F

from benchmarks.measure import Workload

CACHED, WITHOUT = "with a cache", "without"
FUSED, FORMULA = "fused", "formula"
PLAIN, CHECKPOINTED = "plain", "checkpointed"
PREFIXES = (64, 256, 1024)
"""Tokens that stand before the one that is computed."""
LENGTHS = (256, 1024, 4096)
DEPTHS = (4, 8, 16, 32)
HEADS, HEAD = 4, 64


def steps(length: int, *, width: int, device: str = "cpu") -> dict[str, Workload]:
    """The logits behind one more token of a text, with all earlier keys and values at hand, and with none.

    A decoder of four blocks with heads of 64 and rotary positions, one text.
    """
    torch.manual_seed(0)
    config = Config(
        vocab=256,
        d_model=width,
        n_layers=4,
        n_heads=max(1, width // HEAD),
        positions="rotary",
    )
    model = Decoder(config).to(device).eval()
    text = torch.randint(256, (1, length + 1), device=device)
    with torch.inference_mode():
        writer = Writer(model, text[:, :-1], start=None, max_new_tokens=2, chunk=None)
        writer.begin()
    held, new = writer.cache.positions, text[:, -1]

    def cached() -> None:
        with torch.inference_mode():
            writer.next(new)
            writer.cache.positions = held  # and the next call finds what this one has found
            writer.cache.drop_unfinished()

    def whole() -> None:
        with torch.inference_mode():
            model.unembed(model.stream(text)[:, -1:])

    return {CACHED: cached, WITHOUT: whole}


def kernels(length: int, *, device: str = "cpu") -> dict[str, Workload]:
    """Causal attention of four heads of 64, forward and backward, in the fused kernel and by the formula."""
    torch.manual_seed(0)
    given = torch.randn(4, 1, HEADS, length, HEAD, device=device)
    leaves = [each.clone().requires_grad_() for each in given[:3]]
    hidden = torch.ones(length, length, dtype=torch.bool, device=device).triu(1)

    def both(mixed: Tensor) -> None:
        torch.autograd.grad(mixed, leaves, given[3])

    def fused() -> None:
        both(F.scaled_dot_product_attention(*leaves, is_causal=True))

    def formula() -> None:
        queries, keys, values = leaves
        scores = queries @ keys.transpose(-2, -1) * HEAD**-0.5
        both(scores.masked_fill(hidden, -float("inf")).softmax(-1) @ values)

    return {FUSED: fused, FORMULA: formula}


def checkpointed(layers: int, *, device: str = "cpu") -> dict[str, Workload]:
    """Forward and backward pass of a decoder of width 64, also with each block run again."""
    torch.manual_seed(0)
    config = Config(vocab=64, d_model=64, n_layers=layers, n_heads=4)
    tokens = torch.randint(64, (4, 65), device=device)

    def work(model: Decoder) -> Workload:
        weights = list(model.parameters())

        def step() -> None:
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            torch.autograd.grad(loss, weights)

        return step

    plain, again = (Decoder(config).to(device) for _ in range(2))
    again.load_state_dict(plain.state_dict())
    Checkpointed()(again)
    return {PLAIN: work(plain), CHECKPOINTED: work(again)}
