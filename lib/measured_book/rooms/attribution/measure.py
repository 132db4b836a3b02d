r"""What the chapter on attribution measures: which methods find the tokens that an answer depends on.

Three tasks whose dependence is known: the answer to the first question depends on one earlier token (recall),
on two side by side (induction), or on two of which one says where the other is (two hops), and on no other.
Models of one to six blocks learn them, and each method scores every token before the question. By magnitude: a
token that speaks against the answer matters too.

Controls: the same model before training, and one that was trained on the answers of other sequences. What a
method finds there, it finds by habit.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from measured_transformer.analysis.ablation import Component, effects, heads, loss
from measured_transformer.analysis.attribution import (
    Target,
    answer_logit,
    attention_times_gradient,
    attention_weights,
    completeness_gap,
    direct_logits,
    embedded,
    flow,
    found_area,
    found_first,
    gradient_times_input,
    gradients,
    integrated_gradients,
    occlusion,
    ranks_agree,
    relevance_rollout,
    rollout,
    weighted_norms,
)
from measured_transformer.analysis.lens import depths
from measured_transformer.analysis.patching import restored_tokens
from measured_transformer.analysis.probing import probe
from measured_transformer.analysis.residual import random_model
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.attention import attend
from measured_transformer.tasks.continuations import Continuations
from measured_transformer.tasks.joined_recall import JoinedRecall
from measured_transformer.tasks.permuted_answers import PermutedAnswers
from measured_transformer.tasks.task import Batch, Task
from measured_transformer.tasks.two_hop import JoinedTwoHop
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, evaluate, make_model, train
from measured_transformer.training.schedules import WarmupLinear
from measured_transformer.training.seeding import make_generator
from numpy import ndarray
from torch import Tensor

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds
from measured_book.rooms.attribution.atoms import atoms as atoms
from measured_book.rooms.attribution.atoms import needed as needed

# Models that must look something up -----------------------------------------------------------------

TASKS: Mapping[str, Task] = {
    "recall": JoinedRecall(pairs=6, queries=3, keys=6, values=6),
    "induction": Continuations(vocab=16, string=8, questions=4),
    "two hops": JoinedTwoHop(chains=3, names=4, values=4),
}
RELEVANT = {"recall": ("pair",), "induction": ("key", "value"), "two hops": ("bridge", "value")}
"""Under which names a batch holds the positions that the answer depends on."""
DEPTHS = {"recall": (1, 2, 4, 6), "induction": (2, 4, 6), "two hops": (2, 4, 6)}
"""One layer cannot do the other two."""
MODELS = tuple((task, depth) for task in TASKS for depth in DEPTHS[task])
NAMES = tuple(f"{task} {depth}" for task, depth in MODELS)
STEPS = 700
RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)


def config_of(task: str, depth: int) -> Config:
    """A decoder of width 32 with four heads a block."""
    return Config(
        vocab=TASKS[task].vocab,
        d_model=32,
        n_layers=depth,
        n_heads=4,
        d_ff=32,
        positions="learned" if task == "induction" else "none",
        max_length=TASKS[task].length,
        norm="rms",
        bias=False,
    )


def training(task: str, depth: int, seed: int, *, permuted: bool = False) -> Job:
    """A model at the rate that suits it; with permuted answers at the same rate."""
    config = config_of(task, depth)
    options = {"batch_size": 32, "schedule": WarmupLinear(20, STEPS)}
    search = Search(
        f"attribution-{task.replace(' ', '-')}-{depth}",
        config,
        TASKS[task],
        RATES,
        tuning_seeds(2),
        STEPS,
        options,
    )
    learned = PermutedAnswers(TASKS[task]) if permuted else TASKS[task]
    return job(config, learned, seed, steps=STEPS, learning_rate=tuned(search), **options)


def trainings(seed: int) -> dict[str, Job]:
    """All ten models."""
    return {f"{task} {depth}": training(task, depth, seed) for task, depth in MODELS}


def two_block_trainings(seed: int) -> dict[str, Job]:
    """The models of two blocks, on the tasks themselves and on permuted answers."""
    return {
        f"{task}{end}": training(task, 2, seed, permuted=bool(end))
        for task in TASKS
        for end in ("", " permuted")
    }


@dataclass(frozen=True)
class Questions:
    """Sequences that end with their first question, and what the answer depends on.

    Attributes:
        tokens: the last one asks.
        answers: the right ones.
        relevant: the positions that the answer depends on.
        reference: as many other sequences.
    """

    tokens: Int[Tensor, "example position"]
    answers: Int[Tensor, "example"]
    relevant: Bool[Tensor, "example position"]
    reference: Int[Tensor, "example position"]

    @property
    def candidates(self) -> Bool[Tensor, "example position"]:
        """All positions but that of the question."""
        found = torch.ones_like(self.relevant)
        found[:, -1] = False
        return found

    @property
    def target(self) -> Target:
        """What is explained: the logit of the right answer."""
        return answer_logit(-1, self.answers)


def questions(task: str, seed: int, size: int) -> Questions:
    """The first question of drawn sequences."""
    batch, other = (
        TASKS[task].batch(make_generator(seed, name), size) for name in ("asked", "reference")
    )
    ask = int(batch.scored[0].nonzero()[0])
    relevant = torch.zeros_like(batch.scored[:, : ask + 1])
    for name in RELEVANT[task]:
        relevant.scatter_(1, batch.gold[name][:, [ask]], True)
    return Questions(
        batch.inputs[:, : ask + 1], batch.targets[:, ask], relevant, other.inputs[:, : ask + 1]
    )


def copied(asked: Questions) -> Questions:
    """Of recall: the pair that is asked for stands in the place of another one as well."""
    own = asked.relevant.int().argmax(1, keepdim=True)
    other = (own + 1) % (asked.tokens.shape[1] - 1)
    return Questions(
        asked.tokens.scatter(1, other, asked.tokens.gather(1, own)),
        asked.answers,
        asked.relevant.scatter(1, other, True),
        asked.reference,
    )


# Methods --------------------------------------------------------------------------------------------

RAW = ("attention mean", "attention largest", "attention last")
CAUSAL = ("zero", "mean", "resample", "delete", "restore")
METHODS = (
    *RAW,
    "weighted norms",
    "rollout",
    "flow",
    "gradient",
    "gradient times input",
    "integrated from zero",
    "integrated from mean",
    "attention times gradient",
    "relevance rollout",
    *CAUSAL,
)
SIZE = 48
"""Questions that each model is asked."""


def scores_of(model: Model, asked: Questions) -> dict[str, Float[Tensor, "example position"]]:
    """What each of `METHODS` gives every token, by magnitude."""
    decoder = _decoder(model)
    tokens, target = asked.tokens, asked.target
    weights = attention_weights(decoder, tokens)
    by_layer = weights.mean(2)
    products = attention_times_gradient(decoder, tokens, target)
    usual = embedded(decoder, asked.reference).mean(0)
    spoilt = torch.cat([asked.reference[:, :-1], tokens[:, -1:]], 1)
    found = {
        "attention mean": by_layer[..., -1, :].mean(0),
        "attention largest": weights[..., -1, :].amax((0, 2)),
        "attention last": by_layer[-1, :, -1],
        "weighted norms": weighted_norms(decoder, tokens)[..., -1, :].mean(0),
        "rollout": rollout(by_layer)[:, -1],
        "flow": flow(by_layer, -1),
        "gradient": gradients(decoder, tokens, target).norm(dim=-1),
        "gradient times input": gradient_times_input(decoder, tokens, target),
        "integrated from zero": integrated_gradients(decoder, tokens, target, baseline=0.0),
        "integrated from mean": integrated_gradients(decoder, tokens, target, baseline=usual),
        "attention times gradient": products[..., -1, :].sum((0, 2)),
        "relevance rollout": relevance_rollout(products)[:, -1],
        "restore": restored_tokens(decoder, tokens, spoilt, target),
    }
    for how in ("zero", "mean", "resample", "delete"):
        found[how] = occlusion(decoder, tokens, target, how=how, reference=asked.reference)
    return {method: found[method].detach().abs() for method in METHODS}


def _decoder(model: Model) -> Decoder:
    assert isinstance(model, Decoder)
    return model


def areas(model: Model, asked: Questions) -> dict[str, list[float]]:
    """Of each method: the area, how often a relevant token comes first, agreement with two interventions."""
    scores = scores_of(model, asked)
    return {
        "area": [_area(each, asked) for each in scores.values()],
        "first": [
            float(found_first(each, asked.relevant, asked.candidates).mean())
            for each in scores.values()
        ],
        "delete": [
            float(ranks_agree(each, scores["delete"], asked.candidates).mean())
            for each in scores.values()
        ],
        "mean": [
            float(ranks_agree(each, scores["mean"], asked.candidates).mean())
            for each in scores.values()
        ],
    }


def _area(scores: Tensor, asked: Questions) -> float:
    return float(found_area(scores, asked.relevant, asked.candidates).mean())


@measurement(
    seeds=10,
    coords={"model": NAMES, "by": METHODS, "effect": ("delete", "mean")},
    trainings=trainings,
    repeat="opening",
    tolerance=dict.fromkeys(("accuracy", "area", "first", "agreement"), 0.6),
)
def found(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """How well each method finds the tokens that the answer depends on, in each model."""
    each = {
        f"{task} {depth}": areas(runs[f"{task} {depth}"].model, questions(task, seed, SIZE))
        for task, depth in MODELS
    }
    return {
        "accuracy": (
            "model",
            [
                evaluate(runs[f"{task} {depth}"].model, TASKS[task], seed=seed).accuracy
                for task, depth in MODELS
            ],
        ),
        "area": (("model", "by"), [one["area"] for one in each.values()]),
        "first": (("model", "by"), [one["first"] for one in each.values()]),
        "agreement": (
            ("model", "effect", "by"),
            [[one["delete"], one["mean"]] for one in each.values()],
        ),
    }


STATES = ("trained", "untrained", "permuted")


@measurement(
    seeds=10,
    coords={"task": tuple(TASKS), "state": STATES, "by": METHODS},
    trainings=two_block_trainings,
    repeat="opening",
    tolerance={"area": 0.6, "first": 0.6},
)
def controls(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The same for models of two blocks, beside untrained ones and ones trained on permuted answers."""
    each = []
    for task in TASKS:
        asked = questions(task, seed, SIZE)
        models = (
            runs[task].model,
            make_model(config_of(task, 2), causal=True, seed=seed),
            runs[f"{task} permuted"].model,
        )
        each.append([areas(model, asked) for model in models])
    axes = ("task", "state", "by")
    return {
        name: (axes, [[state[name] for state in row] for row in each]) for name in ("area", "first")
    }


