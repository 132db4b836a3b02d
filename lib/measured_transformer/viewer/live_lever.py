"""Small live cells: a few controls, a drawing, and a sentence that says what is seen.

>>> live_lever("softmax", scores=(2.0, 1.0, 0.0), labels=("cat", "dog", "emu"))
Lever('softmax')

A reader moves a lever and sees at once what follows; everything is computed in the page, without a model. Where
scripts do not run, and on paper, stands a drawing of how it begins. `kinds` names all levers, `Lever.seen` has
what is drawn at first, as the library computes it.
"""

from __future__ import annotations

import functools
import html
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.pyplot import subplots
from numpy.typing import NDArray

from measured_transformer.models.config import Config
from measured_transformer.models.sizes import count_flops, count_parameters
from measured_transformer.parts.attention import causal_mask, window_mask
from measured_transformer.parts.norms import PlainLayerNorm
from measured_transformer.parts.positions import sinusoidal_encoding
from measured_transformer.training.schedules import (
    InverseSquareRoot,
    Schedule,
    WarmupCosine,
    WarmupLinear,
)
from measured_transformer.viewer._in_page import InPage
from measured_transformer.viewer.style import COLOURS, ThemedFigure, theme, themed
from measured_transformer.viewer.workbench import _packaged, _palette

__all__ = ["Lever", "kinds", "live_lever"]

Values = NDArray[np.float64]


def live_lever(kind: str, *, title: str | None = None, **options: Any) -> Lever:
    """A small live cell.

    Args:
        kind: 'softmax' (options `scores`, `labels`, `temperature`), 'sinusoids' (`d`, `base`, `position`,
            `reach`), 'rotation' (positions `query` and `key`, `reach`), 'mask' (`n` tokens, `window`,
            `padding`), 'norm' (`vector`, `norm`: 'layer' or 'rms', `eps`), 'schedule' (`schedule`: 'cosine',
            'linear' or 'root', `warmup`, `steps`), 'cache' (`tokens`, `layers`, `heads`, `width`, `bytes`) or
            'count' (parameters and operations of a decoder without biases, with RMSNorm: `d`, the width of the
            stream, `layers`, `heads` of queries, `groups` of keys and values, `width` of a head, `neurons`,
            `gate`, `vocab`, `tied`, `tokens` read at once).
        title: names it for those who hear it; it is not drawn.
        options: where the levers begin; what is not given is as in `kinds`.

    Raises:
        ValueError: there is no such kind or option, or a value does not fit.

    >>> live_lever("norm", vectors=(1.0, 2.0))
    Traceback (most recent call last):
    ValueError: expected options of 'norm' among vector, norm, eps; got vectors
    """
    if kind not in _LEVERS:
        raise ValueError(f"expected one of {', '.join(_LEVERS)}, got {kind!r}")
    lever = _LEVERS[kind]
    if unknown := sorted(set(options) - set(lever.options)):
        raise ValueError(
            f"expected options of {kind!r} among {', '.join(lever.options)}; got {', '.join(unknown)}"
        )
    given = {**lever.options, **options}
    if kind == "softmax" and not 1 < len(given["scores"]) == len(given["labels"]) <= 6:
        raise ValueError(
            f"expected two to six scores and a label for each, got {given['scores']} and {given['labels']}"
        )
    if kind == "schedule" and not 1 <= given["warmup"] < given["steps"]:
        raise ValueError(
            f"expected a warm-up shorter than {given['steps']} steps, got {given['warmup']}"
        )
    if kind == "count" and given["heads"] % given["groups"]:
        raise ValueError(
            f"expected heads that groups of keys and values share evenly, got {given['heads']} heads and "
            f"{given['groups']} groups"
        )
    for name, choices in (("norm", ("layer", "rms")), ("schedule", tuple(_SCHEDULES))):
        if name in given and given[name] not in choices:
            raise ValueError(f"expected {name} as one of {', '.join(choices)}, got {given[name]!r}")
    return Lever(kind, given, title or lever.title)


def kinds() -> dict[str, Mapping[str, Any]]:
    """The levers by name, each with its options and what they are when nothing is given.

    >>> kinds()["mask"]
    {'n': 8, 'window': 8, 'padding': 0}
    """
    return {name: lever.options for name, lever in _LEVERS.items()}


