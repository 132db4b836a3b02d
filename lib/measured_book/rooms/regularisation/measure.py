r"""What keeps a model from over-fitting: dropout, label smoothing, weight decay and stopping early.

Dropout multiplies each entry by 0 with probability $p$ and by $1/(1-p)$ otherwise (Srivastava et al., 2014), so
that the mean over masks is the entry $x$ itself and the variance $\frac{p}{1-p} x^2$. Label smoothing (Szegedy
et al., 2016) asks for probabilities that are not those of the data; a model is *calibrated* when of the
answers it gives with probability 0.8, four in five are right (Guo et al., 2017). Weight decay multiplies every
weight by $1 - \eta\lambda$ in each step (Loshchilov and Hutter, 2019).

All four are tried on one small translation whose pairs come 40, 10 or 4 times, or never twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from measured_transformer.analysis.calibration import answers, reliability
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.tasks.fixed import FixedSet
from measured_transformer.tasks.noisy_translation import NoisyTranslation
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.task import Batch, Task, held_out
from measured_transformer.tasks.text import TextLM
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, Step, make_model, train
from measured_transformer.training.schedules import Constant, WarmupCosine
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.dropout import drop_behind
from measured_transformer.variants.norms import head_norms
from numpy import ndarray
from torch import Tensor, nn
from torch.nn import functional as F

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

# Dropout over all masks ---------------------------------------------------------------------------


@dataclass(frozen=True)
class AllMasks:
    """What dropout gives for every mask that it can draw.

    Attributes:
        outputs: one row a mask, as `torch.nn.functional.dropout` returned it.
        kept: which entries the mask kept.
        chances: probability of each mask; they sum to 1.
    """

    outputs: Float[Tensor, "mask entry"]
    kept: Bool[Tensor, "mask entry"]
    chances: Float[Tensor, "mask"]

    def mean(self) -> Float[Tensor, "entry"]:
        """Exact mean of each entry over the masks."""
        return self.chances @ self.outputs

    def variance(self) -> Float[Tensor, "entry"]:
        """Exact variance of each entry over the masks."""
        return self.chances @ (self.outputs - self.mean()).square()


def every_mask(
    x: Float[Tensor, "entry"], rate: float, *, seed: int, draws: int = 2**18
) -> AllMasks:
    """Let PyTorch drop entries of x until every mask has come up, and keep one output of each.

    Args:
        x: none of its entries may be 0, because a dropped entry is known by that.
        rate: probability of dropping an entry.
        seed: of the masks.
        draws: how many are drawn; the rarest must be among them.

    Raises:
        ValueError: when an entry is 0, or a mask did not come up.
    """
    if not bool((x != 0).all()):
        raise ValueError("expected entries other than 0, to tell which were dropped")
    n = len(x)
    with seeded(seed):
        drawn = F.dropout(x.expand(draws, n), rate)
    codes = ((drawn != 0).long() * 2 ** torch.arange(n)).sum(1)
    rows = torch.full((2**n,), -1).scatter(0, codes, torch.arange(draws))
    if bool((rows < 0).any()):
        raise ValueError(
            f"{int((rows < 0).sum())} of {2**n} masks did not come up in {draws} draws; draw more"
        )
    outputs = drawn[rows]
    kept = outputs != 0
    keep = kept.to(x.dtype)
    chances = (keep * (1 - rate) + (1 - keep) * rate).prod(1)
    return AllMasks(outputs, kept, chances)


@measurement(
    seeds=100,
    coords={"claimed": ("mean", "variance", "activations", "connections")},
    tolerance=dict.fromkeys(("error", "control", "behind", "behind_control"), 1e-9),
)
def masks(seed: int) -> dict[str, Any]:
    """Dropout of eight drawn numbers, over all masks: what it keeps, adds and removes, and where it stands.

    `error` belongs to mean and variance of what PyTorch drops, and to a linear layer behind it with whole
    activations or single connections removed; `control` to the same with a mistake. `behind` and its control
    are mean and variance of a sum of stream and write that is dropped as a whole.
    """
    x, weights, up, down, rate = _drawn(seed)
    found = every_mask(x, rate, seed=seed, draws=2**15)
    factor = rate / (1 - rate)
    errors = [_off(found.mean() - x), _off(found.variance() - factor * x**2)]
    controls = [_off((1 - rate) * found.mean() - x), _off(found.variance() - rate * x**2)]
    dropped = found.outputs @ weights.T
    anew = _off(dropped - (x * found.kept.flip(0) / (1 - rate)) @ weights.T)
    errors += [
        _off(dropped - (x * found.kept / (1 - rate)) @ weights.T),
        _off(dropped - connections_dropped(x, weights, found.kept, rate)),
    ]
    total = x + torch.relu(x @ up) @ down
    behind = every_mask(total, rate, seed=seed, draws=2**15)
    before = x + (total - x) * behind.kept / (1 - rate)
    expected = factor * total**2
    return {
        "error": ("claimed", errors),
        "control": ("claimed", [*controls, anew, anew]),
        "behind": (
            "moment",
            [_off(behind.mean() - total), _off(behind.variance() - expected)],
        ),
        "behind_control": (
            "moment",
            [
                _off((1 - rate) * behind.mean() - total),
                _off(behind.chances @ (before - total) ** 2 - expected),
            ],
        ),
    }


def _drawn(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    """Eight numbers, three rows of weights for them, two square matrices, and a rate from 0.35 to 0.65."""
    with seeded(seed):
        x, weights = torch.randn(8, dtype=torch.float64), torch.randn(3, 8, dtype=torch.float64)
        rate = float(0.35 + 0.3 * torch.rand(()))
        up, down = torch.randn(2, 8, 8, dtype=torch.float64) / 8**0.5
    return x, weights, up, down, rate


def _off(difference: Tensor) -> float:
    return float(difference.detach().abs().max())


def connections_dropped(
    x: Float[Tensor, "entry"],
    weights: Float[Tensor, "output entry"],
    kept: Bool[Tensor, "mask entry"],
    rate: float,
) -> Float[Tensor, "mask output"]:
    """What a linear layer gives when each of its connections is dropped by a coin of its own (DropConnect).

    The first output has the given masks, the others have masks of their own.
    """
    own = torch.stack([kept.roll(7 * i, 0) for i in range(len(weights))], dim=1)
    return torch.einsum("moi,oi,i->mo", own.to(x.dtype) / (1 - rate), weights, x)


# Places in a layer --------------------------------------------------------------------------------

PLACES = ("attention output", "feed-forward output", "attention weights", "neurons")
"""Where `torch.nn.TransformerEncoderLayer` drops; the first three are those that are usually named."""


def drop_only_at(layer: nn.TransformerEncoderLayer, place: str | None, rate: float) -> None:
    """Set the rate of one of `PLACES` in PyTorch's layer and 0 elsewhere; everywhere 0 when None.

    Raises:
        ValueError: when the place has another name.
    """
    if place is not None and place not in PLACES:
        raise ValueError(f"place must be one of {', '.join(PLACES)}, got {place!r}")
    layer.self_attn.dropout = rate if place == "attention weights" else 0.0
    modules = {
        "attention output": layer.dropout1,
        "feed-forward output": layer.dropout2,
        "neurons": layer.dropout,
    }
    for name, module in modules.items():
        module.p = rate if place == name else 0.0


@torch.no_grad()
def stream_noise(
    model: Model, task: Task, *, seed: int, masks: int = 64
) -> Float[ndarray, "state"]:
    """How much of the stream is noise of the masks, at the embedding and behind each sublayer.

    One sequence passes an `Encoder` or `Decoder` in training mode with many masks at once. The variance over
    the masks, averaged over positions and entries, is divided by the mean square of the stream's mean.

    Args:
        model: with dropout.
        task: gives the sequence.
        seed: of sequence and masks.
        masks: how many.
    """
    batch = task.batch(make_generator(seed, "evaluation"), 1)
    inputs = batch.inputs.expand(masks, -1)
    training = model.training
    layers = range(model.config.n_layers)
    after = [f"blocks.{i}.residual_{place}" for i in layers for place in ("mid", "post")]
    names = ["blocks.0.residual_pre", *after]
    try:
        model.train()
        with seeded(seed), capture(model, "blocks.*.residual_*") as seen:
            model(inputs)
    finally:
        model.train(training)
    states = [seen[name].double() for name in names]
    return np.array([float(s.var(0).mean() / s.mean(0).square().mean()) for s in states])


@measurement(
    seeds=100,
    coords={"place": PLACES},
    tolerance={"change": 1e-9, "still": 1e-12, "count": 0.5},
)
def places(seed: int) -> dict[str, Any]:
    """How far the output of PyTorch's layer moves when it drops in one place alone; and how many there are."""
    with seeded(seed):
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).double().train()
        x = torch.randn(2, 5, 16, dtype=torch.float64)
        drop_only_at(layer, None, 0.0)
        before = layer(x)
        changes = {0.1: [], 0.0: []}  # type: dict[float, list[float]]
        for rate, found in changes.items():
            for place in PLACES:
                drop_only_at(layer, place, rate)
                found.append(_off(layer(x) - before))
    fresh = nn.TransformerEncoderLayer(16, 4, 32)
    count = sum(isinstance(module, nn.Dropout) for module in fresh.modules())
    return {
        "change": ("place", changes[0.1]),
        "still": ("place", changes[0.0]),
        "count": float(count + bool(fresh.self_attn.dropout)),
    }


