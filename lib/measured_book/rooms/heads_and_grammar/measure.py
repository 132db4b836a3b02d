r"""What the chapter on heads and the grammar measures: whether heads follow relations that are known.

A relation is a set of arcs, each from one word to another: from a verb to its subject. A head *predicts* for
each word that an arc can start at, here each verb, the key with its largest weight. A fixed offset predicts the
position so many words away, and nothing where the sequence does not reach so far. Both are scored by
$F_1 = 2 \cdot \text{right} / (\text{predicted} + \text{gold})$, which is the accuracy where each of these words
has its arc. Arcs have a direction: a noun that looks at its adjective does not count for the relation from the
adjective to the noun.

The head, and the offset, is chosen on one half of the sequences and scored on the other (`best`): the best of
sixteen by chance alone is better than one. What a head finds by habit is measured with `swapped` rows.

Sources: Clark et al. (2019), section 4.2, and Htut et al. (2019), who compare heads with fixed offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import comb
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from measured_transformer.analysis.ablation import ablated, heads
from measured_transformer.internals.capture import capture
from measured_transformer.models.config import Config
from measured_transformer.tasks.grammar import (
    INTRANSITIVE,
    RELATIONS,
    TAGS,
    TRANSITIVE,
    VOCABULARY,
    Grammar,
)
from measured_transformer.tasks.masked_words import MaskedWords
from measured_transformer.tasks.task import Batch, Task
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Model, Run, evaluate, make_model, predict
from measured_transformer.training.schedules import WarmupLinear
from measured_transformer.training.seeding import make_generator
from numpy import ndarray
from torch import Tensor

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

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


def swapped(
    looked: Int[Tensor, "example head query"], gold: Arcs, generator: torch.Generator
) -> Int[Tensor, "example head query"]:
    """Where heads look, with rows exchanged among those that have such a word at the same position.

    Habits of a head, distances and all, stay as they are; what it saw in this very row is gone. What it still
    finds, it finds by habit.
    """
    mixed = looked.clone()
    for query in range(looked.shape[-1]):
        rows = gold.start[:, query].nonzero()[:, 0]
        order = rows[torch.randperm(len(rows), generator=generator)]
        mixed[order, :, query] = looked[order.roll(1), :, query]
    return mixed


def best_of(tries: int, *, share: float, count: int) -> float:
    """Expected best share of right answers of several that guess, each right with chance `share`.

    Args:
        tries: how many guess.
        share: how often each is right.
        count: of questions.

    >>> round(best_of(1, share=0.2, count=10), 6), round(best_of(16, share=0.2, count=10), 2)
    (0.2, 0.44)
    """
    chances = [comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(count + 1)]
    below = np.minimum(np.cumsum(chances), 1.0)
    return float(sum(1 - below[k] ** tries for k in range(count)) / count)


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


def rivals(batch: Batch) -> Int[Tensor, "example query"]:
    """For each pronoun the noun of its sentence that it does not mean; -1 where there is none.

    Nouns of places do not count: no pronoun means one.
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


@cache
def _verb_forms() -> Float[Tensor, "number vocab"]:
    """Which words are singular verbs, and which plural ones; the mask is neither."""
    stems = INTRANSITIVE + TRANSITIVE
    numbers = ([stem + "s" for stem in stems], stems)
    words = (*VOCABULARY, "")
    return torch.tensor([[float(word in forms) for word in words] for forms in numbers])


@torch.no_grad()
def number_odds(model: Model, batch: Batch) -> Float[Tensor, "verb"]:
    """Log-odds of the right number against the wrong one, for each verb that is far from its subject.

    They are read where the verb is predicted: one position before it in a decoder, and in an encoder where it
    is hidden. The verbs of its number stand against the others, by their whole probability. Above zero the
    model prefers the right number; one that knows nothing about the subject does so half of the time.

    Args:
        model: a decoder, or an encoder.
        batch: of the grammar; for an encoder with its verbs hidden, see `hidden`.
    """
    asked = arcs(batch, "agreement").farther(2).start
    plural = batch.gold["number"][asked] == 1
    if model.config.vocab == len(VOCABULARY):
        asked = torch.cat([asked[:, 1:], torch.zeros_like(asked[:, :1])], 1)
    shares = predict(model, batch)[asked].double().softmax(-1)
    singular, other = (
        (shares @ _verb_forms()[:, : shares.shape[1]].double().T).clamp_min(1e-12).log().T
    )
    return torch.where(plural, other - singular, singular - other)


