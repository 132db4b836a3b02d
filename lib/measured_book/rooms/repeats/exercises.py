"""Exercises of *Repeats and rules*."""

from __future__ import annotations

import torch
from measured_transformer.analysis.induction import prefix_matching_score
from measured_transformer.training.seeding import make_generator

from measured_book.exercises.answers import Answer, close, demand, demand_number, tensor
from measured_book.exercises.registry import exercise
from measured_book.rooms.repeats.heads import repeats_a_pair

_CHAPTER = "book/real-language-model/repeats"


@exercise(_CHAPTER)
def looks_behind(answer: Answer) -> None:
    """Two numbers: where an induction head looks from the last token of a string, and what it predicts."""
    key, letter = answer.numbers("(a)", "(b)")
    demand_number(
        key,
        2.0,
        way="the copy of the last token stands at position 1; look behind it",
        name="(a)",
        slips={1.0: "that is the earlier copy itself", 4.0: "that is the token before the query"},
    )
    demand_number(
        letter,
        9.0,
        way="the token that stands at the position looked at",
        name="(b)",
        slips={5.0: "that is the token that is repeated, not the one behind it"},
    )


@exercise(_CHAPTER)
def matching(answer: Answer) -> None:
    """Write `matching(pattern, tokens)`: the prefix-matching score of a head, from its weights (query, key)."""
    for length, vocab, seed in ((8, 3, 0), (12, 5, 1), (10, 4, 2)):
        generator = make_generator(seed, "prefix matching")
        tokens = torch.randint(vocab, (length,), generator=generator)
        drawn = torch.rand(length, length, generator=generator).tril()
        pattern = drawn / drawn.sum(-1, keepdim=True)
        right = prefix_matching_score(pattern[None, None], tokens[None])[0]
        found = tensor(answer(pattern.clone(), tokens.clone()), ())
        same = (tokens[:, None] == tokens[None]).tril(-1)
        asked = same.any(-1)
        on_copy = (pattern * same).sum() / asked.sum()
        over_all = (pattern * same.roll(1, dims=-1)).sum() / length
        demand(
            not close(found, on_copy), "that is the weight on the copy: look one position behind it"
        )
        demand(not close(found, over_all), "count only queries whose token has come before")
        demand(close(found, right), f"for {length} tokens the score is another one")


@exercise(_CHAPTER)
def repeated_pairs(answer: Answer) -> None:
    """Write `repeated_pairs(tokens)`: of each token after the first, whether its pair stood there before."""
    for length, vocab, seed in ((12, 3, 0), (20, 4, 1), (9, 2, 2)):
        tokens = torch.randint(vocab, (length,), generator=make_generator(seed, "pairs"))
        right = repeats_a_pair(tokens[None])[0]
        found = tensor(answer(tokens.clone()), (length - 1,)).bool()
        alone = (tokens[1:, None] == tokens[None, 1:]).tril(-1).any(-1)
        demand(
            alone.equal(right) or not found.equal(alone),
            "the token before has to be the same too",
        )
        demand(found.equal(right), f"for {tokens.tolist()} other tokens repeat a pair")
