"""A drawing for both themes as one small SVG: `drawing.svg` is the light one, `drawing.svg#dark` the dark one.

The two drawings of a figure differ in colours alone, so they share every line and every letter. Each style is
a class, and where the themes disagree the class has a second colour for when the drawing is asked for as
`#dark`. What Matplotlib writes is made smaller on the way: coordinates relative to one another and no finer
than is seen, short names, and no groups that hold nothing but a name.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from itertools import product
from string import ascii_letters
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
from matplotlib.collections import Collection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.image import _ImageBase
from matplotlib.lines import Line2D
from matplotlib.text import Text

DARK = "dark"
"""The name behind the # with which the drawing is the dark one."""
MOST_POINTS = 5000
"""Points of lines and signs of text up to which a drawing is worth trying."""

_XLINK = "{http://www.w3.org/1999/xlink}href"
_GLYPHS = 4.0
"""By how much the grid of letters is coarser than that of their font, which has 2048 steps a height."""
_PLACES = 2
"""Decimals of a coordinate in points."""
_COMMAND = re.compile(r"([MLQCzZ])([^MLQCzZ]*)")
_NUMBER = re.compile(r"-?\d*\.?\d+(?:e-?\d+)?")
_NAMED = re.compile(r"#([\w.-]+)")
_KEPT = ("d", "x", "y", "width", "height", "transform", "patternUnits")


class _UnlikeError(Exception):
    """The two drawings differ in more than their colours, or hold what is no vector."""


def has_few_points(figure: Figure) -> bool:
    """Tell whether a figure is lines, marks and words alone, and not too many of them."""
    points = 0
    for artist in figure.findobj():
        if isinstance(artist, _ImageBase | QuadMesh):
            return False
        if isinstance(artist, Line2D):
            marked = artist.get_marker() not in ("None", "none", "", " ", None)
            points += np.shape(artist.get_xydata())[0] * (2 if marked else 1)
        elif isinstance(artist, Collection):
            points += sum(np.shape(path.vertices)[0] for path in artist.get_paths())
            points += 3 * np.shape(artist.get_offsets())[0]
        elif isinstance(artist, Text):
            points += len(artist.get_text())
        if points > MOST_POINTS:
            return False
    return True


def written(figure: Figure) -> bytes:
    """Return a figure as Matplotlib writes it, with everything where it was laid out before."""
    stream = io.BytesIO()
    engine = figure.get_layout_engine()
    figure.set_layout_engine("none")
    try:
        with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "measured"}):
            figure.savefig(stream, format="svg", metadata={"Date": None})
    finally:
        figure.set_layout_engine(engine)
    return stream.getvalue()


def both(light: bytes, dark: bytes) -> str | None:
    """Return one SVG for both themes; None where the drawings differ in more than colours, or hold pixels.

    The light one has a ground, as a PNG on white has; the dark one lies on the page.

    Args:
        light: the drawing for light pages, as `written` gives it.
        dark: the same for dark ones.
    """
    one, other = ElementTree.fromstring(light), ElementTree.fromstring(dark)
    try:
        return _Writer(one, other).whole()
    except _UnlikeError:
        return None


