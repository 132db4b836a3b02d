"""Numbers of the chapter on language models that no expression says: the law, sizes of texts, compressors."""

from __future__ import annotations

import lzma
import math

from measured_transformer.tasks.byte_pairs import text_bytes
from measured_transformer.tasks.task import Part
from measured_transformer.training.loop import make_model
from xarray import DataArray, Dataset

from measured_book.measuring import number
from measured_book.rooms.language_models.measure import (
    DURATIONS,
    HELD_OUT,
    MODEL,
    SIZES,
    fitted,
    operations,
    parameters_of,
    tokens_read,
)


def prediction_errors(scaling: Dataset, size: str, duration: int) -> DataArray:
    """Predicted minus measured nats of a run, for each seed by the law of that seed's cheaper runs."""
    n, d = float(parameters_of(size)), float(tokens_read(duration))
    said = [float(fitted(scaling, int(seed))(n, d)) for seed in scaling.seed.values]
    measured = scaling.nats.sel(size=size, duration=duration)
    return DataArray(said, dims="seed", coords={"seed": scaling.seed}) - measured


@number
def law(scaling: Dataset, *, what: str) -> DataArray:
    """A constant of the law, fitted to the cheaper runs of each seed."""
    values = [getattr(fitted(scaling, int(seed)), what) for seed in scaling.seed.values]
    return DataArray(values, dims="seed")


@number
def missed(scaling: Dataset, *, size: str, duration: int) -> DataArray:
    """Predicted minus measured nats of a run that the law was not fitted to."""
    return prediction_errors(scaling, size.replace("x", " x "), duration)


@number
def decades(*, part: str) -> float:
    """Over how many powers of ten of compute all runs reach, or those that the law was fitted to."""
    every = [operations(s, d) for s in SIZES for d in DURATIONS]
    chosen = [c for c in every if part == "all" or c < HELD_OUT]
    return math.log10(max(chosen) / min(chosen))


@number
def epochs(*, steps: int, tokens: int) -> float:
    """How often a training of so many steps, with so many tokens a step, reads the training text."""
    return steps * tokens / len(text_bytes("train"))


@number
def text_size(*, part: str) -> int:
    """Bytes of a part of the text."""
    parts: dict[str, Part] = {"train": "train", "validation": "validation", "test": "test"}
    return len(text_bytes(parts[part]))


def _xz(text: bytes) -> int:
    return len(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))


@number
def xz_alone() -> float:
    """Bits a byte of the test text for xz that has read nothing before."""
    return 8 * _xz(text_bytes("test")) / len(text_bytes("test"))


@number
def xz_validation() -> float:
    """Bits a byte of the validation text for xz that has read the training text before."""
    seen, text = text_bytes("train"), text_bytes("validation")
    return 8 * (_xz(seen + text) - _xz(seen)) / len(text)


@number
def weight_bytes() -> int:
    """Bytes of the book's model in half precision."""
    return 2 * sum(p.numel() for p in make_model(MODEL, causal=True, seed=0).parameters())


@number
def weights() -> int:
    """Numbers that the book's model has learned."""
    return sum(p.numel() for p in make_model(MODEL, causal=True, seed=0).parameters())