ORDERS = ("before", "behind")
SIX = Config(vocab=6, d_model=32, n_layers=6, dropout=0.1)
STATES = 1 + 2 * SIX.n_layers


@measurement(seeds=10, coords={"order": ORDERS, "passed": tuple(range(STATES))})
def noise(seed: int) -> dict[str, Any]:
    """Noise of the masks on the stream of untrained encoders of six blocks, by where the dropout stands."""
    found = []
    for order in ORDERS:
        model = make_model(SIX, causal=False, seed=seed)
        if order == "behind":
            drop_behind(model)
        found.append(stream_noise(model, Reversal(vocab=6, length=6), seed=seed))
    return {"noise": (("order", "passed"), found)}


# What smoothing costs when there is nothing left to learn ------------------------------------------


def smoothed_ideal(task: NoisyTranslation, label_smoothing: float) -> tuple[float, float]:
    r"""What smoothing costs a model that has learnt everything: its loss in nats, and its calibration error.

    The smoothed loss is smallest when the model says $q = (1 - \varepsilon)\pi + \varepsilon / V$ where $\pi$
    are the true probabilities. It then promises $q$ where $\pi$ is kept. Both numbers are averages over real
    tokens, the end among them, of the loss without smoothing and of the gap between the two.

    Raises:
        ValueError: when label_smoothing is not between 0 and 1.

    >>> task = NoisyTranslation(noise=0.3)
    >>> loss, gap = smoothed_ideal(task, 0.0)
    >>> math.isclose(loss, task.bayes_loss(), rel_tol=1e-12), gap
    (True, 0.0)
    """
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing is a share between 0 and 1, got {label_smoothing}")

    def said(chance: float) -> float:
        return (1 - label_smoothing) * chance + label_smoothing / task.vocab

    stray = task.noise / task.symbols
    follows = 1 - task.noise + stray
    pairs = ((1, follows), (task.symbols - 1, stray))
    word = -math.fsum(count * p * math.log(said(p)) for count, p in pairs if p > 0)
    tokens = task.mean_tokens(task.length)
    gaps = tokens * abs(follows - said(follows)) + abs(1 - said(1.0))
    return (tokens * word - math.log(said(1.0))) / (tokens + 1), gaps / (tokens + 1)


