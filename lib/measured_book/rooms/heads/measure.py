"""What the chapter on many heads measures: a sum of heads, what one head cannot do, and circuits of two.

The sum of heads is an identity, on drawn layers (`algebra`). What is trained is small: one layer on tasks
with a known answer, for how many heads serve (`single_head`); two layers of attention alone for induction,
and two-hop recall for how heads depend on one another (`paths`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from measured_transformer.analysis.circuits import compositions, module_circuits
from measured_transformer.analysis.induction import prefix_matching_score, previous_token_score
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.tasks.induction import Induction
from measured_transformer.tasks.joined_recall import JoinedRecall
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.task import Batch, Task
from measured_transformer.tasks.two_hop import JoinedTwoHop
from measured_transformer.tasks.two_places import TwoPlaces
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, evaluate, make_model, predict
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.component_ablation import without_ffn
from torch import Tensor

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds
from measured_book.rooms.heads.algebra import (
    CHECKS,
    DRAWS,
    best_numbers,
    circuit_errors,
    drawn_attention,
    heads_of,
    largest_gap,
    mask_errors,
    module_errors,
    rank_excess,
    removal_errors,
    stream_errors,
    sum_errors,
)
from measured_book.rooms.heads.paths import PATHS, pair_effects, patched, right
from measured_book.rooms.heads.single_head import two_maps


@measurement(
    seeds=1,
    coords={"check": CHECKS, "draw": tuple(range(DRAWS)), "entry": tuple(range(7))},
    tolerance={
        "error": 1e-9,
        "control": 1e-6,
        "numbers": 1e-6,
        "bound": 1e-6,
        "one_head": 1e-6,
    },
)
@torch.no_grad()
def drawn(seed: int) -> dict[str, Any]:
    """Heads as a sum, their circuits and their ranks, on 50 drawn layers each, with controls that must fail."""
    del seed
    error, control = [], []
    ranks, numbers, bound, one_head = [], [], [], []
    for draw in range(DRAWS):
        maps = two_maps(draw)
        causal, writes = mask_errors(draw)
        found = sum_errors(draw) | module_errors(draw) | circuit_errors(draw, bias=False)
        found["ov with bias"] = circuit_errors(draw, bias=True)["ov"]
        found["removed"], found["causal"], found["stream"] = (
            removal_errors(draw),
            causal,
            stream_errors(draw),
        )
        reached = maps.attention(maps.x)[0, 3:]
        found["two maps"] = largest_gap(reached, maps.target), maps.bound
        error.append([found[check][0] for check in CHECKS])
        control.append([found[check][1] for check in CHECKS])
        ranks.append([*writes, *rank_excess(draw)])
        attention, x = drawn_attention(draw, wide=True)
        numbers.append(round(best_numbers(heads_of(attention, x)[0], attention(x)), 9))
        bound.append(round(maps.bound, 9))
        one_head.append(round(maps.one_head, 9))
    with seeded(0):
        qk, ov = module_circuits(MultiHeadAttention(768, 12, bias=False), head=3)
    del qk
    shapes = [*ov.form.left.shape, *ov.form.right.shape, *ov.form.matrix.shape, ov.form.rank()]
    columns = np.array(ranks).T.tolist()
    names = ("writes", "all_writes", "form", "free_form", "two_patterns", "one_pattern")
    return {
        "error": (("check", "draw"), np.array(error).T.tolist()),
        "control": (("check", "draw"), np.array(control).T.tolist()),
        "numbers": ("draw", numbers),
        "bound": ("draw", bound),
        "one_head": ("draw", one_head),
        **{name: ("draw", values) for name, values in zip(names, columns, strict=True)},
        "shapes": ("entry", [int(each) for each in shapes]),
        "head_width": Config(vocab=1, d_model=768, n_heads=8).head_width,
        "printed_exists": int(_exists(torch.ones(768, 64), torch.ones(768, 64))),
    }


def _exists(left: Tensor, right: Tensor) -> bool:
    """Return whether two matrices have a product."""
    try:
        return (left @ right).ndim == 2
    except RuntimeError:  # shapes that do not fit
        return False


# Two places at once ---------------------------------------------------------------------------------

FEW_HEADS = (1, 2, 4, 8)
PLACES = TwoPlaces(vocab=6, length=8)
PLACE_STEPS = 500
"""The step at which the arms are compared, and for which their rates are chosen."""
PLACE_RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
EVALUATED = 50


def places_trainings(seed: int) -> dict[int, Job]:
    """One block of width 32 with one to eight heads, each at its own rate; one head for twice as long."""
    jobs = {}
    for heads in FEW_HEADS:
        config = Config(
            vocab=PLACES.vocab,
            d_model=32,
            n_layers=1,
            n_heads=heads,
            positions="learned",
            max_length=32,
        )
        options = {"batch_size": 32}
        search = Search(
            f"heads-two-places-{heads}",
            config,
            PLACES,
            PLACE_RATES,
            tuning_seeds(2),
            PLACE_STEPS,
            options,
        )
        jobs[heads] = job(
            config,
            PLACES,
            seed,
            steps=PLACE_STEPS * (2 if heads == 1 else 1),
            learning_rate=tuned(search),
            evaluate_every=EVALUATED,
            **options,
        )
    return jobs


@measurement(
    seeds=12,
    coords={
        "heads": FEW_HEADS,
        "step": tuple(range(EVALUATED, PLACE_STEPS + 1, EVALUATED)),
        "late": tuple(range(PLACE_STEPS + EVALUATED, 2 * PLACE_STEPS + 1, EVALUATED)),
    },
    trainings=places_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.3, "one_later": 0.3},
)
def places(seed: int, runs: Mapping[int, Run]) -> dict[str, Any]:
    """Accuracy on a label that needs two places, over the steps; of one head also later."""
    del seed
    until = PLACE_STEPS // EVALUATED
    return {
        "accuracy": (
            ("heads", "step"),
            [runs[heads].evaluation_accuracies[:until].tolist() for heads in FEW_HEADS],
        ),
        "one_later": ("late", runs[1].evaluation_accuracies[until:].tolist()),
    }


LATER_STEPS = 3 * PLACE_STEPS
LATER_AT = tuple(range(250, LATER_STEPS + 1, 250))
FRESH = 2
"""Added to each seed: models of which no earlier look has shown anything."""


def later_trainings(seed: int) -> dict[int, Job]:
    """One head and two heads on two places for three times as long, from seeds of their own."""
    jobs = {}
    for heads in (1, 2):
        first = places_trainings(seed + FRESH)[heads]
        jobs[heads] = job(
            first.config,
            PLACES,
            seed + FRESH,
            steps=LATER_STEPS,
            learning_rate=first.settings["learning_rate"],
            evaluate_every=LATER_AT[0],
            batch_size=32,
        )
    return jobs


@measurement(
    seeds=12,
    coords={"heads": (1, 2), "step": LATER_AT},
    trainings=later_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.3},
)
def later(seed: int, runs: Mapping[int, Run]) -> dict[str, Any]:
    """Accuracy on a label that needs two places, of one head and of two, over three times as many steps."""
    del seed
    return {
        "accuracy": (
            ("heads", "step"),
            [runs[heads].evaluation_accuracies.tolist() for heads in (1, 2)],
        )
    }


# One wide head or many narrow ones --------------------------------------------------------------------

COUNTS = (1, 2, 4, 8, 16)
STREAM = 64
LOOKUP = JoinedRecall(pairs=16, queries=8, keys=16, values=8)
TASKS: Mapping[str, tuple[Task, str, int, int]] = {
    "recall": (LOOKUP, "none", 200, 16),
    "translation": (
        NoisyTranslation(symbols=8, length=8, pad_share=0.4, noise=0.1),
        "learned",
        150,
        16,
    ),
}
"""Task -> itself, how it is told of order, steps and sequences a step."""
COUNT_RATES = (1e-3, 2.5e-3, 6.3e-3, 1.6e-2, 4e-2, 1e-1)
NARROW = (1, 2, 4, 8)
"""Widths of a head that is alone."""


def count_job(name: str, heads: int, width: int, seed: int) -> Job:
    """One block of width 64 on a task, at the rate that suits this number of heads of this width."""
    task, positions, steps, batch_size = TASKS[name]
    config = Config(
        vocab=task.vocab,
        d_model=STREAM,
        n_layers=1,
        n_heads=heads,
        d_head=width,
        d_ff=STREAM,
        positions=cast(Any, positions),
        max_length=64,
        norm="rms",
        bias=False,
    )
    options = {"batch_size": batch_size}
    search = Search(
        f"heads-{name}-{heads}x{width}", config, task, COUNT_RATES, tuning_seeds(1), steps, options
    )
    return job(config, task, seed, steps=steps, learning_rate=tuned(search), **options)


def counts_trainings(seed: int) -> dict[tuple[str, int], Job]:
    """Each task with one to sixteen heads that are together as wide as the stream."""
    return {
        (name, heads): count_job(name, heads, STREAM // heads, seed)
        for name in TASKS
        for heads in COUNTS
    }


@measurement(
    seeds=24,
    coords={"task": tuple(TASKS), "heads": COUNTS},
    trainings=counts_trainings,
    repeat="opening",
    tolerance={"loss": 0.3, "accuracy": 0.2},
)
def counts(seed: int, runs: Mapping[tuple[str, int], Run]) -> dict[str, Any]:
    """Loss and accuracy with one to sixteen heads at equal parameters, on two tasks."""
    scores = [
        [evaluate(runs[name, heads].model, TASKS[name][0], seed=seed) for heads in COUNTS]
        for name in TASKS
    ]
    axes = ("task", "heads")
    return {
        "loss": (axes, [[score.loss for score in row] for row in scores]),
        "accuracy": (axes, [[score.accuracy for score in row] for row in scores]),
    }


AFRESH, MOST = 2000, 72
"""What is added to a seed of `around`, which nothing else is measured on; how many there are."""


def around_trainings(seed: int) -> dict[tuple[str, int], Job]:
    """As `counts_trainings`, from seeds of their own."""
    return counts_trainings(AFRESH + seed)


@measurement(
    seeds=MOST,
    coords={"task": tuple(TASKS), "heads": COUNTS},
    trainings=around_trainings,
    repeat="opening",
    tolerance={"loss": 0.3},
)
def around(seed: int, runs: Mapping[tuple[str, int], Run]) -> dict[str, Any]:
    """Loss with one to sixteen heads at equal parameters, on two tasks and seventy-two fresh seeds."""
    losses = [
        [
            evaluate(runs[name, heads].model, TASKS[name][0], seed=AFRESH + seed).loss
            for heads in COUNTS
        ]
        for name in TASKS
    ]
    return {"loss": (("task", "heads"), losses)}


SHORTER = (1, 8, 16)
SHORTER_STEPS = 80


def shorter_trainings(seed: int) -> dict[int, Job]:
    """Recall with so few steps that eight heads are not done, each number of heads at its own rate."""
    jobs = {}
    for heads in SHORTER:
        config = count_job("recall", heads, STREAM // heads, seed).config
        options = {"batch_size": 16}
        search = Search(
            f"heads-shorter-{heads}",
            config,
            LOOKUP,
            COUNT_RATES,
            tuning_seeds(3),
            SHORTER_STEPS,
            options,
        )
        jobs[heads] = job(
            config, LOOKUP, seed, steps=SHORTER_STEPS, learning_rate=tuned(search), **options
        )
    return jobs


@measurement(
    seeds=24,
    coords={"heads": SHORTER},
    trainings=shorter_trainings,
    repeat="opening",
    tolerance={"loss": 0.5},
)
def shorter(seed: int, runs: Mapping[int, Run]) -> dict[str, Any]:
    """Loss at recall with one, eight and sixteen heads, after steps so few that none has learned it."""
    return {"loss": ("heads", [evaluate(runs[h].model, LOOKUP, seed=seed).loss for h in SHORTER])}


def narrow_trainings(seed: int) -> dict[int, Job]:
    """Recall with a single head that is much narrower than the stream."""
    return {width: count_job("recall", 1, width, seed) for width in NARROW}


@measurement(
    seeds=24,
    coords={"width": NARROW},
    trainings=narrow_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.2},
)
def narrow(seed: int, runs: Mapping[int, Run]) -> dict[str, Any]:
    """Accuracy at recall of a single head of width 1 to 8 in a stream of 64."""
    return {
        "accuracy": (
            "width",
            [evaluate(runs[width].model, LOOKUP, seed=seed).accuracy for width in NARROW],
        )
    }


# Induction, trained -----------------------------------------------------------------------------------

STRINGS = Induction(vocab=16, length=24, shortest=4, longest=10)
STRING_STEPS = 400
STRING_RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
ARMS = ("learned", "rotary", "one layer")
"""Two layers of four heads with learned or rotary positions; one layer of eight, with learned ones."""


def string_config(arm: str) -> Config:
    """A decoder of width 32 whose blocks are attention alone once they are prepared."""
    one = arm == "one layer"
    return Config(
        vocab=STRINGS.vocab,
        d_model=32,
        n_layers=1 if one else 2,
        n_heads=8 if one else 4,
        d_head=8,
        d_ff=1,
        positions="rotary" if arm == "rotary" else "learned",
        max_length=32,
        norm="rms",
        bias=False,
    )


def induction_trainings(seed: int) -> dict[str, Job]:
    """Each arm at the rate that suits it."""
    jobs = {}
    for arm in ARMS:
        config, options = string_config(arm), {"batch_size": 32, "prepare": without_ffn}
        search = Search(
            f"heads-induction-{arm.replace(' ', '-')}",
            config,
            STRINGS,
            STRING_RATES,
            tuning_seeds(6),
            STRING_STEPS,
            options,
        )
        jobs[arm] = job(
            config, STRINGS, seed, steps=STRING_STEPS, learning_rate=tuned(search), **options
        )
    return jobs


@measurement(
    seeds=10,
    coords={
        "arm": ARMS,
        "deep": ARMS[:2],
        "state": ("untrained", "trained"),
        "layer": (0, 1),
        "head": (0, 1, 2, 3),
        "path": PATHS,
        "by": ("q", "k", "v"),
    },
    trainings=induction_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.1, "previous": 0.3, "prefix": 0.3, "cut": 0.3, "fit": 0.3},
)
@torch.no_grad()
def induction(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """What heads of models that continue strings look at, and over which path the first layer matters."""
    batch = STRINGS.batch(make_generator(seed, "strings"), 256)
    looked = [[_looks(model, batch) for model in _states(runs[arm], seed)] for arm in ARMS[:2]]
    axes = ("deep", "state", "layer", "head")
    return {
        "accuracy": ("arm", [right(predict(runs[arm].model, batch), batch) for arm in ARMS]),
        "previous": (axes, [[each["previous"] for each in row] for row in looked]),
        "prefix": (axes, [[each["prefix"] for each in row] for row in looked]),
        "cut": (
            ("deep", "path"),
            [
                [right(patched(runs[arm].model, batch, path), batch) for path in PATHS]
                for arm in ARMS[:2]
            ],
        ),
        "fit": (
            ("deep", "state", "by"),
            [[_fits(model, batch) for model in _states(runs[arm], seed)] for arm in ARMS[:2]],
        ),
    }


def _states(run: Run, seed: int) -> tuple[Model, Model]:
    fresh = make_model(run.model.config, causal=True, seed=seed)
    without_ffn(fresh)
    return fresh, run.model


def _looks(model: Model, batch: Batch) -> dict[str, list[list[float]]]:
    """Both scores of every head, layer by layer."""
    with capture(model, "blocks.*.attention.pattern") as seen:
        predict(model, batch)
    patterns = [pattern.double() for pattern in seen.values()]
    return {
        "previous": [previous_token_score(pattern).tolist() for pattern in patterns],
        "prefix": [prefix_matching_score(pattern, batch.inputs).tolist() for pattern in patterns],
    }


def _fits(model: Model, batch: Batch) -> list[float]:
    """Composition scores, over chance, of the head that looks back most with the one that matches most."""
    looks = _looks(model, batch)
    earlier = int(np.argmax(looks["previous"][0]))
    later = int(np.argmax(looks["prefix"][1]))
    rotary = model.config.positions == "rotary"
    found = compositions(cast(Any, model), 0, 1, offset=1 if rotary else None)
    return [float(table[earlier, later]) / found.baseline for table in (found.q, found.k, found.v)]


# Heads together -----------------------------------------------------------------------------------------

CHAINS = JoinedTwoHop(chains=3, names=4, values=4)
ASKED = JoinedRecall(pairs=4, queries=3, keys=6, values=6)
DEPTHS = (1, 2, 6)
PAIR_STEPS = 300
PAIR_RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)


def task_of(depth: int) -> Task:
    """What a model of this depth learns: recall by one look, or by two that build on one another."""
    return ASKED if depth == 1 else CHAINS


def pairs_trainings(seed: int) -> dict[int, Job]:
    """Models of one, two and six layers of four heads."""
    jobs = {}
    for depth in DEPTHS:
        task = task_of(depth)
        config = Config(
            vocab=task.vocab,
            d_model=32,
            n_layers=depth,
            n_heads=4,
            d_ff=32,
            positions="none",
            norm="rms",
            bias=False,
        )
        options = {"batch_size": 32}
        search = Search(
            f"heads-together-{depth}",
            config,
            task,
            PAIR_RATES,
            tuning_seeds(2),
            PAIR_STEPS,
            options,
        )
        jobs[depth] = job(
            config, task, seed, steps=PAIR_STEPS, learning_rate=tuned(search), **options
        )
    return jobs


@measurement(
    seeds=10,
    coords={"depth": DEPTHS, "deep": DEPTHS[1:]},
    trainings=pairs_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.1, "one_layer": 0.5, "two_layers": 0.5, "excess": 0.5},
)
def pairs(seed: int, runs: Mapping[int, Run]) -> dict[str, Any]:
    """The share of the joint effect of two heads on the loss that their single effects do not add up to."""
    effects = {
        depth: pair_effects(
            runs[depth].model, task_of(depth).batch(make_generator(seed, "pairs"), 128)
        )
        for depth in DEPTHS
    }
    return {
        "accuracy": (
            "depth",
            [evaluate(runs[d].model, task_of(d), seed=seed).accuracy for d in DEPTHS],
        ),
        "one_layer": ("depth", [each.share(each.same_layer) for each in effects.values()]),
        "two_layers": ("deep", [effects[d].share(~effects[d].same_layer) for d in DEPTHS[1:]]),
        "excess": (
            "depth",
            [float(each.interaction[each.same_layer].sum()) for each in effects.values()],
        ),
    }
