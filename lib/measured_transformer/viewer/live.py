"""A live model: it runs in the page, and a reader experiments with it.

One call puts a small `Decoder` into one piece of HTML, weights and all. A reader types, and sees the next
token's distribution, all parts in one picture, where heads look, the logit lens, what each part adds to the
stream; switches off any set of heads, networks or blocks; patches from a second sentence; steers; changes the
rules; lets it write on; and asks whether an effect was luck, over *kept sentences*. The engine is plain
JavaScript and loads nothing: the HTML works without server or network. Where scripts do not run, a drawing and
words stand in its place.

>>> import torch
>>> from measured_transformer import Config, Decoder
>>> model = Decoder(Config(vocab=4, d_model=16, n_layers=2, n_heads=4))
>>> live(model, ["up down left", "right up"], tokens=["up", "down", "left", "right"])
Live(2 texts, 2 layers of 4 heads, 32 kB of weights)

A notebook (Jupyter, Colab) shows it as the result of a cell; `save` writes it to a file that any browser opens.
It has been tried in JupyterLab, in an export to HTML and in frames of another or of no origin, without storage,
workers and WebAssembly; not in Colab itself, whose outputs are in such frames.
The page has the weights in half precision or in 8 bits and computes in single precision: `model` of the result
is the model that the page runs, and what the page shows agrees with it within 1e-4. `live_choice` lets a reader
switch between several.
"""

from __future__ import annotations

import base64
import functools
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from measured_transformer.analysis.examination import Examination, examine
from measured_transformer.analysis.lens import TunedLens
from measured_transformer.inference.generate import generate
from measured_transformer.inference.sampling import Sampling
from measured_transformer.internals.tokens import as_model
from measured_transformer.models.decoder import Decoder
from measured_transformer.tasks.byte_pairs import Merge, encode, pieces
from measured_transformer.viewer._in_page import InPage
from measured_transformer.viewer._input import visible
from measured_transformer.viewer.live_weights import Bits, pack, require_known, rounded
from measured_transformer.viewer.style import ThemedFigure
from measured_transformer.viewer.workbench import _at_a_glance, _packaged, _palette, _sentences

__all__ = [
    "EXPERIMENTS",
    "LIMIT",
    "MAX_TOKENS",
    "VIEWS",
    "Live",
    "LiveChoice",
    "live",
    "live_choice",
]

LIMIT = 5_000_000
"""Bytes that the packed model may have, unless another limit is given."""
MAX_TOKENS = 64
"""Tokens that the model reads of a text; of a longer one the last ones."""
VIEWS = ("next", "overview", "heads", "lens", "ledger", "numbers", "each", "write", "luck")
"""What is seen: the next token, one picture of all parts, where heads look, lenses, the ledger of the stream,
the numbers at a tap, what each part is missed for, a text, kept sentences."""
EXPERIMENTS = ("off", "patch", "steer", "rules")
"""What is changed in a model: parts switched off, a patch, steering, other rules."""
_ROOM = 2 * MAX_TOKENS
_FORMAT = 1  # of shared addresses
_SAYS_ITSELF, _ITS_LENGTH = 64, 32
_OWN = "model, kept = bench.model, bench.kept  # bench: what live() returned"


