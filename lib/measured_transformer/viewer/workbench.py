"""A model opened on a page: choose a sentence, and see inside by token, layer and head.

One call runs a `Decoder` or an `Encoder` on a few sentences and puts into one piece of HTML where each head
looks, what it writes, what every depth of the stream would say (the logit lens), how long the stream is, and
what changes when a head is switched off. Everything is computed before: the HTML needs no server, loads
nothing, and works by mouse, touch and keyboard. Where scripts do not run, a drawing and words stand in its
place.

>>> import torch
>>> from measured_transformer import Config, Decoder
>>> model = Decoder(Config(vocab=4, d_model=16, n_layers=2, n_heads=4))
>>> workbench(model, [[0, 1, 2, 3, 0, 1]], tokens=["up", "down", "left", "right"])
Workbench(1 sentence, 2 layers of 4 heads)

A notebook shows it as the result of a cell; `save` writes it to a file that any browser opens. What it shows
is there as arrays, too: `examinations`.
"""

from __future__ import annotations

import base64
import functools
import html
import io
import json
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from numpy.typing import NDArray
from torch import Tensor, nn

from measured_transformer.analysis.examination import (
    Examination,
    Instead,
    Reader,
    Without,
    examine,
    mean_mixtures,
)
from measured_transformer.internals.names import taps
from measured_transformer.internals.tokens import WithTokenizer, as_model, naming
from measured_transformer.models.decoder import Decoder
from measured_transformer.models.encoder import Encoder
from measured_transformer.viewer._in_page import InPage
from measured_transformer.viewer._input import checked_place, visible
from measured_transformer.viewer.style import COLOURS, WIDTH, ThemedFigure, theme, themed

__all__ = ["LIMIT", "MAX_TOKENS", "Workbench", "workbench"]

LIMIT = 300_000
"""Bytes that a workbench may have, unless another limit is given."""
MAX_TOKENS = 64
"""Tokens that a sentence may have."""
Names = Sequence[str] | Callable[[int], str]


def workbench(
    model: nn.Module | WithTokenizer,
    sentences: Sequence[Any] | Tensor,
    *,
    tokens: Names | None = None,
    tokenizer: Any = None,
    targets: Sequence[Any] | None = None,
    reference: Sequence[Any] | Tensor | None = None,
    labels: Sequence[str] | None = None,
    start: tuple[int, int, int] = (0, 0, 0),
    instead: Instead = "mean",
    top: int = 5,
    title: str = "Workbench",
    limit: int = LIMIT,
) -> Workbench:
    """Run a model on sentences and open it on a workbench.

    Args:
        model: a `Decoder` or an `Encoder`, of this library's own or from `interop.from_huggingface`; or a model
            with its tokenizer (see `internals.tokens`), which is then taken where no other is given.
        sentences: each a sequence of token numbers, or, with a tokenizer, a text.
        tokens: what tokens are called: a name for each number, or a function of the number. Numbers are shown
            as they are when there are neither names nor a tokenizer.
        tokenizer: cuts texts and knows the names: a `TextFile`, or one of the packages `tokenizers` or
            `transformers`.
        targets: for each sentence the right answers, -1 where there is none. When not given, of a `Decoder` the
            next tokens, and of an `Encoder` none.
        reference: sentences over whose positions the mean is taken that stands in for a head when it is
            switched off; those shown when not given.
        labels: a name for each sentence.
        start: sentence, layer and head to begin with.
        instead: what stands in for a head that is switched off, to begin with: 'mean' or 'zero'.
        top: how many tokens a lens names.
        title: names the workbench for those who hear it; it is not drawn.
        limit: bytes that the HTML may have at most.

    Raises:
        ValueError: the model has several streams, or attention without taps; there are no sentences, one is
            longer than `MAX_TOKENS` or than the model can read, or has tokens that the model does not know;
            names, targets, labels or the start do not fit; or the HTML is larger than the limit, and the
            message says what takes the room.

    >>> workbench(model, ["The cat"])  # doctest: +SKIP
    Traceback (most recent call last):
    ValueError: sentence 0 is a text: give the tokenizer that cuts it, or its token numbers
    """
    if tokenizer is None and tokens is None and as_model(model) is not model:
        tokenizer = getattr(model, "tokenizer", model)
    checked = _checked_model(as_model(model))
    name = _naming(tokens, tokenizer, checked.config.vocab)
    rows = _sequences(sentences, tokenizer, checked, "sentence")
    others = rows if reference is None else _sequences(reference, tokenizer, checked, "reference")
    if targets is not None and len(targets) != len(rows):
        raise ValueError(f"expected targets for each of {len(rows)} sentences, got {len(targets)}")
    if labels is not None and (isinstance(labels, str) or len(labels) != len(rows)):
        raise ValueError(f"expected a label for each of {len(rows)} sentences, got {labels!r:.60}")
    sizes = (len(rows), checked.config.n_layers, checked.config.n_heads)
    start = checked_place("start", start, ("sentence", "layer", "head"), sizes)
    means = mean_mixtures(checked, others)
    found = tuple(
        examine(
            checked,
            row,
            targets=None if targets is None else torch.as_tensor(targets[i]).to(row),
            means=means,
            top=min(top, checked.config.vocab),
        )
        for i, row in enumerate(rows)
    )
    if labels is None:
        labels = [_shortened(" ".join(name(int(t)) for t in row), 48) for row in rows]
    made = Workbench(
        examinations=found,
        title=title,
        _labels=tuple(visible(str(label)) for label in labels),
        _names={int(t): name(int(t)) for each in found for t in _used(each)},
        _start=start,
        _instead=instead,
        _causal=checked.causal,
    )
    made.check_size(limit)
    return made


