"""Exercises of the chapter on very deep models."""

from __future__ import annotations

import math

from measured_transformer.exercises.answers import Answer, demand, demand_number, number
from measured_transformer.exercises.registry import exercise

_CHAPTER = "book/norms/very-deep"


@exercise(_CHAPTER)
def runs_needed(answer: Answer) -> None:
    """Write `runs_needed(share, doubt)`: how many runs must all succeed before a smaller share is unlikely."""
    for share, doubt in ((0.8, 0.05), (0.5, 0.05), (0.8, 0.01), (0.99, 0.05), (0.5, 0.125)):
        found = number(answer(share, doubt))
        right = _runs(share, doubt)
        shown = f"for a share of {share:g} and a doubt of {doubt:g} {found:g} is not it"
        demand(found == round(found), f"{shown}: a number of runs is a whole number")
        other = math.ceil(math.log(1 - doubt) / math.log(share))
        demand(
            found == right or found != other or doubt == 0.5,
            f"{shown}: how likely is it that all succeed, and when is that too unlikely?",
        )
        wrong_side = math.ceil(math.log(doubt) / math.log(1 - share))
        demand(
            found == right or found != wrong_side,
            f"{shown}: that is how many failures it takes to show that success is not so rare",
        )
        demand(found >= right, f"{shown}: with so few, all may succeed by luck too easily")
        demand(found <= right, f"{shown}: fewer are enough")


def _runs(share: float, doubt: float) -> int:
    runs, luck = 0, 1.0
    while luck > doubt * (1 + 1e-12):
        runs, luck = runs + 1, luck * share
    return runs


@exercise(_CHAPTER)
def blocks_to_sameness(answer: Answer) -> None:
    """Write `blocks_to_sameness(factor, smallest)`: after how many blocks positions cannot be told apart."""
    for factor, smallest in ((0.8, 0.1), (0.5, 2.0**-23), (0.9, 0.01), (0.25, 2.0**-23)):
        found = number(answer(factor, smallest))
        right, left = 0, 1.0
        while left > smallest * (1 + 1e-12):
            right, left = right + 1, left * factor
        shown = (
            f"for a factor of {factor:g} and a smallest share of {smallest:.3g} {found:g} is not it"
        )
        demand(found == round(found), f"{shown}: blocks come whole")
        linear = math.ceil((1 - smallest) / (1 - factor))
        demand(
            found == right or found != linear,
            f"{shown}: each block takes a share of what is left, not of what was there",
        )
        demand(found >= right, f"{shown}: more than the smallest share is left then")
        demand(found <= right, f"{shown}: it is reached earlier")


@exercise(_CHAPTER)
def deep_norm_share(answer: Answer) -> None:
    """Write `deep_norm_share(n_layers)`: what share of the squared length is the embedding's at the end."""
    for layers in (1, 2, 8, 48, 500):
        found = number(answer(layers))
        alpha2 = math.sqrt(2 * layers)
        right = (alpha2 / (1 + alpha2)) ** (2 * layers)
        shown = f"for {layers} blocks {found:.4g} is not it"
        slips = {
            2.0 ** (-2 * layers): "that is plain post-norm",
            math.sqrt(right): "a block writes twice, and the share is that of the squared length",
        }
        alpha = math.sqrt(alpha2)
        slips[(alpha / (1 + alpha)) ** (2 * layers)] = "lengths at right angles add as squares"
        slips[1 / (1 + 2 * layers)] = "that is pre-norm"
        near = abs(found - right) <= 1e-6 * right
        for value, words in slips.items():
            demand(near or abs(found - value) > 1e-6 * value, f"{shown}: {words}")
        demand(near, f"{shown}: what is left after one sublayer, and after the next?")


@exercise(_CHAPTER)
def last_turn(answer: Answer) -> None:
    """One number: by how many degrees the last of 96 sublayers turns a pre-norm stream."""
    right = math.degrees(math.atan(1 / math.sqrt(96)))
    slips = {
        math.atan(1 / math.sqrt(96)): "that is in radians",
        math.degrees(math.atan(1 / 96)): "how long is a sum of vectors at right angles?",
        90.0: "the write stands at right angles to the stream; by how much does the sum turn?",
        45.0: "that is a write as long as the stream; the stream has grown by then",
        math.degrees(math.atan(math.sqrt(96))): "that is the angle between the sum and the write",
    }
    way = "draw the triangle of the stream, the write and their sum"
    demand_number(answer.number(), right, way=way, within=0.002, slips=slips)
