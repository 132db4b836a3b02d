"""The case study's table of heads: which of its rows a model has.

`look` runs a model on a batch and measures the heads of each of its attentions; `rows` asks of one model
which rows of the table it has, by thresholds that can all be moved at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.models.encoder import Encoder
from measured_transformer.models.encoder_decoder import EncoderDecoder
from measured_transformer.parts.attention import MultiHeadAttention, causal_mask
from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import Model, predict
from numpy import ndarray
from torch import Tensor

from measured_book.rooms.one_head.observing import (
    DECLARED,
    HeadTable,
    Observed,
    Patterns,
    Thresholds,
    depends_on_tokens,
    labels,
    memberships,
    observe,
    stability,
)

# Comparing heads ----------------------------------------------------------------------------------


def divergence(
    first: Float[Tensor, "*head query key"], second: Float[Tensor, "*head query key"]
) -> Float[Tensor, "*head"]:
    """Jensen-Shannon divergence of two patterns, mean over the queries, in units of its largest value.

    0 for equal rows, 1 for rows that share no key. Source: Lin (1991).

    >>> one = torch.eye(2)
    >>> divergence(one, one).item(), divergence(one, one.flip(0)).item()
    (0.0, 1.0)
    """
    first, second = first.double(), second.double()
    middle = torch.special.entr((first + second) / 2)
    apart = middle - (torch.special.entr(first) + torch.special.entr(second)) / 2
    return (apart.sum(-1).mean(-1) / math.log(2)).clamp(0, 1)


@dataclass(frozen=True)
class Apart:
    """How differently heads attend, as `divergence`, mean over the sequences.

    Two heads are compared on the same sequence, and a head with itself on the next sequence: two heads whose
    patterns vary, each in its own way, differ even where their mean patterns do not.

    Attributes:
        pairs: of every two heads of a model, each pair once.
        shared: the layer that the two share, from 0; -1 where they share none.
        itself: of each head from itself on another sequence, layer after layer.
    """

    pairs: Float[ndarray, "pair"]
    shared: Int[ndarray, "pair"]
    itself: Float[ndarray, "head"]

    def of_layer(self, layer: int) -> float:
        """Mean of the pairs of one layer."""
        return float(self.pairs[self.shared == layer].mean())


def apart(layers: Sequence[Patterns]) -> Apart:
    """Compare all heads of a model.

    Args:
        layers: the patterns of each layer, on the same sequences.

    >>> one = torch.eye(2).expand(3, 1, 2, 2)
    >>> found = apart([torch.cat([one, one], 1), torch.cat([one.flip(-1), one], 1)])
    >>> found.pairs.tolist(), found.shared.tolist(), found.itself.tolist()
    ([0.0, 1.0, 0.0, 1.0, 0.0, 1.0], [0, -1, -1, -1, -1, 1], [0.0, 0.0, 0.0, 0.0])
    """
    every = torch.cat(list(layers), 1)
    of_head = np.repeat(np.arange(len(layers)), [each.shape[1] for each in layers])
    one, other = torch.triu_indices(every.shape[1], every.shape[1], offset=1)
    return Apart(
        divergence(every[:, one], every[:, other]).mean(0).numpy(),
        np.where(of_head[one] == of_head[other], of_head[one], -1),
        divergence(every, every.roll(1, 0)).mean(0).numpy(),
    )


# The rows of the table ---------------------------------------------------------------------------

ROWS = ("next and first", "self", "content", "two mirrors", "several", "global")
"""The rows of the case study's table: the first three of layer 0, the others of layer 1."""


@dataclass(frozen=True)
class Attention:
    """The heads of one attention of a model, on a batch.

    Attributes:
        kind: `self`, or in an encoder-decoder `encoder`, `decoder` or `cross`.
        layer: number of its block.
        patterns: (example head query key).
        observed: their statistics; `mirror` among the masses is that on the token to be written.
        keys, queries: the tokens there, for an encoder-decoder's cross-attention of source and target.
    """

    kind: str
    layer: int
    patterns: Float[Tensor, "example head query key"]
    observed: Observed
    keys: Int[Tensor, "example key"]
    queries: Int[Tensor, "example query"]

    @property
    def table(self) -> HeadTable:
        """The means over the batch."""
        return self.observed.table()

    @property
    def maps(self) -> Float[Tensor, "head query key"]:
        """The mean pattern of each head, of the queries that count."""
        counts = self.observed.deviations.abs().sum((0, 1, 3)) > 0
        return self.patterns.mean(0)[:, counts]