@dataclass(frozen=True, eq=False)
class Workbench(InPage):
    """A model on a few sentences, made by `workbench`; a notebook shows it as the result of a cell.

    Attributes:
        examinations: what is shown, for each sentence.
        title: its name.
    """

    examinations: tuple[Examination, ...]
    title: str
    _labels: tuple[str, ...]
    _names: Mapping[int, str]
    _start: tuple[int, int, int]
    _instead: Instead
    _causal: bool

    def without(self, sentence: int = 0, instead: Instead = "mean") -> Without:
        """The effect of switching off a head on a sentence."""
        return self.examinations[sentence].without[instead]

    @functools.cached_property
    def static(self) -> ThemedFigure:
        """The drawing of the initial sentence: effects of heads, and predictions at each depth."""
        with warnings.catch_warnings():  # a script that the font lacks is a box in the drawing
            warnings.filterwarnings(
                "ignore", message=r"Glyph .* missing from", category=UserWarning
            )
            return _at_a_glance(self.examinations[self._start[0]], self._names, self._instead)

    @functools.cached_property
    def html(self) -> str:
        """The workbench as self-contained HTML, for any page, any number of times."""
        alt = html.escape(f"{self.title}: what every head does, and what every depth would say")
        picture = (
            f'<img src="data:image/png;base64,{_palette(self.static.light)}" '
            f'width="{self.static.width}" alt="{alt}">'
        )
        return (
            f'<div class="workbench">\n<style>{_packaged("workbench.css")}</style>\n'
            f'<div class="wb-static"><!--drawing-->{picture}<!--/drawing--></div>\n{self._words()}\n'
            f'<script type="application/octet-stream" class="wb-data">{self._data()}</script>\n'
            f"<script>{_packaged('workbench.js')}</script>\n</div>"
        )

    @property
    def size(self) -> int:
        """The size of the HTML in bytes."""
        return len(self.html.encode())

    def check_size(self, limit: int) -> None:
        """Raise a ValueError that says what to give less of, where the HTML has more bytes than `limit`."""
        if self.size <= limit:
            return
        each = [len(_packed([found], self._names)[1]) for found in self.examinations]
        fixed = self.size - len(self._data())
        count = len(self.examinations)
        longest = max(len(found.tokens) for found in self.examinations)
        fits = max(0, int((limit - fixed) / (len(self._data()) / count)))
        raise ValueError(
            f"expected a workbench of at most {limit / 1000:.0f} kB, got {self.size / 1000:.0f} kB, of which "
            f"{fixed / 1000:.0f} kB are script, drawing and words; its {count} sentences of up to {longest} "
            f"tokens take {len(self._data()) / 1000:.0f} kB (before compression {sum(each) / 1000:.0f} kB). "
            f"Give fewer sentences ({fits} would fit), shorter ones, or a larger limit"
        )

    def __repr__(self) -> str:
        """Say what there is to choose from."""
        count = len(self.examinations)
        layers, heads = self.examinations[0].size.shape[:2]
        return (
            f"Workbench({count} sentence{'s' * (count > 1)}, {layers} layer{'s' * (layers > 1)} of "
            f"{heads} head{'s' * (heads > 1)})"
        )

    def _words(self) -> str:
        """The main facts about each sentence, which need no script."""
        parts = ["<details class='wb-words'><summary>The sentences in words</summary>"]
        for label, found in zip(self._labels, self.examinations, strict=True):
            parts.append(f"<p><b><bdi>{html.escape(label)}</bdi></b></p><ul>")
            parts += [f"<li>{html.escape(each)}</li>" for each in _sentences(found, self._names)]
            parts.append("</ul>")
        parts.append("<p>Layers, heads and positions are counted from zero.</p></details>")
        return "\n".join(parts)

    def _data(self) -> str:
        told, arrays = _packed(self.examinations, self._names)
        told |= {
            "title": self.title,
            "labels": self._labels,
            "start": self._start,
            "instead": self._instead,
            "causal": self._causal,
        }
        text = json.dumps(told, ensure_ascii=True, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 4)
        whole = len(text).to_bytes(4, "little") + text + arrays
        return base64.b64encode(zlib.compress(whole, 9)).decode("ascii")


