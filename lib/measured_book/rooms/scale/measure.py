"""What the chapter on the scale measures: sizes of scores, what softmax makes of them, and what is learned.

Draws are of independent standard normal queries and keys. What is trained is one layer with one look at the
stream: it recalls a value by its key, or counts. There are no positions in these tasks, so none in the models.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from measured_transformer.analysis.curves import steps_until
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.parts.attention import attention_scores
from measured_transformer.tasks.counting import Counting
from measured_transformer.tasks.joined_recall import JoinedRecall
from measured_transformer.tasks.task import Task
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, evaluate, make_model, predict
from measured_transformer.training.seeding import make_generator
from measured_transformer.variants.attention import RescaledScores
from measured_transformer.variants.linear import linear
from measured_transformer.variants.norms import head_norms
from measured_transformer.variants.weights import Weighed
from scipy import integrate, stats
from torch import Tensor

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

# Sizes of scores ----------------------------------------------------------------------------------


def drawn_scores(
    d_head: int, n_keys: int, *, rows: int, seed: int, scale: float = 1.0
) -> Float[Tensor, "row key"]:
    """Scores of queries against keys whose entries are independent unit normal numbers, in float64.

    Every row has a query and keys of its own. The same seed draws the same vectors, whatever the scale.

    Args:
        d_head: width of query and key.
        n_keys: keys a query.
        rows: number of queries.
        seed: of the vectors.
        scale: factor on the dot products.

    Raises:
        ValueError: when a number is not positive.
    """
    if min(d_head, n_keys, rows) < 1:
        raise ValueError(
            f"sizes must be positive, got d_head={d_head}, n_keys={n_keys} and rows={rows}"
        )
    generator = make_generator(seed, f"scores-{d_head}-{n_keys}")
    scores = []
    for part in torch.arange(rows).split(100):  # a hundred rows at a time keep memory small
        queries = torch.randn(len(part), 1, d_head, generator=generator)
        keys = torch.randn(len(part), n_keys, d_head, generator=generator)
        scores.append(attention_scores(queries.double(), keys.double(), scale=scale).squeeze(1))
    return torch.cat(scores)


def exact_variances(d_head: int) -> tuple[float, float]:
    r"""Variance of $q \cdot k / \sqrt{d}$ over all vectors of signs: any q with any k, and each q with itself.

    Signs have mean 0 and variance 1, as the argument for the scale asks, and can be counted out.

    >>> [round(variance, 9) for variance in exact_variances(3)]
    [1.0, 0.0]

    Raises:
        ValueError: when there are more than 2^20 pairs to go through, so that `d_head` is above 10.
    """
    if not 1 <= d_head <= 10:
        raise ValueError(f"d_head must lie between 1 and 10 to go through all pairs, got {d_head}")
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=d_head)))
    scores = signs @ signs.T / math.sqrt(d_head)
    return float(scores.var()), float(scores.diagonal().var())


def share_beyond(bound: float, d_head: int) -> float:
    """Probability that a score of unit normal query and key, not scaled, lies beyond a bound on either side.

    Given the query, the score is normal with the query's length as its standard deviation; the squared
    length has a chi-squared distribution, over which the tails are averaged by quadrature.

    >>> round(share_beyond(2.0, 1), 3)  # the product of two normal numbers
    0.062

    Raises:
        ValueError: when the bound is negative or the width is not positive.
    """
    if bound < 0 or d_head < 1:
        raise ValueError(f"expected bound >= 0 and d_head >= 1, got {bound} and {d_head}")
    length = stats.chi(d_head)

    def beyond(x: float) -> float:
        return float(2 * stats.norm.sf(bound / x) * length.pdf(x))

    low, high = map(float, length.ppf([1e-12, 1 - 1e-12]))
    found, _ = integrate.quad(beyond, low, high, limit=200)
    return float(found)


def jacobian_norm(weights: Float[Tensor, "*row key"]) -> Float[Tensor, "*row"]:
    r"""Frobenius norm of softmax's Jacobian $\operatorname{diag}(p) - p p^\top$ at these weights.

    How strongly the weights answer to a small change of the scores, in the root mean square over directions.

    >>> jacobian_norm(torch.tensor([[0.5, 0.5], [1.0, 0.0]]))
    tensor([0.5000, 0.0000])
    """
    second = weights.square().sum(-1)
    squared = second - 2 * weights.pow(3).sum(-1) + second.square()
    return squared.clamp(min=0).sqrt()  # rounding may leave a little less than nothing


def query_gradient_norm(
    d_head: int, n_keys: int, *, scale: float, rows: int, seed: int
) -> Float[Tensor, "row"]:
    r"""Length of the gradient that reaches a query, when a unit normal gradient arrives at the weights.

    With $s = \text{scale} \cdot K q$ and $p = \operatorname{softmax}(s)$, a gradient g at the weights becomes
    $\text{scale} \cdot K^\top (\operatorname{diag}(p) - p p^\top) g$ at the query. Same vectors and same g for
    every scale.

    Raises:
        ValueError: when a number is not positive.
    """
    if min(d_head, n_keys, rows) < 1:
        raise ValueError(
            f"sizes must be positive, got d_head={d_head}, n_keys={n_keys} and rows={rows}"
        )
    generator = make_generator(seed, f"query-gradients-{d_head}-{n_keys}")
    found = []
    for part in torch.arange(rows).split(100):
        queries = torch.randn(len(part), 1, d_head, generator=generator).double().requires_grad_()
        keys = torch.randn(len(part), n_keys, d_head, generator=generator).double()
        arriving = torch.randn(len(part), 1, n_keys, generator=generator).double()
        weights = attention_scores(queries, keys, scale=scale).softmax(-1)
        (gradient,) = torch.autograd.grad((weights * arriving).sum(), queries)
        found.append(gradient.squeeze(1).norm(dim=-1))
    return torch.cat(found)


@torch.no_grad()
def first_look(model: Model, task: Task, *, seed: int, size: int = 64) -> dict[str, float]:
    """What the heads of the first block make of a batch: of fresh models, how softmax starts.

    Causal rows see fewer keys than others; every number is over what a row may see, from two keys on.

    Returns:
        `spread`: standard deviation of scores; `largest`: mean largest weight of a row; `entropy`: mean
        entropy of a row, as a share of its largest value.

    Raises:
        ValueError: when no row sees more than one key.
    """
    batch = task.batch(make_generator(seed, "first-look"), size)
    names = ("blocks.0.attention.scores", "blocks.0.attention.pattern")
    with capture(model, "blocks.0.attention.*") as seen:
        predict(model, batch)
    scores, pattern = (seen[name].double() for name in names)
    n = pattern.shape[-1]
    allowed = torch.ones(n, n, dtype=torch.bool)
    allowed = allowed.tril() if task.causal else allowed
    several = allowed.sum(-1) > 1
    if not several.any():
        raise ValueError("every row sees a single key: there is nothing that softmax could choose")
    rows = pattern[..., several, :]
    entropy = torch.special.entr(rows).sum(-1) / allowed.sum(-1)[several].log()
    return {
        "spread": float(scores[..., allowed].std()),
        "largest": float(rows.amax(-1).mean()),
        "entropy": float(entropy.mean()),
    }


def weight_moved(
    exact: Float[Tensor, "*row key"], changed: Float[Tensor, "*row key"]
) -> Float[Tensor, "*row"]:
    """The share of a row's weight that lies on other keys than before: half the sum of all changes.

    >>> weight_moved(torch.tensor([0.5, 0.5]), torch.tensor([0.75, 0.25]))
    tensor(0.2500)
    """
    return (exact - changed).abs().sum(-1) / 2


# Draws --------------------------------------------------------------------------------------------

WIDTHS = (16, 64, 128, 512)
"""Of a head: the first three are those of published models, the last one that of a source."""
KEYS = (10, 64, 128)
ROWS = 1000
PERCENT = tuple(range(1, 100))
SIGNS = tuple(range(1, 9))


@measurement(seeds=1, coords={"signs": SIGNS, "bound": (50, 100)})
def exact(seed: int) -> dict[str, Any]:
    """Variances over all vectors of signs, and tails of normal scores: nothing is drawn."""
    del seed
    any_key, own_key = zip(*(exact_variances(d) for d in SIGNS), strict=True)
    stated = torch.tensor([0.0001, 0.0001, 0.9998], dtype=torch.float64)
    even = torch.full((3,), 1 / 3, dtype=torch.float64)
    return {
        "any_key": ("signs", list(any_key)),
        "own_key": ("signs", list(own_key)),
        "beyond": ("bound", [round(share_beyond(bound, 512), 9) for bound in (50.0, 100.0)]),
        "stated": float(jacobian_norm(stated) / jacobian_norm(even)),
    }


@measurement(
    seeds=5,
    coords={"width": WIDTHS, "keys": KEYS, "percent": PERCENT, "rank": tuple(range(1, 11))},
    tolerance={
        "passing_mean": 0.02,
        "passing_median": 0.02,
        "passing": 0.02,
        "dead": 0.02,
    },
)
def drawn(seed: int) -> dict[str, Any]:
    """Scores of 1000 drawn rows: their variance, the weights, and what the softmax's Jacobian lets through."""
    axes = ("width", "keys")
    rows = {(d, n): drawn_scores(d, n, rows=ROWS, seed=seed) for d in WIDTHS for n in KEYS}
    raw = {at: scores.softmax(-1) for at, scores in rows.items()}
    divided = {(d, n): (rows[d, n] / math.sqrt(d)).softmax(-1) for d, n in rows}
    through = {at: jacobian_norm(raw[at]) for at in rows}
    beside = {at: jacobian_norm(divided[at]) for at in rows}
    relative = {at: through[at] / beside[at].mean() for at in rows}

    def table(of: Any) -> list[list[float]]:
        return [[float(of((d, n))) for n in KEYS] for d in WIDTHS]

    percentiles = torch.tensor(PERCENT, dtype=torch.float64) / 100
    return {
        "variance": ("width", [float(rows[d, 128].var() / d) for d in WIDTHS]),
        "largest": (axes, table(lambda at: raw[at].amax(-1).mean())),
        "largest_divided": (axes, table(lambda at: divided[at].amax(-1).mean())),
        "passing_mean": (axes, table(lambda at: relative[at].mean())),
        "passing_median": (axes, table(lambda at: through[at].median() / beside[at].median())),
        "dead": (axes, table(lambda at: (relative[at] < 0.1).double().mean())),
        "passing": (
            (*axes, "percent"),
            [[relative[d, n].quantile(percentiles).tolist() for n in KEYS] for d in WIDTHS],
        ),
        "ordered": (
            ("width", "rank"),
            [raw[d, 10].sort(-1, descending=True).values.mean(0).tolist() for d in WIDTHS],
        ),
        "ordered_divided": (
            ("width", "rank"),
            [divided[d, 10].sort(-1, descending=True).values.mean(0).tolist() for d in WIDTHS],
        ),
    }


