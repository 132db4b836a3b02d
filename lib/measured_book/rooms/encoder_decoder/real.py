"""What a source is worth to SmolLM2, which has no encoder: texts with and without their beginnings."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from measured_book.measuring import measurement
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.texts import DATA, KINDS, draw

SOURCES = ("own", "another", "none")
"""What stands before the second half of a text: its first half, that of the next text, or nothing."""
TEXTS, HALF = 3, 24
"""Texts of each kind, and tokens of a half."""


@torch.no_grad()
def losses(
    first: Int[Tensor, "text begun"], rest: Int[Tensor, "text place"]
) -> Float[Tensor, "text place"]:
    """Nats for each token of the rest behind its beginning, but for the first, which nothing announces."""
    model = smollm2().model
    logits = model(torch.cat((first, rest), 1))[:, first.shape[1] : -1]
    answers = rest[:, 1:]
    found = F.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="none")
    return found.view_as(answers)


@measurement(
    seeds=10, coords={"source": SOURCES}, tolerance={"loss": 0.1}, pretrained=NEEDS, data=DATA
)
def told(seed: int) -> dict[str, Any]:
    """Nats per token of a text's second half behind its first half, behind another one, and behind none."""
    loss = dict.fromkeys(SOURCES, 0.0)
    for kind in KINDS:
        texts = draw(seed, kind, TEXTS, 2 * HALF + 1, first="end")
        opening, source, rest = texts[:, :1], texts[:, 1 : HALF + 1], texts[:, HALF + 1 :]
        befores = (
            torch.cat((opening, source), 1),
            torch.cat((opening, source.roll(1, 0)), 1),
            opening,
        )
        for name, before in zip(SOURCES, befores, strict=True):
            loss[name] += float(losses(before, rest).double().mean()) / len(KINDS)
    return {"loss": ("source", [loss[name] for name in SOURCES])}