# What is given --------------------------------------------------------------------------------------


def _checked_model(model: nn.Module) -> Reader:
    if not isinstance(model, Decoder | Encoder):
        raise ValueError(
            f"expected a Decoder or an Encoder, got {type(model).__name__}; interop.from_huggingface makes "
            "one of a checkpoint (an EncoderDecoder has two streams: its patterns fit into attention_viewer)"
        )
    known = set(taps(model))
    for i in range(model.config.n_layers):
        for tap in ("pattern", "mixed", "head_outputs", "out"):
            if f"blocks.{i}.attention.{tap}" not in known:
                raise ValueError(
                    "expected heads in every block, with the taps pattern, mixed, head_outputs and out; "
                    f"block {i} has no attention.{tap}"
                )
    return model


def _naming(tokens: Names | None, tokenizer: Any, vocab: int) -> Callable[[int], str]:
    """The function that names a token, with blanks and line ends visible."""
    if isinstance(tokens, str):
        raise ValueError("expected a list of names or a function in tokens, got a text")
    if tokens is not None and not callable(tokens):
        if len(tokens) < vocab:
            raise ValueError(
                f"expected names for the {vocab} tokens of the model, got {len(tokens)}"
            )
        return lambda number: visible(str(tokens[number]))
    if tokens is not None:
        return lambda number: visible(str(tokens(number)))
    if tokenizer is None:
        return str
    look_up = naming(tokenizer)
    return lambda number: visible(look_up(number))


def _sequences(given: Any, tokenizer: Any, model: Reader, what: str) -> list[Tensor]:
    """Token numbers of each sentence, all of them checked."""
    if isinstance(given, str):
        raise ValueError(f"expected a list of {what}s, got one text; put it into a list")
    device = next(model.parameters()).device
    rows = [_numbers(each, tokenizer, f"{what} {i}") for i, each in enumerate(given)]
    if not rows:
        raise ValueError(f"expected at least one {what}, got none")
    vocab, config = model.config.vocab, model.config
    reach = config.max_length if config.positions == "learned" else MAX_TOKENS
    for i, row in enumerate(rows):
        if not 1 <= len(row) <= min(MAX_TOKENS, reach):
            raise ValueError(
                f"expected 1 to {min(MAX_TOKENS, reach)} tokens in {what} {i}, got {len(row)}; cut it to the "
                "part that matters"
            )
        if int(row.min()) < 0 or int(row.max()) >= vocab:
            raise ValueError(
                f"expected tokens from 0 to {vocab - 1} in {what} {i}, got {int(row.min())} to "
                f"{int(row.max())}: was it cut by another model's tokenizer?"
            )
    return [row.to(device) for row in rows]


def _numbers(given: Any, tokenizer: Any, what: str) -> Tensor:
    if isinstance(given, str):
        if tokenizer is None:
            raise ValueError(
                f"{what} is a text: give the tokenizer that cuts it, or its token numbers"
            )
        cut = tokenizer.encode(given)
        given = getattr(cut, "ids", cut)
    try:
        row = torch.as_tensor(given)
        whole = not row.is_floating_point() and row.dtype != torch.bool
        fits = row.ndim == 1 and (whole or not len(row))
    except (TypeError, ValueError, RuntimeError):
        fits = False
    if not fits:
        raise ValueError(
            f"expected {what} as a list of token numbers, got {given!r:.60}; what tokens are called is told "
            "in tokens"
        )
    return row.long()


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _used(found: Examination) -> set[int]:
    """The tokens that are named anywhere."""
    arrays = [found.tokens, found.targets, found.lens_tokens, found.direct_tokens]
    arrays += [each.token for each in found.without.values()]
    used = {int(t) for array in arrays if array is not None for t in np.unique(array)}
    return used - {-1}


