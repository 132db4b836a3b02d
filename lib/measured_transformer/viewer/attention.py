"""An interactive attention viewer: choose an example, a layer and a head, and read weights by token.

One call turns patterns into a viewer. In a notebook and on a page of the book it is interactive, by mouse,
touch and keyboard; where scripts do not run (on paper, in a notebook that is not trusted) a drawing of all
heads and a sentence for each of them stand in its place.

>>> import torch
>>> from measured_transformer import Config, Decoder, capture
>>> model = Decoder(Config(vocab=10, d_model=16, n_layers=2, n_heads=4))
>>> with capture(model, "blocks.*.attention.pattern") as seen:
...     _ = model(torch.tensor([[3, 1, 4, 1, 5]]))
>>> attention_viewer(seen, [3, 1, 4, 1, 5])
AttentionViewer(1 example, 2 layers of 4 heads)

The HTML holds everything that it needs: its data, a script and a style of a few kilobytes. It loads
nothing, and works from a file without a server.
"""

from __future__ import annotations

import base64
import functools
import html
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.pyplot import figure as new_figure
from numpy.typing import NDArray
from torch import Tensor

from measured_transformer.viewer._in_page import InPage
from measured_transformer.viewer._input import (
    MAX_TOKENS,
    MAX_WEIGHTS,
    TOLERANCE,
    Example,
    Shown,
    checked_place,
    read,
)
from measured_transformer.viewer.head_summary import HeadSummary, summarise_head
from measured_transformer.viewer.style import COLOURS, WIDTH, ThemedFigure, theme, themed

__all__ = ["MAX_TOKENS", "MAX_WEIGHTS", "TOLERANCE", "AttentionViewer", "attention_viewer"]

_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_MASKED = 4095  # in two of these digits, where a weight is 0 to 1000 thousandths


def attention_viewer(
    patterns: Tensor | NDArray[Any] | Mapping[str, Tensor] | Sequence[Any],
    tokens: Sequence[Any] | Tensor | NDArray[Any],
    *,
    key_tokens: Sequence[Any] | Tensor | NDArray[Any] | None = None,
    mask: Any = None,
    labels: Sequence[str] | None = None,
    layers: Sequence[str | int] | None = None,
    heads: Sequence[str | int] | None = None,
    start: tuple[int, int, int] = (0, 0, 0),
    compare: tuple[int, int] | None = None,
    title: str = "Attention patterns",
) -> AttentionViewer:
    """Make a viewer of attention patterns.

    Args:
        patterns: weights after the softmax. An array of shape (example, layer, head, query, key), or
            (layer, head, query, key) for one example; what `capture(model, "blocks.*.attention.pattern")`
            gives; or a list with one of these for each example, whose lengths may then differ.
        tokens: the words, as a flat list for one example (or for all, if they share them), else one list an
            example. Numbers are shown as they are.
        key_tokens: the words of the keys, where these are others than those of the queries.
        mask: True where a query may look; shape (query, key), (example, query, key), or a list of the
            former. What it forbids is shown as empty, not as zero. Without it, pairs whose weight is exactly
            zero in every head of an example count as masked; `mask=True` shows each zero as a zero.
        labels: a name for each example.
        layers: names of the layers; numbers from zero unless given, or those in the names of the taps.
        heads: names of the heads; numbers from zero unless given.
        start: example, layer and head to begin with.
        compare: layer and head that are compared with it from the beginning.
        title: names the viewer for those who hear it; it is not drawn.

    Weights are kept rounded to three decimals. At most `MAX_WEIGHTS` weights in all and `MAX_TOKENS` tokens
    a side fit into a viewer; rows may miss one by `TOLERANCE`, which is what half precision needs.

    Raises:
        ValueError: the patterns have other axes, are no weights (not finite, negative, rows that do not sum to
            one) or too many; tokens, mask, names or places do not fit them.
    """
    shown = read(patterns, tokens, key_tokens, mask, labels, layers, heads)
    sizes = (len(shown.examples), len(shown.layers), len(shown.heads))
    start = checked_place("start", start, ("example", "layer", "head"), sizes)
    if compare is not None:
        compare = checked_place("compare", compare, ("layer", "head"), sizes[1:])
    summaries = tuple(
        tuple(
            tuple(
                summarise_head(head, allowed=each.allowed, keys=each.keys, cross=each.cross)
                for head in layer
            )
            for layer in each.weights
        )
        for each in shown.examples
    )
    return AttentionViewer(
        summaries=summaries,
        title=title,
        _shown=shown,
        _start=start,
        _compare=compare,
    )


