"""A linear map from early states to the last ones, fitted on other texts: a lens in the basis of the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

PENALTIES = (0.01, 0.1, 1.0, 10.0)
"""Penalties that are tried, in units of the mean square of an entry."""


def linear_map(
    x: Float[Tensor, "place d_model"], y: Float[Tensor, "place d_model"], fitted: int
) -> Any:
    """The map from x to y of least squares with a penalty, which is chosen on the rows that are not fitted.

    Entries are put in units of their standard deviation, so that a single large one does not decide.

    Args:
        x, y: states of the same places.
        fitted: number of rows, from the first on, that the map is fitted on.
    """
    inner, outer = x[:fitted].double(), y[:fitted].double()
    mean, spread, target = inner.mean(0), inner.std(0) + 1e-6, outer.mean(0)
    normed = (inner - mean) / spread
    values, vectors = torch.linalg.eigh(normed.T @ normed / fitted)
    crossed = vectors.T @ (normed.T @ (outer - target) / fitted)

    def mapping(penalty: float) -> Any:
        weight = vectors @ (crossed / (values.clamp(min=0) + penalty)[:, None])
        return lambda state: ((state.double() - mean) / spread @ weight + target).float()

    maps = [mapping(one) for one in PENALTIES]
    missed = [float((one(x[fitted:]) - y[fitted:]).square().mean()) for one in maps]
    return maps[int(np.argmin(missed))]
