"""Transformers whose every inner value can be seen, replaced and measured.

A frozen `Config` names all sizes and choices; `Decoder`, `Encoder` and `EncoderDecoder` are made from it.
Inside, values pass *taps* with names: `capture` shows what passes, `intervene` replaces it.

>>> import torch
>>> from measured_transformer import Config, Decoder, capture, intervene
>>> model = Decoder(Config(vocab=100, d_model=64, n_layers=2, n_heads=4))
>>> tokens = torch.randint(100, (2, 10))          # batch of 2, 10 positions
>>> with capture(model, "blocks.*.attention.pattern") as seen:
...     logits = model(tokens)
>>> for name, pattern in seen.items():
...     print(name, tuple(pattern.shape))
blocks.0.attention.pattern (2, 4, 10, 10)
blocks.1.attention.pattern (2, 4, 10, 10)
>>> with intervene(model, {"blocks.0.attention.out": 0.0}):   # cut out
...     changed = model(tokens)
>>> changed.shape                                 # logits of each next token
torch.Size([2, 10, 100])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from measured_transformer import _versions

if TYPE_CHECKING:
    from measured_transformer.inference.generate import generate as generate
    from measured_transformer.internals.capture import capture as capture
    from measured_transformer.internals.intervene import intervene as intervene
    from measured_transformer.language.model import LanguageModel as LanguageModel
    from measured_transformer.language.published import pretrained as pretrained
    from measured_transformer.language.saving import load as load
    from measured_transformer.language.saving import save as save
    from measured_transformer.models.config import Config as Config
    from measured_transformer.models.decoder import Decoder as Decoder
    from measured_transformer.models.encoder import Encoder as Encoder
    from measured_transformer.models.encoder_decoder import EncoderDecoder as EncoderDecoder
    from measured_transformer.tasks.text_file import TextFile as TextFile
    from measured_transformer.training.loop import evaluate as evaluate
    from measured_transformer.training.loop import train as train

__version__ = "0.1.0"

# Imported when first used: `import measured_transformer` stays quick, and a chapter depends on the
# modules that it uses, not on all of them.
_HOMES = {
    "Config": "measured_transformer.models.config",
    "Decoder": "measured_transformer.models.decoder",
    "Encoder": "measured_transformer.models.encoder",
    "EncoderDecoder": "measured_transformer.models.encoder_decoder",
    "LanguageModel": "measured_transformer.language.model",
    "TextFile": "measured_transformer.tasks.text_file",
    "capture": "measured_transformer.internals.capture",
    "evaluate": "measured_transformer.training.loop",
    "generate": "measured_transformer.inference.generate",
    "intervene": "measured_transformer.internals.intervene",
    "load": "measured_transformer.language.saving",
    "pretrained": "measured_transformer.language.published",
    "save": "measured_transformer.language.saving",
    "train": "measured_transformer.training.loop",
}
__all__ = [
    "Config",
    "Decoder",
    "Encoder",
    "EncoderDecoder",
    "LanguageModel",
    "TextFile",
    "__version__",
    "capture",
    "evaluate",
    "generate",
    "intervene",
    "load",
    "pretrained",
    "save",
    "train",
]

_versions.check()


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
