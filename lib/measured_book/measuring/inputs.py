"""What a measurement reads that does not come with the laboratory: fetched files and checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from measured_transformer.language.published import PUBLISHED, missing
from measured_transformer.tasks.corpora import missing_files

from measured_book.measuring.measurement import Measurement


def missing_inputs(one: Measurement) -> list[str]:
    """The names of those files and checkpoints that are not here. Nothing is fetched or loaded."""
    return [*missing_files(one.corpora), *missing(one.pretrained)]


def how_to_get(names: Sequence[str]) -> str:
    """What is said of a measurement whose corpus or checkpoint is not here."""
    name = names[0]
    if name in PUBLISHED:
        return f"its checkpoint is not here ({name}); {PUBLISHED[name].install}"
    return (
        f"its corpus is not here ({name}); python -m measured_transformer.tasks.corpora fetches it, or "
        "set MEASURED_DATA_DIR to where it lies"
    )
