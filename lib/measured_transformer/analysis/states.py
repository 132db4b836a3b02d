"""Statistics of the residual stream's states: their size, and how far each turns from the last."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor


def rms(states: Float[Tensor, "state batch position d_model"]) -> Float[ndarray, "state"]:
    """Root mean square of the entries of each state."""
    found: ndarray = states.square().mean(dim=(1, 2, 3)).sqrt().detach().cpu().numpy()
    return found


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
