"""What goes wrong in a model without norms, in numbers: sizes on the stream, gradients, losses that explode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from measured_transformer.analysis.residual import ledger
from measured_transformer.analysis.solving import Solved
from measured_transformer.analysis.states import rms
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import Model, predict
from measured_transformer.training.losses import cross_entropy


def block_sizes(
    model: Decoder | Encoder, tokens: Int[Tensor, "batch position"]
) -> Float[ndarray, "block_state"]:
    """Root mean square of the stream's entries, at the embedding and after each block."""
    return rms(ledger(model, tokens).blocks)


def dimension_powers(
    model: Decoder | Encoder, tokens: Int[Tensor, "batch position"]
) -> Float[ndarray, "block_state"]:
    """Powers of ten between the largest and the smallest dimension, at the embedding and after each block.

    A dimension's size is the root mean square of its entries over tokens and sequences. Where every
    dimension is zero, as without connections behind branches of zero, none is larger than another: 0.

    Raises:
        ValueError: when some dimensions are zero and others are not.
    """
    sizes = ledger(model, tokens).blocks.double().square().mean(dim=(1, 2)).sqrt()
    return np.array([powers_apart(one.cpu().numpy()) for one in sizes])


def powers_apart(sizes: Float[ndarray, "_"]) -> float:
    """Powers of ten between the largest and the smallest of some sizes; 0 where all are zero.

    Raises:
        ValueError: for no size, one below zero or not finite, or zeros beside others.

    >>> powers_apart(np.array([0.5, 50.0, 5.0]))
    2.0
    """
    if not sizes.size or not np.isfinite(sizes).all() or sizes.min() < 0:
        raise ValueError(f"expected finite sizes of at least 0, got {sizes}")
    if sizes.max() == 0:
        return 0.0
    if sizes.min() == 0:
        raise ValueError("expected no size of zero beside others, got one: the ratio is infinite")
    return float(np.log10(sizes.max() / sizes.min()))


def block_gradients(model: Model, batch: Batch) -> Float[ndarray, "block"]:
    """Length of the loss gradient of all parameters of each block, for one batch."""
    blocks: dict[int, list[Tensor]] = {}
    for name, weight in model.named_parameters():
        if name.startswith("blocks."):
            blocks.setdefault(int(name.split(".")[1]), []).append(weight)
    weights = [weight for i in sorted(blocks) for weight in blocks[i]]
    with torch.enable_grad():
        loss = cross_entropy(predict(model, batch), batch.targets, batch.scored)
        found = iter(torch.autograd.grad(loss, weights))
    lengths = [[float(next(found).norm()) for _ in blocks[i]] for i in sorted(blocks)]
    return np.array([float(np.linalg.norm(each)) for each in lengths])


def rates_that_work(cells: Sequence[Solved]) -> Float[ndarray, "run"]:
    """At how many of the rates each seed's run solved its task.

    Args:
        cells: for each rate the runs of the same seeds.

    Raises:
        ValueError: for no rate, or rates with different numbers of runs.
    """
    if len({len(one.observed) for one in cells}) != 1:
        raise ValueError(
            f"expected the same runs at each rate, got {[len(one.observed) for one in cells]}"
        )
    counted: ndarray = np.sum([one.observed for one in cells], axis=0).astype(np.float64)
    return counted


def worse_than_guessing(losses: Float[ndarray, "run"], vocab: int) -> Bool[ndarray, "run"]:
    """Which runs end above the logarithm of the vocabulary, where a model is that says nothing.

    A loss that is not a number counts as worse.
    """
    worse: ndarray = ~(losses <= np.log(vocab))
    return worse


@dataclass(frozen=True, eq=False)
class TakesOver:
    """Begin a training with the weights of a model that has learnt something before, as a `prepare` of `train`.

    Attributes:
        model: whose weights are taken over; it is left as it is.
    """

    model: Model

    def __call__(self, fresh: Model) -> None:
        """Copy the weights.

        Raises:
            ValueError: when the fresh model has another config.
        """
        if fresh.config != self.model.config:
            raise ValueError(
                f"expected a model of the config {self.model.config}, got {fresh.config}"
            )
        fresh.load_state_dict(self.model.state_dict())
