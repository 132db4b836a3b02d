"""What the chapter on the learning rate measures: curvature, shares of a search, optimisers, batch sizes.

Small decoders on text, and a small translation. Every comparison of optimisers is over a grid of rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.sharpness import flat, largest_eigenvalue
from measured_transformer.models.config import Config
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.text import TextLM
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, Step, evaluate, make_model, predict
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import WarmupCosine
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.gradients import trains_alone
from measured_transformer.variants.muon import Muon
from numpy import ndarray
from scipy.optimize import minimize_scalar
from scipy.stats import qmc
from torch import Tensor

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

FACTORS = ("rate", "depth", "heads", "width")
"""What a search varies, in this order wherever an axis runs over factors."""


def descend(
    curvatures: Sequence[float], start: Sequence[float], rate: float, steps: int
) -> Float[ndarray, "step weight"]:
    """Gradient descent on the parabola with loss sum of c w^2 / 2; the start comes first.

    >>> descend([1.0], [1.0], 0.5, 2).ravel().tolist()
    [1.0, 0.5, 0.25]

    Raises:
        ValueError: when there is not one curvature for each weight.
    """
    if len(curvatures) != len(start):
        raise ValueError(
            f"expected one curvature a weight, got {len(curvatures)} for {len(start)} weights"
        )
    path = [np.array(start, dtype=float)]
    for _ in range(steps):
        gradient = np.array(curvatures) * path[-1]
        path.append(path[-1] - rate * gradient)
    return np.stack(path)


def adam_steps(
    gradients: Sequence[float], *, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
) -> Float[ndarray, "step"]:
    """How far PyTorch's Adam moves a weight at each of these gradients, in units of the learning rate.

    Positive is downhill for a positive gradient.
    """
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimiser = torch.optim.Adam([weight], lr=1.0, betas=betas, eps=eps)
    places = [0.0]
    for gradient in gradients:
        weight.grad = torch.full_like(weight, gradient)
        optimiser.step()
        places.append(weight.item())
    return -np.diff(places)


def variance_parts(table: Float[ndarray, "..."]) -> dict[tuple[int, ...], float]:
    """Functional analysis of variance of a full table: the variance that each set of its axes accounts for.

    The table is split into a mean, one function of each axis, one of each pair, and so on; each has mean zero
    along all its axes, so that they are orthogonal and their variances add up to that of the table.

    Returns:
        from sets of axes, as increasing tuples, to variances; the single axes come first.

    >>> table = np.array([[3.0, 2.8], [2.2, 1.6]])
    >>> {axes: round(part, 2) for axes, part in variance_parts(table).items()}
    {(0,): 0.25, (1,): 0.04, (0, 1): 0.01}
    """
    axes = range(table.ndim)
    sets = list(chain.from_iterable(combinations(axes, size) for size in range(table.ndim + 1)))
    functions: dict[tuple[int, ...], ndarray] = {}
    for kept in sets:
        others = tuple(axis for axis in axes if axis not in kept)
        mean = table.mean(axis=others, keepdims=True)
        functions[kept] = mean - sum(
            function for smaller, function in functions.items() if set(smaller) < set(kept)
        )
    return {kept: float(np.square(functions[kept]).mean()) for kept in sets[1:]}


@dataclass(frozen=True)
class Space:
    """What a search draws from: a range of rates, and as many levels of each size.

    Attributes:
        rates: lowest and highest learning rate; drawn evenly on a logarithmic scale.
        depths: numbers of layers.
        heads: numbers of heads, which must divide each width.
        widths: of the residual stream.

    Raises:
        ValueError: when the numbers of levels differ or are no prime number of at least 3, when heads do not
            divide a width, or the rates are no range of positive numbers.
    """

    rates: tuple[float, float]
    depths: tuple[int, ...] = (1, 2, 3, 4, 5)
    heads: tuple[int, ...] = (1, 2, 4, 8, 16)
    widths: tuple[int, ...] = (16, 32, 48, 64, 80)

    def __post_init__(self) -> None:
        sizes = {len(self.depths), len(self.heads), len(self.widths)}
        count = len(self.depths)
        if len(sizes) > 1 or count < 3 or any(count % n == 0 for n in range(2, count)):
            raise ValueError(
                "expected as many depths as heads and widths, a prime number of at least 3, got "
                f"{len(self.depths)}, {len(self.heads)} and {len(self.widths)}"
            )
        if any(width % heads for width in self.widths for heads in self.heads):
            raise ValueError(
                f"heads must divide each width, got heads {self.heads} and widths {self.widths}"
            )
        if not 0 < self.rates[0] < self.rates[1]:
            raise ValueError(f"expected a range of positive rates, got {self.rates}")

    @property
    def levels(self) -> int:
        """Number of levels of each factor; a search has the square of it trials."""
        return len(self.depths)


@dataclass(frozen=True)
class Trial:
    """One point of a search.

    Attributes:
        rate: its learning rate.
        config: its model.
        levels: number of the level of each factor; a level of the rate is an equal part of the
            logarithmic range.
    """

    rate: float
    config: Config
    levels: tuple[int, int, int, int]


def draw_trials(space: Space, vocab: int, *, seed: int) -> list[Trial]:
    """A balanced random search: for any two factors each pair of levels is tried exactly once.

    A randomised Latin hypercube on an orthogonal array (Tang 1993), as scipy makes it: which levels meet and
    where in its part a rate lies is drawn anew for each seed.
    """
    count = space.levels
    unit = qmc.LatinHypercube(d=len(FACTORS), strength=2, seed=seed).random(count**2)
    low, high = np.log(space.rates)
    trials = []
    for point in unit:
        rate, depth, heads, width = (int(level) for level in np.floor(point * count))
        config = Config(
            vocab=vocab,
            n_layers=space.depths[depth],
            n_heads=space.heads[heads],
            d_model=space.widths[width],
        )
        drawn = float(np.exp(low + (high - low) * point[0]))
        trials.append(Trial(drawn, config, (rate, depth, heads, width)))
    return trials


@dataclass(frozen=True)
class Shares:
    """The variance of a search's losses, taken apart.

    Attributes:
        main: share of each factor alone, corrected for what chance gives it; may lie below 0.
        raw: the same without the correction.
        rest: share of everything else: interactions, seeds, and the rate within its level.
        means: mean loss at each level of each factor.
    """

    main: Float[ndarray, "factor"]
    raw: Float[ndarray, "factor"]
    rest: float
    means: Float[ndarray, "factor level"]


def variance_shares(
    levels: Int[ndarray, "trial factor"], losses: Float[ndarray, "trial"]
) -> Shares:
    """How much of the variance of the losses each factor accounts for on its own, in a balanced design.

    The means over a factor's levels spread a little even where the factor does nothing, because each is a mean
    of few noisy trials. The correction takes that away: the mean square of the rest, once for each degree of
    freedom. What it estimates is the first-order share of functional analysis of variance.

    Args:
        levels: of each factor in each trial, counted from 0.
        losses: one a trial.

    Raises:
        ValueError: when some pair of levels of two factors is not tried as often as the others, when nothing
            is left to estimate the rest from, or when all losses are the same.
    """
    trials, factors = levels.shape
    count = int(levels.max()) + 1
    for first, second in combinations(range(factors), 2):
        pairs = np.bincount(levels[:, first] * count + levels[:, second], minlength=count**2)
        if len(set(pairs.tolist())) > 1:
            raise ValueError(
                f"expected each pair of levels equally often, got {pairs.tolist()} for the factors "
                f"{first} and {second}; make trials with draw_trials"
            )
    free = trials - 1 - factors * (count - 1)
    if free < 1 or np.ptp(losses) == 0:
        raise ValueError(
            f"expected losses that differ and a rest to compare with, got {trials} trials for "
            f"{factors} factors of {count} levels, losses from {losses.min()} to {losses.max()}"
        )
    means = np.array([[losses[own == level].mean() for level in range(count)] for own in levels.T])
    squares = trials / count * np.square(means - losses.mean()).sum(1)
    total = float(np.square(losses - losses.mean()).sum())
    rest = total - float(squares.sum())
    chance = (count - 1) * rest / free
    return Shares((squares - chance) / total, squares / total, rest / total, means)


# What is trained ----------------------------------------------------------------------------------

TEXT = TextLM(corpus="python", length=16)
"""Bytes of Python's language reference: 16 to read, each of them to be followed by a guess of the next."""
READER = Config(vocab=TEXT.vocab, d_model=32, n_layers=2)
GUESS = math.log(TEXT.vocab)
"""Loss of a uniform guess; what a run that diverged is counted with."""
BATCH = 16


