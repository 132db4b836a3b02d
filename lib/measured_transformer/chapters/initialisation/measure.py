"""How large fresh weights are, and what becomes of signals that pass through them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from measured_transformer.analysis.gradients import stream_gradients
from measured_transformer.analysis.residual import ledger
from measured_transformer.analysis.states import rms
from measured_transformer.internals.capture import capture
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.tasks.task import Batch
from measured_transformer.training.seeding import seeded


class Gains(NamedTuple):
    """What one matrix does to the mean square of what passes it.

    Attributes:
        forward: of the row that it is multiplied with.
        backward: of the gradient on its way down.
    """

    forward: float
    backward: float


def gains(d_in: int, d_out: int, variance: float) -> Gains:
    """Expected gains of a matrix of independent entries with mean zero and this variance.

    An output entry is a sum of `d_in` products, an entry of the gradient handed down one of `d_out`.

    >>> gains(4, 4, 0.25)
    Gains(forward=1.0, backward=1.0)

    Raises:
        ValueError: when a width is not positive or the variance negative.
    """
    if d_in < 1 or d_out < 1 or variance < 0:
        raise ValueError(
            "expected positive widths and a variance of at least 0, got "
            f"d_in={d_in}, d_out={d_out}, variance={variance}"
        )
    return Gains(d_in * variance, d_out * variance)


def xavier_variance(d_in: int, d_out: int) -> float:
    """Variance with which forward and backward gain have the mean 1 (Glorot and Bengio 2010, equation 12).

    >>> gains(768, 3072, xavier_variance(768, 3072))
    Gains(forward=0.4, backward=1.6)

    Raises:
        ValueError: when a width is not positive.
    """
    if d_in < 1 or d_out < 1:
        raise ValueError(f"expected positive widths, got d_in={d_in}, d_out={d_out}")
    return 2 / (d_in + d_out)


def through_matrices(
    depth: int,
    width: int,
    factor: float,
    *,
    activation: Literal["none", "relu"] = "none",
    seed: int,
    rows: int = 64,
) -> Float[ndarray, "layer"]:
    """Root mean square of normal rows before the first of `depth` random square matrices and after each.

    Args:
        depth: number of matrices.
        width: of rows and matrices.
        factor: the entries' deviation is this over the root of the width, so that 1 is Xavier.
        activation: what is applied after each matrix.
        seed: of matrices and rows.
        rows: how many are sent through.

    Raises:
        ValueError: for another activation.
    """
    if activation not in ("none", "relu"):
        raise ValueError(f"activation must be none or relu, got {activation!r}")
    with seeded(seed):
        x = torch.randn(rows, width, dtype=torch.float64)
        sizes = [float(x.square().mean().sqrt())]
        for _ in range(depth):
            x = x @ torch.randn(width, width, dtype=torch.float64) * (factor / math.sqrt(width))
            x = x.relu() if activation == "relu" else x
            sizes.append(float(x.square().mean().sqrt()))
    return np.array(sizes)


@dataclass(frozen=True)
class Passage:
    """A forward and a backward pass through an untrained model.

    Attributes:
        stream: root mean square of the residual stream, the embedding first, then after each sublayer.
        gradients: mean length of the loss gradient at the same states.
    """

    stream: Float[ndarray, "state"]
    gradients: Float[ndarray, "state"]


def passage(model: Decoder | Encoder, batch: Batch) -> Passage:
    """How large the stream and its gradients are at each state, for one batch.

    In float32, twelve layers of large weights leave the range of numbers: pass `model.double()`. Patterns are
    watched so that attention is written out: the fused kernel's backward pass recomputes them from sums of
    exponentials, which rounding spoils where scores are huge.
    """
    states = ledger(model, batch.inputs).states
    with capture(model, "blocks.*.attention.pattern"):
        return Passage(rms(states), stream_gradients(model, batch))


def powers_of_ten(values: Float[ndarray, "seed state"]) -> Float[ndarray, "seed"]:
    """Powers of ten from the first to the last state: negative for what vanishes."""
    found: ndarray = np.log10(values[:, -1] / values[:, 0])
    return found
