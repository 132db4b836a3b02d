"""The texts of *Its numbers*, and what reading them costs."""

from __future__ import annotations

import torch
from jaxtyping import Int
from measured_transformer.models.decoder import Decoder
from torch import Tensor

from measured_book.smollm2.sweeps import losses_of
from measured_book.smollm2.texts import KINDS, draw

LENGTH = 64
SINCE = 8
"""The first position whose token is judged, from 0."""


def passages(seed: int, count: int = 1, length: int = LENGTH) -> Int[Tensor, "text position"]:
    """Texts of a draw behind the token that parts texts: the reference's, then this book's.

    Args:
        seed: of the draw.
        count: of texts of each kind.
        length: of each in tokens, with its first one.
    """
    return torch.cat([draw(seed, kind, count, length, first="end") for kind in KINDS])


def loss(model: Decoder, texts: Int[Tensor, "text position"]) -> float:
    """Nats a token from the ninth token on."""
    return float(losses_of(texts, model=model)[:, SINCE - 1 :].double().mean())
