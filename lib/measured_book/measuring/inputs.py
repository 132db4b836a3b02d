"""What a measurement reads that does not come with the laboratory: texts, fetched files and checkpoints."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from measured_transformer.language.packaged import ELSEWHERE
from measured_transformer.language.published import PUBLISHED, missing
from measured_transformer.tasks import standard_library
from measured_transformer.tasks.corpora import missing_files

from measured_book.measuring.measurement import Measurement


def missing_inputs(one: Measurement) -> list[str]:
    """The names of those texts, files and checkpoints that are not here. Nothing is fetched or loaded."""
    texts = [name for name in one.corpora if name == standard_library.NAME]
    files = [name for name in one.corpora if name not in texts]
    others = [] if not texts or standard_library.is_pinned() else texts
    return [*others, *missing_files(files), *missing(one.pretrained)]


def how_to_get(names: Sequence[str]) -> str:
    """What is said of a measurement whose corpus or checkpoint is not here."""
    name = names[0]
    checkpoints = {**PUBLISHED, **ELSEWHERE}
    if name in checkpoints:
        return f"its checkpoint is not here ({name}); {checkpoints[name].install}"
    if name == standard_library.NAME:
        return (
            f"its text is not here (the {name}): Python {platform.python_version()}, as it is installed here, "
            "has another one, so other values are expected; run it with that release, installed whole"
        )
    return (
        f"its corpus is not here ({name}); python -m measured_transformer.tasks.corpora fetches it, or "
        "set MEASURED_DATA_DIR to where it lies"
    )
