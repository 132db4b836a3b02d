"""Prompts about two people, one of whom comes twice: whose name is to be expected (*Repeats and rules*)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from measured_transformer.interop.tokenizer import Tokenizer
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.smollm2.prompts import encode, numbers_of

FORMS: dict[str, tuple[str, ...]] = {
    "choosing": (
        "When {a} and {b} went to the {place}, {c} gave a {thing} to",
        "Today {a} and {b} found the {place}, so {c} lent a {thing} to",
        "The {place} was new to {a} and {b}. {c} brought a {thing} to",
        "While {a} and {b} worked at the {place}, {c} handed a {thing} to",
    ),
    "judging": (
        "Before {a} and {b} left for the {place}, {c} sold a {thing} to",
        "Then {a} and {b} reached the {place}, where {c} showed a {thing} to",
        "The {place} was closed to {a} and {b}. {c} sent a {thing} to",
        "Once {a} and {b} saw the {place}, and {c} passed a {thing} to",
    ),
    "look": (
        "After {a} and {b} met at the {place}, {c} offered a {thing} to",
        "The {place} looked good to {a} and {b}. {c} threw a {thing} to",
    ),
}
"""Beginnings of sentences, all of equally many tokens; `look` judges nothing."""

NAMES: dict[str, tuple[str, ...]] = {
    "choosing": (
        "Mary", "Anna", "Sarah", "Emma", "Alice", "Julia", "Laura", "Helen",
        "Tom", "Paul", "Peter", "Robert", "Henry", "Daniel", "Frank", "Simon",
    ),
    "judging": (
        "Jane", "Lucy", "Emily", "Kate", "Maria", "Susan", "Linda", "Rachel",
        "John", "David", "James", "Mark", "George", "Michael", "Andrew", "Jack",
    ),
    "look": ("Martha", "Elizabeth", "Claire", "Charles", "William", "Adam", "Sam", "Richard"),
}  # fmt: skip
"""First names of one token behind a space; none in two sets."""
PLACES = ("park", "school", "garden", "office", "station", "market", "museum", "library")
THINGS = ("book", "ring", "letter", "bottle", "key", "picture", "drink", "computer")


@dataclass(frozen=True)
class Asked:
    """Prompts in which one of two people comes twice, and the names that they decide between.

    Attributes:
        tokens: behind a first token, all of one length.
        right: the name that stands there once, the indirect object.
        wrong: the one that stands there twice, the subject.
        form: the number of each prompt's form.
        subject_first: whether the name that comes twice stands before the other one.
    """

    tokens: Int[Tensor, "prompt position"]
    right: Int[Tensor, "prompt"]
    wrong: Int[Tensor, "prompt"]
    form: Int[Tensor, "prompt"]
    subject_first: Bool[Tensor, "prompt"]

    def at(self, names: Int[Tensor, "prompt"]) -> Int[Tensor, "prompt"]:
        """The position at which each prompt's name stands first."""
        return (self.tokens == names[:, None]).int().argmax(1)


def asked(
    seed: int, which: str, each: int, *, tokenizer: Tokenizer | None = None
) -> tuple[Asked, Asked]:
    """Prompts of a set, and one beside each with three other names: there neither is to be expected.

    Args:
        seed: of the draw of names, places and things.
        which: a set of `FORMS`.
        each: prompts of each form and order of the two names.
        tokenizer: that of SmolLM2 when not given.

    Raises:
        ValueError: when the prompts are not of one length.
    """
    chance = make_generator(seed, f"indirect objects, {which}")

    def one_of(words: Sequence[str]) -> str:
        return words[int(torch.randint(len(words), (), generator=chance))]

    names = NAMES[which]
    texts: list[list[str]] = [[], []]
    pairs: list[list[list[str]]] = [[], []]
    forms, twice = [], []
    for form, said in enumerate(FORMS[which]):
        for order in (0, 1) * each:
            five = [names[i] for i in torch.randperm(len(names), generator=chance)[:5].tolist()]
            words = {"place": one_of(PLACES), "thing": one_of(THINGS)}
            two, three = five[:2], five[2:]
            texts[0].append(said.format(a=two[0], b=two[1], c=two[order], **words))
            texts[1].append(said.format(a=three[0], b=three[1], c=three[2], **words))
            for kept, both in zip(pairs, (two, three), strict=True):
                kept.append([both[1 - order], both[order]])
            forms.append(form)
            twice.append(order == 0)

    def put(some: list[str], named: list[list[str]]) -> Asked:
        rows = encode(some, tokenizer=tokenizer, first="end")
        if len({len(row) for row in rows}) > 1:
            raise ValueError(
                f"expected prompts of one length, got {sorted({len(row) for row in rows})} tokens"
            )
        right, wrong = (numbers_of([f" {pair[i]}" for pair in named], tokenizer) for i in (0, 1))
        return Asked(torch.tensor(rows), right, wrong, torch.tensor(forms), torch.tensor(twice))

    return put(texts[0], pairs[0]), put(texts[1], pairs[1])
