"""How far a model's probabilities can be trusted: its answers with their probabilities, and their calibration.

A model is calibrated when of the answers that it gives with probability 0.8, four in five are right (Guo et
al., 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray

from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import Model, predict


@dataclass(frozen=True)
class Answers:
    """A model's answers at the scored positions of held-out sequences, with their probabilities.

    Attributes:
        confidences: probability of the most likely answer.
        right: whether that is the right one.
        losses: cost of the right answer, in nats, not smoothed.
        sequences: number of the sequence that each position belongs to.
    """

    confidences: Float[ndarray, "answer"]
    right: Bool[ndarray, "answer"]
    losses: Float[ndarray, "answer"]
    sequences: Float[ndarray, "answer"]

    @property
    def loss(self) -> float:
        """Negative log-likelihood in nats per answer."""
        return float(self.losses.mean())

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return float(self.right.mean())

    @property
    def exact(self) -> float:
        """Share of sequences all of whose answers are right."""
        wrong = np.bincount(self.sequences.astype(int), weights=~self.right)
        return float((wrong == 0).mean())


@torch.no_grad()
def answers(model: Model, batch: Batch) -> Answers:
    """Let a model, in evaluation mode meanwhile, answer a batch."""
    batch = batch.to(next(model.parameters()).device)
    training = model.training
    try:
        chances = predict(model.eval(), batch).double().log_softmax(-1)
    finally:
        model.train(training)
    best, choice = chances.max(-1)
    losses = -chances.gather(-1, batch.targets[..., None])[..., 0]
    row = torch.arange(len(choice), device=choice.device)[:, None].expand_as(choice)
    found = (best.exp(), choice == batch.targets, losses, row.double())
    return Answers(*(each[batch.scored].cpu().numpy() for each in found))


@dataclass(frozen=True)
class Reliability:
    """Answers binned by probability: mean confidence against accuracy.

    Attributes:
        confidence: mean probability in each bin; NaN in an empty one.
        accuracy: share of right answers in each bin; NaN in an empty one.
        share: of all answers that fall into each bin.
        error: expected calibration error, the mean gap between the two, weighted by the shares.
    """

    confidence: Float[ndarray, "bin"]
    accuracy: Float[ndarray, "bin"]
    share: Float[ndarray, "bin"]
    error: float


def reliability(
    confidences: Float[ndarray, "answer"] | Sequence[float],
    right: Bool[ndarray, "answer"] | Sequence[bool],
    *,
    bins: int = 10,
) -> Reliability:
    r"""Bins of equal width, and the expected calibration error $\sum_b s_b |a_b - c_b|$.

    A bin with share $s_b$ of the answers promises its mean probability $c_b$ and keeps its accuracy $a_b$. With
    few answers a bin the error is too large, because chance alone opens gaps.

    Raises:
        ValueError: when there is no answer, the two differ in number, or a probability lies outside [0, 1].

    >>> found = reliability([0.9, 0.9, 0.9, 0.9], [True, True, True, False])
    >>> round(found.error, 3)
    0.15
    """
    promised, kept = np.asarray(confidences, dtype=float), np.asarray(right, dtype=float)
    if promised.ndim != 1 or promised.shape != kept.shape or not promised.size:
        raise ValueError(
            "expected one probability and one verdict for each of at least one answer, got shapes "
            f"{promised.shape} and {kept.shape}"
        )
    if promised.min() < 0 or promised.max() > 1 + 1e-9:
        raise ValueError(
            f"probabilities lie between 0 and 1, got {promised.min()} to {promised.max()}"
        )
    if bins < 1:
        raise ValueError(f"bins must be a positive whole number, got {bins}")
    where = np.minimum((promised * bins).astype(int), bins - 1)
    count = np.bincount(where, minlength=bins)
    with np.errstate(invalid="ignore"):
        confidence = np.bincount(where, weights=promised, minlength=bins) / count
        accuracy = np.bincount(where, weights=kept, minlength=bins) / count
    share = count / count.sum()
    error = float(np.nansum(share * np.abs(accuracy - confidence)))
    return Reliability(confidence, accuracy, share, error)
