"""What a language model shows: the likeliest tokens, and a text in its tokens, readable in a notebook.

>>> Top([Likely(" Paris", 0.61, 7042), Likely(" the", 0.031, 260)])
1  ' Paris'   61.0 %
2  ' the'      3.1 %
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import NamedTuple

_SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}


class Likely(NamedTuple):
    """One token that may come next.

    Attributes:
        token: as a string, with its space.
        probability: that the model gives it.
        number: of the token.
    """

    token: str
    probability: float
    number: int


class Top(tuple[Likely, ...]):
    """The likeliest next tokens, the likeliest first."""

    __slots__ = ()

    @property
    def tokens(self) -> list[str]:
        """The tokens as strings."""
        return [one.token for one in self]

    @property
    def probabilities(self) -> list[float]:
        """Their probabilities."""
        return [one.probability for one in self]

    def __repr__(self) -> str:
        """A line for each token: its rank, itself, its probability."""
        width = max((len(repr(one.token)) for one in self), default=0)
        digits = len(str(len(self)))
        return "\n".join(
            f"{rank:>{digits}}  {one.token!r:<{width}}  {share(one.probability):>7}"
            for rank, one in enumerate(self, 1)
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td style='text-align:left'><code>{html.escape(visible(one.token))}</code></td>"
            f"<td style='text-align:right'>{html.escape(share(one.probability))}</td>"
            "<td style='text-align:left;min-width:12em'><div role='presentation' style='height:.8em;"
            f"width:{12 * one.probability:.2f}em;background:currentColor;opacity:.45'></div></td></tr>"
            for one in self
        )
        head = "<tr><th style='text-align:left'>token</th><th>probability</th><th></th></tr>"
        return f"<table>{head}{rows}</table>"


class Tokens(list[str]):
    """The tokens of a text as strings; a notebook shows each in a frame with its position."""

    def __init__(self, strings: Iterable[str]) -> None:
        super().__init__(strings)

    def _repr_html_(self) -> str:
        frame = (
            "display:inline-block;margin:1px;padding:0 3px;text-align:center;white-space:pre;"
            "border:1px solid currentColor;border-radius:3px"
        )
        return (
            "<div>"
            + "".join(
                f"<span style='{frame}'><code>{html.escape(visible(token))}</code><br>"
                f"<small style='opacity:.7'>{place}</small></span>"
                for place, token in enumerate(self)
            )
            + "</div>"
        )


def share(probability: float) -> str:
    """A probability in per cent.

    >>> share(0.613), share(0.0001)
    ('61.3 %', '<0.1 %')
    """
    return "<0.1 %" if 0 < probability < 0.0005 else f"{100 * probability:.1f} %"


def visible(token: str) -> str:
    r"""A token with signs for spaces, tabs and line ends.

    >>> visible(" a\n")
    '␣a↵'
    """
    return "".join(_SIGNS.get(letter, letter) for letter in token) or "∅"
