"""How attention learns where to look: how even it is at first, what pulls at its scores, what goes wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.tap import Tap
from measured_transformer.tasks.grammar import Grammar
from measured_transformer.tasks.induction import Induction
from measured_transformer.tasks.joined_recall import JoinedRecall
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.spaced_recall import SpacedRecall
from measured_transformer.tasks.task import Batch, Task
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, Step, evaluate, make_model, train
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.attention import CutScores, FrozenScores
from torch import Tensor
from torch.nn import functional as F
from xarray import DataArray, Dataset

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds
from measured_book.rooms.training_attention.looking import (
    InitialWeights,
    fresh_pattern,
    head_entropy,
    model_entropy,
    normalised_entropy,
    pulls,
    score_gradient,
    self_similarity,
    spent,
)
from measured_book.rooms.training_attention.watching import Setting, watch

# Before the first step ----------------------------------------------------------------------------------

KINDS: Mapping[str, tuple[InitialWeights, int]] = {
    "xavier_64": ("xavier", 64),
    "xavier_768": ("xavier", 768),
    "torch_64": ("torch", 64),
    "torch_768": ("torch", 768),
    "small_64": ("small", 64),
    "small_768": ("small", 768),
}
LENGTHS = (8, 16, 32, 64, 128, 256)


@measurement(
    seeds=30,
    coords={"kind": tuple(KINDS), "tokens": LENGTHS},
    tolerance={"entropy": 0.005, "largest": 0.3, "smallest": 0.05},
)
def drawn(seed: int) -> dict[str, Any]:
    """Normalised entropy of untrained heads by initialisation, width and length; extreme weights times n."""

    def at(kind: str, n: int) -> tuple[float, float, float]:
        weights = fresh_pattern(*KINDS[kind], n, seed=seed)
        largest, smallest = weights.max(-1).values.mean(), weights.min(-1).values.mean()
        return float(normalised_entropy(weights).mean()), n * float(largest), n * float(smallest)

    table = np.array([[at(kind, n) for n in LENGTHS] for kind in KINDS])
    axes = ("kind", "tokens")
    return {
        name: (axes, table[..., place])
        for place, name in enumerate(("entropy", "largest", "smallest"))
    }


MIRROR = Reversal(vocab=8, length=8)
MODELS = 4
"""Untrained models a seed, of which a seed's value is the mean."""


@measurement(
    seeds=20,
    tolerance={"accuracy": 0.02, "mirrored": 0.05, "loss": 0.05, "variance": 0.1},
)
def fresh(seed: int) -> dict[str, Any]:
    """Untrained encoders on reversal: as they are, and handed the attention of a perfect reverser."""
    batch = MIRROR.batch(make_generator(seed, "evaluation"), 256)
    mirror = torch.eye(MIRROR.length).flip(0)
    found: dict[str, list[float]] = {"accuracy": [], "mirrored": [], "loss": [], "variance": []}
    for i in range(MODELS):
        model = make_model(REVERSER, causal=False, seed=100 * seed + i).eval()
        score = evaluate(model, MIRROR, seed=seed)
        with torch.no_grad():
            logits = model(batch.inputs)
        with intervene(model, {"blocks.*.attention.pattern": mirror}):
            mirrored = evaluate(model, MIRROR, seed=seed)
        found["accuracy"].append(score.accuracy)
        found["mirrored"].append(mirrored.accuracy)
        found["loss"].append(score.loss)
        found["variance"].append(float(logits.var(-1, correction=0).mean()))
    return {name: float(np.mean(values)) for name, values in found.items()}


# Frozen, and cut --------------------------------------------------------------------------------------

RECALL = SpacedRecall(pairs=3, queries=3, keys=6, values=6, before=1)
LAG = Lag(vocab=8, length=12, lag=3, fidelity=0.9)
_TWO: dict[str, Any] = {"d_model": 32, "n_layers": 2, "n_heads": 2}
REVERSER = Config(vocab=8, positions="learned", max_length=8, **_TWO)
TASKS: Mapping[str, tuple[Task, Config, int]] = {
    "recall": (RECALL, Config(vocab=RECALL.vocab, positions="rotary", **_TWO), 400),
    "lag": (LAG, Config(vocab=8, positions="rotary", **_TWO), 100),
    "reversal": (MIRROR, REVERSER, 80),
}
"""What is learned, by which model, in how many steps."""
ARMS: Mapping[str, Any] = {"trained": None, "frozen": FrozenScores(), "cut": CutScores()}
RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
CURVE = tuple(range(10, 401, 10))