@measurement(seeds=5, coords={"factor": ("none", "root"), "width": (64, 512)})
def arriving(seed: int) -> dict[str, Any]:
    """The gradient that reaches a query of width 128 among 64 keys, and numbers that leave their format."""
    lengths = [
        query_gradient_norm(128, 64, scale=scale, rows=ROWS, seed=seed)
        for scale in (1.0, 128**-0.5)
    ]
    raw = {d: drawn_scores(d, 64, rows=100, seed=seed) for d in (64, 512)}
    limit = torch.finfo(torch.float16).max
    sharper = raw[512].softmax(-1).amax(-1).mean()
    return {
        "mean": ("factor", [float(each.mean()) for each in lengths]),
        "median": ("factor", [float(each.median()) for each in lengths]),
        "beyond_float16": ("width", [int((each.abs() > limit).sum()) for each in raw.values()]),
        "not_finite": (
            "width",
            [int((~each.float().softmax(-1).isfinite()).sum()) for each in raw.values()],
        ),
        "saturation": float(sharper - (raw[512] / math.sqrt(512)).softmax(-1).amax(-1).mean()),
        "largest": float(raw[512].abs().max()),
    }


# What is trained ----------------------------------------------------------------------------------

STREAM = 128
HEAD_WIDTHS = (16, 64, 128)
ARMS = ("none", "root", "norm")
"""Scores as they are; divided by the root of the head's width; divided, of queries and keys with a norm."""
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
STEPS = 100
LOOKUP = JoinedRecall(pairs=12, queries=8, keys=12, values=8)
BATCH = 16


