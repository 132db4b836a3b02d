"""Texts in place of tokens: what an instrument does where a model comes with its tokenizer.

An instrument that takes a model and tokens takes a model with its tokenizer and a text just as well, or several
texts with equally many tokens. A model with its tokenizer is any object with `model`, the model, and `encode`,
a function from a text to token numbers. What is found is the same as with the model and the tokens themselves.

>>> from dataclasses import dataclass
>>> from measured_transformer import Config, Decoder, TextFile
>>> from measured_transformer.analysis.lens import lens_logits
>>> @dataclass
... class WithText:
...     model: Decoder
...     encode: Callable[[str], list[int]]
>>> language = WithText(Decoder(Config(vocab=256)), TextFile(__file__).encode)
>>> lens_logits(language, "What now?").shape              # depth, text, token, vocabulary
torch.Size([3, 1, 9, 256])
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import nn

from measured_transformer.internals.tokens import WithTokenizer, as_model, as_prompts, as_tokens
from measured_transformer.tasks.task import Batch

R = TypeVar("R")


def as_batch(model: nn.Module | WithTokenizer, given: Any) -> Any:
    """The batch in which each token of texts is to be predicted from those before it; else what was given.

    Args:
        model: with its tokenizer, where texts are given.
        given: a text, texts with equally many tokens, or a batch, which is handed back as it is.

    Raises:
        ValueError: as for `as_tokens`, or when there is a single token.
    """
    tokens = as_tokens(model, given)
    if tokens is given:
        return given
    if tokens.shape[1] < 2:
        raise ValueError(
            f"expected at least 2 tokens, the second to be predicted, got the text {given!r}"
        )
    scored = torch.ones_like(tokens[:, 1:], dtype=torch.bool)
    return Batch(tokens[:, :-1], tokens[:, 1:], scored)


def as_row(model: nn.Module | WithTokenizer, given: Any) -> Any:
    """The tokens of one text, without an axis for texts; else what was given.

    Raises:
        ValueError: as for `as_tokens`, or when there are several texts.
    """
    tokens = as_tokens(model, given)
    if tokens is given:
        return given
    if len(tokens) != 1:
        raise ValueError(f"expected one text, got {len(tokens)}")
    return tokens[0]


def as_rows(model: nn.Module | WithTokenizer, given: Any) -> Any:
    """The tokens of texts of any lengths, a tensor (position) for each; else what was given.

    Raises:
        ValueError: when texts are given and the model comes without a tokenizer.
    """
    rows = as_prompts(model, given)
    if rows is given:
        return given
    device = next(as_model(model).parameters()).device
    return [torch.tensor(row, dtype=torch.long, device=device) for row in rows]


def as_pairs(model: nn.Module | WithTokenizer, given: Any) -> Any:
    """Pairs whose second part is tokens, with the tokens of texts in their place.

    Raises:
        ValueError: as for `as_tokens`.
    """
    return [(first, as_tokens(model, second)) for first, second in given]


def takes_text(
    *names: str,
    batches: Sequence[str] = (),
    row: Sequence[str] = (),
    rows: Sequence[str] = (),
    pairs: Sequence[str] = (),
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Let an instrument take a model with its tokenizer, and texts in place of tokens.

    Its first argument is the model. With a model and tokens it does what it does without this.

    Args:
        names: of the arguments that are tokens.
        batches: of the arguments that are batches; each token of a text is then an answer, see `as_batch`.
        row: of the arguments that are the tokens of one sequence, without an axis for sequences.
        rows: of the arguments that are sequences of any lengths, one by one.
        pairs: of the arguments that are pairs of something and tokens.
    """
    readers: dict[str, Callable[[Any, Any], Any]] = {
        **dict.fromkeys(names, as_tokens),
        **dict.fromkeys(batches, as_batch),
        **dict.fromkeys(row, as_row),
        **dict.fromkeys(rows, as_rows),
        **dict.fromkeys(pairs, as_pairs),
    }

    def decorate(instrument: Callable[..., R]) -> Callable[..., R]:
        signature = inspect.signature(instrument)
        first = next(iter(signature.parameters))

        @wraps(instrument)
        def measured(*args: Any, **kwargs: Any) -> R:
            given = signature.bind(*args, **kwargs)
            model = given.arguments[first]
            for name, value in given.arguments.items():
                if name in readers:
                    given.arguments[name] = readers[name](model, value)
            given.arguments[first] = as_model(model)
            return instrument(*given.args, **given.kwargs)

        return measured

    return decorate
