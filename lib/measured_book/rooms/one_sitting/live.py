"""The chapter's model live in its page: what its heads look at in any text that a reader types."""

from __future__ import annotations

import functools

import torch
from jaxtyping import Int
from measured_transformer.models.decoder import Decoder
from measured_transformer.training.seeding import make_generator
from measured_transformer.viewer.live import Live, live
from torch import Tensor

from measured_book.evidence.kept_weights import unpacked
from measured_book.evidence.results import load_result
from measured_book.rooms.one_sitting.measure import LENGTH, MODEL, alphabet, encode, part_of

TEXTS = (
    "The value of the object is the object",
    "If the list is empty, the statement raises an exception",
    "def __init__(self, name):",
)
"""What a reader may pick."""
COUNT = 64
"""How many kept sentences there are."""
ORIGIN = """from measured_book.rooms.one_sitting.live import gpt, kept_sentences

model, kept = gpt(), kept_sentences()"""


@functools.cache
def gpt() -> Decoder:
    """The first of the chapter's six models, as it is kept."""
    return unpacked(load_result("one_sitting", "kept").weights.values, Decoder(MODEL))


@functools.cache
def kept_sentences() -> Int[Tensor, "sentence position"]:
    """Windows of the part of the text that no model was trained on, drawn evenly."""
    text = encode(part_of("test"))
    generator = make_generator(0, "kept sentences")
    starts = torch.randint(len(text) - LENGTH, (COUNT, 1), generator=generator)
    return text[starts + torch.arange(LENGTH)]


@functools.cache
def live_heads() -> Live:
    """The model in the page, to see where its heads look and what they are for."""
    return live(
        gpt(),
        TEXTS,
        tokens=list(alphabet()),
        kept=kept_sentences(),
        bits=8,
        views=("heads", "overview", "next"),
        experiments=("off",),
        origin=ORIGIN,
        title="The heads of this chapter\u2019s model, live",
    )
