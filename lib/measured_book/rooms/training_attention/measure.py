r"""How attention learns where to look: how even it is at first, what pulls at its scores, and what goes wrong.

The *normalised entropy* of a row of attention is its entropy over the largest that is possible, the logarithm
of the number of tokens that can be seen: 1 when all get the same, 0 when one gets everything.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from measured_transformer.analysis.curves import area_under_curve
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.parts.tap import Tap
from measured_transformer.tasks.grammar import Grammar
from measured_transformer.tasks.induction import Induction
from measured_transformer.tasks.joined_recall import JoinedRecall
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.spaced_recall import SpacedRecall
from measured_transformer.tasks.task import Batch, Task
from measured_transformer.training.device import cpu_threads
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, Step, evaluate, make_model, train
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.attention import CutScores, FrozenScores
from measured_transformer.variants.initialisation import Scaled
from numpy import ndarray
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from xarray import DataArray, Dataset

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

# How even it is -----------------------------------------------------------------------------------

InitialWeights = Literal["xavier", "torch", "small"]
"""How fresh query and key matrices are drawn, see `fresh_pattern`."""


def normalised_entropy(
    pattern: Float[Tensor, "... query key"], allowed: Bool[Tensor, "query key"] | None = None
) -> Float[Tensor, "... query"]:
    """Entropy of each row over its largest value; NaN for a row that may look at a single token.

    Args:
        pattern: attention weights.
        allowed: which keys a query may see; all when None.

    >>> normalised_entropy(torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0]])).tolist()
    [1.0, 0.0]
    """
    entropy = torch.special.entr(pattern).sum(-1)
    n = pattern.shape[-1]
    seen = torch.full(pattern.shape[-2:-1], n) if allowed is None else allowed.sum(-1)
    most = seen.to(pattern.dtype).log()
    return (entropy / most).masked_fill(most == 0, math.nan)


def score_variance(weights: InitialWeights, width: int) -> float:
    """Variance of fresh scores for inputs of unit variance: (width times the entries' variance) squared.

    >>> [score_variance("xavier", 64), score_variance("torch", 64), round(score_variance("small", 64), 6)]
    [1.0, 0.25, 0.000655]

    Raises:
        ValueError: for other weights than 'xavier', 'torch' and 'small'.
    """
    _check_weights(weights)
    entry = {"xavier": 1 / width, "torch": 0.5 / width, "small": 0.02**2}[weights]
    return (width * entry) ** 2


def predicted_entropy(variance: float, n: int) -> float:
    r"""Normalised entropy of a softmax over n normal scores of small variance: $1 - \sigma^2 / (2 \ln n)$."""
    return 1 - variance / (2 * math.log(n))


@torch.no_grad()
def fresh_pattern(
    weights: InitialWeights, width: int, n: int, *, seed: int, rows: int = 8
) -> Float[Tensor, "batch query key"]:
    """Weights of one untrained head on normal inputs of unit variance.

    'xavier' draws query and key matrix each by Glorot and Bengio's rule, as this library does. 'torch' draws
    them as `torch.nn.MultiheadAttention` does: as one matrix of three times the height, which makes its entries
    smaller. 'small' draws normal entries of deviation 0.02, as GPT-2.

    Raises:
        ValueError: for other weights.
    """
    _check_weights(weights)
    with seeded(seed):
        x = torch.randn(rows, n, width)
        head = MultiHeadAttention(width, 1, bias=False)
        if weights == "torch":
            made = nn.MultiheadAttention(width, 1, bias=False).in_proj_weight
            head.query.weight.copy_(made[:width])
            head.key.weight.copy_(made[width : 2 * width])
        for matrix in (head.query.weight, head.key.weight):
            if weights == "xavier":
                nn.init.xavier_uniform_(matrix)
            elif weights == "small":
                nn.init.normal_(matrix, std=0.02)
        with capture(head, "pattern") as seen:
            head(x)
    return seen["pattern"][:, 0]


def _check_weights(weights: str) -> None:
    if weights not in get_args(InitialWeights):
        known = ", ".join(get_args(InitialWeights))
        raise ValueError(f"expected one of {known}, got {weights!r}")


@torch.no_grad()
def head_entropy(model: Model, batch: Batch) -> Float[ndarray, "layer head"]:
    """Normalised entropy of each head of a model, averaged over the positions that are scored.

    Raises:
        ValueError: for an encoder-decoder.
    """
    if not isinstance(model, Decoder | Encoder):
        raise ValueError(f"expected a Decoder or an Encoder, got {type(model).__name__}")
    n = batch.inputs.shape[1]
    allowed = torch.ones(n, n, dtype=torch.bool)
    allowed = allowed.tril() if model.causal else allowed
    with capture(model, "blocks.*.attention.pattern") as seen:
        model(batch.inputs)
    found = torch.stack(
        [normalised_entropy(p, allowed) for p in seen.values()]
    )  # layer batch head query
    heads: ndarray = found.transpose(1, 2)[:, :, batch.scored].nanmean(-1).double().numpy()
    return heads


def model_entropy(model: Model, batch: Batch) -> float:
    """Normalised entropy of a model's attention, averaged over heads, layers and the scored positions."""
    return float(head_entropy(model, batch).mean())


# What training tells the scores ---------------------------------------------------------------------


def score_gradient(
    weights: Float[Tensor, "... key"],
    values: Float[Tensor, "... key d_head"],
    upstream: Float[Tensor, "... d_head"],
) -> Float[Tensor, "... key"]:
    r"""Gradient of a loss with respect to a query's scores: $a_j (v_j - \sum_k a_k v_k) \cdot g$.

    Args:
        weights: of the softmax, $a$.
        values: $v$.
        upstream: gradient of the loss with respect to the mixed values, $g$.

    >>> a, v = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([[1.0], [3.0], [2.0]])
    >>> [round(x, 2) for x in score_gradient(a, v, torch.tensor([-1.0])).tolist()]
    [0.4, -0.36, -0.04]
    """
    agreement = (values * upstream[..., None, :]).sum(-1)
    return weights * (agreement - (weights * agreement).sum(-1, keepdim=True))


def pulls(model: Model, batch: Batch, layer: int = 0) -> Float[Tensor, "batch head query key"]:
    """By how much a step of gradient descent of rate one would move each score of a layer, over the mean loss.

    Args:
        model: looked at as it is; its own gradients are left alone.
        batch: what its loss is taken on.
        layer: of the scores.
    """
    moved: list[Tensor] = []

    def watched(scores: Tensor) -> Tensor:
        moved.append(torch.zeros_like(scores).requires_grad_())
        return scores + moved[0]

    with intervene(model, {f"blocks.{layer}.attention.scores": watched}):
        loss = cross_entropy(model(batch.inputs), batch.targets, batch.scored)
    (gradient,) = torch.autograd.grad(loss, moved)
    return -gradient


# Where attention is spent ---------------------------------------------------------------------------


class Spent(NamedTuple):
    """Where the attention of a block goes at the questions of associative recall, over heads and questions.

    Attributes:
        needed: to the key and the value that are asked for.
        distractors: to other pairs, told or asked before.
        spare: to fillers at the start.
        own: to the question itself.
    """

    needed: float
    distractors: float
    spare: float
    own: float


@torch.no_grad()
def spent(model: Decoder, batch: Batch, *, block: int, before: int, written: bool = False) -> Spent:
    """Shares of the attention of one block at the scored positions, by what it is spent on.

    Args:
        model: trained on `tasks.spaced_recall.SpacedRecall` without fillers between pairs and questions.
        batch: of that task.
        block: which one.
        before: number of fillers before the first pair.
        written: weigh each weight by the length of what it carries to the stream, value times output matrix
            (Kobayashi et al. 2020), instead of looking at the weights alone.
    """
    name = f"blocks.{block}.attention"
    with capture(model, f"{name}.pattern", f"{name}.values") as seen:
        model(batch.inputs)
    weights = seen[f"{name}.pattern"]
    if written:
        weights = (
            weights
            * carried_lengths(
                seen[f"{name}.values"], model.get_submodule(name).get_parameter("output.weight")
            )[:, :, None]
        )
    shares = (weights / weights.sum(-1, keepdim=True)).mean(1)[batch.scored]  # question, key
    kinds = _kinds(batch, before)[batch.scored]
    found = [float((shares * (kinds == kind)).sum(-1).mean()) for kind in range(4)]
    return Spent(*found)


def carried_lengths(
    values: Float[Tensor, "batch head key d_head"], output: Float[Tensor, "d_model mixed"]
) -> Float[Tensor, "batch head key"]:
    """Length of what each head would write if it looked at one key alone: of value times output matrix."""
    by_head = output.unflatten(1, (values.shape[1], values.shape[3]))
    return torch.einsum("bhke,dhe->bhkd", values, by_head).norm(dim=-1)


def _kinds(batch: Batch, before: int) -> Int[Tensor, "batch query key"]:
    """What each key is to each question: 0 needed, 1 distractor, 2 filler, 3 the question itself."""
    rows, n = batch.inputs.shape
    kinds = torch.ones(rows, n, n, dtype=torch.long)
    kinds[:, :, :before] = 2
    for place in (batch.gold["key"], batch.gold["value"]):
        here = place.clamp(min=0)[..., None]
        old = kinds.gather(2, here)
        kinds.scatter_(2, here, torch.where(place[..., None] < 0, old, torch.zeros_like(old)))
    kinds.diagonal(dim1=1, dim2=2).fill_(3)
    return kinds


# What context adds --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Similarity:
    """How alike vectors are at each state of the stream, the embedding first, then after each block.

    Attributes:
        same: mean cosine of one word's vectors in different sentences.
        random: mean cosine of random pairs: what all vectors have in common.
    """

    same: Float[ndarray, "state"]
    random: Float[ndarray, "state"]

    @property
    def adjusted(self) -> Float[ndarray, "state"]:
        """What is left for the word itself."""
        found: ndarray = self.same - self.random
        return found


@torch.no_grad()
def self_similarity(model: Decoder, tokens: Int[Tensor, "batch position"]) -> Similarity:
    """Similarity of the same word's vectors over contexts, less that of random pairs (Ethayarajh 2019).

    Every pair of places in different rows counts once; the mean is over words that come up at least twice, each
    counted once.

    Args:
        model: read block by block.
        tokens: sentences.
    """
    with capture(model, "embedding", "blocks.*.residual_post") as seen:
        model(tokens)
    names = ["embedding", *(f"blocks.{i}.residual_post" for i in range(len(model.blocks)))]
    rows, n = tokens.shape
    row = torch.arange(rows).repeat_interleave(n)
    word = tokens.flatten()
    members = F.one_hot(word).double()
    shared = row[:, None] != row
    equal = (word[:, None] == word) & shared
    pairs = members.T @ equal.double().sum(1)
    same, random = [], []
    for name in names:
        x = seen[name].double()
        x = F.normalize(x.flatten(0, 1), dim=-1)
        cosines = x @ x.T
        by_word = members.T @ (cosines * equal).sum(1)
        same.append(float((by_word[pairs > 0] / pairs[pairs > 0]).mean()))
        random.append(float(cosines[shared].mean()))
    return Similarity(np.array(same), np.array(random))


# Runs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What is drawn for a run.

    Attributes:
        rate: learning rate of Adam.
        scale: factor on all first weights of the blocks' matrices.
        seed: of its first weights.
    """

    rate: float
    scale: float
    seed: int


@dataclass(frozen=True)
class Watched:
    """What was seen of a group of runs.

    Attributes:
        settings: what was drawn.
        entropy: of attention at the look, mean over layers, heads, and rows, over its largest value.
        first_entropy: the same before the first step.
        loss: on held-out sequences at the look, in nats.
        gradient: length of the gradient, mean over the steps before the look, as a logarithm.
        final: loss on held-out sequences after the last step.
    """

    settings: tuple[Setting, ...]
    entropy: Float[ndarray, "run"]
    first_entropy: Float[ndarray, "run"]
    loss: Float[ndarray, "run"]
    gradient: Float[ndarray, "run"]
    final: Float[ndarray, "run"]

    def failed(self, task: Reversal) -> Bool[ndarray, "run"]:
        """Which ended above half of the loss of the bag of tokens."""
        found: ndarray = ~(self.final <= task.bag_loss() / 2)
        return found


def watch(
    config: Config,
    task: Reversal,
    groups: Sequence[Sequence[Setting]],
    *,
    seeds: Sequence[int],
    steps: int,
    look_at: int,
    batch_size: int = 16,
    look_back: int = 20,
    held_out: int = 64,
) -> list[Watched]:
    """Train all runs of all groups at once with Adam, each gradient clipped at length 1, and look at them.

    Runs of a group see the same batches. A run whose loss or gradient is no finite number stops there.

    Args:
        config: of the models, without dropout.
        task: what they learn.
        groups: settings of each group's runs.
        seeds: of the batches, one a group.
        steps: of the training.
        look_at: step after which the runs are looked at.
        batch_size: sequences in a step.
        look_back: number of steps before the look over which the gradient is averaged.
        held_out: number of sequences for losses and entropies.

    Raises:
        ValueError: when there are not as many seeds as groups, or the look lies beyond the last step.
    """
    if len(groups) != len(seeds):
        raise ValueError(f"expected a seed a group, got {len(seeds)} for {len(groups)} groups")
    if not look_back <= look_at <= steps:
        raise ValueError(f"expected {look_back} <= look_at <= {steps}, got {look_at}")
    every = [setting for group in groups for setting in group]
    models = [_fresh(config, task, setting) for setting in every]
    sizes = [len(group) for group in groups]
    batches = [make_generator(seed, "training") for seed in seeds]
    tests = [task.batch(make_generator(seed, "evaluation"), held_out) for seed in seeds]
    looked = [test for test, size in zip(tests, sizes, strict=True) for _ in range(size)]
    skeleton, reader = copy.deepcopy(models[0]), models[0]
    # It looks at the values of its tokens, and inside of vmap there is nothing to look at.
    skeleton.__dict__["_check"] = lambda *_: None
    weights, _ = stack_module_state(list[nn.Module](models))
    weights = {name: weight.detach() for name, weight in weights.items()}
    means = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    squares = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    rates = torch.tensor([setting.rate for setting in every])
    alive = torch.ones(len(every), dtype=torch.bool)
    recent: list[Tensor] = []

    def loss_of(weights: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        logits = functional_call(skeleton, weights, (inputs,))
        return cross_entropy(logits, targets, torch.ones_like(targets, dtype=torch.bool))

    step_of = vmap(grad_and_value(loss_of))
    first = _entropies(reader, weights, looked)
    entropy, loss, gradient = first, np.empty(0), np.empty(0)
    with cpu_threads(1), sdpa_kernel(SDPBackend.MATH):
        for step in range(1, steps + 1):
            drawn = [task.batch(batch, batch_size) for batch in batches]
            inputs = _spread([one.inputs for one in drawn], sizes)
            targets = _spread([one.targets for one in drawn], sizes)
            gradients, losses = step_of(weights, inputs, targets)
            norms = torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()])
            norms = norms.sum(0).sqrt()
            alive &= losses.isfinite() & norms.isfinite()
            factors = torch.where(alive, 1 / norms.clamp(min=1.0), 0.0)
            _adam(weights, gradients, means, squares, step, factors, torch.where(alive, rates, 0.0))
            if look_at - look_back < step <= look_at:
                recent.append(norms.nan_to_num(nan=math.inf).clamp(1e-12, 1e12).log())
            if step == look_at:
                entropy = _entropies(reader, weights, looked)
                loss = _losses(reader, weights, looked)
                gradient = torch.stack(recent).mean(0).double().numpy()
    final = _losses(reader, weights, looked)
    final[~alive.numpy()] = np.inf
    ends = np.cumsum(sizes)[:-1]
    columns = [np.split(column, ends) for column in (entropy, first, loss, gradient, final)]
    return [Watched(tuple(group), *seen) for group, *seen in zip(groups, *columns, strict=True)]


def _fresh(config: Config, task: Reversal, setting: Setting) -> Model:
    model = make_model(config, causal=task.causal, seed=setting.seed)
    Scaled(setting.scale)(model)
    return model


def _spread(rows: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    """The tensor of each group, once for each of its runs: (run ...)."""
    return torch.stack([row for row, size in zip(rows, sizes, strict=True) for _ in range(size)])


def _adam(
    weights: dict[str, Tensor],
    gradients: dict[str, Tensor],
    means: dict[str, Tensor],
    squares: dict[str, Tensor],
    step: int,
    factors: Tensor,
    rates: Tensor,
) -> None:
    """One step of Adam for all runs; means, squares and weights change in place."""
    slow, slower, eps = 0.9, 0.98, 1e-8
    for name, weight in weights.items():
        shape = (-1,) + (1,) * (weight.ndim - 1)
        gradient = gradients[name].nan_to_num(0.0, 0.0, 0.0) * factors.view(shape)
        mean, square = means[name], squares[name]
        mean.mul_(slow).add_(gradient, alpha=1 - slow)
        square.mul_(slower).addcmul_(gradient, gradient, value=1 - slower)
        length = (square / (1 - slower**step)).sqrt_().add_(eps)
        weight.sub_(rates.view(shape) * (mean / (1 - slow**step)) / length)


@torch.no_grad()
def _each(model: Model, weights: dict[str, Tensor]) -> Iterator[Model]:
    """The model with the weights of one run after the other."""
    own = dict(model.eval().named_parameters())
    for run in range(len(next(iter(weights.values())))):
        for name, weight in own.items():
            weight.copy_(weights[name][run])
        yield model


@torch.no_grad()
def _losses(
    model: Model, weights: dict[str, Tensor], tests: Sequence[Batch]
) -> Float[ndarray, "run"]:
    models = zip(_each(model, weights), tests, strict=True)
    return np.array(
        [float(cross_entropy(one(test.inputs), test.targets, test.scored)) for one, test in models]
    )


@torch.no_grad()
def _entropies(
    model: Model, weights: dict[str, Tensor], tests: Sequence[Batch]
) -> Float[ndarray, "run"]:
    models = zip(_each(model, weights), tests, strict=True)
    return np.array([pattern_entropy(one, test.inputs) for one, test in models])


@torch.no_grad()
def pattern_entropy(model: Model, inputs: Tensor) -> float:
    """Mean entropy of the rows of all patterns of a model without a mask, over the largest one, ln n."""
    with capture(model, "*.pattern") as seen:
        model(inputs)
    rows = torch.stack([torch.special.entr(pattern).sum(-1).mean() for pattern in seen.values()])
    return float(rows.mean() / math.log(inputs.shape[1]))


# How well a number tells ------------------------------------------------------------------------------


def area(score: Float[ndarray, "run"], failed: Bool[ndarray, "run"]) -> float:
    """The area under the curve: the chance that a failed run has the higher score than another; ties are half.

    One half where all runs failed or none did: nothing could be told.

    >>> area(np.array([3.0, 2.0, 1.0]), np.array([True, False, False]))
    1.0
    """
    return area_under_curve(score, failed) if 0 < failed.sum() < len(failed) else 0.5


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
    seeds=10,
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
