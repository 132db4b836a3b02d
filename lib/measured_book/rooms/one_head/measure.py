"""What the chapter on heads measures: what is lost without one, without several, and what they look at.

How heads are taken away is said in `pruning`, how their patterns are turned into numbers in `observing`, and
how these are held against the case study's table in `table`.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.analysis import ablation
from measured_transformer.analysis.ablation import How
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.recall import AssociativeRecall
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.rewriting import ReversalED, ReversalLM
from measured_transformer.tasks.task import Batch, Task
from measured_transformer.tasks.two_hop import JoinedTwoHop
from measured_transformer.tasks.variable_reversal import VariableReversal
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, evaluate, make_model, train
from measured_transformer.training.schedules import WarmupLinear
from measured_transformer.training.seeding import make_generator
from numpy import ndarray
from scipy.stats import spearmanr
from torch import Tensor

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds
from measured_book.rooms.one_head.observing import CLASSES, DECLARED, STRICT, kappa, memberships
from measured_book.rooms.one_head.pruning import (
    ablation_rises,
    all_but,
    gini,
    gradient_importance,
    greedy_order,
    keep_by_layer,
    largest_share,
    losses_with,
    order,
    prune_heads,
    pruning_curve,
    random_sets,
)
from measured_book.rooms.one_head.table import ROWS, apart, exchange_error, look, study

# Trained models, and the learning rate as an arm --------------------------------------------------------

STEPS = 500
SOURCE_RATE = 5e-4
"""The learning rate that the case study states for another of its experiments, on normalisation."""
RATES = (5e-4, 2e-3, 4e-3, 5.7e-3, 8e-3, 1.6e-2)
SEARCHED = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
FEWER_STEPS = 400
"""Of encoders on sequences of varying length, which learn within these."""
DECODING_STEPS = 500
"""Of encoder-decoders and decoders, at the source's rate."""
FRESH = 1000
"""Added to the seeds of measurements that were designed anew after a look at other seeds."""
MIRRORED = Reversal(vocab=12, length=12)
ENCODER = Config(vocab=12)
OPTIONS: Mapping[str, Any] = {"batch_size": 32, "schedule": WarmupLinear(20, STEPS)}
LAYERS, HEADS = (0, 1), (0, 1, 2, 3)
HOWS = ("zero", "mean", "resample")
SHOWN = (2e-3, 1.6e-2)
"""Two rates of which the mean patterns are kept."""


def tuned_rate() -> float:
    """The learning rate that suits the two-layer encoder on reversal."""
    return tuned(
        Search(
            "one-head-encoder", ENCODER, MIRRORED, SEARCHED, tuning_seeds(2), STEPS, dict(OPTIONS)
        )
    )


def encoder_job(seed: int, rate: float) -> Job:
    """A two-layer encoder that learns to reverse."""
    return job(ENCODER, MIRRORED, seed, steps=STEPS, learning_rate=rate, **OPTIONS)


def batch_of(task: Task, seed: int, purpose: str = "evaluation", size: int = 100) -> Batch:
    """Sequences that no training has seen, of one stream for each purpose."""
    return task.batch(make_generator(seed, purpose), size)


def layer_heads(layer: int, what: str = "mixed") -> list[ablation.Component]:
    """The heads of one layer of a model of one stack."""
    return [
        ablation.Component(f"blocks.{layer}.attention.{what}", head)
        for head in range(ENCODER.n_heads)
    ]


def pattern_falls(model: Model, seed: int, how: How) -> list[float]:
    """How far the accuracy falls when all heads of a layer attend by their mean pattern, or evenly."""
    batch, other = batch_of(MIRRORED, seed), batch_of(MIRRORED, seed, "reference")
    groups = [layer_heads(layer, "pattern") for layer in LAYERS]
    changes = ablation.effects(model, groups, batch, how=how, reference=other)
    return [-float(change) for change in changes]


def mean_maps(model: Model, seed: int) -> Float[Tensor, "layer head query key"]:
    """The mean pattern of every head."""
    return torch.stack([each.patterns.mean(0) for each in look(model, batch_of(MIRRORED, seed))])


def rate_trainings(seed: int) -> dict[float, Job]:
    """The same encoder, from the same weights and on the same sequences, at six learning rates."""
    return {rate: encoder_job(seed, rate) for rate in RATES}


