"""What a reader's own sentence shows: its loss the first and the second time, with and without some heads."""

from __future__ import annotations

import torch
from measured_transformer.language.model import LanguageModel
from measured_transformer.training.seeding import make_generator

from measured_book.rooms.repeats.heads import CHOSEN, scores, silent, top
from measured_book.smollm2.controls import Head
from measured_book.smollm2.own import own_tokens
from measured_book.smollm2.sweeps import losses_of

ROWS, PERIOD = 4, 24
"""Random strings on which heads are chosen, and their tokens."""


def copied(model: LanguageModel, text: str, *, count: int = CHOSEN) -> str:
    """A line for all heads, one without the best heads of induction, and one without as many others.

    The heads of induction are those with the highest prefix-matching scores on random strings, and the others
    are drawn from the rest.

    Args:
        model: any decoder with its tokenizer.
        text: of three tokens or more; the model reads its first 128 twice in a row.
        count: heads that are taken away; at most half of those that the model has.

    Raises:
        ValueError: when the text is shorter, the model has too few heads, or is no language model.
    """
    tokens = own_tokens(model, text, least=3, times=2)
    length = tokens.shape[1]
    best, others = chosen(model, count)
    rows = [f"{length} tokens; loss a token   first time   second time"]
    arms: list[tuple[str, list[Head]]] = [
        ("all heads", []),
        (f"without {count} induction heads", best),
        (f"without {count} others", others),
    ]
    for name, heads in arms:
        with silent(model.model, heads):
            losses = losses_of(tokens.repeat(1, 2), model=model.model)[0]
        first, second = losses[: length - 1].mean(), losses[length:].mean()
        rows.append(f"{name:27}{first:12.2f}{second:14.2f}")
    rows.append(
        "induction heads (block, head): " + ", ".join(f"({b + 1}, {h + 1})" for b, h in best)
    )
    return "\n".join(rows)


def chosen(model: LanguageModel, count: int) -> tuple[list[Head], list[Head]]:
    """The heads with the highest prefix-matching scores on random strings, and as many of the others.

    Args:
        model: any decoder with its tokenizer.
        count: heads of each.

    Raises:
        ValueError: when the model has fewer than twice as many heads.
    """
    chance = make_generator(0, "strings that show who copies")
    vocab = model.model.config.vocab
    strings = torch.stack(
        [torch.randperm(vocab, generator=chance)[:PERIOD] for _ in range(ROWS)]
    ).repeat(1, 2)
    prefix, _ = scores(model.model, strings.to(next(model.parameters()).device))
    if not 0 < count <= prefix.numel() // 2:
        raise ValueError(f"expected at most half of {prefix.numel()} heads, got {count}")
    ranked = top(prefix, prefix.numel())
    rest = ranked[count:]
    places = torch.randperm(len(rest), generator=chance)[:count].tolist()
    return ranked[:count], [rest[place] for place in places]
