"""What the chapter on mixtures of experts measures: what routing buys, how it fails, what experts share out.

Decoders of one block learn random tables over the same items, where all that counts is how much the
network can keep. Some have one network of some width, others eight or sixteen small ones and a router.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.skill_tables import SkillTables
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, evaluate, make_model, predict
from measured_transformer.training.schedules import WarmupCosine
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.experts import (
    Experts,
    Routed,
    SigmoidRouted,
    operations,
)
from torch import Tensor, nn
from xarray import DataArray, Dataset

from measured_book.evidence.registry import Difference
from measured_book.evidence.rules import Judgement, judge
from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

TASK = SkillTables(skills=32, items=32, answers=16, length=9)
"""Tables of 32 skills and 32 items, each answer twice in a table; eight items are asked in a row."""
BASE = Config(
    vocab=TASK.vocab, d_model=32, n_layers=1, n_heads=2, positions="none", activation="relu", d_ff=8
)
STEPS = 400
RATES = (2.5e-3, 5e-3, 1e-2, 2e-2, 4e-2, 8e-2)
OPTIONS: Mapping[str, Any] = {
    "batch_size": 32,
    "schedule": WarmupCosine(warmup=20, steps=STEPS),
}
EXPERTS, WIDTH = 8, 8
DENSE = (8, 16, 64)
"""Neurons of the networks without a router; the widest has as many as all experts together."""
_ONE = Routed(EXPERTS, WIDTH, balance=0.01)
ROUTED: Mapping[str, Routed] = {
    "one": _ONE,
    "none": replace(_ONE, balance=0.0),
    "biases": replace(_ONE, balance=0.0, push=0.01),
    "random": replace(_ONE, balance=0.0, frozen=True),
    "two": Routed(2 * EXPERTS, WIDTH // 2, active=2, normalised=True, balance=0.01),
}
"""Arms with a router: one expert of eight for each token, with a balancing loss, without, with biases in its
place, and with a router that stays as it was drawn; and two of sixteen experts of half the size."""
ARMS = (*(f"dense {m}" for m in DENSE), *ROUTED)


def arm(name: str) -> tuple[Config, Routed | None]:
    """The model of an arm, and what takes the place of its network."""
    if name.startswith("dense"):
        return BASE.replace(d_ff=int(name.split()[1])), None
    return BASE, ROUTED[name]


def trained(name: str, seed: int, steps: int = STEPS) -> Job:
    """One training of an arm at the learning rate that suits it, or its first steps."""
    config, prepare = arm(name)
    options = {**OPTIONS, "prepare": prepare}
    search = Search(f"experts-{name}", config, TASK, RATES, tuning_seeds(1), STEPS, options)
    return job(config, TASK, seed, steps=steps, learning_rate=tuned(search), **options)


def cost(name: str) -> tuple[int, int]:
    """Parameters of an arm's network, and the operations of a token that computes only what it asks for."""
    config, routed = arm(name)
    if routed is None:
        model = make_model(config, causal=True, seed=0)
        return _size(model), operations(config.d_model, config.neurons)
    model = make_model(config, causal=True, seed=0)
    routed(model)
    return _size(model), operations(
        config.d_model,
        routed.width,
        experts=routed.experts,
        active=routed.active,
        shared=routed.shared,
    )


def _size(model: Model) -> int:
    assert isinstance(model, Decoder)
    network = model.blocks[0].feedforward
    assert isinstance(network, nn.Module)
    return sum(q.numel() for name, q in network.named_parameters() if name != "push")


# How tokens are shared out -------------------------------------------------------------------------

ROWS = 512
"""Rows on which loads are counted."""


@dataclass(frozen=True)
class Sharing:
    """Who asked whom, over rows held out.

    Attributes:
        load: share of all assignments that goes to each expert, the largest first.
        skill, item: mutual information of the expert with the skill and with the item, each in units of the
            entropy of the expert; of items alone, and for one active expert.
    """

    load: Float[np.ndarray, "expert"]
    skill: float
    item: float

    @property
    def busiest(self) -> float:
        """Load of the busiest expert in units of its even share."""
        return float(self.load[0] * len(self.load))

    @property
    def idle(self) -> int:
        """Experts that get less than a tenth of their even share."""
        return int((self.load * len(self.load) < 0.1).sum())

    @property
    def evenness(self) -> float:
        """Entropy of the load in units of that of an even one."""
        used = self.load[self.load > 0]
        return float(-(used * np.log(used)).sum() / math.log(len(self.load)))


