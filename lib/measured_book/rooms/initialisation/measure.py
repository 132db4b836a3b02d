"""What the chapter on initialisation measures: sizes in untrained models, and how the best rate follows width.

Untrained models of twelve blocks show what a factor on their weights does. Small decoders on text show what it
does to training, group by group, and at which learning rate models of several widths train best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Float
from measured_transformer.analysis.gradients import stream_gradients
from measured_transformer.analysis.residual import ledger
from measured_transformer.analysis.states import rms
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.tasks.permutations import PermutationProducts
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Batch
from measured_transformer.tasks.text import TextLM
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, Step, evaluate, make_model, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import Constant, WarmupLinear
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.initialisation import ScaledWrites, WriteRule, write_deviation
from measured_transformer.variants.maximal_update import ScaledByWidth, WidthRule
from numpy import ndarray
from torch import nn

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

TEXT = TextLM(corpus="python", length=16)
"""Bytes of Python's language reference: 16 to read, each of them to be followed by a guess of the next."""


# One matrix ---------------------------------------------------------------------------------------


class Gains(NamedTuple):
    """What one matrix does to the mean square of what passes it.

    Attributes:
        forward: of the row that it is multiplied with.
        backward: of the gradient on its way down.
    """

    forward: float
    backward: float


def gains(d_in: int, d_out: int, variance: float) -> Gains:
    """Expected gains of a matrix of independent entries with mean zero and this variance.

    An output entry is a sum of `d_in` products, an entry of the gradient handed down one of `d_out`.

    >>> gains(4, 4, 0.25)
    Gains(forward=1.0, backward=1.0)

    Raises:
        ValueError: when a width is not positive or the variance negative.
    """
    if d_in < 1 or d_out < 1 or variance < 0:
        raise ValueError(
            "expected positive widths and a variance of at least 0, got "
            f"d_in={d_in}, d_out={d_out}, variance={variance}"
        )
    return Gains(d_in * variance, d_out * variance)


def xavier_variance(d_in: int, d_out: int) -> float:
    """Variance with which forward and backward gain have the mean 1 (Glorot and Bengio 2010, equation 12).

    >>> gains(768, 3072, xavier_variance(768, 3072))
    Gains(forward=0.4, backward=1.6)

    Raises:
        ValueError: when a width is not positive.
    """
    if d_in < 1 or d_out < 1:
        raise ValueError(f"expected positive widths, got d_in={d_in}, d_out={d_out}")
    return 2 / (d_in + d_out)


def through_matrices(
    depth: int,
    width: int,
    factor: float,
    *,
    activation: Literal["none", "relu"] = "none",
    seed: int,
    rows: int = 64,
) -> Float[ndarray, "layer"]:
    """Root mean square of normal rows before the first of `depth` random square matrices and after each.

    Args:
        depth: number of matrices.
        width: of rows and matrices.
        factor: the entries' standard deviation is this over the root of the width, so that 1 is Xavier.
        activation: what is applied after each matrix.
        seed: of matrices and rows.
        rows: how many are sent through.

    Raises:
        ValueError: for another activation.
    """
    if activation not in ("none", "relu"):
        raise ValueError(f"activation must be none or relu, got {activation!r}")
    with seeded(seed):
        x = torch.randn(rows, width, dtype=torch.float64)
        sizes = [float(x.square().mean().sqrt())]
        for _ in range(depth):
            x = x @ torch.randn(width, width, dtype=torch.float64) * (factor / math.sqrt(width))
            x = x.relu() if activation == "relu" else x
            sizes.append(float(x.square().mean().sqrt()))
    return np.array(sizes)


MATRICES = 30
CHAINS: Mapping[str, tuple[float, Literal["none", "relu"]]] = {
    "half": (0.5, "none"),
    "one": (1.0, "none"),
    "double": (2.0, "none"),
    "relu": (1.0, "relu"),
    "relu he": (math.sqrt(2), "relu"),
}
"""Factor and activation of each chain of matrices."""


