"""Checkpoints of GPT-2, BERT, T5, Llama and their relatives, in and out; GGUF files and tokenizers, in.

`from_huggingface` reads a local folder with `config.json` and safetensors, or a model of `transformers`, and
returns a model of this library that computes the same; `to_huggingface` goes the other way. `transformers` is
not needed, nothing is downloaded, and pickled files are refused. `from_gguf` reads a file of llama.cpp,
with the package `gguf`, and `Tokenizer` the tokenizer of either.

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
    from measured_transformer.interop.gguf_models import from_gguf as from_gguf
    from measured_transformer.interop.huggingface import from_huggingface as from_huggingface
    from measured_transformer.interop.huggingface import to_huggingface as to_huggingface
    from measured_transformer.interop.tokenizer import Tokenizer as Tokenizer

_HOMES = {
    "Tokenizer": "measured_transformer.interop.tokenizer",
    "from_gguf": "measured_transformer.interop.gguf_models",
    "from_huggingface": "measured_transformer.interop.huggingface",
    "to_huggingface": "measured_transformer.interop.huggingface",
}
__all__ = ["Tokenizer", "from_gguf", "from_huggingface", "to_huggingface"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
