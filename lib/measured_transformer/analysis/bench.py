r"""A bench for finished models: where parameters lie, where heads look, how large states are, who is missed.

Every function takes a model of this library, trained by anybody (`interop.from_huggingface` reads checkpoints
of BERT, GPT-2 and Llama), and sequences of its own tokens. Sequences of one length stand together, so that
nothing is padded, and a head's output on one sequence can stand in for that on another.

States are counted by how many blocks they have passed: 0 is the embedding. *Ordinary* tokens are all but the
special ones ([CLS], [SEP], a start token); what is said of queries and states is said of those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor, nn
from torch.nn import functional as F

from measured_transformer.analysis.ablation import How
from measured_transformer.internals.at import at
from measured_transformer.internals.capture import capture
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.parts.attention import MultiHeadAttention

Reader = Decoder | Encoder


@dataclass(frozen=True)
class Texts:
    """Sequences of tokens, those of one length together.

    Attributes:
        groups: one tensor for each length.
        order: which of the given sequences each row is, group after group.
        special: tokens that stand for no text.

    >>> texts = texts_of([[1, 5, 6, 2], [1, 7, 2], [1, 8, 5, 2]], special=(1, 2))
    >>> [tuple(group.shape) for group in texts.groups], texts.order.tolist()
    ([(1, 3), (2, 4)], [1, 0, 2])
    """

    groups: tuple[Int[Tensor, "..."], ...]
    order: Int[Tensor, "row"]
    special: tuple[int, ...]

    def ordinary(self) -> list[Bool[Tensor, "..."]]:
        """For each group, which tokens stand for text."""
        apart = torch.tensor(self.special, dtype=torch.int64)
        return [~torch.isin(group, apart) for group in self.groups]


def texts_of(sequences: Sequence[Sequence[int]], *, special: Sequence[int] = ()) -> Texts:
    """Put sequences of the same length together, the shortest first.

    Args:
        sequences: of tokens.
        special: tokens that stand for no text.

    Raises:
        ValueError: when there is no sequence, or one without a token.
    """
    if not sequences or not min(map(len, sequences)):
        raise ValueError("expected at least one sequence, and each with at least one token")
    order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
    lengths = sorted({len(one) for one in sequences})
    groups = [[list(sequences[i]) for i in order if len(sequences[i]) == n] for n in lengths]
    return Texts(tuple(map(torch.tensor, groups)), torch.tensor(order), tuple(special))


# Where parameters lie -----------------------------------------------------------------------------

PARTS = {
    "token_embedding": "tokens",
    "positions": "positions",
    "token_type_embedding": "positions",
    "attention": "attention",
    "feedforward": "feed-forward",
    "unembedding": "head",
    "head_layer": "head",
    "pooler": "head",
}
"""A module's name -> the part of the map that its parameters belong to; what is left are norms."""
MAP = ("tokens", "positions", "attention", "feed-forward", "norms", "head")
"""The parts of `parameter_map`."""


def parameter_map(model: nn.Module) -> dict[str, int]:
    """The number of parameters of each part of a model; tied ones count once, where they come first.

    >>> from measured_transformer.models.config import Config
    >>> model = Decoder(Config(vocab=10, d_model=4, n_layers=1, n_heads=1, bias=False))
    >>> parameter_map(model)
    {'tokens': 40, 'positions': 0, 'attention': 64, 'feed-forward': 128, 'norms': 12, 'head': 40}
    """
    found = dict.fromkeys(MAP, 0)
    for name, parameter in model.named_parameters():
        words = name.split(".")
        own = next((PARTS[word] for word in words if word in PARTS), "norms")
        found[own] += parameter.numel()
    return found


# Controls -----------------------------------------------------------------------------------------


