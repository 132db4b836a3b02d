r"""Where attention looks: how even it is, what pulls at its scores, where it is spent, what context adds.

The *normalised entropy* of a row of attention is its entropy over the largest that is possible, the logarithm
of the number of tokens that can be seen: 1 when all get the same, 0 when one gets everything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.attention import MultiHeadAttention
from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import Model
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.seeding import seeded
from numpy import ndarray
from torch import Tensor, nn
from torch.nn import functional as F

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
