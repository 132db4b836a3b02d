"""The book's language model live in a page: the byte model of *Language models*, with texts and kept sentences.

The model reads bytes of the Python reference. Its weights are kept with the results of that chapter; nothing is
trained here.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from jaxtyping import Int
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.byte_pairs import tokens_of
from measured_transformer.training.seeding import make_generator
from measured_transformer.viewer.live import Live, live
from torch import Tensor

from measured_book.evidence.results import load_results

CONFIG = Config(vocab=256, d_model=96, n_layers=3, n_heads=4, positions="rotary")
"""Of the model that *Language models* keeps."""
COUNT, LENGTH = 256, 64
"""How many kept sentences there are, and their bytes."""
TEXTS = (
    "the object must be a class. the object must be a c",
    "If the value is not None, the method returns the v",
    "The import statement raises an ",
    "class Point:\n    def __init__(self, x, y):\n        self.x = ",
)
"""What a reader may pick."""
ORIGIN = """from measured_book.rooms.workbench.live import byte_model, kept_sentences

model, kept = byte_model(), kept_sentences()"""


@functools.cache
def byte_model() -> Decoder:
    """The language model of the book, as *Language models* has trained and kept it."""
    kept = load_results("language_models")["kept"].weights.values.reshape(-1)
    words = np.ascontiguousarray(kept, dtype=np.int64)
    flat = torch.from_numpy(words.view(np.float16).copy()).float()
    model = Decoder(CONFIG)
    state = model.state_dict()
    parts = flat[: sum(x.numel() for x in state.values())].split(
        [x.numel() for x in state.values()]
    )
    model.load_state_dict(
        {name: part.view(x.shape) for (name, x), part in zip(state.items(), parts, strict=True)}
    )
    return model.eval()


@functools.cache
def kept_sentences() -> Int[Tensor, "sentence position"]:
    """Windows of the part of the reference that no model was trained on, drawn evenly."""
    text = tokens_of(0, "test")
    generator = make_generator(0, "kept sentences")
    starts = torch.randint(len(text) - LENGTH, (COUNT, 1), generator=generator)
    return text[starts + torch.arange(LENGTH)]


def live_byte_model() -> Live:
    """The model in a page, for readers to experiment with."""
    return live(
        byte_model(),
        TEXTS,
        kept=kept_sentences(),
        steer=("The method returns a list", "The method returns None."),
        origin=ORIGIN,
        title="The book's language model, live",
    )
