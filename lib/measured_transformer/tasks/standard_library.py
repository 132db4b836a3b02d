"""Language modelling on the source code and documentation of Python's own standard library, in whole passes.

Some ten megabytes that every reader has: no file is fetched. They differ a little between releases of Python,
so what was measured on one release names it, by `RELEASE` and `SHA256`, and `is_pinned` says whether the text
of the running Python is that one.

>>> task = StandardLibrary(length=20)
>>> task.batch(torch.Generator().manual_seed(0), 4).inputs.shape
torch.Size([4, 20])
"""

from __future__ import annotations

import hashlib
import platform
import re
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import get_args

import torch
from jaxtyping import Int
from torch import Tensor

from measured_transformer.tasks.corpora import python_reference
from measured_transformer.tasks.task import Batch, Part, check_sizes

RELEASE = "3.11.7"
"""The release of Python whose text the book's results were measured on."""
NAME = f"standard library of Python {RELEASE}"
"""What a measurement on that text names among its corpora."""
SHA256 = "bb2ff0e81e83e8f635c13ab35d8f09f894de89b36b3ca31c5bad04f953b04714"
"""The SHA-256 of that text, all parts one after the other, as `text_digest` gives it."""
TESTS = frozenset(("test", "tests", "idle_test"))
"""Folders that hold tests."""
TABLES = frozenset(("entities.py", "stringprep.py", "schema.py", "sequence.py", "topics.py"))
"""Files that are tables which a program wrote, beside the code pages of `encodings`."""
_CODE_PAGE = re.compile(rb"^decoding_(map|table) = ", re.MULTILINE)
_BUILD = "_sysconfigdata"
_SHARES = 20
_KEYS = 2**62


@dataclass(frozen=True)
class StandardLibrary:
    """Windows of the standard library's text, byte by byte, for a model that must not see ahead.

    The text is that of `library_files`: modules without tests and generated tables, and the reference of the
    language. Of twenty files one is for validation and one for test, chosen by a digest of its name.
    Each part is cut into windows once and for all. A stream of batches gives each window exactly once, in an
    order that belongs to the seed of its generator, then once more in another order for each further pass;
    it ends when the passes are over. So a training meets no window twice unless it is asked to.

    Attributes:
        length: number of predictions asked for.
        part: which part of the text is drawn from.
        windows: how many windows of the training part there are, drawn by the generator's seed; None: all.
            Validation and test are always whole.
        passes: how many times each window is given.

    Raises:
        ValueError: when a number is not a positive whole one, or there is no such part.
    """

    length: int = 64
    part: Part = "train"
    windows: int | None = None
    passes: int = 1
    causal = True

    def __post_init__(self) -> None:
        check_sizes(length=self.length, passes=self.passes)
        if self.windows is not None:
            check_sizes(windows=self.windows)
        if self.part not in get_args(Part):
            raise ValueError(f"part must be one of {', '.join(get_args(Part))}, got {self.part!r}")

    @property
    def vocab(self) -> int:
        """The 256 bytes."""
        return 256

    def tokens(self) -> Int[Tensor, "token"]:
        """All bytes of this part."""
        return _tokens(self.part).long()

    def text(self, tokens: Int[Tensor, "position"]) -> str:
        """What the tokens stand for."""
        return bytes(tokens.tolist()).decode("utf-8", errors="replace")

    def batch(self, generator: torch.Generator, size: int, *, length: int | None = None) -> Batch:
        """The next `size` windows of a generator's stream.

        What tells how far a stream has come is the generator itself: its numbers are keys, one for each window
        of all passes, and the rank of a key among those of its pass is the window's number.

        Raises:
            ValueError: when a size is not a positive whole number, when the part is shorter than a window, when
                it has fewer windows than asked for, or when the windows of all passes have been given.
        """
        n = self.length if length is None else length
        check_sizes(size=size, length=n)
        whole = _tokens(self.part)
        there = (len(whole) - 1) // n
        wanted = there if self.windows is None or self.part != "train" else self.windows
        if not 0 < wanted <= there:
            raise ValueError(
                f"the {self.part} part has {there} windows of length={n}, got windows={self.windows}"
            )
        passes = self.passes if self.part == "train" else 1
        keys, numbers = _stream(generator.initial_seed(), there, wanted, passes)
        drawn = torch.randint(_KEYS, (size,), generator=generator)
        places = torch.searchsorted(keys, drawn).clamp(max=len(keys) - 1)
        if not bool((keys[places] == drawn).all()):
            raise ValueError(
                f"expected at most {wanted} windows {passes} times from a generator that gives nothing else, "
                "got more: train for fewer steps, or ask for more windows or passes"
            )
        starts = numbers[places, None] * n
        chosen = whole[starts + torch.arange(n + 1)].long()
        return Batch(chosen[:, :-1], chosen[:, 1:], torch.ones(size, n, dtype=torch.bool))

    def unigram_loss(self) -> float:
        """Cost, in nats a byte of this part, of guessing by how frequent each byte is in training.

        Every count is raised by one, so that no byte is impossible.
        """
        counts = torch.bincount(_tokens("train").long(), minlength=self.vocab).double() + 1
        costs = -(counts / counts.sum()).log()
        return float(costs[self.tokens()].mean())