@torch.no_grad()
def look(model: Model, batch: Batch) -> list[Attention]:
    """Measure every attention of a model that reverses, on sequences of its task.

    An encoder's position p is to attend to its mirror image in the sequence; so is the position of an
    encoder-decoder that writes the token p, in the source. In a decoder only, the queries that count are
    those that write; before them nothing is asked.
    """
    found = []
    with capture(model, "*attention.pattern") as seen:
        predict(model, batch)
    for name, patterns in seen.items():
        stack, block = name.split("blocks.")
        kind = stack.rstrip(".") or "self"
        if "cross_attention" in name:
            kind = "cross"
        found.append(_looked_at(kind, int(block.split(".")[0]), patterns.cpu(), model, batch))
    return sorted(found, key=lambda each: each.layer)


def _looked_at(kind: str, layer: int, patterns: Tensor, model: Model, batch: Batch) -> Attention:
    inputs, scored = batch.inputs.cpu(), batch.scored.cpu()
    keys = queries = inputs
    allowed: Tensor | None = None
    counts: Tensor | None = scored
    place = torch.arange(patterns.shape[2])
    mirror: Tensor | None = None
    if kind in ("encoder", "cross") and isinstance(model, EncoderDecoder):
        assert batch.source is not None
        keys = batch.source.cpu()
        queries = keys if kind == "encoder" else inputs
        mirror = keys.shape[1] - 1 - place
        counts = None
    elif kind == "self" and isinstance(model, Encoder):
        lengths = scored.sum(1, keepdim=True)
        mirror = torch.where(scored, lengths - 1 - place, -1)
        allowed = scored[:, None, :] & scored[:, :, None]
    else:
        allowed = causal_mask(len(place))
        if kind == "self":  # the answer's first token is written over the separator, in the middle
            mirror = len(place) - 1 - place
    groups = None
    if batch.padding_mask is not None:
        groups = batch.padding_mask.cpu().sum(1)
    targets = {} if mirror is None else {"mirror": mirror}
    observed = observe(patterns, allowed=allowed, queries=counts, targets=targets, groups=groups)
    return Attention(kind, layer, patterns, observed, keys, queries)


def rows(
    attentions: Sequence[Attention], generator: torch.Generator, *, factor: float = 1.0
) -> Mapping[str, bool]:
    """Which of `ROWS` a model of two layers has.

    A row counts as found when any attention of its layer has it, so that an encoder-decoder, with three
    attentions a layer, has three chances.

    Args:
        attentions: from `look`.
        generator: for the permutation test of `content`.
        factor: by which every threshold is multiplied.
    """
    first = [each for each in attentions if each.layer == 0]
    last = [(each.table, each) for each in attentions if each.layer == 1]
    mass = 0.5 * factor
    return {
        "next and first": any(_next_and_first(each.table, mass) for each in first),
        "self": any((each.table.masses["self"] > mass).any() for each in first),
        "content": any(_content(each, 0.2 * factor, generator) for each in first),
        "two mirrors": any(
            int((table.masses["mirror"] > mass).sum()) == 2
            for table, _ in last
            if "mirror" in table.masses
        ),
        "several": any(
            ((table.effective > 2 * factor) & (table.effective < 6 * factor)).any()
            for table, _ in last
        ),
        "global": any((1 - table.entropy < 0.1 * factor).any() for table, _ in last),
    }


def _next_and_first(table: HeadTable, mass: float) -> bool:
    """Two heads, one for each."""
    ahead, first = table.masses["offset 1"] > mass, table.masses["first"] > mass
    return bool(ahead.any() and first.any() and (ahead | first).sum() > 1)


def _content(attention: Attention, share: float, generator: torch.Generator) -> bool:
    moved = attention.table.place_share < share
    if not moved.any():
        return False
    p = depends_on_tokens(
        attention.patterns[:, moved], attention.keys, attention.queries, generator
    )
    return bool((p <= 0.05).any())


@dataclass(frozen=True)
class Heads:
    """What is kept of one attention: see `Attention`.

    Attributes:
        kind, layer, table: as there.
        maps: the mean pattern of each head.
    """

    kind: str
    layer: int
    table: HeadTable
    maps: Float[Tensor, "head query key"]


