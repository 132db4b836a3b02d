"""Exercises of the chapter on where the norm stands."""

from __future__ import annotations

import math

import torch

from measured_book.exercises.answers import Answer, close, demand, first, number, tensor
from measured_book.exercises.registry import exercise

_CHAPTER = "book/norms/norm-placement"


@exercise(_CHAPTER)
def left(answer: Answer) -> None:
    """Write `left(k)`: the embedding's share of the squared length after k sublayers, pre-norm, post-norm."""
    for k in (0, 1, 2, 4, 24):
        found = answer(k)
        demand(
            isinstance(found, (tuple, list)) and len(found) == 2,
            "expected two numbers, that of pre-norm and that of post-norm",
        )
        pre, post = number(found[0], "pre-norm"), number(found[1], "post-norm")
        shown = f"for k={k} it gives {pre:.4g} and {post:.4g}"
        if k > 0:
            demand(
                not close(pre, 2.0**-k) or k == 1,
                f"{shown}: in pre-norm nothing is divided; what does each write add to the total?",
            )
            demand(
                not close(pre, 1 / math.sqrt(1 + k)),
                f"{shown}: that is a share of the length, not of its square",
            )
            demand(
                not close(post, 1 / (1 + k)) or k == 1,
                f"{shown}: in post-norm the norm comes after *each* addition",
            )
            demand(
                not close(post, 2.0 ** (-k / 2)),
                f"{shown}: that is a share of the length, not of its square",
            )
        demand(close(pre, 1 / (1 + k)), f"{shown}; follow pre-norm for k=1 and k=2 by hand")
        demand(close(post, 2.0**-k), f"{shown}; follow post-norm for k=1 and k=2 by hand")


@exercise(_CHAPTER)
def still_at_it(answer: Answer) -> None:
    """Write `still_at_it(steps, done, at)`: the Kaplan-Meier share of runs not done after `at` steps."""
    cases = (
        ([3, 5, 8], [True, True, True]),
        ([3, 4, 5, 8], [True, False, True, True]),
        ([2, 2, 6, 9, 9], [True, False, True, True, False]),
        ([7, 7], [False, False]),
    )
    for steps, done in cases:
        for at in (1, 3, 5, 6, 10):
            runs = torch.tensor(steps), torch.tensor(done)
            found = number(answer(*runs, at))
            shown = f"for runs of {steps} steps, done {done}, it gives {found:.4g} after {at}"
            right = _kaplan_meier(steps, done, at)
            as_done = sum(s > at for s in steps) / len(steps)
            demand(
                close(found, right) or not close(found, as_done),
                f"{shown}: runs that were stopped are not done",
            )
            never = 1 - sum(d and s <= at for s, d in zip(steps, done, strict=True)) / len(steps)
            demand(
                close(found, right) or not close(found, never),
                f"{shown}: who was stopped early is no longer among those that could finish",
            )
            finished = [s for s, d in zip(steps, done, strict=True) if d]
            if finished:
                dropped = sum(s > at for s in finished) / len(finished)
                demand(
                    close(found, right) or not close(found, dropped),
                    f"{shown}: a run that was stopped says something up to its last step",
                )
            strict = _kaplan_meier(steps, done, at - 1)
            demand(
                close(found, right) or not close(found, strict),
                f"{shown}: who needs exactly that many steps is done by then",
            )
            demand(
                close(found, right),
                f"{shown}; at each step at which runs finish, multiply by the share that does not",
            )


def _kaplan_meier(steps: list[int], done: list[bool], at: int) -> float:
    share = 1.0
    for step in sorted(set(steps)):
        if step <= at:
            present = sum(s >= step for s in steps)
            ended = sum(s == step and d for s, d in zip(steps, done, strict=True))
            share *= 1 - ended / present
    return share


@exercise(_CHAPTER)
def deep_norm_branch(answer: Answer) -> None:
    """Write `branch(write, alpha)`: what post-norm must add to x to give LayerNorm(alpha x + write)."""
    generator = torch.Generator().manual_seed(0)
    for alpha in (1.0, 1.86, 2.6, 0.5):
        x, write = torch.randn(2, 3, 8, generator=generator, dtype=torch.float64)
        found = tensor(answer(write, alpha), shape=(3, 8))
        norm = torch.nn.functional.layer_norm
        right, came = norm(alpha * x + write, (8,), eps=0), norm(x + found, (8,), eps=0)
        shown = f"for alpha={alpha:g}"
        demand(
            alpha == 1 or not close(found, write),
            f"{shown} the write came back as it was: then alpha does nothing",
        )
        demand(
            alpha == 1 or not close(found, alpha * write),
            f"{shown} the write grew with alpha: shall the stream or the write count for more?",
        )
        demand(
            close(came, right),
            f"{shown} the norm's result is another one, first in row {first(came != right)}; which "
            "factor on its whole input does a norm not see?",
        )


@exercise(_CHAPTER)
def growth(answer: Answer) -> None:
    """Write `growth(n_layers)`: the last state's length over the embedding's, where no norm stands on it."""
    for layers in (2, 1, 6, 12, 24):
        found = number(answer(layers))
        shown = f"for {layers} blocks it gives {found:.4g}"
        demand(not close(found, 1.0 + 2 * layers), f"{shown}: that is the *squared* length")
        demand(not close(found, math.sqrt(1 + layers)), f"{shown}: how often does a block write?")
        demand(
            not close(found, math.sqrt(2 * layers)), f"{shown}: the embedding is in the sum, too"
        )
        demand(
            not close(found, 2.0**layers) or layers == 0,
            f"{shown}: writes are added; nothing is multiplied",
        )
        demand(
            close(found, math.sqrt(1 + 2 * layers)),
            f"{shown}; by Pythagoras, squared lengths of vectors at right angles add up",
        )