@torch.no_grad()
def shuffled(model: Reader, generator: torch.Generator) -> Reader:
    """A copy of the model with the entries of each tensor randomly permuted.

    What is left of training is how large the numbers of each tensor are. The given model stays as it is.
    """
    with torch.random.fork_rng(devices=[]):
        other = type(model)(model.config)
    for mine, theirs in zip(other.parameters(), model.parameters(), strict=True):
        order = torch.randperm(theirs.numel(), generator=generator)
        mine.copy_(theirs.flatten()[order].view_as(theirs))
    return other.eval()


@torch.no_grad()
def redrawn(model: Reader, generator: torch.Generator, deviation: float = 0.02) -> Reader:
    """The same architecture before training, as BERT draws it: normal matrices, norms one, biases zero.

    The published code cuts the normal distribution off at two standard deviations; this does not.
    """
    with torch.random.fork_rng(devices=[]):
        other = type(model)(model.config)
    for name, mine in other.named_parameters():
        if mine.dim() > 1:
            mine.copy_(deviation * torch.randn(mine.shape, generator=generator))
        else:
            mine.fill_(1.0 if name.endswith("norm.weight") else 0.0)
    return other.eval()


# Where heads look ---------------------------------------------------------------------------------

STATISTICS = ("distance", "within", "entropy", "previous", "self", "next")
"""What `attention_atlas` says of a head, beside the weight on its targets."""


@torch.no_grad()
def attention_atlas(
    model: Reader, texts: Texts, targets: Mapping[str, Sequence[int]]
) -> dict[str, Float[ndarray, "layer head"]]:
    r"""Where each head looks, as means over the ordinary queries of all texts.

    - distance: $\sum_k A_{qk} |q - k|$;
    - within: the same over ordinary keys alone, whose weights are scaled to sum to one;
    - entropy: of a row, over the logarithm of the number of keys that the query may see;
    - previous, self, next: weight on the token before, on itself, on the token behind;
    - for each target the weight on tokens of its numbers.

    Args:
        model: an encoder or a decoder.
        texts: what it reads.
        targets: tokens by name.
    """
    shape = (model.config.n_layers, model.config.n_heads)
    sums, count = {name: np.zeros(shape) for name in (*STATISTICS, *targets)}, 0
    for tokens, asked in zip(texts.groups, texts.ordinary(), strict=True):
        patterns = patterns_of(model, tokens).double()  # (layer, batch, head, query, key)
        found = _statistics(patterns, tokens, asked, targets, causal=isinstance(model, Decoder))
        count += int(asked.sum())
        for name, values in found.items():  # (layer, batch, head, query)
            sums[name] += torch.einsum("lbhq,bq->lh", values, asked.double()).numpy()
    return {name: total / count for name, total in sums.items()}


def even_attention(
    texts: Texts, targets: Mapping[str, Sequence[int]], *, causal: bool
) -> dict[str, float]:
    """The statistics of `attention_atlas` for a head that attends uniformly to all it may see."""
    sums, count = dict.fromkeys((*STATISTICS, *targets), 0.0), 0
    for tokens, asked in zip(texts.groups, texts.ordinary(), strict=True):
        n = tokens.shape[1]
        seen = torch.ones(n, n, dtype=torch.float64)
        seen = seen.tril() if causal else seen
        even = (seen / seen.sum(-1, keepdim=True)).expand(1, len(tokens), 1, n, n)
        count += int(asked.sum())
        for name, values in _statistics(even, tokens, asked, targets, causal=causal).items():
            sums[name] += float((values[0, :, 0] * asked).sum())
    return {name: total / count for name, total in sums.items()}


def _statistics(
    patterns: Float[Tensor, "layer batch head query key"],
    tokens: Int[Tensor, "batch key"],
    text: Bool[Tensor, "batch key"],
    targets: Mapping[str, Sequence[int]],
    *,
    causal: bool,
) -> dict[str, Float[Tensor, "layer batch head query"]]:
    n = tokens.shape[1]
    place = torch.arange(n)
    apart = place[:, None] - place
    visible = (place + 1.0 if causal else torch.full((n,), float(n))).clamp_min(2).double()
    inside = patterns * text[:, None, None, :]
    weight = inside.sum(-1).clamp_min(1e-12)
    found = {
        "distance": (patterns * apart.abs()).sum(-1),
        "within": (inside * apart.abs()).sum(-1) / weight,
        "entropy": torch.special.entr(patterns).sum(-1) / visible.log(),
    }
    for name, offset in (("previous", 1), ("self", 0), ("next", -1)):
        found[name] = (patterns * (apart == offset)).sum(-1)
    for name, numbers in targets.items():
        meant = torch.isin(tokens, torch.tensor(list(numbers), dtype=tokens.dtype))
        found[name] = (patterns * meant[:, None, None, :]).sum(-1)
    return found


