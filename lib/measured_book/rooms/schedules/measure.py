"""What the chapter on schedules measures: races, cooldowns from one run, a law of two sums, and a valley.

A small translation model trains with six shapes of schedule at six peak rates each. A small language model
trains with the schedules of today, is cooled down from one run at several lengths, and is looked at between
its checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.models.config import Config
from measured_transformer.tasks.fixed import FixedSet
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.task import Batch
from measured_transformer.tasks.text import TextLM
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, make_model, predict
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import (
    Constant,
    ExponentialDecay,
    InverseSquareRoot,
    Noam,
    Schedule,
    WarmupCosine,
    WarmupLinear,
    WarmupStableDecay,
)
from measured_transformer.training.seeding import make_generator
from numpy import ndarray
from scipy.optimize import nnls
from torch import Tensor

from measured_book.measuring import (
    Search,
    Trained,
    grid,
    job,
    measurement,
    tuned,
    tuning_seeds,
)
from measured_book.measuring.readings import Curve, Progress, Scores, peak_rate

# The sum of the rates, and the formula of the first Transformer ------------------------------------


def summed_rate(schedule: Schedule, rate: float, steps: int) -> float:
    """Sum of the rates over all steps: about how far Adam could carry a weight in one direction.

    >>> round(summed_rate(ExponentialDecay.lasting(5.0), 1e-3, 200), 4)
    0.0055
    """
    return math.fsum(rate * schedule(step) for step in range(steps))


DRAWS = 100


@measurement(
    seeds=1, coords={"draw": tuple(range(DRAWS))}, tolerance={"rates": 1e-12, "peak": 1e-12}
)
def formula(seed: int) -> dict[str, Any]:
    """The library's schedule against the formula of Vaswani et al., for drawn widths and warm-ups."""
    rng = np.random.default_rng(seed)
    drawn = [(int(rng.integers(16, 2049)), int(rng.integers(100, 10001))) for _ in range(DRAWS)]
    exact = [noam_deviations(d, w, 20000) for d, w in drawn]
    longer = [noam_deviations(d, w, w + 1, longer=1) for d, w in drawn]
    return {
        "rates": ("draw", [one for one, _ in exact]),
        "peak": ("draw", [one for _, one in exact]),
        "rates_longer": ("draw", [one for one, _ in longer]),
        "peak_longer": ("draw", [one for _, one in longer]),
    }


def noam_deviations(
    d_model: int, warmup: int, steps: int, *, longer: int = 0
) -> tuple[float, float]:
    """How far the library's `Noam` lies from the formula of Vaswani et al., in units of the largest rate.

    The formula is written out here once more, d^(-1/2) min(s^(-1/2), s w^(-3/2)) for s = 1, 2, ....

    Args:
        d_model: width d.
        warmup: steps of warm-up w.
        steps: how many steps are compared.
        longer: steps that the library's warm-up is longer than the formula's.

    Returns:
        the largest deviation over the steps, and that of the largest rate from 1 / root(d w).

    Raises:
        ValueError: when there are fewer steps than the warm-up takes.
    """
    if steps < warmup + longer:
        raise ValueError(f"expected steps to reach past the warm-up of {warmup}, got {steps}")
    count = np.arange(1, steps + 1, dtype=np.float64)
    rates = d_model**-0.5 * np.minimum(count**-0.5, count * warmup**-1.5)
    schedule = Noam(d_model, warmup + longer)
    found = np.array([schedule(step) for step in range(steps)])
    peak = (d_model * warmup) ** -0.5
    return float(np.abs(found - rates).max() / peak), float(abs(found.max() - peak) / peak)


CUSTOMARY: Mapping[str, Mapping[str, tuple[Schedule, float]]] = {
    "customary": {
        "root": (Noam(512, 4000), 1.0),
        "constant": (Constant(), 1e-3),
        "exponential": (ExponentialDecay(0.96, every=1000), 1e-3),
    },
    "one peak": {
        "root": (InverseSquareRoot(4000), 1e-3),
        "constant": (Constant(), 1e-3),
        "exponential": (ExponentialDecay(0.96, every=1000), 1e-3),
    },
}
"""Two ways to fill in constants that a comparison of three schedules does not state, for 20000 steps."""
CUSTOMARY_STEPS = 20000


