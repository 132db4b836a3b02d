"""What the chapter *Repeats and rules* measures on SmolLM2-135M-Instruct.

A seed is a draw of strings, texts and prompts. Texts come in equal parts from the reference of the Python
language and from this book. Everything stands behind the token that parts texts in pretraining.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.repeats.heads import Found, find, repeats_a_pair, scores, silent
from measured_book.rooms.repeats.objects import objects
from measured_book.rooms.repeats.words import BETWEEN, NOUNS, RELATIONS, VERBS
from measured_book.smollm2.controls import Head
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.prompts import encode, few_shot, gap, next_logits, numbers_of, one_token
from measured_book.smollm2.sweeps import begin, heads_of, losses_of
from measured_book.smollm2.texts import DATA, KINDS, draw, repeated_strings, with_first

__all__ = [
    "agreement",
    "found",
    "objects",
    "ordinary",
    "path",
    "removed",
    "repeated",
    "repeated_again",
    "shots",
]

BLOCKS, HEADS = tuple(range(1, 31)), tuple(range(1, 10))
ROWS, PERIOD = 4, 24
"""Strings or texts of a draw, and their tokens."""
OTHER = 1000
"""Added to a seed: the strings on which heads are chosen, which judge nothing."""
OF = ("strings", "texts")
KINDS_OF_HEADS = ("induction", "previous")


def strings(seed: int, times: int) -> Int[Tensor, "text position"]:
    """Random words, several times in a row."""
    return repeated_strings(seed, ROWS, PERIOD, times, first="end")


def texts(seed: int, tokens: int) -> Int[Tensor, "text position"]:
    """Texts that begin at a paragraph, as many of each source, without a first token of their own."""
    return torch.cat([draw(seed, kind, ROWS // len(KINDS), tokens) for kind in KINDS])


def repeated_of(of: str, seed: int, times: int) -> Int[Tensor, "text position"]:
    """Strings or texts, several times in a row."""
    if of == "strings":
        return strings(seed, times)
    return with_first(texts(seed, PERIOD).repeat(1, times), "end")


@cache
def found_in(seed: int) -> Found:
    """The heads of both kinds, on strings that judge nothing."""
    return find(smollm2().model, strings(seed + OTHER, 2), seed)


def of_time(losses: Float[Tensor, "text target"], time: int) -> float:
    """The mean loss on a string's tokens at its first, second ... time, without the first token of each."""
    start = (time - 1) * PERIOD
    return float(losses[:, start + 1 : start + PERIOD].mean())


def mean_over(sets: Sequence[Sequence[Head]], what: Callable[[Sequence[Head]], float]) -> float:
    """A number's mean over sets of heads."""
    return float(np.mean([what(one) for one in sets]))


# Two kinds of heads ----------------------------------------------------------------------------------

LEAST = 0.5


@measurement(
    seeds=10,
    coords={"block": BLOCKS, "head": HEADS, "kind": KINDS_OF_HEADS},
    tolerance={"prefix": 0.03, "previous": 0.03, "count": 2.0, "depth": 2.0},
    pretrained=NEEDS,
)
@torch.no_grad()
def found(seed: int) -> dict[str, Any]:
    """The scores of every head; how many reach one half; and the mean block of the five best of each kind."""
    model = smollm2().model
    prefix, previous = scores(model, strings(seed, 2))
    chosen = found_in(seed)
    depth = [
        float(np.mean([block + 1 for block, _ in heads]))
        for heads in (chosen.induction, chosen.before)
    ]
    return {
        "prefix": (("block", "head"), prefix.numpy()),
        "previous": (("block", "head"), previous.numpy()),
        "count": float((torch.maximum(prefix, previous) >= LEAST).sum()),
        "depth": ("kind", depth),
    }


# Loss by repetition, with and without heads ------------------------------------------------------------

TIMES = (1, 2, 3)


@measurement(
    seeds=10,
    coords={"of": OF, "time": TIMES},
    tolerance={"loss": 0.05},
    data=DATA,
    pretrained=NEEDS,
)
@torch.no_grad()
def repeated(seed: int) -> dict[str, Any]:
    """Nats a token the first, second and third time."""
    losses = [losses_of(repeated_of(of, seed, len(TIMES))) for of in OF]
    return {"loss": (("of", "time"), [[of_time(one, time) for time in TIMES] for one in losses])}


FRESH = 9000
"""What is added to a seed of `repeated_again`, so that no other measurement has looked at its draw."""


@measurement(
    seeds=60,
    coords={"of": OF, "time": TIMES},
    tolerance={"loss": 0.05},
    data=DATA,
    pretrained=NEEDS,
)
def repeated_again(seed: int) -> Mapping[str, Any]:
    """Nats a token the first, second and third time, on fresh draws."""
    return repeated(FRESH + seed)


