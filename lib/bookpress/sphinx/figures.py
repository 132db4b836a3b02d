"""Figures on a page: a dark drawing beside every light one, and words for whoever sees neither.

The figures of `measured_book.figures` carry their dark drawing in the output's metadata. It
becomes a second image with the same alternative text; the theme's classes `only-light` and
`only-dark` show one of the two. A figure of few lines carries one SVG that is both: web pages show it in
the place of the two, and ask for the dark one by its name behind a #. A viewer brings HTML beside its drawing:
on web pages that HTML stands in the figure, with the two drawings where it has its own; everything else prints
the drawing. A figure without alternative text, caption or name, or without a dark drawing, is a warning.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docutils import nodes
from measured_transformer.viewer._vector import DARK
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

from bookpress.sphinx.nodes import drawings
from bookpress.sphinx.page import page_of, warn

_DRAWING = re.compile(r"<!--drawing-->.*?<!--/drawing-->", re.DOTALL)
_DARK_VECTOR = re.compile(r'<img (?=[^>]*class="[^"]*\bonly-dark\b)[^>]*src="[^"]+\.svg(?=")')
_BEFORE_IMAGES_ARE_COLLECTED = 100


def place_outputs(app: Sphinx, doctree: nodes.document) -> None:
    """Pair figures with their dark drawings, and check all images."""
    if doctree.settings is None:
        return
    page = page_of(app.env, doctree)
    shown = {
        cell: list(_bundles(container))
        for container in doctree.findall(nodes.container)
        if (cell := container.get("cell_index")) is not None
    }
    themed: set[int] = set()
    for cell, bundles in shown.items():
        outputs = [output for output in page.outputs if output.cell == cell]
        if bundles and len(bundles) != len(outputs):
            warn(
                f"expected {len(outputs)} outputs of cell {cell + 1} on the page, "
                f"got {len(bundles)}: its figures cannot be told apart",
                "figure",
                bundles[0],
            )
            continue
        for bundle, output in zip(bundles, outputs, strict=False):
            kind = output.measured.get("kind")
            if kind in ("figure", "viewer"):
                themed.update(_add_dark(app, bundle, output.measured))
                if kind == "viewer":
                    themed.update(_place_viewer(bundle))
    executed = {id(image) for bundles in shown.values() for b in bundles for image in _images(b)}
    for image in list(_images(doctree)):
        _check(image, executed=id(image) in executed, themed=id(image) in themed)


def _bundles(container: nodes.container) -> Iterator[nodes.container]:
    for node in container.findall(nodes.container):
        if node.get("nb_element") == "mime_bundle":
            yield node


def _images(node: nodes.Element) -> Iterator[nodes.image]:
    yield from node.findall(nodes.image)


def _add_dark(app: Sphinx, bundle: nodes.container, measured: Mapping[str, Any]) -> list[int]:
    placed: list[int] = []
    vector = measured.get("vector") if app.builder.format == "html" else None
    for image in list(_images(bundle)):
        drawn = Path(app.srcdir, image["uri"].lstrip("/"))
        pair = drawings(size=_size(drawn.read_bytes()))
        dark = image.deepcopy()
        if vector:
            image["uri"] = dark["uri"] = _write(app, vector.encode(), f"{drawn.stem}.svg")
        elif "dark" in measured:
            png = b64decode(measured["dark"])
            dark["uri"] = _write(app, png, f"{hashlib.sha256(png).hexdigest()}.png")
        image.parent.replace(image, pair)
        pair += [image, dark]
        for each, name in ((image, "only-light"), (dark, "only-dark")):
            each["classes"].append(name)
            each["loading"] = "lazy"  # or every reader would load both
        placed += [id(image), id(dark)]
    return placed


def _place_viewer(bundle: nodes.container) -> list[int]:
    """Put the drawings of the page into a viewer's HTML, where it has the drawing for notebooks."""
    placed: list[int] = []
    pair = next(iter(bundle.findall(drawings)), None)
    for raw in list(bundle.findall(nodes.raw)):
        pieces = _DRAWING.split(raw.astext())
        if pair is None or len(pieces) != 2:
            warn(
                "viewer without a drawing: expected image/png beside its HTML, and in that one "
                "<!--drawing-->...<!--/drawing-->",
                "figure",
                bundle,
            )
            continue
        before, after = (nodes.raw("", piece, format="html") for piece in pieces)
        copied = pair.deepcopy()
        raw.parent.replace(raw, [before, copied, after])
        placed += map(id, _images(copied))
    return placed


def _write(app: Sphinx, content: bytes, name: str) -> str:
    """Store an image where MyST-NB keeps its own, and return its address for Sphinx."""
    path = kept(app, name)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return "/" + Path(os.path.relpath(path, app.srcdir)).as_posix()


def kept(app: Sphinx, name: str) -> Path:
    """Return where MyST-NB keeps an image of this name; the PNG of an SVG lies there under the same stem."""
    return Path(app.env.mystnb_config.output_folder) / name  # type: ignore[attr-defined]


def _ask_for_dark(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Ask for the dark one of two drawings in one file."""
    if doctree is not None and "only-dark" in context.get("body", ""):
        context["body"] = _DARK_VECTOR.sub(rf"\g<0>#{DARK}", context["body"])


def _size(png: bytes) -> tuple[int, int]:
    """Return width and height in pixels, which stand right after a PNG's signature."""
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def _check(image: nodes.image, *, executed: bool, themed: bool) -> None:
    what = "figure" if executed else f"image {image['uri']}"
    if not image.get("alt", "").strip():
        warn(
            f"{what} without alternative text: say in `alt` what it shows to whoever cannot see it",
            "figure",
            image,
        )
    if not executed:
        return
    figure: nodes.Node | None = image
    while figure is not None and not isinstance(figure, nodes.figure):
        figure = figure.parent
    captioned = isinstance(figure, nodes.figure) and any(
        isinstance(child, nodes.caption) for child in figure.children
    )
    if not captioned or not (isinstance(figure, nodes.figure) and figure["ids"]):
        warn(
            "figure without caption or name: give the cell "
            "`mystnb: {figure: {caption: ..., name: ...}, image: {alt: ...}}`",
            "figure",
            image,
        )
    if not themed:
        warn(
            "figure without a drawing for dark pages: draw it with a function decorated by "
            "measured_transformer.viewer.style.themed",
            "figure",
            image,
        )


class OneDrawing(SphinxPostTransform):
    """Keep only the light drawing where the reader has no choice of theme."""

    default_priority = 5  # right after MyST-NB has chosen what to show

    def run(self, **kwargs: object) -> None:
        """Remove the dark drawings, except from web pages."""
        if self.app.builder.format == "html":
            return
        for pair in list(self.document.findall(drawings)):
            pair.parent.replace(pair, pair.children[0])


def setup(app: Sphinx) -> None:
    """Register the placing of outputs and the choice of one drawing."""
    app.connect("doctree-read", place_outputs, priority=_BEFORE_IMAGES_ARE_COLLECTED)
    app.add_post_transform(OneDrawing)
    app.connect("html-page-context", _ask_for_dark)
