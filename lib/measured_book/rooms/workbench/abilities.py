"""What a small language model can do: costs by the byte, copying, agreement, facts, and questions on a story.

Every choice is between whole strings: the model is right where it finds the right one likelier than each of the
wrong ones. So models with different pieces can be asked the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from measured_transformer.models.decoder import Decoder
from measured_transformer.training.seeding import make_generator
from torch.nn import functional as F

from measured_book.rooms.workbench.stories import agreeing, questions, story_of
from measured_book.rooms.workbench.story_words import (
    ANIMALS,
    DAYS,
    LIKE,
    NUMBERS,
    OPPOSITES,
    WORK,
)

FACTS = ("sound", "food", "home", "young", "opposite", "day", "sum", "colour", "work")
"""Kinds of simple facts that models are asked for."""
ASKED = ("who", "colour", "where")
"""Kinds of questions about a story."""
AGREEMENT = ("same", "misleads")
"""Whether the noun between subject and verb has the subject's number."""
QUESTIONS, SENTENCES, ROWS, RANDOM = 100, 150, 64, 32
"""Questions of a kind, sentences of a kind, repeated rows, and tokens that are repeated."""
_TOLD = 3_000_000  # numbers of stories that no part has


@dataclass(frozen=True)
class Reader:
    """A model that is asked in strings.

    Attributes:
        model: the model.
        encode: the tokens of a text.
        reach: how many tokens it has read at once when it was trained.
        plain: the tokens that random rows are drawn from.
    """

    model: Decoder
    encode: Callable[[str], list[int]]
    reach: int
    plain: Sequence[int]


@torch.no_grad()
def chosen(reader: Reader, prompt: str, right: str, wrong: Sequence[str]) -> bool:
    """Whether the right continuation is likelier than each of the wrong ones."""
    before = reader.encode(prompt)
    rows = [before + reader.encode(each) for each in (right, *wrong)]
    longest = max(map(len, rows))
    first = max(0, longest - reader.reach)
    tokens = torch.tensor([row + [0] * (longest - len(row)) for row in rows])[:, first:]
    chances = reader.model(tokens[:, :-1]).double().log_softmax(-1)
    costs = chances.gather(-1, tokens[:, 1:, None])[..., 0]
    start = len(before) - first - 1
    sums = [
        float(cost[start : len(row) - first - 1].sum())
        for cost, row in zip(costs, rows, strict=True)
    ]
    return all(sums[0] > each for each in sums[1:])


@torch.no_grad()
def cost_by_byte(reader: Reader, text: bytes) -> float:
    """Nats a byte of a text, in windows of what the model has read at once, none of which overlap."""
    tokens = torch.tensor(reader.encode(text.decode("utf-8", errors="ignore")))
    n = reader.reach
    count = (len(tokens) - 1) // n
    rows = torch.stack([tokens[i * n : i * n + n + 1] for i in range(count)])
    total = 0.0
    for some in rows.split(32):
        logits = reader.model(some[:, :-1]).double().transpose(1, 2)
        total += float(F.cross_entropy(logits, some[:, 1:], reduction="sum"))
    share = count * n / len(tokens)
    return total / (share * len(text))


@torch.no_grad()
def copying(reader: Reader, seed: int) -> dict[str, float]:
    """Random tokens that come twice: nats a token the first and the second time, and how many are foreseen."""
    generator = make_generator(seed, "copying")
    plain = torch.tensor(reader.plain)
    once = plain[torch.randint(len(plain), (ROWS, RANDOM), generator=generator)]
    rows = torch.cat((once, once), 1)
    logits = reader.model(rows[:, :-1]).double()
    costs = F.cross_entropy(logits.transpose(1, 2), rows[:, 1:], reduction="none")
    right = logits.argmax(-1) == rows[:, 1:]
    return {
        "first": float(costs[:, : RANDOM - 1].mean()),
        "second": float(costs[:, RANDOM:].mean()),
        "copied": float(right[:, RANDOM:].double().mean()),
    }


