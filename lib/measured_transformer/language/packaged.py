"""Weights that come inside a package: where they lie, and whether they are the published ones."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True)
class Published:
    """A checkpoint in a package.

    Attributes:
        module: that the package brings.
        file: beside the module's own, which holds the weights.
        sha256: of that file, as its authors publish it.
        install: the command that installs the package, which it names last.
        about: what the weights are, in a few words.
        memory: gigabytes that loading and short texts take at most, with some to spare.
    """

    module: str
    file: str
    sha256: str
    install: str
    about: str
    memory: float = 0.0

    @property
    def anew(self) -> str:
        """The command that mends a damaged file; with `install` alone `pip` would find the package there."""
        return f"pip install --force-reinstall --no-deps {self.install.split()[-1]}"

    def is_installed(self) -> bool:
        """Whether the package is there. Its file is not looked at."""
        found = find_spec(self.module)
        return found is not None and found.origin is not None  # a folder left empty has none

    def place(self) -> Path:
        """The file of the weights, checked; the package's code is not run.

        Raises:
            ImportError: when the package is missing.
            ValueError: when the file is not the published one.
        """
        found = find_spec(self.module)
        if found is None or found.origin is None:
            raise ImportError(
                f"{self.about} comes with the package {self.module}, which is not installed: {self.install}"
            )
        file = Path(found.origin).parent / self.file
        if not file.is_file():
            raise ValueError(
                f"the package {self.module} lacks {self.file}: install it anew: {self.anew}"
            )
        with file.open("rb") as opened:
            got = hashlib.file_digest(opened, "sha256").hexdigest()
        if got != self.sha256:
            raise ValueError(
                f"expected {file} with SHA-256 {self.sha256}, got {got}: install it anew: {self.anew}"
            )
        return file


ELSEWHERE: Mapping[str, Published] = {
    "rxnmapper": Published(
        module="rxnmapper",
        file="models/transformers/albert_heads_8_uspto_all_1310k/pytorch_model.bin",
        sha256="8541f3f500dae71abe678d546bd035ca946e2d1c819f6b2cf41a97faedd7e6a2",
        # Without what its program asks for: an older transformers, and a toolkit of chemistry.
        install="pip install --no-deps rxnmapper==0.4.3",
        about="the ALBERT of chemical reactions in rxnmapper",
    ),
}
"""Name -> where weights are that `published.pretrained` does not load, since they read no text."""
