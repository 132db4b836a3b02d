"""An exercise on curves over the number of examples, in *Repeats and rules*."""

from __future__ import annotations

import torch
from measured_transformer.training.seeding import make_generator

from measured_book.exercises.answers import Answer, close, demand, normal, tensor
from measured_book.exercises.registry import exercise

_CHAPTER = "book/real-language-model/repeats"


@exercise(_CHAPTER)
def ahead(answer: Answer) -> None:
    """Write `ahead(logits, answers, options)`: the share of rows whose answer is ahead of the other options."""
    for rows, vocab, some, seed in ((5, 7, 3, 0), (12, 9, 2, 1), (8, 20, 4, 2)):
        chance = make_generator(seed, "options")
        logits = normal(rows, vocab, seed=seed)
        options = torch.randperm(vocab, generator=chance)[:some]
        answers = options[torch.randint(some, (rows,), generator=chance)]
        logits[torch.arange(rows), answers] += 0.5
        best = options[logits[:, options].argmax(-1)]
        right = (best == answers).float().mean()
        found = tensor(answer(logits.clone(), answers.clone(), options.clone()), ())
        of_all = (logits.argmax(-1) == answers).float().mean()
        places = (logits[:, options].argmax(-1) == answers).float().mean()
        demand(
            close(of_all, right) or not close(found, of_all),
            "compare with the options alone, not with every token",
        )
        demand(
            close(places, right) or not close(found, places),
            "the place among the options is not the token's number",
        )
        demand(close(found, right), f"in {rows} rows with {some} options the share is another one")
