"""Exercises of the chapters on warm-up and on loss spikes."""

from __future__ import annotations

import torch
from torch import Tensor

from measured_book.exercises.answers import (
    Answer,
    Fault,
    close,
    demand,
    demand_number,
    first,
    normal,
    number,
    tensor,
)
from measured_book.exercises.registry import Drawing, exercise

_CHAPTER = "book/training/warm-up"
_SPIKES = "book/training/spikes"


@exercise(_CHAPTER)
def moves(answer: Answer) -> None:
    """Write `moves(gradients, beta1, beta2)`: Adam's moves of one weight, in units of the rate, epsilon 0."""
    even, uneven = [2.0] * 5, [10.0, *[1.0] * 30]
    for gradients in (even, uneven, normal(25, seed=3).tolist(), [-3.0]):
        count = len(gradients)
        found = tensor(answer(list(gradients), 0.9, 0.98), (count,))
        expected = _adam(gradients, 0.9, 0.98)
        demand(
            not close(found, -expected),
            "a positive move is one along the gradient here; the signs are reversed",
        )
        text = f"the first move is {float(found[0]):.4g} long; one gradient, however large, makes a whole one"
        demand(
            close(found[0].abs(), 1.0, 1e-4),
            f"{text}; are both averages corrected for their start at zero?",
        )
        if gradients is even:
            text = "with the same gradient in each step all moves are alike"
            demand(
                close(found, found[:1].expand(count), 1e-4),
                f"{text}; is the correction that of the right step?",
            )
        at = first((found - expected).abs() > 1e-4)
        if at:
            raise Fault(
                f"move {at[0] + 1} is not Adam's, those before it are; which average is which beta's?"
            )
    text = "all gradients times 100 give other moves; Adam does not know their scale"
    scaled = tensor(answer([100 * one for one in uneven], 0.9, 0.98))
    demand(close(scaled, _adam(uneven, 0.9, 0.98), 1e-4), text)


def _adam(gradients: list[float], beta1: float, beta2: float) -> Tensor:
    """What PyTorch's Adam subtracts in each step, with a rate of 1."""
    weight = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([weight], lr=1.0, betas=(beta1, beta2), eps=1e-15)
    places = [0.0]
    for gradient in gradients:
        weight.grad = torch.full_like(weight, gradient)
        optimiser.step()
        places.append(weight.item())
    return -torch.tensor(places, dtype=torch.float64).diff()


@exercise(_CHAPTER)
def limit(answer: Answer) -> None:
    """Write `limit(beta)`: the largest stable rate times curvature of descent with an averaged gradient."""
    for beta in (0.0, 0.9, 0.5, 0.98):
        found = number(answer(beta))
        demand(found > 0, "a rate times a curvature is positive")
        if beta == 0.0:
            text = "without an average this is plain descent, whose limit the chapter gives"
            demand(close(found, 2.0), text)
        text = f"just below your limit, {found:.4g}, the weight already runs away"
        demand(_shrinks(0.97 * found, beta), text)
        text = f"just above your limit, {found:.4g}, the weight still shrinks; the limit is larger"
        demand(not _shrinks(1.03 * found, beta), text)
        demand(
            close(found, 2 * (1 + beta) / (1 - beta), 1e-4), "near the limit, and not exactly there"
        )


def _shrinks(strength: float, beta: float) -> bool:
    """Return whether a step of the averaged gradient, a matrix on (m, w), shrinks all in the long run."""
    kept = (1 - beta) * strength  # in units in which the curvature is 1
    step = torch.tensor([[beta, 1 - beta], [-strength * beta, 1 - kept]], dtype=torch.float64)
    return bool(torch.linalg.eigvals(step).abs().max() < 1)


@exercise(_CHAPTER)
def rise(answer: Answer) -> None:
    """Write `rise(step, w)`: the factor of a linear warm-up over w steps, the first step being number 0."""
    for w in (40, 7, 1):
        factors = torch.tensor(
            [number(answer(step, w)) for step in range(2 * w + 1)], dtype=torch.float64
        )
        demand(factors[0] != 0, "the first step has a rate of zero: it is wasted")
        demand(factors.max() <= 1 + 1e-9, "the factor goes above 1")
        text = "full rate comes too early: before step w - 1"
        demand(w == 1 or factors[w - 2] < 1 - 1e-9, text)
        demand(
            close(factors[w - 1], 1.0, 1e-9),
            "full rate is not reached at step w - 1; from which number do you count?",
        )
        demand(
            close(factors[w:], torch.ones(w + 1), 1e-9),
            "it does not stay at full rate after the warm-up",
        )
        text = "it does not rise by the same amount in each step, the first included"
        demand(close(factors[:w].diff(), factors[:1].expand(w - 1), 1e-9), text)


