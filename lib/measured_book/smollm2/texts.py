"""Draws of texts by seed, equal on every machine: what a *seed* means in the part *A real language model*.

Three kinds of text, and strings that are none:

- `reference`: the reference of the Python language (`tasks.opened_text`), which the model can have seen.
- `book`: paragraphs of this book, kept as they were on one day in 2026. The model is of 2024 and has not seen
  them.
- `sentences`: plain English sentences from a small grammar, new ones for each seed.
- `random_strings` and `repeated_strings`: tokens drawn alike from ordinary ones.

The tokenizer of SmolLM2 puts no token of its own before a text. So the first token, in which this model keeps
its sink, is a choice of every draw: see `first` of `draw`.
"""

from __future__ import annotations

import hashlib
import lzma
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import torch
from jaxtyping import Int
from measured_transformer.interop.tokenizer import Tokenizer
from measured_transformer.tasks.opened_text import whole_text
from measured_transformer.training.seeding import make_generator
from torch import Tensor

from measured_book.smollm2.model import smollm2
from measured_book.smollm2.sentences import sentence

Kind = Literal["reference", "book", "sentences"]
KINDS: tuple[Kind, ...] = ("reference", "book")
"""The two kinds of text that verdicts are judged on: the model can have seen the first, not the second."""
First = Literal["start", "end", "word"] | int
Begin = Literal["paragraph", "middle"]

BOOK = Path(__file__).parent / "book-prose.txt.xz"
"""Paragraphs of the book, as ``tools/book-prose`` wrote them; CC BY 4.0 as the book.

:meta hide-value:
"""
BOOK_SHA256 = "6b24d22d4a326676ad84c0aa187f9d436119063a890255c4996da139870280f3"
FIRST = {"start": "<|im_start|>", "end": "<|endoftext|>", "word": " and"}
"""What may stand before a text: the token that begins a message, the one that parts texts in pretraining, or an
ordinary word."""
DATA = (BOOK,)
"""For ``@measurement(data=DATA)``: the file that draws of the book read."""


def draw(
    seed: int,
    kind: Kind,
    n: int,
    tokens: int,
    *,
    first: First | None = None,
    begin: Begin = "paragraph",
    tokenizer: Tokenizer | None = None,
) -> Int[Tensor, "text position"]:
    """Texts of one length, as tokens.

    The texts of a draw do not overlap, except where `begin` is 'middle'. Those of other seeds are other
    passages, apart from a few that come twice by chance.

    Args:
        seed: of the draw.
        kind: of text, see above.
        n: number of texts.
        tokens: length of each, with its first token.
        first: what stands before the text: 'start', 'end' (special tokens), 'word' (an ordinary one, the same
            for all) or a token's number; nothing when None: then the first token is that of the text.
        begin: where the text begins: at a paragraph of the source, or 'middle', at any word.
        tokenizer: that of SmolLM2 when not given.

    Raises:
        ValueError: when there is no such kind, a size is not positive, or the source is too short.

    >>> draw(0, "book", 2, 16).shape                                          # doctest: +SKIP
    torch.Size([2, 16])
    """
    if kind not in get_args(Kind):
        raise ValueError(f"expected text of kind {', '.join(get_args(Kind))}; got {kind!r}")
    if begin not in get_args(Begin):
        raise ValueError(f"expected a text to begin at {', '.join(get_args(Begin))}; got {begin!r}")
    length = tokens - (first is not None)
    if n < 1 or length < 1:
        raise ValueError(f"expected at least one text with a token of its own, got {n} of {tokens}")
    tokenizer = smollm2().tokenizer if tokenizer is None else tokenizer
    generator = make_generator(seed, f"texts of kind {kind}")
    if kind == "sentences":
        ids, starts = _encoded(tokenizer, [_spoken(generator, length) for _ in range(n)])
        if begin == "middle":
            starts = starts + torch.randint(1, 6, (n,), generator=generator)
        return _opened(ids[starts[:, None] + torch.arange(length)], first, tokenizer)
    ids, starts = _source(tokenizer, kind)
    if begin == "middle":
        starts = _words(tokenizer, kind)
    starts = starts[starts <= len(ids) - length]
    taken: list[int] = []
    for place in starts[torch.randperm(len(starts), generator=generator)].tolist():
        if all(abs(place - other) >= length for other in taken):
            taken.append(place)
            if len(taken) == n:
                where = torch.tensor(taken)[:, None] + torch.arange(length)
                return _opened(ids[where], first, tokenizer)
    raise ValueError(
        f"expected a source of {n} texts of {tokens} tokens, got {len(taken)} in {kind}"
    )