def learner(task_name: str, arm: str, seed: int, steps: int | None = None) -> Job:
    """The training of an arm on a task at the rate that suits it; `steps` ends it early."""
    task, config, usual = TASKS[task_name]
    options: dict[str, Any] = {"batch_size": 32}
    if ARMS[arm] is not None:
        options["prepare"] = ARMS[arm]
    search = Search(
        f"where-{task_name}-{arm}", config, task, RATES, tuning_seeds(3), usual, options
    )
    return job(config, task, seed, steps=steps or usual, learning_rate=tuned(search), **options)


def forbidden_trainings(seed: int) -> dict[tuple[str, str], Job]:
    """Every arm on every task."""
    return {(task, arm): learner(task, arm, seed) for task in TASKS for arm in ARMS}


@measurement(
    seeds=20,
    coords={"task": tuple(TASKS), "arm": tuple(ARMS), "step": CURVE},
    trainings=forbidden_trainings,
    repeat="opening",
    tolerance={"loss": 0.3, "accuracy": 0.2, "entropy": 0.2, "before": 0.05, "curve": 0.5},
)
def forbidden(seed: int, runs: Mapping[Any, Run]) -> dict[str, Any]:
    """Three tasks: everything trained, queries and keys frozen, or the gradient cut at the scores."""
    axes = ("task", "arm")
    scores = [
        [evaluate(runs[name, arm].model, TASKS[name][0], seed=seed) for arm in ARMS]
        for name in TASKS
    ]
    batches = {
        name: task.batch(make_generator(seed, "looking"), 128)
        for name, (task, _, _) in TASKS.items()
    }
    untrained = {
        name: make_model(config, causal=task.causal, seed=seed).eval()
        for name, (task, config, _) in TASKS.items()
    }
    return {
        "loss": (axes, [[score.loss for score in row] for row in scores]),
        "accuracy": (axes, [[score.accuracy for score in row] for row in scores]),
        "entropy": (
            axes,
            [
                [model_entropy(runs[name, arm].model, batches[name]) for arm in ARMS]
                for name in TASKS
            ],
        ),
        "before": ("task", [model_entropy(untrained[name], batches[name]) for name in TASKS]),
        "curve": (
            ("arm", "step"),
            [runs["recall", arm].losses.reshape(-1, 10).mean(1) for arm in ARMS],
        ),
    }


# Where the attention of a training goes -----------------------------------------------------------------

SPENT_AT = (0, 25, 50, 75, 100, 150, 200, 300, 400)


def spending_trainings(seed: int) -> dict[int, Job]:
    """The models that learn recall, ended after so many steps."""
    return {steps: learner("recall", "trained", seed, steps) for steps in SPENT_AT[1:]}


@measurement(
    seeds=10,
    coords={
        "step": SPENT_AT,
        "block": (1, 2),
        "head": (1, 2),
        "kind": ("needed", "distractors", "spare", "own"),
    },
    trainings=spending_trainings,
    repeat="opening",
    tolerance={"share": 0.3, "written": 0.3, "entropy": 0.3},
)
def spending(seed: int, runs: Mapping[int, Run]) -> dict[str, Any]:
    """Where the questions of recall look in the course of a training, and how evenly each head does."""
    _, config, _ = TASKS["recall"]
    batch = RECALL.batch(make_generator(seed, "looking"), 128)
    models: list[Any] = [make_model(config, causal=True, seed=seed).eval()]
    models += [runs[steps].model for steps in SPENT_AT[1:]]

    def shares(written: bool) -> list[list[list[float]]]:
        return [
            [list(spent(m, batch, block=b, before=1, written=written)) for b in (0, 1)]
            for m in models
        ]

    return {
        "share": (("step", "block", "kind"), shares(False)),
        "written": (("step", "block", "kind"), shares(True)),
        "entropy": (("step", "block", "head"), [head_entropy(m, batch) for m in models]),
    }


# Values first -------------------------------------------------------------------------------------------

LOOKUP = JoinedRecall(pairs=6, queries=3, keys=6, values=6)
LOOKER = Config(
    vocab=LOOKUP.vocab,
    d_model=32,
    n_heads=1,
    n_layers=1,
    d_ff=32,
    positions="none",
    norm="rms",
    bias=False,
)
FIRST_AT = (0, 5, 10, 20, 30, 40, 50, 60, 80, 100, 150)


def values_trainings(seed: int) -> dict[int, Job]:
    """One layer with one head that looks up values, ended after so many steps."""
    options = {"batch_size": 32}
    search = Search("where-lookup", LOOKER, LOOKUP, RATES, tuning_seeds(2), FIRST_AT[-1], options)
    rate = tuned(search)
    return {
        steps: job(LOOKER, LOOKUP, seed, steps=steps, learning_rate=rate, **options)
        for steps in FIRST_AT[1:]
    }