def agreement(reader: Reader, seed: int) -> list[float]:
    """Share of sentences whose verb agrees with its noun, where the noun between them agrees and where not."""
    found: dict[bool, list[bool]] = {False: [], True: []}
    draw = Random(f"agreement {seed}")
    while min(map(len, found.values())) < SENTENCES:
        text, right, wrong, misleads = agreeing(draw)
        if len(found[misleads]) < SENTENCES:
            found[misleads].append(chosen(reader, f'"{text}', f" {right}", [f" {wrong}"]))
    return [sum(each) / SENTENCES for each in found.values()]


def _told_facts() -> dict[str, list[tuple[str, str, list[str]]]]:
    """By kind: beginnings, what is right, and what else there would be."""

    def of(rows: Sequence[tuple[str, str]]) -> list[tuple[str, str, list[str]]]:
        every = sorted({right for _, right in rows})
        return [
            (text, f" {right}", [f" {one}" for one in every if one != right])
            for text, right in rows
        ]

    both = [*OPPOSITES, *(pair[::-1] for pair in OPPOSITES)]
    return {
        "sound": of([(f"A{'n' * (one[0] == 'owl')} {one[0]} says", one[2]) for one in ANIMALS]),
        "food": of([(f"{one[1].capitalize()} eat", one[3]) for one in ANIMALS]),
        "home": of([(f"A{'n' * (one[0] == 'owl')} {one[0]} lives in a", one[4]) for one in ANIMALS]),
        "young": of([(f"A young {one[0]} is called a", one[5]) for one in ANIMALS if one[5] != "owlet"]),
        "opposite": of([(f"The opposite of {one} is", other) for one, other in both]),
        "day": of([(f"After {DAYS[i]} comes", DAYS[(i + 1) % 7]) for i in range(7)]),
        "sum": of(
            [
                (f"{NUMBERS[i].capitalize()} and {NUMBERS[k]} make", NUMBERS[i + k + 1])
                for i in range(6)
                for k in range(6)
            ]
        ),
        "colour": of([(f"{one[0].upper()}{one[1:]} is", colour) for one, colour in LIKE]),
        "work": of([(f"A {who} {does}", what) for who, does, what in WORK]),
    }  # fmt: skip


def facts(reader: Reader) -> tuple[list[float], list[float]]:
    """By kind: the share of simple facts that are known, and what guessing among all answers would give."""
    known, guessed = [], []
    told = _told_facts()
    for kind in FACTS:
        rows = told[kind]
        known.append(sum(chosen(reader, *row) for row in rows) / len(rows))
        guessed.append(sum(1 / (1 + len(wrong)) for _, _, wrong in rows) / len(rows))
    return known, guessed


def about_stories(reader: Reader, seed: int) -> tuple[list[float], list[float]]:
    """By kind: the share of questions on new stories that are answered rightly, and what guessing would give.

    'who' is between the people of the story, 'colour' between all colours, and 'where' between the right place
    and three others with the same preposition.
    """
    asked: Mapping[str, list[tuple[str, str, Sequence[str]]]] = {kind: [] for kind in ASKED}
    number = _TOLD + 10_000 * seed
    while min(map(len, asked.values())) < QUESTIONS:
        story = story_of(number)
        number += 1
        draw = Random(f"questions {number}")
        for one in questions(story):
            if len(asked[one.kind]) >= QUESTIONS:
                continue
            prompt = " ".join((*story.said, one.text, one.answer)).rstrip()
            wrong: Sequence[str] = one.wrong
            if one.kind == "where":
                wrong = draw.sample(one.alike, 3)
            asked[one.kind].append((prompt, one.right, wrong))
            break
    right, guessed = [], []
    for rows in asked.values():
        right.append(sum(chosen(reader, *row) for row in rows) / len(rows))
        guessed.append(sum(1 / (1 + len(wrong)) for _, _, wrong in rows) / len(rows))
    return right, guessed


def of_model(reader: Reader, seed: int, texts: Mapping[str, bytes]) -> dict[str, Any]:
    """Everything that is asked of a model; `texts` are held-out texts by name."""
    known, by_chance = facts(reader)
    answered, guessed = about_stories(reader, seed)
    return {
        "bytes": ("text", [cost_by_byte(reader, text) for text in texts.values()]),
        **copying(reader, seed),
        "agreement": ("between", agreement(reader, seed)),
        "facts": ("fact", known),
        "facts_by_chance": ("fact", by_chance),
        "answered": ("kind", answered),
        "answered_by_chance": ("kind", guessed),
    }