@exercise(
    _CHAPTER,
    Drawing(
        "Two numbers for beta2 = {beta2}: rho at infinity, and the first step t at which "
        "rectified Adam uses v.",
        lambda chance: {"beta2": chance.choice((0.95, 0.96, 0.97, 0.985, 0.99, 0.995))},
    ),
)
def rectified(answer: Answer, beta2: float = 0.98) -> None:
    """Two numbers for beta2 = 0.98: rho at infinity, and the first step t at which rectified Adam uses v."""
    infinity, step = answer.numbers("rho at infinity", "the step")
    limit = 2 / (1 - beta2) - 1
    slips = {
        1 / (1 - beta2) - 1: "a factor of two is missing",
        limit + 1: "and minus 1",
        1999.0: "that is for 0.999",
    }
    way = "it follows from beta2 alone"
    demand_number(infinity, limit, way=way, name="rho at infinity", within=0.001, slips=slips)
    text = f"the step: at t = {step:g} "
    demand(step == round(step) and step >= 1, f"{text}steps are whole numbers from 1 on")

    def rho(t: float) -> float:
        return limit - 2 * t * beta2**t / (1 - beta2**t)

    demand(rho(step) > 5, f"{text}rho is {rho(step):.2f}: not above 5 yet")
    demand(step == 1 or rho(step - 1) <= 5, f"{text}rho has been above 5 before")


@exercise(
    _CHAPTER,
    Drawing(
        "Three first moves, in rates, beta1 = {beta1}: uncorrected at beta2 {low} and at "
        "{high}, only m corrected at "
        "{high}.",
        lambda chance: {
            "beta1": chance.choice((0.8, 0.85, 0.95)),
            "low": chance.choice((0.95, 0.96, 0.97)),
            "high": chance.choice((0.99, 0.995, 0.9995)),
        },
    ),
)
def uncorrected(answer: Answer, beta1: float = 0.9, low: float = 0.98, high: float = 0.999) -> None:
    """Three first moves, in rates: uncorrected at beta2 0.98 and at 0.999, only m corrected at 0.999."""
    small, large, half = answer.numbers(f"beta2 = {low}", f"beta2 = {high}", "only m corrected")
    m, v, later = 1 - beta1, 1 - low, 1 - high
    way = "the first averages are (1 - beta1) g and (1 - beta2) g squared"
    slips = {
        m / v: "v stands under a root",
        1.0: "that is with both corrections",
        v**-0.5: "m is not corrected either",
    }
    demand_number(small, m / v**0.5, way=way, name=f"beta2 = {low}", within=0.005, slips=slips)
    slips = {m / later: "v stands under a root", later**-0.5: "m is not corrected either"}
    demand_number(large, m / later**0.5, way=way, name=f"beta2 = {high}", within=0.005, slips=slips)
    slips = {m / later**0.5: "m is divided by 1 - beta1 now", 1 / later: "v stands under a root"}
    demand_number(half, 1 / later**0.5, way=way, name="only m corrected", within=0.005, slips=slips)


@exercise(_SPIKES)
def alarm(answer: Answer) -> None:
    """Write `alarm(signal, calm, budget)`: a threshold on jumps, chosen so that false alarms stay in budget."""
    for seed, budget in ((5, 0.05), (6, 0.01), (7, 0.2)):
        calm = normal(400, seed=seed)
        signal = normal(60, seed=seed + 10) * 2
        found = tensor(answer(signal, calm, budget), (60,))
        demand(bool(((found == 0) | (found == 1)).all()), "an alarm is true or false at each step")
        ordered = calm.double().sort(descending=True).values
        allowed = int(budget * len(calm) + 1e-9)
        right = (signal.double() > ordered[allowed]).double()
        sounds, should = int(found.sum()), int(right.sum())
        demand(not close(found, 1 - right), "the alarm sounds where the signal is low")
        text = f"with a budget of {budget:g} it sounds at {sounds} steps instead of {should}"
        hint = "too often" if sounds > should else "too seldom"
        demand(
            close(found, right),
            f"{text}, {hint}; the threshold comes from the calm values alone, and as many of these as the "
            "budget allows may lie above it",
        )
