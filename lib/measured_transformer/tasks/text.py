"""Language modelling on real text, byte by byte or word by word."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.corpora import python_reference, shakespeare
from measured_transformer.tasks.task import Batch, Part, check_sizes

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Corpus = Literal["python", "shakespeare"]
Level = Literal["byte", "word"]
_SHARES = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}


@dataclass(frozen=True)
class TextLM:
    """Windows of a text, for a model that must not see ahead; every position is scored on the next token.

    The first four fifths of the text are for training, half of the rest is for validation, the other half for
    test; the tokenizer learns from the training part alone. Byte by byte, 256 tokens are the bytes themselves,
    and more of them stand for frequent groups of bytes. Word by word, all but the most frequent words are one
    unknown token. Used by the chapters on language models.

    No best loss is known for real text. A predictor that only knows how frequent tokens are has `unigram_loss`.

    Attributes:
        corpus: python, the reference of the language that is always there, or shakespeare, which is fetched.
        level: byte or word.
        vocab: size of the vocabulary, at least 256 for bytes.
        length: number of predictions asked for.
        part: which part of the text is drawn from.

    >>> task = TextLM(length=20)
    >>> batch = task.batch(torch.Generator().manual_seed(0), 4)
    >>> batch.inputs.shape, task.tokenizer().encode("if x:").tokens
    (torch.Size([4, 20]), ['i', 'f', 'Ġ', 'x', ':'])

    Raises:
        ValueError: when a size is not a positive whole number, there is no such corpus, level or part, or
            `vocab` is below 256 for bytes.
    """

    corpus: Corpus = "python"
    level: Level = "byte"
    vocab: int = 256
    length: int = 64
    part: Part = "train"
    causal = True

    def __post_init__(self) -> None:
        check_sizes(vocab=self.vocab, length=self.length)
        for name, value, known in (
            ("corpus", self.corpus, get_args(Corpus)),
            ("level", self.level, get_args(Level)),
            ("part", self.part, get_args(Part)),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        if self.level == "byte" and self.vocab < 256:
            raise ValueError(f"there are 256 bytes: vocab must be at least 256, got {self.vocab}")

    def tokenizer(self) -> Tokenizer:
        """What cuts the text, learnt from the training part."""
        return _tokenizer(self.corpus, self.level, self.vocab)

    def tokens(self) -> Int[Tensor, "token"]:
        """All of this part."""
        return _tokens(self.corpus, self.level, self.vocab, self.part).clone()

    def text(self, tokens: Int[Tensor, "position"]) -> str:
        """What the tokens stand for."""
        return str(self.tokenizer().decode(tokens.tolist(), skip_special_tokens=False))

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` windows that begin anywhere in this part.

        Raises:
            ValueError: when the part is shorter than a window.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        whole = _tokens(self.corpus, self.level, self.vocab, self.part)
        if len(whole) <= n:
            raise ValueError(
                f"this part has {len(whole)} tokens, too few for windows of length={n}"
            )
        starts = torch.randint(len(whole) - n, (size, 1), generator=generator)
        windows = whole[starts + torch.arange(n + 1)]
        return Batch(windows[:, :-1], windows[:, 1:], torch.ones(size, n, dtype=torch.bool))

    def unigram_loss(self) -> float:
        """Cost, in nats a token of this part, of guessing by how frequent each token is in training.

        Every count is raised by one, so that no token is impossible.
        """
        seen = _tokens(self.corpus, self.level, self.vocab, "train")
        counts = torch.bincount(seen, minlength=self.vocab).double() + 1
        costs = -(counts / counts.sum()).log()
        return float(costs[_tokens(self.corpus, self.level, self.vocab, self.part)].mean())


def word_tokenizer(text: str, vocab: int) -> Tokenizer:
    """Words and punctuation, the most frequent ones of a text; number 0 is the unknown word."""
    tokenizers = _tokenizers()
    made: Tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    trainer = tokenizers.trainers.WordLevelTrainer(
        vocab_size=vocab, special_tokens=["<unk>"], show_progress=False
    )
    made.train_from_iterator([text], trainer)
    return made


def byte_tokenizer(text: str, vocab: int = 256) -> Tokenizer:
    """The 256 bytes, and as many groups of bytes that a text often has as fit (byte-pair encoding)."""
    tokenizers = _tokenizers()
    made: Tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([text], trainer)
    return made


def part_text(corpus: Corpus, part: Part) -> str:
    """The text of one part. It is cut between paragraphs, as close to the shares as they allow."""
    text = python_reference() if corpus == "python" else shakespeare()
    start, end = (_paragraph_end(text, share) for share in _SHARES[part])
    return text[start:end]


def _paragraph_end(text: str, share: float) -> int:
    if share in (0.0, 1.0):
        return int(share * len(text))
    return text.index("\n\n", round(share * len(text))) + 2


@cache
def _tokenizer(corpus: Corpus, level: Level, vocab: int) -> Tokenizer:
    text = part_text(corpus, "train")
    return word_tokenizer(text, vocab) if level == "word" else byte_tokenizer(text, vocab)


@cache
def _tokens(corpus: Corpus, level: Level, vocab: int, part: Part) -> Int[Tensor, "token"]:
    return torch.tensor(_tokenizer(corpus, level, vocab).encode(part_text(corpus, part)).ids)


def _tokenizers() -> Any:
    """The package, imported when it is needed."""
    try:
        import tokenizers
        from tokenizers import decoders, models, pre_tokenizers, trainers  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "text is cut into tokens by the package tokenizers, which is not installed: "
            "pip install tokenizers"
        ) from error
    return tokenizers
