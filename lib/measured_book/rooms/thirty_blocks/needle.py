"""Facts at several depths of a text, asked for at its end: within the trained length, and at spread positions.

A text holds a line for each of five cities, with a word that belongs to it, at five depths; behind the text
each city is asked for by itself, and no question sees another one. A seed is a draw of the text, of cities and
of words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from measured_transformer.models.decoder import Decoder
from measured_transformer.parts.positions import Rotation
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.thirty_blocks.far import SCHEMES, TRAINED, speeds
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.prompts import numbers_of
from measured_book.smollm2.texts import DATA, KINDS, draw, with_first

CITIES: dict[str, tuple[str, ...]] = {
    "judging": (
        "Paris", "London", "Rome", "Berlin", "Madrid", "Boston", "Chicago", "Tokyo", "Moscow", "Vienna",
    ),
    "look": ("Oxford", "Cambridge", "Dublin", "Houston", "Seattle"),
}  # fmt: skip
"""One token each behind a space; `look` judges nothing."""
WORDS: dict[str, tuple[str, ...]] = {
    "judging": (
        "apple", "horse", "table", "river", "silver", "window", "garden", "paper",
        "winter", "bridge", "doctor", "music", "forest", "engine", "butter", "castle",
    ),
    "look": ("stone", "flower", "bottle", "summer", "hammer", "monkey", "candle", "rocket"),
}  # fmt: skip
"""One token each behind a space; all of a set are compared, whichever stand in the text."""
LINE, QUESTION = "\nThe password of {city} is {word}.\n", "\nThe password of {city} is"
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Where the lines stand, as shares of the text's length."""


@dataclass(frozen=True)
class Haystack:
    """A text with lines at several depths, and the questions behind it.

    Attributes:
        tokens: of the text with its lines, behind a first token.
        starts: where each line begins; the length of the text for none.
        questions: one for each depth.
        answers: the word of each, as a token.
        words: all words that are compared, as tokens.
    """

    tokens: Int[Tensor, "position"]
    starts: list[int]
    questions: list[list[int]]
    answers: Int[Tensor, "question"]
    words: Int[Tensor, "word"]