def layer_of(width: int) -> Config:
    """A decoder of one layer, its stream 128 wide and shared out among heads of this width."""
    return Config(
        vocab=LOOKUP.vocab,
        d_model=STREAM,
        n_heads=STREAM // width,
        n_layers=1,
        d_ff=STREAM,
        positions="none",
        norm="rms",
        bias=False,
    )


def scaled(config: Config, arm: str) -> tuple[Config, dict[str, Any]]:
    """The config of an arm, and what it changes in the training.

    'start' has scores as they are, but weights with which they start as if divided; 'steps' has divided
    scores, but weights with which they start as if they were not.
    """
    root = config.head_width**0.5
    match arm:
        case "none":
            return config.replace(attention_scale=1.0), {}
        case "norm":
            return config, {"prepare": head_norms}
        case "start":
            return config.replace(attention_scale=1.0), {"prepare": RescaledScores(1 / root)}
        case "steps":
            return config, {"prepare": RescaledScores(root)}
    return config, {}


def lookup_job(width: int, arm: str, rate: float, seed: int, steps: int = STEPS) -> Job:
    """One layer that learns to recall."""
    config, options = scaled(layer_of(width), arm)
    return job(config, LOOKUP, seed, steps=steps, learning_rate=rate, batch_size=BATCH, **options)


