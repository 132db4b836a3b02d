"""A live model: it runs in the page, and a reader experiments with it.

One call puts a small `Decoder` into one piece of HTML, weights and all. A reader types, and sees the next
token's distribution, where heads look, the logit lens, what each part adds to the stream; switches off any set
of heads, networks or blocks; patches from a second sentence; steers; changes the rules; lets it write on; and
asks whether an effect was luck, over *kept sentences*. The engine is plain JavaScript and loads nothing: the
HTML works without server or network. Where scripts do not run, a drawing and words stand in its place.

>>> import torch
>>> from measured_transformer import Config, Decoder
>>> model = Decoder(Config(vocab=4, d_model=16, n_layers=2, n_heads=4))
>>> live(model, ["up down left", "right up"], tokens=["up", "down", "left", "right"])
Live(2 texts, 2 layers of 4 heads, 34 kB of weights)

A notebook (Jupyter, Colab) shows it as the result of a cell; `save` writes it to a file that any browser opens.
The page has the weights in half precision and computes in single precision: `model` of the result is the model
that the page runs, and what the page shows agrees with it within 1e-4.
"""

from __future__ import annotations

import base64
import functools
import html
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from measured_transformer.analysis.examination import Examination, examine
from measured_transformer.inference.generate import generate
from measured_transformer.inference.sampling import Sampling
from measured_transformer.internals.tokens import as_model
from measured_transformer.models.decoder import Decoder
from measured_transformer.viewer import _saved
from measured_transformer.viewer._input import visible
from measured_transformer.viewer.live_weights import halved, pack, require_known
from measured_transformer.viewer.style import ThemedFigure
from measured_transformer.viewer.workbench import _at_a_glance, _packaged, _palette, _sentences

__all__ = ["LIMIT", "MAX_TOKENS", "Live", "live"]

LIMIT = 5_000_000
"""Bytes that the packed model may have, unless another limit is given."""
MAX_TOKENS = 64
"""Tokens that the model reads of a text; of a longer one the last ones."""
_ROOM = 2 * MAX_TOKENS
_FORMAT = 1  # of shared addresses
_SAYS_ITSELF, _ITS_LENGTH = 64, 32
_OWN = "model, kept = bench.model, bench.kept  # bench: what live() returned"


def live(
    model: nn.Module,
    texts: Sequence[str],
    *,
    tokens: Sequence[str] | None = None,
    kept: Int[Tensor, "sentence position"] | None = None,
    steer: tuple[str, str] | None = None,
    origin: str = _OWN,
    title: str = "A live model",
    limit: int = LIMIT,
) -> Live:
    """Put a model into a page in which it runs.

    Args:
        model: a `Decoder` with the usual parts (see `live_weights.require_known`); it is not changed.
        texts: what a reader may pick; the page begins with the first.
        tokens: a name for each token: words, which texts are cut into at blanks, or single characters. When not
            given, tokens are the bytes of a text, and the model knows 256 of them.
        kept: sentences that the model is asked about beside the reader's own, all of one length of at most
            `MAX_TOKENS`. When not given, 64 of 32 tokens that it writes itself.
        steer: two texts, to lead towards and away from; the first two of `texts` when not given.
        origin: lines of Python that make `model` and `kept`, for the experiment as Python.
        title: names the component for those who hear it; it is not drawn.
        limit: bytes that the packed model may have at most.

    Raises:
        ValueError: the model has parts that a page does not run, or weights beyond half precision; there is no
            text, a text has no token that the model knows; names, kept sentences or `steer` do not fit; or the
            model is larger than the limit.

    >>> from measured_transformer import Config, Decoder
    >>> live(Decoder(Config(vocab=2, d_model=8)), ["north"], tokens=["up", "down"])
    Traceback (most recent call last):
    ValueError: expected texts of tokens that the model knows, got 'north', in which there is none
    """
    known = require_known(as_model(model))
    if isinstance(texts, str) or not texts:
        raise ValueError(f"expected a list of at least one text, got {texts!r:.60}")
    cut, names = _names(tokens, known.config.vocab)
    rows = [_cut(text, cut, tokens) for text in texts]
    for text, row in zip(texts, rows, strict=True):
        if not row:
            raise ValueError(
                f"expected texts of tokens that the model knows, got {text!r:.60}, in which there is none"
            )
    reach = known.config.max_length if known.config.positions == "learned" else _ROOM
    rounded = halved(known)
    checked = _own_sentences(rounded, reach) if kept is None else _kept(kept, known, reach)
    if steer is None:
        steer = (texts[0], texts[1 % len(texts)])
    if len(steer) != 2 or not all(_cut(text, cut, tokens) for text in steer):
        raise ValueError(f"expected two texts in steer that the model can read, got {steer!r:.80}")
    room = min(_ROOM, reach)
    told, packed = pack(rounded, checked, room)
    if len(packed) > limit:
        raise ValueError(
            f"expected a model of at most {limit / 1e6:.1f} MB in half precision, with its kept sentences, "
            f"got {len(packed) / 1e6:.1f} MB: a page would load for long and answer slowly. Take a smaller "
            "model or a larger limit"
        )
    data = {
        "packed": told,
        "names": names,
        "words": None if tokens is None else list(tokens),
        "cut": cut,
        "unit": "bytes" if cut == "bytes" else "tokens",
        "most": min(MAX_TOKENS, room),
        "texts": list(texts),
        "steer": list(steer),
        "origin": origin,
        "title": title,
        "version": f"{_FORMAT}.{told['checksum']:08x}",
    }
    return Live(rounded, checked, title, data, packed, torch.tensor(rows[0][-MAX_TOKENS:]))