def live(
    model: nn.Module,
    texts: Sequence[str],
    *,
    tokens: Sequence[str] | None = None,
    merges: Sequence[Merge] | None = None,
    lens: TunedLens | None = None,
    bits: Bits = 16,
    kept: Int[Tensor, "sentence position"] | None = None,
    steer: tuple[str, str] | None = None,
    views: Sequence[str] = VIEWS,
    experiments: Sequence[str] = EXPERIMENTS,
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
        merges: pairs of tokens that are merged, as `byte_pairs.learn_merges` gives them: texts are cut into
            pieces, of which the first 256 are the bytes.
        lens: a tuned lens of the model, to read its stream with beside the logit lens.
        bits: of a weight in the page: 16 (half precision), or 8 and a factor for each row.
        kept: sentences that the model is asked about beside the reader's own, all of one length of at most
            `MAX_TOKENS`. When not given, 64 of 32 tokens that it writes itself.
        steer: two texts, to lead towards and away from; the first two of `texts` when not given.
        views: what a reader may look at, of `VIEWS`, in this order; the component begins with the first.
        experiments: what a reader may change, of `EXPERIMENTS`.
        origin: lines of Python that make `model` and `kept`, for the experiment as Python.
        title: names the component for those who hear it; it is not drawn.
        limit: bytes that the packed model may have at most.

    Raises:
        ValueError: the model has parts that a page does not run, or weights beyond half precision; there is no
            text, a text has no token that the model knows; names, merges, kept sentences, lens or `steer` do
            not fit, there is no such view or experiment; or the model is larger than the limit.

    >>> from measured_transformer import Config, Decoder
    >>> live(Decoder(Config(vocab=2, d_model=8)), ["north"], tokens=["up", "down"])
    Traceback (most recent call last):
    ValueError: expected texts of tokens that the model knows, got 'north', in which there is none
    """
    known = require_known(as_model(model))
    if isinstance(texts, str) or not texts:
        raise ValueError(f"expected a list of at least one text, got {texts!r:.60}")
    cut, names = _names(tokens, merges, known.config.vocab)

    def tokens_of(text: str) -> list[int]:
        return _cut(text, cut, tokens, merges)

    rows = [tokens_of(text) for text in texts]
    for text, row in zip(texts, rows, strict=True):
        if not row:
            raise ValueError(
                f"expected texts of tokens that the model knows, got {text!r:.60}, in which there is none"
            )
    for what, given, every in (("views", views, VIEWS), ("experiments", experiments, EXPERIMENTS)):
        if isinstance(given, str) or not given or set(given) - set(every):
            raise ValueError(f"expected {what} among {', '.join(every)}, got {given!r}")
    reach = known.config.max_length if known.config.positions == "learned" else _ROOM
    own = rounded(known, bits)
    checked = _own_sentences(own, reach) if kept is None else _kept(kept, known, reach)
    if steer is None:
        steer = (texts[0], texts[1 % len(texts)])
    if len(steer) != 2 or not all(map(tokens_of, steer)):
        raise ValueError(f"expected two texts in steer that the model can read, got {steer!r:.80}")
    room = min(_ROOM, reach)
    read_with = None if lens is None else _lens_of(lens, known)
    told, packed = pack(own, checked, room, bits=bits, lens=read_with)
    if len(packed) > limit:
        raise ValueError(
            f"expected a model of at most {limit / 1e6:.1f} MB in {bits} bits, with its kept sentences, "
            f"got {len(packed) / 1e6:.1f} MB: a page would load for long and answer slowly. Take a smaller "
            "model, 8 bits or a larger limit"
        )
    data = {
        "packed": told,
        "names": names,
        "words": None if tokens is None else list(tokens),
        "merges": None if merges is None else [side for pair in merges for side in pair],
        "cut": cut,
        "unit": {"bytes": "bytes", "pieces": "pieces"}.get(cut, "tokens"),
        "most": min(MAX_TOKENS, room),
        "texts": list(texts),
        "steer": list(steer),
        "views": list(views),
        "experiments": list(experiments),
        "origin": origin,
        "title": title,
        "version": f"{_FORMAT}.{told['checksum']:08x}",
    }
    return Live(own, checked, title, read_with, data, packed, torch.tensor(rows[0][-MAX_TOKENS:]))


@dataclass(frozen=True, eq=False)
class Live(InPage):
    """A model in a page, made by `live`; a notebook shows it as the result of a cell.

    Attributes:
        model: what the page runs: a copy whose weights are rounded to what the page has.
        kept: the kept sentences.
        title: its name.
        lens: the tuned lens that the page reads with, rounded to half precision; None where there is none.
    """

    model: Decoder
    kept: Int[Tensor, "sentence position"]
    title: str
    lens: TunedLens | None
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
        return f"{_styled(self._box())[:-6]}{_scripts()}</div>"

    @property
    def packed(self) -> bytes:
        """What the page unpacks: the weights, and what experiments need beside them."""
        return self._packed

    def _box(self, *, hidden: bool = False) -> str:
        """Its box: a drawing, words, a description and weights; without style and scripts."""
        alt = html.escape(f"{self.title}: what every head does, and what every depth would say")
        drawing = (
            f'<img src="data:image/png;base64,{_palette(self.static.light)}" '
            f'width="{self.static.width}" alt="{alt}">'
        )
        if not hidden:  # where a page puts its own light and dark drawings
            drawing = f"<!--drawing-->{drawing}<!--/drawing-->"
        told = json.dumps(self._data, separators=(",", ":")).replace("<", "\\u003c")
        weights = base64.b64encode(self._packed).decode("ascii")
        return (
            f'<div class="live-model" data-kind="model" data-key="{self._key}"{" hidden" * hidden}>\n'
            f'<div class="lm-static">{drawing}</div>\n{self._words()}\n'
            f'<script type="application/json" class="lm-told" data-key="{self._key}">{told}</script>\n'
            f'<script type="application/octet-stream" class="lm-weights" data-key="{self._key}">'
            f"{weights}</script>\n</div>"
        )

    def __repr__(self) -> str:
        """Say what there is to play with."""
        count, config = len(self._data["texts"]), self.model.config
        return (
            f"Live({count} text{'s' * (count > 1)}, {config.n_layers} layer{'s' * (config.n_layers > 1)} of "
            f"{config.n_heads} head{'s' * (config.n_heads > 1)}, {len(self._packed) / 1000:.0f} kB of weights)"
        )

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


def live_choice(models: Mapping[str, Live], *, title: str = "Live models") -> LiveChoice:
    """Several live models in one component, between which a reader switches; each arrives when it is chosen.

    Args:
        models: by the name that a reader chooses; the first is there at the beginning.
        title: names the component for those who hear it; it is not drawn.

    Raises:
        ValueError: there are fewer than two.

    >>> from measured_transformer import Config, Decoder
    >>> one = live(Decoder(Config(vocab=2, d_model=8)), ["a b"], tokens=["a", "b"])
    >>> live_choice({"small": one, "the same": one})
    LiveChoice(small, the same)
    """
    if len(models) < 2:
        raise ValueError(f"expected at least two models to choose from, got {len(models)}")
    return LiveChoice(dict(models), title)


@dataclass(frozen=True, eq=False)
class LiveChoice(InPage):
    """Live models to choose from, made by `live_choice`; a notebook shows them as the result of a cell.

    Attributes:
        models: by name.
        title: its name.
    """

    models: Mapping[str, Live]
    title: str

    @property
    def static(self) -> ThemedFigure:
        """The drawing of the first model's first text."""
        return next(iter(self.models.values())).static

    @functools.cached_property
    def html(self) -> str:
        """The component as self-contained HTML, for any page, any number of times."""
        boxes = "\n".join(each._box(hidden=at > 0) for at, each in enumerate(self.models.values()))
        told = json.dumps({"names": list(self.models), "title": self.title}).replace("<", "\\u003c")
        return (
            f'<div class="live-choice">\n<style>{_packaged("live.css")}</style>\n{boxes}\n'
            f'<script type="application/json" class="lm-names">{told}</script>\n{_scripts()}</div>'
        )

    def __repr__(self) -> str:
        """Say which there are."""
        return f"LiveChoice({', '.join(self.models)})"


def _styled(box: str) -> str:
    """A box with its style as its first child."""
    start = box.index(">") + 1
    return f"{box[:start]}\n<style>{_packaged('live.css')}</style>{box[start:]}"


def _scripts() -> str:
    parts = map(_packaged, ("live_engine.js", "live_controls.js", "live_overview.js", "live.js"))
    return "<script>(() => {\n" + "\n".join(parts) + "\n})();</script>\n"


# What is given --------------------------------------------------------------------------------------


def _names(
    tokens: Sequence[str] | None, merges: Sequence[Merge] | None, vocab: int
) -> tuple[str, list[str]]:
    """How texts are cut, and what tokens are called where they are shown."""
    if merges is not None:
        if tokens is not None:
            raise ValueError("expected either names of tokens or merges of bytes, got both")
        if vocab != 256 + len(merges):
            raise ValueError(
                f"expected a model of {256 + len(merges)} pieces, the bytes and a piece for each of "
                f"{len(merges)} merges, got one of {vocab}"
            )
        return "pieces", [_piece(piece) for piece in pieces(merges)]
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


def _piece(piece: bytes) -> str:
    if len(piece) == 1:
        return _byte(piece[0])
    return visible(piece.decode("utf-8", errors="backslashreplace"))


def _lens_of(lens: TunedLens, model: Decoder) -> TunedLens:
    """The lens in half precision."""
    depths, width = model.config.n_layers + 1, model.config.d_model
    if lens.weight.shape != (depths, width, width) or lens.bias.shape != (depths, width):
        raise ValueError(
            f"expected a lens of {depths} depths of width {width}, got maps of shape {tuple(lens.weight.shape)}"
        )
    return TunedLens(lens.weight.half().float(), lens.bias.half().float(), lens.gap)


def _cut(
    text: str, cut: str, tokens: Sequence[str] | None, merges: Sequence[Merge] | None = None
) -> list[int]:
    """The tokens of a text, as the page cuts it."""
    if merges is not None:
        return encode(text.encode(), merges)
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