def rates_trainings(seed: int) -> dict[tuple[int, str, float], Job]:
    """Every width and arm at every learning rate."""
    return {
        (width, arm, rate): lookup_job(width, arm, rate, seed)
        for width in HEAD_WIDTHS
        for arm in ARMS
        for rate in RATES
    }


@measurement(
    seeds=4,
    coords={"width": HEAD_WIDTHS, "arm": ARMS, "rate": RATES},
    trainings=rates_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.2, "loss": 0.5},
)
def rates(seed: int, runs: Mapping[Any, Run]) -> dict[str, Any]:
    """One layer that recalls, with and without the scale, at six learning rates, and its scores."""
    axes = ("width", "arm", "rate")

    def table(of: Any) -> list[list[list[float]]]:
        return [
            [[float(of(runs[w, a, r].model)) for r in RATES] for a in ARMS] for w in HEAD_WIDTHS
        ]

    return {
        "accuracy": (axes, table(lambda model: evaluate(model, LOOKUP, seed=seed).accuracy)),
        "loss": (axes, table(lambda model: evaluate(model, LOOKUP, seed=seed).loss)),
        "spread": (axes, table(lambda model: first_look(model, LOOKUP, seed=seed)["spread"])),
        "largest": (axes, table(lambda model: largest_score(model, LOOKUP, seed=seed))),
    }


WIDE_HEADS = 8
WIDE_ARMS = ("none", "root")


def wide_job(arm: str, rate: float, seed: int) -> Job:
    """One layer that learns to recall, with eight heads that are each as wide as the stream."""
    wide = layer_of(STREAM).replace(n_heads=WIDE_HEADS, d_head=STREAM)
    config, options = scaled(wide, arm)
    return job(config, LOOKUP, seed, steps=STEPS, learning_rate=rate, batch_size=BATCH, **options)