@measurement(
    seeds=10,
    coords={"chain": tuple(CHAINS), "layer": tuple(range(MATRICES + 1))},
)
def matrices(seed: int) -> dict[str, Any]:
    """Powers of ten that the size of a row goes through in thirty random matrices of width 128."""
    sizes = [
        through_matrices(MATRICES, 128, factor, activation=activation, seed=seed)
        for factor, activation in CHAINS.values()
    ]
    return {"powers": (("chain", "layer"), np.log10(np.array(sizes)))}


# Groups of weights --------------------------------------------------------------------------------

Group = Literal["scores", "values", "network", "embedding", "unembedding", "all", "rest"]
"""Matrices by what they do, see `ScaledGroup`."""
_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "scores": ("attention.query", "attention.key"),
    "values": ("attention.value", "attention.output"),
    "network": ("feedforward.up", "feedforward.down"),
    "embedding": ("token_embedding",),
    "unembedding": ("unembedding",),
}


@dataclass(frozen=True)
class ScaledGroup:
    """Preparation for training: the matrices of one group are multiplied by a factor.

    'scores' are the query and key projections, 'values' the value and output projections of attention,
    'network' both matrices of the feed-forward networks. 'all' are these three together, 'rest' is 'all'
    without 'scores'. 'embedding' and 'unembedding' are one matrix each.

    Attributes:
        group: which matrices.
        factor: what each of them is multiplied by.

    Raises:
        ValueError: there is no such group, or the factor is not a positive finite number.
    """

    group: Group
    factor: float

    def __post_init__(self) -> None:
        if self.group not in get_args(Group):
            raise ValueError(
                f"group must be one of {', '.join(get_args(Group))}, got {self.group!r}"
            )
        if not (math.isfinite(self.factor) and self.factor > 0):
            raise ValueError(f"factor must be positive and finite, got {self.factor}")

    @torch.no_grad()
    def __call__(self, model: Model) -> None:
        """Multiply the matrices of the model."""
        taken = {"all": ("scores", "values", "network"), "rest": ("values", "network")}
        ends = tuple(
            f"{end}.weight"
            for name in taken.get(self.group, (self.group,))
            for end in _MEMBERS[name]
        )
        for name, weight in model.named_parameters():
            if name.endswith(ends):
                weight.mul_(self.factor)


# Twelve untrained blocks --------------------------------------------------------------------------

REVERSAL = Reversal(vocab=12, length=12)
TWELVE = Config(vocab=12, d_model=32, n_layers=12, activation="relu")
DESIGNS: Mapping[str, dict[str, Any]] = {
    "plain": {"norm": "none", "residual": False},
    "skip": {"norm": "none"},
    "pre": {"placement": "pre"},
    "post": {"placement": "post"},
}
"""Four ways to build a block: without norm and residual connections, with these alone, with both."""
FACTORS = (0.1, 0.5, 1.0, 2.0, 5.0)
SCALED: tuple[Group, ...] = ("rest", "all")
STATES = tuple(range(2 * TWELVE.n_layers + 1))


@dataclass(frozen=True)
class Passage:
    """A forward and a backward pass through an untrained model.

    Attributes:
        stream: root mean square of the residual stream, the embedding first, then after each sublayer.
        gradients: mean length of the loss gradient at the same states.
    """

    stream: Float[ndarray, "state"]
    gradients: Float[ndarray, "state"]


def passage(model: Decoder | Encoder, batch: Batch) -> Passage:
    """How large the stream and its gradients are at each state, for one batch.

    In float32, twelve layers of large weights leave the range of numbers: pass `model.double()`. Patterns are
    watched so that attention is written out: the fused kernel's backward pass recomputes them from sums of
    exponentials, which rounding spoils where scores are huge.
    """
    states = ledger(model, batch.inputs).states
    with capture(model, "blocks.*.attention.pattern"):
        return Passage(rms(states), stream_gradients(model, batch))


