"""What the chapter on the size of a step measures: how deep towers of blocks train, and what they write."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray
from torch import Tensor
from xarray import DataArray, Dataset

from measured_transformer.analysis.residual import ledger
from measured_transformer.analysis.solving import solved
from measured_transformer.analysis.states import rms, turns
from measured_transformer.internals.capture import capture
from measured_transformer.measuring import (
    Search,
    evidence,
    job,
    measurement,
    number,
    tuned,
    tuning_seeds,
)
from measured_transformer.models.config import Config
from measured_transformer.tasks.permutations import PermutationProducts
from measured_transformer.tasks.task import Batch
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, make_model, predict, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import Constant, WarmupLinear
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.norms import (
    deep_norm,
    gated_branches,
    scaled_branches,
    zero_branches,
)

TASK = PermutationProducts(objects=3, length=6)
"""The shell game: one ball, three cups, six moves."""
MOVES = tuple(range(1, TASK.length + 1))
FOLLOWED = 0.75
"""The share of right answers from which on a model counts as following a move; a guess is right in a third."""
RATES = (3e-4, 7e-4, 1.5e-3, 3e-3, 7e-3, 1.5e-2)
"""The grid of learning rates, the same for every arm of the chapter."""
STEPS = 220
OPTIONS: Mapping[str, Any] = {
    "batch_size": 32,
    "schedule": WarmupLinear(warmup=40, steps=STEPS),
}
HALF = 0.5 * TASK.blind_loss()
"""The loss, in nats, at which speeds are compared: half of that of a guess."""


def tower(depth: int, **changes: Any) -> Config:
    """Blocks of width 32 with two heads, for the shell game."""
    given: dict[str, Any] = {
        "d_model": 32,
        "n_heads": 2,
        "activation": "relu",
        "positions": "learned",
        "max_length": TASK.length,
    }
    return Config(vocab=TASK.vocab, n_layers=depth, **(given | changes))


ARMS: Mapping[str, tuple[dict[str, Any], Any]] = {
    "pre": ({}, None),
    "post": ({"placement": "post"}, None),
    "deep": ({"placement": "post"}, deep_norm),
    "none": ({"norm": "none"}, None),
    "scaled": ({"norm": "none"}, scaled_branches),
    "gate": ({"norm": "none"}, gated_branches),
}
"""Who sets the size of a step: what the config changes, and what is done to the initial weights."""


def options_of(prepare: Any, **changes: Any) -> dict[str, Any]:
    """The options of a training, with a preparation where there is one."""
    return {**OPTIONS, **({} if prepare is None else {"prepare": prepare}), **changes}


def at_tuned_rate(name: str, config: Config, prepare: Any, seed: int) -> Job:
    """One run of an arm at the learning rate that suits this arm at this depth."""
    options = options_of(prepare)
    search = Search(f"step-size-{name}", config, TASK, RATES, tuning_seeds(2), STEPS, options)
    return job(config, TASK, seed, steps=STEPS, learning_rate=tuned(search), **options)


# Towers -------------------------------------------------------------------------------------------

DEPTHS = (2, 6, 12)
DEEP = DEPTHS[-1]
DEEPEST = 24
PLACEMENTS = ("pre", "post")
TRAINED = ("pre", "post", "none", "scaled", "gate")


def towers_trainings(seed: int) -> dict[str, Job]:
    """Twelve blocks of every arm, each at a learning rate of its own."""
    return {
        arm: at_tuned_rate(f"{arm}-{DEEP}", tower(DEEP, **ARMS[arm][0]), ARMS[arm][1], seed)
        for arm in TRAINED
    }


@measurement(
    seeds=10,
    coords={"arm": TRAINED, "move": MOVES},
    trainings=towers_trainings,
    repeat="opening",
)
def towers(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The shell game, five kinds of towers of 12 blocks: share of right answers after each move."""
    found = [runs[arm] for arm in TRAINED]
    return {
        "right": (("arm", "move"), [right(run.model, seed) for run in found]),
        "loss": (("arm",), [last_loss(run) for run in found]),
        "learning_rate": (("arm",), [float(run.rates.max()) for run in found]),
        "spread": (("arm",), [spread(stream_sizes(run.model, seed)) for run in found]),
    }