def wide_trainings(seed: int) -> dict[tuple[str, float], Job]:
    """With the scale and without, at every learning rate."""
    return {(arm, rate): wide_job(arm, rate, seed) for arm in WIDE_ARMS for rate in RATES}


@measurement(
    seeds=4,
    coords={"arm": WIDE_ARMS, "rate": RATES},
    trainings=wide_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.2},
)
def wide(seed: int, runs: Mapping[Any, Run]) -> dict[str, Any]:
    """One layer with eight heads as wide as the single one: with the scale and without."""
    found = [
        [evaluate(runs[arm, rate].model, LOOKUP, seed=seed).accuracy for rate in RATES]
        for arm in WIDE_ARMS
    ]
    return {"accuracy": (("arm", "rate"), found)}


APART = ("start", "steps")


def apart_trainings(seed: int) -> dict[tuple[str, float], Job]:
    """A soft start with long steps and a hard start with short ones, heads of width 128."""
    return {(arm, rate): lookup_job(STREAM, arm, rate, seed) for arm in APART for rate in RATES}


@measurement(
    seeds=4,
    coords={"arm": APART, "rate": RATES},
    trainings=apart_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.2},
)
def apart(seed: int, runs: Mapping[Any, Run]) -> dict[str, Any]:
    """How scores start taken apart from how far they move in a step: accuracy of a head of width 128."""
    return {
        "accuracy": (
            ("arm", "rate"),
            [
                [evaluate(runs[arm, rate].model, LOOKUP, seed=seed).accuracy for rate in RATES]
                for arm in APART
            ],
        )
    }


GROWN = (0, 10, 30, 100, 300)
GROWTH_RATE = 3e-3


def growth_trainings(seed: int) -> dict[tuple[str, int], Job]:
    """Every arm with a head of width 128, ended after so many steps."""
    return {
        (arm, steps): lookup_job(STREAM, arm, GROWTH_RATE, seed, steps)
        for arm in ARMS
        for steps in GROWN[1:]
    }


@measurement(
    seeds=5,
    coords={"arm": ARMS, "steps": GROWN},
    trainings=growth_trainings,
    repeat="opening",
    tolerance={"spread": 2.0, "largest": 10.0, "accuracy": 0.2},
)
def growth(seed: int, runs: Mapping[Any, Run]) -> dict[str, Any]:
    """How scores of a head of width 128 grow in the course of a training, with and without the scale."""

    def model(arm: str, steps: int) -> Model:
        return runs[arm, steps].model if steps else fresh(layer_of(STREAM), arm, seed)

    axes = ("arm", "steps")
    models = [[model(arm, steps) for steps in GROWN] for arm in ARMS]
    return {
        "spread": (
            axes,
            [[first_look(m, LOOKUP, seed=seed)["spread"] for m in row] for row in models],
        ),
        "largest": (axes, [[largest_score(m, LOOKUP, seed=seed) for m in row] for row in models]),
        "accuracy": (
            axes,
            [[evaluate(m, LOOKUP, seed=seed).accuracy for m in row] for row in models],
        ),
    }


def rounding_trainings(seed: int) -> dict[str, Job]:
    """Every arm with a head of width 128, at the end of the longest training."""
    return {arm: lookup_job(STREAM, arm, GROWTH_RATE, seed, GROWN[-1]) for arm in ARMS}


ROUNDED = ("scores", "inputs")


