"""Statistics of the residual stream's states: their size, and how far each turns from the last."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from measured_transformer.internals.places import Places, select


def of_positions(
    states: Float[Tensor, "state batch position d_model"], positions: Places | None
) -> Float[Tensor, "state batch chosen d_model"]:
    """The states of some positions; of all, as they are, when None.

    Raises:
        ValueError: when a position lies outside, or none is left.
    """
    if positions is None:
        return states
    chosen = select("positions", positions, states.shape[2])
    if not len(chosen):
        raise ValueError(f"expected at least one of {states.shape[2]} positions, got none")
    return states.index_select(2, chosen.to(states.device))


def rms(states: Float[Tensor, "state batch position d_model"]) -> Float[ndarray, "state"]:
    """Root mean square of the entries of each state."""
    found: ndarray = states.square().mean(dim=(1, 2, 3)).sqrt().detach().cpu().numpy()
    return found


@torch.no_grad()
def turns(
    states: Float[Tensor, "state batch position d_model"], *, positions: Places | None = None
) -> Float[ndarray, "turn"]:
    """The angle between each state of the stream and the next, in degrees, averaged over all tokens.

    The length plays no part: a norm that follows would remove it anyway.

    Args:
        states: of the stream, in order.
        positions: which are averaged over; all when None. `slice(1, None)` leaves out the first, where large
            models keep a sink that moves otherwise than all other tokens.

    Raises:
        ValueError: when there are fewer than two states, or a position lies outside.
    """
    states = of_positions(states, positions)
    if len(states) < 2:
        raise ValueError(f"expected at least two states, got {len(states)}")
    before, after = states[:-1].double(), states[1:].double()
    # by the tangent of half the angle, which small angles do not round away as their cosine does
    a = before / before.norm(dim=-1, keepdim=True)
    b = after / after.norm(dim=-1, keepdim=True)
    angle = 2 * torch.atan2((a - b).norm(dim=-1), (a + b).norm(dim=-1))
    degrees: ndarray = np.degrees(angle.mean(dim=(1, 2)).cpu().numpy())
    return degrees
