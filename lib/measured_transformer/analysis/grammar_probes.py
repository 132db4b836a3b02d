"""Probes for the grammar after each layer.

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

from measured_transformer.analysis.layers import states_by_depth
from measured_transformer.analysis.probing import Probed, probe
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.grammar import (
    NOUNS,
    RELATIONS,
    TAGS,
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
    kind = PRONOUN_LABEL[types]
    labels = torch.where(number[rows, subject] == 1, PRONOUNS.index("they"), kind)
    return Examples(rows, places, labels, types, len(PRONOUNS))


def _is(relation: Int[Tensor, "batch position"], name: str) -> Bool[Tensor, "batch position"]:
    return relation == RELATIONS.index(name)


PRONOUN_LABEL = torch.full((len(VOCABULARY),), -1)
"""For each word the label of the pronoun that stands for one such noun; -1 where there is none."""
for _pronoun, _nouns in NOUNS.items():
    for _noun in _nouns:
        PRONOUN_LABEL[VOCABULARY.index(_noun)] = PRONOUNS.index(_pronoun)


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
