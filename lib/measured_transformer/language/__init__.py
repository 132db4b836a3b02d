"""Text in, text out: a model together with its tokenizer.

`LanguageModel` is a `Decoder` that reads texts: whatever takes a decoder takes it, and its taps have the same
names. `pretrained` gives one that people use, from an installed package and without a network.

>>> import torch
>>> from measured_transformer import Config, Decoder, LanguageModel, capture
>>> from measured_transformer.interop import Tokenizer
>>> config = Config(vocab=256, d_model=32, n_layers=2, positions="rotary")
>>> lm = LanguageModel(Decoder(config), Tokenizer.of_bytes())
>>> with capture(lm, "blocks.*.attention.pattern") as seen:
...     logits = lm("The capital of France is")
>>> logits.shape, seen["blocks.1.attention.pattern"].shape
(torch.Size([1, 24, 256]), torch.Size([1, 4, 24, 24]))
>>> lm.where("The capital of France is", "of")
[12, 13]
>>> [len(lm.top("The capital", 3)), len(lm.generate("The", max_new_tokens=2)) > 0]
[3, True]

A pretrained model is read by its name::

    lm = pretrained("smollm2-135m-instruct")
    lm.top("The capital of France is", 5)
    lm.chat("Why is the sky blue?", max_new_tokens=60)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from measured_transformer.language.encoder import TextEncoder as TextEncoder
    from measured_transformer.language.model import LanguageModel as LanguageModel
    from measured_transformer.language.published import pretrained as pretrained

_HOMES = {
    "LanguageModel": "measured_transformer.language.model",
    "TextEncoder": "measured_transformer.language.encoder",
    "pretrained": "measured_transformer.language.published",
}
__all__ = ["LanguageModel", "TextEncoder", "pretrained"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
