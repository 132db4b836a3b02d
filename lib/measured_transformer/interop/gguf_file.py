"""What a GGUF file holds: its metadata, read at once, and its tensors, made real numbers one at a time.

GGUF is the format of llama.cpp: settings, tokenizer and weights in one file, the weights mostly as blocks of
small whole numbers with a scale for each block. What a block stands for is computed by the package `gguf`,
which is imported when used. The head of the file is read here: the package's own reader makes an array of
every token of a vocabulary, which takes seconds.
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
# The number of a type of metadata: its code in `struct`.
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9
_AT_ONCE = 1 << 20  # weights that are made real numbers in one step: few enough for the cache


@dataclass(frozen=True)
class Stored:
    """A tensor as it lies in the file.

    Attributes:
        shape: with the input of a linear map last, as in PyTorch.
        kind: how its numbers are stored, such as 'Q4_1'.
        start: of its first byte in the file.
        bytes: how many it takes.
    """

    shape: tuple[int, ...]
    kind: str
    start: int
    bytes: int

    @property
    def numbers(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


class GGUFFile:
    """A GGUF file whose head was read.

    Attributes:
        path: where it lies.
        metadata: settings and tokenizer by the file's own keys, such as 'general.architecture'.
        tensors: where each tensor lies, by its name.
    """

    def __init__(self, path: str | Path) -> None:
        """Read the head.

        Raises:
            FileNotFoundError: when there is no such file.
            ImportError: when the package `gguf` is missing.
            ValueError: when it is no GGUF file, one of another version or byte order, damaged, or cut short.
        """
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(
                f"expected a GGUF file, got {str(path)!r}; nothing is downloaded"
            )
        sizes = _sizes()
        with self.path.open("rb") as opened:
            if opened.read(4) != _MAGIC:
                raise ValueError(f"{self.path} is no GGUF file: it does not begin with GGUF")
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
                head = _Head(data, self.path)
                self.metadata, self.tensors = head.read(sizes)

    @property
    def architecture(self) -> str:
        """What kind of model it holds, such as 'llama'. Raises ValueError when the file does not say."""
        name = self.metadata.get("general.architecture")
        if not isinstance(name, str):
            raise ValueError(f"{self.path} has no general.architecture, so it names no model")
        return name

    @property
    def kinds(self) -> dict[str, int]:
        """How many numbers are stored in which way, the most first; vectors do not count beside matrices."""
        found: Counter[str] = Counter()
        for stored in self.tensors.values():
            if len(stored.shape) > 1:
                found[stored.kind] += stored.numbers
        return dict(found.most_common())

    @property
    def precision(self) -> str:
        """How most weights are stored, in words: '4 bits (Q4_1)'.

        A model that is read from the file computes with the numbers that these bits stand for, whatever the
        precision of its tensors.
        """
        if not self.kinds:
            return "no weights"
        kind = next(iter(self.kinds))
        bits = re.search(r"\d+", kind)
        return f"{bits[0]} bits ({kind})" if bits else kind

    def tensor(self, name: str) -> Float[Tensor, "..."]:
        """The real numbers of a tensor in float32, in memory of their own.

        Raises:
            KeyError: when there is no such tensor.
            ValueError: when the installed `gguf` cannot tell what its blocks stand for, or the file ends early.
        """
        stored, gguf = self.tensors[name], _package()
        raw = np.fromfile(self.path, np.uint8, stored.bytes, offset=stored.start)
        if len(raw) != stored.bytes:
            raise ValueError(f"{self.path} ends in the middle of the tensor {name}")
        kind = gguf.GGMLQuantizationType[stored.kind]
        width = stored.shape[-1] if stored.shape else 1
        numbers = np.empty((stored.numbers // width, width), np.float32)
        raw = raw.reshape(len(numbers), -1)
        step = max(1, _AT_ONCE // width)
        for at in range(0, len(raw), step):
            try:
                numbers[at : at + step] = gguf.quants.dequantize(raw[at : at + step], kind)
            except NotImplementedError:
                raise ValueError(
                    f"the tensor {name} of {self.path} is stored as {stored.kind}, which gguf "
                    "does not turn into real numbers"
                ) from None
        return torch.from_numpy(numbers.reshape(stored.shape))


def _package() -> ModuleType:
    """The package `gguf`. Raises ImportError, in one sentence, when it cannot be imported."""
    try:
        import gguf
    except ImportError as error:
        raise ImportError(
            f"reading a GGUF file needs the package gguf ({error}); install it with: pip install gguf"
        ) from None
    made: ModuleType = gguf
    return made


def _sizes() -> dict[int, tuple[str, int, int]]:
    """For the number of each way of storing its name, the numbers in a block and the bytes of a block."""
    gguf = _package()
    return {int(kind): (kind.name, *size) for kind, size in gguf.GGML_QUANT_SIZES.items()}


class _Head:
    """Reads the head of a file from its beginning."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data, self.path, self.at = data, path, len(_MAGIC)

    def read(
        self, sizes: dict[int, tuple[str, int, int]]
    ) -> tuple[dict[str, Any], dict[str, Stored]]:
        try:
            version = self._number("I")
            if version and not version & 0xFFFF:
                raise ValueError(
                    f"{self.path} is in the order of bytes of other machines (big-endian), which is not read"
                )
            if version not in _VERSIONS:
                raise ValueError(
                    f"{self.path} has version {version} of GGUF; read are {_VERSIONS[0]} and {_VERSIONS[1]}"
                )
            n_tensors, n_keys = self._number("Q"), self._number("Q")
            metadata = {}
            for _ in range(n_keys):
                key = self._string()
                metadata[key] = self._value(self._number("I"))
            found = [self._tensor() for _ in range(n_tensors)]
        except (struct.error, UnicodeDecodeError, MemoryError) as error:
            raise ValueError(
                f"{self.path} is damaged or cut short: its head cannot be read"
            ) from error
        return metadata, self._placed(found, metadata.get("general.alignment", 32), sizes)

    def _placed(
        self,
        found: list[tuple[str, tuple[int, ...], int, int]],
        alignment: Any,
        sizes: dict[int, tuple[str, int, int]],
    ) -> dict[str, Stored]:
        """The tensors with the places of their bytes."""
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"{self.path} has general.alignment={alignment!r}")
        begin = -(-self.at // alignment) * alignment
        tensors: dict[str, Stored] = {}
        for name, shape, number, offset in found:
            if number not in sizes:
                raise ValueError(
                    f"the tensor {name} of {self.path} is stored in a way (number {number}) that the installed "
                    "gguf does not know; a newer one may: pip install --upgrade gguf"
                )
            kind, block, size = sizes[number]
            if name in tensors:
                raise ValueError(f"{self.path} holds the tensor {name} twice")
            if (shape[-1] if shape else 1) % block:
                raise ValueError(
                    f"the tensor {name} of {self.path} has rows of {shape[-1]} numbers, expected whole "
                    f"blocks of {block} ({kind})"
                )
            tensors[name] = Stored(shape, kind, begin + offset, math.prod(shape) // block * size)
            if tensors[name].start + tensors[name].bytes > len(self.data):
                raise ValueError(f"{self.path} is cut short: it ends before the tensor {name} does")
        return tensors

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        n_dims = self._number("I")
        shape = tuple(reversed([self._number("Q") for _ in range(n_dims)]))
        return name, shape, self._number("I"), self._number("Q")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            of, count = self._number("I"), self._number("Q")
            if of in _SCALARS:
                form = f"<{count}{_SCALARS[of]}"
                if struct.calcsize(_SCALARS[of]) * count > len(self.data):
                    raise struct.error
                values = struct.unpack_from(form, self.data, self.at)
                self.at += struct.calcsize(form)
                return list(values)
            return [self._value(of) for _ in range(count)]
        if kind not in _SCALARS:
            raise ValueError(f"{self.path} is damaged: it has metadata of an unknown kind ({kind})")
        return self._number(_SCALARS[kind])

    def _number(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def _string(self) -> str:
        length = self._number("Q")
        end = self.at + length
        if end > len(self.data):
            raise struct.error
        text = self.data[self.at : end].decode("utf-8")
        self.at = end
        return text