def text_job(config: Config, rate: float, seed: int, steps: int, **options: Any) -> Job:
    """A decoder that reads text, by Adam unless told otherwise."""
    given = {"learning_rate": rate, "steps": steps, "batch_size": BATCH, **options}
    return job(config, TEXT, seed, **given)


def loss_of(run: Run, seed: int) -> float:
    """The loss on 512 windows held out, at most that of a uniform guess."""
    loss = math.inf if run.diverged else evaluate(run.model, TEXT, seed=seed, size=512).loss
    return min(loss, GUESS) if math.isfinite(loss) else GUESS


# The rate alone -----------------------------------------------------------------------------------

CURVE = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 2e-2, 4e-2, 1e-1, 3e-1)


def curve_trainings(seed: int) -> dict[float, Job]:
    """One decoder at every rate."""
    return {rate: text_job(READER, rate, seed, 100) for rate in CURVE}


@measurement(
    seeds=6,
    coords={"rate": CURVE},
    trainings=curve_trainings,
    repeat="opening",
)
def curve(seed: int, runs: Mapping[float, Run]) -> dict[str, Any]:
    """Loss of a small decoder after 100 steps at nine learning rates."""
    return {"loss": ("rate", [loss_of(runs[rate], seed) for rate in CURVE])}


DESCENTS = (0.05, 0.1, 0.2)
DESCENT_STEPS = 400
LOOK_EVERY = 20
LATER = 500
"""What is added to seeds where a test was redesigned after a look at six others."""


