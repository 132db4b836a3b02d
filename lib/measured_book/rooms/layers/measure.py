"""What the chapter on layers in order measures: where each layer looks, what is known there, what is missed.

Twelve-layer decoders that were trained on sentences, on the same sentences with their words shuffled, or not
at all. Statistics of attention and states of the stream are those of `analysis.layers`: patterns are (...,
query, key) of a causal model, and the first position, which has no choice, is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.ablation import Component, effects
from measured_transformer.analysis.ablation import loss as mean_loss
from measured_transformer.analysis.grammar_probes import (
    PRONOUN_LABEL,
    PRONOUNS,
    agreement_examples,
    probe_by_depth,
    pronoun_examples,
)
from measured_transformer.analysis.handmade import Layout, attentions, empty_model, set_head
from measured_transformer.analysis.layers import (
    STATISTICS,
    attention_by_layer,
    gini,
    mean_distance,
    patterns_of,
    relative_entropy,
    states_by_depth,
)
from measured_transformer.internals.at import at
from measured_transformer.internals.intervene import intervene
from measured_transformer.models.config import Config
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.grammar import INTRANSITIVE, TAGS, TRANSITIVE, VOCABULARY, Grammar
from measured_transformer.tasks.shuffled import ShuffledSentences
from measured_transformer.tasks.task import Batch, Task
from measured_transformer.training.jobs import Job
from measured_transformer.training.loop import Run, evaluate, make_model
from measured_transformer.training.losses import cross_entropy
from measured_transformer.training.schedules import WarmupLinear
from measured_transformer.training.seeding import make_generator
from numpy import ndarray
from torch import Tensor

from measured_book.measuring import Search, job, measurement, tuned, tuning_seeds

# Where a layer looks ------------------------------------------------------------------------------


def row_statistics(weights: Sequence[float]) -> dict[str, float]:
    """Distance, entropy and Gini coefficient of a single row: of the last position's weights on all positions.

    >>> row_statistics([0.0, 0.5, 0.0, 0.5])
    {'distance': 1.0, 'entropy': 0.5, 'gini': 0.666667}
    """
    n = len(weights)
    pattern = torch.zeros(n, n, dtype=torch.float64)
    pattern[1:, 0] = 1.0  # single keys, so that only the last row has any entropy
    pattern[-1] = torch.tensor(list(weights))
    others = n - 2  # rows but the first and the last
    return {
        "distance": round(mean_distance(pattern) * (n - 1) - sum(range(1, n - 1)), 6),
        "entropy": round(relative_entropy(pattern) * (n - 1), 6),
        "gini": round(gini(pattern) * (n - 1) - others, 6),
    }


def locality(patterns: list[Float[Tensor, "batch head query key"]]) -> Float[Tensor, "offset"]:
    """How much weight falls on each offset, mean over all layers, heads, sequences and rows that have it.

    The row of the first position is left out. Sums to one or more: short rows know only small offsets.
    """
    stacked = torch.stack([p.double().mean((0, 1)) for p in patterns]).mean(0)[1:]
    n = stacked.shape[-1]
    rows = torch.arange(1, n)
    back = rows[:, None] - torch.arange(n)
    total = torch.zeros(n, dtype=torch.float64)
    total.index_add_(0, back[back >= 0], stacked[back >= 0])
    return total / torch.bincount(back[back >= 0], minlength=n)


def random_attention(
    profile: Float[Tensor, "offset"], shape: tuple[int, ...], generator: torch.Generator
) -> Float[Tensor, "*batch query key"]:
    """Patterns that attend at random with a given locality, and with no regard to layer or token.

    Each row picks one key. A key at offset o is picked with a chance in proportion to `profile[o]`, among the
    keys that the row may see; a row that sees no offset of the profile picks any key.

    Args:
        profile: weight of each offset, such as that of `locality`.
        shape: of the axes before query and key.
        generator: of the picks.
    """
    n = len(profile)
    place = torch.arange(n)
    back = place[:, None] - place
    chance = torch.where(back >= 0, profile[back.clamp_min(0)], 0.0)
    chance[chance.sum(-1) == 0] = (back >= 0).to(chance)[chance.sum(-1) == 0]
    count = int(np.prod(shape))
    picks = torch.multinomial(chance, count, replacement=True, generator=generator)
    one = torch.nn.functional.one_hot(picks.T, n).double()
    return one.reshape(*shape, n, n)


def null_distances(
    patterns: list[Float[Tensor, "batch head query key"]], generator: torch.Generator
) -> Float[ndarray, "layer"]:
    """The mean distances of a model of the same locality whose layers have no order, by one draw.

    Every head of every layer attends at random by the locality of all layers together.

    Args:
        patterns: of the model that is copied, layer by layer.
        generator: of the picks.
    """
    profile, shape = locality(patterns), tuple(patterns[0].shape[:2])
    found = [mean_distance(random_attention(profile, shape, generator)) for _ in patterns]
    return np.array(found)


def thirds(values: Float[ndarray, "layer"]) -> tuple[float, float, float]:
    """The means of the first, the middle and the last third of the layers.

    Raises:
        ValueError: when the number of layers cannot be divided by three.

    >>> thirds(np.array([1.0, 3.0, 5.0, 5.0, 0.0, 2.0]))
    (2.0, 5.0, 1.0)
    """
    if len(values) % 3:
        raise ValueError(f"thirds need a number of layers that three divides, got {len(values)}")
    first, middle, last = np.asarray(values, dtype=float).reshape(3, -1).mean(1).tolist()
    return first, middle, last


def first_mass(pattern: Float[Tensor, "*batch query key"]) -> float:
    """Mean weight on the first token, over all rows but its own."""
    return float(pattern[..., 1:, 0].double().mean())


# What a layer adds --------------------------------------------------------------------------------


def evened(pattern: Float[Tensor, "*batch query key"]) -> Float[Tensor, "*batch query key"]:
    """The pattern of a causal head that looks at nothing in particular.

    >>> evened(torch.eye(2)).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    seen = torch.ones_like(pattern).tril()
    return seen / seen.sum(-1, keepdim=True)


