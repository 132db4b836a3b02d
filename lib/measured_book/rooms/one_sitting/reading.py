"""Readings of *A Transformer in one sitting* that no expression says: sizes of the text and of the model."""

from __future__ import annotations

from measured_transformer.tasks.opened_text import whole_text

from measured_book.measuring import number
from measured_book.rooms.one_sitting.measure import alphabet, fresh, part_of


@number
def characters() -> int:
    """Characters of the text."""
    return len(whole_text())


@number
def training_characters() -> int:
    """Those that the model is trained on."""
    return len(part_of("train"))


@number
def different() -> int:
    """Different characters."""
    return len(alphabet())


@number
def parameter_count() -> int:
    """Numbers that the chapter's model learns."""
    return sum(p.numel() for p in fresh(0).parameters())