@dataclass(frozen=True, eq=False)
class AttentionViewer(InPage):
    """A viewer of attention, made by `attention_viewer`; a notebook shows it as the result of a cell.

    Attributes:
        summaries: what each head does, as `summaries[example][layer][head]`.
        title: its name.
    """

    summaries: tuple[tuple[tuple[HeadSummary, ...], ...], ...]
    title: str
    _shown: Shown
    _start: tuple[int, int, int]
    _compare: tuple[int, int] | None

    @functools.cached_property
    def static(self) -> ThemedFigure:
        """The drawing of all heads on the example it begins with: a layer a row, a head a column."""
        first = self._shown.examples[self._start[0]]
        with warnings.catch_warnings():  # a script that the font lacks is a box in the drawing
            warnings.filterwarnings(
                "ignore", message=r"Glyph .* missing from", category=UserWarning
            )
            return _all_heads(first, self._shown.layers, self._shown.heads)

    @functools.cached_property
    def html(self) -> str:
        """The viewer as self-contained HTML, for any page, any number of times."""
        light = base64.b64encode(self.static.light).decode("ascii")
        alt = html.escape(f"{self.title}: a small matrix of weights for every head")
        picture = (
            f'<img src="data:image/png;base64,{light}" width="{self.static.width}" alt="{alt}">'
        )
        return (
            f'<div class="attention-viewer">\n<style>{_packaged("attention.css")}</style>\n'
            f'<div class="av-static"><!--drawing-->{picture}<!--/drawing--></div>\n{self._words()}\n'
            f'<script type="application/json" class="av-data">{self._data()}</script>\n'
            f"<script>{_packaged('attention.js')}</script>\n</div>"
        )

    def __repr__(self) -> str:
        """Say what there is to choose from."""
        count, layers, heads = (
            len(self._shown.examples),
            len(self._shown.layers),
            len(self._shown.heads),
        )
        return (
            f"AttentionViewer({count} example{'s' * (count > 1)}, {layers} layer{'s' * (layers > 1)} of "
            f"{heads} head{'s' * (heads > 1)})"
        )

    def _words(self) -> str:
        """One sentence for every head, which needs no script."""
        layers, heads = self._shown.layers, self._shown.heads
        parts = ["<details class='av-words'><summary>Every head in words</summary>"]
        for example, summaries in zip(self._shown.examples, self.summaries, strict=True):
            if len(self._shown.examples) > 1:
                parts.append(f"<p><b><bdi>{html.escape(example.label)}</bdi></b></p>")
            parts.append("<ul>")
            for layer, of_layer in zip(layers, summaries, strict=True):
                for head, summary in zip(heads, of_layer, strict=True):
                    name = html.escape(f"{_named('Layer', layer)}, {_named('head', head)}")
                    sentence = html.escape(summary.sentence)
                    parts.append(f"<li><b>{name}.</b> <span>{sentence}</span></li>")
            parts.append("</ul>")
        parts.append(
            "<p>Averages over the queries that may look at more than one token. Weights in the viewer are "
            "rounded to three decimals, so a row may miss 1 by a little. Layers, heads and positions are "
            "counted from zero.</p>"
        )
        return "\n".join([*parts, "</details>"])

    def _data(self) -> str:
        """The data for the script, as JSON escaped for HTML."""
        shown = self._shown
        data = {
            "title": self.title,
            "layers": [_named("Layer", name) for name in shown.layers],
            "heads": [_named("head", name) for name in shown.heads],
            "start": self._start,
            "compare": self._compare,
            "examples": [
                {
                    "label": each.label,
                    "queries": each.queries,
                    "keys": None if each.keys == each.queries else each.keys,
                    "weights": _digits(each),
                }
                for each in shown.examples
            ],
        }
        text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
        for character in "<>&":
            text = text.replace(character, f"\\u{ord(character):04x}")
        return text


def _named(what: str, name: str) -> str:
    return f"{what} {name}" if name.isdigit() else name


