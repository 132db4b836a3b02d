"""Prompts: what the model would say next, minimal pairs, examples in a row, words that are one token.

Prompts of different lengths run together, those of one length at a time, so that nothing is padded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from measured_transformer.interop.tokenizer import Tokenizer
from measured_transformer.models.decoder import Decoder
from torch import Tensor

from measured_book.smollm2.model import smollm2
from measured_book.smollm2.texts import First, first_token

ROWS = 16
"""Prompts that run at once."""


@dataclass(frozen=True)
class Pair:
    """Two prompts that differ in one thing, and the two answers that this decides between.

    Attributes:
        clean, corrupted: the prompts.
        right: what fits the clean one, with its space: ' Paris'.
        wrong: what fits the corrupted one.
    """

    clean: str
    corrupted: str
    right: str
    wrong: str

    def is_minimal(self, tokenizer: Tokenizer | None = None) -> bool:
        """Whether the prompts have equally many tokens, and both answers are one token each."""
        known = _tokenizer(tokenizer)
        lengths = {len(known.encode(one)) for one in (self.clean, self.corrupted)}
        return len(lengths) == 1 and len(one_token((self.right, self.wrong), known)) == 2


@torch.no_grad()
def next_logits(
    prompts: Sequence[str | Sequence[int]],
    *,
    model: Decoder | None = None,
    tokenizer: Tokenizer | None = None,
    first: First | None = None,
    read: Callable[[Tensor], Tensor] | None = None,
    rows: int = ROWS,
) -> Shaped[Tensor, "prompt *kept"]:
    """The logits of the next token after each prompt, in the order given; interventions on the model apply.

    Args:
        prompts: texts, or tokens by number.
        model, tokenizer: those of SmolLM2 when not given.
        first: a token to stand before each; see `texts.draw`.
        read: what to keep of the logits (row vocab) of each group, in place of them all.
        rows: prompts that run at once.

    Returns:
        (prompt vocab), or (prompt ...) of what `read` keeps.

    Raises:
        ValueError: when there is no prompt, or one without a token.
    """
    model = smollm2() if model is None else model
    encoded = encode(prompts, tokenizer=tokenizer, first=first)
    found: dict[int, Tensor] = {}
    for places, tokens in by_length(encoded, rows):
        logits = model.unembed(model.stream(tokens)[:, -1:])[:, 0]
        found.update(zip(places, logits if read is None else read(logits), strict=True))
    return torch.stack([found[place] for place in range(len(encoded))])


def gaps(
    prompts: Sequence[str | Sequence[int]],
    right: Sequence[str | int],
    wrong: Sequence[str | int],
    *,
    model: Decoder | None = None,
    tokenizer: Tokenizer | None = None,
    first: First | None = None,
    rows: int = ROWS,
) -> Float[Tensor, "prompt"]:
    """The logit of the right answer minus that of the wrong one after each prompt.

    Args:
        prompts, model, tokenizer, first, rows: as for `next_logits`.
        right, wrong: one token for each prompt: a string with its space, or a number.

    Raises:
        ValueError: when an answer is not one token, or there are not as many as prompts.
    """
    if not len(prompts) == len(right) == len(wrong):
        raise ValueError(
            f"expected a right and a wrong answer for each of {len(prompts)} prompts, got {len(right)} and "
            f"{len(wrong)}"
        )
    known = _tokenizer(tokenizer)
    logits = next_logits(prompts, model=model, tokenizer=known, first=first, rows=rows)
    return gap(logits, numbers_of(right, known), numbers_of(wrong, known))


def gap(
    logits: Float[Tensor, "prompt vocab"],
    right: Int[Tensor, "prompt"],
    wrong: Int[Tensor, "prompt"],
) -> Float[Tensor, "prompt"]:
    """The logit of one token of each row minus that of another."""
    rows = torch.arange(len(logits))
    return logits[rows, right] - logits[rows, wrong]


def one_token(words: Iterable[str], tokenizer: Tokenizer | None = None) -> list[str]:
    """Those of some words that are one token as they stand, with their space."""
    known = _tokenizer(tokenizer)
    return [word for word in words if len(known.encode(word, special=False)) == 1]


def numbers_of(
    answers: Sequence[str | int], tokenizer: Tokenizer | None = None
) -> Int[Tensor, "answer"]:
    """The tokens of answers, each a single one.

    Raises:
        ValueError: when one takes several tokens.
    """
    known = _tokenizer(tokenizer)
    return torch.tensor([known.token(one) if isinstance(one, str) else one for one in answers])


_ARROW = "{question} -> {answer}"


def few_shot(
    examples: Sequence[tuple[str, str]],
    question: str,
    *,
    form: str | None = None,
    between: str = "\n",
) -> str:
    r"""A prompt of solved examples and a question, which ends where the answer is to come.

    Args:
        examples: questions and answers.
        question: the last one.
        form: of one line, with the names question and answer in braces; an arrow stands between the two when
            not given. What stands behind the question's answer is left out, and the space before it too,
            as a token has its own.
        between: what stands between lines.

    Raises:
        ValueError: when the form lacks a question or an answer.

    >>> few_shot([("hot", "cold"), ("up", "down")], "big")
    'hot -> cold\nup -> down\nbig ->'
    """
    form = _ARROW if form is None else form
    if "{question}" not in form or "{answer}" not in form:
        raise ValueError(f"expected a form with {{question}} and {{answer}}, got {form!r}")
    lines = [form.format(question=asked, answer=answer) for asked, answer in examples]
    last = form.partition("{answer}")[0].format(question=question).rstrip(" ")
    return between.join([*lines, last])


def encode(
    prompts: Sequence[str | Sequence[int]],
    *,
    tokenizer: Tokenizer | None = None,
    first: First | None = None,
) -> list[list[int]]:
    """The tokens of each prompt, behind a first token where one is given.

    Raises:
        ValueError: when there is no prompt, or one without a token.
    """
    known = _tokenizer(tokenizer)
    before = [] if first is None else [first_token(first, known)]
    rows = [before + (known.encode(one) if isinstance(one, str) else list(one)) for one in prompts]
    if not rows or not all(rows):
        raise ValueError("expected at least one prompt, and each with at least one token")
    return rows


def by_length(
    encoded: Sequence[Sequence[int]], rows: int = ROWS
) -> list[tuple[list[int], Int[Tensor, "row position"]]]:
    """Prompts of one length together: their places in the order given, and their tokens.

    >>> [(places, tuple(tokens.shape)) for places, tokens in by_length([[1, 2], [3], [4, 5]])]
    [([1], (1, 1)), ([0, 2], (2, 2))]
    """
    groups: dict[int, list[int]] = {}
    for place, one in enumerate(encoded):
        groups.setdefault(len(one), []).append(place)
    found = []
    for _, places in sorted(groups.items()):
        for start in range(0, len(places), rows):
            some = places[start : start + rows]
            found.append((some, torch.tensor([list(encoded[place]) for place in some])))
    return found


def filled(form: str, **words: Sequence[str]) -> list[str]:
    """A prompt for each combination of words, the last named changing fastest.

    >>> filled("The {noun} {verb}", noun=["cat", "dog"], verb=["sat"])
    ['The cat sat', 'The dog sat']
    """
    rows: list[Mapping[str, str]] = [{}]
    for name, choices in words.items():
        rows = [{**row, name: choice} for row in rows for choice in choices]
    return [form.format(**row) for row in rows]


def _tokenizer(tokenizer: Tokenizer | None) -> Tokenizer:
    return smollm2().tokenizer if tokenizer is None else tokenizer
