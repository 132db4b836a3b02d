"""How well SmolLM2 answers by the number of examples in the prompt, and by what stands in them.

A row of `LINES` questions with answers is read once: where a line's answer is to come, the lines before it are
its examples, so that one pass asks with none, with one ... and with sixteen. Every row of a draw begins at
another place in the same circle of questions. A seed is a draw of questions, of their order and of labels.
Draws begin at `FRESH`: ten others, which judge nothing, were measured before the rules were settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.measuring import measurement
from measured_book.rooms.few_shot.tasks import CHOICES, NOTHING, OTHER, TASKS
from measured_book.smollm2.model import NEEDS, smollm2
from measured_book.smollm2.prompts import encode, few_shot, numbers_of

LINES, ROWS, STEP = 17, 4, 4
"""Lines of a row, rows of a draw, and the lines by which each row begins later than the one before."""
COUNTS = tuple(range(LINES))
ARMS = ("right", "random", "foreign")
"""Answers of examples: right; of the same task, at random; of another task, at random."""
BARE = (1, 4, 16)
"""Lines of words that ask and answer nothing."""
ARROW = " ->"
FRESH = 5000
"""Added to every seed, so that no draw is one of those that were looked at."""
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Circle:
    """The questions of one draw of a task.

    Attributes:
        pairs: questions and answers, in order.
        spare: answers of the same task, at least one for each line; where each pair has an answer of its own,
            those of pairs that are not asked.
        foreign: answers of another task.
        options: what an answer is compared with: all answers of the pairs.
    """

    pairs: list[tuple[str, str]]
    spare: list[str]
    foreign: list[str]
    options: list[str]

    def row(self, place: int) -> list[tuple[str, str]]:
        """The pairs in order, from another one on in each row."""
        start = STEP * place
        return self.pairs[start:] + self.pairs[:start]


def circle(task: str, seed: int) -> Circle:
    """Draw the questions of a task."""
    chance = make_generator(FRESH + seed, f"curves of {task}")
    known = _shuffled(list(TASKS[task].items()), chance)
    pairs, rest = known[:LINES], [answer for _, answer in known[LINES:]]
    labels = sorted(set(TASKS[task].values()))
    spare = labels * LINES if task in CHOICES else rest
    foreign = sorted(set(TASKS[OTHER[task]].values())) * LINES
    options = labels if task in CHOICES else [answer for _, answer in pairs]
    return Circle(pairs, spare, foreign, options)


def rows_of(one: Circle, arm: str, seed: int) -> list[str]:
    """A prompt for each row: all lines of the circle, with the answers that the arm asks for."""
    chance = make_generator(FRESH + seed, f"answers: {arm}")
    prompts = []
    for place in range(ROWS):
        row = one.row(place)
        if arm == "right":
            answers = [answer for _, answer in row]
        else:
            answers = _shuffled(one.spare if arm == "random" else one.foreign, chance)[:LINES]
        lines = [(question, said) for (question, _), said in zip(row, answers, strict=True)]
        prompts.append(few_shot(lines[:-1], lines[-1][0]))
    return prompts


def _shuffled(items: Sequence[_Item], chance: torch.Generator) -> list[_Item]:
    return [items[i] for i in torch.randperm(len(items), generator=chance).tolist()]


def answer_logits(
    prompts: Sequence[str], lines: Sequence[int]
) -> Float[Tensor, "prompt line vocab"]:
    """The logits where the answers of some lines are to come; the prompts run together.

    What is added to the shorter ones stands behind all that is read.
    """
    model, rows = smollm2().model, encode(prompts, first="end")
    width, arrow = max(len(row) for row in rows), int(numbers_of([ARROW])[0])
    states = model.stream(torch.tensor([row + [0] * (width - len(row)) for row in rows]))
    kept = []
    for state, row in zip(states, rows, strict=True):
        places = [place for place, token in enumerate(row) if token == arrow]
        kept.append(state[torch.tensor([places[line] for line in lines])])
    return model.unembed(torch.stack(kept))


def judged(
    logits: Float[Tensor, "prompt line vocab"],
    answers: Int[Tensor, "prompt line"],
    options: Int[Tensor, "option"],
) -> tuple[Float[Tensor, "prompt line"], Float[Tensor, "prompt line"]]:
    """Nats for each right answer among all tokens, and whether it is ahead among the options."""
    nats = -logits.log_softmax(-1).gather(-1, answers[..., None])[..., 0]
    best = options[logits[..., options].argmax(-1)]
    return nats, (best == answers).float()


def answers_of(one: Circle) -> Int[Tensor, "row line"]:
    """The token of the right answer of every line of every row."""
    every = [numbers_of([f" {answer}" for _, answer in one.row(place)]) for place in range(ROWS)]
    return torch.stack(every)


def options_of(one: Circle) -> Int[Tensor, "option"]:
    """The tokens that an answer is compared with."""
    return numbers_of([f" {option}" for option in one.options])


@measurement(
    seeds=15,
    coords={"task": tuple(TASKS), "examples": ARMS, "count": COUNTS},
    tolerance={"loss": 0.15, "ahead": 0.26},
    pretrained=NEEDS,
)
@torch.no_grad()
def curve(seed: int) -> dict[str, Any]:
    """Nats for the right answer, and how often it is ahead of the task's others, by the examples before it."""
    loss, ahead = [], []
    for task in TASKS:
        one = circle(task, seed)
        prompts = [rows_of(one, arm, seed) for arm in ARMS]
        logits = answer_logits([prompt for some in prompts for prompt in some], COUNTS)
        nats, first = judged(logits, answers_of(one).repeat(len(ARMS), 1), options_of(one))
        loss.append(nats.unflatten(0, (len(ARMS), ROWS)).mean(1).numpy())
        ahead.append(first.unflatten(0, (len(ARMS), ROWS)).mean(1).numpy())
    axes = ("task", "examples", "count")
    return {"loss": (axes, np.stack(loss)), "ahead": (axes, np.stack(ahead))}


@measurement(
    seeds=15,
    coords={"task": tuple(TASKS), "lines": BARE},
    tolerance={"loss": 0.15, "ahead": 0.26},
    pretrained=NEEDS,
)
@torch.no_grad()
def bare(seed: int) -> dict[str, Any]:
    """The same behind lines that have the form of examples and nothing of the task.

    Behind as many lines as a row of `curve` has before it, the same question is asked.
    """
    loss, ahead = [], []
    for task in TASKS:
        one, chance = circle(task, seed), make_generator(FRESH + seed, f"lines before {task}")
        answers, options = answers_of(one), options_of(one)
        nats, first = [], []
        for count in BARE:
            prompts = []
            for place in range(ROWS):
                words = _shuffled(NOTHING, chance)
                lines = list(zip(words[:count], words[count:], strict=False))
                prompts.append(few_shot(lines, one.row(place)[count][0]))
            found = judged(answer_logits(prompts, [count]), answers[:, count : count + 1], options)
            nats.append(float(found[0].mean()))
            first.append(float(found[1].mean()))
        loss.append(nats)
        ahead.append(first)
    return {"loss": (("task", "lines"), loss), "ahead": (("task", "lines"), ahead)}
