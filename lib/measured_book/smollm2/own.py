"""A reader's own text: its first tokens, or one sentence that says what is needed."""

from __future__ import annotations

import torch
from jaxtyping import Int
from measured_transformer.language.model import LanguageModel
from torch import Tensor

MOST = 128
"""Tokens of a text that are read, so that every cell takes less than a minute on two cores."""


def own_tokens(
    model: LanguageModel, text: str, *, least: int, times: int = 1, whole: bool = False
) -> Int[Tensor, "1 position"]:
    """The first `MOST` tokens of a text, or as many as the model reads.

    Args:
        model: any decoder with its tokenizer.
        text: of at least `least` tokens; the token of the beginning, which some models add, is one of them.
        least: how many are needed.
        times: how often the model will read them in a row.
        whole: a longer text is refused, not cut.

    Raises:
        ValueError: when the model is no language model, the text is no text, or it is shorter.
    """
    if not isinstance(model, LanguageModel):
        raise ValueError(
            "expected a language model with its tokenizer, as pretrained and LanguageModel.from_huggingface "
            f"give it, got {type(model).__name__}"
        )
    if not isinstance(text, str):
        raise ValueError(f"expected a text, got {type(text).__name__}")
    most = MOST if model.context is None else min(MOST, model.context // times)
    numbers = model.tokenizer.encode(text)
    if len(numbers) < least:
        raise ValueError(
            f"expected a text of at least {least} tokens, got {len(numbers)}: {text!r}"
        )
    if whole and len(numbers) > most:
        raise ValueError(f"expected a text of at most {most} tokens, got {len(numbers)}")
    return torch.tensor([numbers[:most]], device=next(model.parameters()).device)