@measurement(
    seeds=10,
    coords={"scaled": SCALED, "design": tuple(DESIGNS), "factor": FACTORS, "state": STATES},
)
def passages(seed: int) -> dict[str, Any]:
    """Twelve untrained blocks, weights multiplied: stream and gradient at each state, in powers of ten."""
    batch = REVERSAL.batch(make_generator(seed, "evaluation"), 16)
    stream: list[Any] = []
    gradient: list[Any] = []
    for scaled in SCALED:
        for changes in DESIGNS.values():
            for factor in FACTORS:
                model: Any = make_model(TWELVE.replace(**changes), causal=False, seed=seed)
                ScaledGroup(scaled, factor)(model)
                found = passage(model.double(), batch)
                stream.append(np.log10(found.stream / found.stream[0]))
                with np.errstate(divide="ignore", invalid="ignore"):
                    lengths = np.log10(found.gradients / found.gradients[-1])
                gradient.append(np.where(np.isfinite(lengths), lengths, np.nan))
    shape = (len(SCALED), len(DESIGNS), len(FACTORS), len(STATES))
    axes = ("scaled", "design", "factor", "state")
    return {
        "stream": (axes, np.array(stream).reshape(shape)),
        "gradient": (axes, np.array(gradient).reshape(shape)),
    }


# Group by group -----------------------------------------------------------------------------------

WIDE = 32
GROUPS: tuple[Group, ...] = ("scores", "values", "network", "embedding", "unembedding")
CHANGED: tuple[tuple[str, Group, float], ...] = (
    ("none", "all", 1.0),
    *((f"{group} / 4", group, 0.25) for group in GROUPS),
    *((f"{group} x 4", group, 4.0) for group in GROUPS),
)
"""Name, group and factor of each model: one as it is, and each group divided and multiplied by four."""
ARMS = tuple(name for name, *_ in CHANGED)
STEPS = 120
OPTIONS: Mapping[str, Any] = {
    "steps": STEPS,
    "batch_size": 16,
    "schedule": WarmupLinear(warmup=20, steps=STEPS),
    "eps": 1e-12,
    "clip": None,
}
"""How all decoders of this chapter are trained on text, but for the twelve blocks."""


def reader(width: int, **changes: Any) -> Config:
    """Two blocks with two heads on text, drawn so that `ScaledByWidth` can scale them."""
    given: dict[str, Any] = {
        "n_layers": 2,
        "n_heads": 2,
        "activation": "relu",
        "bias": False,
        "initialisation": "gpt2",
    }
    return Config(vocab=TEXT.vocab, d_model=width, **(given | changes))


@dataclass(frozen=True)
class Both:
    """Two preparations, one after the other.

    Attributes:
        first, then: in this order.
    """

    first: ScaledByWidth
    then: ScaledGroup

    def __call__(self, model: Model) -> None:
        """Prepare the model twice."""
        self.first(model)
        self.then(model)


def changed(group: Group, factor: float) -> Both:
    """The standard weights of width 32, one group of them multiplied."""
    return Both(ScaledByWidth("standard", WIDE), ScaledGroup(group, factor))


@measurement(seeds=10, coords={"arm": ARMS})
def untrained_groups(seed: int) -> dict[str, Any]:
    """Before training, one group of weights changed: attention's entropy, the stream's growth and the loss."""
    found = [_look(changed(group, factor), seed) for _, group, factor in CHANGED]
    entropy, growth, loss = zip(*found, strict=True)
    return {"entropy": (("arm",), entropy), "growth": (("arm",), growth), "loss": (("arm",), loss)}


@torch.no_grad()
def _look(prepare: Both, seed: int) -> tuple[float, float, float]:
    """Entropy as a share of its largest value, the stream's growth over both blocks, and the loss."""
    model: Any = make_model(reader(WIDE), causal=True, seed=seed).eval()
    prepare(model)
    batch = TEXT.batch(make_generator(seed, "evaluation"), 64)
    names = [f"blocks.{block}.attention.pattern" for block in range(model.config.n_layers)]
    with capture(model, "embedding", "blocks.1.residual_post", *names) as seen:
        logits = model(batch.inputs)
    pattern = torch.stack([seen[name] for name in names])[..., 1:, :].double()
    entropy = torch.special.entr(pattern).sum(-1)  # the first query sees one key, and has none
    most = torch.arange(2, TEXT.length + 1, dtype=torch.float64).log()
    sizes = [float(seen[n].square().mean().sqrt()) for n in ("embedding", "blocks.1.residual_post")]
    loss = cross_entropy(logits, batch.targets, batch.scored)
    return float((entropy / most).mean()), sizes[1] / sizes[0], float(loss)