# Packing --------------------------------------------------------------------------------------------


def _packed(
    examinations: Sequence[Examination], names: Mapping[int, str]
) -> tuple[dict[str, Any], bytes]:
    """The data for the script: a description, and the array of bytes that it points into."""
    blob = io.BytesIO()
    numbers = sorted(names)
    rank = {number: i for i, number in enumerate(numbers)}

    def keep(
        values: NDArray[Any], bits: Literal[8, 16], low: float | None = None
    ) -> dict[str, Any]:
        """Quantise in equal steps from the lowest to the highest value; the last code is NaN."""
        last = 2**bits - 1
        there = np.isfinite(values)
        least = float(np.min(values, where=there, initial=np.inf)) if low is None else low
        most = float(np.max(values, where=there, initial=-np.inf))
        least, most = (0.0, 0.0) if not there.any() else (least, most)
        step = (most - least) / (last - 1) or 1.0
        codes = np.where(there, np.rint((np.where(there, values, least) - least) / step), last)
        return write(codes, bits) | {"low": least, "step": step}

    def write(codes: NDArray[Any], bits: Literal[8, 16]) -> dict[str, Any]:
        blob.write(b"\0" * (blob.tell() % 2))
        place = blob.tell()
        blob.write(codes.astype(f"<u{bits // 8}").tobytes())
        return {"at": place, "bits": bits, "shape": codes.shape}

    def name(array: NDArray[Any]) -> dict[str, Any]:
        return write(np.vectorize(lambda number: rank.get(int(number), 2**16 - 1))(array), 16)

    told = []
    for found in examinations:
        each: dict[str, Any] = {
            "tokens": name(found.tokens),
            "targets": name(found.targets),
            "pattern": keep(found.pattern, 8, 0.0),
            "size": keep(found.size, 16),
            "stream": keep(found.stream, 16),
            "writes": keep(found.writes, 16),
        }
        if found.lens_tokens is not None:
            assert found.lens_chances is not None
            assert found.lens_target is not None
            each["lensTokens"] = name(found.lens_tokens)
            each["lensChances"] = keep(found.lens_chances, 16, 0.0)
            each["lensTarget"] = keep(found.lens_target, 16, 0.0)
        if found.direct_tokens is not None:
            assert found.direct_logits is not None
            assert found.direct_target is not None
            each["directTokens"] = name(found.direct_tokens)
            each["directLogits"] = keep(found.direct_logits, 16)
            each["directTarget"] = keep(found.direct_target, 16)
        for how, gone in found.without.items():
            each[how] = {"loss": keep(gone.loss, 16), "shift": keep(gone.shift, 16)}
            each[how]["effect"] = keep(gone.effect, 16)
            if gone.token is not None:
                assert gone.chance is not None
                assert gone.divergence is not None
                each[how] |= {
                    "token": name(gone.token),
                    "chance": keep(gone.chance, 16, 0.0),
                    "targetChance": keep(gone.target_chance, 16, 0.0),
                    "divergence": keep(gone.divergence, 16),
                }
        told.append(each)
    layers, heads = examinations[0].size.shape[:2]
    return (
        {"layers": layers, "heads": heads, "names": [names[n] for n in numbers], "sentences": told},
        blob.getvalue(),
    )


@functools.cache
def _packaged(name: str) -> str:
    """Return a file that lies beside this module, without comments on lines of their own and indentation."""
    text = files(__package__).joinpath(name).read_text("utf-8")
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("//", "/*")))


# Without a script -----------------------------------------------------------------------------------


