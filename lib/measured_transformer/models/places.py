"""The former name of `measured_transformer.models.token_positions`; it goes with the next version."""

from typing import Any

from measured_transformer.models import token_positions
from measured_transformer.parts._renamed import warn_renamed

_NOW = {"Places": "TokenPositions", "find_places": "find_positions"}


def __getattr__(name: str) -> Any:
    if name not in _NOW:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = _NOW[name]
    warn_renamed(f"{__name__}.{name}", f"{token_positions.__name__}.{new}")
    return getattr(token_positions, new)
