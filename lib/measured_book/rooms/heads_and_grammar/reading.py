"""How the results of the chapter on heads and the grammar are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from measured_transformer.training.seeding import make_generator
from xarray import DataArray, Dataset

from measured_book.measuring import evidence, number, seeds_of
from measured_book.rooms.heads_and_grammar.measure import (
    KINDS,
    SENTENCE,
    best_of,
    evaluation_batch,
    head_scores,
    relation_arcs,
    swapped,
)

# What the claims are judged by ----------------------------------------------------------------------

GRAMMARLESS = ("offset", "untrained", "swapped")


def _against_the_strongest(found: Dataset, reader: str, relation: str) -> dict[str, DataArray]:
    """The best head, and in each seed the strongest of what needs no grammar; words have been read."""
    scores = found.f1.sel(reader=reader, view="read", relation=relation)
    return {
        "treatment": scores.sel(by="head"),
        "baseline": scores.sel(by=list(GRAMMARLESS)).max("by"),
    }


@evidence("DD-9.4")
def _(found: Dataset) -> dict[str, Any]:
    return {
        "decoder_subject": _against_the_strongest(found, "decoder", "agreement"),
        "decoder_reference": _against_the_strongest(found, "decoder", "reference"),
        "subject": _against_the_strongest(found, "encoder", "agreement"),
        "reference": _against_the_strongest(found, "encoder", "reference"),
        "noun": _against_the_strongest(found, "encoder", "adjective"),
    }


@evidence("DD-2.14")
def _(found: Dataset, roles: Dataset) -> dict[str, Any]:
    trained = roles.weight.sel(reader="encoder", model="trained")
    return {
        **{kind: {"value": trained.sel(kind=kind)} for kind in KINDS},
        "subject": _against_the_strongest(found, "encoder", "agreement"),
        "reference": _against_the_strongest(found, "encoder", "reference"),
        "unclear": {"value": roles.nameless.sel(reader="encoder")},
    }


# Numbers of the prose --------------------------------------------------------------------------------


def _mean(values: DataArray) -> float:
    return float(values.mean())


@number
def best_of_sixteen() -> float:
    """What the best of sixteen guesses reaches on ten questions, each right one time in five."""
    return best_of(16, share=0.2, count=10)


@number
def few_same(chosen_on_few: Dataset) -> float:
    """The best untrained head of ten rows on the same ten rows."""
    return _mean(chosen_on_few.f1.sel(scored="same rows"))


@number
def few_other(chosen_on_few: Dataset) -> float:
    """The same head on other rows."""
    return _mean(chosen_on_few.f1.sel(scored="other rows"))


def _scores(found: Dataset, reader: str, view: str, relation: str, by: str) -> DataArray:
    return found.f1.sel(reader=reader, view=view, relation=relation, by=by)


@number
def score(found: Dataset, *, reader: str, view: str, relation: str, by: str) -> float:
    """F1 of one of `BY` for one of `LOOKED_FOR`, mean over the seeds."""
    return _mean(_scores(found, reader, view, relation, by))


@number
def lowest(found: Dataset, *, reader: str, view: str, relation: str) -> float:
    """F1 of the best head in the seed where it is lowest."""
    return float(_scores(found, reader, view, relation, "head").min())


@number
def highest(found: Dataset, *, reader: str, view: str, relation: str) -> float:
    """F1 of the best head in the seed where it is highest."""
    return float(_scores(found, reader, view, relation, "head").max())


@number
def perfect_swapped() -> float:
    """What a head that finds every far subject keeps on exchanged rows, from the word before the verb."""
    kept = []
    for seed in seeds_of(10):
        gold = relation_arcs(evaluation_batch(seed), "far agreement").earlier()
        mixed = swapped(gold.end[:, None], gold, make_generator(seed, "samples"))
        kept.append(head_scores(mixed, gold)[0])
    return float(np.mean(kept))


@number
def any_noun(distances: Dataset) -> float:
    """How often a guess among the nouns of the sentence meets the referent."""
    return _mean((1 + distances.alone) / 2)


@number
def closed_encoder(learned: Dataset) -> float:
    """How much of the way from guessing to the least possible loss the encoders have come."""
    least, loss = (what.sel(reader="encoder") for what in (learned.floor, learned.loss))
    return _mean((learned.constant - loss) / (learned.constant - least))


def _on_subject(sentence: Dataset, word: str) -> DataArray:
    return sentence.weight.sel(from_word=word)[:, SENTENCE.index("queen")]


@number
def on_subject(sentence: Dataset, *, word: str) -> float:
    """Mean weight on the subject from one of `FROM`."""
    return _mean(_on_subject(sentence, word))


@number
def sentence_elsewhere(sentence: Dataset) -> float:
    """In how many models the head gives the subject less than a quarter of its weight from the verb."""
    return float((_on_subject(sentence, "sees") < 0.25).sum())


@number
def skipping(found: Dataset) -> float:
    """In how many encoders the head for adjectives finds nouns behind another adjective."""
    return float((found.second_noun > 0.5).sum())


@number
def second_noun_skipping(found: Dataset) -> float:
    """How many of these nouns it finds in those encoders."""
    return _mean(found.second_noun.where(found.second_noun > 0.5))


@number
def right_number(cuts: Dataset, *, reader: str, order: str, removed: int) -> float:
    """Verbs with the right number after so many removals in one of `ORDERS`."""
    return _mean(cuts.right.sel(reader=reader, order=order, removed=removed))


@number
def whole_odds(cuts: Dataset, *, reader: str) -> float:
    """Log-odds of the right number in whole models."""
    return _mean(cuts.odds.sel(reader=reader, order="best first", removed=0))


@number
def missed_most(cuts: Dataset, *, reader: str) -> float:
    """In how many models the best subject head is the one that is missed most."""
    fall = cuts.fall.sel(reader=reader)
    return float((fall.sel(one="best") >= fall.sel(one="most missed")).sum())


@number
def missed_more(cuts: Dataset, *, reader: str) -> float:
    """In how many models the best subject head is missed more than the average of the others."""
    fall = cuts.fall.sel(reader=reader)
    return float((fall.sel(one="best") > fall.sel(one="mean of the others")).sum())