def _digits(example: Example) -> str:
    """Two digits to the base 64 for each weight, in thousandths."""
    codes = np.rint(np.clip(example.weights, 0, 1) * 1000).astype(np.intp)
    codes = np.where(example.allowed, codes, _MASKED).ravel()
    alphabet = np.frombuffer(_DIGITS.encode("ascii"), dtype=np.uint8)
    pairs = np.stack([alphabet[codes >> 6], alphabet[codes & 63]], axis=1)
    return pairs.tobytes().decode("ascii")


@functools.cache
def _packaged(name: str) -> str:
    """Return a file that lies beside this module, without comments on lines of their own and indentation."""
    text = files(__package__).joinpath(name).read_text("utf-8")
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("//", "/*")))


# The drawing ------------------------------------------------------------------------------------


@themed
def _all_heads(example: Example, layers: Sequence[str], heads: Sequence[str]) -> Figure:
    """Draw every head of one example: a layer a row, a head a column."""
    n_layers, n_heads, n_queries, n_keys = example.weights.shape
    side = min(3.6, (WIDTH - 1.7) / n_heads)
    tall = min(side * n_queries / n_keys, 1.5 * side, 9.0 / n_layers)
    top, between = 0.5, 1.12  # inches above the panels; room of a panel, in its own height
    height = n_layers * tall * between
    words = n_heads <= 2 and n_layers <= 2 and max(n_queries, n_keys) <= 16
    full = top + height + (1.0 * n_layers if words else 0.12)
    # Where the places are known, looking for them would take seconds with many heads.
    drawn = new_figure(figsize=(WIDTH, full), layout="constrained" if words else "none")
    low, high, right = 0.12 / full, 1 - top / full, (0.75 + n_heads * side) / WIDTH
    if not words:
        drawn.subplots_adjust(0.75 / WIDTH, low, right, high, 0.08, between - 1)
    panels = drawn.subplots(n_layers, n_heads, squeeze=False)
    colours = _weight_colours()
    shade = PowerNorm(0.5, 0.0, 1.0)
    for layer in range(n_layers):
        for head in range(n_heads):
            panel = panels[layer, head]
            cells = np.ma.masked_where(~example.allowed, example.weights[layer, head])
            panel.imshow(cells, cmap=colours, norm=shade, interpolation="nearest", aspect="equal")
            panel.grid(visible=False)
            panel.set(xticks=[], yticks=[])
            for spine in panel.spines.values():
                spine.set(visible=True, color=theme().faint)
            if words:
                _write_words(panel, example, first=head == 0)
            if layer == 0:
                name = heads[head] if side < 0.8 else _named("head", heads[head])
                panel.set_title(name, fontsize=11, parse_math=False)
            if head == 0:
                name = layers[layer] if tall < 0.8 else _named("layer", layers[layer])
                panel.set_ylabel(name, parse_math=False)
    if side < 0.8:
        drawn.text(0.06, 1 - 0.22 / full, "head", fontsize=11)
    if tall < 0.8:
        drawn.supylabel("layer", fontsize=11, x=0.02)
    scale = ScalarMappable(norm=shade, cmap=colours)
    if words:
        shrink = n_layers * tall / full
        bar = drawn.colorbar(scale, ax=panels, shrink=shrink, pad=0.02)
    else:
        length = min(high - low, 2.6 / full)
        bar = drawn.colorbar(
            scale, cax=drawn.add_axes((right + 0.02, high - length, 0.022, length))
        )
    bar.set_label("weight")
    bar.set_ticks([0, 0.1, 0.25, 0.5, 1], labels=["0", "0.1", "0.25", "0.5", "1"])
    bar.outline.set_visible(False)
    return drawn


def _write_words(panel: Axes, example: Example, *, first: bool) -> None:
    short = [
        [f"{word[:9]}…" if len(word) > 10 else word for word in words]
        for words in (example.keys, example.queries)
    ]
    look: dict[str, Any] = {"fontsize": 10, "parse_math": False}
    panel.set_xticks(range(len(short[0])), short[0], rotation=90, **look)
    if first:
        panel.set_yticks(range(len(short[1])), short[1], **look)
    panel.tick_params(length=0)


def _weight_colours() -> LinearSegmentedColormap:
    """Return the colours of attention weights: from hardly visible at 0 to strongest at 1, on either page."""
    dark = theme().name == "dark"
    ends = ("#2a2e35", "#ffe3cc") if dark else ("#f0eeec", "#541f00")
    stops = (ends[0], COLOURS["attention"], ends[1])
    return LinearSegmentedColormap.from_list("attention-weights", stops)  # what is masked is clear
