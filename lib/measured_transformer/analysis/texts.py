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
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import nn

from measured_transformer.tasks.task import Batch

R = TypeVar("R")


@runtime_checkable
class WithTokenizer(Protocol):
    """A model that comes with its tokenizer."""

    @property
    def model(self) -> Any:
        """The model itself."""
        ...

    def encode(self, text: str) -> Sequence[int]:
        """The tokens of a text, by number."""
        ...


def as_model(model: nn.Module | WithTokenizer) -> Any:
    """The model itself, where it comes with its tokenizer; else what was given."""
    if isinstance(model, WithTokenizer) and isinstance(model.model, nn.Module):
        return model.model
    return model


def as_tokens(model: nn.Module | WithTokenizer, given: Any) -> Any:
    """The tokens of a text or of several texts, (text, position), where the model lies; else what was given.

    Args:
        model: with its tokenizer, where texts are given.
        given: a text, a list of texts with equally many tokens, or tokens, which are handed back as they are.

    Raises:
        ValueError: when texts are given and the model comes without a tokenizer, or when they are empty or
            differ in their number of tokens.
    """
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list | tuple) or not texts:
        return given
    if not all(isinstance(text, str) for text in texts):
        return given
    inner = as_model(model)
    if inner is model:
        raise ValueError(
            f"got the text {texts[0]!r:.40}, and a {type(model).__name__} has no tokenizer to cut it with: "
            "give a model with its tokenizer (an object with model and encode), or tokens"
        )
    rows = [_numbers(model, text) for text in texts]
    counts = [len(row) for row in rows]
    if len(set(counts)) > 1 or 0 in counts:
        raise ValueError(
            f"expected texts with equally many tokens, and at least one, got {', '.join(map(str, counts))}; "
            "give texts of other lengths to calls of their own"
        )
    return torch.tensor(rows, device=next(inner.parameters()).device)


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


def takes_text(
    *names: str, batches: Sequence[str] = ()
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Let an instrument take a model with its tokenizer, and texts in place of tokens.

    Its first argument is the model. With a model and tokens it does what it does without this.

    Args:
        names: of the arguments that are tokens.
        batches: of the arguments that are batches; each token of a text is then an answer, see `as_batch`.
    """

    def decorate(instrument: Callable[..., R]) -> Callable[..., R]:
        signature = inspect.signature(instrument)
        first = next(iter(signature.parameters))

        @wraps(instrument)
        def measured(*args: Any, **kwargs: Any) -> R:
            given = signature.bind(*args, **kwargs)
            model = given.arguments[first]
            for name, value in given.arguments.items():
                if name in names:
                    given.arguments[name] = as_tokens(model, value)
                elif name in batches:
                    given.arguments[name] = as_batch(model, value)
            given.arguments[first] = as_model(model)
            return instrument(*given.args, **given.kwargs)

        return measured

    return decorate


def naming(tokenizer: Any) -> Callable[[int], str]:
    """The function from a token's number to the string that it stands for.

    Args:
        tokenizer: of this library (`string`), or of the packages `tokenizers` (`id_to_token`) or `transformers`
            (`convert_ids_to_tokens`), or what holds one as `tokenizer`.

    Raises:
        ValueError: when it is none of these.

    >>> from measured_transformer import TextFile
    >>> naming(TextFile(__file__))(65)
    'A'
    """
    for held in (tokenizer, getattr(tokenizer, "tokenizer", None)):
        if (found := getattr(held, "string", None)) is not None:
            return lambda number: str(found(number))
        for method in ("convert_ids_to_tokens", "id_to_token"):
            if (look_up := getattr(held, method, None)) is not None:
                return lambda number: _piece(look_up(number), number)
    raise ValueError(
        "expected a tokenizer with id_to_token, convert_ids_to_tokens or string, got "
        f"{type(tokenizer).__name__}; give names or a function in tokens"
    )


def _piece(piece: str | None, number: int) -> str:
    """A tokenizer's piece; byte-level ones write a blank as Ġ and a line end as Ċ."""
    if piece is None:
        return f"#{number}"
    return piece.replace("Ġ", " ").replace("Ċ", "\n").replace("\u2581", " ")


def _numbers(model: Any, text: str) -> list[int]:
    cut = model.encode(text)
    return [int(number) for number in getattr(cut, "ids", cut)]