# Four remedies, four kinds of data ----------------------------------------------------------------

NOISY = NoisyTranslation(symbols=10, length=8, pad_share=0.3, noise=0.1)
STEPS, BATCH, EVERY = 200, 32, 10
PASSES = ("40", "10", "4", "new")
"""How often each pair comes, on average; 'new' is drawn for every step and never comes again."""
ARMS = ("none", "dropout", "smoothing", "decay")
RATES = (6e-4, 1.5e-3, 3.5e-3, 8e-3, 1.8e-2, 4e-2, 9e-2)
"""The grid of learning rates, the same for every arm of the chapter."""
BINS = 10
MODEL = Config(vocab=NOISY.vocab, d_model=32, n_layers=1)
_CHANGES: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "none": ({}, {}),
    "dropout": ({"dropout": 0.1}, {}),
    "smoothing": ({}, {"label_smoothing": 0.1}),
    "decay": ({}, {"weight_decay": 1.0}),
    "behind": ({"dropout": 0.1}, {"prepare": drop_behind}),
}
TUNING_SET = 999
"""Number of the set that learning rates are chosen on; every seed that is judged has a set of its own."""


def data(passes: str, seed: int) -> Task:
    """What is trained on: a set of which every pair comes so often in all, or new pairs for every step."""
    if passes == "new":
        return NOISY
    return FixedSet(NOISY, STEPS * BATCH // int(passes), seed=seed)


def options(arm: str) -> tuple[Config, dict[str, Any]]:
    """The model of an arm, and what else `train` is told."""
    changes, further = _CHANGES[arm]
    schedule = WarmupCosine(warmup=20, steps=STEPS)
    return MODEL.replace(**changes), {"batch_size": BATCH, "schedule": schedule, **further}


def remedy(passes: str, arm: str, seed: int) -> Job:
    """One run of an arm on one kind of data, at the learning rate that suits the two best."""
    config, further = options(arm)
    search = Search(
        f"regularisation-{arm}-{passes}",
        config,
        data(passes, TUNING_SET),
        RATES,
        tuning_seeds(2),
        STEPS,
        further,
    )
    given = {"steps": STEPS, "learning_rate": tuned(search), "evaluate_every": EVERY, **further}
    return job(config, data(passes, seed), seed, **given)


def seen(passes: str, seed: int) -> Batch:
    """Pairs that a run has been trained on: the whole set, or the last thousand new ones."""
    task = data(passes, seed)
    if isinstance(task, FixedSet):
        return task.sequences()
    generator = make_generator(seed, "training")
    drawn = [task.batch(generator, BATCH) for _ in range(STEPS)][-32:]
    names = ("inputs", "targets", "scored", "padding_mask", "source", "source_padding_mask")
    return Batch(**{name: torch.cat([getattr(batch, name) for batch in drawn]) for name in names})  # type: ignore[arg-type]


def unseen(passes: str, seed: int) -> Batch:
    """A thousand pairs that a run has not been trained on."""
    task = data(passes, seed)
    source = held_out(task, "validation") if isinstance(task, FixedSet) else task
    return source.batch(make_generator(seed, "evaluation"), 1024)


def remedies_trainings(seed: int) -> dict[tuple[str, str], Job]:
    """Every arm on every kind of data."""
    return {(passes, arm): remedy(passes, arm, seed) for passes in PASSES for arm in ARMS}


@measurement(
    seeds=20,
    coords={"passes": PASSES, "arm": ARMS, "step": tuple(range(EVERY, STEPS + 1, EVERY))},
    trainings=remedies_trainings,
    repeat="opening",
)
def remedies(seed: int, runs: Mapping[tuple[str, str], Run]) -> dict[str, Any]:
    """A small translation with each remedy, on pairs that come 40, 10 or 4 times or once.

    `held` and `trained` are losses at the end on unseen and on seen pairs, in evaluation mode and without
    smoothing; `curve` is the loss on unseen pairs on the way. The bins of a reliability diagram hold the share
    of the answers (`share`), and that share times their mean probability (`promised`) and accuracy (`kept`).
    """
    axes = ("passes", "arm")
    told = {key: answers(run.model, unseen(key[0], seed)) for key, run in runs.items()}
    known = {key: answers(run.model, seen(key[0], seed)).loss for key, run in runs.items()}
    bins = {key: reliability(each.confidences, each.right, bins=BINS) for key, each in told.items()}

    def table(value: Any) -> list[list[Any]]:
        return [[value((passes, arm)) for arm in ARMS] for passes in PASSES]

    def mass(name: str) -> list[list[Any]]:
        return table(lambda key: np.nan_to_num(getattr(bins[key], name)) * bins[key].share)

    return {
        "held": (axes, table(lambda key: told[key].loss)),
        "trained": (axes, table(lambda key: known[key])),
        "tokens": (axes, table(lambda key: told[key].accuracy)),
        "sequences": (axes, table(lambda key: told[key].exact)),
        "calibration": (axes, table(lambda key: bins[key].error)),
        "curve": ((*axes, "step"), table(lambda key: runs[key].evaluation_losses)),
        "share": ((*axes, "bin"), table(lambda key: bins[key].share)),
        "promised": ((*axes, "bin"), mass("confidence")),
        "kept": ((*axes, "bin"), mass("accuracy")),
    }


ORDER_PASSES = ("40", "new")


def behind_trainings(seed: int) -> dict[str, Job]:
    """Dropout behind the addition, where data repeat and where they do not."""
    return {passes: remedy(passes, "behind", seed) for passes in ORDER_PASSES}


@measurement(
    seeds=20,
    coords={"passes": ORDER_PASSES},
    trainings=behind_trainings,
    repeat="opening",
)
def behind(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The same translation with dropout behind the addition: the loss on unseen pairs."""
    losses = [answers(runs[p].model, unseen(p, seed)).loss for p in ORDER_PASSES]
    return {"held": ("passes", losses)}


HIGHER = RATES[3:5]


def hastened_trainings(seed: int) -> dict[float, Job]:
    """No remedy, pairs that come 40 times, at higher rates that do not fall."""
    given = {"steps": STEPS, "batch_size": BATCH, "evaluate_every": EVERY}
    schedule = Constant(warmup=20)
    return {
        rate: job(MODEL, data("40", seed), seed, learning_rate=rate, schedule=schedule, **given)
        for rate in HIGHER
    }


@measurement(
    seeds=10,
    coords={"rate": HIGHER, "step": tuple(range(EVERY, STEPS + 1, EVERY))},
    trainings=hastened_trainings,
    repeat="opening",
)
def hastened(seed: int, runs: Mapping[float, Run]) -> dict[str, Any]:
    """Loss on unseen pairs on the way, where pairs come 40 times, at higher, constant rates."""
    return {"curve": (("rate", "step"), [runs[rate].evaluation_losses for rate in HIGHER])}


# Anew: other seeds, other rules -------------------------------------------------------------------

FRESH = 5000
"""What is added to the seeds of what is judged anew; the earlier ones had been looked at."""
FRESHER = 6000
"""The same for a second set, since the first sixteen had left the rule open."""


def fourfold_trainings(seed: int) -> dict[str, Job]:
    """Weight decay on pairs that come four times, or never again."""
    return {passes: remedy(passes, "decay", seed + FRESHER) for passes in ("4", "new")}


@measurement(
    seeds=64,
    coords={"passes": ("4", "new")},
    trainings=fourfold_trainings,
    repeat="opening",
)
def fourfold(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The same translation with weight decay, on seeds of its own: the loss on unseen pairs."""
    fresh = seed + FRESHER
    losses = [answers(runs[p].model, unseen(p, fresh)).loss for p in ("4", "new")]
    return {"held": ("passes", losses)}


AT_RATE = ("none", "own rate", "same rate")
"""No dropout; dropout of one tenth at the rate that is best with it, and at the one that is best without."""


def dropped_trainings(seed: int) -> dict[str, Job]:
    """Pairs that come 40 times: without dropout, and with it at two learning rates."""
    fresh = seed + FRESH
    without = remedy("40", "none", fresh)
    config, further = options("dropout")
    rate = without.settings["learning_rate"]
    given = {"steps": STEPS, "learning_rate": rate, "evaluate_every": EVERY, **further}
    same = job(config, data("40", fresh), fresh, **given)
    return {"none": without, "own rate": remedy("40", "dropout", fresh), "same rate": same}


@measurement(
    seeds=12,
    coords={"arm": AT_RATE},
    trainings=dropped_trainings,
    repeat="opening",
)
def dropped(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The same translation without dropout, and with it at two rates, on seeds of its own: both losses."""
    fresh = seed + FRESH
    new, old = unseen("40", fresh), seen("40", fresh)
    return {
        "held": ("arm", [answers(runs[arm].model, new).loss for arm in AT_RATE]),
        "trained": ("arm", [answers(runs[arm].model, old).loss for arm in AT_RATE]),
    }


STRENGTHS: Mapping[str, tuple[float, float, float]] = {
    "dropout": (0.03, 0.1, 0.3),
    "smoothing": (0.03, 0.1, 0.3),
    "decay": (0.3, 1.0, 3.0),
}
"""Three strengths of each remedy, a factor of about three apart; the middle one is that of `ARMS`."""
HOW_STRONG = ("weak", "usual", "strong")
_KEYS = {"smoothing": "label_smoothing", "decay": "weight_decay"}


def of_strength(remedy_name: str, strength: float) -> tuple[Config, dict[str, Any]]:
    """The model with a remedy of a strength, and what else `train` is told."""
    config, further = options("none")
    if remedy_name == "dropout":
        return config.replace(dropout=strength), further
    return config, {**further, _KEYS[remedy_name]: strength}


def at_strength(remedy_name: str, how: str, seed: int) -> Job:
    """One run where pairs come 40 times, with a remedy of a strength, at a learning rate of its own."""
    if how == "usual":
        return remedy("40", remedy_name, seed)
    strength = STRENGTHS[remedy_name][HOW_STRONG.index(how)]
    config, further = of_strength(remedy_name, strength)
    search = Search(
        f"regularisation-{remedy_name}-40-{strength:g}",
        config,
        data("40", TUNING_SET),
        RATES,
        tuning_seeds(2),
        STEPS,
        further,
    )
    given = {"steps": STEPS, "learning_rate": tuned(search), "evaluate_every": EVERY, **further}
    return job(config, data("40", seed), seed, **given)


def strengths_trainings(seed: int) -> dict[tuple[str, str], Job]:
    """Each remedy at three strengths, where pairs come 40 times."""
    fresh = seed + FRESH
    return {(name, how): at_strength(name, how, fresh) for name in STRENGTHS for how in HOW_STRONG}


@measurement(
    seeds=12,
    coords={"remedy": tuple(STRENGTHS), "strength": HOW_STRONG},
    trainings=strengths_trainings,
    repeat="opening",
)
def strengths(seed: int, runs: Mapping[tuple[str, str], Run]) -> dict[str, Any]:
    """Three strengths of each remedy, pairs that come 40 times, seeds of its own: the loss on unseen pairs."""
    new = unseen("40", seed + FRESH)
    losses = [
        [answers(runs[name, how].model, new).loss for how in HOW_STRONG] for name in STRENGTHS
    ]
    return {"held": (("remedy", "strength"), losses)}


# Weight decay: how much, and what it does ---------------------------------------------------------

DECAYS = (0.1, 0.3, 1.0, 3.0)
STRENGTH_RATES = RATES[2:]


def strength_trainings(seed: int) -> dict[tuple[float, float], Job]:
    """Every weight decay at every learning rate, on pairs that come 40 times."""
    config, further = options("none")
    return {
        (decay, rate): job(
            config,
            data("40", seed),
            seed,
            **{**further, "steps": STEPS, "learning_rate": rate, "weight_decay": decay},
        )
        for decay in DECAYS
        for rate in STRENGTH_RATES
    }


@measurement(
    seeds=3,
    coords={"decay": DECAYS, "rate": STRENGTH_RATES},
    trainings=strength_trainings,
    repeat="opening",
)
def strength(seed: int, runs: Mapping[tuple[float, float], Run]) -> dict[str, Any]:
    """Loss on unseen pairs by weight decay and learning rate, where pairs come 40 times; and on seen ones."""
    new, old = unseen("40", seed), seen("40", seed)

    def table(batch: Batch) -> list[list[float]]:
        return [[answers(runs[d, r].model, batch).loss for r in STRENGTH_RATES] for d in DECAYS]

    axes = ("decay", "rate")
    return {"held": (axes, table(new)), "trained": (axes, table(old))}


TURNING = TextLM(length=32)
TURNING_MODEL = Config(vocab=256, d_model=32, n_layers=1, n_heads=2, bias=False)
TURNING_STEPS, TURNING_LAST = 500, 100
TURNING_RATE, MOMENTUM = 0.01, 0.9
STARTS = ("as drawn", "three times", "a third", "no momentum", "no decay")


@dataclass
class _Turns:
    """A hook for `train`: notes the length of the first block's query matrix, and the turn of each step."""

    lengths: list[float]
    turns: list[float]
    before: Tensor | None = None

    def __call__(self, step: Step) -> None:
        """Look at the matrix after a step."""
        matrix = step.model.blocks[0].attention.query.weight  # type: ignore[union-attr,index]
        now = matrix.detach().cpu().double().flatten()
        self.lengths.append(float(now.norm()))
        if self.before is not None:
            cosine = torch.cosine_similarity(now, self.before, dim=0)
            self.turns.append(math.acos(min(1.0, float(cosine))))
        self.before = now


def _begin(model: Model, factor: float) -> None:
    head_norms(model)
    with torch.no_grad():
        for projection in (model.blocks[0].attention.query, model.blocks[0].attention.key):  # type: ignore[union-attr,index]
            projection.weight.mul_(factor)


@measurement(
    seeds=6,
    coords={"start": STARTS, "step": tuple(range(1, TURNING_STEPS + 1))},
    repeat=1,
)
def turning(seed: int) -> dict[str, Any]:
    """A query matrix in front of a norm: its length over training and how far a step turns it, by its start.

    One block on bytes of text, AdamW with a constant rate of 0.01 and a weight decay of 1 (but for one start).
    `turn` is the mean angle in radians of the last steps.
    """
    lengths, turns = [], []
    for start in STARTS:
        hook = _Turns([], [])
        factor = {"three times": 3.0, "a third": 1 / 3}.get(start, 1.0)
        train(
            TURNING_MODEL,
            TURNING,
            steps=TURNING_STEPS,
            learning_rate=TURNING_RATE,
            seed=seed,
            schedule=Constant(warmup=0),
            batch_size=8,
            betas=(0.0 if start == "no momentum" else MOMENTUM, 0.98),
            weight_decay=0.0 if start == "no decay" else 1.0,
            prepare=partial(_begin, factor=factor),
            after_step=hook,
        )
        lengths.append(hook.lengths)
        turns.append(float(np.mean(hook.turns[-TURNING_LAST:])))
    return {"length": (("start", "step"), lengths), "turn": ("start", turns)}


def equilibrium_turn(rate: float, decay: float, momentum: float) -> float:
    r"""The angle in radians by which AdamW turns a matrix in front of a norm, once its length has settled.

    $\sqrt{2\eta\lambda(1-\beta_1)/(1+\beta_1)}$ (Kosson et al., 2024).

    >>> round(equilibrium_turn(0.01, 0.5, 0.0), 3)
    0.1
    """
    return math.sqrt(2 * rate * decay * (1 - momentum) / (1 + momentum))
