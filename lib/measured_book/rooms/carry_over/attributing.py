"""Which tokens matter: attention, rollout, gradients and exchange, where the truth is known and on text."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.analysis.attribution import (
    answer_logit,
    attention_weights,
    embedded,
    found_area,
    gradients,
    ranks_agree,
    rollout,
    weighted_norms,
)
from measured_transformer.models.decoder import Decoder
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.carry_over.drawn import texts
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.texts import DATA, ordinary_tokens, repeated_strings

STRINGS, PERIOD, AGAIN = 4, 10, 6
"""Strings, their length, and how much of each comes again."""
READ, LENGTH = 2, 12
"""Texts of each kind, and their length."""
METHODS = (
    "attention mean",
    "attention largest",
    "attention last",
    "rollout",
    "weighted norms",
    "gradient",
    "gradient times input",
    "exchange",
)


@measurement(
    seeds=10,
    coords={"by": METHODS},
    tolerance={"area": 0.02, "ranks": 0.03},
    pretrained=NEEDS,
    data=DATA,
)
def attributing(seed: int) -> dict[str, Any]:
    """How well methods find the tokens that matter in repeated strings, and agree with exchange on text."""
    model = smollm2().model
    whole = repeated_strings(seed, STRINGS, PERIOD, 2)
    strings, answers = whole[:, : PERIOD + AGAIN], whole[:, PERIOD + AGAIN]
    candidates = torch.zeros_like(strings, dtype=torch.bool)
    candidates[:, 1:PERIOD] = True  # the first token is the sink's
    relevant = torch.zeros_like(candidates)
    relevant[:, AGAIN - 1 : AGAIN + 1] = True
    scores = methods(model, strings, answers, range(1, PERIOD), seed)
    areas = [float(np.mean(found_area(scores[by], relevant, candidates))) for by in METHODS]
    text = texts(seed, READ, LENGTH)
    with torch.no_grad():
        said = model.unembed(model.stream(text)[:, -1:])[:, 0].argmax(-1)
    scores = methods(model, text, said, range(1, LENGTH - 1), seed)
    inner = torch.zeros_like(text, dtype=torch.bool)
    inner[:, 1:-1] = True
    ranks = [float(np.mean(ranks_agree(scores[by], scores["exchange"], inner))) for by in METHODS]
    return {"area": (("by",), areas), "ranks": (("by",), ranks)}


def methods(
    model: Decoder,
    tokens: Int[Tensor, "text position"],
    answers: Int[Tensor, "text"],
    asked: range,
    seed: int,
) -> dict[str, Float[Tensor, "text position"]]:
    """What each method says of each token's part in the logit of the answer at the last position."""
    slopes = gradients(model, tokens, answer_logit(-1, answers)).double()
    weights = attention_weights(model, tokens).double()
    means = weights.mean(2)  # (layer, text, query, key)
    norms = weighted_norms(model, tokens).double()
    return {
        "attention mean": means.mean(0)[:, -1],
        "attention largest": weights.amax((0, 2))[:, -1],
        "attention last": means[-1][:, -1],
        "rollout": rollout(means)[:, -1],
        "weighted norms": norms.mean(0)[:, -1],
        "gradient": slopes.norm(dim=-1),
        "gradient times input": (slopes * embedded(model, tokens)).sum(-1).abs(),
        "exchange": exchanged(model, tokens, answers, asked, seed),
    }


@torch.no_grad()
def exchanged(
    model: Decoder,
    tokens: Int[Tensor, "text position"],
    answers: Int[Tensor, "text"],
    asked: range,
    seed: int,
) -> Float[Tensor, "text position"]:
    """By how much the answer's log-probability falls when a token is exchanged for another, drawn at random.

    All tokens but those that are asked for stay, and count nothing.
    """
    known = ordinary_tokens(smollm2().tokenizer)
    draws = make_generator(seed, "exchanged tokens")
    other = known[torch.randint(len(known), tokens.shape, generator=draws)]
    rows = torch.cat([tokens, *(tokens.clone() for _ in asked)])
    for i, place in enumerate(asked, start=1):
        rows[i * len(tokens) : (i + 1) * len(tokens), place] = other[:, place]
    logs = model.unembed(model.stream(rows)[:, -1:])[:, 0].log_softmax(-1)
    said = logs.gather(1, answers.repeat(len(asked) + 1)[:, None])[:, 0]
    said = said.view(len(asked) + 1, -1).double()
    found = torch.zeros(tokens.shape, dtype=torch.float64)
    found[:, asked.start : asked.stop] = (said[0] - said[1:]).T
    return found