def perfect_pattern(batch: Batch) -> Float[Tensor, "batch 1 query key"]:
    """The weights of a head that looks at the pair that is asked for, and elsewhere at its own place."""
    rows, n = batch.inputs.shape
    own = torch.arange(n).expand(rows, n)
    target = torch.where(batch.scored, batch.gold["pair"], own)
    return F.one_hot(target, n).float()[:, None]


@measurement(
    seeds=10,
    coords={"step": FIRST_AT},
    trainings=values_trainings,
    repeat="opening",
    tolerance={"values": 0.3, "scores": 0.3, "pull": 0.3, "right": 0.3},
)
def values_first(seed: int, runs: Mapping[int, Run]) -> dict[str, Any]:
    """What the values of a head have learned, where its scores look, and where the gradient pulls them."""
    batch = LOOKUP.batch(make_generator(seed, "looking"), 256)
    models: list[Any] = [make_model(LOOKER, causal=True, seed=seed).eval()]
    models += [runs[steps].model for steps in FIRST_AT[1:]]
    pair = batch.gold["pair"].clamp(min=0)[..., None]
    perfect = perfect_pattern(batch)

    def right(model: Model) -> float:
        with torch.no_grad():
            logits = model(batch.inputs)
        return float((logits.argmax(-1) == batch.targets)[batch.scored].float().mean())

    found: dict[str, list[float]] = {"values": [], "scores": [], "pull": [], "right": []}
    for model in models:
        found["right"].append(right(model))
        with intervene(model, {"blocks.0.attention.pattern": perfect}):
            found["values"].append(right(model))
        with torch.no_grad(), capture(model, "blocks.0.attention.pattern") as seen:
            model(batch.inputs)
        weights = seen["blocks.0.attention.pattern"][:, 0]
        found["scores"].append(float(weights.gather(2, pair)[batch.scored].mean()))
        pull = pulls(model, batch)[:, 0]
        share = pull.gather(2, pair)[..., 0] / pull.abs().sum(-1).clamp(min=1e-12)
        found["pull"].append(2 * float(share[batch.scored].mean()))
    return {name: ("step", values) for name, values in found.items()}


# When all tokens are alike ------------------------------------------------------------------------------

COLLAPSED = ("attention alone", "with skips")
DEPTHS = tuple(range(9))


@measurement(
    seeds=10,
    coords={"stack": COLLAPSED, "depth": DEPTHS},
    tolerance={"apart": 0.05, "pull": 0.05},
)
def collapse(seed: int) -> dict[str, Any]:
    """Untrained attention on attention: how far tokens differ at each depth, and the pull on scores."""
    axes = ("stack", "depth")
    found = [alike(skips, seed) for skips in (False, True)]
    return {
        "apart": (axes, [[apart for apart, _ in one] for one in found]),
        "pull": (axes, [[pull for _, pull in one] for one in found]),
    }


@torch.no_grad()
def alike(skips: bool, seed: int, *, width: int = 64, n: int = 16) -> list[tuple[float, float]]:
    """For each depth the share of the stream in which tokens differ, and the size of the pull on the scores.

    The first is one minus the squared length of the mean token over the mean squared length. The second is the
    root mean square of `score_gradient` for gradients of unit variance at the mixture, relative to depth 0.

    Args:
        skips: whether each layer adds to what it reads, or replaces it.
        seed: of tokens, weights and gradients.
        width: of the stream.
        n: number of tokens.
    """
    found = []
    with seeded(seed):
        x = torch.randn(1, n, width)
        upstream = torch.randn(100, n, width)
        heads = [MultiHeadAttention(width, 1, bias=False) for _ in DEPTHS]
    for head in heads:
        x = F.rms_norm(x, (width,))
        mean = x.mean(1).square().sum()
        apart = 1 - float(mean / x.square().sum(-1).mean())
        with capture(head, "pattern", "values") as seen:
            out = head(x)
        values = seen["values"][0, 0].expand(n, n, width)
        pull = score_gradient(seen["pattern"][0, 0].expand(100, n, n), values, upstream)
        found.append((apart, float(pull.square().mean().sqrt())))
        x = x + out if skips else out
    first = found[0][1]
    return [(apart, pull / first) for apart, pull in found]


# An abrupt fall -----------------------------------------------------------------------------------------