@lru_cache(maxsize=8)
def _stream(
    seed: int, there: int, wanted: int, passes: int
) -> tuple[Int[Tensor, "window"], Int[Tensor, "window"]]:
    """The keys that a fresh generator of this seed draws, in ascending order, and the window of each."""
    drawn = torch.randint(_KEYS, (passes * wanted,), generator=torch.Generator().manual_seed(seed))
    ranks = drawn.view(passes, wanted).argsort(dim=1).argsort(dim=1)
    chosen = torch.arange(there)
    if wanted < there:  # those of the seed, drawn by a generator far from all others
        other = torch.Generator().manual_seed((seed + 2**31) % 2**32)
        chosen = torch.randperm(there, generator=other)[:wanted]
    keys, order = drawn.sort()
    return keys, chosen[ranks.flatten()[order]]


# The text -----------------------------------------------------------------------------------------


def library_files(folder: Path | None = None) -> dict[str, Path]:
    """The source files of the running Python's standard library, by name, without tests and generated tables.

    Args:
        folder: where they lie; where this Python has them when not given.
    """
    root = Path(sysconfig.get_path("stdlib")) if folder is None else folder
    found = {}
    for name in sorted(sys.stdlib_module_names - TESTS):
        module, package = root / f"{name}.py", root / name
        files: Iterable[Path] = [module] if module.is_file() else package.rglob("*.py")
        for file in files:
            parts = file.relative_to(root).parts
            if not TESTS & set(parts) and not _is_table(file):
                found["/".join(parts)] = file
    return dict(sorted(found.items()))


def _is_table(file: Path) -> bool:
    return (
        file.name in TABLES
        or file.name.startswith(_BUILD)
        or (file.parent.name == "encodings" and _CODE_PAGE.search(file.read_bytes()) is not None)
    )


def part_of(name: str) -> Part:
    """The part that a file belongs to, by a digest of its name."""
    number = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    parts: dict[int, Part] = {0: "validation", 1: "test"}
    return parts.get(number % _SHARES, "train")


def library_text(part: Part) -> bytes:
    """The text of one part: its files by name, one after the other, the reference of the language among them.

    Raises:
        ModuleNotFoundError: when this Python was installed without the reference.
    """
    return _texts()[part]


def text_digest() -> str:
    """The SHA-256 of the running Python's text, all parts one after the other."""
    return hashlib.sha256(b"".join(_texts().values())).hexdigest()


def is_pinned() -> bool:
    """True if the running Python has the very text that the book's results were measured on.

    Each release has another text, and so has one whose files a distribution has changed or left out. A task
    works on any of them; results on different texts are not equal to the last digit.
    """
    return platform.python_version() == RELEASE and text_digest() == SHA256


@cache
def _texts() -> dict[Part, bytes]:
    texts = {name: file.read_bytes() for name, file in library_files().items()}
    texts["reference"] = python_reference().encode()
    parts: dict[Part, list[bytes]] = {part: [] for part in get_args(Part)}
    for name, text in sorted(texts.items()):
        parts[part_of(name)].append(text.replace(b"\r\n", b"\n"))
    return {part: b"\n".join(each) for part, each in parts.items()}


@cache
def _tokens(part: Part) -> Int[Tensor, "token"]:
    return torch.frombuffer(bytearray(library_text(part)), dtype=torch.uint8)