HOW = ("zero", "mean")
GROUPS = ("induction", "matched")


@measurement(
    seeds=10,
    coords={"of": OF, "how": HOW, "heads": GROUPS},
    tolerance={"loss": 0.2, "plain": 0.05},
    data=DATA,
    pretrained=NEEDS,
)
@torch.no_grad()
def removed(seed: int) -> dict[str, Any]:
    """Nats a token the second time, without the induction heads and without heads matched by norm."""
    chosen = found_in(seed)
    loss, plain = [], []
    for of in OF:
        sweep = begin(repeated_of(of, seed, 2))

        def after(heads: Sequence[Head], how: str, sweep: Any = sweep) -> float:
            with sweep.without(heads_of(heads), how):
                return of_time(sweep.losses(sweep.onward(min(block for block, _ in heads))), 2)

        loss.append(
            [
                [
                    after(chosen.induction, how),
                    mean_over(chosen.for_induction, partial(after, how=how)),
                ]
                for how in HOW
            ]
        )
        plain.append(of_time(sweep.losses(), 2))
    return {"loss": (("of", "how", "heads"), loss), "plain": ("of", plain)}


LENGTH = 128
TARGETS = ("repeat", "other")


@measurement(
    seeds=10,
    coords={"heads": GROUPS, "targets": TARGETS},
    tolerance={"loss": 0.1, "plain": 0.05, "share": 0.001},
    data=DATA,
    pretrained=NEEDS,
)
@torch.no_grad()
def ordinary(seed: int) -> dict[str, Any]:
    """Nats a token in ordinary text, on targets that repeat a pair of tokens and on others."""
    chosen = found_in(seed)
    tokens = with_first(texts(seed, LENGTH - 1), "end")
    sweep, repeat = begin(tokens), repeats_a_pair(tokens)

    def both(losses: Float[Tensor, "text target"]) -> Float[np.ndarray, "targets"]:
        return np.array([float(losses[repeat].mean()), float(losses[~repeat].mean())])

    def after(heads: Sequence[Head]) -> Float[np.ndarray, "targets"]:
        with sweep.without(heads_of(heads)):
            return both(sweep.losses(sweep.onward(min(block for block, _ in heads))))

    matched = np.mean([after(one) for one in chosen.for_induction], axis=0)
    return {
        "loss": (("heads", "targets"), np.stack([after(chosen.induction), matched])),
        "plain": ("targets", both(sweep.losses())),
        "share": float(repeat.float().mean()),
    }


# From one kind to the other ----------------------------------------------------------------------------

WITHOUT = ("none", "previous", "matched")


@measurement(
    seeds=10,
    coords={"without": WITHOUT},
    tolerance={"prefix": 0.05},
    pretrained=NEEDS,
)
@torch.no_grad()
def path(seed: int) -> dict[str, Any]:
    """The mean prefix-matching score of the induction heads, without the previous-token heads and others."""
    model, chosen, tokens = smollm2().model, found_in(seed), strings(seed, 2)

    def after(heads: Sequence[Head]) -> float:
        with silent(model, heads):
            prefix, _ = scores(model, tokens)
        return float(np.mean([float(prefix[head]) for head in chosen.induction]))

    values = [after([]), after(chosen.before), mean_over(chosen.for_before, after)]
    return {"prefix": ("without", values)}


# Examples in the prompt --------------------------------------------------------------------------------

EXAMPLES = ("none", "right", "wrong")
SHOTS, QUESTIONS = 6, 6


def prompts_of(relation: str, seed: int) -> tuple[dict[str, list[str]], list[str]]:
    """Prompts of a relation by their examples, and the right answer to each with its space."""
    known = RELATIONS[relation]
    asked = [one for one in known if one_token([f" {known[one]}"])]
    chance = make_generator(seed, f"prompts of {relation}")
    prompts: dict[str, list[str]] = {name: [] for name in EXAMPLES}
    answers = []
    for place in torch.randperm(len(asked), generator=chance)[:QUESTIONS].tolist():
        question = asked[place]
        taken = {question, known[question]}
        rest = [one for one in known if not taken & {one, known[one]}]
        some = [rest[i] for i in torch.randperm(len(rest), generator=chance)[:SHOTS].tolist()]
        right = [known[one] for one in some]
        prompts["none"].append(few_shot([], question))
        prompts["right"].append(few_shot(list(zip(some, right, strict=True)), question))
        turned = right[1:] + right[:1]
        prompts["wrong"].append(few_shot(list(zip(some, turned, strict=True)), question))
        answers.append(f" {known[question]}")
    return prompts, answers