def layer(model: Model) -> Experts:
    """The routed layer of a model of one block."""
    assert isinstance(model, Decoder)
    found = model.blocks[0].feedforward
    assert isinstance(found, Experts)
    return found


@torch.no_grad()
def sharing(model: Model, seed: int) -> Sharing:
    """Count how a model shares tokens out."""
    batch = TASK.batch(make_generator(seed, "evaluation"), ROWS)
    with capture(model, "blocks.0.feedforward.chosen") as seen:
        predict(model, batch)
    chosen = seen["blocks.0.feedforward.chosen"]
    load = chosen.mean((0, 1)).double().numpy()
    items = batch.inputs[:, 1:].flatten()
    skills = (batch.inputs[:, :1] - TASK.items).expand(-1, TASK.length - 1).flatten()
    asked = chosen[:, 1:].argmax(-1).flatten()
    return Sharing(
        np.sort(load / load.sum())[::-1].copy(),
        explained(asked, skills),
        explained(asked, items),
    )


def explained(of: Tensor, by: Tensor) -> float:
    """Mutual information of two lists of whole numbers over the entropy of the first; 0 where that is 0.

    >>> explained(torch.tensor([0, 1, 0, 1]), torch.tensor([5, 3, 5, 3]))
    1.0
    """
    counts = torch.zeros(int(of.max()) + 1, int(by.max()) + 1, dtype=torch.float64)
    counts.index_put_((of, by), torch.ones(len(of), dtype=torch.float64), accumulate=True)
    joint = counts / counts.sum()
    apart = joint.sum(1, keepdim=True) * joint.sum(0, keepdim=True)
    some = joint > 0
    shared = (joint[some] * (joint[some] / apart[some]).log()).sum()
    first = joint.sum(1)
    entropy = -(first[first > 0] * first[first > 0].log()).sum()
    return float(shared / entropy) if entropy > 0 else 0.0


# What routing buys --------------------------------------------------------------------------------


def bought_trainings(seed: int) -> dict[str, Job]:
    """Every arm."""
    return {name: trained(name, seed) for name in ARMS}


