"""A model that comes with its tokenizer, and texts in place of its tokens.

Such a model is any object with `model`, the model, and `encode`, a function from a text to token numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn


@runtime_checkable
class WithTokenizer(Protocol):
    """A model that comes with its tokenizer."""

    @property
    def model(self) -> Any:
        """The model itself."""
        ...

    def encode(self, text: str) -> Any:
        """The tokens of a text, by number: a list, or a tensor of one row."""
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
    if (texts := _texts(given)) is None:
        return given
    rows = _rows(model, texts)
    counts = [len(row) for row in rows]
    if len(set(counts)) > 1 or 0 in counts:
        raise ValueError(
            f"expected texts with equally many tokens, and at least one, got {', '.join(map(str, counts))}; "
            "give texts of other lengths to calls of their own"
        )
    return torch.tensor(rows, device=next(as_model(model).parameters()).device)


def as_prompts(model: nn.Module | WithTokenizer, given: Any) -> Any:
    """The tokens of a text or of several texts of any lengths, a list for each; else what was given.

    Args:
        model: with its tokenizer, where texts are given.
        given: a text, a list of texts, or tokens, which are handed back as they are.

    Raises:
        ValueError: when texts are given and the model comes without a tokenizer.
    """
    return given if (texts := _texts(given)) is None else _rows(model, texts)


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


def _texts(given: Any) -> Sequence[str] | None:
    """What was given as a list of texts; None where it is no text."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list | tuple) or not texts:
        return None
    return texts if all(isinstance(text, str) for text in texts) else None


def _rows(model: nn.Module | WithTokenizer, texts: Sequence[str]) -> list[list[int]]:
    """The tokens of each text."""
    if as_model(model) is model or not isinstance(model, WithTokenizer):
        raise ValueError(
            f"got the text {texts[0]!r:.40}, and a {type(model).__name__} has no tokenizer to cut it with: "
            "give a model with its tokenizer (an object with model and encode), or tokens"
        )
    return [_row(model.encode(text)) for text in texts]


def _row(cut: Any) -> list[int]:
    """Token numbers from a list, a tensor of one row, or an encoding of the package `tokenizers`."""
    if isinstance(cut, Tensor):
        return [int(number) for number in cut.reshape(-1).tolist()]
    return [int(number) for number in getattr(cut, "ids", cut)]