def rise_when_even(
    model: Decoder, batch: Batch, layers: Sequence[int], head: int | None = None
) -> float:
    """By how many nats the loss rises when layers, or one head of each, attend evenly to all they may see.

    Args:
        model: trained.
        batch: what the loss is measured on.
        layers: from 0; all of them at once.
        head: only this head of each layer; all heads when None.
    """
    change = evened if head is None else at(evened, heads=head)
    whole = mean_loss(model, batch)
    with intervene(model, {f"blocks.{i}.attention.pattern": change for i in layers}):
        return mean_loss(model, batch) - whole


def rise_without_all(
    model: Decoder, batch: Batch, reference: Batch, groups: Sequence[Sequence[int]]
) -> Float[ndarray, "group"]:
    """The same as `rise_without`, for groups of layers that are taken away together.

    Args:
        model: trained.
        batch: what the loss is measured on.
        reference: other sequences of the same length.
        groups: layers from 0.
    """
    writes = [
        [
            Component(f"blocks.{i}.{part}.out")
            for i in group
            for part in ("attention", "feedforward")
        ]
        for group in groups
    ]
    return effects(model, writes, batch, reference=reference, metric=mean_loss)


def rise_without(model: Decoder, batch: Batch, reference: Batch) -> Float[ndarray, "layer"]:
    """By how many nats the loss rises when all that a layer writes is replaced by its mean.

    What attention and feed-forward network write is replaced, position by position, by its mean over the
    sequences of `reference`, taken from the whole model; one layer at a time.

    Args:
        model: trained.
        batch: what the loss is measured on.
        reference: other sequences of the same length.
    """
    writes = [
        [Component(f"blocks.{i}.attention.out"), Component(f"blocks.{i}.feedforward.out")]
        for i in range(model.config.n_layers)
    ]
    return effects(model, writes, batch, reference=reference, metric=mean_loss)


@dataclass(frozen=True)
class Lens:
    """What the final norm and the unembedding read from the stream at each depth.

    Attributes:
        agreement: share of positions at which the most likely next word is the one that the whole model names.
        kinds: the same for the most likely kind of word.
        loss: cross-entropy of what is read, in nats per scored position.
    """

    agreement: Float[ndarray, "state"]
    kinds: Float[ndarray, "state"]
    loss: Float[ndarray, "state"]


