"""What the chapter on checkpoints draws: one sentence seen by three methods, and tables of a comparison."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from measured_transformer.viewer.style import COLOURS, themed
from torch import Tensor

from measured_book.figures.plots import heat_map, legend_above, panel_letters, subplots
from measured_book.figures.tables import Table

METHOD_COLOURS = ("residual", "attention", "ffn")


@themed
def plot_sentence(
    tokens: Sequence[str],
    scores: Mapping[str, Float[Tensor, "token"]],
    restored: Float[Tensor, "depth token"],
) -> Figure:
    """What each token is worth to three methods, and where in the model that worth is found.

    Args:
        tokens: of the sentence.
        scores: of each method, for every token; drawn as shares of its largest size.
        restored: what comes back when one state of the sentence is put into another run.
    """
    figure, (above, below) = subplots(2, 1, height=3.1)
    places = np.arange(len(tokens))
    for i, (method, values) in enumerate(scores.items()):
        sizes = values.detach().double().abs().numpy()
        above.bar(
            places + 0.27 * (i - 1),
            sizes / sizes.max(),
            width=0.25,
            color=COLOURS[METHOD_COLOURS[i]],
            label=method,
        )
    above.set_xticks(places, tokens)
    above.set_xlim(-0.6, len(tokens) - 0.4)
    above.set_ylabel("share of the largest score")
    legend_above(above)
    grid = restored.detach().double().numpy()
    heat_map(
        below,
        grid,
        label="similarity that comes back",
        x_label="token whose state is put in",
        y_label="blocks passed",
    )
    below.set_xticks(places, tokens)
    panel_letters([above, below])
    return figure


# Tables ---------------------------------------------------------------------------------------------


def comparison() -> dict[str, Any]:
    """The run of `python -m comparisons` that is committed with the library."""
    file = resources.files(__package__) / "comparison.json"
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found


def families(found: Mapping[str, Any]) -> Table:
    """How far each family's checkpoints are from `transformers` here."""
    return Table(
        ("family", "weights", "largest difference, as a share of the largest value"),
        tuple(
            (each["family"], each["weights"], _power(each["difference"]))
            for each in found["families"]
        ),
    )


def peer(found: Mapping[str, Any], name: str) -> Table:
    """What one library and this one say of the same weights: the largest difference over the models.

    Raises:
        ValueError: when the library was not compared with.
    """
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for row in found["rows"]:
        if row["peer"] == name:
            grouped.setdefault(row["quantity"], []).append(row)
    if not grouped:
        known = sorted({row["peer"] for row in found["rows"]})
        raise ValueError(f"expected one of {', '.join(known)}, got {name!r}")
    return Table(
        ("quantity", "here; there", "difference"),
        tuple(_compared(quantity, rows) for quantity, rows in grouped.items()),
    )


def heads(found: Mapping[str, Any]) -> Table:
    """Which head each detector puts first in the trained models; heads are counted from zero."""
    return Table(
        ("model", "kind of head", "found here", "found there", "score here", "score there"),
        tuple(
            (
                each["model"],
                each["kind"],
                *("layer {}, head {}".format(*each[who]) for who in ("ours", "theirs")),
                *(f"{each[score]:.2f}" for score in ("our score", "their score")),
            )
            for each in found["heads"]
        ),
    )


def _compared(quantity: str, rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    first = rows[0]
    worst = _power(max(row["difference"] for row in rows))
    if not first["same"]:
        left = _power(max(row["after"] for row in rows))
        quantity, worst = f"{quantity} ({first['why']})", f"{worst}; undone {left}"
    return quantity, f"{first['ours']}; {first['theirs']}", worst


def _power(share: float) -> str:
    """A difference in few digits.

    >>> _power(0.0), _power(0.25), _power(3.2e-8)
    ('0', '0.25', '3e-08')
    """
    return "0" if share == 0 else f"{share:.2f}" if share >= 0.01 else f"{share:.0e}"
