"""Exercises of the chapter on initialisation."""

from __future__ import annotations

import torch

from measured_book.exercises.answers import (
    Answer,
    close,
    demand,
    demand_number,
    normal,
    number,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

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


@exercise(
    _CHAPTER,
    Drawing(
        "Two numbers: the forward gain of weights drawn evenly from an interval of {reach} / "
        "sqrt(d_in) to both "
        "sides of zero, and what remains of a mean square after {layers} such layers.",
        lambda chance: {
            "reach": chance.choice((0.5, 0.8, 1.2, 1.5)),
            "layers": chance.randint(3, 5),
        },
    ),
)
def uniform(answer: Answer, reach: float = 1.0, layers: int = 6) -> None:
    """Two numbers: the forward gain of PyTorch's default weights, and what remains after six such layers."""
    gain, left = answer.numbers("the gain", "what remains")
    right = reach**2 / 3
    slips = {
        reach**2: "the weights do not all lie at the ends of the interval",
        2 * right: "twice too large: mind the length of the interval in the density",
        right / 4: "that is the variance over half of the interval; how long is this one?",
        reach / 2: "that is the mean size of an even draw; the mean square is asked for",
        right**0.5: "that is a gain of sizes; a gain of mean squares is asked for",
    }
    way = "the variance of an even draw from [-b, b], times the number of inputs"
    demand_number(gain, right, way=way, name="the gain", slips=slips)
    slips = {
        layers * right: "gains multiply, they do not add",
        right ** (layers / 2): "that is the root of it, or half of the layers only",
    }
    way = "one gain for each of the layers"
    demand_number(left, right**layers, way=way, name="what remains", within=0.03, slips=slips)


@exercise(_CHAPTER)
def first_move(answer: Answer) -> None:
    """Write `first_move(x, gradient, rate)`: how far Adam's first step moves the outputs of these rows."""
    for rows, n_in, n_out, rate, seed in ((1, 16, 3, 0.01, 0), (5, 12, 4, 0.1, 1)):
        x, gradient = normal(rows, n_in, seed=seed), normal(rows, n_out, seed=seed + 10)
        found = tensor(answer(x.clone(), gradient.clone(), rate), (rows, n_out))
        moved = (x.T @ gradient).sign()
        wanted = -rate * (x @ moved)
        text = "the step goes against the gradient: downhill"
        demand(not close(found, -wanted), text)
        text = "Adam's first step has the size of the rate in every entry, whatever the gradient's size"
        demand(not close(found, -rate * (x @ (x.T @ gradient))), text)
        demand(not close(found, -rate * gradient.sign()), "a sum over the inputs is missing")
        apart = -rate * torch.stack(
            [row @ torch.outer(row, g).sign() for row, g in zip(x, gradient, strict=True)]
        )
        text = "all rows share one matrix: its gradient is a sum over them, and the sign comes after the sum"
        demand(rows == 1 or not close(found, apart), text)
        demand(close(found, wanted), "the outputs move by x times the change of the matrix")


@exercise(_CHAPTER)
def mup(answer: Answer) -> None:
    """Write `mup(group, n_inputs, m)`: standard deviation and factor on the rate, m times as wide."""
    for n, m in ((64, 1), (256, 4), (96, 1.5)):
        wanted = {
            "embedding": (1.0, 1.0),
            "hidden": (n**-0.5, 1 / m),
            "unembedding": ((m * n) ** -0.5, 1 / m),
        }
        for group, (deviation, rate) in wanted.items():
            result = answer(group, n, m)
            demand(
                isinstance(result, tuple | list) and len(result) == 2,
                "two numbers are asked for: the standard deviation and the factor",
            )
            found, factor = number(result[0], "the deviation"), number(result[1], "the factor")
            where = f"{group}, {n} inputs, {m:g} times as wide"
            text = f"{where}: that is a variance; the standard deviation is its root"
            demand(deviation == 1 or not close(found, deviation**2), text)
            text = "only one input of the embedding is not zero, so no sum grows with the width"
            demand(group != "embedding" or (close(found, 1.0) and close(factor, 1.0)), text)
            text = (
                f"{where}: training aligns the final state with the unembedding's initial weights"
            )
            demand(group != "unembedding" or m == 1 or not close(found, n**-0.5), text)
            text = f"{where}: the standard deviation is {found:.4g}"
            demand(close(found, deviation), text)
            text = f"{where}: with this learning rate steps grow with the width"
            demand(m == 1 or not close(factor, 1.0) or group == "embedding", text)
            demand(close(factor, rate), f"{where}: the factor on the learning rate is {factor:.4g}")


@exercise(_CHAPTER)
def kept(answer: Answer) -> None:
    """Write `kept(weight, r)`: the matrix kept and the multiplier, so that Adam moves W at r times its rate."""
    for r, seed in ((0.25, 0), (3.0, 1)):
        weight = normal(4, 3, seed=seed)
        result = answer(weight.clone(), r)
        demand(
            isinstance(result, tuple | list) and len(result) == 2,
            "a matrix and a number are asked for",
        )
        matrix, multiplier = tensor(result[0], (4, 3)), number(result[1], "the multiplier")
        text = "kept times multiplier is not the matrix that was given"
        demand(close(multiplier * matrix, weight), text)
        text = "gradient descent would need the root; Adam's steps do not know the size of the gradient"
        demand(not close(multiplier, r**0.5), text)
        text = "the other way round: this matrix moves at 1/r times the learning rate"
        demand(not close(multiplier, 1 / r), text)
        demand(
            close(multiplier, r), f"W moves at {multiplier:.4g} times the learning rate, not {r:g}"
        )


@exercise(_CHAPTER)
def he(answer: Answer) -> None:
    """Write `he(d_in, d_out)`: random weights for `x @ W` behind a ReLU, so that mean squares are kept."""
    for d_in, d_out in ((200, 500), (600, 150)):
        weight = tensor(answer(d_in, d_out), (d_in, d_out), name="W")
        text = "two calls give the same weights; they should be drawn anew"
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
            2 / d_in: "the variance stands where the standard deviation should",
            2 * ratio / (1 + ratio): "that is the compromise between forward and backward",
            ratio / (1 + ratio): "that is Xavier's rule, which knows no ReLU",
        }
        for wrong, words in mistakes.items():
            text = f"the mean square behind ReLU and W is {gain:.3g} times that in front of them: {words}"
            demand(abs(gain / wrong - 1) > 0.1, text)
        text = f"the mean square behind ReLU and W is {gain:.3g} times that in front of them"
        demand(abs(gain - 1) < 0.1, text)