def recall_trainings(seed: int) -> dict[int, Job]:
    """The models of recall."""
    return {depth: training("recall", depth, seed) for depth in DEPTHS["recall"]}


@measurement(
    seeds=10,
    coords={"depth": DEPTHS["recall"], "by": METHODS},
    trainings=recall_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.6, "area": 0.6, "first": 0.6},
)
def copies(seed: int, runs: Mapping[int, Run]) -> dict[str, Any]:
    """Recall when the pair stands there twice, so that either copy will do."""
    asked = copied(questions("recall", seed, SIZE))
    each = [areas(runs[depth].model, asked) for depth in DEPTHS["recall"]]
    return {
        "accuracy": (
            "depth",
            [_right(runs[depth].model, asked) for depth in DEPTHS["recall"]],
        ),
        "area": (("depth", "by"), [one["area"] for one in each]),
        "first": (("depth", "by"), [one["first"] for one in each]),
    }


@torch.no_grad()
def _right(model: Model, asked: Questions) -> float:
    answers = _decoder(model)(asked.tokens)[:, -1].argmax(-1)
    return float((answers == asked.answers).double().mean())


# One sequence as the methods see it -----------------------------------------------------------------

SHOWN = ("two hops", 2)


def shown_training(seed: int) -> dict[str, Job]:
    """The model that is shown."""
    return {"model": training(*SHOWN, seed)}


