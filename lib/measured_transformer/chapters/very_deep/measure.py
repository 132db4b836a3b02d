"""What the blocks of a very deep model do to the stream."""

from __future__ import annotations

import copy

from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder


def only_first(model: Decoder | Encoder, blocks: int) -> Decoder | Encoder:
    """A copy of the model that has only its first blocks; what they leave is read as the last state was.

    Raises:
        ValueError: when the model has fewer blocks, or less than one is asked for.
    """
    if not 1 <= blocks <= len(model.blocks):
        raise ValueError(f"expected between 1 and {len(model.blocks)} blocks, got {blocks}")
    cut = copy.deepcopy(model)
    cut.blocks = cut.blocks[:blocks]
    cut.config = model.config.replace(n_layers=blocks)
    return cut
