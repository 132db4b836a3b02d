"""What the blocks of a very deep model do to the stream."""

from __future__ import annotations

import copy

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder


@torch.no_grad()
def turns(states: Float[Tensor, "state batch position d_model"]) -> Float[ndarray, "turn"]:
    """The angle between each state of the stream and the next, in degrees, averaged over all tokens.

    The length plays no part: a norm that follows would remove it anyway.

    Raises:
        ValueError: when there are fewer than two states.
    """
    if len(states) < 2:
        raise ValueError(f"expected at least two states, got {len(states)}")
    before, after = states[:-1].double(), states[1:].double()
    # by the tangent of half the angle, which small angles do not round away as their cosine does
    a = before / before.norm(dim=-1, keepdim=True)
    b = after / after.norm(dim=-1, keepdim=True)
    angle = 2 * torch.atan2((a - b).norm(dim=-1), (a + b).norm(dim=-1))
    degrees: ndarray = np.degrees(angle.mean(dim=(1, 2)).cpu().numpy())
    return degrees


def only_first(model: Decoder | Encoder, blocks: int) -> Decoder | Encoder:
    """A copy of the model that has only its first blocks; what they leave is read as the last state was.

    Raises:
        ValueError: when the model has fewer blocks, or less than one is asked for.
    """
    if not 1 <= blocks <= len(model.blocks):
        raise ValueError(f"expected between 1 and {len(model.blocks)} blocks, got {blocks}")
    cut = copy.deepcopy(model)
    cut.blocks = cut.blocks[:blocks]
    cut.config = model.config.but(n_layers=blocks)
    return cut
