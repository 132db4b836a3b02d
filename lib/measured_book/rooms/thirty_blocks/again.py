"""Three questions that ten draws of texts left open, asked on draws that nobody had looked at."""

from __future__ import annotations

from typing import Any

import torch
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from torch.nn import functional as F

from measured_book.measuring import measurement
from measured_book.rooms.thirty_blocks.order import OTHERS, changed, inner, onward
from measured_book.rooms.thirty_blocks.passages import BLOCKS, by_variant, passages, read
from measured_book.rooms.thirty_blocks.scores import FROM, times
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.sweeps import begin
from measured_book.smollm2.texts import DATA

FRESH = 2000
"""What is added to a seed, so that its draw is a new one."""
MIDDLE = BLOCKS[2:28]
"""Blocks 3 to 28, which LT-63.6 asks about."""
RUN = 4
UNDIVIDED = (1.0, 8.0)
"""Factors on all scores: as they are, and without the division by the root of 64."""


@measurement(
    seeds=20, coords={"block": MIDDLE}, pretrained=NEEDS, data=DATA, tolerance={"same": 0.05},
)  # fmt: skip
def out_again(seed: int) -> dict[str, Any]:
    """Predictions that stay with one of the middle blocks left out, on fresh draws."""
    texts, _ = passages(seed + FRESH, 48, 2)
    sweep = begin(texts)
    stack = onward(sweep, [changed("out", block - 1) for block in MIDDLE])
    usual = read(sweep.states[-1], texts)[1]
    stays = read(stack, texts)[1] == usual.repeat(len(MIDDLE), 1)
    return {"same": ("block", by_variant(stays, len(texts)))}


@measurement(seeds=30, pretrained=NEEDS, data=DATA, tolerance={"place": 28.0})
def place_again(seed: int) -> dict[str, Any]:
    """The first block of the run of 4 whose ends are most alike, on fresh draws."""
    _, others = passages(seed + FRESH, 48, 2, OTHERS)
    ends = begin(others).states[:, :, -1]
    firsts = list(inner(RUN))
    cosine = F.cosine_similarity(ends[firsts], ends[[first + RUN for first in firsts]], dim=-1)
    angle = cosine.clamp(-1, 1).arccos().mean(1)
    return {"place": firsts[int(angle.argmin())] + 1.0}


@measurement(seeds=60, coords={"factor": UNDIVIDED}, pretrained=NEEDS, data=DATA)
@torch.no_grad()
def largest_again(seed: int) -> dict[str, Any]:
    """The largest weight of a row behind the first key, with scores divided and undivided, on fresh draws."""
    texts, _ = passages(seed + FRESH, 64, 2)
    largest = []
    for factor in UNDIVIDED:
        with (
            intervene(smollm2(), {"blocks.*.attention.scores": times(factor)}),
            capture(smollm2(), "blocks.*.attention.pattern") as seen,
        ):
            begin(texts)
        rows = torch.stack([pattern[..., FROM:, 1:].amax(-1) for pattern in seen.values()])
        largest.append(float(rows.double().mean()))
    return {"largest": ("factor", largest)}