def haystack(seed: int, length: int, *, lines: bool = True, which: str = "judging") -> Haystack:
    """A text of a length, its lines included, by turns from the reference and from the book.

    Args:
        seed: of the draw; the text, the cities and the words are the same with lines and without.
        length: in tokens.
        lines: whether they stand in the text; where not, the text goes on for as long.
        which: a set of `CITIES` and of `WORDS`.
    """
    encode = smollm2().tokenizer.encode
    chance = make_generator(seed, f"passwords, {which}")
    cities, words = (
        [some[i] for i in torch.randperm(len(some), generator=chance)[: len(DEPTHS)].tolist()]
        for some in (CITIES[which], WORDS[which])
    )
    said = [encode(LINE.format(city=c, word=w)) for c, w in zip(cities, words, strict=True)]
    room = length - 1 - (sum(map(len, said)) if lines else 0)
    # The whole length is drawn either way: which passages there are to draw from depends on it.
    text = draw(seed, KINDS[seed // 10 % len(KINDS)], 1, length - 1)[0].tolist()
    tokens: list[int] = with_first(torch.empty(1, 0, dtype=torch.long), "end")[0].tolist()
    starts, read = [], 0
    for depth, line in zip(DEPTHS, said, strict=True):
        until = round(depth * room)
        tokens += text[read:until]
        read = until
        starts.append(len(tokens))
        if lines:
            tokens += line
    return Haystack(
        torch.tensor(tokens),
        starts,
        [encode(QUESTION.format(city=city)) for city in cities],
        numbers_of([f" {word}" for word in words]),
        numbers_of([f" {word}" for word in WORDS[which]]),
    )


@torch.no_grad()
def answered(
    model: Decoder,
    text: Int[Tensor, "position"],
    questions: Sequence[Sequence[int]],
    positions: Float[Tensor, "position"],
    omega: Float[Tensor, "pair"],
    stretch: float = 1.0,
) -> Float[Tensor, "question vocab"]:
    """The logits behind each question, all of which follow the text and see no other question.

    The text is read once and its keys and values are kept; then all questions are read in one row, with scores
    of minus infinity between them.

    Args:
        model: a decoder with rotary positions.
        text: its tokens.
        questions: tokens of each.
        positions: of the text's tokens; each question goes on from the last one.
        omega, stretch: radians a position of each pair, and the factor on turned queries and keys.
    """
    assert model.rotary is not None
    pairing = model.rotary.pairing
    caches = model.make_cache(len(text) + sum(map(len, questions))).layers

    def turned(places: Tensor) -> Rotation:
        angles = places[:, None] * omega
        return Rotation(stretch * angles.cos(), stretch * angles.sin(), pairing)

    x = model.embed(text[None], model.resolve_positions(text[None]))[0]
    turn = turned(positions)
    for block, cache in zip(model.blocks, caches, strict=True):
        x = block(x, causal=True, rotation=turn, cache=cache)
    lengths = torch.tensor([len(one) for one in questions])
    owner = torch.repeat_interleave(torch.arange(len(questions)), lengths)
    hidden = torch.cat(
        [
            torch.zeros(len(owner), len(text), dtype=torch.bool),
            owner[:, None] != owner,
        ],
        dim=1,
    )
    bias = x.new_zeros(hidden.shape).masked_fill(hidden, -math.inf)
    tokens = torch.tensor([number for one in questions for number in one])
    places = torch.cat([positions[-1] + 1 + torch.arange(int(n)).to(positions) for n in lengths])
    x, turn = model.embed(tokens[None], model.resolve_positions(tokens[None]))[0], turned(places)
    for block, cache in zip(model.blocks, caches, strict=True):
        x = block(x, causal=True, rotation=turn, score_bias=bias[None, None], cache=cache)
    return model.unembed(x[:, lengths.cumsum(0) - 1])[0]


def scored(logits: Float[Tensor, "question vocab"], asked: Haystack) -> tuple[Tensor, Tensor]:
    """Whether the right word is ahead of all others of its set, and nats for it among all tokens."""
    logits = logits.float()
    ahead = asked.words[logits[:, asked.words].argmax(-1)] == asked.answers
    nats = torch.logsumexp(logits, -1) - logits[torch.arange(len(logits)), asked.answers]
    return ahead.double(), nats.double()


def asked_in(
    stack: Haystack, gap: int = 0, scheme: str = "raw"
) -> tuple[Float[Tensor, "question"], Float[Tensor, "question"]]:
    """What comes of the questions behind a text, with a gap in the positions before each line but the first.

    Args:
        stack: text and questions.
        gap: positions at which nobody stands, in each place.
        scheme: how angles are made to fit the trained length.
    """
    model = smollm2().model
    positions = torch.arange(len(stack.tokens), dtype=torch.float64)
    for start in stack.starts[1:]:
        positions[start:] += gap
    reach = float(positions[-1]) + max(map(len, stack.questions)) + 1
    omega, stretch = speeds(model, scheme, max(1.0, reach / TRAINED))
    return scored(answered(model, stack.tokens, stack.questions, positions, omega, stretch), stack)


LENGTHS = (256, 1024)


@measurement(
    seeds=10,
    coords={"length": LENGTHS, "depth": DEPTHS},
    tolerance={"found": 0.2, "nats": 0.1, "without": 0.2},
    pretrained=NEEDS,
    data=DATA,
)
def needle(seed: int) -> dict[str, Any]:
    """Whether a fact is found by its depth, in texts of two lengths, and what is named without it."""
    found, nats = zip(*(asked_in(haystack(seed, length)) for length in LENGTHS), strict=True)
    without = asked_in(haystack(seed, LENGTHS[0], lines=False))[0]
    return {
        "found": (("length", "depth"), torch.stack(found)),
        "nats": (("length", "depth"), torch.stack(nats)),
        "without": ("depth", without),
    }


APART, SPREAD = 256, (0, 16384)
"""Tokens of a text whose lines stand far apart, and the positions left out before each line but the first."""


@measurement(
    seeds=10,
    coords={"scheme": SCHEMES, "gap": SPREAD, "depth": DEPTHS},
    tolerance={"found": 0.2, "nats": 0.2},
    pretrained=NEEDS,
    data=DATA,
)
def needle_apart(seed: int) -> dict[str, Any]:
    """The same in short texts whose positions reach beyond the trained length; near, all schemes are one."""
    stack = haystack(seed, APART)
    near = asked_in(stack)
    far = [asked_in(stack, SPREAD[-1], scheme) for scheme in SCHEMES]
    found, nats = ([[near[i], one[i]] for one in far] for i in (0, 1))
    axes = ("scheme", "gap", "depth")
    return {
        "found": (axes, torch.stack([torch.stack(one) for one in found])),
        "nats": (axes, torch.stack([torch.stack(one) for one in nats])),
    }


FRESH = 2000
"""What is added to a seed, so that its draw is one that nobody had looked at."""
AGAIN = ("raw", "interpolated")
"""Schemes between which ten draws left it open."""


@measurement(
    seeds=60,
    coords={"length": LENGTHS, "depth": DEPTHS},
    tolerance={"found": 0.2, "nats": 0.1},
    pretrained=NEEDS,
    data=DATA,
)
def needle_again(seed: int) -> dict[str, Any]:
    """Whether a fact is found by its depth, in texts of two lengths, on fresh draws."""
    found, nats = zip(*(asked_in(haystack(seed + FRESH, n)) for n in LENGTHS), strict=True)
    return {
        "found": (("length", "depth"), torch.stack(found)),
        "nats": (("length", "depth"), torch.stack(nats)),
    }


@measurement(
    seeds=60,
    coords={"scheme": AGAIN, "depth": DEPTHS},
    tolerance={"nats": 0.2},
    pretrained=NEEDS,
    data=DATA,
)
def needle_apart_again(seed: int) -> dict[str, Any]:
    """The same with positions left out, as they are and squeezed into the trained length, on fresh draws."""
    stack = haystack(seed + FRESH, APART)
    nats = torch.stack([asked_in(stack, SPREAD[-1], scheme)[1] for scheme in AGAIN])
    return {"nats": (("scheme", "depth"), nats)}
