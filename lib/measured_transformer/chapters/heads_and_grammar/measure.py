r"""Do heads follow the grammar? Scores of heads, and of fixed distances, against relations that are known.

A relation is a set of arcs, each from one word to another: from a verb to its subject. A head *predicts* for
each word that an arc can start at, here each verb, the key with its largest weight. A fixed offset predicts the
place so many words away, and nothing where the sequence does not reach so far. Both are scored by
$F_1 = 2 \cdot \text{right} / (\text{predicted} + \text{gold})$, which is the accuracy where each of these words
has its arc. Arcs have a direction: a noun that looks at its adjective does not count for the relation from the
adjective to the noun.

The head, and the offset, is chosen on one half of the sequences and scored on the other (`best`): the best of
sixteen by chance alone is better than one.

Sources: Clark et al. (2019), section 4.2, and Htut et al. (2019), who compare heads with fixed offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from measured_transformer.analysis.ablation import ablated, heads
from measured_transformer.internals.capture import capture
from measured_transformer.tasks.grammar import (
    INTRANSITIVE,
    RELATIONS,
    TAGS,
    TRANSITIVE,
    VOCABULARY,
)
from measured_transformer.tasks.task import Batch
from measured_transformer.training.loop import Model, predict

NAMES = {"agreement": "verb", "reference": "pronoun", "adjective": "adjective"}
"""The relations that are looked for, with the kind of word that each starts at."""


@dataclass(frozen=True)
class Arcs:
    """The arcs of one relation in a batch.

    Attributes:
        start: whether an arc can start at a place.
        end: where it ends; -1 where there is no arc.

    Raises:
        ValueError: when the shapes differ, or an arc ends where none can start.
    """

    start: Bool[Tensor, "example query"]
    end: Int[Tensor, "example query"]

    def __post_init__(self) -> None:
        if self.start.shape != self.end.shape or bool((self.end[~self.start] != -1).any()):
            raise ValueError(
                "expected starts and ends of one shape, and an end of -1 where no arc can start; got "
                f"shapes {tuple(self.start.shape)} and {tuple(self.end.shape)}"
            )

    def half(self, which: int) -> Arcs:
        """Those of the sequences with an even number (0) or with an odd one (1)."""
        return Arcs(self.start[which::2], self.end[which::2])

    def earlier(self) -> Arcs:
        """The same ends, looked for from one place earlier: from where the next word is predicted.

        An arc that would start before the sequence is left out, and so is one that would end ahead of its
        start.
        """
        start = torch.zeros_like(self.start)
        start[:, :-1] = self.start[:, 1:]
        end = torch.full_like(self.end, -1)
        end[:, :-1] = self.end[:, 1:]
        ahead = end > torch.arange(end.shape[1])
        return Arcs(start & ~ahead, end.masked_fill(ahead, -1))

    def farther(self, than: int) -> Arcs:
        """Only those starts whose arc is longer than so many words."""
        here = torch.arange(self.end.shape[1])
        long = (self.end >= 0) & ((self.end - here).abs() > than)
        return Arcs(self.start & long, self.end.masked_fill(~long, -1))

    def distances(self) -> Int[ndarray, "arc"]:
        """End less start of each arc."""
        here = torch.arange(self.end.shape[1]).expand_as(self.end)
        return (self.end - here)[self.end >= 0].numpy()


def arcs(batch: Batch, relation: str) -> Arcs:
    """The arcs of one of `NAMES` in sentences of the grammar.

    Raises:
        ValueError: when there is no such relation, or the batch has no gold arcs.

    >>> from measured_transformer.tasks.grammar import Grammar
    >>> batch = Grammar(length=12).batch(torch.Generator().manual_seed(5), 1)
    >>> Grammar().text(batch.inputs[0])
    'every uncle that needs some towers finds the nun while she arrives'
    >>> arcs(batch, "agreement").end.tolist()
    [[-1, -1, -1, 1, -1, -1, 1, -1, -1, -1, -1, 10]]
    """
    if relation not in NAMES or not {"head", "relation", "tag"} <= set(batch.gold):
        raise ValueError(
            f"expected a batch of the grammar and one of {', '.join(NAMES)}, got {relation!r} and a batch "
            f"that knows {', '.join(batch.gold) or 'nothing'}"
        )
    start = batch.gold["tag"] == TAGS.index(NAMES[relation])
    own = start & (batch.gold["relation"] == RELATIONS.index(relation))
    return Arcs(start, batch.gold["head"].masked_fill(~own, -1))


@torch.no_grad()
def patterns(model: Model, batch: Batch) -> Float[Tensor, "example head query key"]:
    """What all heads attend to, layer after layer along the head axis."""
    with capture(model, "blocks.*.attention.pattern") as seen:
        predict(model, batch)
    return torch.cat(list(seen.values()), 1)


def f1(predicted: Int[Tensor, "*example query"], gold: Arcs) -> float:
    """F1 of predicted ends; a prediction of -1 is none, and what is predicted for other words does not count.

    >>> gold = Arcs(torch.tensor([[False, True, True]]), torch.tensor([[-1, 0, -1]]))
    >>> f1(torch.tensor([[0, 0, 0]]), gold)  # one right, two predicted, one to be found
    0.6666666666666666
    """
    made = int((predicted[gold.start] >= 0).sum())
    there = gold.end >= 0
    right = int((predicted[there] == gold.end[there]).sum())
    return 2 * right / (made + int(there.sum())) if made + int(there.sum()) else 0.0


def head_scores(looked: Int[Tensor, "example head query"], gold: Arcs) -> Float[ndarray, "head"]:
    """F1 of each head, from the key that it gives most weight: `patterns(model, batch).argmax(-1)`."""
    there = gold.end >= 0
    right = ((looked == gold.end[:, None]) & there[:, None]).sum((0, 2)).double()
    return (2 * right / (gold.start.sum() + there.sum()).clamp_min(1)).numpy()


def offset_scores(gold: Arcs) -> dict[int, float]:
    """F1 of each fixed offset, backwards (negative) and forwards.

    >>> gold = Arcs(torch.tensor([[False, True, True]]), torch.tensor([[-1, 0, 0]]))
    >>> {offset: round(score, 2) for offset, score in offset_scores(gold).items()}
    {-2: 0.67, -1: 0.5, 0: 0.0, 1: 0.0, 2: 0.0}
    """
    n = gold.end.shape[1]
    starts = gold.start.nonzero()[:, 1].numpy()
    distances = gold.distances()
    found = {}
    for offset in range(1 - n, n):
        made = int(((starts + offset >= 0) & (starts + offset < n)).sum())
        right = int((distances == offset).sum())
        found[offset] = 2 * right / max(made + len(distances), 1)
    return found


@dataclass(frozen=True)
class Best:
    """The best head for a relation and the best fixed offset, chosen on one half of the sequences.

    Attributes:
        head: its number, through all layers.
        score: its F1 on the other half.
        offset: the best fixed offset.
        offset_score: its F1 on the other half.
    """

    head: int
    score: float
    offset: int
    offset_score: float


def best(looked: Int[Tensor, "example head query"], gold: Arcs) -> Best:
    """Choose head and offset on the sequences with even numbers, score them on those with odd ones."""
    chosen, scored = gold.half(0), gold.half(1)
    head = int(head_scores(looked[::2], chosen).argmax())
    offsets = offset_scores(chosen)
    offset = max(offsets, key=lambda each: offsets[each])
    return Best(
        head,
        float(head_scores(looked[1::2, [head]], scored)[0]),
        offset,
        offset_scores(scored)[offset],
    )


def boundaries(batch: Batch) -> Bool[Tensor, "example key"]:
    """Where a sentence ends or the sequence begins: full stops and the first word."""
    found = batch.inputs == VOCABULARY.index(".")
    found[:, 0] = True
    return found


def masses(
    weights: Float[Tensor, "example head query key"], boundary: Bool[Tensor, "example key"]
) -> dict[str, Float[ndarray, "head"]]:
    """Mean weight of each head on the next and on the previous position and on boundaries.

    Each mean is over those queries that have such a key: all but the last, all but the first, and those that
    are no boundary themselves.
    """
    w = weights.double()
    on_boundary = (w * boundary[:, None, None, :]).sum(-1).transpose(1, 2)[~boundary]
    return {
        "next": w.diagonal(1, 2, 3).mean((0, 2)).numpy(),
        "previous": w.diagonal(-1, 2, 3).mean((0, 2)).numpy(),
        "boundary": on_boundary.mean(0).numpy(),
    }


@dataclass(frozen=True)
class Looked:
    """What the heads of one model were seen to do.

    Attributes:
        best: relation -> the best head and the best fixed offset.
        scores: relation -> F1 of each head on the sequences that `best` scores on.
        masses: as of `masses`.
    """

    best: dict[str, Best]
    scores: dict[str, Float[ndarray, "head"]]
    masses: dict[str, Float[ndarray, "head"]]

    def no_role(
        self, relations: Sequence[str], *, share: float = 0.5, margin: float = 0.05
    ) -> Bool[ndarray, "head"]:
        """Which heads do nothing that has a name.

        They give no more than `share` to the next position, the previous one or boundaries, and are not by
        `margin` better than the best fixed offset at any of these relations.
        """
        kinds = [mass > share for mass in self.masses.values()]
        found = [self.scores[r] >= self.best[r].offset_score + margin for r in relations]
        return ~np.any(kinds + found, axis=0)


def look_at(model: Model, batch: Batch, gold: Mapping[str, Arcs]) -> Looked:
    """Score all heads of a model against these relations, and say where their weight goes.

    Args:
        model: trained or not.
        batch: sentences.
        gold: relation -> its arcs in them.
    """
    weights = patterns(model, batch)
    looked = weights.argmax(-1)
    return Looked(
        {name: best(looked, own) for name, own in gold.items()},
        {name: head_scores(looked[1::2], own.half(1)) for name, own in gold.items()},
        masses(weights, boundaries(batch)),
    )


def rivals(batch: Batch) -> Int[Tensor, "example query"]:
    """For each pronoun the noun of its sentence that it does not mean; -1 where there is none.

    Places do not count: no pronoun means one.
    """
    meant = arcs(batch, "reference").end
    found = torch.full_like(meant, -1)
    noun, stop = (batch.gold["tag"] == TAGS.index(kind) for kind in ("noun", "stop"))
    for row, query in (meant >= 0).nonzero().tolist():
        ends = stop[row, :query].nonzero()
        start = int(ends[-1]) + 1 if len(ends) else 0
        for place in range(start, query):
            if noun[row, place] and place != meant[row, query]:
                found[row, query] = place
    return found


def prefers_the_meant(weights: Float[Tensor, "example query key"], batch: Batch) -> float:
    """How often a head gives the noun that a pronoun means more weight than its rival; by chance, half."""
    meant, other = arcs(batch, "reference").end, rivals(batch)
    asked = other >= 0
    own, against = (weights[asked].gather(1, end[asked][:, None]) for end in (meant, other))
    return float((own > against).double().mean())


# What a head is good for ----------------------------------------------------------------------------


@torch.no_grad()
def number_right(model: Model, batch: Batch, *, far: bool) -> float:
    """Share of verbs to come for which the model prefers the right number over the wrong one.

    The preference is read where the verb is predicted, one place before it: the verbs of its number against the
    others, by their whole probability. A model that knows nothing about the subject is right half of the time.

    Args:
        model: a causal one.
        batch: of the grammar.
        far: only verbs that stand more than two places behind their subject, after a place whose number says
            nothing; else all.
    """
    gold = arcs(batch, "agreement")
    asked = (gold.farther(2) if far else gold).start[:, 1:]
    shares = predict(model, batch).softmax(-1)[:, :-1][asked]
    plural = batch.gold["number"][:, 1:][asked] == 1
    forms = _verb_forms()
    return float(((shares @ forms[1] > shares @ forms[0]) == plural).double().mean())


def _verb_forms() -> Float[Tensor, "number vocab"]:
    """Which words are singular verbs, and which plural ones."""
    stems = INTRANSITIVE + TRANSITIVE
    numbers = ([stem + "s" for stem in stems], stems)
    return torch.tensor([[float(word in forms) for word in VOCABULARY] for forms in numbers])


def number_right_without(
    model: Model, removed: Sequence[int], batch: Batch, reference: Batch, *, far: bool
) -> float:
    """`number_right` with heads, numbered through all layers, replaced by their mean on other sentences."""
    every = heads(model)
    with ablated(model, [every[number] for number in removed], "mean", reference=reference):
        return number_right(model, batch, far=far)
