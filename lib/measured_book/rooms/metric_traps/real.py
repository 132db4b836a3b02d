"""Teacher forcing on SmolLM2: the next token of a text, given the text or given what the model wrote."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Int
from measured_transformer.inference.generate import Greedy, generate
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.texts import DATA, KINDS, draw

WAYS = ("forced", "by itself")
TEXTS, BEGUN, GOES_ON = 2, 32, 24
"""Texts of each kind; tokens that the model is given; tokens of the text that follow."""


@torch.no_grad()
def right(texts: Int[Tensor, "text position"], begun: int) -> Bool[Tensor, "way text place"]:
    """Whether the likeliest token is that of the text, behind the text and behind what the model wrote."""
    model = smollm2().model
    forced = model(texts)[:, begun - 1 : -1].argmax(-1)
    more = texts.shape[1] - begun
    written = generate(
        model, texts[:, :begun], max_new_tokens=more, strategy=Greedy(), stop=None
    ).tokens
    return torch.stack([forced, torch.stack(written)]) == texts[:, begun:]


@measurement(
    seeds=10,
    coords={"way": WAYS},
    tolerance={"right": 0.05, "last": 0.1},
    pretrained=NEEDS,
    data=DATA,
)
def by_itself(seed: int) -> dict[str, Any]:
    """The share of 24 tokens of a text that SmolLM2 finds, given those before or writing by itself.

    ``last``: the same for the second half of these tokens.
    """
    texts = torch.cat([draw(seed, kind, TEXTS, BEGUN + GOES_ON, first="end") for kind in KINDS])
    found = right(texts, BEGUN).double()
    return {
        "right": ("way", found.mean((1, 2))),
        "last": ("way", found[:, :, GOES_ON // 2 :].mean((1, 2))),
    }
