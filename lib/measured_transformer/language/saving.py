"""A model in a folder with its tokenizer: `save` and `load` of the package itself.

A model without tokenizer is kept as `models.saving` keeps it. Of a `LanguageModel` or a `TextEncoder` the
tokenizer, the context and where the weights come from stand beside the weights, so that `load` gives it back.

>>> import tempfile
>>> from measured_transformer import Config, Decoder, LanguageModel
>>> config = Config(vocab=256, d_model=32, n_layers=2, positions="rotary")
>>> lm = LanguageModel(Decoder(config), Tokenizer.of_bytes(), about="fresh weights")
>>> with tempfile.TemporaryDirectory() as folder:
...     _ = save(lm, folder)
...     again = load(folder)
>>> again
LanguageModel(fresh weights; 2 blocks, width 32, 4 heads, 256 tokens)
>>> again.generate("Once", max_new_tokens=8) == lm.generate("Once", max_new_tokens=8)
True
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from measured_transformer.interop.gguf_tokenizer import needed
from measured_transformer.interop.tokenizer import Tokenizer
from measured_transformer.language.encoder import TextEncoder
from measured_transformer.language.model import LanguageModel
from measured_transformer.language.reading import Reader
from measured_transformer.models import saving
from measured_transformer.models.saving import Model, kept_beside

FILE = "reader.json"
"""The name under which a reader's tokenizer, context and origin are kept beside its weights."""
_KINDS: dict[str, type[LanguageModel] | type[TextEncoder]] = {
    kind.__name__: kind for kind in (LanguageModel, TextEncoder)
}


def save(model: Any, folder: str | Path, *, types: Iterable[type] = ()) -> Path:
    """Write a model to a folder, from which `load` makes it again; one that reads texts, with its tokenizer.

    Args:
        model: a `Decoder`, `Encoder`, `EncoderDecoder`, `LanguageModel` or `TextEncoder`, or what holds one of
            the first three as `model`, such as the result of `train`.
        folder: made where it is missing. A model that was saved there before is replaced, other files stay.
        types: frozen dataclasses of your own that stand in the config; `load` is given the same.

    Returns:
        The folder.

    Raises:
        ValueError: as `models.saving.save`; also when the tokenizer cannot be written, as those with parts made
            in Python cannot. Nothing is written then.
    """
    if type(model) not in _KINDS.values():
        return saving.save(model, folder, types=types)
    return saving.save(model, folder, types=types, beside={FILE: _told(model)})


def load(folder: str | Path, *, types: Iterable[type] = ()) -> Model:
    """The model that `save` wrote to a folder, on the CPU and in evaluation mode.

    Args:
        folder: what `save` was given.
        types: frozen dataclasses of your own that stand in the config.

    Returns:
        A `LanguageModel` or a `TextEncoder` where such a one was saved; else the model alone.

    Raises:
        FileNotFoundError, ValueError: as `models.saving.load`; also when the tokenizer is damaged.
        ImportError: when the package `tokenizers` is missing and there is a tokenizer to read.
    """
    told = kept_beside(folder).get(FILE)
    model = saving.load(folder, types=types)
    return model if told is None else _made(model, told, Path(folder))


def _told(reader: Reader) -> str:
    tokenizer = reader.tokenizer
    try:
        backend = tokenizer.backend.to_str()
    except Exception as error:  # the package raises nothing more special
        raise ValueError(f"this tokenizer cannot be written: {error}") from error
    return json.dumps(
        {
            "kind": type(reader).__name__,
            "context": None if reader.context is None else int(reader.context),
            "about": reader.about,
            "special": tokenizer.special,
            "stop": tokenizer.stop,
            "chat_template": tokenizer.chat_template,
            "backend": backend,
        },
        ensure_ascii=False,
    )


def _made(model: Model, text: str, folder: Path) -> Model:
    try:
        told = json.loads(text)
        kind = _KINDS[told["kind"]]
        tokenizer = Tokenizer(
            needed("tokenizers").Tokenizer.from_str(told["backend"]),
            special=told["special"],
            stop=told["stop"],
            chat_template=told["chat_template"],
        )
        context, about = told["context"], told["about"]
    except ImportError:
        raise
    except Exception as error:  # of JSON, of a missing key, of the package
        raise ValueError(f"the tokenizer in {folder} is damaged: {error}") from error
    reader: Model = kind(model, tokenizer, context=context, about=about)  # type: ignore[arg-type]
    return reader.eval()