@measurement(
    seeds=1,
    coords={"by": METHODS},
    trainings=shown_training,
    repeat="opening",
    tolerance={"score": 1.0, "token": 100.0, "relevant": 1.0},
)
def one_question(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The scores of all methods for one question of two hops, each as a share of its largest."""
    asked = questions(SHOWN[0], seed, SIZE)
    rows = [each[0, :-1] for each in scores_of(runs["model"].model, asked).values()]
    return {
        "score": (
            ("by", "position"),
            [(row / row.max().clamp_min(1e-9)).double().numpy().round(3) for row in rows],
        ),
        "token": ("token_position", asked.tokens[0].double().numpy()),
        "relevant": ("position", asked.relevant[0, :-1].double().numpy()),
    }


# What adds up ---------------------------------------------------------------------------------------

POINTS = (10, 50, 500)
BASELINES = ("zero", "mean")


def whole_trainings(seed: int) -> dict[str, Job]:
    """The models of two blocks."""
    return {task: training(task, 2, seed) for task in TASKS}


@measurement(
    seeds=10,
    coords={"baseline": BASELINES, "points": POINTS, "task": tuple(TASKS)},
    trainings=whole_trainings,
    repeat="opening",
    tolerance={"gap": 100.0, "product": 20.0, "change": 20.0},
)
def complete(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """How far integrated gradients are from adding up, in logits, in float64: the largest of 12 questions."""
    gaps: list[list[list[float]]] = []
    products, changes = [], []
    for task in TASKS:
        model, asked = _decoder(copy.deepcopy(runs[task].model)).double(), questions(task, seed, 12)
        tokens, target = asked.tokens, asked.target
        usual = embedded(model, asked.reference).mean(0)
        starts: dict[str, Any] = {"zero": torch.zeros_like(usual), "mean": usual}
        gaps.append(
            [
                [
                    _largest(
                        completeness_gap(
                            model,
                            tokens,
                            target,
                            integrated_gradients(
                                model, tokens, target, baseline=start, steps=points
                            ),
                            baseline=start,
                        )
                    )
                    for points in POINTS
                ]
                for start in starts.values()
            ]
        )
        product = gradient_times_input(model, tokens, target)
        products.append(_largest(completeness_gap(model, tokens, target, product, baseline=0.0)))
        change = completeness_gap(model, tokens, target, torch.zeros_like(product), baseline=usual)
        changes.append(float(change.abs().mean()))
    return {
        "gap": (("task", "baseline", "points"), gaps),
        "product": ("task", products),
        "change": ("task", changes),
    }


def _largest(gap: Tensor) -> float:
    return float(gap.abs().max())


@measurement(seeds=100, tolerance={"error": 1e-9})
def sums(seed: int) -> dict[str, Any]:
    """Largest difference between drawn logits and the sum over what parts add; with one left out."""
    model, tokens = random_model(seed, causal=True)
    decoder = _decoder(model)
    with torch.no_grad():
        logits = decoder(tokens)
    parts = direct_logits(decoder, tokens)
    left = int(torch.randint(1, len(parts.names) - 1, (), generator=make_generator(seed, "left")))
    error = (parts.logits.sum(0) - logits).abs().max()
    control = (parts.logits.sum(0) - parts.logits[left] - logits).abs().max()
    return {"error": float(error), "control": float(control)}


@measurement(seeds=100, tolerance={"error": 1e-9})
def worthless(seed: int) -> dict[str, Any]:
    """A token with nine tenths of the weight, exchanged for another one with the same key: the output's change.

    Tokens have a part that keys read, one that values read, and one that nothing reads. The value is zero, and
    for the control it is not.
    """
    draws = make_generator(seed, "worthless")

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draws, dtype=torch.float64)

    query, keys, values = drawn(1, 4), drawn(6, 4), drawn(6, 3)
    scores = query @ keys.T / 2
    own = int(torch.randint(6, (), generator=draws))
    others = torch.arange(6) != own
    scores[0, own] = (9 * scores[0, others].exp().sum()).log()
    pattern = scores.softmax(-1)
    project = torch.cat([torch.eye(3, dtype=torch.float64), torch.zeros(5, 3).double()])
    tokens = torch.cat([values, drawn(6, 5)], 1)

    def output(there: Tensor) -> Tensor:
        changed = tokens.clone()
        changed[own] = there
        return attend(pattern[None], (changed @ project)[None])

    nothing = torch.zeros(3, dtype=torch.float64)
    before, after = (torch.cat([nothing, drawn(5)]) for _ in range(2))
    return {
        "weight": float(pattern[0, own]),
        "error": float((output(before) - output(after)).abs().max()),
        "control": float((output(before) - output(drawn(8))).abs().max()),
    }


# Parts ----------------------------------------------------------------------------------------------

WAYS = ("zero", "mean", "resample")
PAIRS = (("zero", "mean"), ("zero", "resample"), ("mean", "resample"))
FURTHER = 60
"""Steps of training on without a head."""
RECOVERED = ("induction", "two hops")


def sublayers(model: Model) -> list[Component]:
    """The attention and the network of each block, each as a whole."""
    return [
        Component(f"blocks.{i}.{part}.out")
        for i in range(model.config.n_layers)
        for part in ("attention", "feedforward")
    ]


def head_effects(
    model: Model, batch: Batch, other: Batch, components: Sequence[Component]
) -> dict[str, Float[ndarray, "component"]]:
    """By how much the loss rises without each component, by the way in which it is taken away."""
    return {
        how: effects(model, components, batch, how=how, reference=other, metric=loss)
        for how in ("zero", "mean", "resample")
    }


@dataclass(frozen=True)
class WithoutHead:
    """A preparation for `train`: another model's weights, and one head that writes nothing and stays so.

    Attributes:
        model: whose weights.
        head: its number through all layers.
    """

    model: Model
    head: int

    def __call__(self, fresh: Model) -> None:
        """Overwrite the fresh weights."""
        fresh.load_state_dict(self.model.state_dict())
        layer, head = divmod(self.head, fresh.config.n_heads)
        weight = fresh.get_parameter(f"blocks.{layer}.attention.output.weight")
        width = weight.shape[1] // fresh.config.n_heads
        open_ = torch.ones_like(weight)
        open_[:, head * width : (head + 1) * width] = 0
        with torch.no_grad():
            weight.mul_(open_)
        weight.register_hook(lambda slope: slope * open_.to(slope))


def _agree(first: Float[ndarray, "item"], second: Float[ndarray, "item"]) -> float:
    """Spearman's rank correlation."""
    one, other = (torch.from_numpy(each)[None] for each in (first, second))
    return float(ranks_agree(one, other, torch.ones_like(one, dtype=torch.bool))[0])


def unrecovered(task: str, model: Model, seed: int, batch: Batch) -> Float[ndarray, "head"]:
    """The loss after training on without each head, less the loss of the whole model."""
    whole, left = loss(model, batch), []
    for head in range(model.config.n_layers * model.config.n_heads):
        run = train(
            model.config,
            TASKS[task],
            steps=FURTHER,
            learning_rate=1e-3,
            seed=seed,
            batch_size=32,
            prepare=WithoutHead(model, head),
        )
        left.append(loss(run.model, batch) - whole)
    return np.array(left)


@measurement(
    seeds=10,
    coords={
        "model": NAMES,
        "pair": tuple(f"{a} and {b}" for a, b in PAIRS),
        "what": ("heads", "layers"),
        "recovered": RECOVERED,
        "head": tuple(range(8)),
        "way": (*WAYS, "trained on"),
    },
    trainings=trainings,
    repeat="opening",
    tolerance=dict.fromkeys(("accuracy", "agreement", "recovery", "rise"), 5.0),
)
def parts(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Heads and sublayers, taken away in three ways: how the orders agree, and with what training on leaves."""
    agree, right, recovery, rises = [], [], [], []
    for task, depth in MODELS:
        model = runs[f"{task} {depth}"].model
        batch, other = (
            TASKS[task].batch(make_generator(seed, name), 96) for name in ("parts", "others")
        )
        every = {
            "heads": head_effects(model, batch, other, heads(model)),
            "layers": head_effects(model, batch, other, sublayers(model)),
        }
        agree.append([[_agree(one[a], one[b]) for one in every.values()] for a, b in PAIRS])
        right.append(evaluate(model, TASKS[task], seed=seed).accuracy)
        if depth == 2 and task in RECOVERED:
            left = unrecovered(task, model, seed, batch)
            recovery.append(_agree(every["heads"]["mean"], left))
            rises.append([*(every["heads"][way] for way in WAYS), left])
    return {
        "accuracy": ("model", right),
        "agreement": (("model", "pair", "what"), agree),
        "recovery": ("recovered", recovery),
        "rise": (("recovered", "way", "head"), rises),
    }


# Locating and decoding ------------------------------------------------------------------------------


def decoding_trainings(seed: int) -> dict[str, Job]:
    """Two hops in two blocks, for the probe; all tasks in six, for the lens."""
    deep = {f"{task} 6": training(task, 6, seed) for task in TASKS}
    return {"two hops 2": training("two hops", 2, seed), **deep}


@measurement(
    seeds=10,
    coords={"task": tuple(TASKS), "by": ("probe", "control")},
    trainings=decoding_trainings,
    repeat="opening",
    tolerance={"bridge": 1.0, "lens": 1.0, "frequent": 0.5},
)
@torch.no_grad()
def decoded(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """What a probe reads of the first hop, and a lens of the answer, where the question stands.

    The probe is fitted on three of the four bridges that each key may lead to, and scored on the fourth.
    """
    asked = questions("two hops", seed, 600)
    task = cast(JoinedTwoHop, TASKS["two hops"])
    first = task.names + task.values
    pairs = asked.tokens.masked_fill(~asked.relevant | (asked.tokens >= first + task.names**2), -1)
    types = pairs.amax(1) - first
    deals = make_generator(seed, "deals")
    held = torch.randperm(task.names, generator=deals)[types // task.names] == types % task.names
    batch = Batch(asked.tokens, asked.tokens, asked.candidates)
    states = depths(_decoder(runs["two hops 2"].model), batch)[1:2, :, -1]
    read = probe(states, types % task.names, types, ~held, deals, n_labels=task.names)
    lens, frequent = [], []
    for name in TASKS:
        model, own = _decoder(runs[f"{name} 6"].model), questions(name, seed, 300)
        before = depths(model, Batch(own.tokens, own.tokens, own.candidates))[-2]
        answers = model.unembed(before)[:, -1].argmax(-1)
        lens.append(float((answers == own.answers).double().mean()))
        frequent.append(float(own.answers.bincount().max()) / len(own.answers))
    return {
        "bridge": ("by", [float(read.accuracy[0]), float(read.control[0])]),
        "lens": ("task", lens),
        "frequent": ("task", frequent),
    }