REPEATS = Induction(vocab=32, length=32, shortest=4, longest=16)
INDUCERS = ("one layer", "two layers", "first layer given")
INDUCTION_STEPS = 500
INDUCTION_RATE = 2e-3
INDUCTION_AT = tuple(range(0, INDUCTION_STEPS + 1, 25))


class _Previous(Tap):
    """A tap that looks at the token before, whatever the pattern was."""

    @property
    def watched(self) -> bool:
        """Always: the pattern must be asked for, to be replaced."""
        return True

    def __call__(self, value: Tensor) -> Tensor:
        n = value.shape[-1]
        before = (torch.arange(n, device=value.device) - 1).clamp(min=0)
        given = F.one_hot(before, n).to(value.dtype)
        return super().__call__(given.expand(value.shape))


@dataclass(frozen=True)
class PreviousGiven:
    """Preparation for training: every head of the first layer looks at the token before, from the start."""

    def __call__(self, model: Model) -> None:
        """Put the pattern in the place of the first layer's own."""
        first = model.get_submodule("blocks.0.attention")
        assert isinstance(first, MultiHeadAttention)
        first.pattern = _Previous()


@torch.no_grad()
def induction_looks(model: Model, batch: Batch) -> tuple[float, float]:
    """Weight of the best head on the token before (first layer) and on what is to be copied (last)."""
    with capture(model, "blocks.*.attention.pattern") as seen:
        model(batch.inputs)
    patterns = list(seen.values())
    places = torch.arange(batch.inputs.shape[1], device=batch.inputs.device)
    before = (places - 1).clamp(min=0).expand_as(batch.inputs)
    source = batch.gold["source"].clamp(min=0)

    def best(pattern: Tensor, place: Tensor) -> float:
        index = place[:, None, :, None].expand(*pattern.shape[:3], 1)
        weight = pattern.gather(3, index)[..., 0].transpose(1, 2)[batch.scored]
        return float(weight.mean(0).max())

    return best(patterns[0], before), best(patterns[-1], source)


def inducer(arm: str) -> tuple[Config, dict[str, Any]]:
    """The model of an arm, and what it changes in the training."""
    layers = 1 if arm == "one layer" else 2
    config = Config(vocab=32, d_model=32, n_layers=layers, n_heads=2, positions="rotary")
    return config, {"prepare": PreviousGiven()} if arm == "first layer given" else {}


@measurement(
    seeds=8,
    coords={
        "arm": INDUCERS,
        "step": tuple(range(10, INDUCTION_STEPS + 1, 10)),
        "looked": INDUCTION_AT,
    },
    tolerance={"loss": 1.0, "before": 0.3, "copied": 0.5},
)
def induction(seed: int) -> dict[str, Any]:
    """Strings that repeat themselves, learned by one layer, by two, and by two of which the first is given."""
    batch = REPEATS.batch(make_generator(seed, "looking"), 64)
    losses, looks = [], []
    for arm in INDUCERS:
        config, options = inducer(arm)
        fresh_model = make_model(config, causal=True, seed=seed).eval()
        options.get("prepare", _nothing)(fresh_model)
        seen = [induction_looks(fresh_model, batch)]
        run = train(
            config,
            REPEATS,
            steps=INDUCTION_STEPS,
            learning_rate=INDUCTION_RATE,
            seed=seed,
            batch_size=32,
            after_step=_Looking(batch, seen),
            **options,
        )
        losses.append(run.losses.reshape(-1, 10).mean(1))
        looks.append(seen)
    return {
        "loss": (("arm", "step"), losses),
        "before": (("arm", "looked"), [[before for before, _ in one] for one in looks]),
        "copied": (("arm", "looked"), [[copied for _, copied in one] for one in looks]),
    }


def _nothing(model: Model) -> None:
    del model


@dataclass
class _Looking:
    """Looks at a training every so many steps."""

    batch: Batch
    seen: list[tuple[float, float]]

    def __call__(self, step: Step) -> None:
        if step.number % INDUCTION_AT[1] == 0:
            device = next(step.model.parameters()).device
            self.seen.append(induction_looks(step.model, self.batch.to(device)))


# What context adds --------------------------------------------------------------------------------------

GRAMMAR = Grammar()
READER = Config(vocab=GRAMMAR.vocab, d_model=32, n_layers=4, n_heads=2, positions="rotary")
READER_RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
READERS = ("trained", "untrained", "without attention")
"""The last one is the trained model, its attention silenced while it reads."""