@measurement(
    seeds=12,
    coords={"rate": DESCENTS, "step": tuple(range(0, DESCENT_STEPS + 1, LOOK_EVERY))},
    tolerance={"curvature": 10.0, "loss": 0.3},
)
def descents(seed: int) -> dict[str, Any]:
    """Plain gradient descent on 32 windows, all of them in each step: the largest curvature, and the loss."""
    seed += LATER
    batch = TextLM(corpus="python", length=8).batch(make_generator(seed, "training"), 32)
    config = READER.replace(activation="gelu")
    curvatures: list[list[float]] = []
    losses: list[list[float]] = []
    for rate in DESCENTS:
        model = make_model(config, causal=True, seed=seed)
        weights = list(model.parameters())
        curvatures.append([])
        losses.append([])
        for step in range(DESCENT_STEPS + 1):
            loss = cross_entropy(predict(model, batch), batch.targets, batch.scored)
            if step % LOOK_EVERY == 0:
                curvatures[-1].append(largest_eigenvalue(model, batch, tolerance=0.02))
                losses[-1].append(loss.item())
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                for weight, gradient in zip(weights, gradients, strict=True):
                    weight.sub_(rate * gradient)
    return {"curvature": (("rate", "step"), curvatures), "loss": (("rate", "step"), losses)}


SPACES = {"wide": Space(rates=(1e-4, 1e-1)), "narrow": Space(rates=(3e-3, 3e-2))}


def searches_trainings(seed: int) -> dict[tuple[str, int], Job]:
    """Twenty-five models for each range of rates."""
    return {
        (name, place): text_job(trial.config, trial.rate, seed, 60)
        for name, space in SPACES.items()
        for place, trial in enumerate(draw_trials(space, TEXT.vocab, seed=seed))
    }


