"""Probes: what a linear map reads from a model's states, and how much of that the probe itself learned.

A linear probe is fitted by ridge regression onto one-hot labels, in float64 and in closed form, on the states
of some examples, and scored on those of others. A high score does not say that the model has worked the
property out: where the states carry a word, a probe can learn by heart which words have the property. So each
probe comes with a control task (Hewitt and Liang, 2019): the same labels, dealt anew to the word types at
random. There is nothing to be found there but the words themselves. The accuracy less that on the control is
the *selectivity*.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

PENALTY = 1e-3
"""What is added to the variance of each (standardised) entry of the states."""
DEALS = 8
"""How often the labels are dealt anew for the control."""


@dataclass(frozen=True)
class Probe:
    """A linear map from states to a score for each label.

    Attributes:
        centre, scale: subtracted from the states, and what they are then divided by.
        weight: of the standardised states, one column a label.
        bias: the shares of the labels among the examples that it was fitted on.
    """

    centre: Float[Tensor, "d_model"]
    scale: Float[Tensor, "d_model"]
    weight: Float[Tensor, "*deal d_model label"]
    bias: Float[Tensor, "*deal label"]

    def answers(self, states: Float[Tensor, "example d_model"]) -> Int[Tensor, "*deal example"]:
        """The label with the highest score, for each state."""
        scores = (states.double() - self.centre) / self.scale @ self.weight
        return (scores + self.bias[..., None, :]).argmax(-1)


def fit_probe(
    states: Float[Tensor, "example d_model"],
    labels: Int[Tensor, "*deal example"],
    *,
    n_labels: int,
    penalty: float = PENALTY,
) -> Probe:
    r"""The ridge regression of one-hot labels on the states.

    The weights minimise the mean squared error plus `penalty` times the sum of squared weights, of entries that
    have mean 0 and variance 1: $W = (X^T X / N + \lambda I)^{-1} X^T Y / N$.

    Args:
        states: one row an example.
        labels: from 0 to `n_labels` - 1; with several rows, a probe for each.
        n_labels: number of labels.
        penalty: how much large weights cost, above 0.

    Raises:
        ValueError: when the labels do not fit the states or the penalty is not positive.

    >>> states, labels = torch.tensor([[2.0], [3.0], [7.0], [8.0]]), torch.tensor([0, 0, 1, 1])
    >>> fit_probe(states, labels, n_labels=2).answers(torch.tensor([[1.0], [9.0]])).tolist()
    [0, 1]
    """
    if (
        labels.shape[-1] != len(states)
        or not 0 <= int(labels.min()) <= int(labels.max()) < n_labels
    ):
        raise ValueError(
            f"expected a label from 0 to {n_labels - 1} for each of {len(states)} states, got shape "
            f"{tuple(labels.shape)} with values from {int(labels.min())} to {int(labels.max())}"
        )
    if not penalty > 0:
        raise ValueError(f"the penalty must be positive, got {penalty}")
    x = states.double()
    centre, scale = x.mean(0), x.std(0, correction=0)
    scale = torch.where(scale > 1e-9, scale, 1.0)  # what never changes says nothing
    x = (x - centre) / scale
    y = torch.nn.functional.one_hot(labels, n_labels).double()
    bias = y.mean(-2)
    moments = x.T @ x / len(x) + penalty * torch.eye(x.shape[1], dtype=torch.float64)
    weight = torch.linalg.solve(moments, x.T @ (y - bias[..., None, :]) / len(x))
    return Probe(centre, scale, weight, bias)


def dealt(
    labels: Int[Tensor, "example"],
    types: Int[Tensor, "example"],
    generator: torch.Generator,
    *,
    deals: int = DEALS,
) -> Int[Tensor, "deal example"]:
    """The labels of a control task: the labels of word types, randomly reassigned to the types.

    As many types have each label as before; two examples with the same word have the same label, as before.

    Args:
        labels: of the examples; a function of the word type.
        types: number of the word that an example's label belongs to.
        generator: of the deals.
        deals: how often.

    Raises:
        ValueError: when two examples of one type have different labels, or not every label has a type.

    >>> labels, types = torch.tensor([0, 1, 1, 0]), torch.tensor([7, 3, 3, 7])
    >>> dealt(labels, types, torch.Generator().manual_seed(1), deals=1).tolist()
    [[1, 0, 0, 1]]
    """
    if labels.shape != types.shape:
        raise ValueError(
            f"expected a type for each of {len(labels)} labels, got {len(types)} types"
        )
    known, number = types.unique(return_inverse=True)
    own = torch.zeros(len(known), dtype=labels.dtype).scatter(0, number, labels)
    if not bool((own[number] == labels).all()):
        raise ValueError("a control task needs labels that the word type decides; one has several")
    orders = torch.stack([torch.randperm(len(known), generator=generator) for _ in range(deals)])
    return own[orders][:, number]


@dataclass(frozen=True)
class Probed:
    """The accuracies of probes, by depth of the states.

    Attributes:
        accuracy: share of right answers on examples that the probe has not seen, from the embedding to the
            state after the last block.
        control: the same for labels that were dealt to the word types at random, mean over deals.
    """

    accuracy: Float[ndarray, "state"]
    control: Float[ndarray, "state"]

    @property
    def selectivity(self) -> Float[ndarray, "state"]:
        """Accuracy minus that on the control task (Hewitt and Liang, 2019)."""
        return self.accuracy - self.control


def probe(
    states: Float[Tensor, "state example d_model"],
    labels: Int[Tensor, "example"],
    types: Int[Tensor, "example"],
    fitted: Bool[Tensor, "example"],
    generator: torch.Generator,
    *,
    n_labels: int,
    penalty: float = PENALTY,
    deals: int = DEALS,
) -> Probed:
    """Fit a probe and its controls at each depth, and score them on the examples left out.

    Args:
        states: after each number of blocks, one row an example.
        labels, types: as in `dealt`.
        fitted: True for the examples that probes are fitted on; let no sentence have examples on both sides.
        generator: of the control's labels.
        n_labels, penalty: as in `fit_probe`.
        deals: number of control tasks that the control is the mean of.

    Raises:
        ValueError: as `fit_probe` and `dealt`, and when there is nothing to fit on or nothing to score.
    """
    if not bool(fitted.any()) or bool(fitted.all()):
        raise ValueError("probes need examples to be fitted on and others to be scored on")
    tasks = torch.cat((labels[None], dealt(labels, types, generator, deals=deals)))
    accuracy, control = [], []
    for each in states:
        found = fit_probe(each[fitted], tasks[:, fitted], n_labels=n_labels, penalty=penalty)
        right = found.answers(each[~fitted]) == tasks[:, ~fitted]
        shares = right.double().mean(-1)
        accuracy.append(float(shares[0]))
        control.append(float(shares[1:].mean()))
    return Probed(np.array(accuracy), np.array(control))