@measurement(
    seeds=6,
    coords={"arm": ARMS},
    trainings=bought_trainings,
    repeat="opening",
    tolerance={"loss": 0.2, "accuracy": 0.1},
)
def bought(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Loss and accuracy of networks with and without a router, their size and what a token costs."""
    scores = [evaluate(runs[name].model, TASK, seed=seed, size=ROWS) for name in ARMS]
    costs = [cost(name) for name in ARMS]
    return {
        "loss": ("arm", [score.loss for score in scores]),
        "accuracy": ("arm", [score.accuracy for score in scores]),
        "parameters": ("arm", [one[0] for one in costs]),
        "operations": ("arm", [one[1] for one in costs]),
    }


# Load ---------------------------------------------------------------------------------------------

BALANCED = ("none", "one", "biases", "random")
"""Arms with one of eight experts for each token."""


def loads_trainings(seed: int) -> dict[str, Job]:
    """The arms that differ in what keeps the load even."""
    return {name: trained(name, seed) for name in BALANCED}


@measurement(
    seeds=6,
    coords={"arm": BALANCED, "expert": tuple(range(1, EXPERTS + 1))},
    trainings=loads_trainings,
    repeat="opening",
)
def loads(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """How tokens are shared out after training: load of each expert, and what the choice goes by."""
    found = [sharing(runs[name].model, seed) for name in BALANCED]
    return {
        "load": (("arm", "expert"), [one.load.tolist() for one in found]),
        "busiest": ("arm", [one.busiest for one in found]),
        "idle": ("arm", [one.idle for one in found]),
        "evenness": ("arm", [one.evenness for one in found]),
        "skill": ("arm", [one.skill for one in found]),
        "item": ("arm", [one.item for one in found]),
    }


WATCHED = ("none", "one", "biases")
AT = (0, 25, 50, 100, 200, 400)
"""Steps after which the load is looked at."""


def course_trainings(seed: int) -> dict[tuple[str, int], Job]:
    """The first steps of trainings, and all of them."""
    return {(name, steps): trained(name, seed, steps) for name in WATCHED for steps in AT if steps}


@measurement(
    seeds=6,
    coords={"arm": WATCHED, "step": AT},
    trainings=course_trainings,
    repeat="opening",
)
def course(seed: int, runs: Mapping[tuple[str, int], Run]) -> dict[str, Any]:
    """How the load of the experts develops in training."""

    def at(name: str, steps: int) -> Sharing:
        if steps:
            return sharing(runs[name, steps].model, seed)
        model = make_model(BASE, causal=True, seed=seed)
        ROUTED[name](model)
        return sharing(model.eval(), seed)

    found = [[at(name, steps) for steps in AT] for name in WATCHED]
    axes = ("arm", "step")
    return {
        "busiest": (axes, [[one.busiest for one in row] for row in found]),
        "idle": (axes, [[one.idle for one in row] for row in found]),
        "skill": (axes, [[one.skill for one in row] for row in found]),
    }


FAST_RATES = (2e-2, 4e-2, 8e-2)
HURRIED = ("none", "one")


def hurried_trainings(seed: int) -> dict[tuple[str, float], Job]:
    """With a balancing loss and without, at learning rates up to one that is far too large."""
    jobs = {}
    for name in HURRIED:
        config, prepare = arm(name)
        options = {**OPTIONS, "prepare": prepare, "steps": STEPS}
        for rate in FAST_RATES:
            jobs[name, rate] = job(config, TASK, seed, learning_rate=rate, **options)
    return jobs


@measurement(
    seeds=6,
    coords={"arm": HURRIED, "rate": FAST_RATES},
    trainings=hurried_trainings,
    repeat="opening",
)
def hurried(seed: int, runs: Mapping[tuple[str, float], Run]) -> dict[str, Any]:
    """How the learning rate decides over the load: busiest expert and idle ones, and the loss."""
    axes = ("arm", "rate")
    found = [[sharing(runs[name, rate].model, seed) for rate in FAST_RATES] for name in HURRIED]
    losses = [
        [evaluate(runs[name, rate].model, TASK, seed=seed, size=ROWS).loss for rate in FAST_RATES]
        for name in HURRIED
    ]
    return {
        "busiest": (axes, [[one.busiest for one in row] for row in found]),
        "idle": (axes, [[one.idle for one in row] for row in found]),
        "loss": (axes, losses),
    }


# Learned or not -----------------------------------------------------------------------------------

FRESH = 5000
"""What is added to the seeds of these arms; the earlier ones had been looked at."""
ROUTERS: Mapping[str, Routed] = {
    "one": _ONE,
    "random": replace(_ONE, balance=0.0, frozen=True),
    "two": replace(_ONE, experts=2 * EXPERTS, width=WIDTH // 2, active=2, normalised=True),
    "random two": Routed(2 * EXPERTS, WIDTH // 2, active=2, normalised=True, frozen=True),
}
"""One of eight and two of sixteen experts, each with a router that learns and one that stays as drawn."""


def routers_trainings(seed: int) -> dict[str, Job]:
    """Each arm at the learning rate that is best on three seeds."""
    jobs = {}
    for name, prepare in ROUTERS.items():
        options = {**OPTIONS, "prepare": prepare}
        search = Search(
            f"experts-{name}-of-three", BASE, TASK, RATES, tuning_seeds(3), STEPS, options
        )
        jobs[name] = job(
            BASE, TASK, seed + FRESH, steps=STEPS, learning_rate=tuned(search), **options
        )
    return jobs


@measurement(
    seeds=8,
    coords={"arm": tuple(ROUTERS)},
    trainings=routers_trainings,
    repeat="opening",
    tolerance={"loss": 0.2, "learning_rate": 0.0},
)
def routers(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Loss with routers that learn and routers that stay as drawn, one of 8 experts and two of 16."""
    scores = [evaluate(runs[n].model, TASK, seed=seed + FRESH, size=ROWS).loss for n in ROUTERS]
    rates = [float(runs[name].rates.max()) for name in ROUTERS]
    return {"loss": ("arm", scores), "learning_rate": ("arm", rates)}


SIGMOID = SigmoidRouted(
    2 * EXPERTS, WIDTH // 2, active=2, normalised=True, balance=ROUTERS["two"].balance
)
"""Two of sixteen experts whose scores are sigmoids, with the balancing loss."""


def sigmoids_trainings(seed: int) -> dict[str, Job]:
    """Sigmoid scores, at the learning rate that is best on three seeds."""
    options = {**OPTIONS, "prepare": SIGMOID}
    name = "experts-sigmoid-two-of-three"
    rate = tuned(Search(name, BASE, TASK, RATES, tuning_seeds(3), STEPS, options))
    return {"two": job(BASE, TASK, seed + FRESH, steps=STEPS, learning_rate=rate, **options)}


@measurement(
    seeds=8,
    trainings=sigmoids_trainings,
    repeat="opening",
    tolerance={"loss": 0.2, "learning_rate": 0.0},
)
def sigmoids(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Loss of two of 16 experts whose scores are sigmoids, on the seeds of ``routers``."""
    run = runs["two"]
    loss = evaluate(run.model, TASK, seed=seed + FRESH, size=ROWS).loss
    return {"loss": loss, "learning_rate": float(run.rates.max())}


# Places -------------------------------------------------------------------------------------------

FACTORS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
PLACED = ("none", "one", "biases")


@measurement(
    seeds=6,
    coords={"arm": PLACED, "factor": FACTORS},
    trainings=loads_trainings,
    repeat="opening",
)
def places(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Trained models whose experts have few places: share of tokens dropped, and the loss."""
    dropped, loss = [], []
    for name in PLACED:
        model = runs[name].model
        rules = layer(model).routed
        for factor in FACTORS:
            layer(model).routed = replace(rules, capacity_factor=factor)
            batch = TASK.batch(make_generator(seed, "evaluation"), ROWS)
            with capture(model, "blocks.0.feedforward.chosen") as seen, torch.no_grad():
                predict(model, batch)
            dropped.append(1 - float(seen["blocks.0.feedforward.chosen"].sum(-1).mean()))
            loss.append(evaluate(model, TASK, seed=seed, size=ROWS).loss)
        layer(model).routed = rules
    shape = (len(PLACED), len(FACTORS))
    axes = ("arm", "factor")
    return {
        "dropped": (axes, np.array(dropped).reshape(shape)),
        "loss": (axes, np.array(loss).reshape(shape)),
    }


# What was predicted -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prediction:
    """What was expected before anything was measured, and how it is judged.

    Attributes:
        measured: names of the measurement and of its variable.
        treatment, baseline: the arms that are compared, seed by seed.
        rule: by which the two are judged.
        verdict: the one that the prose discusses.
        rate: the learning rate, where several were measured.
    """

    measured: tuple[str, str]
    treatment: str
    baseline: str
    rule: Difference
    verdict: str
    rate: float | None = None


def _less(smallest: float) -> Difference:
    return Difference(direction="less", smallest_effect=smallest)


def _more(smallest: float) -> Difference:
    return Difference(direction="greater", smallest_effect=smallest)


PREDICTIONS: Mapping[str, Prediction] = {
    "more for the same work": Prediction(("bought", "loss"), "one", "dense 16", _less(0.05), "inconclusive"),
    "less for the same size": Prediction(("bought", "loss"), "one", "dense 64", _more(0.02), "confirmed"),
    "many small experts": Prediction(("bought", "loss"), "two", "one", _less(0.02), "confirmed"),
    "a learned router": Prediction(("bought", "loss"), "none", "random", _less(0.02), "refuted"),
    "even by the loss": Prediction(("loads", "busiest"), "one", "none", _less(0.5), "confirmed"),
    "even by biases": Prediction(("loads", "busiest"), "biases", "none", _less(0.5), "confirmed"),
    "balance is worth it": Prediction(("bought", "loss"), "one", "none", _less(0.02), "confirmed"),
    "collapse by haste": Prediction(("hurried", "busiest"), "none", "one", _more(0.5), "confirmed", 0.08),
    "experts by skill": Prediction(("loads", "skill"), "none", "random", _more(0.1), "inconclusive"),
    "a learned router for one": Prediction(("routers", "loss"), "one", "random", _less(0.02), "confirmed"),
    "a learned router for two": Prediction(("routers", "loss"), "two", "random two", _less(0.02), "confirmed"),
}  # fmt: skip


def judged(name: str, results: Mapping[str, Dataset]) -> Judgement:
    """What comes of a prediction.

    Args:
        name: of the prediction.
        results: those of this room's measurements, by name.

    Raises:
        KeyError: there is no such prediction, or its result is missing.
    """
    one = PREDICTIONS[name]
    measurement_name, variable = one.measured
    values: DataArray = results[measurement_name][variable]
    if one.rate is not None:
        values = values.sel(rate=one.rate)
    return judge(
        one.rule,
        {
            "treatment": values.sel(arm=one.treatment).values.astype(float),
            "baseline": values.sel(arm=one.baseline).values.astype(float),
        },
    )
