"""How a name that has changed goes on working for one version, and says what it is called now."""

from __future__ import annotations

import warnings


def warn_renamed(old: str, new: str) -> None:
    """Tell whoever wrote the old name, two calls up, of the new one."""
    warnings.warn(
        f"{old} is now called {new}; the old name goes with the next version",
        DeprecationWarning,
        stacklevel=3,
    )
