"""Byte-pair encoding written out, and language modelling on a fixed text that is cut by it.

Source: Gage (1994), "A New Algorithm for Data Compression"; for words of a text Sennrich et al. (2016), "Neural
Machine Translation of Rare Words with Subword Units"; on bytes, so that nothing is unknown, Radford et al.
(2019), "Language Models are Unsupervised Multitask Learners".
"""

from __future__ import annotations

import hashlib
import itertools
import lzma
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.opened_text import SHA256, TEXT
from measured_transformer.tasks.task import Batch, Part, check_sizes

Merge = tuple[int, int]
_WORDS = re.compile(rb" ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+")
_SHARES = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}


def learn_merges(text: bytes, count: int) -> list[Merge]:
    """The pairs of tokens that are merged, in this order: each time the pair that is most frequent in the text.

    Tokens 0 to 255 are the bytes; the first merge makes token 256, and so on. Text is first cut into words,
    with the blank before them, and no merge crosses a cut. Of pairs that are equally frequent the one with the
    smallest numbers comes first.

    Args:
        text: what is learned from.
        count: number of merges; fewer where no pair comes twice.

    Raises:
        ValueError: when `count` is negative.

    >>> learn_merges(b"low low lower", 2)  # l and o, then the two of them and w
    [(108, 111), (256, 119)]
    """
    if count < 0:
        raise ValueError(f"count must not be negative, got {count}")
    words = [(list(word), n) for word, n in sorted(Counter(_WORDS.findall(text)).items())]
    pairs: Counter[Merge] = Counter()
    where: dict[Merge, set[int]] = defaultdict(set)
    for i, (word, n) in enumerate(words):
        for pair in itertools.pairwise(word):
            pairs[pair] += n
            where[pair].add(i)
    merges: list[Merge] = []
    while len(merges) < count and pairs:
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        if pairs[best] < 2:
            break
        new = 256 + len(merges)
        merges.append(best)
        for i in where.pop(best):
            word, n = words[i]
            for pair in itertools.pairwise(word):
                pairs[pair] -= n
            word[:] = _merged(word, best, new)
            for pair in itertools.pairwise(word):
                pairs[pair] += n
                where[pair].add(i)
        del pairs[best]
    return merges


def encode(text: bytes, merges: Sequence[Merge]) -> list[int]:
    """The tokens of a text: within each word the merge that was learned first is made first.

    >>> encode(b"lowest", [(108, 111), (256, 119)])
    [257, 101, 115, 116]
    """
    rank = {pair: i for i, pair in enumerate(merges)}
    known: dict[bytes, list[int]] = {}
    found: list[int] = []
    for word in _WORDS.findall(text):
        if word not in known:
            tokens = list(word)
            while len(tokens) > 1:
                first = min(itertools.pairwise(tokens), key=lambda p: rank.get(p, len(rank)))
                if first not in rank:
                    break
                tokens = _merged(tokens, first, 256 + rank[first])
            known[word] = tokens
        found += known[word]
    return found


def pieces(merges: Sequence[Merge]) -> list[bytes]:
    """The bytes that each token stands for."""
    found = [bytes([i]) for i in range(256)]
    for left, right in merges:
        found.append(found[left] + found[right])
    return found


def decode(tokens: Sequence[int], merges: Sequence[Merge]) -> bytes:
    """The text that tokens stand for.

    >>> decode(encode(b"lowest", [(108, 111)]), [(108, 111)])
    b'lowest'
    """
    known = pieces(merges)
    return b"".join(known[token] for token in tokens)


def _merged(word: Sequence[int], pair: Merge, new: int) -> list[int]:
    found, i = [], 0
    while i < len(word):
        if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
            found.append(new)
            i += 2
        else:
            found.append(word[i])
            i += 1
    return found


@cache
def text_bytes(part: Part) -> bytes:
    """A part of the fixed text: four fifths for training, a tenth for validation, a tenth for the test.

    Raises:
        ValueError: when the file is another one.
    """
    data = lzma.decompress(TEXT.read_bytes())
    if (got := hashlib.sha256(data).hexdigest()) != SHA256:
        raise ValueError(f"expected {TEXT.name} with SHA-256 {SHA256}, got {got}")
    start, end = (round(share * len(data)) for share in _SHARES[part])
    return data[start:end]


@cache
def merges_of(count: int) -> tuple[Merge, ...]:
    """The first merges of the training part."""
    return tuple(learn_merges(text_bytes("train"), count))


@cache
def tokens_of(count: int, part: Part) -> Int[Tensor, "token"]:
    """A part of the text in tokens, with so many merges."""
    return torch.tensor(encode(text_bytes(part), merges_of(count)))


@dataclass(frozen=True)
class BytePairs:
    """Windows of the Python reference, cut by byte-pair encoding; every position is scored on the next token.

    The text is that of `OpenedText`, in bytes. No best loss is known for real text.

    Attributes:
        merges: how many were learned from the training part; 0 leaves bytes.
        length: number of predictions asked for.
        part: which part of the text is drawn from.

    >>> batch = BytePairs(length=5).batch(torch.Generator().manual_seed(0), 2)
    >>> bool((batch.inputs[:, 1:] == batch.targets[:, :-1]).all())
    True

    Raises:
        ValueError: when `length` is not a positive whole number or `merges` is negative.
    """

    merges: int = 0
    length: int = 64
    part: Part = "train"
    causal = True

    def __post_init__(self) -> None:
        check_sizes(length=self.length)
        if self.merges < 0:
            raise ValueError(f"merges must not be negative, got {self.merges}")

    @property
    def vocab(self) -> int:
        """The bytes, and a token for each merge."""
        return 256 + self.merges

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` windows that begin anywhere in this part.

        Raises:
            ValueError: when a size is not a positive whole number.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        whole = tokens_of(self.merges, self.part)
        starts = torch.randint(len(whole) - n, (size, 1), generator=generator)
        windows = whole[starts + torch.arange(n + 1)]
        return Batch(windows[:, :-1], windows[:, 1:], torch.ones(size, n, dtype=torch.bool))
