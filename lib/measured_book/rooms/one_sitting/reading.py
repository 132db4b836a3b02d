"""How the results of *A Transformer in one sitting* are read.

What its claims are judged by, and the numbers that its prose names.
"""

from __future__ import annotations

import math

import numpy as np
from xarray import DataArray, Dataset

from measured_book.measuring import number
from measured_book.rooms.one_sitting.measure import (
    BATCH,
    CONTEXTS,
    LENGTH,
    STEPS,
    VOCAB,
    alphabet,
    fresh,
    part_of,
    reference,
)

# Numbers that the prose names ---------------------------------------------------------------------


def _nats(tables: Dataset, context: int, part: str = "validation") -> float:
    return float(tables.loss.sel(part=part, context=context).isel(seed=0))


def _best_context(tables: Dataset) -> int:
    return CONTEXTS[int(tables.loss.sel(part="validation").isel(seed=0).values.argmin())]


@number
def characters() -> int:
    """Characters of the text."""
    return len(reference())


@number
def training_characters() -> int:
    """Those that the model is trained on."""
    return len(part_of("train"))


@number
def different() -> int:
    """Different characters."""
    return len(alphabet())


@number
def uniform() -> float:
    """Nats a character when all are equally likely."""
    return math.log(VOCAB)


@number
def uniform_bits() -> float:
    """The same in bits."""
    return math.log2(VOCAB)


@number
def single(tables: Dataset) -> float:
    """Nats a character from how frequent each is."""
    return _nats(tables, 0)


@number
def bigram(tables: Dataset) -> float:
    """Nats a character from the table of pairs."""
    return float(tables.bigram.sel(part="validation").isel(seed=0))


@number
def bigram_bits(tables: Dataset) -> float:
    """The same in bits."""
    return float(tables.bigram.sel(part="validation").isel(seed=0)) / math.log(2)


@number
def trigram(tables: Dataset) -> float:
    """Nats a character from the two before it."""
    return _nats(tables, 2)


@number
def best_table(tables: Dataset) -> float:
    """Nats a character of the best table."""
    return float(tables.loss.sel(part="validation").isel(seed=0).min())


@number
def best_table_test(tables: Dataset) -> float:
    """The same table on the text that nothing was chosen on."""
    return _nats(tables, _best_context(tables), "test")


@number
def reached_bits(sitting: Dataset) -> DataArray:
    """Bits a character after training."""
    return sitting.validation / math.log(2)


@number
def parameter_count() -> int:
    """Numbers that the chapter's model learns."""
    return sum(p.numel() for p in fresh(0).parameters())


@number
def perplexity(sitting: Dataset) -> DataArray:
    """Among how many characters, all alike, one would have to choose for the same loss."""
    return np.exp(sitting.validation)


@number
def seed_range(sitting: Dataset) -> float:
    """How far the best and the worst seed lie apart after training."""
    return float(sitting.validation.max() - sitting.validation.min())


def _passed(sitting: Dataset, level: float) -> int:
    mean = sitting.curve.mean("seed")
    return int(sitting.step.values[(mean < level).values][0])


@number
def passes_pairs(sitting: Dataset, tables: Dataset) -> int:
    """The first evaluation at which the mean of the seeds is below the table of pairs, in steps."""
    return _passed(sitting, float(tables.bigram.sel(part="validation").isel(seed=0)))


@number
def passes_triples(sitting: Dataset, tables: Dataset) -> int:
    """The same for the table that looks at two characters."""
    return _passed(sitting, _nats(tables, 2))


@number
def at_nine(sitting: Dataset) -> DataArray:
    """Nats a character where nine to sixteen characters can be seen."""
    return sitting.by_position.sel(position=slice(9, 16)).mean("position")


@number
def at_thirty_three(sitting: Dataset) -> DataArray:
    """The same where thirty-three to sixty-four can."""
    return sitting.by_position.sel(position=slice(33, 64)).mean("position")


@number
def table_of_six(tables: Dataset) -> float:
    """Nats a character of the table that looks at six."""
    return _nats(tables, 6)


@number
def epochs() -> float:
    """How often the training text is read."""
    return STEPS * BATCH * LENGTH / len(part_of("train"))
