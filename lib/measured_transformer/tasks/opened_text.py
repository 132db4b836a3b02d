"""Language modelling on a fixed text, character by character, behind a start token."""

from __future__ import annotations

import hashlib
import lzma
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.task import Batch, Part, check_sizes

TEXT = Path(__file__).parent / "python-reference.txt.xz"
"""The reference of the Python language, as one release has it, kept with the library.

:meta hide-value:
"""
SHA256 = "52b20a97b47dd32a9b7df46d085cb280f1d4eed26e03b3687cc55f7cb29bdd95"
_SHARES = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}
_CHARACTERS = 103


@cache
def whole_text() -> str:
    """The whole text.

    Raises:
        ValueError: when the file is another one.
    """
    data = lzma.decompress(TEXT.read_bytes())
    if (got := hashlib.sha256(data).hexdigest()) != SHA256:
        raise ValueError(f"expected {TEXT.name} with SHA-256 {SHA256}, got {got}")
    return data.decode("utf-8")


@cache
def characters(part: Part) -> Int[Tensor, "token"]:
    """A part of the text, character by character: a character's token is its rank in the sorted alphabet.

    Raises:
        ValueError: when the file is another one.
    """
    text = whole_text()
    rank = {character: i for i, character in enumerate(sorted(set(text)))}
    start, end = (round(share * len(text)) for share in _SHARES[part])
    return torch.tensor([rank[character] for character in text[start:end]])


@dataclass(frozen=True)
class OpenedText:
    """Windows of the text behind a start token; each position is scored on the character that follows.

    The start token is the last one of the vocabulary. No best loss is known for real text.

    Attributes:
        length: number of predictions asked for.
        part: which part of the text is drawn from.

    >>> batch = OpenedText(length=5).batch(torch.Generator().manual_seed(0), 2)
    >>> batch.inputs[:, 0].tolist(), bool((batch.inputs[:, 1:] == batch.targets[:, :-1]).all())
    ([103, 103], True)

    Raises:
        ValueError: when `length` is not a positive whole number.
    """

    length: int = 64
    part: Part = "train"
    causal = True
    vocab = _CHARACTERS + 1

    def __post_init__(self) -> None:
        check_sizes(length=self.length)

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """Draw `size` windows that begin anywhere in this part.

        Raises:
            ValueError: when a size is not a positive whole number.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        whole = characters(self.part)
        starts = torch.randint(len(whole) - n, (size, 1), generator=generator)
        windows = whole[starts + torch.arange(n)]
        opened = torch.cat((torch.full((size, 1), _CHARACTERS), windows[:, :-1]), dim=1)
        return Batch(opened, windows, torch.ones(size, n, dtype=torch.bool))
