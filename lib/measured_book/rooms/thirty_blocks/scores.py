"""Scores of SmolLM2's attention: how large they become, how even the weights are, and other temperatures."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.thirty_blocks.passages import BLOCKS, passages, read
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.sweeps import begin
from measured_book.smollm2.texts import DATA

FACTORS = (0.5, 0.7071, 0.8409, 1.0, 1.1892, 1.4142, 2.0, 4.0, 8.0)
"""What all scores are multiplied by: steps of a half or a quarter of an octave, and no division at all."""
FROM = 8
"""The first query that is looked at."""


@measurement(
    seeds=10, coords={"factor": FACTORS, "block": BLOCKS}, pretrained=NEEDS, data=DATA,
)  # fmt: skip
@torch.no_grad()
def scores(seed: int) -> dict[str, Any]:
    """Loss with all scores multiplied, the largest weight of a row and its entropy; scores by block."""
    texts, _ = passages(seed, 64, 2)
    loss, largest, sink, entropy = [], [], [], []
    for factor in FACTORS:
        with (
            intervene(smollm2(), {"blocks.*.attention.scores": times(factor)}),
            capture(smollm2(), "blocks.*.attention.pattern") as seen,
        ):
            state = begin(texts).states[-1]
        patterns = torch.stack([seen[f"blocks.{i}.attention.pattern"] for i in range(len(BLOCKS))])
        rows = patterns[..., FROM:, :].double()
        loss.append(float(read(state, texts)[0].double().mean()))
        largest.append(rows[..., 1:].amax(-1).mean((1, 2, 3)))
        sink.append(rows[..., 0].mean((1, 2, 3)))
        entropy.append(evenness(rows).mean((1, 2, 3)))
    with capture(smollm2(), "blocks.*.attention.scores") as raw:
        begin(texts)
    spread, height = zip(
        *(spreads(raw[f"blocks.{i}.attention.scores"]) for i in range(len(BLOCKS))), strict=True
    )
    return {
        "loss": ("factor", loss),
        "largest": ("factor", torch.stack(largest).mean(1)),
        "sink": ("factor", torch.stack(sink).mean(1)),
        "entropy": (("factor", "block"), torch.stack(entropy)),
        "spread": ("block", list(spread)),
        "height": ("block", list(height)),
    }


def times(factor: float) -> Callable[[Tensor], Tensor]:
    """A change that multiplies all scores."""
    return lambda scores: factor * scores


def evenness(
    rows: Float[Tensor, "block text head query key"],
) -> Float[Tensor, "block text head query"]:
    """The entropy of each row over the largest it can have; queries begin at `FROM`."""
    seen = torch.arange(FROM + 1, rows.shape[-1] + 1, dtype=torch.float64)
    return torch.special.entr(rows).sum(-1) / seen.log()


def spreads(raw: Float[Tensor, "text head query key"]) -> tuple[float, float]:
    """Standard deviation of scores within a row, the first key left out, and the largest score of a row."""
    n = raw.shape[-1]
    allowed = torch.ones(n, n, dtype=torch.bool).tril()
    allowed[:, 0] = False
    rows = raw.double().masked_fill(~allowed, math.nan)[..., FROM:, :]
    mean = rows.nanmean(-1, keepdim=True)
    spread = (rows - mean).square().nanmean(-1).sqrt().mean()
    return float(spread), float(rows.nan_to_num(-math.inf).amax(-1).mean())
