"""Some rows of the table for one text and any language model: a reader's own."""

from __future__ import annotations

import torch
from measured_transformer.language.model import LanguageModel

from measured_book.evidence.records import number_text
from measured_book.rooms.carry_over.measure import looked, statistics
from measured_book.rooms.carry_over.stream import Account
from measured_book.smollm2.own import own_tokens


@torch.no_grad()
def rows_of_text(lm: LanguageModel, text: str) -> list[tuple[str, str, str]]:
    """Seven questions of the table, what this model says on this text, and what the rule asks for.

    Effects of one text have no interval, so there are no verdicts here.

    Args:
        lm: any decoder with a tokenizer and residual connections, such as `pretrained` and
            `LanguageModel.from_huggingface` give.
        text: of at least eight tokens; its first 128 are read.

    Raises:
        ValueError: when the text is too short, or the model no language model.
    """
    tokens = own_tokens(lm, text, least=8)
    model = lm.model
    found = [statistics(pattern) for pattern in looked(model, tokens)[0]]
    account = Account(model, tokens)
    distance = torch.stack([one["distance"].mean() for one in found])
    first = torch.stack([one["first"].mean() for one in found])
    places = torch.arange(len(distance), dtype=torch.float64)
    centred = places - places.mean()
    climb = (centred @ distance) / (centred @ centred) * (len(places) - 1)
    size = account.states[:, :, 1:].norm(dim=-1).double().mean((1, 2)).log()
    steps = size.diff()
    upper = slice(len(model.blocks) // 2, None)
    extreme = account.states.abs().amax(-1) / account.states.abs().median(-1).values
    told = [
        ("Do later blocks attend farther? (positions)", climb, "above 0"),
        ("Weight on the first token, from the third block on", first[2:].mean(), "large"),
        ("Is the stream's growth gradual? (largest step of its logarithm)", steps.max(), "at most 0.405"),
        ("Cosine before and after a block of the upper half", account.cosines()[upper].mean(), "at least 0.9"),
        ("Write over stream, upper half", account.ratios()[:, upper].mean(), "at most 0.3"),
        ("Largest entry over the median of the same token", extreme.max(), "at least 1000"),
        ("Pairs of blocks that write against one another", torch.tensor(account.opposed()), "at least 0.1"),
    ]  # fmt: skip
    return [(question, number_text(float(value), ".3g"), rule) for question, value, rule in told]