@measurement(
    seeds=8,
    coords={
        "rate": RATES,
        "shown": SHOWN,
        "layer": LAYERS,
        "head": HEADS,
        "query": tuple(range(12)),
        "key": tuple(range(12)),
    },
    trainings=rate_trainings,
    repeat="opening",
    tolerance={"mirror": 1.0, "accuracy": 0.5, "even": 1.0, "maps": 1.0},
)
def by_rate(seed: int, runs: Mapping[float, Run]) -> dict[str, Any]:
    """Encoders trained to reverse at six learning rates: the weight of each head on the mirrored position."""
    models = [runs[rate].model for rate in RATES]
    tables = [
        [each.table.masses["mirror"] for each in look(model, batch_of(MIRRORED, seed))]
        for model in models
    ]
    maps = [mean_maps(runs[rate].model, seed).numpy().round(3) for rate in SHOWN]
    return {
        "mirror": (("rate", "layer", "head"), tables),
        "accuracy": ("rate", [evaluate(m, MIRRORED, seed=seed).accuracy for m in models]),
        "even": (("rate", "layer"), [pattern_falls(m, seed, "even") for m in models]),
        "maps": (("shown", "layer", "head", "query", "key"), np.array(maps)),
    }


KINDS = ("tuned", "source", "encoder-decoder", "decoder-only")
"""Models whose heads are held against the table: encoders at the tuned rate and at the source's, and two other
readings of what the source calls a Transformer, at the source's rate."""
STATES = ("fresh", "tuned", "source")
"""Encoders before training, and after it at two rates."""
FACTORS = (0.75, 1.0, 1.25)
"""By which the thresholds of the table's rows are multiplied."""


def kind_task(kind: str) -> Task:
    """What the model of one of `KINDS` learns."""
    tasks: dict[str, Task] = {
        "encoder-decoder": ReversalED(12, 12),
        "decoder-only": ReversalLM(12, 12),
    }
    return tasks.get(kind, MIRRORED)


def role_trainings(seed: int) -> dict[str, Job]:
    """A model of each kind."""
    seed += FRESH
    jobs = {"tuned": encoder_job(seed, tuned_rate()), "source": encoder_job(seed, SOURCE_RATE)}
    for kind in KINDS[2:]:
        task = kind_task(kind)
        config = Config(vocab=task.vocab)
        jobs[kind] = job(
            config,
            task,
            seed,
            steps=DECODING_STEPS,
            learning_rate=SOURCE_RATE,
            batch_size=32,
            schedule=WarmupLinear(20, DECODING_STEPS),
        )
    return jobs


def untrained(model: Model, seed: int) -> Model:
    """A fresh model of the same kind."""
    source = isinstance(model, EncoderDecoder)
    causal = not isinstance(model, Encoder)
    return make_model(model.config, causal=causal, source=source, seed=seed).eval()


