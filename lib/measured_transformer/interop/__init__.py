"""Checkpoints of the Hugging Face format, in and out: GPT-2, Llama, BERT and T5."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from measured_transformer.interop.huggingface import from_huggingface as from_huggingface
    from measured_transformer.interop.huggingface import to_huggingface as to_huggingface

__all__ = ["from_huggingface", "to_huggingface"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("measured_transformer.interop.huggingface"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
