"""Scripts and styles that lie beside the modules."""

from __future__ import annotations

import functools
from importlib.resources import files


@functools.cache
def packaged(name: str) -> str:
    """Return a file that lies beside this module, without comments on lines of their own and indentation."""
    text = files(__package__).joinpath(name).read_text("utf-8")
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("//", "/*")))