@dataclass(frozen=True, eq=False)
class Lever(InPage):
    """A small live cell, made by `live_lever`; a notebook shows it as the result of a cell.

    Attributes:
        kind: which lever it is.
        options: where it begins.
        title: its name.
    """

    kind: str
    options: Mapping[str, Any]
    title: str

    @functools.cached_property
    def seen(self) -> dict[str, Values]:
        """What is drawn at first, by name, as the library computes it."""
        return _LEVERS[self.kind].see(**self.options)

    @functools.cached_property
    def static(self) -> ThemedFigure:
        """The drawing of how it begins."""
        return _drawn(self)

    @functools.cached_property
    def html(self) -> str:
        """The live cell as self-contained HTML, for any page, any number of times."""
        told = {"kind": self.kind, "options": dict(self.options), "title": self.title}
        written = json.dumps(told, separators=(",", ":")).replace("<", "\\u003c")
        drawing = (
            f'<img src="data:image/png;base64,{_palette(self.static.light)}" '
            f'width="{self.static.width}" alt="{html.escape(self.title)}">'
        )
        scripts = "\n".join(map(_packaged, ("live_controls.js", "live_lever.js")))
        return (
            f'<div class="live-model" data-kind="lever">\n<style>{_packaged("live.css")}</style>\n'
            f'<div class="lm-static"><!--drawing-->{drawing}<!--/drawing--></div>\n'
            f'<script type="application/json" class="lm-lever">{written}</script>\n'
            f"<script>(() => {{\n{scripts}\n}})();</script>\n</div>"
        )

    def __repr__(self) -> str:
        """Say which lever it is."""
        return f"Lever({self.kind!r})"


# What is seen at first ------------------------------------------------------------------------------


def _softmax(scores: Any, labels: Any, temperature: float) -> dict[str, Values]:
    raised = torch.tensor(scores, dtype=torch.float64) / temperature
    return {"weight": raised.softmax(-1).numpy()}


def _sinusoids(d: int, base: float, position: int, reach: int) -> dict[str, Values]:
    places = torch.cat(
        (torch.arange(position - reach, position + reach + 1), torch.tensor([position]))
    )
    table = sinusoidal_encoding(places.double(), d, base=base).double()
    return {"similarity": (table[:-1] @ table[-1] / (d / 2)).numpy()}


def _rotation(query: int, key: int, reach: int) -> dict[str, Values]:
    angles = np.deg2rad(20.0 * np.array([query, key]))
    turned = np.stack((np.cos(angles), np.sin(angles)), axis=-1)
    return {"query": turned[0], "key": turned[1]}


def _mask(n: int, window: int, padding: int) -> dict[str, Values]:
    allowed = causal_mask(n) & window_mask(n, window=window)
    allowed &= torch.arange(n) < n - padding
    return {"allowed": allowed.double().numpy()}


def _norm(vector: Any, norm: str, eps: float) -> dict[str, Values]:
    x = torch.tensor(vector, dtype=torch.float64)
    if norm == "layer":
        after = PlainLayerNorm(len(x), eps=eps)(x)
    else:
        after = torch.nn.functional.rms_norm(x, x.shape, eps=eps)
    return {"before": x.numpy(), "after": after.numpy()}


_SCHEDULES: Mapping[str, Callable[[int, int], Schedule]] = {
    "cosine": WarmupCosine,
    "linear": WarmupLinear,
    "root": lambda warmup, steps: InverseSquareRoot(warmup),
}


def _schedule(schedule: str, warmup: int, steps: int) -> dict[str, Values]:
    rate = _SCHEDULES[schedule](warmup, steps)
    return {"share of the highest rate": np.array([rate(step) for step in range(steps)])}


def _cache(tokens: int, layers: int, heads: int, width: int, bytes: int) -> dict[str, Values]:
    one = 2 * tokens * layers * width * bytes / 1e6
    return {"megabytes": np.array([heads * one, heads * one, one])}


def _count(
    d: int, layers: int, heads: int, groups: int, width: int, neurons: int, gate: bool, vocab: int,
    tied: bool, tokens: int,
) -> dict[str, Values]:  # fmt: skip
    config = Config(
        vocab=vocab, d_model=d, n_layers=layers, n_heads=heads, n_kv_heads=groups, d_head=width,
        d_ff=neurons, activation="swiglu" if gate else "relu", norm="rms", positions="rotary",
        bias=False, tie_embeddings=tied,
    )  # fmt: skip
    held, done = count_parameters(config, "decoder"), count_flops(config, "decoder", length=tokens)
    parts = (held.attention, held.feedforward, held.embedding + held.head)
    work = (done.attention, done.feedforward, done.head)
    return {
        "share of the parameters": np.array(parts) / held.total,
        "share of the operations": np.array(work) / done.total,
    }


