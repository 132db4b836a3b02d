"""What the chapter on warm-up measures: four suspects, their remedies, the first steps, and alarms for spikes.

Post-norm encoders of six blocks learn to reverse five tokens, at six learning rates and with one suspected
cause taken away at a time. Pre-norm encoders of four blocks learn the same task and then spike.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.analysis.alarms import (
    SIGNALS,
    Recorded,
    Recorder,
    Worth,
    jumps,
    signals_of,
    solved_before,
    spike_onsets,
    worth,
)
from measured_transformer.analysis.early_stopping import WhenSolved
from measured_transformer.analysis.residual import ledger, token_spread
from measured_transformer.analysis.sharpness import flat, largest_eigenvalue
from measured_transformer.analysis.solving import solved
from measured_transformer.models.config import Config
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Batch, Task
from measured_transformer.tasks.text import TextLM
from measured_transformer.training.checkpoints import read_tensors
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, evaluate, make_model, predict, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import Constant
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.initialisation import BranchFactor
from measured_transformer.variants.norms import head_norms
from measured_transformer.variants.optimisers import AdamWithFilled, ZLoss
from numpy import ndarray
from torch import Tensor

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

TASK = Reversal(vocab=5, length=5)
RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
"""The grid of peak learning rates of all remedies."""
WARMUP = 60
LIMIT = 300
"""Steps in which a model may move, warm-up included; those for which weights are held come on top."""
BATCH = 32
OPTIONS: Mapping[str, Any] = {"batch_size": BATCH, "clip": None}


def encoder(placement: str, blocks: int = 6) -> Config:
    """Blocks of width 32 with two heads and Xavier weights."""
    return Config(
        vocab=5,
        d_model=32,
        n_heads=2,
        n_layers=blocks,
        activation="relu",
        placement=placement,  # type: ignore[arg-type]
    )


# Remedies -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LateWarmup:
    """A schedule that begins at the full rate, and warms up only then.

    Attributes:
        full: steps at the full rate before the warm-up.
        warmup: steps over which the factor then grows from near 0 to 1.

    Raises:
        ValueError: when one of them is negative.
    """

    full: int
    warmup: int

    def __post_init__(self) -> None:
        if min(self.full, self.warmup) < 0:
            raise ValueError(f"steps must not be negative, got {self.full} and {self.warmup}")

    def __call__(self, step: int) -> float:
        """The factor at this step; the first is number 0."""
        return 1.0 if step < self.full else Constant(self.warmup)(step - self.full)


BEFORE = 20
"""Steps at the full rate before a late warm-up."""
ARMS = (
    "at once",
    "warm-up",
    "clipped",
    "second filled",
    "first filled",
    "both filled",
    "rectified",
    "late warm-up",
    "small branches",
    "pre-norm",
)
"""Post-norm at its full rate from the first step, and with one thing changed; and pre-norm."""


def remedy(arm: str) -> tuple[str, dict[str, Any]]:
    """The placement of an arm, and what it changes in the training.

    Raises:
        ValueError: there is no such arm.
    """
    match arm:
        case "at once":
            return "post", {}
        case "warm-up":
            return "post", {"schedule": Constant(WARMUP)}
        case "clipped":
            return "post", {"clip": 1.0}
        case "second filled" | "first filled" | "both filled":
            name: Any = arm.split()[0]
            given = {"optimiser": "SGD", "betas": (0.0, 0.0), "steps": LIMIT + WARMUP}
            return "post", {**given, "prepare": AdamWithFilled(WARMUP, name)}
        case "rectified":
            return "post", {"optimiser": "RAdam"}
        case "late warm-up":
            return "post", {"schedule": LateWarmup(BEFORE, WARMUP), "steps": LIMIT + BEFORE}
        case "small branches":
            return "post", {"prepare": BranchFactor(1 / 24)}
        case "pre-norm":
            return "pre", {}
    raise ValueError(f"arm must be one of {', '.join(ARMS)}, got {arm!r}")


def remedies_trainings(seed: int) -> dict[tuple[str, float], Job]:
    """Every arm at every learning rate, until the task is solved or the steps are over."""
    jobs = {}
    for arm in ARMS:
        placement, changed = remedy(arm)
        given = {**OPTIONS, "steps": LIMIT, "after_step": WhenSolved(20), **changed}
        for rate in RATES:
            jobs[arm, rate] = job(encoder(placement), TASK, seed, learning_rate=rate, **given)
    return jobs


@measurement(
    seeds=10,
    coords={"arm": ARMS, "rate": RATES},
    trainings=remedies_trainings,
    repeat="opening",
)
def remedies(seed: int, runs: Mapping[tuple[str, float], Run]) -> dict[str, Any]:
    """Six post-norm blocks with one suspect removed at a time: steps to a loss of 0.05, and early gradients."""
    axes = ("arm", "rate")

    def each(value: Any) -> tuple[tuple[str, str], list[list[Any]]]:
        return axes, [[value(runs[arm, rate]) for rate in RATES] for arm in ARMS]

    return {
        "solved": each(lambda run: bool(solved([run]).observed[0])),
        "steps": each(_steps),
        "last_loss": each(lambda run: _mean(run.losses[-20:])),
        "early_gradient": each(lambda run: _mean(run.gradient_norms[:20])),
        "later_gradient": each(lambda run: _mean(run.gradient_norms[20:100])),
    }


def _steps(run: Run) -> float:
    """Steps to the level; `LIMIT` where the task was not solved in them. Held steps are counted, too."""
    found = solved([run])
    return float(min(found.steps[0], LIMIT)) if found.observed[0] else float(LIMIT)


def _mean(values: Float[ndarray, "step"]) -> float:
    """The mean, or a million where it is larger or no number, as of a run that diverged."""
    return float(min(values.mean(), 1e6)) if len(values) and np.isfinite(values).all() else 1e6


# The first steps ----------------------------------------------------------------------------------

WATCHED = ("at once", "warm-up", "clipped", "small branches", "pre-norm")
LOOKS = (0, 1, 3, 9, 19, 39)
"""Updates that have been made before each look."""
CURVED = (1, 39)
SAME_RATE = 4e-3
STABLE = 38.0
"""The largest stable learning rate times curvature of Adam with a first beta of 0.9 (Cohen et al. 2022)."""


@dataclass(frozen=True)
class Snapshot:
    """A training, stopped after some steps.

    Attributes:
        step: number of updates that were made.
        model: as it stood then.
        gradient_norms: length of the whole gradient of each step until then, before clipping.
        divisors: what Adam divides the gradient by, in the order of `model.parameters()`: the root of the
            bias-corrected average of squares, and epsilon. None before the first update.
    """

    step: int
    model: Model
    gradient_norms: Float[ndarray, "step"]
    divisors: list[Tensor] | None


def snapshots(
    config: Config,
    task: Task,
    steps: Sequence[int],
    *,
    betas: tuple[float, float] = (0.9, 0.98),
    eps: float = 1e-8,
    **options: Any,
) -> list[Snapshot]:
    """Train as `train` does, and stop on the way to look. One training, whatever the number of stops.

    Args:
        config, task: what is trained, on what.
        steps: after how many updates to look, in rising order.
        betas, eps: of Adam.
        options: what else `train` takes.

    Raises:
        ValueError: when the steps do not rise, or as `train`.
    """
    if list(steps) != sorted(set(steps)):
        raise ValueError(f"steps must rise, got {list(steps)}")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.safetensors"
        for step in steps:
            settings = {"betas": betas, "eps": eps, "checkpoint_every": max(steps) + 1, **options}
            run = train(config, task, steps=step, checkpoint=file if step else None, **settings)
            divisors = _divisors(file, run.model, betas[1], eps) if step else None
            found.append(Snapshot(step, run.model, run.gradient_norms, divisors))
    return found


def _divisors(file: Path, model: Model, beta: float, eps: float) -> list[Tensor]:
    kept, _ = read_tensors(file)
    divisors = []
    for place, weight in enumerate(model.parameters()):
        seen = float(kept[f"optimiser.{place}.step"])
        square = kept[f"optimiser.{place}.exp_avg_sq"].to(weight.device)
        divisors.append((square / (1 - beta**seen)).sqrt() + eps)
    return divisors


@torch.no_grad()
def update_norm(before: Model, after: Model) -> float:
    """Length of the difference between all weights of two models of one shape."""
    pairs = zip(before.parameters(), after.parameters(), strict=True)
    return float(flat([b - a for a, b in pairs]).norm())


@torch.no_grad()
def prediction_shift(before: Model, after: Model, batch: Batch) -> float:
    """How far the answers of two models lie apart: KL(before || after), in nats a position."""
    old, new = (predict(model, batch).log_softmax(-1) for model in (before, after))
    return float((old.exp() * (old - new)).sum(-1)[batch.scored].mean())


def _stops(arm: str, seed: int, steps: Sequence[int]) -> dict[int, Snapshot]:
    """A training of one arm at the rate that all share, as it stood after some numbers of updates."""
    placement, changed = remedy(arm)
    given = {**OPTIONS, **changed, "learning_rate": SAME_RATE, "seed": seed}
    return {shot.step: shot for shot in snapshots(encoder(placement), TASK, steps, **given)}


@measurement(
    seeds=10,
    coords={"arm": WATCHED, "look": LOOKS, "step": tuple(range(40))},
    tolerance={"gradient": 1.0, "update": 0.05, "shift": 0.2, "apart": 0.1},
)
def first_steps(seed: int) -> dict[str, Any]:
    """The first forty steps at a rate of 0.004: gradients, updates, what they do to answers and positions."""
    batch = TASK.batch(make_generator(seed, "evaluation"), 64)
    stops = sorted({*LOOKS, *(at + 1 for at in LOOKS)})
    rows: dict[str, list[Any]] = {}
    for arm in WATCHED:
        shots = _stops(arm, seed, stops)
        pairs = [(shots[at].model, shots[at + 1].model) for at in LOOKS]
        values = {
            "gradient": shots[stops[-1]].gradient_norms[:40].tolist(),
            "update": [update_norm(*pair) for pair in pairs],
            "shift": [prediction_shift(*pair, batch) for pair in pairs],
            "apart": [_apart(before, batch) for before, _ in pairs],
        }
        for name, value in values.items():
            rows.setdefault(name, []).append(value)
    return {
        name: (("arm", "step" if name == "gradient" else "look"), value)
        for name, value in rows.items()
    }


BENT = ("at once", "warm-up", "small branches", "pre-norm")


@measurement(
    seeds=4,
    coords={"arm": BENT, "look": CURVED},
    tolerance={"curvature": 100.0, "overshoot": 1e5},
)
def curvature(seed: int) -> dict[str, Any]:
    """The largest eigenvalue of the Hessian, and the learning rate in units of the largest that is stable."""
    batch = TASK.batch(make_generator(seed, "evaluation"), 32)
    plain, relative = [], []
    for arm in BENT:
        shots = _stops(arm, seed, CURVED)
        schedule = remedy(arm)[1].get("schedule", Constant())
        plain.append([largest_eigenvalue(shots[at].model, batch) for at in CURVED])
        relative.append(
            [
                SAME_RATE
                * schedule(at)
                * largest_eigenvalue(shots[at].model, batch, shots[at].divisors, tolerance=0.1)
                / STABLE
                for at in CURVED
            ]
        )
    return {"curvature": (("arm", "look"), plain), "overshoot": (("arm", "look"), relative)}


def _apart(model: Any, batch: Batch) -> float:
    """How far the last state tells positions apart: 1 for nothing in common, 0 for all alike."""
    return float(token_spread(ledger(model, batch.inputs).states[-1:])[0])


# Pre-norm: with and without, and how high ---------------------------------------------------------

TUNED = ("none", "short", "long", "post-norm")
WARMUPS = {"none": 0, "short": 10, "long": 40}
"""Pre-norm without warm-up, and with one over 5 and 20 percent of the steps."""
TUNED_STEPS = 200
TUNED_RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)


def tuned_trainings(seed: int) -> dict[str, Job]:
    """Each arm at the rate that suits it, chosen on two other seeds; and post-norm at once, to compare."""
    jobs = {}
    for arm, warmup in WARMUPS.items():
        options = {**OPTIONS, "schedule": Constant(warmup)}
        name = f"warm-up-tuned-{arm}"
        search = Search(
            name, encoder("pre"), TASK, TUNED_RATES, tuning_seeds(2), TUNED_STEPS, options
        )
        given = {**options, "steps": TUNED_STEPS, "learning_rate": tuned(search)}
        jobs[arm] = job(encoder("pre"), TASK, seed, **given)
    given = {**OPTIONS, "steps": TUNED_STEPS, "learning_rate": SAME_RATE}
    return {**jobs, "post-norm": job(encoder("post"), TASK, seed, **given)}


@measurement(
    seeds=14,
    coords={"arm": TUNED},
    trainings=tuned_trainings,
    repeat="opening",
    tolerance={"loss": 0.3},
)
def tuned_arms(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Six pre-norm blocks with and without warm-up at tuned rates: median loss of the last fifty steps."""
    del seed
    return {
        "loss": ("arm", [float(np.median(runs[arm].losses[-50:])) for arm in TUNED]),
        "rate": ("arm", [float(runs[arm].rates.max()) for arm in TUNED]),
    }