def answer_loss(prompts: Sequence[str], answers: Sequence[str]) -> float:
    """Nats for the right answers, mean over prompts."""
    logits = next_logits(prompts, first="end", read=partial(torch.log_softmax, dim=-1))
    return -float(logits[torch.arange(len(answers)), numbers_of(answers)].mean())


@measurement(
    seeds=10,
    coords={"relation": tuple(RELATIONS), "examples": EXAMPLES, "heads": GROUPS},
    tolerance={"loss": 0.1, "without": 0.2},
    pretrained=NEEDS,
)
@torch.no_grad()
def shots(seed: int) -> dict[str, Any]:
    """Nats for the answer by the examples before the question, and without heads."""
    model, chosen = smollm2().model, found_in(seed)
    loss, without = [], []
    for relation in RELATIONS:
        prompts, answers = prompts_of(relation, seed)
        loss.append([answer_loss(prompts[examples], answers) for examples in EXAMPLES])

        def after(
            heads: Sequence[Head],
            asked: Sequence[str] = prompts["right"],
            answers: Sequence[str] = answers,
        ) -> float:
            with silent(model, heads):
                return answer_loss(asked, answers)

        without.append([after(chosen.induction), mean_over(chosen.for_induction, after)])
    return {
        "loss": (("relation", "examples"), loss),
        "without": (("relation", "heads"), without),
    }


# Subject and verb --------------------------------------------------------------------------------------

NUMBERS = ("same", "other")
PROMPTS, PAIRS = 32, 8
AT = {"subject": 2, "the": 4, "last": 5}
"""Positions from 0, behind the first token and *The*."""
BEFORE = tuple(range(1, 32, 3))


def sentences(seed: int, count: int) -> list[tuple[str, str, str]]:
    """Subject, word between and other noun, both nouns in the singular."""
    chance = make_generator(seed, "subjects and verbs")
    known = list(NOUNS)
    drawn = []
    for _ in range(count):
        first, second = torch.randperm(len(known), generator=chance)[:2].tolist()
        middle = BETWEEN[int(torch.randint(len(BETWEEN), (), generator=chance))]
        drawn.append((known[first], middle, known[second]))
    return drawn


def said(subject: str, middle: str, other: str, plural: bool, other_plural: bool) -> str:
    """The beginning of a sentence up to its verb."""
    return (
        f"The {NOUNS[subject] if plural else subject} {middle} "
        f"the {NOUNS[other] if other_plural else other}"
    )


def verb_gap(logits: Float[Tensor, "prompt vocab"]) -> Float[Tensor, "prompt"]:
    """The logit of the singular form minus that of the plural one."""
    one, many = numbers_of(VERBS)
    return gap(logits, one.expand(len(logits)), many.expand(len(logits)))


def carried(seed: int) -> Float[np.ndarray, "at before"]:
    """The share of the change of the gap that comes with the state at one position, before some blocks."""
    drawn = sentences(seed + OTHER, PAIRS)
    prompts = [
        [said(*one, plural, i % 2 == 1) for i, one in enumerate(drawn)] for plural in (False, True)
    ]
    one, many = (begin(torch.tensor(encode(some, first="end"))) for some in prompts)
    singular = verb_gap(one.last_logits()).mean()
    whole = verb_gap(many.last_logits()).mean() - singular
    shares = []
    for position in AT.values():
        for before in BEFORE:
            state = one.states[before - 1].clone()
            state[:, position] = many.states[before - 1][:, position]
            moved = verb_gap(one.last_logits(one.onward(before - 1, state))).mean() - singular
            shares.append(float(moved / whole))
    return np.array(shares).reshape(len(AT), len(BEFORE))


@measurement(
    seeds=10,
    coords={"between": NUMBERS, "at": tuple(AT), "before": BEFORE},
    tolerance={"right": 0.07, "gap": 0.1, "carried": 0.05},
    pretrained=NEEDS,
)
@torch.no_grad()
def agreement(seed: int) -> dict[str, Any]:
    """Whether the right form of the verb is ahead, by how much, and where its number is carried."""
    right, size = [], []
    for between in NUMBERS:
        plural = [i % 2 == 1 for i in range(PROMPTS)]
        prompts = [
            said(*one, many, many != (between == "other"))
            for one, many in zip(sentences(seed, PROMPTS), plural, strict=True)
        ]
        gaps = verb_gap(next_logits(prompts, first="end"))
        gaps = torch.where(torch.tensor(plural), -gaps, gaps)
        right.append(float((gaps > 0).float().mean()))
        size.append(float(gaps.mean()))
    return {
        "right": ("between", right),
        "gap": ("between", size),
        "carried": (("at", "before"), carried(seed)),
    }