def held_out_loss(run: Run, seed: int) -> float:
    """The loss on windows held out, nats a byte; that of a uniform guess where it is larger or no number."""
    guess = math.log(TEXT.vocab)
    if run.diverged:
        return guess
    loss = evaluate(run.model, TEXT, seed=seed).loss
    return min(loss, guess) if math.isfinite(loss) else guess


# Rules for depth ----------------------------------------------------------------------------------

RULES = ("gpt2", "depth-index")
SHELL = PermutationProducts(objects=3, length=6)
DEEP_TASKS: Mapping[str, Any] = {"text": TEXT, "shell": SHELL}
DEEP_STEPS: Mapping[str, int] = {"text": 200, "shell": 220}
DEEP_RATES = (7e-4, 1.5e-3, 3e-3, 6e-3, 1.2e-2, 2.4e-2)


def deep_options(task: str, rule: Any) -> dict[str, Any]:
    """How twelve blocks are trained on a task, their writing matrices scaled by a rule."""
    return {
        "batch_size": 32 if task == "shell" else 16,
        "schedule": WarmupLinear(warmup=40, steps=DEEP_STEPS[task]),
        "prepare": ScaledWrites(rule),
    }


def rules_trainings(seed: int) -> dict[tuple[str, str], Job]:
    """Twelve pre-norm blocks on each task with each rule, each at its own learning rate."""
    jobs = {}
    for name, task in DEEP_TASKS.items():
        config = TWELVE.replace(
            vocab=task.vocab, n_heads=2, positions="learned", max_length=task.length
        )
        for rule in RULES:
            options = deep_options(name, rule)
            search = Search(
                f"initialisation-{name}-{rule}",
                config,
                task,
                DEEP_RATES,
                tuning_seeds(2),
                DEEP_STEPS[name],
                options,
            )
            jobs[name, rule] = job(
                config, task, seed, steps=DEEP_STEPS[name], learning_rate=tuned(search), **options
            )
    return jobs


@measurement(
    seeds=16,
    coords={"task": tuple(DEEP_TASKS), "rule": RULES},
    trainings=rules_trainings,
    repeat="opening",
)
def rules(seed: int, runs: Mapping[tuple[str, str], Run]) -> dict[str, Any]:
    """Twelve blocks with each of two rules for the matrices that write: the loss on sequences held out."""
    axes = ("task", "rule")
    found = [[runs[name, rule] for rule in RULES] for name in DEEP_TASKS]
    losses = [
        [evaluate(run.model, task, seed=seed).loss for run in row]
        for row, task in zip(found, DEEP_TASKS.values(), strict=True)
    ]
    return {
        "loss": (axes, losses),
        "learning_rate": (axes, [[float(run.rates.max()) for run in row] for row in found]),
    }


# Width --------------------------------------------------------------------------------------------

BASE = 16
WIDTHS = (16, 32, 64, 128)
WIDTH_RULES: tuple[WidthRule, ...] = ("standard", "maximal-update")
WIDTH_RATES = tuple(2.0**-k for k in range(9, 1, -1))


def transfer_trainings(seed: int) -> dict[tuple[str, int, float], Job]:
    """Four widths by both rules, at eight learning rates; at the base width the rules are the same."""
    return {
        (rule, width, rate): job(
            reader(width),
            TEXT,
            seed,
            learning_rate=rate,
            prepare=ScaledByWidth(rule, BASE),
            **OPTIONS,
        )
        for rule in WIDTH_RULES
        for width in WIDTHS
        for rate in WIDTH_RATES
        if (rule, width) != ("maximal-update", BASE)
    }


