"""What placements of norms are called and drawn as, on all figures of runs that solve their task or do not."""

from __future__ import annotations

from collections.abc import Mapping

CONCEPTS: Mapping[str, str] = {
    "pre": "residual",
    "post": "norm",
    "sandwich": "attention",
    "deep": "ffn",
    "qk": "learned",
    "none": "none",
}
"""What a placement is drawn as, the same on all figures."""
NAMES: Mapping[str, str] = {
    "pre": "pre-norm",
    "post": "post-norm",
    "sandwich": "both sides",
    "deep": "DeepNorm",
    "qk": "queries and keys",
    "none": "no norm",
}
"""What a placement is called."""
