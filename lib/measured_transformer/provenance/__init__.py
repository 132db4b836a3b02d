"""Identifies the code that computed a value: one walk over definitions, one digest, used for all kept values.

Trained runs, tuned learning rates, results and executed chapters are kept under a digest of the code that they
reach. It is taken of *definitions*, the functions, classes and assignments of modules, as syntax trees:
docstrings, comments, formatting, annotations of functions and the words of errors do not count, nor do
imports and the names and places of modules and definitions, because a reference stands for the content that
it leads to. So a better explanation, a move or a new function beside changes nothing, and a changed constant
changes exactly what reaches it.

Names are followed, not the course of a program: a definition counts where it is named (through imports,
also on conditions and of everything, through attributes, through texts such as ``getattr(x, f"_{kind}")`` or
``"package.module:name"``).
What puts itself into another module's table while it is imported is seen only by whoever names it, so no
module of the library does.

>>> from measured_transformer.provenance import digest, reach
>>> from measured_transformer.parts.norms import RMSNorm
>>> digest(RMSNorm) == digest("measured_transformer.parts.norms:RMSNorm")
True
>>> "measured_transformer.parts.norms:RMSNorm" in reach(RMSNorm)
True
"""

from measured_transformer.provenance.digests import (
    CodeUnknownError,
    digest,
    digest_source,
    files,
    files_of_source,
    names_of_source,
    reach,
    reach_source,
    roots,
    versions,
)
from measured_transformer.provenance.kept import keep_walks
from measured_transformer.provenance.modules import unchanging
from measured_transformer.provenance.words import plain

__all__ = [
    "CodeUnknownError",
    "digest",
    "digest_source",
    "files",
    "files_of_source",
    "keep_walks",
    "names_of_source",
    "plain",
    "reach",
    "reach_source",
    "roots",
    "unchanging",
    "versions",
]
