"""Exercises of the chapter on what networks bend with and how wide they are."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

from measured_book.exercises.answers import (
    Answer,
    Fault,
    close,
    demand,
    demand_number,
    normal,
    number,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/feed-forward/activations-and-widths"


@exercise(
    _CHAPTER,
    Drawing(
        "What the four neurons of the chapter write for a = {a}, b = {b}: with ReLU (factor one half), with "
        "its square (factor a quarter), with SiLU in place of ReLU (factor one half).",
        lambda chance: {"a": chance.randint(4, 8), "b": chance.choice((-3, -1))},
    ),
)
def four_neurons(answer: Answer, a: int = 3, b: int = -2) -> None:
    """What the four neurons write for (3, -2): with ReLU, with its square, with SiLU in place of both."""
    relu, squared, silu = answer.numbers("ReLU", "squared ReLU", "SiLU")
    near, far = float(abs(a + b)), float(abs(a - b))
    bent, product = (near - far) / 2, float(a * b)
    slips = {
        -bent: "one pair is written with a plus, the other with a minus: which neurons are awake?",
        2 * bent: "the factor in front is one half",
        product: "that is the product; bends that are straight on both sides cannot give it",
    }
    way = "write down what enters the four neurons, and what ReLU leaves of it"
    demand_number(relu, bent, way=way, name="with ReLU", within=0.005, slips=slips)
    slips = {
        4 * product: "the factor in front is a quarter",
        bent: "the square of ReLU, not ReLU",
        -product: "look at the signs with which neurons are written",
    }
    way = "only one neuron of each pair is awake, and it is squared"
    demand_number(squared, product, way=way, name="with its square", within=0.005, slips=slips)
    pairs = {s: s * math.tanh(s / 2) for s in (near, far)}
    right = (pairs[near] - pairs[far]) / 2
    way = "SiLU is s times the logistic function of s; both neurons of a pair are awake"
    slips = {
        bent: "that is ReLU again",
        (F.silu(torch.tensor(near)).item() - F.silu(torch.tensor(far)).item()) / 2: (
            "negative inputs do not vanish here"
        ),
        2 * right: "the factor in front is one half",
    }
    demand_number(silu, right, way=way, name="with SiLU", within=0.005, slips=slips)


@exercise(_CHAPTER)
def cosine_of_sum(answer: Answer) -> None:
    """Weights (w1, w2) with which squared ReLU gives cos(s + t) from (cos s, sin s, cos t, sin t)."""
    given: Any = answer.value
    demand(
        isinstance(given, (list, tuple)) and len(given) == 2,
        "expected two things, w1 (four rows, a column for each neuron) and w2 (a number for each neuron)",
    )
    demand(
        all(one is not None and one is not ... for one in given),
        "there is nothing to check yet: w1 and w2 are still to be written",
    )
    w1 = tensor(given[0], name="w1")
    if w1.ndim != 2 or w1.shape[0] != 4:
        raise Fault(f"w1 shall have four rows, one for each input, got shape {tuple(w1.shape)}")
    w2 = tensor(given[1], (w1.shape[1],), name="w2")
    angles = 6 * normal(2, 64, seed=3)
    x = torch.stack([angles[0].cos(), angles[0].sin(), angles[1].cos(), angles[1].sin()], dim=-1)
    found = (x @ w1).relu().square() @ w2
    s, t = angles
    known = {
        "that is cos(s - t): a sign": (s - t).cos(),
        "that is sin(s + t)": (s + t).sin(),
        "that is cos s cos t; the other product is missing": s.cos() * t.cos(),
        "that is 4 cos(s + t); a factor is missing": 4 * (s + t).cos(),
        "that is the negative of it": -(s + t).cos(),
    }
    for words, wrong in known.items():
        demand(not close(found, wrong), words)
    demand(
        close(found, (s + t).cos()),
        f"for s = {float(s[0]):.3f} and t = {float(t[0]):.3f} it gives {float(found[0]):.4f}, "
        f"not {float((s + t).cos()[0]):.4f}; a product needs four neurons, and there are two products",
    )


@exercise(_CHAPTER)
def gelu_slope(answer: Answer) -> None:
    """Write `gelu_slope(x)`: the derivative of the form of GELU with tanh, for a tensor x."""
    x = torch.linspace(-4, 4, 33, dtype=torch.float64)
    found = tensor(answer(x), (33,))
    at = x.clone().requires_grad_()
    (right,) = torch.autograd.grad(F.gelu(at, approximate="tanh").sum(), at)
    c = math.sqrt(2 / math.pi)
    u = torch.tanh(c * (x + 0.044715 * x**3))
    gate, bell = (1 + u) / 2, x * (1 - u.square()) * c / 2
    density = torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)
    known = {
        "that is the function, not its derivative": x * gate,
        "that is the gate alone; the product has a second term": gate,
        "the inner function has a derivative, too: its cube": gate + bell,
        "the inner function has a derivative, too: its factor": gate
        + bell * (1 + 3 * 0.044715 * x.square()) / c,
        "that is the derivative of the exact GELU, not of the form with tanh": (
            1 + torch.erf(x / math.sqrt(2))
        )
        / 2
        + x * density,
    }
    for words, wrong in known.items():
        demand(not close(found, wrong), words)
    worst = int((found - right).abs().argmax())
    demand(
        close(found, right),
        f"at x = {float(x[worst]):.2f} it gives {float(found[worst]):.4f}; hold it against a "
        "difference quotient there",
    )


@exercise(_CHAPTER)
def narrower(answer: Answer) -> None:
    """Write `narrower(d, ratio)`: width of a stream with hidden ratio `ratio`, as many weights as (d, 4)."""
    for d, ratio in ((32.0, 0.5), (32.0, 8.0), (64.0, 1.0), (100.0, 2.0), (48.0, 4.0)):
        found = number(answer(d, ratio))
        right = d * math.sqrt(12 / (4 + 2 * ratio))
        shown = f"for d={d:g} and ratio={ratio:g} it gives {found:.4g}"
        known = {
            "attention has weights, too": d * math.sqrt(4 / ratio),
            "the weights grow with the square of the width": d * 12 / (4 + 2 * ratio),
            "attention has four matrices, the network two": d * math.sqrt(5 / (1 + ratio)),
            "attention has four matrices, not three": d * math.sqrt(11 / (3 + 2 * ratio)),
            "the other way round: a wider hidden layer leaves less for the stream": d
            * math.sqrt((4 + 2 * ratio) / 12),
        }
        if ratio != 4:
            for words, wrong in known.items():
                demand(not close(found, wrong, 1e-3), f"{shown}: {words}")
        demand(
            close(found, right, 1e-6),
            f"{shown}; count a block's matrices for both and set them equal",
        )


@exercise(_CHAPTER)
def seeds_for_equality(answer: Answer) -> None:
    """Write `seeds(spread, margin)`: how many seeds make 1.96 standard errors at most the margin."""
    for spread, margin in ((0.012, 0.01), (0.05, 0.01), (0.03, 0.02), (0.1, 0.05), (0.001, 0.01)):
        found = number(answer(spread, margin))
        exact = (1.96 * spread / margin) ** 2
        right = math.ceil(exact)
        shown = f"for a spread of {spread:g} and a margin of {margin:g} it gives {found:g}"
        if right > 1:
            known = {
                "a fraction of a seed cannot be run": exact,
                "the standard error falls with the root of the number": 1.96 * spread / margin,
                "with one seed fewer it is too wide": right - 1,
                "1.96 standard errors, not one": math.ceil((spread / margin) ** 2),
                "the root again: count seeds, not standard errors": math.ceil(
                    1.96 * spread / margin
                ),
            }
            for words, wrong in known.items():
                demand(not close(found, float(wrong), 1e-9), f"{shown}: {words}")
        demand(close(found, float(right), 1e-9), f"{shown}; solve for the number of seeds")