@dataclass(frozen=True)
class _Kind:
    """One lever: what it draws, its name, its options, and what is seen for them."""

    chart: str
    title: str
    options: Mapping[str, Any]
    see: Callable[..., dict[str, Values]]


_LEVERS: Mapping[str, _Kind] = {
    "softmax": _Kind(
        "bars",
        "Scores to weights, at a temperature",
        {"scores": (2.0, 1.0, 0.0, -1.0), "labels": ("a", "b", "c", "d"), "temperature": 1.0},
        _softmax,
    ),
    "sinusoids": _Kind(
        "lines",
        "Similarity of two positions' encodings",
        {"d": 64, "base": 10000.0, "position": 20, "reach": 40},
        _sinusoids,
    ),
    "rotation": _Kind(
        "plane",
        "A query and a key, turned by their positions",
        {"query": 5, "key": 2, "reach": 20},
        _rotation,
    ),
    "mask": _Kind(
        "matrix",
        "Which queries may see which keys",
        {"n": 8, "window": 8, "padding": 0},
        _mask,
    ),
    "norm": _Kind(
        "bars",
        "A vector before and after its norm",
        {"vector": (1.0, 2.0, 0.5, -1.0), "norm": "layer", "eps": 1e-5},
        _norm,
    ),
    "schedule": _Kind(
        "lines",
        "A learning rate's schedule",
        {"schedule": "cosine", "warmup": 20, "steps": 200},
        _schedule,
    ),
    "cache": _Kind(
        "bars",
        "Memory of a cache of keys and values",
        {"tokens": 1024, "layers": 12, "heads": 12, "width": 64, "bytes": 2},
        _cache,
    ),
    "count": _Kind(
        "bars",
        "Where a decoder's parameters and operations are",
        {
            "d": 4096,
            "layers": 32,
            "heads": 32,
            "groups": 8,
            "width": 128,
            "neurons": 14336,
            "gate": True,
            "vocab": 128256,
            "tied": False,
            "tokens": 2048,
        },
        _count,
    ),
}


@themed
def _drawn(lever: Lever) -> Figure:
    """Draw how a lever begins."""
    kind, seen, options = _LEVERS[lever.kind], lever.seen, lever.options
    figure, axes = subplots(figsize=(6.4, 2.9))
    colours = (COLOURS["residual"], COLOURS["attention"])
    if kind.chart == "matrix":
        axes.imshow(seen["allowed"], cmap=_shades(), vmin=0, vmax=1)
        axes.set(xlabel="key", ylabel="query")
        axes.grid(visible=False)
        return figure
    if kind.chart == "plane":
        for (name, (x, y)), colour, line in zip(seen.items(), colours, ("-", "--"), strict=True):
            axes.plot([0, x], [0, y], color=colour, linestyle=line, marker="o", markevery=[1])
            axes.annotate(name, (x, y), xytext=(6, 6), textcoords="offset points")
        axes.set(xlim=(-1.3, 1.3), ylim=(-1.15, 1.25), aspect="equal")
        return figure
    if kind.chart == "lines":
        ((name, curve),) = seen.items()
        start = -options["reach"] if lever.kind == "sinusoids" else 0
        axes.plot(np.arange(start, start + len(curve)), curve, color=colours[0])
        axes.set(xlabel="offset" if lever.kind == "sinusoids" else "step", ylabel=name)
        return figure
    names = {
        "softmax": options.get("labels"),
        "cache": ("as chosen", f"all {options.get('heads')} heads", "one head"),
        "count": ("attention", "networks", "embeddings"),
    }.get(lever.kind) or [str(i) for i in range(len(next(iter(seen.values()))))]
    wide = 0.7 / len(seen)
    for i, ((name, values), colour) in enumerate(zip(seen.items(), colours, strict=False)):
        places = np.arange(len(values)) - 0.35 + wide * (i + 0.5)
        axes.bar(places, values, 0.94 * wide, color=colour, label=name, hatch="//" if i else None)
    axes.set_xticks(range(len(names)), names)
    many = "share" if lever.kind == "count" else "entry"
    axes.set_ylabel(next(iter(seen)) if len(seen) == 1 else many)
    if len(seen) > 1:
        axes.legend()
    return figure


def _shades() -> Any:
    from matplotlib.colors import ListedColormap

    return ListedColormap([theme().faint, COLOURS["residual"]])