@torch.no_grad()
def lens(model: Decoder, batch: Batch, kind: Int[Tensor, "vocab"]) -> Lens:
    """Read predictions early: from the stream as embedded, and after each block (the last is the model's own).

    Known as the logit lens (nostalgebraist, 2020).

    Args:
        model: whose stream is read.
        batch: of its task.
        kind: number of each word's kind, such as `word_kinds`; a kind is as likely as its words together.
    """
    read = [model.unembed(state) for state in states_by_depth(model, batch)]
    of_kind = torch.nn.functional.one_hot(kind).to(read[0])
    named = [(each.argmax(-1), (each.softmax(-1) @ of_kind).argmax(-1)) for each in read]
    agreement, kinds = (
        np.array([float((each[i] == named[-1][i]).double().mean()) for each in named])
        for i in (0, 1)
    )
    losses = [float(cross_entropy(each, batch.targets, batch.scored)) for each in read]
    return Lens(agreement, kinds, np.array(losses))


def word_kinds(batch: Batch) -> Int[Tensor, "vocab"]:
    """The kind of each of the grammar's words: its tag together with its number.

    Words that are not in the batch are of kind 0.

    Args:
        batch: of the grammar, large enough to have all words.
    """
    found = torch.zeros(len(VOCABULARY), dtype=torch.int64)
    # Three numbers: singular, plural, and none, which is -1.
    found[batch.inputs] = 1 + 3 * batch.gold["tag"] + batch.gold["number"] + 1
    return found


# What a model has learnt --------------------------------------------------------------------------


@torch.no_grad()
def agreement_learnt(model: Decoder, batch: Batch) -> float:
    """Share of `agreement_examples` whose last word has the wrong number and the verb yet the right one.

    The verb has the number whose verbs are more likely, all of them together.
    """
    found = agreement_examples(batch)
    misleading = batch.gold["number"][found.rows, found.places] != found.labels
    chances = model(batch.inputs)[found.rows, found.places].softmax(-1)
    stems = (*INTRANSITIVE, *TRANSITIVE)
    singular = chances[:, [VOCABULARY.index(stem + "s") for stem in stems]].sum(-1)
    plural = chances[:, [VOCABULARY.index(stem) for stem in stems]].sum(-1)
    right = (plural > singular).long() == found.labels
    return float(right[misleading].double().mean())


@torch.no_grad()
def pronouns_learnt(model: Decoder, batch: Batch) -> float:
    """Of the chance that a model gives to pronouns where one comes, the share on those that may come.

    A pronoun may come when it can mean the sentence's subject or its object.
    """
    rows, places = (batch.gold["tag"] == TAGS.index("conjunction")).nonzero(as_tuple=True)
    chances = model(batch.inputs)[rows, places].softmax(-1)
    chances = chances[:, [VOCABULARY.index(pronoun) for pronoun in PRONOUNS]]
    fitting = torch.zeros_like(chances)
    for i, (row, place) in enumerate(zip(rows.tolist(), places.tolist(), strict=True)):
        before = batch.inputs[row, :place]
        stops = (before == VOCABULARY.index(".")).nonzero()
        start = int(stops[-1]) + 1 if len(stops) else 0
        noun = batch.gold["tag"][row, start:place] == TAGS.index("noun")
        for token, one in zip(
            before[start:][noun], batch.gold["number"][row, start:place][noun], strict=True
        ):
            meant = PRONOUNS.index("they") if one == 1 else int(PRONOUN_LABEL[token])
            fitting[i, meant] = 1
    return float(((chances * fitting).sum(-1) / chances.sum(-1)).double().mean())


# Two models written by hand -----------------------------------------------------------------------