def deepest_trainings(seed: int) -> dict[str, Job]:
    """Both placements of the norm with 24 blocks."""
    return {
        arm: at_tuned_rate(f"{arm}-{DEEPEST}", tower(DEEPEST, **ARMS[arm][0]), None, seed)
        for arm in PLACEMENTS
    }


@measurement(
    seeds=10,
    coords={"arm": PLACEMENTS, "move": MOVES},
    trainings=deepest_trainings,
    repeat="opening",
)
def deepest(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The same with 24 blocks, pre-norm and post-norm."""
    return {
        "right": (("arm", "move"), [right(runs[arm].model, seed) for arm in PLACEMENTS]),
        "loss": (("arm",), [last_loss(runs[arm]) for arm in PLACEMENTS]),
        "learning_rate": (("arm",), [float(runs[arm].rates.max()) for arm in PLACEMENTS]),
    }


@torch.no_grad()
def right(model: Model, seed: int, size: int = 512) -> list[float]:
    """The share of right answers after each move, on sequences held out."""
    batch = TASK.batch(make_generator(seed, "evaluation"), size)
    answers = predict(model, batch).argmax(-1)
    shares: list[float] = (answers == batch.targets).double().mean(0).tolist()
    return shares


def last_loss(run: Run) -> float:
    """Mean loss of the last 20 steps; that of a guess times ten where the run left the range of numbers."""
    loss = float(np.mean(run.losses[-20:]))
    return loss if math.isfinite(loss) else 10 * TASK.blind_loss()


def stream_sizes(model: Any, seed: int) -> np.ndarray:
    """Root mean square of the stream's entries, at the embedding and after each block."""
    batch = TASK.batch(make_generator(seed, "evaluation"), 64)
    return rms(ledger(model, batch.inputs).blocks)


def spread(sizes: Any) -> float:
    """Powers of ten between the largest and the smallest of some positive sizes; 0 where all are zero."""
    found = np.asarray(sizes, dtype=np.float64)
    if found.max() == 0:
        return 0.0
    return float(np.log10(found.max() / found.min()))


# Which learning rates work ------------------------------------------------------------------------

GRID: Mapping[str, tuple[int, dict[str, Any], Any]] = {
    "pre, 2": (2, {}, None),
    "post, 2": (2, {"placement": "post"}, None),
    "none, 2": (2, {"norm": "none"}, None),
    "pre, 6": (6, {}, None),
    "post, 6": (6, {"placement": "post"}, None),
    "none, 6": (6, {"norm": "none"}, None),
    "pre gate, 6": (6, {}, gated_branches),
    "gate, 6": (6, {"norm": "none"}, gated_branches),
}


def rates_trainings(seed: int) -> dict[tuple[str, float], Job]:
    """Shallow towers with norms and without, at every learning rate of the grid."""
    return {
        (arm, rate): job(
            tower(depth, **changes),
            TASK,
            seed,
            steps=STEPS,
            learning_rate=rate,
            **options_of(prepare),
        )
        for arm, (depth, changes, prepare) in GRID.items()
        for rate in RATES
    }


GATED = ("pre gate, 6", "gate, 6")
SECOND = PermutationProducts(objects=3, length=6, start=1)
"""The same game, but the ball begins under the second cup."""
LATER = 60


@measurement(
    seeds=12,
    coords={"arm": tuple(GRID), "rate": RATES, "move": MOVES, "gated": GATED},
    trainings=rates_trainings,
    repeat="opening",
)
def rates(seed: int, runs: Mapping[tuple[str, float], Run]) -> dict[str, Any]:
    """Towers of 2 and 6 blocks with norms and without, at six learning rates each: who learns, and how soon."""
    cells = [[runs[arm, rate] for rate in RATES] for arm in GRID]
    return {
        "right": (("arm", "rate", "move"), [[right(run.model, seed) for run in c] for c in cells]),
        "loss": (("arm", "rate"), [[last_loss(run) for run in c] for c in cells]),
        "steps": (("arm", "rate"), [[steps_to_half(run) for run in c] for c in cells]),
        "second": (
            ("gated", "rate"),
            [[last_loss(learned_later(runs[arm, rate])) for rate in RATES] for arm in GATED],
        ),
    }


@dataclass(frozen=True, eq=False)
class TakesOver:
    """Begin a training with the weights of a trained model, as a `prepare` of `train`.

    Attributes:
        model: whose weights are taken over; it is left as it is.
        prepare: what made the model's parts before it was trained.
    """

    model: Model
    prepare: Any

    def __call__(self, fresh: Model) -> None:
        """Copy the weights.

        Raises:
            ValueError: when the new model has another config.
        """
        if fresh.config != self.model.config:
            raise ValueError(f"expected the config {self.model.config}, got {fresh.config}")
        self.prepare(fresh)
        fresh.load_state_dict(self.model.state_dict())


def learned_later(run: Run) -> Run:
    """Go on from a model behind gates to the second game, for a few steps at the same learning rate."""
    return train(
        run.model.config,
        SECOND,
        steps=LATER,
        seed=run.seed,
        learning_rate=float(run.rates.max()),
        batch_size=32,
        schedule=WarmupLinear(warmup=10, steps=LATER),
        prepare=TakesOver(run.model, gated_branches),
    )


def steps_to_half(run: Run) -> float:
    """Steps to half the loss of a guess; all steps where a run does not get there."""
    found = solved([run], level=HALF)
    return float(found.steps[0]) if found.observed[0] else float(STEPS)


# At the stated learning rate ----------------------------------------------------------------------

STATED = 5e-4
STARTS = ("none", "scaled", "gate")
STATED_TOWERS = {"none, 2": ("none", 2), "none, 12": ("none", 12)}


def stated_trainings(seed: int) -> dict[str, Job]:
    """Towers without norms from Xavier weights, at the stated learning rate and without a warm-up."""
    return {
        name: job(
            tower(depth, **ARMS[arm][0]),
            TASK,
            seed,
            steps=STEPS,
            learning_rate=STATED,
            **options_of(ARMS[arm][1], schedule=Constant()),
        )
        for name, (arm, depth) in STATED_TOWERS.items()
    }


@measurement(
    seeds=10,
    coords={"tower": tuple(STATED_TOWERS)},
    trainings=stated_trainings,
    repeat="opening",
)
def stated(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Towers without norms at a learning rate of 0.0005 throughout: the loss at the end."""
    return {"loss": (("tower",), [last_loss(runs[name]) for name in STATED_TOWERS])}


# Before training ----------------------------------------------------------------------------------

STATES = tuple(range(DEEPEST + 1))
BLOCKS = STATES[1:]
CONNECTIONS = ("with", "without")
DIMENSION_STARTS = ("xavier", "zero", "gpt2")
DIMENSION_DEPTH = 12


@measurement(
    seeds=30,
    coords={
        "arm": tuple(ARMS),
        "state": STATES,
        "block": BLOCKS,
        "depth": DEPTHS,
        "connections": CONNECTIONS,
        "start": DIMENSION_STARTS,
    },
    tolerance={"turn": 0.01},
)
def untrained(seed: int) -> dict[str, Any]:
    """Before training: the stream's size and turns over 24 blocks, gradients, and how far dimensions differ."""
    states = {arm: block_states(arm, seed) for arm in ARMS}
    return {
        "size": (("arm", "state"), [rms(states[arm]) for arm in ARMS]),
        "turn": (("arm", "block"), [turns(states[arm]) for arm in ARMS]),
        "gradients": (
            ("arm", "depth"),
            [[spread(block_gradients(fresh(arm, n, seed), seed)) for n in DEPTHS] for arm in ARMS],
        ),
        "range": (
            ("arm",),
            [spread(stream_sizes(fresh(arm, DIMENSION_DEPTH, seed), seed)) for arm in ARMS],
        ),
        "dimensions": (
            ("connections", "start"),
            [
                [dimension_spread(c == "with", s, seed) for s in DIMENSION_STARTS]
                for c in CONNECTIONS
            ],
        ),
    }


def fresh(arm: str, depth: int, seed: int) -> Any:
    """An untrained tower of an arm, in double precision: some of these numbers grow large."""
    changes, prepare = ARMS[arm]
    model = make_model(tower(depth, **changes), causal=True, seed=seed).double()
    if prepare is not None:
        prepare(model)
    return model.eval()


@torch.no_grad()
def block_states(arm: str, seed: int) -> Tensor:
    """The embedding and the stream after each block of an untrained tower: (state batch position d_model)."""
    batch = TASK.batch(make_generator(seed, "evaluation"), 64)
    names = ["embedding", *(f"blocks.{i}.residual_post" for i in range(DEEPEST))]
    model = fresh(arm, DEEPEST, seed)
    with capture(model, *names) as seen:
        model(batch.inputs)
    return torch.stack([seen[name] for name in names])


def block_gradients(model: Any, seed: int) -> list[float]:
    """For each block, the length of the loss's gradient with respect to all of its parameters."""
    batch: Batch = TASK.batch(make_generator(seed, "evaluation"), 64)
    loss = cross_entropy(predict(model, batch), batch.targets, batch.scored)
    lengths = []
    for block in model.blocks:
        gradients = torch.autograd.grad(loss, list(block.parameters()), retain_graph=True)
        squares = [float(one.square().sum()) for one in gradients]
        lengths.append(math.sqrt(math.fsum(squares)))
    return lengths


def dimension_spread(connected: bool, start: str, seed: int) -> float:
    """Powers of ten between the largest and the smallest dimension of the stream after twelve blocks.

    A dimension's size is the root mean square of its entries over tokens and sequences.
    """
    config = tower(
        DIMENSION_DEPTH,
        norm="none",
        residual=connected,
        initialisation="gpt2" if start == "gpt2" else "xavier",
    )
    model: Any = make_model(config, causal=True, seed=seed).double().eval()
    if start == "zero":
        zero_branches(model)
    batch = TASK.batch(make_generator(seed, "evaluation"), 64)
    last = ledger(model, batch.inputs).states[-1]
    return spread(last.square().mean(dim=(0, 1)).sqrt().numpy())


# What the claims are judged by --------------------------------------------------------------------


def follows(right_answers: DataArray, moves: int) -> DataArray:
    """Which runs follow so many moves: the answer after the last is right in three of four sequences."""
    return right_answers.sel(move=moves) >= FOLLOWED


def _share(runs: DataArray) -> dict[str, list[int]]:
    return {"successes": [int(runs.sum())], "trials": [int(runs.size)]}


def fifth(right_answers: DataArray) -> DataArray:
    """The share of right answers after the fifth move."""
    return right_answers.sel(move=5)


def _following(right_answers: DataArray) -> dict[str, list[int]]:
    return _share(follows(right_answers, 5))


@evidence("DD-3.9")
def _(towers: Dataset, deepest: Dataset) -> dict[str, Any]:
    return {
        "twelve": _following(towers.right.sel(arm="pre")),
        "deepest": _following(deepest.right.sel(arm="pre")),
        "post": {
            "treatment": fifth(deepest.right.sel(arm="pre")),
            "baseline": fifth(deepest.right.sel(arm="post")),
        },
    }


@evidence("DD-13.4")
def _(towers: Dataset, deepest: Dataset) -> dict[str, Any]:
    return {
        "beyond": _following(deepest.right.sel(arm="post")),
        "within": _following(towers.right.sel(arm="post")),
    }


@evidence("DD-12.5")
def _(towers: Dataset) -> dict[str, Any]:
    return {arm: _following(towers.right.sel(arm=arm)) for arm in STARTS}


@evidence("DD-4.8")
def _(towers: Dataset, rates: Dataset) -> dict[str, Any]:
    def arms(small: DataArray, large: DataArray) -> dict[str, DataArray]:
        return {"treatment": fifth(small), "baseline": fifth(large), "headroom": 1 - fifth(large)}

    twelve = {arm: towers.right.sel(arm=arm) for arm in STARTS}
    six = {arm: at_best_rate(rates, f"{arm}, 6") for arm in ("none", "gate", "pre", "pre gate")}
    return {
        "divided": arms(twelve["scaled"], twelve["none"]),
        "gate": arms(six["gate"], six["none"]),
        "pre": arms(six["pre gate"], six["pre"]),
    }


@evidence("CS-4.3")
def _(stated: Dataset) -> dict[str, Any]:
    worse = stated.loss > TASK.blind_loss()
    return {name.replace(", ", "_"): _share(worse.sel(tower=name)) for name in STATED_TOWERS}


def works(rates: Dataset, arm: str) -> DataArray:
    """At how many learning rates of the grid each seed's run follows four moves."""
    return follows(rates.right.sel(arm=arm), 4).sum("rate").astype(float)


def _for_the_others(scores: DataArray) -> list[int]:
    """For each seed, the place of the learning rate whose mean score is lowest over the *other* seeds."""
    return [
        int(scores.drop_sel(seed=seed).mean("seed").argmin("rate")) for seed in scores.seed.values
    ]


def _at(values: DataArray, places: Sequence[int]) -> DataArray:
    chosen = [values.isel(seed=i, rate=place).drop_vars("rate") for i, place in enumerate(places)]
    found: DataArray = xarray.concat(chosen, "seed")
    return found


def log_steps(rates: Dataset, arm: str) -> DataArray:
    """Logarithm of the steps to half the loss of a guess, at the rate that is best for the *other* seeds."""
    logs: DataArray = xarray.apply_ufunc(np.log, rates.steps.sel(arm=arm))
    return _at(logs, _for_the_others(logs))


def at_best_rate(rates: Dataset, arm: str, what: str = "right") -> DataArray:
    """What a tower has reached at the learning rate whose loss is lowest for the *other* seeds."""
    axis = "gated" if what == "second" else "arm"
    return _at(rates[what].sel({axis: arm}), _for_the_others(rates.loss.sel(arm=arm)))


def _against(rates: Dataset, look: Any, treatment: str, baseline: str) -> dict[str, DataArray]:
    return {"treatment": look(rates, treatment), "baseline": look(rates, baseline)}


@evidence("DA-2.16")
def _(rates: Dataset) -> dict[str, Any]:
    return {
        f"{name}_{depth}": _against(rates, look, f"post, {depth}", f"none, {depth}")
        for depth in (2, 6)
        for name, look in (("stable", works), ("steps", log_steps))
    }


@evidence("DD-3.4")
def _(rates: Dataset, untrained: Dataset) -> dict[str, Any]:
    gradients = untrained.gradients
    found: dict[str, Any] = {
        f"gradients_{depth}": {
            "treatment": gradients.sel(arm="none", depth=depth),
            "baseline": gradients.sel(arm="pre", depth=depth),
        }
        for depth in DEPTHS
    }
    for depth in (2, 6):
        found[f"rates_{depth}"] = _against(rates, works, f"none, {depth}", f"pre, {depth}")
        found[f"steps_{depth}"] = _against(rates, log_steps, f"none, {depth}", f"pre, {depth}")
    return found


@evidence("IW-3.1")
def _(rates: Dataset) -> dict[str, Any]:
    return {
        "xavier_2": _against(rates, works, "pre, 2", "none, 2"),
        "xavier_6": _against(rates, works, "pre, 6", "none, 6"),
        "gate_6": _against(rates, works, "pre gate, 6", "gate, 6"),
    }


@evidence("EX-1.8a")
def _(rates: Dataset) -> dict[str, Any]:
    return _against(rates, works, "pre gate, 6", "gate, 6")


@evidence("EX-1.8b")
def _(rates: Dataset) -> dict[str, Any]:
    def arms(what: str) -> dict[str, DataArray]:
        treatment, baseline = (at_best_rate(rates, arm, what) for arm in GATED)
        return {"treatment": treatment, "baseline": baseline}

    return {"loss": arms("loss"), "transfer": arms("second")}


@evidence("DD-3.3")
def _(untrained: Dataset) -> dict[str, Any]:
    return {
        f"{'skip' if c == 'with' else 'plain'}_{s}": {
            "value": untrained.dimensions.sel(connections=c, start=s)
        }
        for c in CONNECTIONS
        for s in DIMENSION_STARTS
    }


@evidence("DD-3.5")
def _(untrained: Dataset, towers: Dataset) -> dict[str, Any]:
    found = {}
    for arm in ("pre", "post"):
        found[f"{arm}_untrained"] = {"value": untrained.range.sel(arm=arm)}
        found[f"{arm}_trained"] = {"value": towers.spread.sel(arm=arm)}
    return found


# Numbers that the prose names ---------------------------------------------------------------------


@number
def a_block(untrained: Dataset) -> float:
    """By what one untrained block without norms multiplies the size of the stream: a geometric mean."""
    size = untrained["size"].sel(arm="none")
    logs = np.log(size.sel(state=DEEPEST) / size.sel(state=0))
    return float(np.exp(logs.mean() / DEEPEST))


@number
def huge(untrained: Dataset) -> int:
    """The size of the stream after 24 untrained blocks without norms, in thousands: a geometric mean."""
    logs = np.log(untrained["size"].sel(arm="none", state=DEEPEST))
    return round(float(np.exp(logs.mean())) / 1000)


@number
def growth_twelve(untrained: Dataset) -> float:
    """How many times as large the stream is after 12 untrained blocks without norms: a geometric mean."""
    size = untrained["size"].sel(arm="none")
    return float(np.exp(np.log(size.sel(state=DEEP) / size.sel(state=0)).mean()))


@number
def dimension_ratio(untrained: Dataset) -> float:
    """The largest dimension over the smallest after 12 such blocks: a geometric mean."""
    return float(10 ** untrained.dimensions.sel(connections="with", start="xavier").mean())


def _count(arm: str) -> None:
    """Declare how many runs of twelve blocks follow five moves, as `following_` and the arm."""

    def following(towers: Dataset) -> int:
        return int(follows(towers.right.sel(arm=arm), 5).sum())

    following.__name__ = f"following_{arm}"
    number(following)


for _arm in TRAINED:
    _count(_arm)


@number
def following_pre_deepest(deepest: Dataset) -> int:
    """How many pre-norm runs of 24 blocks follow five moves."""
    return int(follows(deepest.right.sel(arm="pre"), 5).sum())


@number
def following_post_deepest(deepest: Dataset) -> int:
    """How many post-norm runs of 24 blocks do."""
    return int(follows(deepest.right.sel(arm="post"), 5).sum())


def _reached(arm: str) -> None:
    """Declare the right fifth answers of a shallow tower at its best rate, as `reached_` and the arm."""

    def reached(rates: Dataset) -> DataArray:
        return fifth(at_best_rate(rates, arm))

    reached.__name__ = f"reached_{arm.replace(', ', '_').replace(' ', '_')}"
    number(reached)


for _arm in GRID:
    _reached(_arm)


def _working(arm: str) -> None:
    """Declare the mean number of learning rates at which runs follow four moves, as `working_` and the arm."""

    def mean(rates: Dataset) -> float:
        return float(works(rates, arm).mean())

    mean.__name__ = f"working_{arm.replace(', ', '_').replace(' ', '_')}"
    number(mean)


for _arm in GRID:
    _working(_arm)


@number
def trained_growth(towers: Dataset) -> float:
    """How many times as long as at its shortest the stream of trained pre-norm towers is: geometric mean."""
    return float(10 ** towers.spread.sel(arm="pre").mean())


def _gated_difference(rates: Dataset, what: str) -> DataArray:
    with_norm, without = (at_best_rate(rates, arm, what) for arm in GATED)
    return with_norm - without


@number
def gain_first(rates: Dataset) -> DataArray:
    """By how much the loss on the game is lower with a norm, behind gates, in nats."""
    return -_gated_difference(rates, "loss")


@number
def loss_second(rates: Dataset) -> DataArray:
    """By how much the loss on the second game is higher with a norm, behind gates, in nats."""
    return _gated_difference(rates, "second")
