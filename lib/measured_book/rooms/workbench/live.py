"""The two live models of the page: bytes of a reference manual, and small stories in pieces.

The weights of the first are kept with the results of *Language models*, those of the second with those of this
chapter; nothing is trained here.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from measured_transformer.analysis.lens import TunedLens
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.byte_pairs import Merge, encode
from measured_transformer.viewer.live import Live, LiveChoice, live, live_choice
from torch import Tensor
from xarray import DataArray, Dataset

from measured_book.evidence.results import load_result
from measured_book.rooms.workbench.byte_model import (
    CONFIG,
    byte_model,
    drawn_windows,
    kept_sentences,
)
from measured_book.rooms.workbench.measure import STORY, from_eight_bits
from measured_book.rooms.workbench.stories import text_of

__all__ = [
    "CONFIG",
    "STORY_TEXTS",
    "TEXTS",
    "byte_model",
    "kept_sentences",
    "kept_stories",
    "live_byte_model",
    "live_models",
    "live_story_model",
    "story_merges",
    "story_model",
]

TEXTS = (
    "the object must be a class. the object must be a c",
    "If the value is not None, the method returns the v",
    "The import statement raises an ",
    "class Point:\n    def __init__(self, x, y):\n        self.x = ",
)
"""What a reader may pick for the byte model."""
STORY_TEXTS = (
    "Once there was a brave girl named Zumi. Zumi and Leo were friends. Zumi had a red kite. "
    "Leo had a drum. Zumi gave the kite to Leo. Who has the kite?",
    'Tom had a blue box. Mia had a green cup. "The keys near the box',
    "The opposite of hot is cold. The opposite of big is",
    'The magic words were "Vuta red lamisol bell." Anna said them: "Vuta',
    "A cow says moo. A duck says",
)
"""What a reader may pick for the teller of stories."""
ORIGIN = """from measured_book.rooms.workbench.live import byte_model, kept_sentences

model, kept = byte_model(), kept_sentences()"""
STORY_ORIGIN = """from measured_book.rooms.workbench.live import kept_stories, story_model

model, kept = story_model(), kept_stories()"""


@functools.cache
def _teller() -> Dataset:
    return load_result("workbench", "teller").isel(seed=0)


def _bytes(words: DataArray, kind: Any) -> np.ndarray:
    """The small numbers that `measure.as_words` has packed, and zeros behind them."""
    return np.ascontiguousarray(words.values, dtype=np.int64).view(kind)


@functools.cache
def story_model() -> Decoder:
    """The teller of stories, as it is kept."""
    count = sum(each.numel() for each in Decoder(STORY).parameters())
    codes = _bytes(_teller().weights, np.int8)[:count]
    return from_eight_bits(STORY, codes.astype(np.int64), _teller().scales.values)


@functools.cache
def story_merges() -> tuple[Merge, ...]:
    """The merges that make the pieces of the stories."""
    return tuple((int(left), int(right)) for left, right in _teller().merges.values)


@functools.cache
def kept_stories() -> Int[Tensor, "sentence position"]:
    """Windows of stories that no model was trained on, drawn evenly."""
    return drawn_windows(torch.tensor(encode(text_of("test"), story_merges())))


def kept_lens(config: Config, words: DataArray) -> TunedLens:
    """The tuned lens in a result of this chapter, for a model of that config."""
    depth, width = config.n_layers, config.d_model
    flat = torch.from_numpy(_bytes(words, np.float16).copy()).float()
    weight = torch.zeros(depth + 1, width, width)
    bias = torch.zeros(depth + 1, width)
    count = depth * width**2
    weight[:-1] = flat[:count].view(depth, width, width)
    bias[:-1] = flat[count : count + depth * width].view(depth, width)
    return TunedLens(weight, bias, (np.zeros(depth + 1), np.zeros(depth + 1)))


@functools.cache
def live_byte_model() -> Live:
    """The byte model in a page, for readers to experiment with."""
    return live(
        byte_model(),
        TEXTS,
        lens=kept_lens(CONFIG, load_result("workbench", "byte_lens").isel(seed=0).lens),
        kept=kept_sentences(),
        steer=("The method returns a list", "The method returns None."),
        origin=ORIGIN,
        title="The book's language model, live",
    )


@functools.cache
def live_story_model() -> Live:
    """The teller of stories in a page."""
    return live(
        story_model(),
        STORY_TEXTS,
        merges=story_merges(),
        lens=kept_lens(STORY, _teller().lens),
        bits=8,
        kept=kept_stories(),
        steer=("Tom was happy", "Tom was sad"),
        origin=STORY_ORIGIN,
        title="The teller of stories, live",
    )


def live_models() -> LiveChoice:
    """Both models in one component, between which a reader switches."""
    return live_choice(
        {
            "A manual, in bytes": live_byte_model(),
            "Small stories, in pieces": live_story_model(),
        },
        title="The book's language models, live",
    )
