"""The laboratory of the book: what its chapters claim, measure, judge, draw and ask.

It is built on the library `measured_transformer`, which knows nothing of it. What a reader asks for most stands
here: `load_result` gives what a chapter measured, with all its seeds, and `check` judges an answer to an
exercise.

>>> from measured_book import check, load_result
>>> check("learning_rate.half_life", lambda beta: 1 / (1 - beta), show=False).passed
False
>>> load_result("norm_placement", "untrained").sizes["seed"]  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from measured_transformer import __version__ as __version__

if TYPE_CHECKING:
    from measured_book.evidence.results import load_result as load_result
    from measured_book.exercises import check as check

# Imported when first used: a page that loads a result needs no exercises.
_HOMES = {
    "check": "measured_book.exercises",
    "load_result": "measured_book.evidence.results",
}
__all__ = ["__version__", "check", "load_result"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
