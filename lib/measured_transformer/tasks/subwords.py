"""Captions translated between English and German in subwords, by a tokenizer that was trained on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, get_args

from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.corpora import Language, multi30k
from measured_transformer.tasks.pairs import PairTask, Sentence
from measured_transformer.tasks.task import Part, check_sizes
from measured_transformer.tasks.text import byte_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class SubwordTranslation(PairTask):
    """A caption in one language in, the same caption in the other out, in pieces of words: Multi30k.

    One tokenizer, byte-pair encoding of the package `tokenizers`, is trained on the training part of both
    languages. It writes every text, so that no word is unknown. Pairs with a side that is too long are left
    out. No best loss is known for it; one that does not look at the source and knows all targets by heart has
    `blind_loss`.

    Attributes:
        source, target: en and de in either order.
        pieces: of the tokenizer, the 256 bytes among them.
        most_tokens: pieces that a sentence may have.
        part: which pairs are drawn; the data set divides them.

    Raises:
        ValueError: when a limit is not a positive whole number, there are fewer than 256 pieces, or the
            languages are not en and de in either order.
    """

    source: Language = "en"
    target: Language = "de"
    pieces: int = 6000
    most_tokens: int = 40

    def __post_init__(self) -> None:
        check_sizes(pieces=self.pieces, most_tokens=self.most_tokens)
        if self.pieces < 256:
            raise ValueError(f"pieces must hold the 256 bytes, got {self.pieces}")
        if {self.source, self.target} != set(get_args(Language)):
            raise ValueError(f"expected en and de, got {self.source!r} and {self.target!r}")

    def tokenizer(self) -> Tokenizer:
        """The tokenizer, trained when it is asked for first."""
        return _tokenizer(self.pieces)

    def words(self) -> tuple[str, ...]:
        """The pieces, by their numbers."""
        return _words(self.pieces)

    def text(self, tokens: Int[Tensor, "position"]) -> str:
        """The text that the pieces spell, up to its end; what is no piece is left out."""
        row = tokens.tolist()
        row = row[: row.index(self.end)] if self.end in row else row
        made = self.tokenizer()
        return str(made.decode([token for token in row if token < made.get_vocab_size()]))

    def pairs(self) -> tuple[tuple[Sentence, Sentence], ...]:
        """Source and target of every pair of this part that is short enough, in pieces."""
        return _pairs(self.part, self.source, self.target, self.pieces, self.most_tokens)

    def longest(self) -> tuple[int, int]:
        """The limit for both sides."""
        return self.most_tokens, self.most_tokens


@cache
def _tokenizer(pieces: int) -> Tokenizer:
    lines = [line for language in get_args(Language) for line in multi30k("train", language)]
    return byte_tokenizer("\n".join(lines), pieces)


@cache
def _words(pieces: int) -> tuple[str, ...]:
    made = _tokenizer(pieces)
    return tuple(str(made.id_to_token(i)) for i in range(made.get_vocab_size()))


@cache
def _pairs(
    part: Part, source: Language, target: Language, pieces: int, most_tokens: int
) -> tuple[tuple[Sentence, Sentence], ...]:
    sides = (
        [tuple(found.tokens) for found in _tokenizer(pieces).encode_batch(multi30k(part, language))]
        for language in (source, target)
    )
    both = zip(*sides, strict=True)
    return tuple(pair for pair in both if max(map(len, pair)) <= most_tokens)
