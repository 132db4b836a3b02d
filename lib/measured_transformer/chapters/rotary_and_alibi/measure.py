"""Rotary positions: what a common shift of query and key leaves of their score, and what rounding does."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.positions import frequencies, rotation
from measured_transformer.training.seeding import seeded


def rotary_scores(
    queries: Float[Tensor, "pair_of_positions d_head"],
    keys: Float[Tensor, "pair_of_positions d_head"],
    query_positions: Int[Tensor, "pair_of_positions"],
    key_positions: Int[Tensor, "pair_of_positions"],
    *,
    dtype: torch.dtype = torch.float64,
    angles_in_dtype: bool = False,
) -> Float[Tensor, "pair_of_positions"]:
    """Score q . k / sqrt(d_head) of each query with its key, both rotated, computed in `dtype`.

    Args:
        queries, keys: one row for each pair of positions, not yet rotated.
        query_positions, key_positions: where they stand.
        dtype: of vectors, cosines, sines and the sum.
        angles_in_dtype: compute positions, frequencies and angles in `dtype` too, as some code does; the
            library computes them in float64.

    Returns:
        float64 scores.
    """
    d_head = queries.shape[-1]
    turned = []
    for x, positions in ((queries, query_positions), (keys, key_positions)):
        if angles_in_dtype:
            angles = positions.to(dtype)[:, None] * frequencies(d_head).to(dtype)
            cos, sin = angles.double().cos().to(dtype), angles.double().sin().to(dtype)
            even, odd = x.to(dtype)[:, 0::2], x.to(dtype)[:, 1::2]
            turned.append(torch.cat((even * cos - odd * sin, even * sin + odd * cos), dim=-1))
        else:
            turn = rotation(positions, d_head, dtype=dtype)
            turned.append(turn.apply(x.to(dtype)[None, None])[0, 0])
    return (turned[0] * turned[1]).sum(-1).double() / math.sqrt(d_head)


@dataclass(frozen=True)
class Drift:
    """What a common shift does to rotary scores.

    Attributes:
        error: at each shift, the largest change of a score, 0 if only the offset counts.
        control: at each shift above zero, the largest change when the query alone is shifted.
    """

    error: Float[ndarray, "shift"]
    control: Float[ndarray, "shift"]


def rotary_drift(
    shifts: list[int],
    *,
    dtype: torch.dtype,
    angles_in_dtype: bool = False,
    seed: int = 0,
    pairs: int = 200,
    d_head: int = 64,
) -> Drift:
    """Shift queries and keys at random places together and see how far their scores move.

    The entries of queries and keys are standard normal, so the scores have standard deviation one. Scores
    are compared with those at shift zero in the same precision.
    """
    generator = torch.Generator().manual_seed(seed)
    queries, keys = torch.randn(2, pairs, d_head, generator=generator, dtype=torch.float64)
    places = torch.randint(0, 128, (2, pairs), generator=generator)

    def score(query_shift: int, key_shift: int) -> Tensor:
        return rotary_scores(
            queries,
            keys,
            places[0] + query_shift,
            places[1] + key_shift,
            dtype=dtype,
            angles_in_dtype=angles_in_dtype,
        )

    unshifted = score(0, 0)
    error = [(score(k, k) - unshifted).abs().max().item() for k in shifts]
    control = [(score(k, 0) - unshifted).abs().max().item() for k in shifts if k]
    return Drift(np.array(error), np.array(control))


@torch.no_grad()
def score_map(config: Config, n: int, *, seed: int = 0) -> Float[Tensor, "query key"]:
    """Scores of the first head of an untrained encoder when the same token stands at all n positions.

    The tokens being equal, whatever differs between two scores comes from the positions.
    """
    with seeded(seed):
        model = Encoder(config).eval()
    tokens = torch.zeros(1, n, dtype=torch.long)
    with capture(model, "blocks.0.attention.scores") as seen:
        model(tokens)
    return seen["blocks.0.attention.scores"][0, 0]