@dataclass(frozen=True, eq=False)
class Live:
    """A model in a page, made by `live`; a notebook shows it as the result of a cell.

    Attributes:
        model: what the page runs: a copy whose weights are rounded to half precision.
        kept: the kept sentences.
        title: its name.
    """

    model: Decoder
    kept: Int[Tensor, "sentence position"]
    title: str
    _data: dict[str, Any]
    _packed: bytes
    _first: Int[Tensor, "position"]

    @functools.cached_property
    def static(self) -> ThemedFigure:
        """The drawing of the first text: effects of heads, and predictions at each depth."""
        return _at_a_glance(self._found, dict(enumerate(self._data["names"])), "mean")

    @functools.cached_property
    def html(self) -> str:
        """The live model as self-contained HTML, for any page, any number of times."""
        alt = html.escape(f"{self.title}: what every head does, and what every depth would say")
        drawing = (
            f'<img src="data:image/png;base64,{_palette(self.static.light)}" '
            f'width="{self.static.width}" alt="{alt}">'
        )
        told = json.dumps(self._data, separators=(",", ":")).replace("<", "\\u003c")
        weights = base64.b64encode(self._packed).decode("ascii")
        scripts = "\n".join(map(_packaged, ("live_engine.js", "live_controls.js", "live.js")))
        return (
            f'<div class="live-model">\n<style>{_packaged("live.css")}</style>\n'
            f'<div class="lm-static"><!--drawing-->{drawing}<!--/drawing--></div>\n{self._words()}\n'
            f'<script type="application/json" class="lm-told">{told}</script>\n'
            f'<script type="application/octet-stream" class="lm-weights" data-key="{self._key}">'
            f"{weights}</script>\n<script>(() => {{\n{scripts}\n}})();</script>\n</div>"
        )

    def save(self, path: str | Path) -> Path:
        """Write the live model as a page (`.html`) or its drawing as an image (`.png`); return where it lies.

        Raises:
            ValueError: the name ends in something else.
        """
        return _saved.save(path, title=self.title, content=self.html, drawing=self.static)

    def __repr__(self) -> str:
        """Say what there is to play with."""
        count, config = len(self._data["texts"]), self.model.config
        return (
            f"Live({count} text{'s' * (count > 1)}, {config.n_layers} layer{'s' * (config.n_layers > 1)} of "
            f"{config.n_heads} head{'s' * (config.n_heads > 1)}, {len(self._packed) / 1000:.0f} kB of weights)"
        )

    def _repr_html_(self) -> str:
        """Show the live model where a notebook asks for nothing but HTML."""
        return self.html

    def _repr_mimebundle_(
        self,
        include: Collection[str] | None = None,
        exclude: Collection[str] | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Give a notebook the live model and its drawing, and the dark drawing in the metadata."""
        data, metadata = self.static._repr_mimebundle_()
        metadata["measured"]["kind"] = "viewer"
        return {"text/html": self.html, **data, "text/plain": repr(self)}, metadata

    @property
    def _key(self) -> str:
        return f"{self._data['packed']['checksum']:08x}"

    @functools.cached_property
    def _found(self) -> Examination:
        top = min(5, self.model.config.vocab)
        return examine(self.model, self._first, top=top)

    def _words(self) -> str:
        """The main facts about the first text, which need no script."""
        names = dict(enumerate(self._data["names"]))
        said = "".join(f"<li>{html.escape(each)}</li>" for each in _sentences(self._found, names))
        return (
            "<details class='lm-words'><summary>The first text in words</summary>"
            f"<p><b><bdi>{html.escape(self._data['texts'][0])}</bdi></b></p><ul>{said}</ul>"
            "<p>Layers, heads and positions are counted from zero.</p></details>"
        )


# What is given --------------------------------------------------------------------------------------


def _names(tokens: Sequence[str] | None, vocab: int) -> tuple[str, list[str]]:
    """How texts are cut, and what tokens are called where they are shown."""
    if tokens is None:
        if vocab != 256:
            raise ValueError(
                f"expected a model of 256 bytes where no tokens are named, got one of {vocab}: give the names "
                "of its tokens"
            )
        return "bytes", [_byte(number) for number in range(256)]
    if isinstance(tokens, str) or len(tokens) != vocab:
        raise ValueError(
            f"expected a list of names for the {vocab} tokens, got {len(tokens)} names"
        )
    if len(set(tokens)) < vocab:
        raise ValueError("expected a name of its own for each token: the page finds tokens by name")
    characters = all(len(name) == 1 for name in tokens)
    if not characters and (spoilt := [name for name in tokens if name.split() != [name]]):
        raise ValueError(
            f"expected single characters, or words without blanks, at which texts are cut; got {spoilt[0]!r}"
        )
    return "characters" if characters else "words", [visible(name) for name in tokens]


def _byte(number: int) -> str:
    return visible(chr(number)) if number < 127 else f"\\x{number:02x}"


def _cut(text: str, cut: str, tokens: Sequence[str] | None) -> list[int]:
    """The tokens of a text, as the page cuts it."""
    if tokens is None:
        return list(text.encode())
    known = {name: number for number, name in enumerate(tokens)}
    parts = text.split() if cut == "words" else list(text)
    return [known[part] for part in parts if part in known]


def _kept(kept: Tensor, model: Decoder, reach: int) -> Int[Tensor, "sentence position"]:
    longest = min(MAX_TOKENS, reach)
    if (
        kept.ndim != 2
        or len(kept) < 2
        or not 2 <= kept.shape[1] <= longest
        or kept.is_floating_point()
    ):
        raise ValueError(
            f"expected at least two kept sentences of 2 to {longest} token numbers, all of one length, got "
            f"{kept.dtype} of shape {tuple(kept.shape)}"
        )
    if int(kept.min()) < 0 or int(kept.max()) >= model.config.vocab:
        raise ValueError(
            f"expected tokens from 0 to {model.config.vocab - 1} in the kept sentences, got "
            f"{int(kept.min())} to {int(kept.max())}"
        )
    return kept.long().cpu()


@torch.no_grad()
def _own_sentences(model: Decoder, reach: int) -> Int[Tensor, "sentence position"]:
    """Sentences that the model writes itself, each after one token drawn evenly from all."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(model.config.vocab, (_SAYS_ITSELF, 1), generator=generator)
    count = min(_ITS_LENGTH, reach) - 1
    written = generate(model, first, max_new_tokens=count, strategy=Sampling(generator)).tokens
    return torch.cat((first, torch.stack(written)), 1)
