"""A sentence in a notebook: where a model's heads look in it, and what it expects next, each by one call.

>>> import torch
>>> from measured_transformer import Config, Decoder, TextFile
>>> model, task = Decoder(Config(vocab=256, n_layers=2, n_heads=4)), TextFile(__file__)
>>> attention_in(model, "The cat", tokenizer=task)
AttentionViewer(1 example, 2 layers of 4 heads)
>>> print(predictions_in(Decoder(Config(vocab=3, logit_scale=0.0)), [2, 0], tokens=["a", "b", "c"], top=2))
position  token  1       2
0         c      a 0.33  b 0.33
1         a      a 0.33  b 0.33
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn

from measured_transformer.internals.capture import capture
from measured_transformer.internals.tokens import as_model, as_tokens, naming
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.viewer._input import visible
from measured_transformer.viewer.attention import AttentionViewer, attention_viewer
from measured_transformer.viewer.table import Table

Names = Sequence[str] | Callable[[int], str]


def attention_in(
    model: Any,
    sentence: Any,
    *,
    tokenizer: Any = None,
    tokens: Names | None = None,
    layers: Sequence[int] | None = None,
    **options: Any,
) -> AttentionViewer:
    """Run a model on a sentence and show where its heads look.

    Args:
        model: a `Decoder` or an `Encoder`; or a model with its tokenizer, see `internals.tokens`.
        sentence: a text, or token numbers; or a list of several such sentences, of any lengths.
        tokenizer: cuts texts and says what tokens are called: a `TextFile`, or a tokenizer of the packages
            `tokenizers` or `transformers`; that of the model when it comes with one.
        tokens: what tokens are called, where there is no tokenizer: a name for each number, or a function of
            the number. Numbers are shown as they are when there is neither.
        layers: which ones; all when None.
        options: of `attention_viewer`, such as `start` or `title`.

    Raises:
        ValueError: when the model is another one, a text comes without a tokenizer, a token is unknown to the
            model, there is no such layer, or as for `attention_viewer`.
    """
    inner, rows, name = _read(model, sentence, tokenizer, tokens)
    chosen = range(inner.config.n_layers) if layers is None else layers
    for layer in chosen:
        if not 0 <= layer < inner.config.n_layers:
            raise ValueError(f"expected layers from 0 to {inner.config.n_layers - 1}, got {layer}")
    seen = []
    for row in rows:
        with capture(inner, *(f"blocks.{i}.attention.pattern" for i in chosen)) as patterns:
            _run(inner, row)
        seen.append(patterns)
    words = [[name(int(token)) for token in row] for row in rows]
    return attention_viewer(seen, words, **options)


@dataclass(frozen=True, eq=False)
class Predictions:
    """The tokens that a model finds most likely at some positions, made by `predictions_in`.

    A notebook shows it as a table, and so does `print`.

    Attributes:
        positions: in the sentence, from 0.
        read: the token at each of these positions.
        tokens: the most likely ones for each, the likeliest first. Of a `Decoder` they are the next tokens.
        chances: their probabilities.
        table: all this in words.
    """

    positions: tuple[int, ...]
    read: Int[ndarray, "position"]
    tokens: Int[ndarray, "position rank"]
    chances: Float[ndarray, "position rank"]
    table: Table

    def __repr__(self) -> str:
        """The table as text."""
        return repr(self.table)

    def _repr_html_(self) -> str:
        """The table where a notebook asks for HTML."""
        return self.table._repr_html_()


def predictions_in(
    model: Any,
    sentence: Any,
    *,
    top: int = 5,
    positions: int | Sequence[int] | None = None,
    tokenizer: Any = None,
    tokens: Names | None = None,
) -> Predictions:
    """Run a model on a sentence and list what it finds most likely at each position.

    Args:
        model: a `Decoder`, whose predictions are of the next token, or an `Encoder`; or a model with its
            tokenizer, see `internals.tokens`.
        sentence: a text, or token numbers.
        top: how many tokens for each position; all when there are fewer.
        positions: which ones, from the end when negative; all when None.
        tokenizer, tokens: as for `attention_in`.

    Raises:
        ValueError: when the model is another one or has no head, a text comes without a tokenizer, a token is
            unknown to the model, `top` is below one, or there is no such position.
    """
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise ValueError(f"top must be a positive whole number, got {top!r}")
    inner, rows, name = _read(model, sentence, tokenizer, tokens)
    if inner.config.head == "none":
        raise ValueError("this model has no logits to predict tokens by: config.head is 'none'")
    if len(rows) != 1:
        raise ValueError(f"expected one sentence, got {len(rows)}; call this for each of them")
    (row,) = rows
    chosen = _chosen(positions, len(row))
    chances = _run(inner, row)[0, chosen].double().softmax(-1)
    best = chances.topk(min(top, chances.shape[-1]), dim=-1)
    found = best.indices.cpu().numpy(), best.values.cpu().numpy()
    lines = [
        (
            str(at),
            name(int(row[at])),
            *(f"{name(int(t))} {p:.2f}" for t, p in zip(*pair, strict=True)),
        )
        for at, *pair in zip(chosen, *found, strict=True)
    ]
    ranks = (str(1 + rank) for rank in range(best.indices.shape[-1]))
    table = Table(("position", "token", *ranks), tuple(lines))
    return Predictions(tuple(chosen), row[chosen].cpu().numpy(), *found, table)


def _read(
    model: Any, sentence: Any, tokenizer: Any, tokens: Names | None
) -> tuple[Decoder | Encoder, list[Tensor], Callable[[int], str]]:
    """The model, the tokens of each sentence, and what tokens are called."""
    inner = as_model(model)
    if not isinstance(inner, Decoder | Encoder):
        raise ValueError(
            f"expected a Decoder or an Encoder, which have one stream, got {type(inner).__name__}"
        )
    if tokenizer is None and inner is not model:
        tokenizer = model
    several = isinstance(sentence, list | tuple) and not all(
        isinstance(token, int) for token in sentence
    )
    rows = [_tokens(inner, one, tokenizer) for one in (sentence if several else [sentence])]
    if not rows:
        raise ValueError("expected a sentence, got an empty list")
    return inner, rows, _naming(tokens, tokenizer, inner.config.vocab)


def _tokens(model: Decoder | Encoder, sentence: Any, tokenizer: Any) -> Tensor:
    """The tokens of one sentence, checked."""
    if isinstance(sentence, str):
        if tokenizer is None:
            raise ValueError(
                f"got the text {sentence!r:.40} and no tokenizer to cut it with: give one, or token numbers"
            )
        row = as_tokens(_Cut(model, tokenizer), sentence)[0]
    else:
        row = torch.as_tensor(sentence)
        row = row[0] if row.ndim == 2 and len(row) == 1 else row
    if row.ndim != 1 or not len(row) or row.is_floating_point() or row.dtype == torch.bool:
        raise ValueError(f"expected a text or a list of token numbers, got {sentence!r:.60}")
    if int(row.min()) < 0 or int(row.max()) >= model.config.vocab:
        raise ValueError(
            f"expected tokens from 0 to {model.config.vocab - 1}, got {int(row.min())} to {int(row.max())}: "
            "was the sentence cut by another model's tokenizer?"
        )
    return row.long().to(next(model.parameters()).device)


@dataclass(frozen=True)
class _Cut:
    """A model with a tokenizer beside it."""

    model: nn.Module
    tokenizer: Any

    def encode(self, text: str) -> Any:
        """What the tokenizer makes of a text."""
        return self.tokenizer.encode(text)


def _naming(tokens: Names | None, tokenizer: Any, vocab: int) -> Callable[[int], str]:
    if tokens is None and tokenizer is None:
        return str
    if tokens is None:
        look_up = naming(tokenizer)
    elif isinstance(tokens, str) or not (callable(tokens) or len(tokens) >= vocab):
        raise ValueError(
            f"expected a name for each of the model's {vocab} tokens, or a function, got {tokens!r:.60}"
        )
    else:
        look_up = tokens if callable(tokens) else tokens.__getitem__
    return lambda number: visible(str(look_up(number)))


def _chosen(positions: int | Sequence[int] | None, length: int) -> list[int]:
    if positions is None:
        return list(range(length))
    asked = [positions] if isinstance(positions, int) else list(positions)
    for at in asked:
        if not -length <= at < length:
            raise ValueError(f"expected positions from {-length} to {length - 1}, got {at}")
    return [at % length for at in asked]


@torch.no_grad()
def _run(model: Decoder | Encoder, row: Tensor) -> Tensor:
    """The model's outputs in evaluation mode."""
    training = [module for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        found: Tensor = model(row[None])
    finally:
        for module in training:
            module.training = True
    return found
