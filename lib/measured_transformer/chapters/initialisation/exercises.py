"""Exercises of the chapter on initialisation."""

from __future__ import annotations

import torch

from measured_transformer.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    number,
    tensor,
)
from measured_transformer.exercises.registry import exercise

_CHAPTER = "book/training/initialisation"


@exercise(_CHAPTER)
def he_gains(answer: Answer) -> None:
    """Two numbers: the forward and the backward gain of the network when both matrices have He's variance."""
    forward, backward = answer.numbers("forward", "backward")
    slips = {
        1.0: "that would hold with a ReLU in front of each matrix; in front of which is there none?",
        4.0: "two matrices double; and the ReLU?",
        0.32: "that is Xavier's rule at r = 4",
    }
    way = "the gain of a matrix is its number of inputs times the variance; ReLU halves"
    demand_number(forward, 2.0, way=way, name="forward", slips=slips)
    way = "backwards a matrix sums over its outputs; multiply both gains and the half of the ReLU"
    demand_number(backward, 2.0, way=way, name="backward", slips=slips)


@exercise(_CHAPTER)
def uniform(answer: Answer) -> None:
    """Two numbers: the forward gain of PyTorch's default weights, and what remains after six such layers."""
    gain, left = answer.numbers("the gain", "what remains")
    slips = {
        1.0: "the weights do not all lie at the ends of the interval",
        2 / 3: "twice too large: mind the length of the interval in the density",
        1 / 12: "that is the variance over an interval of length 1; how long is this one?",
        0.5: "that is the mean size of an even draw; the mean square is asked for",
        3**-0.5: "that is a gain of sizes; a gain of mean squares is asked for",
    }
    way = "the variance of an even draw from [-b, b], times the number of inputs"
    demand_number(gain, 1 / 3, way=way, name="the gain", slips=slips)
    slips = {
        2.0: "gains multiply, they do not add",
        3**-3: "that is the root of it, or three layers only",
    }
    way = "one gain for each of the six layers"
    demand_number(left, 3**-6, way=way, name="what remains", within=0.03, slips=slips)


@exercise(_CHAPTER)
def deviation(answer: Answer) -> None:
    """Write `deviation(layer, n_layers)`: falls evenly to a half, the variances of all writes sum to 1."""
    for n_layers in (12, 2, 5):
        values = torch.tensor(
            [number(answer(layer, n_layers)) for layer in range(1, n_layers + 1)],
            dtype=torch.float64,
        )
        demand(values.min() > 0, "a deviation must be positive; is the layer counted from 1?")
        share = float(values[-1] / values[0])
        demand(
            close(share, 0.5, 1e-6),
            f"of {n_layers} layers the last has {share:.4f} of the first's deviation",
        )
        steps = values.diff()
        text = "it does not fall evenly; compare the first step down with the last"
        demand(close(n_layers * steps, n_layers * steps.mean(), 1e-5), text)
        total = 2 * float(values.square().sum())
        text = "each layer writes twice, and so its variance counts twice"
        demand(not close(total, 2.0, 1e-5), text)
        demand(
            not close(2 * float(values.sum()), 1.0, 1e-5),
            "the deviations sum to 1; the variances shall",
        )
        demand(close(total, 1.0, 1e-5), f"the variances of all writes sum to {total:.4f}")


@exercise(_CHAPTER)
def stream_size(answer: Answer) -> None:
    """Write `stream_size(layer, u)`: the stream's mean square after so many layers, that of a write being u."""
    for layer, u in ((0, 0.3), (1, 0.3), (6, 0.5), (12, 0.32)):
        found = number(answer(layer, u))
        if layer == 0:
            demand(close(found, 1.0), "before the first layer the stream is the embedding")
            continue
        demand(
            not close(found, 1 + layer * u), "a layer has two sublayers, and each of them writes"
        )
        demand(
            not close(found, (1 + u) ** (2 * layer)),
            "a pre-norm write does not grow with the stream; it adds",
        )
        demand(not close(found, 2 * layer * u), "the embedding is still in the stream")
        text = "that is a size; the mean square is asked for"
        demand(not close(found, (1 + 2 * layer * u) ** 0.5), text)
        demand(
            close(found, 1 + 2 * layer * u),
            "mean squares of independent parts add; not all parts are there",
        )


@exercise(_CHAPTER)
def he(answer: Answer) -> None:
    """Write `he(d_in, d_out)`: random weights for `x @ W` behind a ReLU, so that mean squares are kept."""
    for d_in, d_out in ((200, 500), (600, 150)):
        weight = tensor(answer(d_in, d_out), (d_in, d_out), name="W")
        text = "two calls give the same weights; they shall be drawn anew"
        demand(not close(weight, tensor(answer(d_in, d_out))), text)
        spread = float(weight.var())
        demand(abs(float(weight.mean())) < 0.1 * spread**0.5, "the weights do not lie around zero")
        draws = torch.Generator().manual_seed(1)
        x = torch.randn(400, d_in, generator=draws, dtype=torch.float64)
        after = x.relu() @ weight
        gain = float(after.square().mean() / x.square().mean())
        ratio = d_in / d_out
        mistakes = {
            0.5: "half of the mean square is lost: the ReLU's doing",
            ratio: "with as many inputs as outputs it would be kept; which of the two does a sum run over?",
            d_in
            / 2: "a deviation was wanted where a variance was computed, or the width was forgotten",
            2 / d_in: "the variance stands where the deviation should",
            2 * ratio / (1 + ratio): "that is the compromise between forward and backward",
            ratio / (1 + ratio): "that is Xavier's rule, which knows no ReLU",
        }
        for wrong, words in mistakes.items():
            text = f"the mean square behind ReLU and W is {gain:.3g} times that in front of them: {words}"
            demand(abs(gain / wrong - 1) > 0.1, text)
        text = f"the mean square behind ReLU and W is {gain:.3g} times that in front of them"
        demand(abs(gain - 1) < 0.1, text)
