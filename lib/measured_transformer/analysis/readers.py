r"""Probabilistic probes, linear and with a hidden layer, and their scores.

Both minimise the mean cross-entropy plus a small penalty on standardised states. How well a probe reads is told
in two ways: by its accuracy on examples that it has not seen, and by the length of an *online code* (Voita and
Titov, 2020, "Information-theoretic probing with minimum description length"): the labels are sent in portions,
each of them coded with the probe that was fitted on all portions before it. A property that is easy to read is
read from few examples, and its labels are cheap to send.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from measured_transformer.training.seeding import make_generator

Read = Callable[[Tensor], Tensor]
"""From states to the logarithms of the labels' probabilities."""
PORTIONS = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
"""Where the portions of an online code end, as shares of the examples."""


def fit_reader(
    states: Float[Tensor, "example d_model"],
    labels: Int[Tensor, "example"],
    *,
    n_labels: int,
    hidden: int = 0,
    seed: int = 0,
    penalty: float = 1e-3,
    steps: int = 40,
) -> Read:
    """Fit a probe.

    Args:
        states: one row an example.
        labels: from 0 to `n_labels` - 1.
        n_labels: number of labels.
        hidden: width of a hidden layer with ReLU; 0 for a linear probe.
        seed: of the hidden layer's initial weights.
        penalty: how much the mean squared weight of a unit costs.
        steps: most iterations of L-BFGS.

    Raises:
        ValueError: when the labels do not fit the states.

    >>> states, labels = torch.tensor([[2.0], [3.0], [7.0], [8.0]]), torch.tensor([0, 0, 1, 1])
    >>> fit_reader(states, labels, n_labels=2)(torch.tensor([[1.0], [9.0]])).argmax(-1).tolist()
    [0, 1]
    """
    if (
        labels.shape != states.shape[:1]
        or not 0 <= int(labels.min()) <= int(labels.max()) < n_labels
    ):
        raise ValueError(
            f"expected a label from 0 to {n_labels - 1} for each of {len(states)} states, got shape "
            f"{tuple(labels.shape)} with values from {int(labels.min())} to {int(labels.max())}"
        )
    x = states.detach().double()
    centre, scale = x.mean(0), x.std(0, correction=0)
    scale = torch.where(scale > 1e-6, scale, 1.0)  # what never changes says nothing
    x = (x - centre) / scale
    draws = make_generator(seed, "reader")
    sizes = [x.shape[1], hidden, n_labels] if hidden else [x.shape[1], n_labels]
    weights = []
    for i, (rows, columns) in enumerate(pairwise(sizes)):
        drawn = torch.randn(rows, columns, generator=draws, dtype=torch.float64)
        last = i == len(sizes) - 2
        weights.append(drawn * (0.0 if last else math.sqrt(2 / rows)))
        weights.append(torch.zeros(columns, dtype=torch.float64))
    for each in weights:
        each.requires_grad_()

    def scores(inputs: Tensor) -> Tensor:
        for i in range(0, len(weights), 2):
            inputs = inputs @ weights[i] + weights[i + 1]
            if i < len(weights) - 2:
                inputs = inputs.relu()
        return inputs

    fit = torch.optim.LBFGS(weights, max_iter=steps, history_size=10, line_search_fn="strong_wolfe")

    def cost() -> Tensor:
        value = F.cross_entropy(scores(x), labels)
        value = value + penalty * sum(each.square().sum() for each in weights[::2])
        for each, slope in zip(weights, torch.autograd.grad(value, weights), strict=True):
            each.grad = slope
        return value

    fit.step(cost)

    @torch.no_grad()
    def read(asked: Tensor) -> Tensor:
        return scores((asked.double() - centre) / scale).log_softmax(-1)

    return read


def accuracy(
    states: Float[Tensor, "example d_model"],
    labels: Int[Tensor, "example"],
    fitted: Bool[Tensor, "example"],
    *,
    n_labels: int,
    hidden: int = 0,
    seed: int = 0,
    steps: int = 40,
) -> float:
    """Share of right answers of a probe on its held-out examples.

    Args:
        states, labels, n_labels, hidden, seed, steps: as for `fit_reader`.
        fitted: True for the examples that the probe is fitted on.

    Raises:
        ValueError: as `fit_reader`, and when there is nothing to fit on or nothing to score.
    """
    if not bool(fitted.any()) or bool(fitted.all()):
        raise ValueError("probes need examples to be fitted on and others to be scored on")
    read = fit_reader(
        states[fitted], labels[fitted], n_labels=n_labels, hidden=hidden, seed=seed, steps=steps
    )
    return float((read(states[~fitted]).argmax(-1) == labels[~fitted]).double().mean())


def online_code(
    states: Float[Tensor, "example d_model"],
    labels: Int[Tensor, "example"],
    *,
    n_labels: int,
    portions: Sequence[float] = PORTIONS,
    steps: int = 40,
) -> float:
    r"""Bits per label of the online code for the labels given the states, with linear probes.

    The first portion is sent with $\log_2 K$ bits a label for K labels, each further one with the probabilities
    of the probe that was fitted on all that was sent before.

    Args:
        states: one row an example, in an order that tells nothing.
        labels: from 0 to `n_labels` - 1.
        n_labels: number of labels.
        portions: where the portions end, as rising shares of the examples; the last is 1.
        steps: most iterations of each fit.

    Raises:
        ValueError: as `fit_reader`, and when the portions do not rise to 1 or the first one is empty.
    """
    if labels.shape != states.shape[:1]:
        raise ValueError(f"expected a label for each of {len(states)} states, got {len(labels)}")
    ends = [round(share * len(states)) for share in portions]
    if list(portions) != sorted(portions) or portions[-1] != 1 or ends[0] < 1:
        raise ValueError(
            f"expected rising portions of {len(states)} examples that end at 1, got {tuple(portions)}"
        )
    nats = ends[0] * math.log(n_labels)
    for known, end in pairwise(ends):
        if end == known:
            continue
        read = fit_reader(states[:known], labels[:known], n_labels=n_labels, steps=steps)
        chances = read(states[known:end])
        nats -= float(chances.gather(1, labels[known:end, None]).sum())
    return nats / math.log(2) / len(states)