class _Writer:
    """Writes what two drawings share."""

    def __init__(self, light: ElementTree.Element, dark: ElementTree.Element) -> None:
        self._light, self._dark = light, dark
        self._classes: dict[tuple[str, str], str] = {}
        self._names: tuple[dict[str, str], dict[str, str]] = ({}, {})
        self._short = _short_names()

    def whole(self) -> str:
        if (behind := _ground(self._dark)) is None:
            raise _UnlikeError
        behind.set("style", "fill: none")
        body = "".join(self._children(self._light, self._dark))
        sheet = ["*{stroke-linejoin:round;stroke-linecap:butt}"]
        for (light, dark), name in self._classes.items():
            sheet.append(f".{name}{{{light}}}")
            if light != dark:
                before = set(light.split(";"))
                changed = ";".join(part for part in dark.split(";") if part not in before)
                sheet.append(f"svg:target .{name}{{{changed}}}")
        size = " ".join(
            f'{key}="{self._light.get(key, "")}"' for key in ("width", "height", "viewBox")
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" id="{DARK}" {size}>'
            f"<style>{''.join(sheet)}</style>{body}</svg>"
        )

    def _children(self, light: ElementTree.Element, dark: ElementTree.Element) -> Iterator[str]:
        ours, theirs = _drawn(light), _drawn(dark)
        if len(ours) != len(theirs):
            raise _UnlikeError
        for one, other in zip(ours, theirs, strict=True):
            yield from self._element(one, other)

    def _element(self, light: ElementTree.Element, dark: ElementTree.Element) -> Iterator[str]:
        tag = _tag(light)
        if tag != _tag(dark) or tag == "image" or light.keys() != dark.keys():
            raise _UnlikeError
        attributes = "".join(self._attributes(tag, light, dark))
        inner = "".join(self._children(light, dark))
        if tag in ("g", "defs") and (not inner or not (attributes or tag == "defs")):
            yield inner
        elif inner:
            yield f"<{tag}{attributes}>{inner}</{tag}>"
        else:
            yield f"<{tag}{attributes}/>"

    def _attributes(
        self, tag: str, light: ElementTree.Element, dark: ElementTree.Element
    ) -> Iterator[str]:
        glyph = tag == "path" and light.get("transform") == "scale(0.015625)"
        for key, value in light.items():
            other = dark.get(key, "")
            if key == "id":
                if tag != "g":
                    yield f' id="{self._same(value, other)}"'
            elif key == "style":
                yield f' class="{self._class_of(value, other)}"'
            elif key == "fill":  # of the ground of a hatched area
                yield f' class="{self._class_of(f"fill: {value}", f"fill: {other}")}"'
            elif key in (_XLINK, "clip-path"):
                yield f' {key.removeprefix(_XLINK[:-4])}="{self._referring(value, other)[0]}"'
            elif key not in _KEPT:
                raise _UnlikeError
            elif glyph:
                text = (
                    f"scale({_GLYPHS / 64:g})"
                    if key == "transform"
                    else _path(value, 1 / _GLYPHS, 0)
                )
                yield f' {key}="{text}"'
            elif value != other:
                raise _UnlikeError
            elif key == "d":
                yield f' d="{_path(value, 1.0, _PLACES)}"'
            elif tag == "use" and (at := re.fullmatch(r"translate\((\S+) (\S+)\)", value)):
                across, down = (_rounded(float(part), 1) for part in at.groups())
                yield f' x="{across}"' + ("" if down == "0" else f' y="{down}"')
            elif key in ("x", "y", "width", "height"):
                yield f' {key}="{_rounded(float(value), _PLACES)}"'
            elif key == "transform":
                yield f' transform="{_NUMBER.sub(lambda m: _rounded(float(m[0]), 4), value)}"'
            else:
                yield f' {key}="{value}"'

    def _same(self, light: str, dark: str) -> str:
        """Return the short name of what both drawings name, each in its own way."""
        ours, theirs = self._names
        if light not in ours and dark not in theirs:
            ours[light] = theirs[dark] = next(self._short)
        if ours.get(light) != theirs.get(dark):
            raise _UnlikeError
        return ours[light]

    def _referring(self, light: str, dark: str) -> tuple[str, str]:
        """Return two values that name something by what both drawings call it now."""
        found, other = _NAMED.search(light), _NAMED.search(dark)
        if found is None or other is None:
            raise _UnlikeError
        name = f"#{self._same(found[1], other[1])}"
        return light.replace(found[0], name), dark.replace(other[0], name)

    def _class_of(self, light: str, dark: str) -> str:
        pair = self._style(light, dark)
        if pair not in self._classes:
            self._classes[pair] = next(self._short)
        return self._classes[pair]

    def _style(self, light: str, dark: str) -> tuple[str, str]:
        if "url(" in light or "url(" in dark:
            light, dark = self._referring(light, dark)
        return _declarations(light), _declarations(dark)


def _drawn(element: ElementTree.Element) -> list[ElementTree.Element]:
    """The children that draw something or name it; without what describes the file."""
    return [child for child in element if _tag(child) not in ("metadata", "style")]


def _ground(drawing: ElementTree.Element) -> ElementTree.Element | None:
    """The area behind everything, which is drawn first."""
    return next((one for one in drawing.iter() if _tag(one) == "path"), None)


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _short_names() -> Iterator[str]:
    yield from ascii_letters
    yield from ("".join(pair) for pair in product(ascii_letters, ascii_letters))


def _declarations(style: str) -> str:
    parts = (part.partition(":") for part in style.split(";") if part.strip())
    return ";".join(f"{name.strip()}:{value.strip()}" for name, _, value in parts)


def _rounded(value: float, places: int) -> str:
    text = f"{value:.{places}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    if text in ("-0", ""):
        return "0"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def _path(d: str, scale: float, places: int) -> str:
    """Write a path in steps from point to point, each from where the last rounded one ended."""
    out: list[str] = []
    last = ""
    at = start = (0.0, 0.0)
    unit = 10.0**places

    def snapped(value: float) -> float:
        return round(value * scale * unit) / unit

    for command, numbers in _COMMAND.findall(d):
        if command in "zZ":
            out.append("z")
            at, last = start, "z"
            continue
        values = [snapped(float(number)) for number in numbers.split()]
        points = list(zip(values[::2], values[1::2], strict=True))
        if not points:
            raise _UnlikeError
        steps = [part - old for x, y in points for part, old in ((x, at[0]), (y, at[1]))]
        at = points[-1]
        letter = command.lower()
        if command == "M":
            start = at
        text = _joined([_rounded(step, places) for step in steps])
        if letter == last and letter != "m":
            out.append(text if text.startswith("-") else f" {text}")
        else:
            out.append(f"{letter}{text}")
        last = letter
    return "".join(out)


def _joined(numbers: list[str]) -> str:
    return numbers[0] + "".join(
        number if number.startswith("-") else f" {number}" for number in numbers[1:]
    )
