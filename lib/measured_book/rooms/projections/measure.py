r"""What the chapter on shared projections measures: what follows from sharing, what it costs, what it saves.

With one projection for queries and keys the scores are $s_{ij} = q_i \cdot q_j$ (up to the scale). Then
$|q_i - q_j|^2 \ge 0$ says $2 s_{ij} \le s_{ii} + s_{jj}$: of two positions at most one can prefer the other to
itself. How models are trained with shared projections stands in `measured_transformer.variants.attention` and
`measured_transformer.variants.latent`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.drawn_cases import drawn_case
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.parts.attention import (
    MultiHeadAttention,
    attend,
    attention_pattern,
    attention_scores,
    causal_mask,
)
from measured_transformer.parts.positions import rotation
from measured_transformer.tasks.joined_recall import JoinedRecall
from measured_transformer.tasks.lag import Lag
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.tasks.shift import CyclicShift
from measured_transformer.tasks.task import Task
from measured_transformer.tasks.text import TextLM
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, evaluate, make_model, predict
from measured_transformer.training.seeding import make_generator, seeded
from measured_transformer.variants.attention import Tie, Tied, same_size
from measured_transformer.variants.latent import Latent, LatentAttention
from torch import Tensor

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds
from measured_book.rooms.projections.real import published

__all__ = ["drawn", "four", "kept", "knobs", "one_head", "published", "sharing"]


def drawn_scores(seed: int, *, shared: bool, length: int = 10) -> Float[Tensor, "query key"]:
    """Scores of one head of drawn width on normal inputs, in float64.

    Args:
        seed: of sizes, inputs and weights.
        shared: whether the keys are projected as the queries are.
        length: number of positions.
    """
    generator = torch.Generator().manual_seed(seed)
    width = int(torch.randint(2, 9, (), generator=generator))
    x = torch.randn(length, 8, generator=generator, dtype=torch.float64)
    w_query, w_key = torch.randn(2, 8, width, generator=generator, dtype=torch.float64) / 8**0.5
    return attention_scores(x @ w_query, x @ (w_query if shared else w_key))


def asymmetry(matrix: Float[Tensor, "*batch position position"]) -> float:
    """Largest difference between an entry and the one across the diagonal.

    >>> asymmetry(torch.tensor([[1.0, 2.0], [5.0, 1.0]]))
    3.0
    """
    return float((matrix - matrix.transpose(-2, -1)).abs().max())


def mutual_pairs(scores: Float[Tensor, "position position"]) -> int:
    """Number of pairs of positions that both score the other higher than themselves.

    >>> mutual_pairs(torch.tensor([[0.0, 1.0], [2.0, 0.0]]))
    1
    >>> mutual_pairs(torch.tensor([[0.0, 1.0], [2.0, 3.0]]))
    0
    """
    prefers = scores > scores.diagonal()[:, None]
    return int((prefers & prefers.T).triu(1).sum())


def one_side_accuracy(vocab: int) -> float:
    """Accuracy of answering half of the positions rightly and guessing the other half.

    What is expected on reversal (of even length) of whoever answers with the token that its query attends to
    most, under a shared projection, where positions alone decide which of two is attended to. It is no bound:
    where tokens decide too, the loser learns something from losing.

    Raises:
        ValueError: when the vocabulary is empty.

    >>> round(one_side_accuracy(12), 4)
    0.5417
    """
    if vocab < 1:
        raise ValueError(f"expected at least one token, got vocab={vocab}")
    return 0.5 + 0.5 / vocab


@dataclass(frozen=True)
class Reading:
    """Where the queries of a reversal model with one head look, on sequences held out.

    Attributes:
        own: mean weight on the query's own position.
        partner: mean weight on the position that holds the answer.
        top_is_partner: share of queries that attend most to the answer's position.
        most_attended: accuracy of answering with the token that is attended to most.
        accuracy: that of the model itself.
        unequal: mean difference, without sign, between the two weights.
    """

    own: float
    partner: float
    top_is_partner: float
    most_attended: float
    accuracy: float
    unequal: float


@torch.no_grad()
def reading(model: Model, task: Reversal, *, seed: int, size: int = 256) -> Reading:
    """Compare what a model of one block and one head answers with what it attends to most.

    Args:
        model: trained on `task`.
        task: reversal of an even length.
        seed: of the sequences; they come from the stream of evaluation.
        size: number of sequences.

    Raises:
        ValueError: when there is more than one pattern, or the length is odd.
    """
    if task.length % 2:
        raise ValueError(
            f"expected an even length, so that no token is its own answer, got {task.length}"
        )
    batch = task.batch(make_generator(seed, "evaluation"), size)
    with capture(model, "blocks.*.attention.pattern") as seen:
        answers = predict(model, batch).argmax(-1)
    patterns = [pattern for layer in seen.values() for pattern in layer.unbind(1)]
    if len(patterns) != 1:
        raise ValueError(f"expected a model of one block with one head, got {len(patterns)} heads")
    (pattern,) = patterns
    own, partner = pattern.diagonal(dim1=1, dim2=2), pattern.flip(2).diagonal(dim1=1, dim2=2)
    top = pattern.argmax(-1)
    places = torch.arange(task.length).flip(0)
    return Reading(
        own=float(own.mean()),
        partner=float(partner.mean()),
        top_is_partner=float((top == places).float().mean()),
        most_attended=float((batch.inputs.gather(1, top) == batch.targets).float().mean()),
        accuracy=float((answers == batch.targets).float().mean()),
        unequal=float((own - partner).abs().mean()),
    )


# Turns that nobody notices ------------------------------------------------------------------------


def drawn_layer(seed: int) -> tuple[MultiHeadAttention, Float[Tensor, "batch position d_model"]]:
    """An attention layer of random size with biases that are not zero, and an input, in float64."""
    generator = torch.Generator().manual_seed(seed)
    heads, width = (int(torch.randint(1, high, (), generator=generator)) for high in (4, 7))
    n = int(torch.randint(3, 9, (), generator=generator))
    with seeded(seed):
        layer = MultiHeadAttention(heads * (width + 1), heads).double()
    with torch.no_grad():
        for projection in (layer.query, layer.key, layer.value, layer.output):
            assert projection.bias is not None
            projection.bias.copy_(torch.randn(projection.bias.shape, generator=generator))
    return layer, torch.randn(2, n, layer.d_model, generator=generator, dtype=torch.float64)


def drawn_turn(seed: int, width: int) -> Float[Tensor, "width width"]:
    """An invertible matrix, neither a rotation nor badly conditioned: singular values between 0.5 and 2."""
    generator = torch.Generator().manual_seed(seed)
    left, right = (
        torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64))[0]
        for _ in range(2)
    )
    stretch = 2 ** (2 * torch.rand(width, generator=generator, dtype=torch.float64) - 1)
    return left @ torch.diag(stretch) @ right


@torch.no_grad()
def turned(
    layer: MultiHeadAttention,
    *,
    scores: Float[Tensor, "d_head d_head"] | None = None,
    values: Float[Tensor, "d_head d_head"] | None = None,
    undo: bool = True,
) -> MultiHeadAttention:
    """A copy of the layer with other weights, which computes the same where each turn is undone.

    In every head, queries are multiplied by a matrix A and keys by its inverse transpose; values by a matrix B
    and what is read from them by its inverse.

    Args:
        layer: as many key heads as query heads.
        scores: A; queries and keys stay as they are when not given.
        values: B; the same for values and output.
        undo: whether keys (and output) get the inverse; without it one side is turned alone.

    Raises:
        ValueError: when query heads share key heads: one turn would have to fit them all.
    """
    if layer.n_kv_heads != layer.n_heads:
        raise ValueError(
            f"expected as many key heads as query heads, got {layer.n_kv_heads} and {layer.n_heads}"
        )
    made = copy.deepcopy(layer)

    def apply(projection: torch.nn.Module, matrix: Tensor) -> None:
        for weight in projection.parameters():
            by_head = weight.unflatten(0, (layer.n_heads, layer.d_head))
            weight.copy_(torch.einsum("he...,ef->hf...", by_head, matrix).flatten(0, 1))

    if scores is not None:
        apply(made.query, scores)
        if undo:
            apply(made.key, torch.linalg.inv(scores).T)
    if values is not None:
        apply(made.value, values)
        if undo:
            by_head = made.output.weight.unflatten(1, (layer.n_heads, layer.d_head))
            back = torch.einsum("dhe,fe->dhf", by_head, torch.linalg.inv(values))
            made.output.weight.copy_(back.flatten(1))
    return made


def written_out(
    queries: Float[Tensor, "query d_head"],
    keys: Float[Tensor, "key d_head"],
    values: Float[Tensor, "key d_value"],
    *,
    order: Int[Tensor, "key"] | None = None,
) -> Float[Tensor, "query d_value"]:
    """Attention of one head, number by number, for values of any width.

    Args:
        queries, keys, values: of one sequence.
        order: in which keys are taken while the values stay, to break it.
    """
    taken = keys if order is None else keys[order]
    rows = []
    for query in queries.tolist():
        raised = [
            math.exp(sum(a * b for a, b in zip(query, key, strict=True)) / math.sqrt(len(query)))
            for key in taken.tolist()
        ]
        total = math.fsum(raised)
        rows.append(
            [
                math.fsum(
                    share / total * value for share, value in zip(raised, column, strict=True)
                )
                for column in values.T.tolist()
            ]
        )
    return torch.tensor(rows, dtype=values.dtype)


def degrees_of_freedom(d_model: int, d_head: int, *, shared: bool, seed: int = 0) -> int:
    r"""In how many directions the scores of a head can be changed by changing its projections.

    The rank of the derivative of $W_Q W_K^\top$ by all weights, at drawn weights; the rest of the weights'
    directions change nothing.

    Args:
        d_model: width of the stream.
        d_head: width of the head.
        shared: whether both projections are one.
        seed: of the weights.

    Raises:
        ValueError: when the head is wider than the stream.

    >>> degrees_of_freedom(4, 1, shared=False)
    7
    """
    if d_head > d_model:
        raise ValueError(f"expected a head no wider than the stream, got {d_head} and {d_model}")
    generator = torch.Generator().manual_seed(seed)
    number = 1 if shared else 2
    weights = torch.randn(number, d_model, d_head, generator=generator, dtype=torch.float64)
    found = torch.autograd.functional.jacobian(lambda w: w[0] @ w[-1].T, weights)
    matrix = torch.as_tensor(found).reshape(d_model**2, -1)
    return int(torch.linalg.matrix_rank(matrix))


def rotary_degrees_of_freedom(d_model: int, d_head: int, *, shared: bool, seed: int = 0) -> int:
    r"""As `degrees_of_freedom`, of the scores at several distances under rotary positions.

    The rank of the derivative of $W_Q R_t W_K^\top$ for eight distances t, all together.

    Raises:
        ValueError: when the head is wider than the stream.

    >>> rotary_degrees_of_freedom(4, 2, shared=False)
    14
    """
    if d_head > d_model:
        raise ValueError(f"expected a head no wider than the stream, got {d_head} and {d_model}")
    generator = torch.Generator().manual_seed(seed)
    number = 1 if shared else 2
    weights = torch.randn(number, d_model, d_head, generator=generator, dtype=torch.float64)
    turns = rotation(8, d_head, base=10.0, dtype=torch.float64)
    unit = torch.eye(d_head, dtype=torch.float64)[:, None, None].expand(-1, 1, 8, -1)
    matrices = turns.apply(unit)[:, 0].transpose(0, 1)  # (distance, entry before, entry after)
    found = torch.autograd.functional.jacobian(lambda w: w[0] @ matrices @ w[-1].T, weights)
    return int(torch.linalg.matrix_rank(torch.as_tensor(found).reshape(8 * d_model**2, -1)))


def commuting_turn(seed: int, width: int) -> Float[Tensor, "width width"]:
    """A matrix that rotary turns commute with: each neighbouring pair is turned and stretched on its own.

    Raises:
        ValueError: when the width is odd.
    """
    if width % 2:
        raise ValueError(f"expected an even width, got {width}")
    generator = torch.Generator().manual_seed(seed)
    angles, stretch = torch.rand(2, width // 2, generator=generator, dtype=torch.float64)
    angles, stretch = 1 + angles, 2 ** (2 * stretch - 1)
    cos, sin = stretch * angles.cos(), stretch * angles.sin()
    return torch.block_diag(
        *(torch.stack((c, s, -s, c)).reshape(2, 2) for c, s in zip(cos, sin, strict=True))
    )


# Drawn cases --------------------------------------------------------------------------------------

SHARED = ("shared", "separate")


def _rotary_asymmetry(seed: int) -> float:
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(1, 1, 10, 8, generator=generator, dtype=torch.float64)
    turned_q = rotation(10, 8, dtype=torch.float64).apply(q)[0, 0]
    return asymmetry(attention_scores(turned_q, turned_q))


@measurement(seeds=100, coords={"projections": SHARED}, repeat=5)
def drawn(seed: int) -> dict[str, Any]:
    """One head, its queries and keys projected by one matrix or by two: what is symmetric, who prefers whom."""
    scores = [drawn_scores(seed, shared=shared == "shared") for shared in SHARED]
    past = causal_mask(10)

    def each(of: Any) -> tuple[str, list[float]]:
        return "projections", [float(of(s)) for s in scores]

    return {
        "scores": each(asymmetry),
        "weights": each(lambda s: asymmetry(attention_pattern(s))),
        "causal": each(lambda s: asymmetry(attention_pattern(s, mask=past))),
        "pairs": each(mutual_pairs),
        "rotary": _rotary_asymmetry(seed),
        "eigenvalue": float(torch.linalg.eigvalsh(scores[0])[0]),
    }


@torch.no_grad()
def _weights_moved(seed: int, *, undo: bool) -> float:
    layer, x = drawn_layer(seed)
    seen = []
    for each in (layer, turned(layer, scores=drawn_turn(seed, layer.d_head), undo=undo)):
        with capture(each, "pattern") as found:
            each(x)
        seen.append(found["pattern"])
    return float((seen[0] - seen[1]).abs().max())


@torch.no_grad()
def _output_moved(seed: int, *, undo: bool) -> float:
    layer, x = drawn_layer(seed)
    other = turned(layer, values=drawn_turn(seed, layer.d_head), undo=undo)
    return float((other(x) - layer(x)).abs().max())


def _other_width(seed: int, *, shuffled: bool) -> float:
    case = drawn_case(seed, mask="none")
    q, k, v = (x[0, 0] for x in (case.queries, case.keys, case.values))
    v = torch.cat([v, v[:, :1]], dim=1) if v.shape[1] == k.shape[1] else v
    order = torch.arange(len(k)).roll(1) if shuffled else None
    found = attend(attention_pattern(attention_scores(q, k)), v)
    return float((found - written_out(q, k, v, order=order)).abs().max())


@torch.no_grad()
def rotary_moved(seed: int, kind: str) -> float:
    """By how much the output of a layer with rotary positions moves when queries and keys are turned together.

    Args:
        seed: of the layer and the turn.
        kind: 'any' invertible matrix, a 'rotation', or a 'commuting' matrix.

    Raises:
        ValueError: there is no such kind.
    """
    with seeded(seed):
        layer = MultiHeadAttention(16, 2).double()
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 7, 16, generator=generator, dtype=torch.float64)
    match kind:
        case "any":
            turn = drawn_turn(seed, 8)
        case "rotation":
            turn = torch.linalg.qr(drawn_turn(seed, 8))[0]
        case "commuting":
            turn = commuting_turn(seed, 8)
        case _:
            raise ValueError(f"expected any, rotation or commuting, got {kind!r}")
    turns = rotation(7, 8, dtype=torch.float64)
    moved = turned(layer, scores=turn)(x, rotation=turns) - layer(x, rotation=turns)
    return float(moved.abs().max())


@torch.no_grad()
def absorbed_moved(seed: int, *, d_rotary: int = 2, wrong: bool = False) -> float:
    """Largest difference between latent attention with keys and values made, and with none made.

    Args:
        seed: of sizes, weights and input.
        d_rotary: width of the turned key; 0: no rotary positions.
        wrong: whether a query is multiplied by the keys' matrix of the next head, to break it.
    """
    generator = torch.Generator().manual_seed(seed)
    rank = int(torch.randint(2, 9, (), generator=generator))
    with seeded(seed):
        layer = LatentAttention(MultiHeadAttention(16, 4), rank=rank, d_rotary=d_rotary).double()
    x = torch.randn(2, 6, 16, generator=generator, dtype=torch.float64)
    turns = rotation(6, 4, dtype=torch.float64) if d_rotary else None
    made = layer(x, causal=True, rotation=turns)
    if wrong:
        layer.up_key.weight.copy_(layer.up_key.weight.roll(layer.d_head, 0))
    return float((layer.absorbed(x, causal=True, rotation=turns) - made).abs().max())


DONE = ("undone", "one side")
TURNS = ("any", "rotation", "commuting")


@measurement(seeds=100, coords={"side": DONE, "turn": TURNS}, repeat=5)
def kept(seed: int) -> dict[str, Any]:
    """What a change of basis leaves as it is, with its control; and what is left free by rotary positions.

    Each identity has its control under 'one side': one side turned alone, keys shuffled, a wrong head's matrix.
    """
    return {
        "scores": ("side", [_weights_moved(seed, undo=undo) for undo in (True, False)]),
        "values": ("side", [_output_moved(seed, undo=undo) for undo in (True, False)]),
        "widths": ("side", [_other_width(seed, shuffled=bad) for bad in (False, True)]),
        "absorbed": ("side", [absorbed_moved(seed, wrong=bad) for bad in (False, True)]),
        "rotary": ("turn", [rotary_moved(seed, kind) for kind in TURNS]),
    }


KNOBS = (12, 4)
"""Width of the stream and of the head whose directions are counted."""


@measurement(seeds=1, coords={"projections": SHARED})
def knobs(seed: int) -> dict[str, Any]:
    """In how many directions the scores of one head can move, without positions and with rotary ones."""
    d, h = KNOBS
    shares = [name == "shared" for name in SHARED]
    return {
        "plain": ("projections", [degrees_of_freedom(d, h, shared=s, seed=seed) for s in shares]),
        "rotary": (
            "projections",
            [rotary_degrees_of_freedom(d, h, shared=s, seed=seed) for s in shares],
        ),
    }


# One block, one head ------------------------------------------------------------------------------

BACKWARDS = Reversal(vocab=12, length=8)
SINGLE = Config(vocab=12, d_model=32, n_layers=1, n_heads=1)
LAYERS = ("with", "without")
"""With residual connections, or without."""
HEADS: tuple[Tie, ...] = ("none", "qk")
RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
STEPS = 600
EVERY = 25
BATCH = 32
SEQUENCES = 3


def tied_job(
    name: str, config: Config, tie: Tie, task: Task, seed: int, *, rates: tuple[float, ...],
    steps: int, tuned_on: int = 2, **looks: Any,
) -> Job:  # fmt: skip
    """A model whose projections are tied, of the size of the free one, at the rate that suits it."""
    made = same_size(config, tie)
    options: dict[str, Any] = {"batch_size": BATCH}
    if tie != "none":
        options["prepare"] = Tied(tie)
    seeds = tuning_seeds(tuned_on)
    search = Search(f"{name}-{tie}", made, task, rates, seeds, steps, options)
    return job(made, task, seed, steps=steps, learning_rate=tuned(search), **options, **looks)


def one_head_trainings(seed: int) -> dict[tuple[str, str], Job]:
    """One block with one head on reversal, free and with shared queries and keys, in a stream and alone."""
    return {
        (layer, tie): tied_job(
            f"projections-one-{layer}",
            SINGLE.replace(residual=layer == "with"),
            tie,
            BACKWARDS,
            seed,
            rates=RATES,
            steps=STEPS,
            evaluate_every=EVERY,
        )
        for layer in LAYERS
        for tie in HEADS
    }


LOOKS = ("own", "partner", "top_is_partner", "most_attended", "accuracy", "unequal")


@measurement(
    seeds=10,
    coords={
        "layer": LAYERS,
        "tie": HEADS,
        "step": tuple(range(EVERY, STEPS + 1, EVERY)),
        "look": LOOKS,
    },
    trainings=one_head_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.3, "looked": 0.3, "pattern": 0.7},
)
def one_head(seed: int, runs: Mapping[Any, Run]) -> dict[str, Any]:
    """Reversal with one head: accuracy over the steps, where queries look at the end, and some patterns."""
    axes = ("layer", "tie")
    looks = [
        [asdict(reading(runs[layer, tie].model, BACKWARDS, seed=seed)) for tie in HEADS]
        for layer in LAYERS
    ]
    inputs = BACKWARDS.batch(make_generator(seed, "evaluation"), SEQUENCES).inputs
    patterns = []
    for layer in LAYERS:
        for tie in HEADS:
            name = "blocks.0.attention.pattern"
            model: Any = runs[layer, tie].model
            with capture(model, name) as seen, torch.no_grad():
                model(inputs)
            patterns.append(seen[name][:, 0].numpy())
    size = (len(LAYERS), len(HEADS), SEQUENCES, BACKWARDS.length, BACKWARDS.length)
    return {
        "accuracy": (
            (*axes, "step"),
            [
                [[float(a) for a in runs[layer, tie].evaluation_accuracies] for tie in HEADS]
                for layer in LAYERS
            ],
        ),
        "looked": ((*axes, "look"), [[[of[x] for x in LOOKS] for of in row] for row in looks]),
        "pattern": (
            (*axes, "sequence", "query", "key"),
            np.round(np.stack(patterns).reshape(size), 4),
        ),
        "inputs": (("sequence", "query"), inputs.tolist()),
    }


# Four tasks ---------------------------------------------------------------------------------------

TASKS: Mapping[str, Task] = {
    "reversal": BACKWARDS,
    "shift": CyclicShift(vocab=12, length=8),
    "lag": Lag(vocab=12, length=12, lag=3, fidelity=0.9),
    "text": TextLM(corpus="python", length=16),
}
TIES: tuple[Tie, ...] = ("none", "qk", "kv", "qkv")
FOUR_RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
FOUR_STEPS = 120


def four_trainings(seed: int) -> dict[tuple[str, str], Job]:
    """Two blocks with four heads on four tasks, with four ways of sharing."""
    found: dict[tuple[str, str], Job] = {}
    for name, task in TASKS.items():
        config = Config(
            vocab=256 if name == "text" else 12,
            d_model=32,
            n_layers=2,
            positions="rotary" if name == "lag" else "sinusoidal",
        )
        for tie in TIES:
            found[name, tie] = tied_job(
                f"projections-{name}",
                config,
                tie,
                task,
                seed,
                rates=FOUR_RATES,
                steps=FOUR_STEPS,
                tuned_on=1,
            )
    return found


@measurement(
    seeds=30,
    coords={"task": tuple(TASKS), "tie": TIES},
    trainings=four_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.3, "loss": 0.6},
)
def four(seed: int, runs: Mapping[Any, Run]) -> dict[str, Any]:
    """Accuracy and loss on held-out sequences of four tasks, by what is shared."""
    scores = [
        [evaluate(runs[name, tie].model, task, seed=seed, size=1024) for tie in TIES]
        for name, task in TASKS.items()
    ]
    return {
        "accuracy": (("task", "tie"), [[each.accuracy for each in row] for row in scores]),
        "loss": (("task", "tie"), [[each.loss for each in row] for row in scores]),
    }


# Sharing for the sake of the cache ----------------------------------------------------------------

RECALL = JoinedRecall(pairs=12, queries=8, keys=16, values=8)
LOOKUP = Config(
    vocab=RECALL.vocab,
    d_model=64,
    n_layers=1,
    n_heads=4,
    d_ff=64,
    positions="rotary",
    norm="rms",
    bias=False,
)
ARMS: Mapping[str, tuple[Config, Any]] = {
    "MHA": (LOOKUP, None),
    "GQA": (LOOKUP.replace(n_kv_heads=2), None),
    "K = V": (LOOKUP, Tied("kv")),
    "MQA": (LOOKUP.replace(n_kv_heads=1), None),
    "MLA": (LOOKUP, Latent(rank=24, d_rotary=8)),
}
SHARING_RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
SHARING_STEPS = 150


def kept_numbers(arm: str) -> int:
    """Numbers that a token leaves behind in each layer, for later ones to look at, of one of `ARMS`.

    >>> [kept_numbers(arm) for arm in ARMS]
    [128, 64, 64, 32, 32]
    """
    config, prepare = ARMS[arm]
    if isinstance(prepare, Latent):
        return prepare.rank + prepare.d_rotary
    return (1 if isinstance(prepare, Tied) else 2) * config.kv_heads * config.head_width


def attention_parameters(arm: str) -> int:
    """Weights of the attention sublayer of one of `ARMS`."""
    config, prepare = ARMS[arm]
    model: Any = make_model(config, causal=True, seed=0)
    if prepare is not None:
        prepare(model)
    return sum(weight.numel() for weight in model.blocks[0].attention.parameters())


def sharing_trainings(seed: int) -> dict[str, Job]:
    """One layer that recalls, its keys and values shared in five ways."""
    found = {}
    for arm, (config, prepare) in ARMS.items():
        options: dict[str, Any] = {"batch_size": 16}
        if prepare is not None:
            options["prepare"] = prepare
        search = Search(
            f"projections-sharing-{arm.lower().replace(' ', '')}",
            config,
            RECALL,
            SHARING_RATES,
            tuning_seeds(2),
            SHARING_STEPS,
            options,
        )
        found[arm] = job(
            config, RECALL, seed, steps=SHARING_STEPS, learning_rate=tuned(search), **options
        )
    return found


@measurement(
    seeds=8,
    coords={"arm": tuple(ARMS)},
    trainings=sharing_trainings,
    repeat="opening",
    tolerance={"accuracy": 0.2, "loss": 0.5},
)
def sharing(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Recall with keys and values shared in five ways: loss, accuracy, numbers kept a token, weights."""
    scores = [evaluate(runs[arm].model, RECALL, seed=seed, size=1024) for arm in ARMS]
    return {
        "loss": ("arm", [score.loss for score in scores]),
        "accuracy": ("arm", [score.accuracy for score in scores]),
        "kept": ("arm", [kept_numbers(arm) for arm in ARMS]),
        "parameters": ("arm", [attention_parameters(arm) for arm in ARMS]),
    }
