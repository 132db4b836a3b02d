"""The texts of *Thirty blocks*, and how they are read: drawn by kind, judged from the ninth token on."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from measured_transformer.models.decoder import Decoder
from torch import Tensor
from torch.nn import functional as F

from measured_book.smollm2.model import smollm2
from measured_book.smollm2.texts import KINDS, draw

BLOCKS = tuple(range(1, 31))
"""The blocks of SmolLM2, counted from 1."""
HEADS = tuple(range(1, 10))
"""The heads of a block, counted from 1."""
LATER = 7
"""Losses before this one are left out: what is judged begins with the ninth token of a text."""
CHUNK = 256
"""Positions whose logits are there at once."""


def passages(
    seed: int, tokens: int, judged: int, others: int = 0
) -> tuple[Int[Tensor, "text position"], Int[Tensor, "other position"]]:
    """Texts that are judged, and other texts of the same draw: by turns from the reference and from the book.

    All stand behind the token that parts texts in pretraining, so that none has a first token of its own.

    Args:
        seed: of the draw.
        tokens: length of each, with its first token.
        judged, others: numbers of texts, both even.
    """
    rows = [
        draw(seed, kind, (judged + others) // len(KINDS), tokens, first="end") for kind in KINDS
    ]
    mixed = torch.stack(rows, 1).flatten(0, 1)
    return mixed[:judged], mixed[judged:]


@torch.no_grad()
def read(
    state: Float[Tensor, "row position d_model"],
    tokens: Int[Tensor, "text position"],
    *,
    model: Decoder | None = None,
    every: int = 1,
) -> tuple[Float[Tensor, "row target"], Int[Tensor, "row target"]]:
    """Losses and most likely tokens from the ninth token on, of a stack of variants of the same texts.

    Args:
        state: the stream after the last block, the texts one variant after another.
        tokens: of the texts.
        model: SmolLM2 when not given.
        every: of how many targets one is judged.
    """
    model = smollm2() if model is None else model
    answers = tokens[:, LATER + 1 :: every]
    seen = state[:, LATER:-1:every]
    right = answers.repeat(len(state) // len(tokens), 1)
    losses, likely = [], []
    for some, wanted in zip(
        seen.flatten(0, 1).split(CHUNK), right.flatten().split(CHUNK), strict=True
    ):
        logits = model.unembed(some[None])[0].float()
        losses.append(F.cross_entropy(logits, wanted, reduction="none"))
        likely.append(logits.argmax(-1))
    return torch.cat(losses).view(right.shape), torch.cat(likely).view(right.shape)


def by_variant(values: Tensor, texts: int) -> Any:
    """The mean of each variant over its texts and targets, in double precision."""
    return values.double().unflatten(0, (-1, texts)).mean((1, 2)).numpy()