@measurement(
    seeds=5,
    coords={"rule": WIDTH_RULES, "width": WIDTHS, "rate": WIDTH_RATES},
    trainings=transfer_trainings,
    repeat="opening",
)
def transfer(seed: int, runs: Mapping[tuple[str, int, float], Run]) -> dict[str, Any]:
    """Decoders of four widths on text at eight learning rates, scaled by both rules: the loss at the end."""
    losses = np.empty((len(WIDTH_RULES), len(WIDTHS), len(WIDTH_RATES)))
    for i, rule in enumerate(WIDTH_RULES):
        for j, width in enumerate(WIDTHS):
            trained = "standard" if width == BASE else rule
            for k, rate in enumerate(WIDTH_RATES):
                losses[i, j, k] = held_out_loss(runs[trained, width, rate], seed)
    best = [[best_log_rate(WIDTH_RATES, row) for row in of_rule] for of_rule in losses]
    slopes = [slope(WIDTHS, row) for row in best]
    return {
        "loss": (("rule", "width", "rate"), losses),
        "best": (("rule", "width"), best),
        "slope": (("rule",), slopes),
    }


def best_log_rate(rates: Sequence[float], losses: Sequence[float] | ndarray) -> float:
    """Base-2 logarithm of the learning rate with the lowest loss, between the rates that were tried.

    Through the lowest loss and up to two neighbours on either side goes the parabola of least squares in the
    logarithm of the rate; its lowest point, at most one neighbour away, is the answer. Where the lowest loss
    is that of the first or the last rate, this rate is the answer. Rates are given in rising order.

    >>> round(best_log_rate([0.25, 0.5, 1.0], [3.0, 1.0, 3.0]), 9)  # its last bits depend on the processor
    -1.0
    """
    logs, values = np.log2(np.asarray(rates)), np.asarray(losses, dtype=np.float64)
    lowest = int(values.argmin())
    if lowest in (0, len(values) - 1):
        return float(logs[lowest])
    near = slice(max(0, lowest - 2), lowest + 3)
    curvature, gradient, _ = np.polyfit(logs[near] - logs[lowest], values[near], 2)
    if curvature <= 0:
        return float(logs[lowest])
    offset = -gradient / (2 * curvature)
    return float(np.clip(logs[lowest] + offset, logs[lowest - 1], logs[lowest + 1]))


def slope(widths: Sequence[int], log_rates: Sequence[float]) -> float:
    """Doublings of the best learning rate per doubling of the width: a line of least squares."""
    return float(np.polyfit(np.log2(np.asarray(widths)), np.asarray(log_rates), 1)[0])


LOOKED = (16, 32, 64, 128, 256, 512)
UPDATES = (1, 2, 3, 4, 5)
COORDINATES: Mapping[str, str] = {
    "scores": "blocks.1.attention.scores",
    "stream": "blocks.1.residual_post",
    "logits": "logits",
}
"""What is looked at during the first steps, and the tap that shows it."""
LOOKED_RATE = 2.0**-6


@dataclass(frozen=True, eq=False)
class _Changes:
    """After each step of a training, how far some values have moved from their initial ones."""

    batch: Batch
    seen: list[dict[str, torch.Tensor]]

    @torch.no_grad()
    def look(self, model: Any) -> None:
        with capture(model, *COORDINATES.values()) as seen:
            model(self.batch.inputs.to(next(model.parameters()).device))
        self.seen.append({name: seen[tap].cpu().clone() for name, tap in COORDINATES.items()})

    def __call__(self, step: Step) -> None:
        self.look(step.model)

    def sizes(self) -> list[list[float]]:
        """Root mean square of each change: (value, update)."""
        return [
            [
                float((now[name] - self.seen[0][name]).square().mean().sqrt())
                for now in self.seen[1:]
            ]
            for name in COORDINATES
        ]


@measurement(
    seeds=4,
    coords={
        "rule": WIDTH_RULES,
        "width": LOOKED,
        "value": tuple(COORDINATES),
        "update": UPDATES,
    },
    tolerance={"change": 0.02},
)
def coordinates(seed: int) -> dict[str, Any]:
    """The first five updates at six widths: how far scores, stream and logits have moved."""
    batch = TEXT.batch(make_generator(seed, "evaluation"), 16)
    changes = [[_first_changes(rule, n, batch, seed) for n in LOOKED] for rule in WIDTH_RULES]
    return {"change": (("rule", "width", "value", "update"), changes)}