@measurement(
    seeds=16,
    coords={
        "kind": KINDS,
        "state": STATES,
        "row": ROWS,
        "factor": FACTORS,
        "layer": LAYERS,
        "head": HEADS,
    },
    trainings=role_trainings,
    repeat="opening",
    tolerance={
        **dict.fromkeys(("found", "found_fresh"), 1.0),
        **dict.fromkeys(("accuracy", "stable", "one_class", "kappa"), 0.5),
        **dict.fromkeys(("share", "mirror", "entropy"), 1.0),
        **dict.fromkeys(("apart", "apart_most", "itself", "itself_most"), 0.5),
        **{"distance": 6.0, "code": 15.0},
    },
)
def roles(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Which rows of the table models that reverse have, and what their heads look at, trained and untrained."""
    seed += FRESH
    models = {kind: runs[kind].model for kind in KINDS}
    batches = {kind: batch_of(kind_task(kind), seed) for kind in KINDS}
    generator = make_generator(seed, "samples")
    after = {k: study(models[k], batches[k], generator, factors=FACTORS) for k in KINDS}
    before = {
        k: study(untrained(models[k], seed), batches[k], generator, factors=(1.0,)) for k in KINDS
    }
    encoders = {"fresh": before["tuned"], "tuned": after["tuned"], "source": after["source"]}
    both = [[x for k in KINDS for x in after[k].labels(t)] for t in (DECLARED, STRICT)]
    looked = {"fresh": untrained(models["tuned"], seed), **{s: models[s] for s in STATES[1:]}}
    compared = [
        apart([each.patterns for each in look(looked[state], batches["tuned"])]) for state in STATES
    ]
    powers = 2 ** np.arange(len(CLASSES))
    codes = [
        [memberships(each.table) @ powers for each in encoders[state].heads] for state in STATES
    ]

    def over_heads(name: str) -> tuple[tuple[str, ...], Any]:
        return ("state", "layer", "head"), [e.statistic(name) for e in encoders.values()]

    return {
        "found": (
            ("kind", "row", "factor"),
            [[[int(after[k].found[f][r]) for f in FACTORS] for r in ROWS] for k in KINDS],
        ),
        "found_fresh": (
            ("kind", "row"),
            [[int(before[k].found[1.0][r]) for r in ROWS] for k in KINDS],
        ),
        "accuracy": (
            "kind",
            [evaluate(models[k], kind_task(k), seed=seed).accuracy for k in KINDS],
        ),
        "stable": ("kind", [after[k].stable for k in KINDS]),
        "one_class": ("kind", [after[k].one_class(FACTORS) for k in KINDS]),
        "kappa": kappa(*both),
        "code": (("state", "layer", "head"), np.array(codes)),
        "share": over_heads("place_share"),
        "mirror": over_heads("mirror"),
        "entropy": over_heads("entropy"),
        "distance": over_heads("distance"),
        "apart": (("state", "layer"), [[each.of_layer(i) for i in LAYERS] for each in compared]),
        "itself": (("state", "layer"), [each.itself.reshape(2, -1).mean(1) for each in compared]),
        "apart_most": ("state", [each.pairs.max() for each in compared]),
        "itself_most": ("state", [each.itself.max() for each in compared]),
    }


TRAINED = ("tuned", "source")


def spare_trainings(seed: int) -> dict[str, Job]:
    """Encoders at the tuned rate and at the source's."""
    return {"tuned": encoder_job(seed, tuned_rate()), "source": encoder_job(seed, SOURCE_RATE)}


@measurement(
    seeds=12,
    coords={"rate": TRAINED, "how": HOWS, "layer": LAYERS, "head": HEADS},
    trainings=spare_trainings,
    repeat="opening",
    tolerance={
        **dict.fromkeys(("alone", "together"), 4.0),
        **dict.fromkeys(("fall_alone", "fall_together", "fall_mean", "fall_even"), 1.0),
    },
)
def spares(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """What encoders lose without one head and without all four of a layer: loss in nats, and accuracy."""
    batch, other = batch_of(MIRRORED, seed), batch_of(MIRRORED, seed, "reference")
    found: dict[str, list[Any]] = {}
    for rate in TRAINED:
        model = runs[rate].model
        for name, metric, sign in (("", ablation.loss, 1.0), ("fall_", ablation.accuracy, -1.0)):
            single, group = [], []
            for how in HOWS:
                given: dict[str, Any] = {"how": how, "reference": other, "metric": metric}
                ones = ablation.effects(model, ablation.heads(model), batch, **given)
                single.append(sign * ones.reshape(len(LAYERS), len(HEADS)))
                layers = [layer_heads(layer) for layer in LAYERS]
                group.append(sign * ablation.effects(model, layers, batch, **given))
            found.setdefault(f"{name}alone", []).append(single)
            found.setdefault(f"{name}together", []).append(group)
        found.setdefault("fall_mean", []).append(pattern_falls(model, seed, "mean"))
        found.setdefault("fall_even", []).append(pattern_falls(model, seed, "even"))
    axes = {"alone": ("rate", "how", "layer", "head"), "together": ("rate", "how", "layer")}
    return {
        name: (axes.get(name.removeprefix("fall_"), ("rate", "layer")), np.array(values))
        for name, values in found.items()
    }


VARYING = VariableReversal(12, 4, 12)
VARYING_RATE = 4e-3
"""At which encoders learn it; at the rate that suits a fixed length they do not."""


def length_trainings(seed: int) -> dict[str, Job]:
    """An encoder on sequences of four to twelve tokens."""
    config = Config(vocab=VARYING.vocab)
    return {
        "encoder": job(
            config,
            VARYING,
            seed,
            steps=FEWER_STEPS,
            learning_rate=VARYING_RATE,
            batch_size=32,
            schedule=WarmupLinear(20, FEWER_STEPS),
        )
    }


@measurement(
    seeds=6,
    trainings=length_trainings,
    repeat="opening",
    tolerance={"share": 0.2, "accuracy": 0.3},
)
def lengths(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Encoders that reverse sequences of varying length: what place and length explain of heads that mirror."""
    model = runs["encoder"].model
    tables = [each.table for each in look(model, batch_of(VARYING, seed, size=400))]
    mirror = np.concatenate([table.masses["mirror"] for table in tables])
    share = np.concatenate([table.place_share for table in tables])
    chosen = mirror > 0.5 if (mirror > 0.5).any() else mirror == mirror.max()
    return {
        "share": float(share[chosen].mean()),
        "accuracy": evaluate(model, VARYING, seed=seed).accuracy,
    }


DRAWN = 7
"""Random models a seed whose heads trade places."""


@measurement(seeds=16, repeat=2, tolerance={"error": 1e-9, "control": 2.0})
def exchanged(seed: int) -> dict[str, Any]:
    """Largest change of a random model's output when heads trade places, with their outputs and without."""
    draws = range(DRAWN * seed, DRAWN * (seed + 1))
    return {
        "error": ("draw", [exchange_error(draw) for draw in draws]),
        "control": ("draw", [exchange_error(draw, exchange_outputs=False) for draw in draws]),
    }


# Pairs of heads that do not add up ------------------------------------------------------------------------

HOP = JoinedTwoHop(chains=2, names=3, values=3)
DEPTHS, DEEP = (1, 2, 6), (2, 6)
HOP_STEPS = 300
HOP_RATE = 4e-3
"""At which models of all depths learn the task."""
HOP_OPTIONS: Mapping[str, Any] = {"batch_size": 32, "schedule": WarmupLinear(20, HOP_STEPS)}


def hop_trainings(seed: int) -> dict[int, Job]:
    """Decoders of one to six layers on two-hop recall."""
    jobs = {}
    for depth in DEPTHS:
        config = Config(vocab=HOP.vocab, d_model=32, n_layers=depth)
        jobs[depth] = job(config, HOP, seed, steps=HOP_STEPS, learning_rate=HOP_RATE, **HOP_OPTIONS)
    return jobs


def pair_effects(
    model: Model, batch: Batch
) -> tuple[Float[ndarray, "pair"], Float[ndarray, "pair"], Float[ndarray, "pair"]]:
    """Of every pair of heads: its cost, the sum of its heads' single costs, and whether they share a layer."""
    n, of_layer = model.config.n_layers * model.config.n_heads, model.config.n_heads
    pairs = list(itertools.combinations(range(n), 2))
    sets: list[list[int]] = [[], *([h] for h in range(n)), *(list(pair) for pair in pairs)]
    losses = losses_with(model, batch, all_but(model, sets))
    rises = losses[1:] - losses[0]
    first, second = np.array(pairs).T
    same = (first // of_layer == second // of_layer).astype(float)
    return rises[n:], rises[first] + rises[second], same


@measurement(
    seeds=6,
    coords={"depth": DEPTHS, "deep": DEEP},
    trainings=hop_trainings,
    repeat="opening",
    tolerance={
        **dict.fromkeys(("same", "different"), 1.0),
        **dict.fromkeys(("excess_same", "excess_different"), 1.0),
        "accuracy": 0.3,
    },
)
def additivity(seed: int, runs: Mapping[int, Run]) -> dict[str, Any]:
    """The share of the joint effects of two heads that their single effects do not add up to, by depth.

    And the same with its sign: positive where a pair costs more than the sum.
    """
    found: dict[str, list[float]] = {}
    for depth in DEPTHS:
        model = runs[depth].model
        joint, summed, same = pair_effects(model, batch_of(HOP, seed, size=128))
        for name, chosen in (("same", same > 0), ("different", same == 0)):
            if chosen.any():
                size = np.abs(joint[chosen]).sum()
                rest = joint[chosen] - summed[chosen]
                found.setdefault(name, []).append(float(np.abs(rest).sum() / size))
                found.setdefault(f"excess_{name}", []).append(float(rest.sum() / size))
        found.setdefault("accuracy", []).append(evaluate(model, HOP, seed=seed).accuracy)
    return {
        name: ("deep" if "different" in name else "depth", values) for name, values in found.items()
    }


# Taking heads away, in several orders ----------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """One task, and the models that learn it: two layers of eight heads, each eight wide.

    Attributes:
        task: what is learnt.
        steps: of the model with eight heads a layer.
        further: steps of training on after pruning; models with fewer heads from the start get both.
    """

    task: Task
    steps: int
    further: int = 50

    def config(self, n_heads: int, d_head: int = 8) -> Config:
        """Two layers of so many heads."""
        return Config(vocab=self.task.vocab, n_heads=n_heads, d_head=d_head, bias=False)

    def options(self, steps: int) -> dict[str, Any]:
        """What all trainings have in common."""
        return {"batch_size": 16, "schedule": WarmupLinear(steps // 10, steps)}


SETTINGS: Mapping[str, Setting] = {
    "reversal": Setting(Reversal(vocab=12, length=8), 200),
    "lag": Setting(Lag(vocab=8, length=16, lag=3, fidelity=0.9), 400),
    "recall": Setting(AssociativeRecall(pairs=3, queries=3, keys=6, values=4), 500),
}
"""Each trained until every model has learned its task: models that have not can spare fewer heads."""
INSURANCE: Mapping[str, Setting] = {"recall": replace(SETTINGS["recall"], steps=300)}
"""Recall, ended early, so that two heads a layer leave something to be gained."""
TASKS = tuple(SETTINGS)
PRUNING_RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
ORDERS = ("gradient", "alone", "greedy", "random")
DRAWS = 10
"""Random orders a model."""
COUNTS = tuple(range(17))
QUARTER, HALF = 4, 8
WORTH = 0.01
"""The share of what all heads together are worth that may be lost."""


def arm_job(name: str, arm: str, seed: int, settings: Mapping[str, Setting] = SETTINGS) -> Job:
    """One arm on one task: `whole`, `wide` (four heads, twice as wide), `scratch` (two heads) or `pruned`.

    Raises:
        ValueError: there is no such arm.
    """
    setting = settings[name]
    if arm == "whole":
        config, steps = setting.config(8), setting.steps
    elif arm == "wide":
        config, steps = setting.config(4, 16), setting.steps
    elif arm == "scratch":
        config, steps = setting.config(KEPT), setting.steps + setting.further
    elif arm == "pruned":
        config, steps = setting.config(KEPT), setting.further
    else:
        raise ValueError(f"expected whole, wide, scratch or pruned, got {arm!r}")
    options = setting.options(steps)
    if arm == "pruned":
        options["prepare"] = PrunedTo(name, LARGE_RATES[name])
    search = Search(
        f"one-head-{name}-{arm}",
        config,
        setting.task,
        PRUNING_RATES,
        tuning_seeds(2),
        steps,
        options,
    )
    return job(config, setting.task, seed, steps=steps, learning_rate=tuned(search), **options)


KEPT = 2
"""Heads a layer that the large model is pruned to."""
LARGE_RATES: Mapping[str, float] = {"recall": 4e-3}
"""The learning rates of the models that are pruned: those that were chosen for all sixteen heads."""


@dataclass(frozen=True)
class PrunedTo:
    """A preparation for `train`: a larger model is trained first and cut to the heads of the fresh one.

    The larger model's seed comes from the fresh weights, and nothing else is trained from it.

    Attributes:
        name: the task, one of `INSURANCE`.
        learning_rate: of the larger model's training.
    """

    name: str
    learning_rate: float

    @torch.enable_grad()
    def __call__(self, fresh: Model) -> None:
        """Overwrite the fresh weights with those of the pruned model."""
        bits = next(fresh.parameters()).detach().cpu().numpy().tobytes()
        seed = 10 * (zlib.crc32(bits) % 10**7) + 3
        setting = INSURANCE[self.name]
        run = train(
            setting.config(8),
            setting.task,
            seed=seed,
            steps=setting.steps,
            learning_rate=self.learning_rate,
            **setting.options(setting.steps),
        )
        assert isinstance(run.model, Decoder | Encoder)
        ranked = gradient_importance(run.model, batch_of(setting.task, seed, "ranking", 64))
        smaller = prune_heads(run.model, keep_by_layer(ranked, fresh.config.n_heads))
        fresh.load_state_dict(smaller.state_dict())


def order_trainings(seed: int) -> dict[str, Job]:
    """A model of sixteen heads on each task."""
    return {name: arm_job(name, "whole", seed + FRESH) for name in TASKS}


@measurement(
    seeds=60,
    coords={
        "task": TASKS,
        "order": ORDERS,
        "removed": COUNTS,
        "how": ("zero", "mean"),
        "head": tuple(range(16)),
        "end": ("lowest", "highest"),
    },
    trainings=order_trainings,
    repeat="opening",
    tolerance={
        **dict.fromkeys(("curve", "rise", "critical", "summed", "together", "quarter"), 4.0),
        **dict.fromkeys(("share", "share_relative", "gini", "stability"), 1.0),
        **dict.fromkeys(("agreement", "agreement_raw"), 1.0),
        "slope": 1.0,
    },
)
def orders(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Models of sixteen heads, taken away in four orders: the loss, and how many can go."""
    seed += FRESH
    found: dict[str, list[Any]] = {}

    def keep(**values: Any) -> None:
        for name, value in values.items():
            found.setdefault(name, []).append(value)

    for name in TASKS:
        model, task = runs[name].model, SETTINGS[name].task
        ranked, measured = (batch_of(task, seed, p, 64) for p in ("ranking", "measuring"))
        other = batch_of(task, seed, "reference", 64)
        slope = gradient_importance(model, ranked)
        raw = gradient_importance(model, ranked, normalise=False)
        first = ablation_rises(model, ranked, reference=None)
        zero = ablation_rises(model, measured, reference=None)
        mean = ablation_rises(model, measured, reference=other)
        generator = make_generator(seed, f"orders {name}")
        several = {
            "gradient": [order(slope)],
            "alone": [order(first)],
            "greedy": [greedy_order(model, ranked)],
            "random": random_sets(16, 16, DRAWS, generator),
        }
        curves = {
            way: np.array([pruning_curve(model, measured, each, COUNTS) for each in of])
            for way, of in several.items()
        }
        whole, nothing = curves["gradient"][0, 0], curves["gradient"][0, -1]
        allowed = WORTH * (nothing - whole)
        alone = several["alone"][0]
        top = order(slope)[::-1]
        keep(
            curve=[curves[way].mean(0) for way in ORDERS],
            share=[np.mean([largest_share(c, rise=allowed) for c in curves[w]]) for w in ORDERS],
            share_relative=largest_share(curves["gradient"][0], rise=WORTH * whole),
            rise=[zero.ravel(), mean.ravel()],
            slope=slope.ravel(),
            agreement=rank_correlation(slope.ravel(), zero.ravel()),
            agreement_raw=rank_correlation(raw.ravel(), zero.ravel()),
            stability=rank_correlation(first.ravel(), zero.ravel()),
            gini=gini(zero),
            critical=float(zero.ravel()[int(first.argmax())]),
            summed=float(zero.ravel()[alone[:HALF]].sum()),
            together=float(curves["alone"][0, HALF] - whole),
            quarter=[
                curves["gradient"][0, QUARTER],
                pruning_curve(model, measured, top, [QUARTER])[0],
            ],
        )
    axes: dict[str, tuple[str, ...]] = {
        "curve": ("task", "order", "removed"),
        "share": ("task", "order"),
        "rise": ("task", "how", "head"),
        "slope": ("task", "head"),
        "quarter": ("task", "end"),
    }
    return {name: (axes.get(name, ("task",)), np.array(values)) for name, values in found.items()}


def rank_correlation(first: Float[ndarray, "n"], second: Float[ndarray, "n"]) -> float:
    """Spearman's rank correlation to twelve digits, which do not depend on the processor."""
    return round(float(spearmanr(first, second).statistic), 12)


INSURED = tuple(INSURANCE)
ARMS = ("pruned", "scratch")


def insurance_trainings(seed: int) -> dict[tuple[str, str], Job]:
    """Eight heads, four wider ones, two from the start, and two that are left of eight."""
    return {
        (name, arm): arm_job(name, arm, seed, INSURANCE)
        for name in INSURED
        for arm in ("whole", "wide", *ARMS)
    }


@measurement(
    seeds=32,
    coords={"task": INSURED, "arm": ARMS, "heads": ("eight", "four")},
    trainings=insurance_trainings,
    repeat="opening",
    tolerance={"loss": 2.0, "off": 4.0},
)
def insurance(seed: int, runs: Mapping[tuple[str, str], Run]) -> dict[str, Any]:
    """Two heads a layer, left of eight or two from the start; and the cost of a random quarter switched off."""
    losses, off = [], []
    for name in INSURED:
        batch = batch_of(INSURANCE[name].task, seed, "measuring", 256)
        losses.append([ablation.loss(runs[name, arm].model, batch) for arm in ARMS])
        costs = []
        for arm in ("whole", "wide"):
            model = runs[name, arm].model
            heads = 2 * model.config.n_heads
            generator = make_generator(seed, f"off {name}")
            sets = random_sets(heads, heads // 4, 16, generator)
            found = losses_with(
                model,
                batch_of(INSURANCE[name].task, seed, "measuring", 64),
                all_but(model, [[], *sets]),
            )
            costs.append(float(found[1:].mean() - found[0]))
        off.append(costs)
    return {"loss": (("task", "arm"), losses), "off": (("task", "heads"), off)}