def carrying_model(what: str, *, vocab: int, length: int, n_classes: int = 2) -> Decoder:
    """Two blocks, of which the second carries the word one place back, or only its class, to each place.

    The class of word w is w modulo `n_classes`. Block 1 does nothing. A linear probe finds the class after
    block 2 of either model; but one of them has only moved the word.

    Args:
        what: `word` or `class`.
        vocab: number of different words.
        length: largest number of positions.
        n_classes: number of classes.

    Raises:
        ValueError: when `what` is neither of the two.
    """
    if what not in ("word", "class"):
        raise ValueError(f"a hand-made model carries a 'word' or a 'class', got {what!r}")
    layout = Layout(vocab, length)
    model = empty_model(layout, n_layers=2, n_heads=1, causal=True)
    assert isinstance(model, Decoder)
    pick = torch.eye(layout.width, dtype=torch.float64)
    place, token = pick[:, layout.place], pick[:, layout.token]
    before = torch.diag(torch.ones(length - 1, dtype=torch.float64), -1)
    into = pick[:, layout.note(0)].T
    carried = torch.eye(vocab, dtype=torch.float64)
    if what == "class":
        carried = torch.nn.functional.one_hot(torch.arange(vocab) % n_classes, vocab).double()
    set_head(
        attentions(model)[1], 0, query=60 * place @ before, key=place, value=token,
        output=carried @ into,
    )  # fmt: skip
    return model


# Twelve layers, three kinds of model --------------------------------------------------------------

GRAMMAR = Grammar(length=24, attractor=0.5, reference=0.9)
TASKS: Mapping[str, Task] = {"sentences": GRAMMAR, "shuffled": ShuffledSentences(GRAMMAR)}
"""What each trained kind of model learns."""
KINDS = (*TASKS, "untrained")
CONFIG = Config(vocab=GRAMMAR.vocab, n_layers=12, d_model=64, d_ff=64, n_heads=4, bias=False)
LAYERS = tuple(range(1, CONFIG.n_layers + 1))
STATES = (0, *LAYERS)
THIRDS = ("first", "middle", "last")
IN_THIRDS = tuple(tuple(range(4 * i, 4 * i + 4)) for i in range(3))
"""The layers of each third, from 0."""
RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
STEPS = 250
LOOKED_AT, PROBED = 150, 600
"""Sequences for attention and losses, and for probes."""
PROPERTIES = ("agreement", "pronouns")


def trainings(seed: int) -> dict[str, Job]:
    """One model of each trained kind, at the learning rate that suits it."""
    options = {"batch_size": 16, "schedule": WarmupLinear(25, STEPS)}
    jobs = {}
    for kind, task in TASKS.items():
        search = Search(f"layers-{kind}", CONFIG, task, RATES, tuning_seeds(2), STEPS, options)
        jobs[kind] = job(CONFIG, task, seed, steps=STEPS, learning_rate=tuned(search), **options)
    return jobs


def models_of(runs: Mapping[str, Run], seed: int) -> dict[str, Any]:
    """The model of each of `KINDS`."""
    fresh = make_model(CONFIG, causal=True, seed=seed).eval()
    return {**{kind: runs[kind].model for kind in TASKS}, "untrained": fresh}


