"""Plain English sentences from a small grammar: a text that nobody has written before, of known structure.

>>> import torch
>>> sentence(torch.Generator().manual_seed(1)).endswith(".")
True
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def _listed(words: str) -> tuple[str, ...]:
    return tuple(words.split(", "))


PEOPLE = _listed(
    "teacher, doctor, farmer, painter, sailor, baker, singer, writer, driver, lawyer, "
    "student, soldier, nurse, neighbour, child, woman, man, girl, boy, king"
)
ADJECTIVES = _listed(
    "old, young, tall, quiet, happy, tired, clever, poor, rich, kind, strange, brave, small, famous"
)
THINGS = _listed(
    "book, letter, door, table, window, car, horse, house, garden, picture, basket, boat, "
    "bottle, song, road, bridge, stone, cake, coat, lamp"
)
SEEING = _listed(
    "saw, found, took, sold, carried, washed, painted, lost, bought, hid, opened, dropped"
)
GOING = _listed("walked, ran, slept, waited, worked, sang, arrived, laughed, stood, listened")
PLACES = _listed(
    "in the garden, near the river, behind the house, at the market, under the bridge, by the "
    "sea, in the old church, on the hill, at school, in the kitchen"
)
WHEN = _listed(
    "yesterday, last night, in the morning, after lunch, before the rain, every Sunday, in winter"
)


def sentence(generator: torch.Generator) -> str:
    """One sentence in the past tense, of six to some twenty words."""

    def one(words: Sequence[str]) -> str:
        return words[int(torch.randint(len(words), (), generator=generator))]

    def someone() -> str:
        adjective = f"{one(ADJECTIVES)} " if one("yn") == "y" else ""
        return f"the {adjective}{one(PEOPLE)}"

    doing = f"{one(SEEING)} the {one(THINGS)}" if one("yyn") == "y" else one(GOING)
    said = f"{someone()} {doing} {one(PLACES)}"
    more = one("abcd")
    if more == "a":
        said += f" {one(WHEN)}"
    elif more == "b":
        said += f", and {someone()} {one(GOING)} {one(PLACES)}"
    elif more == "c":
        said += f" while {someone()} {one(SEEING)} the {one(THINGS)}"
    return f"{said[0].upper()}{said[1:]}."