@dataclass(frozen=True)
class Study:
    """The heads of one model.

    Attributes:
        heads: one entry for each attention, layer by layer.
        found: for each factor of the thresholds which of `ROWS` the model has.
        stable: share of heads that keep their label when the sequences are drawn again.
    """

    heads: Sequence[Heads]
    found: Mapping[float, Mapping[str, bool]]
    stable: float

    def labels(self, thresholds: Thresholds = DECLARED) -> list[str]:
        """The label of every head, see `heads.labels`."""
        member = [memberships(each.table, thresholds) for each in self.heads]
        return [label for own in member for label in labels(own)]

    def roles(self) -> list[str]:
        """The class of every head for a reader: one of the four, `several`, `mirror` (in none), or `none`."""
        named = []
        for each in self.heads:
            nowhere = np.zeros(len(each.maps))
            mirrored = each.table.masses.get("mirror", nowhere) > DECLARED.mass
            for label, mirror in zip(labels(memberships(each.table)), mirrored, strict=True):
                if label == "none" and mirror:
                    named.append("mirror")
                else:
                    named.append("several" if "+" in label else label)
        return named

    def one_class(self, factors: Sequence[float]) -> float:
        """Share of heads that are in exactly one class, at every factor of the thresholds."""
        alone = [
            np.concatenate(
                [
                    memberships(each.table, DECLARED.times(factor)).sum(-1) == 1
                    for each in self.heads
                ]
            )
            for factor in factors
        ]
        return float(np.mean(np.all(alone, axis=0)))

    def statistic(self, name: str) -> Float[ndarray, "layer head"]:
        """One number a head of a model with one attention a layer: a statistic, or a mass by its name.

        Raises:
            KeyError: when there is no such mass.
        """
        return np.stack(
            [
                getattr(each.table, name) if hasattr(each.table, name) else each.table.masses[name]
                for each in self.heads
            ]
        )


def study(
    model: Model,
    batch: Batch,
    generator: torch.Generator,
    *,
    factors: Sequence[float] = (0.75, 1.0, 1.25),
) -> Study:
    """Look at a model of two layers, and keep what does not grow with the batch.

    Args:
        model: that reverses, trained or not.
        batch: of its task.
        generator: for samples and permutations.
        factors: by which the thresholds of `rows` are multiplied.
    """
    attentions = look(model, batch)
    return Study(
        [Heads(each.kind, each.layer, each.table, each.maps) for each in attentions],
        {factor: rows(attentions, generator, factor=factor) for factor in factors},
        float(np.mean([stability(each.observed, generator) for each in attentions])),
    )


def exchange_error(seed: int, *, exchange_outputs: bool = True) -> float:
    """Largest change of a random model's output when the heads of a layer trade places.

    Args:
        seed: of the weights, the tokens and the permutation.
        exchange_outputs: whether the columns of the output projection move along; as a control, not.
    """
    generator = torch.Generator().manual_seed(seed)
    n_heads, d_head = [(2, 8), (4, 4), (4, 8), (8, 4)][seed % 4]
    config = Config(vocab=11, d_model=n_heads * d_head, n_heads=n_heads, n_layers=2)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Encoder(config).double().eval()
    tokens = torch.randint(11, (3, 7), generator=generator)
    order = torch.randperm(n_heads, generator=generator)
    if order.tolist() == sorted(order.tolist()):
        order = order.roll(1)
    with torch.no_grad():
        before = model(tokens)
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                permute_heads(module, order, exchange_outputs=exchange_outputs)
        return float((model(tokens) - before).abs().max())


@torch.no_grad()
def permute_heads(
    attention: MultiHeadAttention, order: Int[Tensor, "head"], *, exchange_outputs: bool = True
) -> None:
    """Let head i take over the weights of head `order[i]`, in place.

    Raises:
        ValueError: when heads share keys and values.
    """
    if attention.n_kv_heads != attention.n_heads:
        raise ValueError(
            "heads trade places on their own when each has its keys and values, got "
            f"n_heads={attention.n_heads} and n_kv_heads={attention.n_kv_heads}"
        )
    taken = (order[:, None] * attention.d_head + torch.arange(attention.d_head)).flatten()
    for name in ("query", "key", "value"):
        projection = attention.get_submodule(name)
        for parameter in projection.parameters():
            parameter.copy_(parameter[taken].clone())
    if exchange_outputs:
        weight = attention.output.weight
        weight.copy_(weight[:, taken].clone())