def _first_changes(rule: WidthRule, width: int, batch: Batch, seed: int) -> list[list[float]]:
    prepare, changes = ScaledByWidth(rule, BASE), _Changes(batch, [])
    untrained: Any = make_model(reader(width), causal=True, seed=seed).train()
    prepare(untrained)
    changes.look(untrained)
    train(
        reader(width),
        TEXT,
        seed=seed,
        learning_rate=LOOKED_RATE,
        prepare=prepare,
        after_step=changes,
        **{**OPTIONS, "steps": UPDATES[-1], "schedule": Constant()},
    )
    return changes.sizes()


# One rate and multipliers, or several rates -------------------------------------------------------

SYMMETRY_STEPS = 10


@measurement(seeds=3, coords={"way": ("rates", "forgotten")}, tolerance={"difference": 1e-9})
def symmetry(seed: int) -> dict[str, Any]:
    """Ten steps of Adam in float64: multipliers against one learning rate a group, and against one for all."""
    prepare = ScaledByWidth("maximal-update", BASE)
    wanted = _trained_by_hand(prepare, seed, several=False)
    whole = ScaledByWidth("maximal-update", BASE, kept_whole=True)
    found = [_trained_by_hand(whole, seed, several=several) for several in (True, False)]
    return {"difference": (("way",), [float((one - wanted).abs().max()) for one in found])}


def _trained_by_hand(prepare: ScaledByWidth, seed: int, *, several: bool) -> torch.Tensor:
    """Logits of a decoder of width 64 after a few steps of PyTorch's Adam with an epsilon of zero."""
    model: Any = make_model(reader(64), causal=True, seed=seed).double()
    prepare(model)
    rate = 2.0**-6
    groups: Any = prepare.parameter_groups(model, rate) if several else model.parameters()
    updates = torch.optim.Adam(groups, lr=rate, betas=(0.9, 0.98), eps=1e-30)
    batches = make_generator(seed, "training")
    for _ in range(SYMMETRY_STEPS):
        batch = TEXT.batch(batches, 8)
        updates.zero_grad()
        cross_entropy(model(batch.inputs), batch.targets, batch.scored).backward()
        updates.step()
    with torch.no_grad():
        logits: torch.Tensor = model(TEXT.batch(batches, 8).inputs)
    return logits


# What PyTorch draws -------------------------------------------------------------------------------

DEFAULT_WIDTH = 512


@measurement(
    seeds=5,
    coords={
        "weight": (
            "Linear",
            "packed queries, keys, values",
            "separate queries",
            "output",
            "Embedding",
        )
    },
)
def defaults(seed: int) -> dict[str, Any]:
    """Weights as PyTorch draws them at width 512: the number of inputs times the variance."""
    n = DEFAULT_WIDTH
    with seeded(seed):
        linear = nn.Linear(n, n)
        packed = nn.MultiheadAttention(n, 8)
        separate = nn.MultiheadAttention(n, 8, kdim=n, vdim=n // 2)
        embedding = nn.Embedding(1000, n)
    weights: list[Any] = [
        linear.weight,
        packed.in_proj_weight,
        separate.q_proj_weight,
        packed.out_proj.weight,
    ]
    gain = [n * float(weight.detach().var()) for weight in weights]
    return {"gain": (("weight",), [*gain, float(embedding.weight.detach().var())])}


# Formulas -----------------------------------------------------------------------------------------

READINGS = ("variance", "deviation")
"""What the second number in N(0, 2 / (d_in + d_out)) may be."""


@measurement(
    seeds=1,
    coords={"reading": READINGS, "rule": RULES, "block": tuple(range(1, TWELVE.n_layers + 1))},
    tolerance={"gain": 1e-12, "deviation": 1e-12},
)
def formulas(seed: int) -> dict[str, Any]:
    """Without anything drawn: Xavier's mean gain under two readings, and what two rules give twelve blocks."""
    del seed
    number_written = xavier_variance(768, 3072)
    variances = (number_written, number_written**2)
    blocks = range(1, TWELVE.n_layers + 1)
    return {
        "gain": (("reading",), [float(np.mean(gains(768, 3072, one))) for one in variances]),
        "deviation": (
            ("rule", "block"),
            [
                [write_deviation(block, TWELVE.n_layers, rule) for block in blocks]
                for rule in get_args(WriteRule)
            ],
        ),
    }
