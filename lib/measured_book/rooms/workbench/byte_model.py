"""The book's byte model, as *Language models* has trained and kept it, and sentences to ask it about."""

from __future__ import annotations

import functools

import torch
from jaxtyping import Int
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.byte_pairs import tokens_of
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.evidence.kept_weights import unpacked
from measured_book.evidence.results import load_result, results_folder

CONFIG = Config(vocab=256, d_model=96, n_layers=3, n_heads=4, positions="rotary")
"""Of the model that *Language models* keeps."""
REACH = 128
"""Bytes that it has read at once."""
COUNT, LENGTH = 256, 64
"""How many kept sentences there are, and their tokens."""
FILE = results_folder("language_models") / "kept.json"
"""Where its weights are kept."""


@functools.cache
def byte_model() -> Decoder:
    """The language model of the book, as *Language models* has trained and kept it."""
    kept = load_result("language_models", "kept").weights.values
    return unpacked(kept, Decoder(CONFIG))


@functools.cache
def kept_sentences() -> Int[Tensor, "sentence position"]:
    """Windows of the part of the reference that no model was trained on, drawn evenly."""
    return drawn_windows(tokens_of(0, "test"))


def drawn_windows(text: Int[Tensor, "token"]) -> Int[Tensor, "sentence position"]:
    """As many windows of a text as there are kept sentences, drawn evenly."""
    generator = make_generator(0, "kept sentences")
    starts = torch.randint(len(text) - LENGTH, (COUNT, 1), generator=generator)
    return text[starts + torch.arange(LENGTH)]