@measurement(
    seeds=1,
    coords={"filled": tuple(CUSTOMARY), "schedule": tuple(CUSTOMARY["customary"])},
)
def constants(seed: int) -> dict[str, Any]:
    """Peaks and sums of the rates of three schedules, with constants that are customary and with one peak."""
    del seed
    axes, steps = ("filled", "schedule"), range(CUSTOMARY_STEPS)
    rows = [list(of.values()) for of in CUSTOMARY.values()]
    return {
        "peak": (axes, [[rate * max(map(made, steps)) for made, rate in row] for row in rows]),
        "total": (
            axes,
            [[summed_rate(made, rate, len(steps)) for made, rate in row] for row in rows],
        ),
        "last": (axes, [[made(steps[-1]) / made(3999) for made, _ in row] for row in rows]),
    }


# A race on a small translation task ---------------------------------------------------------------

TASK = NoisyTranslation(symbols=8, length=8, pad_share=0.3, noise=0.1)
"""Map every token by a fixed table and reverse the order; a tenth of the answers are replaced at random."""
TRANSLATOR = Config(vocab=TASK.vocab, d_model=32, placement="post", n_layers=1, activation="relu")
STEPS = 200
BATCH = 32
RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
"""The grid of peak rates in the race, the same for every shape."""
FAILED = 0.5 * math.log(TASK.symbols)
"""A run has failed when its final loss is above half of what guessing among the symbols costs, in nats."""
SCORED_ON = 512
"""Sequences held out, on which final losses are taken."""
SHAPES: Mapping[str, Schedule] = {
    "constant": Constant(),
    "root": InverseSquareRoot(STEPS // 10),
    "exponential, 5": ExponentialDecay.lasting(5.0),
    "exponential, 20": ExponentialDecay.lasting(20.0),
    "exponential, 100": ExponentialDecay.lasting(100.0),
    "cooldown": WarmupStableDecay(0, STEPS, STEPS // 4),
}
"""Schedule and, where it has another constant besides its peak, that constant in steps."""
WORST = 20 * FAILED
"""What a loss counts as that is higher or no number, as of a run that diverged: ten times that of a guess."""
SCHEDULES = ("constant", "root", "exponential", "cooldown")


def racing(shape: str, seed: int, rate: float) -> Job:
    """A translation model trained with a shape of schedule at a peak rate."""
    options = {"schedule": SHAPES[shape], "batch_size": BATCH}
    return job(TRANSLATOR, TASK, seed, steps=STEPS, learning_rate=rate, **options)


PROGRESS = Progress(level=FAILED, last=STEPS // 10, worst=WORST)


@grid(
    axes={"shape": tuple(SHAPES), "rate": RATES},
    seeds=6,
    read=[Scores(size=SCORED_ON, worst=WORST), PROGRESS],
)
def race(seed: int, shape: str, rate: float) -> Job:
    """A small translation model, six shapes of schedule at six peak rates: how low, how right, how soon."""
    return racing(shape, seed, rate)


CHOSEN: Mapping[str, tuple[str, float]] = {
    "constant": ("constant", 8e-3),
    "root": ("root", 1.6e-2),
    "exponential": ("exponential, 100", 8e-3),
    "cooldown": ("cooldown", 8e-3),
}
"""Of each schedule the shape and the peak rate that end lowest on average over the seeds of the race."""
LATER = 500
"""What is added to the seeds of the final, so that none of them chose a setting."""


@grid(
    axes={"schedule": tuple(CHOSEN)},
    seeds=14,
    read=[Scores(size=SCORED_ON, worst=WORST, seed_of_job=True), PROGRESS],
)
def final(seed: int, schedule: str) -> Job:
    """Four schedules at their best setting, from seeds that chose none: how low, how right, how soon."""
    shape, rate = CHOSEN[schedule]
    return racing(shape, seed + LATER, rate)


REPEATED = FixedSet(TASK, size=256, seed=0)
"""The same task with 256 sequences that come again and again, so that there is something to learn by heart."""
REPEATED_STEPS = 200
EVERY = 20
REPEATED_SHAPES: Mapping[str, Schedule] = {
    "constant": Constant(),
    "root": InverseSquareRoot(20),
    "exponential": ExponentialDecay.lasting(100.0),
}


def on_the_way(one: Trained) -> dict[str, Any]:
    """Training and validation loss at each evaluation."""
    return {
        "training": ("at", around(one.run.losses, EVERY)),
        "validation": ("at", one.run.evaluation_losses),
    }


@grid(
    axes={"schedule": tuple(REPEATED_SHAPES)},
    coords={"at": tuple(range(EVERY, REPEATED_STEPS + 1, EVERY))},
    seeds=14,
    read=[on_the_way, peak_rate],
)
def repeated(seed: int, schedule: str) -> Job:
    """The same model on 256 sequences: training and validation loss on the way."""
    options = {"batch_size": BATCH, "schedule": REPEATED_SHAPES[schedule]}
    arm, seeds = f"schedules-repeated-{schedule}", tuning_seeds(2)
    rate = tuned(Search(arm, TRANSLATOR, REPEATED, RATES, seeds, REPEATED_STEPS, options))
    given = {**options, "learning_rate": rate, "evaluate_every": EVERY}
    return job(TRANSLATOR, REPEATED, seed + LATER, steps=REPEATED_STEPS, **given)


def around(losses: Float[ndarray, "step"], every: int) -> list[float]:
    """The mean loss of the steps around each evaluation, as many before as after; fewer at the end.

    >>> around(np.array([4.0, 2.0, 1.0, 1.0]), 2)
    [1.5, 1.0]
    """
    half = every // 2
    ends = range(every, len(losses) + 1, every)
    return [float(losses[end - half : end + half].mean()) for end in ends]


def at_equal_training_loss(
    training: Float[ndarray, "evaluation"], validation: Float[ndarray, "evaluation"], level: float
) -> float:
    """Validation minus training loss where the training loss first falls to `level`.

    Between two evaluations both are taken to move along straight lines.

    >>> at_equal_training_loss(np.array([3.0, 1.0]), np.array([3.2, 1.6]), 2.0)
    0.4

    Raises:
        ValueError: when the training loss begins at or below the level, or never reaches it.
    """
    below = np.flatnonzero(training <= level)
    if not len(below) or below[0] == 0:
        raise ValueError(
            f"expected a training loss that falls past {level:.3g}, got one from {training[0]:.3g} "
            f"down to {training.min():.3g}"
        )
    after = int(below[0])
    share = (training[after - 1] - level) / (training[after - 1] - training[after])
    held = validation[after - 1] + share * (validation[after] - validation[after - 1])
    return round(float(held) - level, 12)


# A small language model ---------------------------------------------------------------------------

TEXT = TextLM(corpus="python", length=32)
SPEAKER = Config(vocab=256, d_model=32, n_layers=1)
LENGTH = 480
WARMUP = 16
TEXT_BATCH = 8
TEXT_RATES = (3e-3, 5e-3, 8e-3, 1.3e-2, 2e-2, 3.2e-2)
LENGTHS = (240, 360, 480)
TEXT_EVERY = 30
AT = tuple(range(TEXT_EVERY, LENGTH + 1, TEXT_EVERY))


def text_schedule(name: str, steps: int = LENGTH) -> Schedule:
    """A schedule of the language models by its name, for a run of so many steps.

    Raises:
        ValueError: there is no such schedule.
    """
    match name:
        case "constant":
            return Constant(WARMUP)
        case "root":
            return InverseSquareRoot(steps // 10)
        case "exponential":
            return ExponentialDecay.lasting(steps / 2, warmup=WARMUP)
        case "cooldown":
            return WarmupStableDecay(WARMUP, steps, steps // 5)
        case "long cooldown":
            return WarmupStableDecay(WARMUP, steps, steps // 2)
        case "linear":
            return WarmupLinear(WARMUP, steps)
        case "cosine":
            return WarmupCosine(WARMUP, steps)
        case "cosine to a tenth":
            return WarmupCosine(WARMUP, steps, 0.1)
        case "stairs":
            return ExponentialDecay(0.3, every=steps // 3, staircase=True, warmup=WARMUP)
    raise ValueError(f"there is no schedule {name!r} for language models")


def text_job(name: str, seed: int, *, rate: float, steps: int = LENGTH) -> Job:
    """A language model trained with a schedule at a peak rate, its loss looked at on the way."""
    return job(
        SPEAKER,
        TEXT,
        seed,
        steps=steps,
        learning_rate=rate,
        schedule=text_schedule(name, steps),
        batch_size=TEXT_BATCH,
        evaluate_every=TEXT_EVERY,
    )


def text_rate(name: str, steps: int = LENGTH) -> float:
    """The peak rate that suits a schedule for runs of so many steps, chosen on two other seeds."""
    options = {"batch_size": TEXT_BATCH, "schedule": text_schedule(name, steps)}
    arm = f"schedules-text-{name}-{steps}".replace(" ", "-")
    return tuned(Search(arm, SPEAKER, TEXT, TEXT_RATES, tuning_seeds(2), steps, options))


TEXT_LOSSES = (Scores(size=SCORED_ON, names=("loss",)), peak_rate, Curve(len(AT)))
"""Loss on held-out windows of the validation part, in nats a byte; the peak rate; the loss on the way."""
TEXT_SCHEDULES = (
    "constant",
    "root",
    "exponential",
    "cooldown",
    "linear",
    "cosine",
    "cosine to a tenth",
)


@grid(axes={"schedule": TEXT_SCHEDULES}, coords={"at": AT}, seeds=6, read=TEXT_LOSSES)
def text(seed: int, schedule: str) -> Job:
    """A small language model with seven schedules, each at its own peak rate: loss on held-out text."""
    return text_job(schedule, seed, rate=text_rate(schedule))


# One run, many lengths ----------------------------------------------------------------------------


KINDS = ("constant", "cooldown", "cosine")


@grid(axes={"kind": KINDS, "steps": LENGTHS}, coords={"at": AT}, seeds=6, read=TEXT_LOSSES)
def lengths(seed: int, kind: str, steps: int) -> Job:
    """Cooldowns that branch off one constant run, against a cosine of each length: loss on held-out text."""
    rate = text_rate("cosine", steps) if kind == "cosine" else text_rate("cooldown")
    return text_job(kind, seed, rate=rate, steps=steps)


# A law of two sums --------------------------------------------------------------------------------

FITTED = ("constant", "cosine")
HELD_OUT = ("linear", "cooldown", "long cooldown", "stairs")
KEPT = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
"""What share of the annealing momentum is kept from step to step: the grid from which the fit chooses."""
POWERS = tuple(float(power) for power in np.geomspace(0.05, 2.0, 60).round(4))
FROM = 4
"""Evaluations that are left out at the beginning, where the warm-up is."""


def annealing_area(
    rates: Float[ndarray, "step"], kept: float, warmup: int = 0
) -> Float[ndarray, "step"]:
    r"""The second sum of Tissue et al. (2024): how much the rate has fallen so far, weighted by how long ago.

    $S_2(t) = \sum_{i \le t} \sum_{k \le i} (\eta_{k-1} - \eta_k) \lambda^{i-k}$: each fall of the rate adds to
    a momentum, of which the share $\lambda$ is kept from step to step, and the momenta are summed up.

    Args:
        rates: of all steps.
        kept: the share.
        warmup: steps at the beginning whose changes do not count.

    >>> annealing_area(np.array([1.0, 1.0, 0.5, 0.5]), 0.5).tolist()
    [0.0, 0.0, 0.5, 0.75]
    """
    momentum, total, found = 0.0, 0.0, []
    for step, rate in enumerate(rates):
        fall = float(rates[step - 1] - rate) if step >= max(warmup, 1) else 0.0
        momentum = kept * momentum + fall
        total += momentum
        found.append(total)
    return np.array(found)


@dataclass(frozen=True)
class Law:
    r"""Loss $= L_0 + A\,S_1^{-\alpha} - C\,S_2$ as fitted to some runs (Tissue et al., 2024, equation 1).

    Attributes:
        floor, scale, gain: $L_0$, $A$ and $C$, none of them negative.
        power: $\alpha$.
        kept: $\lambda$ of the annealing area.
        error: mean square error of the fit.
    """

    floor: float
    scale: float
    gain: float
    power: float
    kept: float
    error: float

    def __call__(self, rates: Float[ndarray, "step"], warmup: int) -> Float[ndarray, "step"]:
        """The loss after each step of a run with these rates."""
        area = annealing_area(rates, self.kept, warmup)
        found: ndarray = (
            self.floor + self.scale * np.cumsum(rates) ** -self.power - self.gain * area
        )
        return found


def fit_law(
    curves: Sequence[tuple[Float[ndarray, "step"], Sequence[int], Float[ndarray, "at"]]],
    *,
    warmup: int,
    annealing: bool = True,
) -> Law:
    """Fit the law to runs, by least squares in the loss.

    Args:
        curves: of each run the rates of all steps, the numbers of steps after which it was looked at, and the
            losses there.
        warmup: steps of warm-up.
        annealing: whether the second sum belongs to the law; without it only the sum of the rates does.
    """
    losses = np.concatenate([loss for _, _, loss in curves])
    ends = [np.asarray(at) - 1 for _, at, _ in curves]
    first = np.concatenate([np.cumsum(r)[end] for (r, _, _), end in zip(curves, ends, strict=True)])
    laws = []
    for kept in KEPT if annealing else (0.0,):
        area = np.concatenate(
            [
                annealing_area(rates, kept, warmup)[end]
                for (rates, _, _), end in zip(curves, ends, strict=True)
            ]
        )
        for power in POWERS:
            columns = [np.ones_like(losses), first**-power]
            columns += [-area] if annealing else []
            fitted, norm = nnls(np.stack(columns, axis=1), losses)
            gain = float(fitted[2]) if annealing else 0.0
            error = float(norm**2 / losses.size)
            laws.append(Law(float(fitted[0]), float(fitted[1]), gain, power, kept, error))
    return min(laws, key=lambda law: law.error)


def annealing_trainings(seed: int) -> dict[str, Job]:
    """Six schedules at one peak rate, that of the cooldown."""
    peak = text_rate("cooldown")
    return {name: text_job(name, seed, rate=peak) for name in (*FITTED, *HELD_OUT)}


@measurement(
    seeds=6,
    coords={"schedule": (*FITTED, *HELD_OUT), "at": AT},
    trainings=annealing_trainings,
    repeat="opening",
)
def annealing(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Loss as a law of two sums, fitted to a constant rate and a cosine, and what it says of four others."""
    del seed
    seen = [(runs[name].rates, AT[FROM:], runs[name].evaluation_losses[FROM:]) for name in FITTED]
    law, alone = (fit_law(seen, warmup=WARMUP, annealing=one) for one in (True, False))
    axes, ends = ("schedule", "at"), np.asarray(AT) - 1
    found = [runs[name] for name in (*FITTED, *HELD_OUT)]
    return {
        "loss": (axes, [run.evaluation_losses for run in found]),
        "law": (axes, [law(run.rates, WARMUP)[ends] for run in found]),
        "sum_alone": (axes, [alone(run.rates, WARMUP)[ends] for run in found]),
        "power": law.power,
        "kept": law.kept,
    }


# A valley -----------------------------------------------------------------------------------------

LINES = ("walls", "floors", "cooling")
"""Between two states of the constant run; between two cooled states; from a cooled one to one that is not."""
SHARES = tuple(round(float(share), 3) for share in np.linspace(-0.25, 1.25, 13))
"""Points of a line: 0 is its beginning, 1 its end."""
APART = 30
"""Steps between the two states of the constant run."""
LOOKED_ON = 256


def valley_trainings(seed: int) -> dict[str, Job]:
    """A constant run as it stands at two moments, and cooled down at half and at the end of its length."""
    peak = text_rate("cooldown")
    return {
        "before": text_job("constant", seed, rate=peak, steps=LENGTH - APART),
        "high": text_job("constant", seed, rate=peak),
        "early floor": text_job("cooldown", seed, rate=peak, steps=LENGTH // 2),
        "floor": text_job("cooldown", seed, rate=peak),
    }


@measurement(
    seeds=6,
    coords={"line": LINES, "share": SHARES},
    trainings=valley_trainings,
    repeat="opening",
)
def valley(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Loss along straight lines between states of one model: from wall to wall, and along the floor."""
    ends = {
        "walls": ("before", "high"),
        "floors": ("early floor", "floor"),
        "cooling": ("floor", "high"),
    }
    batch = _looked_on(seed)
    rows = []
    for line in LINES:
        start, end = (weights_of(runs[name].model) for name in ends[line])
        rows.append([loss_at(start + share * (end - start), batch) for share in SHARES])
    return {"loss": (("line", "share"), rows)}


STATES = ("early floor", "floor", "high", "before")
ACROSS = tuple(round(float(at), 3) for at in np.linspace(-1.3, 1.3, 21))
ALONG = tuple(round(float(at), 3) for at in np.linspace(-0.3, 1.3, 21))


@measurement(
    seeds=2,
    coords={
        "along": ALONG,
        "across": ACROSS,
        "state": STATES,
        "axis": ("along", "across"),
    },
    trainings=valley_trainings,
    repeat="opening",
)
def plane(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The loss on a plane through two cooled states and one that was not cooled, and where states lie on it."""
    weights = {name: weights_of(run.model) for name, run in runs.items()}
    origin, along = weights["early floor"], weights["floor"] - weights["early floor"]
    off = weights["high"] - weights["floor"]
    across = off - (off @ along) / (along @ along) * along
    batch = _looked_on(seed)
    losses = [[loss_at(origin + a * along + b * across, batch) for b in ACROSS] for a in ALONG]
    places = [
        [
            float((weights[name] - origin) @ along / (along @ along)),
            float((weights[name] - origin) @ across / (across @ across)),
        ]
        for name in STATES
    ]
    return {
        "loss": (("along", "across"), losses),
        "place": (("state", "axis"), places),
        "length": float(along.norm()),
        "width": float(across.norm()),
    }


def valley_height(
    x: Float[ndarray, "*shape"], y: Float[ndarray, "*shape"]
) -> Float[ndarray, "*shape"]:
    """The valley of the hand example: it falls by a tenth along x, and its walls rise with y squared over 2."""
    found: ndarray = 0.5 * y**2 - 0.1 * x
    return found


COOLING = (0.5, 0.25, 0.125, 0.0625)
WALKERS: Mapping[str, tuple[float, ...]] = {
    "fast": (1.0,) * 24,
    "slow": (0.1,) * 24,
    "cooled": (*(1.0,) * 20, *COOLING),
}
"""The rates of three walkers in the valley of the hand example."""


def valley_path(walker: str) -> Float[ndarray, "step axis"]:
    """Where a walker stands, the start included: gradient descent on batches that disagree about the floor.

    The first, third, ... batch has its floor at y = 1, the others at y = -1; the mean over both is
    `valley_height`, up to a constant.

    Raises:
        KeyError: there is no such walker.
    """
    x = y = 0.0
    path = [(x, y)]
    for step, rate in enumerate(WALKERS[walker]):
        floor = 1.0 if step % 2 == 0 else -1.0
        x, y = x + 0.1 * rate, y - rate * (y - floor)
        path.append((x, y))
    return np.array(path)


def _looked_on(seed: int) -> Batch:
    return TextLM(corpus="python", length=32, part="validation").batch(
        make_generator(seed, "evaluation"), LOOKED_ON
    )


def weights_of(model: Model) -> Float[Tensor, "weight"]:
    """A copy of all weights of a model, concatenated."""
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


@torch.no_grad()
def loss_at(weights: Float[Tensor, "weight"], batch: Batch) -> float:
    """The loss of the language model with these weights on a batch, in nats a byte.

    Raises:
        ValueError: when there are not as many weights as the model has.
    """
    model = make_model(SPEAKER, causal=True, seed=0).eval()
    count = sum(weight.numel() for weight in model.parameters())
    if weights.numel() != count:
        raise ValueError(f"expected {count} weights, got {weights.numel()}")
    torch.nn.utils.vector_to_parameters(weights, model.parameters())
    return float(cross_entropy(predict(model, batch), batch.targets, batch.scored))