def _sentences(found: Examination, names: Mapping[int, str]) -> list[str]:
    """The most important facts about one sentence."""
    effect = found.without["mean"].effect
    place = np.unravel_index(effect.argmax(), effect.shape)
    least = np.unravel_index(np.abs(effect).argmin(), effect.shape)
    said = [
        f"{_effect_words(found, place)} This is the largest effect of a head.",
        f"{_effect_words(found, least)} This is the smallest.",
    ]
    first = (
        found.pattern[..., 1:, 0].mean(-1) if len(found.tokens) > 1 else found.pattern[..., 0, 0]
    )
    sink = np.unravel_index(first.argmax(), first.shape)
    said.append(
        f"Layer {sink[0]}, head {sink[1]} gives the first token most weight: {first[sink]:.2f} on "
        "average over the others."
    )
    if found.lens_tokens is not None and found.lens_chances is not None:
        for at, token in enumerate(found.tokens):
            likely = names[int(found.lens_tokens[-1, at, 0])]
            words = f"Position {at}, {names[int(token)]}: most likely {likely} "
            words += f"({found.lens_chances[-1, at, 0]:.2f})"
            if found.targets[at] >= 0 and found.lens_target is not None:
                words += f"; the answer {names[int(found.targets[at])]} has {found.lens_target[-1, at]:.2f}"
            said.append(words + ".")
    return said


def _effect_words(found: Examination, place: Sequence[Any]) -> str:
    gone = found.without["mean"]
    layer, head = (int(i) for i in place)
    value = gone.effect[layer, head]
    if not np.isnan(gone.loss).all():
        return f"Without layer {layer}, head {head} a position costs {value:+.3f} nats on average."
    if gone.divergence is not None:
        return f"Without layer {layer}, head {head} predictions move by {value:.3f} nats (KL)."
    return f"Without layer {layer}, head {head} final states move by {value:.1%} of their length."


def _palette(png: bytes) -> str:
    """Reduce the drawing to a palette, a third of the size."""
    from PIL import Image

    stream = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        few = image.convert("RGB").quantize(48, dither=Image.Dither.NONE)
        few.save(stream, format="png", optimize=True)
    return base64.b64encode(stream.getvalue()).decode("ascii")


@themed
def _at_a_glance(found: Examination, names: Mapping[int, str], instead: Instead) -> Figure:
    """Draw what each head does to a sentence, and below it what each depth would say."""
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    effect = found.without[instead].effect
    speaks = found.lens_tokens is not None
    n, shown = len(found.tokens), min(len(found.tokens), 10)
    depths = len(found.stream)
    top = 0.9 + 0.32 * effect.shape[0]
    figure, panels = subplots(
        2 if speaks else 1,
        1,
        figsize=(WIDTH, top + (1.5 + 0.36 * depths if speaks else 0)),
        squeeze=False,
        height_ratios=[top, 1.5 + 0.36 * depths] if speaks else [1],
    )
    heads = panels[0, 0]
    most = max(float(np.abs(effect).max()), 1e-12)
    paper, ink = theme().paper, theme().ink
    colours = LinearSegmentedColormap.from_list(
        "effect", [COLOURS["residual"], paper, COLOURS["attention"]]
    )
    heads.imshow(effect, cmap=colours, vmin=-most, vmax=most, aspect="auto")
    if effect.size <= 40:
        for layer, head in np.ndindex(effect.shape):
            value = float(effect[layer, head])
            shade = ink if abs(value) < 0.5 * most else "#000000"
            heads.text(
                head,
                layer,
                f"{round(float(value), 2) + 0.0:.2f}",
                ha="center",
                va="center",
                fontsize=10,
                color=shade,
            )
    heads.set_xticks(range(effect.shape[1]))
    heads.set_yticks(range(effect.shape[0]))
    heads.set(xlabel="head", ylabel="layer")
    heads.grid(visible=False)
    scored = not np.isnan(found.without[instead].loss).all()
    heads.set_title(
        "nats that a token costs more without each head"
        if scored
        else "what changes without each head",
        fontsize=11,
    )
    if not speaks:
        return figure
    assert found.lens_tokens is not None
    assert found.lens_chances is not None
    lens = panels[1, 0]
    first = n - shown
    chances = found.lens_chances[:, first:, 0]
    shades = LinearSegmentedColormap.from_list("lens", [paper, COLOURS["rotary"]])
    lens.imshow(chances, cmap=shades, norm=PowerNorm(1.0, 0, 1.6), aspect="auto", origin="lower")
    for depth, place in np.ndindex(chances.shape):
        word = _shortened(names[int(found.lens_tokens[depth, first + place, 0])], 7)
        lens.text(place, depth, word, ha="center", va="center", fontsize=9, parse_math=False)
    words = [_shortened(names[int(t)], 8) for t in found.tokens[first:]]
    lens.set_xticks(range(shown), words, rotation=45, ha="right", parse_math=False)
    lens.set_yticks(range(depths))
    lens.set(xlabel="token read", ylabel="blocks run")
    lens.grid(visible=False)
    lens.set_title("most likely next token after each block", fontsize=11)
    return figure