def context_trainings(seed: int) -> dict[str, Job]:
    """Four blocks that read a small grammar."""
    options = {"batch_size": 16}
    search = Search("where-context", READER, GRAMMAR, READER_RATES, tuning_seeds(2), 150, options)
    rate = tuned(search)
    return {"trained": job(READER, GRAMMAR, seed, steps=150, learning_rate=rate, **options)}


@measurement(
    seeds=10,
    coords={"model": READERS, "state": tuple(range(5)), "block": tuple(range(1, 5))},
    trainings=context_trainings,
    repeat="opening",
    tolerance={"similarity": 0.1, "rise": 0.2, "loss": 0.1},
)
def readers(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """How alike one word's vectors are over sentences, block by block, and what each attention is worth."""
    trained: Any = runs["trained"].model
    untrained: Any = make_model(READER, causal=True, seed=seed).eval()
    sentences = GRAMMAR.batch(make_generator(seed, "sentences"), 32).inputs
    whole = evaluate(trained, GRAMMAR, seed=seed).loss
    rises = []
    for block in range(4):
        with intervene(trained, {f"blocks.{block}.attention.out": 0.0}):
            rises.append(evaluate(trained, GRAMMAR, seed=seed).loss - whole)
    found = [self_similarity(model, sentences).adjusted for model in (trained, untrained)]
    with intervene(trained, {"blocks.*.attention.out": 0.0}):
        found.append(self_similarity(trained, sentences).adjusted)
    return {
        "similarity": (("model", "state"), found),
        "rise": ("block", rises),
        "loss": whole,
    }


# Trainings that are going to fail -----------------------------------------------------------------------

WATCHED = Config(vocab=8, d_model=32, n_layers=2, n_heads=4, d_ff=64)
FACTORS = (0.5, 1.0, 2.0, 4.0)
"""On all initial weights of the blocks' matrices."""
WATCHED_RATES = (
    *(0.0004, 0.00064, 0.001, 0.0016, 0.0026, 0.0042),
    *(0.0067, 0.011, 0.017, 0.027, 0.044, 0.07),
)


WATCHED_STEPS, LOOK_AT = 400, 200


@measurement(
    seeds=12,
    coords={"factor": FACTORS, "rate": WATCHED_RATES},
    tolerance={
        "first_entropy": 0.02,
        "entropy": 0.5,
        "loss": 1.0,
        "gradient": 3.0,
        "final": 2.0,
    },
)
def signals(seed: int) -> dict[str, Any]:
    """What is seen of a training at step 200, and how it ends, by learning rate and initial weights."""
    settings = [Setting(rate, factor, seed) for factor in FACTORS for rate in WATCHED_RATES]
    [seen] = watch(
        WATCHED,
        MIRROR,
        [settings],
        seeds=[seed],
        steps=WATCHED_STEPS,
        look_at=LOOK_AT,
        batch_size=8,
    )
    shape = (len(FACTORS), len(WATCHED_RATES))
    names = ("first_entropy", "entropy", "loss", "gradient", "final")
    # A training that has left the numbers ends as one that knows nothing.
    worst = math.log(MIRROR.vocab) * 2
    columns = {name: np.nan_to_num(getattr(seen, name), nan=worst, posinf=worst) for name in names}
    return {name: (("factor", "rate"), columns[name].reshape(shape)) for name in names}


ENDS = {"slow": 0.00064, "fast": 0.021}
"""Two learning rates at which some trainings fail and some do not."""
TWINS = 8
SEEN = ("entropy", "loss", "gradient", "final")


@measurement(
    seeds=12,
    coords={"end": tuple(ENDS), "twin": tuple(range(TWINS))},
    tolerance={"entropy": 0.5, "loss": 1.0, "gradient": 3.0, "final": 2.0},
)
def one_rate(seed: int) -> dict[str, Any]:
    """Eight trainings at each of two learning rates, with the usual weights, that differ in seeds alone."""
    own = [1000 + 100 * seed + twin for twin in range(TWINS)]
    groups = [[Setting(rate, 1.0, one) for rate in ENDS.values()] for one in own]
    seen = watch(
        WATCHED,
        MIRROR,
        groups,
        seeds=own,
        steps=WATCHED_STEPS,
        look_at=LOOK_AT,
        batch_size=8,
    )
    worst = math.log(MIRROR.vocab) * 2
    return {
        name: (
            ("end", "twin"),
            np.nan_to_num(
                np.array([getattr(one, name) for one in seen]).T, nan=worst, posinf=worst
            ),
        )
        for name in SEEN
    }


def failed(signals: Dataset) -> DataArray:
    """Which ended above half of the loss of the bag of tokens."""
    return signals.final > MIRROR.bag_loss() / 2