HIGH_RATES = (8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
HIGH_ARMS = ("at once", "warm-up", "QK-norm", "z-loss")
HIGH_LIMIT = 200
HIGH_WARMUP = 40


def high_trainings(seed: int) -> dict[tuple[str, float], Job]:
    """Four pre-norm blocks at high learning rates, four ways."""
    changed: dict[str, dict[str, Any]] = {
        "at once": {},
        "warm-up": {"schedule": Constant(HIGH_WARMUP)},
        "QK-norm": {"prepare": head_norms},
        "z-loss": {"prepare": ZLoss()},
    }
    given = {**OPTIONS, "steps": HIGH_LIMIT, "after_step": WhenSolved(20)}
    return {
        (arm, rate): job(
            encoder("pre", 4), TASK, seed, learning_rate=rate, **{**given, **changed[arm]}
        )
        for arm in HIGH_ARMS
        for rate in HIGH_RATES
    }


@measurement(
    seeds=10,
    coords={"arm": HIGH_ARMS, "rate": HIGH_RATES},
    trainings=high_trainings,
    repeat="opening",
)
def high(seed: int, runs: Mapping[tuple[str, float], Run]) -> dict[str, Any]:
    """Four pre-norm blocks at high rates, bare and with three helps: steps to a loss of 0.05."""
    axes = ("arm", "rate")
    found = [[solved([runs[arm, rate]]) for rate in HIGH_RATES] for arm in HIGH_ARMS]
    return {
        "solved": (axes, [[bool(one.observed[0]) for one in row] for row in found]),
        "steps": (axes, [[float(min(one.steps[0], HIGH_LIMIT)) for one in row] for row in found]),
    }


# On text ------------------------------------------------------------------------------------------

TEXT = TextLM(corpus="python", length=32)
TEXT_STEPS = 200
TEXT_RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
TEXT_WARMUPS = {"without": 0, "with": TEXT_STEPS // 10}
PLACEMENTS = ("post", "pre")


def text_trainings(seed: int) -> dict[tuple[str, str], Job]:
    """Language models of two blocks, each at the rate that suits it."""
    jobs = {}
    for where in PLACEMENTS:
        config = Config(vocab=256, d_model=32, n_layers=2, activation="relu", placement=where)  # type: ignore[arg-type]
        for kind, warmup in TEXT_WARMUPS.items():
            options = {"batch_size": 16, "clip": 1.0, "schedule": Constant(warmup)}
            search = Search(
                f"warm-up-text-{where}-{kind}",
                config,
                TEXT,
                TEXT_RATES,
                tuning_seeds(2),
                TEXT_STEPS,
                options,
            )
            rate = tuned(search)
            jobs[where, kind] = job(
                config, TEXT, seed, steps=TEXT_STEPS, learning_rate=rate, **options
            )
    return jobs


@measurement(
    seeds=10,
    coords={"placement": PLACEMENTS, "warmup": tuple(TEXT_WARMUPS)},
    trainings=text_trainings,
    repeat="opening",
    tolerance={"loss": 0.1},
)
def text(seed: int, runs: Mapping[tuple[str, str], Run]) -> dict[str, Any]:
    """Language models of two blocks on bytes of text, with and without warm-up: loss on the validation part."""
    axes = ("placement", "warmup")
    cells = [[runs[where, kind] for kind in TEXT_WARMUPS] for where in PLACEMENTS]
    return {
        "loss": (
            axes,
            [[evaluate(run.model, TEXT, seed=seed).loss for run in row] for row in cells],
        ),
        "rate": (axes, [[float(run.rates.max()) for run in row] for row in cells]),
    }


# Explosions, and models that learn and then spike -------------------------------------------------

DEEP = ("no norm", "post-norm", "pre-norm")
DEPTH = 12


@measurement(seeds=10, coords={"norm": DEEP, "block": tuple(range(1, DEPTH + 1))})
def explosion(seed: int) -> dict[str, Any]:
    """Twelve blocks before training: the length of each block's gradient."""
    configs = {
        "no norm": encoder("pre", DEPTH).replace(norm="none"),
        "post-norm": encoder("post", DEPTH),
        "pre-norm": encoder("pre", DEPTH),
    }
    return {"gradient": (("norm", "block"), [_by_block(configs[one], seed) for one in DEEP])}


def _by_block(config: Config, seed: int) -> list[float]:
    model: Any = make_model(config, causal=False, seed=seed)
    batch = TASK.batch(make_generator(seed, "training"), BATCH)
    cross_entropy(predict(model, batch), batch.targets, batch.scored).backward()
    return [float(flat([p.grad for p in block.parameters()]).norm()) for block in model.blocks]


SPIKE_STEPS = 500
SPIKE_RATE = 1.2e-2
CALM_RATE = 3e-3
LATER = 500
"""What is added to the seeds of these runs: at a rate of 0.008 eight others had been looked at."""
RUNS = ("high", "calm")
"""The same model at a rate at which it spikes, and at a quarter of it."""
THRESHOLDS = tuple(round(float(t), 3) for t in np.geomspace(0.01, 3.0, 28))
"""By how many powers of ten a signal must jump above its median of twenty steps to be an alarm."""
BEFORE_SPIKE, AFTER_SPIKE = 30, 10
BIN = 5


def spikes_trainings(seed: int) -> dict[str, Job]:
    """Both rates, with everything written down."""
    given = {
        **OPTIONS,
        "steps": SPIKE_STEPS,
        "schedule": Constant(WARMUP),
        "prepare": Recorded(SPIKE_STEPS),
        "after_step": Recorder(TASK),
    }
    rates = {"high": SPIKE_RATE, "calm": CALM_RATE}
    return {
        run: job(encoder("pre", 4), TASK, seed + LATER, learning_rate=rates[run], **given)
        for run in RUNS
    }


@measurement(
    seeds=40,
    coords={
        "run": RUNS,
        "signal": SIGNALS,
        "threshold": THRESHOLDS,
        "around": tuple(range(-BEFORE_SPIKE, AFTER_SPIKE + 1)),
        "bin": tuple(range(0, SPIKE_STEPS, BIN)),
    },
    trainings=spikes_trainings,
    repeat="opening",
)
def spikes(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Four pre-norm blocks that learn and then spike: what signals show before, what alarms are worth."""
    del seed
    found = {run: signals_of(runs[run]) for run in RUNS}
    onsets = {run: spike_onsets(found[run]["loss"]) for run in RUNS}
    counted = {
        (run, signal, at): _alarm(found[run], signal, at, onsets[run])
        for run in RUNS
        for signal in SIGNALS
        for at in THRESHOLDS
    }

    def table(of: Any) -> Any:
        axes = ("run", "signal", "threshold")
        rows = [[[of(counted[r, s, at]) for at in THRESHOLDS] for s in SIGNALS] for r in RUNS]
        return axes, rows

    worths = [counted[run, SIGNALS[0], THRESHOLDS[0]] for run in RUNS]
    highest = found["high"]["loss"]
    sharp = [max(jumps(_log10(found["high"]["gradient"]))[t : t + 5]) for t in onsets["high"]]
    return {
        "spikes": ("run", [one.spikes for one in worths]),
        "calm": ("run", [one.calm for one in worths]),
        "warned": table(lambda one: len(one.leads)),
        "lead": table(lambda one: float(sum(one.leads))),
        "false_alarms": table(lambda one: one.false_alarms),
        "around_first": (("signal", "around"), _around(found["high"], onsets["high"])),
        "worst_loss": (("run", "bin"), [_binned(found[run]["loss"]) for run in RUNS]),
        "height": float(np.mean([max(highest[t : t + 5]) for t in onsets["high"]] or [np.nan])),
        "gradient_jump": float(np.mean(sharp or [np.nan])),
    }


def _log10(values: Float[ndarray, "step"]) -> Float[ndarray, "step"]:
    found: ndarray = np.log10(np.maximum(values, 1e-9))
    return found


def _alarm(
    signals: Mapping[str, Float[ndarray, "step"]], signal: str, at: float, onsets: Sequence[int]
) -> Worth:
    alarm = np.nan_to_num(jumps(_log10(signals[signal]))) > at
    return worth(alarm, onsets, solved_before(signals["loss"]))


def _around(signals: Mapping[str, Float[ndarray, "step"]], onsets: Sequence[int]) -> Any:
    """Every signal's jump, step by step around the first spike that lies far enough inside the run."""
    inside = [t for t in onsets if t >= 2 * BEFORE_SPIKE and t + AFTER_SPIKE < SPIKE_STEPS]
    width = BEFORE_SPIKE + AFTER_SPIKE + 1
    if not inside:
        return np.full((len(SIGNALS), width), np.nan)
    t = inside[0]
    start = t - BEFORE_SPIKE
    levels = {s: np.median(_log10(signals[s])[start - 20 : start]) for s in SIGNALS}
    return [_log10(signals[s])[start : start + width] - levels[s] for s in SIGNALS]


def _binned(losses: Float[ndarray, "step"]) -> list[float]:
    """The highest loss of every few steps; NaN where a run has ended before."""
    room = np.full(SPIKE_STEPS, np.nan)
    room[: len(losses)] = losses
    bins = room.reshape(-1, BIN)
    return [float(f"{one.max():.3g}") for one in bins]


CURES = ("clipped", "slow average", "z-loss", "QK-norm")


def cures_trainings(seed: int) -> dict[str, Job]:
    """The rate at which the model spikes, with one thing changed at a time."""
    changed: dict[str, dict[str, Any]] = {
        "clipped": {"clip": 1.0},
        "slow average": {"betas": (0.9, 0.999)},
        "z-loss": {"prepare": ZLoss()},
        "QK-norm": {"prepare": head_norms},
    }
    given = {**OPTIONS, "steps": SPIKE_STEPS, "schedule": Constant(WARMUP)}
    return {
        cure: job(
            encoder("pre", 4),
            TASK,
            seed + LATER,
            learning_rate=SPIKE_RATE,
            **{**given, **changed[cure]},
        )
        for cure in CURES
    }


@measurement(seeds=10, coords={"cure": CURES}, trainings=cures_trainings, repeat="opening")
def cures(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """What keeps four pre-norm blocks from spiking at a high rate: number of spikes, and steps to learn."""
    del seed
    return {
        "spikes": ("cure", [len(spike_onsets(runs[cure].losses)) for cure in CURES]),
        "steps": ("cure", [float(solved([runs[cure]]).steps[0]) for cure in CURES]),
    }