@measurement(
    seeds=10,
    coords={"kind": KINDS, "layer": LAYERS},
    trainings=trainings,
    repeat="opening",
    tolerance={
        "distance": 4.0,
        "adjacent": 0.3,
        "entropy": 0.6,
        "gini": 0.6,
        "first": 0.5,
        "own_distance": 4.0,
        "own_entropy": 0.6,
        "null": 4.0,
        "loss": 0.3,
        "agreement": 0.6,
        "pronouns": 0.5,
    },
)
def looking(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """Where the layers of three kinds of model look, all of them reading sentences; and what they have learned.

    Beside them a null that attends at random with the locality of the model trained on sentences, and the
    statistics of the model trained on shuffled words reading shuffled words.
    """
    models = models_of(runs, seed)
    few = GRAMMAR.batch(make_generator(seed, "attention"), LOOKED_AT)
    many = GRAMMAR.batch(make_generator(seed, "evaluation"), PROBED)
    looks = [attention_by_layer(model, few) for model in models.values()]
    patterns = [patterns_of(model, few) for model in models.values()]
    mixed = TASKS["shuffled"].batch(make_generator(seed, "attention"), LOOKED_AT)
    own = attention_by_layer(models["shuffled"], mixed)
    losses = [
        evaluate(model, TASKS.get(kind, GRAMMAR), seed=seed).loss for kind, model in models.items()
    ]
    return {
        **{name: (("kind", "layer"), [look[name] for look in looks]) for name in STATISTICS},
        "first": (("kind", "layer"), [[first_mass(p) for p in each] for each in patterns]),
        "own_distance": ("layer", own["distance"]),
        "own_entropy": ("layer", own["entropy"]),
        "null": ("layer", null_distances(patterns[0], make_generator(seed, "null"))),
        "loss": ("kind", losses),
        "agreement": ("kind", [agreement_learnt(model, many) for model in models.values()]),
        "pronouns": ("kind", [pronouns_learnt(model, many) for model in models.values()]),
    }


@measurement(
    seeds=10,
    coords={"kind": KINDS, "what": PROPERTIES, "state": STATES},
    trainings=trainings,
    repeat="opening",
    tolerance={"accuracy": 0.6, "control": 0.3, "chance": 0.1},
)
def knowing(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """What probes and their controls read at each depth: the number of the subject, and its pronoun."""
    batch = GRAMMAR.batch(make_generator(seed, "evaluation"), PROBED)
    examples = {"agreement": agreement_examples(batch), "pronouns": pronoun_examples(batch)}
    found = [
        probe_by_depth(model, batch, examples, make_generator(seed, "control"))
        for model in models_of(runs, seed).values()
    ]
    axes = ("kind", "what", "state")
    return {
        "accuracy": (axes, [[each[what].accuracy for what in PROPERTIES] for each in found]),
        "control": (axes, [[each[what].control for what in PROPERTIES] for each in found]),
        "chance": (
            "what",
            [float(each.labels.bincount().max()) / len(each.labels) for each in examples.values()],
        ),
    }


HEADS = tuple(range(1, CONFIG.n_heads + 1))


@measurement(
    seeds=10,
    coords={"kind": tuple(TASKS), "layer": LAYERS, "head": HEADS, "third": THIRDS, "state": STATES},
    trainings=trainings,
    repeat="opening",
    tolerance={
        "distance": 12.0,
        "entropy": 1.0,
        "head_rise": 0.5,
        "even": 1.0,
        "without": 2.0,
        "even_thirds": 3.0,
        "without_thirds": 3.0,
        "without_any": 3.0,
        "words": 1.0,
        "word_kinds": 1.0,
        "read": 3.0,
    },
)
def doing(seed: int, runs: Mapping[str, Run]) -> dict[str, Any]:
    """What each head and layer is missed for, in models that read what they were trained on.

    The rise of the loss when a head, a layer or a third of the layers attends evenly; the rise when all that a
    layer, a third or the whole stack writes is replaced by its mean; and what the unembedding reads early.
    """
    found: dict[str, list[Any]] = {}

    def keep(**values: Any) -> None:
        for name, value in values.items():
            found.setdefault(name, []).append(value)

    kinds = word_kinds(GRAMMAR.batch(make_generator(seed, "evaluation"), PROBED))
    for name, task in TASKS.items():
        model: Any = runs[name].model
        batch = task.batch(make_generator(seed, "attention"), LOOKED_AT)
        reference = task.batch(make_generator(seed, "reference"), LOOKED_AT)
        patterns = patterns_of(model, batch)
        read = lens(model, batch, kinds)
        depth = range(CONFIG.n_layers)
        of_heads = [[each[:, [h]] for h in range(CONFIG.n_heads)] for each in patterns]
        together = [*IN_THIRDS, tuple(depth)]
        gone = rise_without_all(model, batch, reference, together)
        keep(
            distance=[[mean_distance(p) for p in each] for each in of_heads],
            entropy=[[relative_entropy(p) for p in each] for each in of_heads],
            head_rise=[
                [rise_when_even(model, batch, [i], h) for h in range(CONFIG.n_heads)] for i in depth
            ],
            even=[rise_when_even(model, batch, [i]) for i in depth],
            even_thirds=[rise_when_even(model, batch, group) for group in IN_THIRDS],
            without=rise_without(model, batch, reference),
            without_thirds=gone[:-1],
            without_any=float(gone[-1]),
            words=read.agreement,
            word_kinds=read.kinds,
            read=read.loss,
        )
    axes = {
        **dict.fromkeys(("distance", "entropy", "head_rise"), ("kind", "layer", "head")),
        **dict.fromkeys(("even", "without"), ("kind", "layer")),
        **dict.fromkeys(("even_thirds", "without_thirds"), ("kind", "third")),
        **dict.fromkeys(("words", "word_kinds", "read"), ("kind", "state")),
        "without_any": ("kind",),
    }
    return {name: (axes[name], values) for name, values in found.items()}