@measurement(
    seeds=5,
    coords={"arm": ARMS, "rounded": ROUNDED},
    trainings=rounding_trainings,
    repeat="opening",
    tolerance={"mean": 0.01, "worst": 0.5},
)
def rounding(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The share of a row's weight that bfloat16 moves in trained heads: the mean, and the worst row."""
    moved = {arm: moved_by_rounding(runs[arm].model, LOOKUP, seed=seed, size=256) for arm in ARMS}
    axes = ("arm", "rounded")
    return {
        "mean": (axes, [[float(moved[arm][name].mean()) for name in ROUNDED] for arm in ARMS]),
        "worst": (axes, [[float(moved[arm][name].max()) for name in ROUNDED] for arm in ARMS]),
    }


def fresh(config: Config, arm: str, seed: int) -> Model:
    """The model of an arm before its first step."""
    config, options = scaled(config, arm)
    model = make_model(config, causal=True, seed=seed)
    if options:
        options["prepare"](model)
    return model


@torch.no_grad()
def _looked(model: Model, task: Task, seed: int, size: int) -> dict[str, Tensor]:
    batch = task.batch(make_generator(seed, "first-look"), size)
    with capture(model, "blocks.0.attention.*") as seen:
        predict(model, batch)
    return {name.removeprefix("blocks.0.attention."): value for name, value in seen.items()}


def _causal(n: int) -> Bool[Tensor, "query key"]:
    return torch.ones(n, n, dtype=torch.bool).tril()


def largest_score(model: Model, task: Task, *, seed: int, size: int = 64) -> float:
    """The largest score of a causal model's first layer, of either sign, that a query may see."""
    scores = _looked(model, task, seed, size)["scores"]
    return float(scores[..., _causal(scores.shape[-1])].abs().max())


def moved_by_rounding(
    model: Model, task: Task, *, seed: int, size: int
) -> dict[str, Float[Tensor, "row"]]:
    """The share of each row's weight that bfloat16 moves in the first layer, for rows of two keys or more.

    Returns:
        `scores`: where the scores are written out in bfloat16; `inputs`: where queries and keys are rounded
        to it before their product, which stays in higher precision, as in a fused kernel.
    """
    seen = _looked(model, task, seed, size)
    queries, keys, scores = (seen[name].double() for name in ("queries", "keys", "scores"))
    hidden = ~_causal(scores.shape[-1])

    def weights(of: Tensor) -> Tensor:
        return of.masked_fill(hidden, -math.inf).softmax(-1)[..., 1:, :]

    # The scale of the model, whatever it is: scores are this many times the products.
    products = queries @ keys.transpose(-2, -1)
    scale = float((scores * products).sum() / products.square().sum())
    again = scale * (queries.bfloat16().double() @ keys.bfloat16().double().transpose(-2, -1))
    exact = weights(scores)
    changed = {"scores": weights(scores.bfloat16().double()), "inputs": weights(again)}
    return {name: weight_moved(exact, each).flatten() for name, each in changed.items()}


# The root of which width --------------------------------------------------------------------------

DIVISORS = ("head", "stream", "width")
"""The root of the head's width, the root of the stream's, and the stream's width itself, which must differ."""
DIVISOR_STEPS = 100


def divisor_trainings(seed: int) -> dict[str, Job]:
    """Eight heads of width 16 in a stream of 128, by the three divisors, each at the rate that suits it."""
    jobs = {}
    for name, divisor in zip(DIVISORS, (16**0.5, STREAM**0.5, STREAM), strict=True):
        config = layer_of(16).replace(attention_scale=1 / divisor)
        options: dict[str, Any] = {"batch_size": BATCH}
        search = Search(
            f"scale-divisor-{name}", config, LOOKUP, RATES, tuning_seeds(1), DIVISOR_STEPS, options
        )
        jobs[name] = job(
            config, LOOKUP, seed, steps=DIVISOR_STEPS, learning_rate=tuned(search), **options
        )
    return jobs


@measurement(
    seeds=8,
    coords={"divisor": DIVISORS, "step": tuple(range(10, DIVISOR_STEPS + 1))},
    trainings=divisor_trainings,
    repeat="opening",
    tolerance={"loss": 0.1, "steps": 20.0, "curve": 0.5, "entropy": 0.02},
)
def divisor(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Eight heads, scores divided by the root of their width, of the stream's, or by the stream's width."""
    configs = {name: run.model.config for name, run in runs.items()}
    starts = {name: make_model(config, causal=True, seed=seed) for name, config in configs.items()}
    smooth = np.ones(10) / 10
    return {
        "loss": ("divisor", [float(runs[name].losses[-20:].mean()) for name in DIVISORS]),
        "steps": ("divisor", [float(steps_until(runs[name].losses, 0.3)) for name in DIVISORS]),
        "curve": (
            ("divisor", "step"),
            [np.convolve(runs[name].losses, smooth, mode="valid") for name in DIVISORS],
        ),
        "entropy": (
            "divisor",
            [first_look(starts[name], LOOKUP, seed=seed)["entropy"] for name in DIVISORS],
        ),
    }


# In the place of the softmax ----------------------------------------------------------------------

FORMS: Mapping[str, Any] = {
    "softmax": None,
    "softmax with norms": head_norms,
    "softmax plus one": Weighed("softmax plus one"),
    "sigmoid": Weighed("sigmoid"),
    "entmax": Weighed("entmax"),
    "sparsemax": Weighed("sparsemax"),
    "linear": linear,
}
"""From scores to weights -> the preparation of a model with softmax."""
TASKS: Mapping[str, Task] = {
    "recall": JoinedRecall(pairs=8, queries=4, keys=32, values=4),
    "count": Counting(symbols=6, asked=4, most=3, told=12),
}
LONGER = {"recall": 32 + 7, "count": 48 + 7}
"""Rows with four times as many pairs, or symbols, as in training."""
FORM_RATES = (1e-3, 2.5e-3, 6.3e-3, 1.6e-2, 4e-2, 1e-1)
FORM_STEPS = 300


def form_trainings(seed: int) -> dict[tuple[str, str], Job]:
    """Every form on both tasks, each at the learning rate that suits it: one layer, one head of width 32."""
    jobs = {}
    for task_name, task in TASKS.items():
        config = Config(
            vocab=task.vocab,
            d_model=32,
            n_heads=1,
            n_layers=1,
            d_ff=32,
            positions="none",
            norm="rms",
            bias=False,
        )
        for form, prepare in FORMS.items():
            options = {"batch_size": 32, **({} if prepare is None else {"prepare": prepare})}
            name = f"scale-{task_name}-{form.replace(' ', '-')}"
            search = Search(name, config, task, FORM_RATES, tuning_seeds(1), FORM_STEPS, options)
            jobs[task_name, form] = job(
                config, task, seed, steps=FORM_STEPS, learning_rate=tuned(search), **options
            )
    return jobs


@measurement(
    seeds=5,
    coords={"task": tuple(TASKS), "form": tuple(FORMS), "length": ("trained", "longer")},
    trainings=form_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.2, "loss": 0.5, "zeros": 0.2},
)
def forms(seed: int, runs: Mapping[Any, Run]) -> dict[str, Any]:
    """Softmax and what can stand in its place, on recall and counting, at two lengths, and exact zeros."""
    axes = ("task", "form", "length")

    def scores(task: str, form: str) -> list[Any]:
        model = runs[task, form].model
        return [
            evaluate(model, TASKS[task], seed=seed, size=512, length=length)
            for length in (None, LONGER[task])
        ]

    found = [[scores(task, form) for form in FORMS] for task in TASKS]
    return {
        "accuracy": (axes, [[[s.accuracy for s in of] for of in row] for row in found]),
        "loss": (axes, [[[s.loss for s in of] for of in row] for row in found]),
        "zeros": (
            ("task", "form"),
            [[zeros(runs[t, f].model, TASKS[t], seed=seed) for f in FORMS] for t in TASKS],
        ),
    }


def zeros(model: Model, task: Task, *, seed: int, size: int = 64) -> float:
    """Share of the weights in the first layer that are exactly zero where a question may look."""
    seen = _looked(model, task, seed, size)
    if "pattern" not in seen:
        return 0.0
    scored = task.batch(make_generator(seed, "first-look"), size).scored
    pattern = seen["pattern"]
    allowed = _causal(pattern.shape[-1]).expand(pattern.shape)
    asks = scored[:, None, :, None].expand(pattern.shape) & allowed
    return float((pattern[asks] == 0).double().mean())
