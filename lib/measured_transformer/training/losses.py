r"""Cross-entropy: the cost of a prediction, the positions that count, and the divisor.

With logits $z$ over a vocabulary of $V$ tokens and the right token $y$, a position costs $-\ln p_y$ nats, where
$p$ is the softmax of $z$. Label smoothing (Szegedy et al., 2016) asks for a softer answer, $1 - \varepsilon$ on
the right token and $\varepsilon$ spread evenly over all $V$:

$\ell = (1 - \varepsilon)(-\ln p_y) + \frac{\varepsilon}{V} \sum_v (-\ln p_v)$.

A batch whose sequences differ in length is filled up with padding, and there are three ways to average over it.
`cross_entropy` is the one to train and to compare with. The other two are in use as well, mostly by accident,
and give other numbers for the same model: the book measures how far apart they are.

The sums run over fixed shapes, without picking positions out, so that all three can be vectorised over models.
"""

from __future__ import annotations

import math

from jaxtyping import Bool, Float, Int
from torch import Tensor

Logits = Float[Tensor, "batch position vocab"]
Tokens = Int[Tensor, "batch position"]
Mask = Bool[Tensor, "batch position"]


def token_losses(
    logits: Logits, targets: Tokens, *, label_smoothing: float = 0.0
) -> Float[Tensor, "batch position"]:
    """The cost of each position in nats, padding included.

    Raises:
        ValueError: when label_smoothing is not between 0 and 1, or there is not one target at each position.
    """
    _check_smoothing(label_smoothing)
    _check_shape("targets", targets, logits)
    costs = -logits.log_softmax(-1)
    right = costs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    if not label_smoothing:
        return right
    return (1 - label_smoothing) * right + label_smoothing * costs.mean(-1)


def cross_entropy(
    logits: Logits, targets: Tokens, scored: Mask, *, label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Mean cost of the scored positions; NaN where none is scored.

    Equal to `torch.nn.functional.cross_entropy` with the padding's number as its `ignore_index`.

    Args:
        logits: before the softmax.
        targets: the right token at each position; any valid number where nothing is scored.
        scored: where an answer counts: not at padding.
        label_smoothing: share of the answer that is spread over the whole vocabulary.

    Raises:
        ValueError: when label_smoothing is not between 0 and 1, or targets or scored do not fit the logits.
    """
    losses = token_losses(logits, targets, label_smoothing=label_smoothing)
    _check_shape("scored", scored, logits)
    return losses.masked_fill(~scored, 0).sum() / scored.sum()


def cross_entropy_with_padding(
    logits: Logits, targets: Tokens, *, label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Mean cost of all positions, as if padding were an answer: a trap.

    Padding is easy to predict, so that the more of it a batch has, the better a model looks.

    Raises:
        ValueError: as `token_losses`.
    """
    return token_losses(logits, targets, label_smoothing=label_smoothing).mean()


def cross_entropy_diluted(
    logits: Logits, targets: Tokens, scored: Mask, *, label_smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Sum of the scored positions' costs, divided by the number of all positions: another trap.

    The padding costs nothing and is counted all the same. The loss, and with it the gradient, shrinks by the
    share of the scored positions, which changes from batch to batch.

    Raises:
        ValueError: as `cross_entropy`.
    """
    losses = token_losses(logits, targets, label_smoothing=label_smoothing)
    _check_shape("scored", scored, logits)
    return losses.masked_fill(~scored, 0).mean()


def smoothing_floor(vocab: int, label_smoothing: float) -> float:
    r"""The smallest smoothed loss, in nats, that a model can reach on a target it knows for certain.

    The loss of the model whose softmax *is* the smoothed answer: its entropy,
    $-q \ln q - (V - 1) \frac{\varepsilon}{V} \ln \frac{\varepsilon}{V}$ with
    $q = 1 - \varepsilon + \frac{\varepsilon}{V}$. A loss below it was not smoothed, or not averaged over
    real tokens alone.

    Raises:
        ValueError: when vocab is not a positive number or label_smoothing not between 0 and 1.

    >>> round(smoothing_floor(1000, 0.1), 3)
    1.015
    """
    if vocab < 1:
        raise ValueError(f"vocab must be a positive whole number, got {vocab}")
    _check_smoothing(label_smoothing)
    other = label_smoothing / vocab
    chances = ((1, 1 - label_smoothing + other), (vocab - 1, other))
    return -sum(count * p * math.log(p) for count, p in chances if p > 0)


def _check_shape(name: str, given: Tensor, logits: Tensor) -> None:
    """Gathering would take a shorter tensor without a word, and a mask would be stretched."""
    if given.shape != logits.shape[:-1]:
        raise ValueError(
            f"{name} must have the shape {tuple(logits.shape[:-1])} of the positions that the logits are for, "
            f"got {tuple(given.shape)}"
        )


def _check_smoothing(label_smoothing: float) -> None:
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing is a share between 0 and 1, got {label_smoothing}")
