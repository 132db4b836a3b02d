"""What can be read of the grammar after each layer, and what a model has learnt of it.

Two things that a model of `tasks.grammar` must carry from an earlier word: the number of the subject, at the
word before the verb, and the kind of the subject, at the conjunction before a pronoun. The probes are those of
`analysis.probing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from measured_transformer.analysis.handmade import Layout, attentions, empty_model, set_head
from measured_transformer.analysis.layers import states_by_depth
from measured_transformer.analysis.probing import Probed, probe
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.grammar import (
    INTRANSITIVE,
    NOUNS,
    RELATIONS,
    TAGS,
    TRANSITIVE,
    VOCABULARY,
)
from measured_transformer.tasks.task import Batch

PRONOUNS = (*NOUNS, "they")
"""The pronouns of the grammar, in the order of their labels."""


# What can be read after a layer -------------------------------------------------------------------


@dataclass(frozen=True)
class Examples:
    """Places where a model needs to know something about an earlier word.

    Attributes:
        rows, places: sequence and position.
        labels: what it needs to know.
        types: the token of the earlier word, which decides the label.
        n_labels: number of labels.
    """

    rows: Int[Tensor, "example"]
    places: Int[Tensor, "example"]
    labels: Int[Tensor, "example"]
    types: Int[Tensor, "example"]
    n_labels: int


def agreement_examples(batch: Batch) -> Examples:
    """The last word before a main verb that a place stands in front of; the label is its subject's number.

    As in *the kings near every river* [wait]: the verb must agree with a noun four words back, and a noun of
    another number may stand right before it. Only places after a preposition: a verb in between would agree,
    and so tell the number. 0 is singular.

    Args:
        batch: of the grammar.
    """
    head, relation, tag = (batch.gold[name] for name in ("head", "relation", "tag"))
    verb = _is(relation, "agreement")
    verb[:, 1:] &= (tag[:, :-1] == TAGS.index("place")) & _is(relation[:, :-1], "place")
    verb[:, 0] = False
    rows, places = verb.nonzero(as_tuple=True)
    subject = head[rows, places]
    return Examples(
        rows, places - 1, batch.gold["number"][rows, subject], batch.inputs[rows, subject], 2
    )


def pronoun_examples(batch: Batch) -> Examples:
    """The conjunction before a pronoun; the label is the pronoun that stands for the sentence's subject.

    As in *the kings see one lamp because* [they]: the pronoun means the subject or the object, and to know
    which pronouns may come, a model must know what kind of noun the subject was. Labels as in `PRONOUNS`.

    Args:
        batch: of the grammar.
    """
    head, number = batch.gold["head"], batch.gold["number"]
    n = batch.inputs.shape[1]
    # The main verb is the last verb before the conjunction, and its head is the subject.
    verbs = torch.where(_is(batch.gold["relation"], "agreement"), torch.arange(n), -1)
    last = verbs.cummax(1).values
    rows, places = (batch.gold["tag"] == TAGS.index("conjunction")).nonzero(as_tuple=True)
    subject = head[rows, last[rows, places]]
    types = batch.inputs[rows, subject]
    kind = _PRONOUN_LABEL[types]
    labels = torch.where(number[rows, subject] == 1, PRONOUNS.index("they"), kind)
    return Examples(rows, places, labels, types, len(PRONOUNS))


def _is(relation: Int[Tensor, "batch position"], name: str) -> Bool[Tensor, "batch position"]:
    return relation == RELATIONS.index(name)


_PRONOUN_LABEL = torch.full((len(VOCABULARY),), -1)
for _pronoun, _nouns in NOUNS.items():
    for _noun in _nouns:
        _PRONOUN_LABEL[VOCABULARY.index(_noun)] = PRONOUNS.index(_pronoun)


def probe_by_depth(
    model: Decoder,
    batch: Batch,
    found: Mapping[str, Examples],
    generator: torch.Generator,
) -> dict[str, Probed]:
    """Probe the stream for several kinds of examples: as embedded, and after each block.

    Probes are fitted on the first half of the sequences and scored on the second.

    Args:
        model: whose states are read.
        batch: the sequences of the examples.
        found: the examples by name.
        generator: of the control tasks.
    """
    stream = states_by_depth(model, batch)
    return {
        name: probe(
            stream[:, each.rows, each.places],
            each.labels,
            each.types,
            each.rows < len(batch.inputs) // 2,
            generator,
            n_labels=each.n_labels,
        )
        for name, each in found.items()
    }


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
        for token, number in zip(
            before[start:][noun], batch.gold["number"][row, start:place][noun], strict=True
        ):
            meant = PRONOUNS.index("they") if number == 1 else int(_PRONOUN_LABEL[token])
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