def random_strings(
    seed: int,
    n: int,
    tokens: int,
    *,
    first: First | None = None,
    tokenizer: Tokenizer | None = None,
) -> Int[Tensor, "text position"]:
    """Strings of tokens that are drawn alike and independently from the ordinary ones of `ordinary_tokens`.

    Args:
        seed, n, tokens, first, tokenizer: as for `draw`.
    """
    tokenizer = smollm2().tokenizer if tokenizer is None else tokenizer
    known = ordinary_tokens(tokenizer)
    length = tokens - (first is not None)
    drawn = torch.randint(len(known), (n, length), generator=make_generator(seed, "random strings"))
    return _opened(known[drawn], first, tokenizer)


def repeated_strings(
    seed: int,
    n: int,
    period: int,
    times: int = 2,
    *,
    first: First | None = None,
    tokenizer: Tokenizer | None = None,
) -> Int[Tensor, "text position"]:
    """Random strings without a token twice, each several times in a row.

    Args:
        seed, n, first, tokenizer: as for `draw`; the first token stands there once.
        period: tokens of a string.
        times: how often it stands there.
    """
    tokenizer = smollm2().tokenizer if tokenizer is None else tokenizer
    known, draws = ordinary_tokens(tokenizer), make_generator(seed, "repeated strings")
    rows = [known[torch.randperm(len(known), generator=draws)[:period]] for _ in range(n)]
    return _opened(torch.stack(rows).repeat(1, times), first, tokenizer)


def with_first(
    texts: Int[Tensor, "text position"], first: First, *, tokenizer: Tokenizer | None = None
) -> Int[Tensor, "text longer"]:
    """The texts behind a first token; see `draw`."""
    return _opened(texts, first, smollm2().tokenizer if tokenizer is None else tokenizer)


def first_token(first: First, tokenizer: Tokenizer | None = None) -> int:
    """The number of a first token.

    Raises:
        ValueError: when it is neither a token's number nor one of `FIRST`.
    """
    if not isinstance(first, str):
        return int(first)
    if first not in FIRST:
        raise ValueError(
            f"expected a first token of {', '.join(FIRST)}, or a number; got {first!r}"
        )
    tokenizer = smollm2().tokenizer if tokenizer is None else tokenizer
    return tokenizer.token(FIRST[first])


@cache
def ordinary_tokens(tokenizer: Tokenizer) -> Int[Tensor, "token"]:
    """The tokens that are a space and at least two small letters of English, in the order of their numbers."""
    found = []
    for number in range(len(tokenizer)):
        space, word = (string := tokenizer.string(number))[:1], string[1:]
        if space == " " and len(word) > 1 and word.isascii() and word.isalpha() and word.islower():
            found.append(number)
    return torch.tensor(found)


@cache
def source(kind: Kind) -> tuple[str, ...]:
    """The paragraphs of a source, 'reference' or 'book'.

    Raises:
        ValueError: when there is no such source, or its file is another one.
    """
    if kind == "reference":
        return tuple(one.strip("\n") for one in whole_text().split("\n\n") if one.strip())
    if kind != "book":
        raise ValueError(f"expected the source reference or book, got {kind!r}")
    data = lzma.decompress(BOOK.read_bytes())
    if (got := hashlib.sha256(data).hexdigest()) != BOOK_SHA256:
        raise ValueError(f"expected {BOOK.name} with SHA-256 {BOOK_SHA256}, got {got}")
    return tuple(data.decode("utf-8").split("\n\n"))


def _opened(texts: Tensor, first: First | None, tokenizer: Tokenizer) -> Tensor:
    if first is None:
        return texts
    return torch.cat((torch.full((len(texts), 1), first_token(first, tokenizer)), texts), dim=1)


def _spoken(generator: torch.Generator, length: int) -> str:
    """Sentences of the grammar with more tokens than asked for: every word has at least one."""
    said: list[str] = []
    while sum(one.count(" ") + 1 for one in said) < length + 8:
        said.append(sentence(generator))
    return " ".join(said)


def _encoded(
    tokenizer: Tokenizer, texts: list[str]
) -> tuple[Int[Tensor, "token"], Int[Tensor, "text"]]:
    """The tokens of several texts after one another, and where each begins."""
    rows = [one.ids for one in tokenizer.backend.encode_batch(texts, add_special_tokens=False)]
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.tensor([number for row in rows for number in row])
    return ids, lengths.cumsum(0) - lengths


@cache
def _source(tokenizer: Tokenizer, kind: Kind) -> tuple[Tensor, Tensor]:
    return _encoded(tokenizer, [f"{one}\n\n" for one in source(kind)])


@cache
def _words(tokenizer: Tokenizer, kind: Kind) -> Tensor:
    """Where words begin inside of paragraphs."""
    ids, _ = _source(tokenizer, kind)
    words = set(ordinary_tokens(tokenizer).tolist())
    return torch.tensor([place for place, number in enumerate(ids.tolist()) if number in words])
