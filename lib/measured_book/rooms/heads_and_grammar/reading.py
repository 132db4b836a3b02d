"""Numbers of the chapter on heads and the grammar that no expression says: of guesses and of exchanged rows."""

from __future__ import annotations

import numpy as np
from measured_transformer.training.seeding import make_generator

from measured_book.measuring import number, seeds_of
from measured_book.rooms.heads_and_grammar.measure import (
    best_of,
    evaluation_batch,
    head_scores,
    relation_arcs,
    swapped,
)


@number
def best_of_sixteen() -> float:
    """What the best of sixteen guesses reaches on ten questions, each right one time in five."""
    return best_of(16, share=0.2, count=10)


@number
def perfect_swapped() -> float:
    """What a head that finds every far subject keeps on exchanged rows, from the word before the verb."""
    kept = []
    for seed in seeds_of(10):
        gold = relation_arcs(evaluation_batch(seed), "far agreement").earlier()
        mixed = swapped(gold.end[:, None], gold, make_generator(seed, "samples"))
        kept.append(head_scores(mixed, gold)[0])
    return float(np.mean(kept))
