r"""Language modelling on a text file of your own, in bytes, in characters or in pieces learned from it.

The first four fifths of the file are for training, half of the rest is for validation, the other half for test.
What is drawn for training never reaches into the others, and pieces and characters are learned from the
training part alone.

>>> import tempfile
>>> from pathlib import Path
>>> from measured_transformer import Config, evaluate, generate, train
>>> folder = tempfile.TemporaryDirectory()
>>> file = Path(folder.name, "mine.txt")
>>> _ = file.write_text("The cat sat on the mat. The dog sat on the log.\n" * 40)
>>> task = TextFile(file, length=32)
>>> config = Config(vocab=task.vocab, d_model=32, n_layers=1, positions="rotary")
>>> run = train(config, task, steps=60, learning_rate=1e-2, seed=0, batch_size=16)
>>> evaluate(run.model, task, seed=0).part               # scored on what was held out
'validation'
>>> written = generate(run.model, [task.encode("The cat")], max_new_tokens=9)
>>> task.decode(written.tokens[0])
' sat on t'
>>> folder.cleanup()
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.byte_pairs import Merge, encode, learn_merges, pieces
from measured_transformer.tasks.packaged import character_tokenizer, piece_tokenizer
from measured_transformer.tasks.task import Batch, Part, check_sizes

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Level = Literal["byte", "character"]
_UNKNOWN = "\ufffd"  # what stands for a character that training does not have


@dataclass(frozen=True)
class TextFile:
    """Windows of a text file, for a model that must not see ahead; every position is scored on the next token.

    Byte by byte, tokens 0 to 255 are the bytes, and each merge that is learned (`byte_pairs.learn_merges`) adds
    a
    token for a frequent group of them: any text can be written, and nothing is unknown. Character by character,
    token 0 is the unknown character, and the others are those of the training part in the order of Unicode.

    The parts follow one another in the file, so that no window has tokens of two. Where the file says the same
    thing twice, the same text may still stand in two parts. The file is not changed, and must not change while
    it is used; that is noticed.

    No best loss is known for real text. A predictor that only knows how frequent tokens are has `unigram_loss`.

    Attributes:
        path: of the file.
        level: byte or character; a file that is read by characters must be UTF-8.
        merges: how many groups of bytes are learned from the training part; fewer where no pair comes twice.
        length: number of predictions asked for.
        train_share: share of the file that training gets, counted from its start.
        part: which part of the file is drawn from.
        sha256: of the file, which tells two files of one name apart; found out when it is not given.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: when it is empty, is no UTF-8 where that is asked for, has another SHA-256 than is given, or
            is so short that a part has fewer tokens than a window; when a size is not a positive whole number,
            there is no such level or part, or the share does not lie between 0 and 1.
    """

    path: str | Path
    level: Level = "byte"
    merges: int = 0
    length: int = 64
    train_share: float = 0.8
    part: Part = "train"
    sha256: str = ""
    causal = True

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | Path):
            raise ValueError(f"path must be that of a text file, got {self.path!r}")
        object.__setattr__(self, "path", str(self.path))
        check_sizes(length=self.length)
        if isinstance(self.merges, bool) or not isinstance(self.merges, int) or self.merges < 0:
            raise ValueError(f"merges must be 0 or a positive whole number, got {self.merges!r}")
        for name, value, known in (
            ("level", self.level, get_args(Level)),
            ("part", self.part, get_args(Part)),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        if self.merges and self.level != "byte":
            raise ValueError(f"merges are of bytes: expected level='byte', got {self.level!r}")
        share = self.train_share
        if not isinstance(share, Real) or not 0 < share < 1:
            raise ValueError(f"train_share must lie between 0 and 1, got {self.train_share!r}")
        found = _check_digest(str(self.path), _read(str(self.path)), self.sha256)
        object.__setattr__(self, "sha256", found)
        for part in get_args(Part):
            _check_length(self, part, self.length)

    @property
    def vocab(self) -> int:
        """Number of different tokens.

        Raises:
            FileNotFoundError: when the file is gone.
            ValueError: when it has changed.
        """
        if self.level == "character":
            return 1 + len(_alphabet(str(self.path), self.sha256, self.train_share))
        return 256 + len(_merges(str(self.path), self.sha256, self.train_share, self.merges))

    def tokens(self) -> Int[Tensor, "token"]:
        """All of this part.

        Raises:
            FileNotFoundError: when the file is gone.
            ValueError: when it has changed.
        """
        return _tokens(self, self.part).long()

    def encode(self, text: str) -> list[int]:
        """The tokens of any text.

        Raises:
            FileNotFoundError: when the file is gone.
            ValueError: when it is no text, or the file has changed.

        >>> TextFile(__file__).encode("é")
        [195, 169]
        """
        if not isinstance(text, str):
            raise ValueError(f"expected a text, got {type(text).__name__}")
        if self.level == "character":
            return _ranks(_alphabet(str(self.path), self.sha256, self.train_share), text)
        merges = _merges(str(self.path), self.sha256, self.train_share, self.merges)
        return encode(text.encode("utf-8"), merges)

    def decode(self, tokens: Iterable[int] | Int[Tensor, "position"]) -> str:
        """The text that tokens stand for; bytes that are no UTF-8 become the sign for an unknown character.

        Raises:
            FileNotFoundError: when the file is gone.
            ValueError: when there is no such token, or the file has changed.
        """
        numbers = self._numbers(tokens)
        if self.level == "character":
            alphabet = _UNKNOWN + _alphabet(str(self.path), self.sha256, self.train_share)
            return "".join(alphabet[number] for number in numbers)
        known = self._pieces()
        return b"".join(known[number] for number in numbers).decode("utf-8", errors="replace")

    def string(self, token: int) -> str:
        r"""One token as a string, as viewers show it; bytes that are no text by themselves as \xe2.

        Raises:
            FileNotFoundError: when the file is gone.
            ValueError: when there is no such token, or the file has changed.
        """
        (number,) = self._numbers([token])
        if self.level == "character":
            return self.decode([number])
        return self._pieces()[number].decode("utf-8", errors="backslashreplace")

    def tokenizer(self) -> Tokenizer:
        """The same tokens from the package `tokenizers`, which can be saved beside a model.

        >>> import tempfile
        >>> task = TextFile(__file__, merges=20)
        >>> task.tokenizer().encode("The text").ids == task.encode("The text")
        True

        Raises:
            FileNotFoundError: when the file is gone.
            ModuleNotFoundError: when the package is not installed.
            ValueError: when the file has changed, or two merges make the same piece, which that package cannot
                tell apart.
        """
        if self.level == "character":
            alphabet = _alphabet(str(self.path), self.sha256, self.train_share)
            return character_tokenizer(alphabet)
        merges = _merges(str(self.path), self.sha256, self.train_share, self.merges)
        return piece_tokenizer(merges)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` windows that begin anywhere in this part.

        Raises:
            FileNotFoundError: when the file is gone.
            ValueError: when a size is not a positive whole number, the part is shorter than a window, or the
                file has changed.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        _check_length(self, self.part, n)
        whole = _tokens(self, self.part)
        starts = torch.randint(len(whole) - n, (size, 1), generator=generator)
        windows = whole[starts + torch.arange(n + 1)].long()
        return Batch(windows[:, :-1], windows[:, 1:], torch.ones(size, n, dtype=torch.bool))

    def unigram_loss(self) -> float:
        """Cost, in nats a token of this part, of guessing by how frequent each token is in training.

        Every count is raised by one, so that no token is impossible.

        Raises:
            FileNotFoundError: when the file is gone.
            ValueError: when it has changed.
        """
        seen = _tokens(self, "train").long()
        counts = torch.bincount(seen, minlength=self.vocab).double() + 1
        costs = -(counts / counts.sum()).log()
        return float(costs[self.tokens()].mean())

    def _numbers(self, tokens: Iterable[int] | Tensor) -> list[int]:
        if not isinstance(tokens, Iterable):
            raise ValueError(f"expected a list of tokens, got {tokens!r}")
        given = tokens.tolist() if isinstance(tokens, Tensor) else list(tokens)
        for token in given:
            if not isinstance(token, int) or not 0 <= token < self.vocab:
                raise ValueError(f"expected tokens from 0 to {self.vocab - 1}, got {token!r}")
        return given

    def _pieces(self) -> list[bytes]:
        return _named(str(self.path), self.sha256, self.train_share, self.merges)


def _check_length(task: TextFile, part: Part, length: int) -> None:
    """Raise ValueError when a part of the file is shorter than a window."""
    count = len(_tokens(task, part))
    if count <= length:
        raise ValueError(
            f"the {part} part of {task.path} has {count} tokens, too few for windows of length={length}: "
            f"expected at least {length + 1}; ask for a shorter length, a longer text or another train_share"
        )


def _read(path: str) -> bytes:
    """The bytes of a file, which is there and not empty."""
    file = Path(path)
    if not file.is_file():
        what = "a folder" if file.is_dir() else "nothing there"
        raise FileNotFoundError(
            f"expected a text file, got {what}: {path} (looked for from {Path.cwd()})"
        )
    data = file.read_bytes()
    if not data:
        raise ValueError(f"expected a text to learn from, got the empty file {path}")
    return data


def _check_digest(path: str, data: bytes, sha256: str) -> str:
    """The SHA-256 of a file, which must be the given one, if any."""
    got = hashlib.sha256(data).hexdigest()
    if sha256 not in ("", got):
        raise ValueError(
            f"{path} is not the file that the task was made for: expected SHA-256 {sha256}, got {got}; make "
            "the task anew for the text that stands there now"
        )
    return got


@lru_cache(maxsize=8)
def _part(path: str, sha256: str, level: Level, train_share: float, part: Part) -> bytes | str:
    """A part of the file, in bytes or in characters."""
    data = _read(path)
    _check_digest(path, data, sha256)
    text: bytes | str = data
    if level == "character":
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path} is no UTF-8 (byte {error.start} is {data[error.start]:#04x}), so it has no "
                "characters: convert it, or read it with level='byte'"
            ) from error
    first = train_share
    second = first + (1 - first) / 2
    edges = {"train": (0.0, first), "validation": (first, second), "test": (second, 1.0)}[part]
    start, end = (round(share * len(text)) for share in edges)
    return text[start:end]


@lru_cache(maxsize=8)
def _alphabet(path: str, sha256: str, train_share: float) -> str:
    return "".join(sorted(set(str(_part(path, sha256, "character", train_share, "train")))))


@lru_cache(maxsize=8)
def _merges(path: str, sha256: str, train_share: float, count: int) -> tuple[Merge, ...]:
    if not count:
        return ()
    text = _part(path, sha256, "byte", train_share, "train")
    assert isinstance(text, bytes)
    return tuple(learn_merges(text, count))


@lru_cache(maxsize=8)
def _named(path: str, sha256: str, train_share: float, count: int) -> list[bytes]:
    return pieces(_merges(path, sha256, train_share, count))


def _tokens(task: TextFile, part: Part) -> Tensor:
    return _cut(str(task.path), task.sha256, task.level, task.merges, task.train_share, part)


@lru_cache(maxsize=24)
def _cut(
    path: str, sha256: str, level: Level, merges: int, train_share: float, part: Part
) -> Tensor:
    """A part of the file in tokens, in as few bytes as they take."""
    text = _part(path, sha256, level, train_share, part)
    if isinstance(text, str):
        ranks = _ranks(_alphabet(path, sha256, train_share), text)
        return torch.tensor(ranks, dtype=torch.int32)
    if not merges:
        return torch.frombuffer(bytearray(text), dtype=torch.uint8) if text else torch.empty(0)
    numbers = encode(text, _merges(path, sha256, train_share, merges))
    return torch.tensor(numbers, dtype=torch.int32)


def _ranks(alphabet: str, text: str) -> list[int]:
    rank = {character: 1 + i for i, character in enumerate(alphabet)}
    return [rank.get(character, 0) for character in text]