@measurement(
    seeds=8,
    coords={"space": tuple(SPACES), "factor": FACTORS, "level": tuple(range(5))},
    trainings=searches_trainings,
    repeat="opening",
)
def searches(seed: int, runs: Mapping[tuple[str, int], Run]) -> dict[str, Any]:
    """A search of 25 models over rate, depth, heads and width, and how the variance of its losses is shared."""
    found, spread = [], []
    for name, space in SPACES.items():
        trials = draw_trials(space, TEXT.vocab, seed=seed)
        losses = np.array([loss_of(runs[name, place], seed) for place in range(len(trials))])
        found.append(variance_shares(np.array([trial.levels for trial in trials]), losses))
        spread.append(float(losses.std()))
    return {
        "share": (("space", "factor"), [shares.main for shares in found]),
        "rest": ("space", [shares.rest for shares in found]),
        "means": (("space", "factor", "level"), [shares.means for shares in found]),
        "spread": ("space", spread),
    }


# The settings of Adam -----------------------------------------------------------------------------

TRANSLATION = NoisyTranslation(symbols=6, length=6, pad_share=0.4, noise=0.3)
TRANSLATOR = Config(vocab=TRANSLATION.vocab, d_model=32, n_layers=1)
SETTINGS: Mapping[str, dict[str, Any]] = {
    "report": {"optimiser": "Adam", "betas": (0.9, 0.98), "eps": 1e-9},
    "default": {"optimiser": "Adam", "betas": (0.9, 0.999), "eps": 1e-8},
    "AdamW": {
        "optimiser": "AdamW",
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "weight_decay": 0.01,
    },
}
TRANSLATION_STEPS = 400
TRANSLATION_RATES = (3e-3, 6e-3, 1.2e-2, 2.4e-2, 4.8e-2, 9.6e-2)
LOWER = 8.0
"""By what the tuned rate of the control is divided."""


def _setting(arm: str) -> dict[str, Any]:
    schedule = WarmupCosine(warmup=25, steps=TRANSLATION_STEPS)
    return {"batch_size": 64, "schedule": schedule, **SETTINGS[arm]}


def tuned_setting(arm: str) -> float:
    """The peak learning rate of one setting."""
    name = f"learning_rate.settings.{arm}"
    given = (TRANSLATOR, TRANSLATION, TRANSLATION_RATES, tuning_seeds(2), TRANSLATION_STEPS)
    return tuned(Search(name, *given, _setting(arm)))