def number_without(
    model: Model, removed: Sequence[int], batch: Batch, reference: Batch
) -> Float[Tensor, "verb"]:
    """`number_odds` with heads, numbered through all layers, replaced by their mean on other sentences."""
    every = heads(model)
    with ablated(model, [every[head] for head in removed], "mean", reference=reference):
        return number_odds(model, batch)


# Two readers ----------------------------------------------------------------------------------------

LENGTH = 24
"""Words in a row."""
READERS = ("decoder", "encoder")
TASKS: dict[str, Task] = {"decoder": Grammar(LENGTH), "encoder": MaskedWords(LENGTH, share=0.3)}
"""What each is trained on."""
SCORED: dict[str, Task] = {"decoder": Grammar(LENGTH), "encoder": MaskedWords(LENGTH, share=0.2)}
"""What their losses are told for."""
STEPS = {"decoder": 400, "encoder": 3000}
RATES = (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
CONFIGS = {
    kind: Config(
        vocab=len(VOCABULARY) + (kind == "encoder"),
        d_model=64,
        d_ff=64,
        n_layers=2,
        n_heads=8,
        positions="rotary",
        rotary_base=10.0,
    )
    for kind in READERS
}
ROWS = 400
"""Rows that heads are chosen and scored on, half of them each."""


def trainings(seed: int) -> dict[str, Job]:
    """A decoder that predicts the next word and an encoder that fills gaps, each at the rate that suits it."""
    jobs = {}
    for kind in READERS:
        config, task, steps = CONFIGS[kind], TASKS[kind], STEPS[kind]
        options: dict[str, Any] = {"batch_size": 16, "schedule": WarmupLinear(20, steps)}
        search = Search(f"grammar-{kind}", config, task, RATES, tuning_seeds(2), steps, options)
        jobs[kind] = job(config, task, seed, steps=steps, learning_rate=tuned(search), **options)
    return jobs


def first_decoder(seed: int) -> dict[str, Job]:
    """The decoder of one seed."""
    return {"decoder": trainings(seed)["decoder"]}


def fresh(kind: str, seed: int) -> Model:
    """The model of a kind before its training."""
    return make_model(CONFIGS[kind], causal=kind == "decoder", seed=seed).eval()


def hidden(batch: Batch, relation: str) -> Batch:
    """The same rows with every word hidden that an arc of this relation can start at."""
    start = arcs(batch, relation).start
    return replace(batch, inputs=batch.inputs.masked_fill(start, MaskedWords(LENGTH).mask))


# Where heads look -----------------------------------------------------------------------------------

LOOKED_FOR = ("agreement", "far agreement", "reference", "adjective")
VIEWS = ("read", "predicted")
"""Where a word has been read, or where it is still to be predicted."""
BY = ("head", "offset", "untrained", "swapped")


def relation_arcs(batch: Batch, what: str) -> Arcs:
    """The arcs of one of `LOOKED_FOR`; far ones are longer than two words."""
    gold = arcs(batch, what.split()[-1])
    return gold.farther(2) if what.startswith("far ") else gold


def view(kind: str, batch: Batch, what: str, where: str) -> tuple[Batch, Arcs]:
    """The rows that a reader is shown, and the arcs to look for, in one of `VIEWS`.

    A word is predicted one position before it in a decoder; in an encoder, where it is hidden.
    """
    gold = relation_arcs(batch, what)
    if where == "read":
        return batch, gold
    if kind == "decoder":
        return batch, gold.earlier()
    return hidden(batch, what.split()[-1]), gold


def evaluation_batch(seed: int) -> Batch:
    """The sentences of one seed on which heads are scored."""
    return Grammar(LENGTH).batch(make_generator(seed, "evaluation"), ROWS)


def _found(kind: str, model: Model, seed: int) -> Float[ndarray, "view relation by"]:
    """F1 of the best head, the best offset, the best head before training, and that of swapped rows."""
    batch, untrained = evaluation_batch(seed), fresh(kind, seed)
    scores = np.zeros((len(VIEWS), len(LOOKED_FOR), len(BY)))
    for i, where in enumerate(VIEWS):
        for j, what in enumerate(LOOKED_FOR):
            shown, gold = view(kind, batch, what, where)
            looked = patterns(model, shown).argmax(-1)
            one = best(looked, gold)
            mixed = swapped(looked, gold, make_generator(seed, "samples"))
            before = best(patterns(untrained, shown).argmax(-1), gold)
            scores[i, j] = one.score, one.offset_score, before.score, best(mixed, gold).score
    return scores


def _preferred(kind: str, model: Model, seed: int) -> float:
    """How often the best head of pronouns prefers the noun that is meant, where there are two."""
    batch = evaluation_batch(seed)
    weights = patterns(model, batch)
    chosen = best(weights.argmax(-1), arcs(batch, "reference")).head
    other = Grammar(LENGTH).batch(make_generator(seed, "samples"), ROWS)
    return prefers_the_meant(patterns(model, other)[:, chosen], other)


def _second_noun(model: Model, seed: int) -> float:
    """How often an encoder's head for adjectives finds a noun that stands two words ahead."""
    batch = evaluation_batch(seed)
    gold, looked = arcs(batch, "adjective"), patterns(model, batch).argmax(-1)
    chosen = best(looked, gold).head
    return float(head_scores(looked[1::2, [chosen]], gold.farther(1).half(1))[0])


@measurement(
    seeds=10,
    coords={"reader": READERS, "view": VIEWS, "relation": LOOKED_FOR, "by": BY},
    trainings=trainings,
    repeat="opening",
    tolerance={"f1": 0.4, "prefers": 0.3, "second_noun": 0.4},
)
def found(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """How well the best head finds the word that another belongs to, beside what needs no grammar."""
    models = {kind: runs[kind].model for kind in READERS}
    return {
        "f1": (
            ("reader", "view", "relation", "by"),
            [_found(kind, model, seed) for kind, model in models.items()],
        ),
        "prefers": ("reader", [_preferred(kind, model, seed) for kind, model in models.items()]),
        "second_noun": _second_noun(models["encoder"], seed),
    }


@measurement(
    seeds=10,
    coords={"reader": READERS},
    trainings=trainings,
    repeat="opening",
    tolerance={"loss": 0.1, "floor": 1e-6, "constant": 1e-6},
)
def learned(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Losses of the two readers, and the least that is possible on the same rows."""
    gaps = MaskedWords(LENGTH, share=0.2)
    rows = gaps.batch(make_generator(seed, "evaluation"), 256)
    least = float(np.nanmean(gaps.ideal_losses(rows).numpy()))
    return {
        "loss": (
            "reader",
            [evaluate(runs[kind].model, SCORED[kind], seed=seed).loss for kind in READERS],
        ),
        "floor": ("reader", [Grammar(LENGTH).bayes_loss(), least]),
        "constant": gaps.constant_loss(),
    }


# The distances --------------------------------------------------------------------------------------

DISTANCES = tuple(range(-14, 4))


@measurement(seeds=10, coords={"relation": tuple(NAMES), "distance": DISTANCES})
def distances(seed: int) -> dict[str, Any]:
    """How many words the arrows of each relation span, and how often a pronoun has one noun to choose from."""
    batch = evaluation_batch(seed)
    gold = {relation: arcs(batch, relation) for relation in NAMES}
    spans = {relation: one.distances() for relation, one in gold.items()}
    alone = 1 - float((rivals(batch) >= 0).sum() / (gold["reference"].end >= 0).sum())
    return {
        "share": (
            ("relation", "distance"),
            [[float((spans[r] == d).mean()) for d in DISTANCES] for r in NAMES],
        ),
        "alone": alone,
    }


# The best of many -----------------------------------------------------------------------------------

FEW = 10
"""Rows that a head is chosen on by somebody in a hurry."""


@measurement(seeds=10, coords={"scored": ("same rows", "other rows")})
def chosen_on_few(seed: int) -> dict[str, Any]:
    """The best head of an untrained encoder for pronouns, chosen on ten rows: scored on them, and on others."""
    batch = evaluation_batch(seed)
    looked = patterns(fresh("encoder", seed), batch).argmax(-1)
    gold = arcs(batch, "reference")
    pairs = []
    for first in range(0, ROWS // 2, FEW):
        rows = slice(first, first + FEW)
        scores = head_scores(looked[rows], Arcs(gold.start[rows], gold.end[rows]))
        rest = Arcs(gold.start[ROWS // 2 :], gold.end[ROWS // 2 :])
        chosen = int(scores.argmax())
        pairs.append([scores[chosen], head_scores(looked[ROWS // 2 :, [chosen]], rest)[0]])
    return {"f1": ("scored", np.mean(pairs, 0))}


# Roles ----------------------------------------------------------------------------------------------

KINDS = ("next", "previous", "boundary")
SHARE = 0.5
"""From how much of its weight on a head has a role."""
MARGIN = 0.05
"""By how much a head must be better than the best offset to have found a relation."""


def _largest(weights: Float[Tensor, "example head query key"], batch: Batch) -> list[float]:
    """The weight that a head gives to each of `KINDS`: of the head that gives most on the other half."""
    edges = boundaries(batch)
    chosen, scored = (masses(weights[i::2], edges[i::2]) for i in (0, 1))
    return [float(scored[kind][chosen[kind].argmax()]) for kind in KINDS]


def without_role(
    weights: Float[Tensor, "example head query key"], batch: Batch
) -> Bool[ndarray, "head"]:
    """Which heads do nothing that has a name.

    They give no more than `SHARE` to the next position, the previous one or boundaries, and are not by
    `MARGIN` better than the best fixed offset for subjects or for referents.
    """
    looked = weights.argmax(-1)
    named = [mass > SHARE for mass in masses(weights, boundaries(batch)).values()]
    for relation in ("agreement", "reference"):
        gold = arcs(batch, relation)
        named.append(head_scores(looked, gold) >= max(offset_scores(gold).values()) + MARGIN)
    return ~np.any(named, axis=0)


@measurement(
    seeds=10,
    coords={"reader": READERS, "model": ("trained", "untrained"), "kind": KINDS},
    trainings=trainings,
    repeat="opening",
    tolerance={"weight": 0.4, "nameless": 8.0},
)
def roles(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The largest weight of a head on neighbours and boundaries, and how many heads have no role."""
    batch = evaluation_batch(seed)
    trained = [patterns(runs[kind].model, batch) for kind in READERS]
    before = [patterns(fresh(kind, seed), batch) for kind in READERS]
    return {
        "weight": (
            ("reader", "model", "kind"),
            [
                [_largest(each, batch) for each in pair]
                for pair in zip(trained, before, strict=True)
            ],
        ),
        "nameless": ("reader", [float(without_role(each, batch).sum()) for each in trained]),
    }


# Cuts -----------------------------------------------------------------------------------------------

REMOVED = (0, 1, 2, 4, 8, 12, 16)
ORDERS = ("best first", "random", "worst first")
ONES = ("best", "mean of the others", "most missed")


def far_subject_scores(kind: str, model: Model, seed: int) -> Float[ndarray, "head"]:
    """F1 of each head for far subjects, where the verb is predicted."""
    shown, gold = view(kind, evaluation_batch(seed), "far agreement", "predicted")
    return head_scores(patterns(model, shown).argmax(-1), gold)


def _cuts(kind: str, model: Model, seed: int) -> dict[str, Float[ndarray, "..."]]:
    batch, reference = (
        Grammar(LENGTH).batch(make_generator(seed, name), 150) for name in ("samples", "reference")
    )
    if kind == "encoder":
        batch, reference = hidden(batch, "agreement"), hidden(reference, "agreement")
    ranked = far_subject_scores(kind, model, seed).argsort(kind="stable")[::-1]
    shuffled = torch.randperm(len(ranked), generator=make_generator(seed, "samples")).numpy()
    orders = dict(zip(ORDERS, (ranked, shuffled, ranked[::-1]), strict=True))

    def odds(removed: Sequence[int]) -> Float[ndarray, "verb"]:
        return number_without(model, list(removed), batch, reference).numpy()

    curves = [[odds(order[:k].tolist()) for k in REMOVED] for order in orders.values()]
    whole = curves[0][0]
    single = np.array([odds([head]).mean() for head in range(len(ranked))])
    falls = whole.mean() - single
    others = np.delete(falls, ranked[0])
    return {
        "right": np.array([[(each > 0).mean() for each in curve] for curve in curves]),
        "odds": np.array([[each.mean() for each in curve] for curve in curves]),
        "fall": np.array([falls[ranked[0]], others.mean(), falls.max()]),
        "right_single": np.array(min(float((odds([head]) > 0).mean()) for head in ranked.tolist())),
    }


@measurement(
    seeds=10,
    coords={"reader": READERS, "order": ORDERS, "removed": REMOVED, "one": ONES},
    trainings=trainings,
    repeat="opening",
    tolerance={"right": 0.5, "odds": 5.0, "fall": 3.0, "right_single": 0.3},
)
def cuts(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """The number of verbs far from their subjects, when heads are replaced by their mean."""
    each = [_cuts(kind, runs[kind].model, seed) for kind in READERS]
    return {
        "right": (("reader", "order", "removed"), [one["right"] for one in each]),
        "odds": (("reader", "order", "removed"), [one["odds"] for one in each]),
        "fall": (("reader", "one"), [one["fall"] for one in each]),
        "right_single": ("reader", [one["right_single"] for one in each]),
    }


# One sentence ---------------------------------------------------------------------------------------

TEXT = "the old queen near the rivers sees one robot because it waits ."
SENTENCE = tuple(TEXT.split())
ARROWS = {"agreement": [(6, 2), (11, 10)], "reference": [(10, 8)], "adjective": [(1, 2)]}
FROM = ("rivers", "sees")


@torch.no_grad()
def sentence_patterns(model: Model) -> Float[Tensor, "head query key"]:
    """What all heads attend to in `SENTENCE`."""
    tokens = torch.tensor([[VOCABULARY.index(word) for word in SENTENCE]])
    with capture(model, "blocks.*.attention.pattern") as seen:
        model(tokens)
    return torch.cat(list(seen.values()), 1)[0]


@measurement(
    seeds=10,
    coords={"from_word": FROM, "head": tuple(range(16))},
    trainings=first_decoder,
    repeat="opening",
    tolerance={"weight": 1.0, "to_subject": 1.0},
)
def sentence(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """One sentence as a decoder attends to it: the head that finds far subjects best, from two words."""
    model = runs["decoder"].model
    seen = sentence_patterns(model)
    chosen = int(far_subject_scores("decoder", model, seed).argmax())
    rows = [SENTENCE.index(word) for word in FROM]
    return {
        "weight": (("from_word", "key"), seen[chosen, rows]),
        "to_subject": (("from_word", "head"), seen[:, rows, 2].T),
    }


@measurement(seeds=1, trainings=first_decoder, repeat="opening", tolerance={"weight": 1.0})
def maps(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """What all heads of one decoder attend to in one sentence, to a thousandth."""
    del seed
    seen = sentence_patterns(runs["decoder"].model).double()
    return {"weight": (("head", "query", "key"), (seen * 1000).round() / 1000)}
