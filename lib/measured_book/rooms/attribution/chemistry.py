"""A masked language model of chemistry: an ALBERT that has read reactions, loaded once a process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Int
from measured_transformer.interop.albert import read_albert
from measured_transformer.language.packaged import ELSEWHERE
from measured_transformer.models.factorised import FactorisedEncoder
from torch import Tensor

NAME = "rxnmapper"
"""What `measured_transformer.language.packaged` calls it."""
NEEDS = (NAME,)
"""For ``@measurement(pretrained=NEEDS)``: a repeat leaves the measurement out where the package is missing."""
KNOWN = (10, 5)
"""Block and head, both from 0, that the package maps atoms by: head 6 of block 11."""
MASK = "[MASK]"


@cache
def chemist() -> FactorisedEncoder:
    """The model, float32, in evaluation mode, without gradients; every caller gets the same.

    Twelve passes through one block of eight heads, a stream of 256 entries; it was trained to name hidden
    pieces of the strings of reactions from patents (Schwaller et al., 2021). The package's own code is not run.

    Raises:
        ImportError: when the package is missing; the message has the command that installs it.
        ValueError: when the file of the weights is damaged or another one.
    """
    return read_albert(_folder()).requires_grad_(False)


def is_installed() -> bool:
    """Whether the package is there; its file is checked when the model is loaded."""
    return ELSEWHERE[NAME].is_installed()


def numbers(tokens: Sequence[str]) -> Int[Tensor, "position"]:
    """A reaction's pieces as the model reads them, between a token that begins and one that ends.

    Raises:
        ValueError: when the model does not know a piece.
    """
    known = _vocabulary()
    if unknown := sorted({token for token in tokens if token not in known}):
        raise ValueError(
            f"expected pieces of SMILES that the model knows, got {', '.join(unknown)}"
        )
    return torch.tensor([known[token] for token in ("[CLS]", *tokens, "[SEP]")])


def mask() -> int:
    """The token that hides another."""
    return _vocabulary()[MASK]


def _folder() -> Path:
    return ELSEWHERE[NAME].place().parent


@cache
def _vocabulary() -> dict[str, int]:
    lines = (_folder() / "vocab.txt").read_text("utf-8").splitlines()
    return {token: number for number, token in enumerate(lines)}