def settings_trainings(seed: int) -> dict[str, Job]:
    """Each setting at its own rate, and the report's once more at an eighth of it."""
    seed += LATER
    rates = {arm: tuned_setting(arm) for arm in SETTINGS}
    steps = {"steps": TRANSLATION_STEPS, "evaluate_every": TRANSLATION_STEPS // 2}
    jobs = {
        arm: job(TRANSLATOR, TRANSLATION, seed, learning_rate=rates[arm], **steps, **_setting(arm))
        for arm in SETTINGS
    }
    lower = {"learning_rate": rates["report"] / LOWER, **steps, **_setting("report")}
    return {**jobs, "lower rate": job(TRANSLATOR, TRANSLATION, seed, **lower)}


RIVALS = (*SETTINGS, "lower rate")


@measurement(
    seeds=6,
    coords={"arm": RIVALS},
    trainings=settings_trainings,
    repeat="opening",
)
def settings(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Three settings of Adam on a small translation, half way and at the end."""
    final = [
        evaluate(runs[arm].model, TRANSLATION, seed=seed + LATER, size=1024).loss for arm in RIVALS
    ]
    return {
        "loss": ("arm", final),
        "half_way": ("arm", [float(runs[arm].evaluation_losses[0]) for arm in RIVALS]),
        "rate": ("arm", [float(runs[arm].rates.max()) for arm in RIVALS]),
    }


# Clipping, and Muon -------------------------------------------------------------------------------

STEPS = 120
GRID = tuple(range(6))
RATES: Mapping[str, tuple[float, ...]] = {
    "SGD": (0.08, 0.16, 0.32, 0.64, 1.28, 2.56),
    "Adam": (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2),
}
CLIPS: Mapping[str, float | None] = {"none": None, "clipped": 1.0}


def clipping_trainings(seed: int) -> dict[tuple[str, str, int], Job]:
    """Plain gradient descent and Adam, with and without clipping, each at six rates."""
    kinds: Mapping[str, dict[str, Any]] = {
        "SGD": {"optimiser": "SGD", "betas": (0.0, 0.0)},
        "Adam": {"optimiser": "Adam"},
    }
    return {
        (kind, clip, place): text_job(
            READER, RATES[kind][place], seed, STEPS, clip=CLIPS[clip], **kinds[kind]
        )
        for kind in RATES
        for clip in CLIPS
        for place in GRID
    }


@measurement(
    seeds=8,
    coords={"kind": tuple(RATES), "clip": tuple(CLIPS), "rate": GRID},
    trainings=clipping_trainings,
    repeat="opening",
)
def clipping(seed: int, runs: Mapping[tuple[str, str, int], Run]) -> dict[str, Any]:
    """Gradients clipped to norm 1 or not: the loss after 120 steps, and how often clipping acts."""
    axes = ("kind", "clip", "rate")
    table = [[[runs[kind, clip, i] for i in GRID] for clip in CLIPS] for kind in RATES]
    return {
        "loss": (axes, [[[loss_of(run, seed) for run in row] for row in two] for two in table]),
        "long": (
            axes,
            [
                [[float((run.gradient_norms > 1).mean()) for run in row] for row in two]
                for two in table
            ],
        ),
    }


def muon_trainings(seed: int) -> dict[tuple[str, float], Job]:
    """Muon, and Adam without clipping, at the same six rates."""
    own = {"optimiser": "SGD", "betas": (0.0, 0.0), "prepare": Muon(), "after_step": trains_alone}
    jobs = {
        ("Muon", rate): text_job(READER, rate, seed, STEPS, clip=None, evaluate_every=10, **own)
        for rate in RATES["Adam"]
    }
    for rate in RATES["Adam"]:
        jobs["Adam", rate] = text_job(READER, rate, seed, STEPS, clip=None, optimiser="Adam")
    return jobs


@measurement(
    seeds=6,
    coords={"optimiser": ("Adam", "Muon"), "rate": RATES["Adam"]},
    trainings=muon_trainings,
    repeat="opening",
)
def muon(seed: int, runs: Mapping[tuple[str, float], Run]) -> dict[str, Any]:
    """Muon beside Adam: the loss after 120 steps, and after how many steps Muon is where its rival ends."""
    losses = [[loss_of(runs[o, rate], seed) for rate in RATES["Adam"]] for o in ("Adam", "Muon")]
    best = RATES["Adam"][int(np.argmin(losses[0]))]
    goal = evaluate(runs["Adam", best].model, TEXT, seed=seed).loss
    reached = []
    for rate in RATES["Adam"]:
        run = runs["Muon", rate]
        there = np.flatnonzero(run.evaluation_losses <= goal)
        reached.append(float(run.evaluated[there[0]]) if len(there) else float(STEPS))
    return {"loss": (("optimiser", "rate"), losses), "reached": ("rate", reached)}


# Batch size ---------------------------------------------------------------------------------------

LEVEL = 2.5
"""The loss that is to be reached."""
CAPS = {4: 400, 16: 160, 64: 80, 256: 40}
"""Sequences of a batch, and after how many steps a run is given up."""
LOOKS = {4: 10, 16: 5, 64: 2, 256: 1}
"""After how many steps it is looked whether the level is reached."""
BATCH_RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
EARLY = 15
"""Steps after which the noise scale is measured for the first time."""


@dataclass(frozen=True)
class AtLevel:
    """A hook for `train`: ends a training on text when the loss on windows held out is at the level.

    Attributes:
        every: after how many steps to look.
        seed: of the windows.
    """

    every: int
    seed: int

    def __call__(self, step: Step) -> bool:
        """Return whether the training ends here."""
        if step.number % self.every:
            return False
        return evaluate(step.model, TEXT, seed=self.seed).loss <= LEVEL


def batches_trainings(seed: int) -> dict[tuple[int, float] | str, Job]:
    """Every size of batch at every rate until the level is reached; and the first steps of one of these."""
    jobs: dict[tuple[int, float] | str, Job] = {
        (size, rate): text_job(
            READER,
            rate,
            seed,
            cap,
            batch_size=size,
            clip=None,
            after_step=AtLevel(LOOKS[size], seed),
        )
        for size, cap in CAPS.items()
        for rate in BATCH_RATES
    }
    jobs["early"] = text_job(READER, 1.6e-2, seed, EARLY, batch_size=64, clip=None)
    return jobs


@measurement(
    seeds=4,
    coords={"batch": tuple(CAPS), "rate": BATCH_RATES, "look": ("early", "end")},
    trainings=batches_trainings,
    repeat="opening",
)
def batches(seed: int, runs: Mapping[tuple[int, float] | str, Run]) -> dict[str, Any]:
    """Steps that Adam takes to a loss of 2.5, by batch size and rate; and the gradient's noise scale."""
    looked = (runs["early"].model, runs[64, 1.6e-2].model)
    return {
        "steps": (
            ("batch", "rate"),
            [[float(len(runs[size, rate].losses)) for rate in BATCH_RATES] for size in CAPS],
        ),
        "noise_scale": ("look", [noise_scale(batch_gradients(m, seed), BATCH) for m in looked]),
    }


WHOLE = (4, 64)
"""Sizes at which all of Adam's settings change with the batch."""
BETAS, EPS = (0.9, 0.98), 1e-8
"""Adam's averages and epsilon for batches of `BATCH`."""


def scaled(size: int) -> dict[str, Any]:
    r"""Adam's averages and $\epsilon$ for a size of batch, as Malladi et al. (2022) scale them with it.

    >>> {name: np.round(value, 9).tolist() for name, value in scaled(64).items()}
    {'betas': [0.6, 0.92], 'eps': 5e-09}
    """
    share = size / BATCH
    return {
        "betas": tuple(1 - share * (1 - beta) for beta in BETAS),
        "eps": EPS / math.sqrt(share),
    }


def whole_trainings(seed: int) -> dict[tuple[int, float], Job]:
    """Two sizes of batch at every rate until the level is reached, with all of Adam's settings scaled."""
    return {
        (size, rate): text_job(
            READER,
            rate,
            seed,
            CAPS[size],
            batch_size=size,
            clip=None,
            after_step=AtLevel(LOOKS[size], seed),
            **scaled(size),
        )
        for size in WHOLE
        for rate in BATCH_RATES
    }


@measurement(
    seeds=4,
    coords={"batch": WHOLE, "rate": BATCH_RATES},
    trainings=whole_trainings,
    repeat="opening",
)
def whole(seed: int, runs: Mapping[tuple[int, float], Run]) -> dict[str, Any]:
    """Steps that Adam takes to a loss of 2.5 where its averages and epsilon change with the batch as well."""
    del seed
    steps = [[float(len(runs[size, rate].losses)) for rate in BATCH_RATES] for size in WHOLE]
    return {"steps": (("batch", "rate"), steps)}


def batch_gradients(model: Model, seed: int, count: int = 64) -> Float[Tensor, "batch weight"]:
    """The gradients of the loss on so many batches of 16 windows, in float64."""
    generator, weights = make_generator(seed, "noise"), list(model.parameters())
    rows = []
    for _ in range(count):
        batch = TEXT.batch(generator, BATCH)
        loss = cross_entropy(predict(model, batch), batch.targets, batch.scored)
        rows.append(flat(torch.autograd.grad(loss, weights)).double())
    return torch.stack(rows)


def noise_scale(gradients: Float[Tensor, "batch weight"], size: int) -> float:
    r"""The simple noise scale of McCandlish et al. (2018): the variance of one example's gradient over $|G|^2$.

    The variance is summed over weights. The squared length of a mean gradient is too long by the noise that is
    left in it, which is taken off.

    >>> generator = torch.Generator().manual_seed(0)
    >>> single = 1 + 4 * torch.randn(2000, 1000, generator=generator).double()
    >>> round(noise_scale(single, 1))
    16

    Args:
        gradients: of batches drawn independently.
        size: examples in a batch.
    """
    spread = float(gradients.var(0).sum())
    squared = float(gradients.mean(0).square().sum()) - spread / len(gradients)
    return size * spread / squared


def hyperbola(
    sizes: Sequence[float | int], steps: Sequence[float | int]
) -> tuple[float, float, Float[ndarray, "size"]]:
    r"""Fit $S = S_{\min} (1 + B_c / B)$ to steps at several batch sizes, by least squares of logarithms.

    In examples $E = B S$ that is $(S / S_{\min} - 1)(E / E_{\min} - 1) = 1$ with $E_{\min} = B_c S_{\min}$.

    >>> least, critical, residuals = hyperbola([4.0, 16.0, 64.0], [100.0, 40.0, 25.0])
    >>> round(least, 3), round(critical, 3), bool(abs(residuals).max() < 1e-4)
    (20.0, 16.0, True)

    Returns:
        the fewest steps, the critical batch size, and the residuals of the logarithms.
    """
    b, s = np.asarray(sizes, dtype=float), np.log(np.asarray(steps, dtype=float))

    def residuals(log_critical: float) -> Float[ndarray, "size"]:
        rest = s - np.log1p(np.exp(log_critical) / b)
        return rest - rest.mean()

    found = minimize_scalar(
        lambda x: float(np.square(residuals(x)).sum()), bounds=(-3, 12), method="bounded"
    )
    critical = float(np.exp(found.x))
    least = float(np.exp((s - np.log1p(critical / b)).mean()))
    return least, critical, residuals(float(found.x))


# Decay --------------------------------------------------------------------------------------------

DECAYS: Mapping[str, dict[str, Any]] = {
    "no decay": {"optimiser": "Adam"},
    "AdamW": {"optimiser": "AdamW", "weight_decay": 0.3},
    "L2 in Adam": {"optimiser": "Adam", "weight_decay": 3e-4},
}
TENTHS = tuple(range(1, 11))


def decays_trainings(seed: int) -> dict[str, Job]:
    """Adam without decay, and with each of two."""
    return {
        kind: text_job(READER, 8e-3, seed, STEPS, clip=None, **given)
        for kind, given in DECAYS.items()
    }


@measurement(
    seeds=6,
    coords={"kind": tuple(DECAYS)[1:], "tenth": TENTHS},
    trainings=decays_trainings,
    repeat="opening",
)
def decays(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """How long weights are after training with decay, relative to without, by the size of their gradients."""
    inside = torch.cat(
        [
            torch.full((weight.numel(),), weight.ndim == 2 and name.startswith("blocks"))
            for name, weight in runs["no decay"].model.named_parameters()
        ]
    )
    sizes = batch_gradients(runs["no decay"].model, seed).square().mean(0).sqrt()[inside]
    weights = {
        kind: flat([w.detach() for w in run.model.parameters()]).double()[inside]
        for kind, run in runs.items()
    }
    tenths = sizes.argsort().tensor_split(len(TENTHS))
    kept = [
        [float(weights[kind][part].norm() / weights["no decay"][part].norm()) for part in tenths]
        for kind in tuple(DECAYS)[1:]
    ]
    return {
        "kept": (("kind", "tenth"), kept),
        "gradient": ("tenth", [float(sizes[part].median()) for part in tenths]),
    }
