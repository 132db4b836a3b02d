"""The one model of the part *A real language model*: SmolLM2-135M-Instruct, 4 bits, loaded once a process."""

from __future__ import annotations

from functools import cache

import torch
from measured_transformer.language.model import LanguageModel
from measured_transformer.language.published import PUBLISHED, pretrained

NAME = "smollm2-135m-instruct"
"""What `measured_transformer.language.published` calls it; every verdict is scoped to it, instruct, 4 bits."""
NEEDS = (NAME,)
"""For ``@measurement(pretrained=NEEDS)``: a repeat leaves the measurement out where the package is missing."""


@cache
def smollm2() -> LanguageModel:
    """The model with its tokenizer, in evaluation mode, float32, without gradients; every caller gets the same.

    Loading takes some ten seconds and half a gigabyte that stays. Nobody may change its weights: for another
    model take `controls.same_spectrum`, or copy it.

    Raises:
        ImportError: when the package that holds the weights, or one that reads them, is missing; the message
            has the command that installs it.
        MemoryError: when this machine has too little memory left, before anything is loaded.
        ValueError: when the file of the weights is damaged or another one.
    """
    found = pretrained(NAME, dtype=torch.float32)
    assert isinstance(found, LanguageModel)
    found.model.eval()
    return found.eval().requires_grad_(False)


def is_installed() -> bool:
    """Whether the package is there; its file is checked when the model is loaded."""
    return PUBLISHED[NAME].is_installed()
