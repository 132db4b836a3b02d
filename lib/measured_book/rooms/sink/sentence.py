"""What a reader's own text shows: how much weight its first token gets, block by block."""

from __future__ import annotations

import torch
from measured_transformer.internals.capture import capture
from measured_transformer.language.model import LanguageModel

from measured_book.smollm2.own import own_tokens

SINCE = 4
"""The first query that counts, from 0: earlier ones have few other tokens to look at."""


@torch.no_grad()
def to_first(model: LanguageModel, text: str) -> str:
    """The mean weight on the first token in each block, over heads and later queries.

    Args:
        model: any decoder with its tokenizer.
        text: of five tokens or more, of which the first 128 are read.

    Raises:
        ValueError: when the text is shorter, or the model no language model.
    """
    tokens = own_tokens(model, text, least=SINCE + 1)
    with capture(model.model, "blocks.*.attention.pattern") as seen:
        model.model(tokens)
    weights = [pattern[0, :, SINCE:, 0].mean() for pattern in seen.values()]
    return " ".join(f"{weight:.1f}" for weight in weights)
