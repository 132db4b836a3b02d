r"""What follows from sharing projections, what does not, and which turns of the projections nobody notices.

With one projection for queries and keys the scores are $s_{ij} = q_i \cdot q_j$ (up to the scale). Then
$|q_i - q_j|^2 \ge 0$ says $2 s_{ij} \le s_{ii} + s_{jj}$: of two positions at most one can prefer the other to
itself. How models are trained with shared projections stands in `measured_transformer.variants.attention`.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from measured_transformer.internals.capture import capture
from measured_transformer.parts.attention import MultiHeadAttention, attention_scores
from measured_transformer.tasks.reversal import Reversal
from measured_transformer.training.loop import Model, predict
from measured_transformer.training.seeding import make_generator, seeded


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

    The best that can be expected on reversal (of even length) by whoever answers with the token that its query
    attends to most, under a shared projection.

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
