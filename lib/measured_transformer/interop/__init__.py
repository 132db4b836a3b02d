"""Checkpoints of the Hugging Face format, in and out: GPT-2, Llama, BERT, their relatives and T5.

`from_huggingface` reads a local folder with `config.json` and safetensors, or a model of `transformers`, and
returns a model of this library that computes the same; `to_huggingface` goes the other way. `transformers` is
not needed, nothing is downloaded, and pickled files are refused.

>>> import tempfile
>>> from measured_transformer import Config, Decoder
>>> from measured_transformer.interop import from_huggingface, to_huggingface
>>> config = Config(vocab=50, positions="learned", activation="gelu_tanh",
...                 tie_embeddings=True, initialisation="gpt2")
>>> with tempfile.TemporaryDirectory() as folder:
...     settings, tensors = to_huggingface(Decoder(config), folder)
...     model = from_huggingface(folder)
>>> settings["model_type"], type(model).__name__
('gpt2', 'Decoder')
"""

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