@torch.no_grad()
def patterns_of(
    model: Reader, tokens: Int[Tensor, "batch position"]
) -> Float[Tensor, "layer batch head query key"]:
    """The patterns of all layers."""
    with capture(model, "blocks.*.attention.pattern") as seen:
        model(tokens)
    return torch.stack(
        [seen[f"blocks.{i}.attention.pattern"] for i in range(model.config.n_layers)]
    )


@torch.no_grad()
def carried(
    model: Reader, texts: Texts, target: Sequence[int]
) -> tuple[Float[ndarray, "layer head"], Float[ndarray, "layer head"]]:
    r"""What a kind of token contributes to the heads that attend to it, relative to ordinary tokens.

    A head adds $\sum_k A_{qk} f(x_k)$ to a query's state, where $f$ is its value projection and its part of the
    output projection (with the values' bias; after Kobayashi et al., 2020).

    Args:
        model: an encoder or a decoder.
        texts: what it reads.
        target: numbers of the tokens in question.

    Returns:
        The mean length of f at these tokens over that at ordinary tokens; and the share of their part
        $\|A_{qk} f(x_k)\|$ in the sum of the lengths of all parts, mean over ordinary queries.
    """
    shape = (model.config.n_layers, model.config.n_heads)
    meant_sum, other_sum, shares = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    meant_count = other_count = 0
    for tokens, asked in zip(texts.groups, texts.ordinary(), strict=True):
        with capture(model, "blocks.*.attention.pattern", "blocks.*.attention.values") as seen:
            model(tokens)
        meant = torch.isin(tokens, torch.tensor(list(target), dtype=tokens.dtype))
        meant_count, other_count = meant_count + int(meant.sum()), other_count + int(asked.sum())
        for i in range(model.config.n_layers):
            attention = model.blocks[i].attention
            assert isinstance(attention, MultiHeadAttention)
            values = seen[f"blocks.{i}.attention.values"]
            values = values.repeat_interleave(attention.n_heads // attention.n_kv_heads, dim=1)
            by_head = attention.output.weight.unflatten(1, (attention.n_heads, attention.d_head))
            gram = torch.einsum("dhe,dhf->hef", by_head, by_head)
            squared = torch.einsum("bhke,hef,bhkf->bhk", values, gram, values)
            length = squared.clamp_min(0).sqrt().double()
            meant_sum[i] += (length * meant[:, None]).sum((0, 2)).numpy()
            other_sum[i] += (length * asked[:, None]).sum((0, 2)).numpy()
            parts = seen[f"blocks.{i}.attention.pattern"].double() * length[:, :, None]
            share = (parts * meant[:, None, None]).sum(-1) / parts.sum(-1)
            shares[i] += (share * asked[:, None]).sum((0, 2)).numpy()
    ratio = (meant_sum / meant_count) / (other_sum / other_count)
    return ratio, shares / other_count


# What the stream holds ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Words:
    """States of the ordinary tokens of texts, and where each of them stands.

    Attributes:
        states: from the embedding to the state behind the last block.
        tokens: their numbers.
        texts: which of the given sequences each stands in.
        places: position in the sequence, from 0.
    """

    states: Float[Tensor, "state word d_model"]
    tokens: Int[Tensor, "word"]
    texts: Int[Tensor, "word"]
    places: Int[Tensor, "word"]


def read_words(model: Reader, texts: Texts) -> Words:
    """Run a model on texts and keep the stream at every ordinary token."""
    return words_of([stream_of(model, group) for group in texts.groups], texts)


def words_of(streams: Sequence[Float[Tensor, "..."]], texts: Texts) -> Words:
    """Select the ordinary tokens from what `stream_of` gives for each group."""
    states, tokens, rows, places, first = [], [], [], [], 0
    for stream, group, asked in zip(streams, texts.groups, texts.ordinary(), strict=True):
        states.append(stream[:, asked])
        tokens.append(group[asked])
        where = asked.nonzero()
        rows.append(texts.order[first + where[:, 0]])
        places.append(where[:, 1])
        first += len(group)
    return Words(torch.cat(states, 1), torch.cat(tokens), torch.cat(rows), torch.cat(places))


@torch.no_grad()
def stream_of(
    model: Reader, tokens: Int[Tensor, "batch position"]
) -> Float[Tensor, "state batch position d_model"]:
    """The stream as embedded, and after each block."""
    names = ["embedding", *(f"blocks.{i}.residual_post" for i in range(model.config.n_layers))]
    with capture(model, *names) as seen:
        model(tokens)
    return torch.stack([seen[name] for name in names])


def outsized(states: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch"]:
    """The ratio of a state's largest magnitude to its median magnitude.

    >>> outsized(torch.tensor([[1.0, -8.0, 2.0], [2.0, 6.0, -1.0]])).tolist()
    [4.0, 3.0]
    """
    magnitude = states.abs()
    return magnitude.amax(-1) / magnitude.median(-1).values


def mean_cosine(states: Float[Tensor, "word d_model"], texts: Int[Tensor, "word"]) -> float:
    """Mean cosine between the states of words of different texts; 0 where directions have nothing in common.

    >>> mean_cosine(torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 0.0]]), torch.tensor([0, 0, 1]))
    0.5
    """
    unit = F.normalize(states.double(), dim=-1)
    number, sizes = texts.unique(return_inverse=True, return_counts=True)[1:]
    sums = torch.zeros(len(sizes), unit.shape[1], dtype=unit.dtype).index_add(0, number, unit)
    between = sums.sum(0).square().sum() - sums.square().sum()  # over pairs of different texts
    return float(between / (sizes.sum().square() - sizes.square().sum()))


KIN = ("token", "position", "text")
"""What two words may have in common, see `kinship`."""


def kinship(words: Words) -> Float[ndarray, "state kin"]:
    r"""The similarity of the states of two words that share one property.

    The mean of $\langle x_i - \mu, x_j - \mu \rangle$ over pairs of words, divided by the mean of
    $\|x_i - \mu\|^2$, with $\mu$ the mean of all states: 1 where the one thing decides the state, about 0
    where it says nothing. The pairs: the same token in two texts, at different positions; the same position in
    two texts, with different tokens; two different tokens in the same text.

    >>> x = torch.tensor([[[1.0], [-1.0], [1.0], [-1.0]]])  # two texts of two tokens; the token decides
    >>> words = Words(x, torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 0]))
    >>> kinship(words).tolist()
    [[1.0, -1.0, -1.0]]
    """
    token = words.tokens[:, None] == words.tokens
    text = words.texts[:, None] == words.texts
    place = words.places[:, None] == words.places
    pairs = (token & ~text & ~place, place & ~text & ~token, text & ~token)
    counted = [each.to(words.states) / each.sum() for each in pairs]
    found = []
    for x in words.states:
        centred = x - x.mean(0)
        gram = centred @ centred.T
        whole = gram.diagonal().mean()
        found.append([float((gram * each).sum() / whole) for each in counted])
    return np.array(found)


def cka(states: Float[Tensor, "state word d_model"]) -> Float[ndarray, "state state"]:
    r"""Linear centred kernel alignment of every two states (Kornblith et al., 2019).

    $\|X^\top Y\|_F^2 / (\|X^\top X\|_F \|Y^\top Y\|_F)$ with centred columns: 1 where one is the other,
    turned and scaled. With few more words than dimensions it is too large by chance; give many.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]])
    >>> cka(torch.stack((x, 2 * x.flip(-1)))).round(6).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    x = states - states.mean(1, keepdim=True)
    cross = torch.zeros(len(x), len(x), dtype=torch.float64)
    for i, one in enumerate(x):
        for j in range(i + 1):
            cross[i, j] = cross[j, i] = (one.T @ x[j]).double().square().sum()
    own = cross.diagonal().sqrt()
    found: ndarray = (cross / (own[:, None] * own)).numpy()
    return found


# Who is missed ------------------------------------------------------------------------------------


@torch.no_grad()
def sentence_vectors(model: Reader, texts: Texts) -> Float[Tensor, "text d_model"]:
    """One vector of length one for each sequence, in the order given: the mean of its final states."""
    found = torch.empty(len(texts.order), model.config.d_model)
    first = 0
    for group in texts.groups:
        with capture(model, "final_state") as seen:
            model(group)
        means = F.normalize(seen["final_state"].mean(1), dim=-1)
        found[texts.order[first : first + len(group)]] = means
        first += len(group)
    return found


def found_first(vectors: Float[Tensor, "text d_model"]) -> float:
    """Texts 2i and 2i + 1 belong together: mean over texts of 1 / the rank at which each finds its partner.

    The rank is that of the partner among all others, by the inner product; 1 when every partner comes first.

    >>> found_first(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]))
    1.0
    """
    n = len(vectors)
    likeness = (vectors @ vectors.T).fill_diagonal_(-torch.inf)
    partner = likeness[torch.arange(n), torch.arange(n) ^ 1]
    rank = (likeness > partner[:, None]).sum(1) + 1
    return float((1.0 / rank.double()).mean())


@torch.no_grad()
def vectors_without_heads(
    model: Reader, tokens: Int[Tensor, "text position"], how: How
) -> Float[Tensor, "layer head text d_model"]:
    """`sentence_vectors` of texts of one length, with each head ablated on its own.

    Args:
        model: an encoder or a decoder.
        tokens: the texts.
        how: `zero`: the head hands on nothing; `mean`: what it hands on at that position in the mean over these
            texts; `resample`: what it hands on in the next of them (see `analysis.ablation`).

    Raises:
        ValueError: when `how` is none of these.
    """
    if how not in ("zero", "mean", "resample"):
        raise ValueError(f"a head is taken away by zero, mean or resample; got {how!r}")
    positions = model.resolve_positions(tokens)
    x, rotation, score_bias = model.embed(tokens, positions)

    def run(block: nn.Module, x: Tensor) -> Tensor:
        after: Tensor = block(x, causal=model.causal, rotation=rotation, score_bias=score_bias)
        return after

    found = []
    for i, block in enumerate(model.blocks):
        with capture(block, "attention.mixed") as seen:
            after = run(block, x)
        mixed = seen["attention.mixed"]
        other = {"mean": mixed.mean(0, keepdim=True), "resample": mixed.roll(-1, 0)}.get(
            how, torch.zeros_like(mixed)
        )
        for head in range(model.config.n_heads):
            change = at(other.expand_as(mixed)[:, [head]], heads=head)
            with intervene(block, {"attention.mixed": change}):
                y = run(block, x)
            for later in model.blocks[i + 1 :]:
                y = run(later, y)
            found.append(F.normalize(model.apply_final_norm(y).mean(1), dim=-1))
        x = after
    return torch.stack(found).unflatten(0, (model.config.n_layers, model.config.n_heads))


@contextmanager
def skipped(model: Reader, block: int) -> Iterator[None]:
    """Run the model with one block replaced by the identity."""
    entered: list[Tensor] = []

    def enter(x: Tensor) -> Tensor:
        entered[:] = [x]
        return x

    changes = {
        f"blocks.{block}.residual_pre": enter,
        f"blocks.{block}.residual_post": lambda _: entered[0],
    }
    with intervene(model, changes):
        yield
