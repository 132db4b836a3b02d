"""What the library needs, said in one sentence where it is not there."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, version

PYTHON = (3, 11)
TORCH = (2, 6)


def check() -> None:
    """Look at Python and torch, without importing torch.

    Raises:
        ImportError: when one of them is missing or too old; the message says what to do.
    """
    here = sys.version_info[:2]
    if here < PYTHON:
        raise ImportError(
            f"measured_transformer needs Python {_dotted(PYTHON)} or newer, this is {_dotted(here)}; make a "
            "virtual environment with a newer interpreter"
        )
    needed = f"measured_transformer needs torch {_dotted(TORCH)} or newer"
    try:
        found = version("torch")
    except PackageNotFoundError:
        raise ImportError(
            f"{needed}, and there is none; install it with: pip install torch"
        ) from None
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < TORCH:
        raise ImportError(f"{needed}, got {found}; upgrade it with: pip install --upgrade torch")


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
