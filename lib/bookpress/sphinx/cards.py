"""Social cards: the picture that a network shows beside a link, one for each chapter with a figure.

A card is a page's first wide figure with the title above it. Pages that are no chapters share the book's card.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sphinx.application import Sphinx
from sphinx.util.parallel import ParallelTasks, SerialTasks

from bookpress.sphinx.figures import kept
from bookpress.sphinx.rooms import room_of

if TYPE_CHECKING:
    from PIL.Image import Image

FOLDER = "_cards"
BOOK = "book"
WIDTH, HEIGHT = 1200, 630
_MARK = "measured"
_MADE_BY = "1"
_WIDE = 1.5
_LIGHT = re.compile(r'<img (?=[^>]*class="only-light")[^>]*src="([^"]+\.(?:png|svg))"')
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
_INK, _FAINT, _GROUND, _ACCENT = "#1d2330", "#565c69", "#ffffff", "#0a58a8"


def card_of(app: Sphinx, docname: str) -> str:
    """Return the file of a page's card, as it lies below the folder of the pages."""
    name = docname.replace("/", "-").removeprefix("book-") if _has_one(app, docname) else BOOK
    return f"{FOLDER}/{name}.png"


def _has_one(app: Sphinx, docname: str) -> bool:
    return room_of(app.env, docname) is not None


def figure_of(printed: Path, drawn: Path) -> Path | None:
    """Return the drawing that a page's card shows: the first that is wide, else the first; None for none.

    Args:
        printed: the page.
        drawn: the folder that has the PNG of each drawing that the page shows as SVG.
    """
    from PIL import Image

    page = printed.read_text("utf-8")
    found = [printed.parent / unquote(unescape(match[1])) for match in _LIGHT.finditer(page)]
    found = [drawn / f"{one.stem}.png" if one.suffix == ".svg" else one for one in found]
    there = [path.resolve() for path in found if path.is_file()]
    for path in there:
        with Image.open(path) as drawing:
            if drawing.width > _WIDE * drawing.height:
                return path
    return next(iter(there), None)


def draw(title: str, book: str, figure: Path | None) -> Image:
    """Return a card: the title, the book's name, and a figure below them where there is one."""
    from PIL import Image, ImageDraw

    card = Image.new("RGB", (WIDTH, HEIGHT), _GROUND)
    pen = ImageDraw.Draw(card)
    pen.rectangle((0, 0, 18, HEIGHT), fill=_ACCENT)
    large = figure is None
    size = 64 if large else 44 if len(title) <= 80 else 36
    lines = textwrap.wrap(title, width=int(1950 / size))[:3]
    top = 180 if large else 36
    for line in lines:
        pen.text((60, top), line, fill=_INK, font=_font("Bold", size))
        top += round(size * 1.25)
    pen.text((60, HEIGHT - 56), book, fill=_FAINT, font=_font("", 28))
    if figure is not None:
        with Image.open(figure) as opened:
            drawing = opened.convert("RGBA")
        room = (WIDTH - 120, HEIGHT - 76 - top - 10)
        scale = min(room[0] / drawing.width, room[1] / drawing.height)
        small = (max(1, round(drawing.width * scale)), max(1, round(drawing.height * scale)))
        drawing = drawing.resize(small, Image.Resampling.LANCZOS)
        card.paste(drawing, (60 + (room[0] - small[0]) // 2, top + 10), drawing)
    return card


def _font(weight: str, size: int) -> Any:
    import matplotlib
    from PIL import ImageFont

    name = f"DejaVuSans{f'-{weight}' if weight else ''}.ttf"
    return ImageFont.truetype(
        str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), size=size
    )


def write(path: Path, title: str, book: str, figure: Path | None) -> bool:
    """Draw a card unless it is there already, of the same title and figure; tells whether it drew."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    told = hashlib.sha256(f"{_MADE_BY}\0{title}\0{book}\0".encode())
    if figure is not None:
        told.update(figure.read_bytes())
    mark = told.hexdigest()
    if path.is_file():
        with Image.open(path) as there:
            if there.info.get(_MARK) == mark:
                return False
    note = PngInfo()
    note.add_text(_MARK, mark)
    path.parent.mkdir(parents=True, exist_ok=True)
    few = draw(title, book, figure).quantize(128)
    few.save(path, pnginfo=note)
    return True


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    out, book = Path(app.outdir), str(app.config.project)
    write(out / FOLDER / f"{BOOK}.png", book, "Every number measured, every claim judged", None)

    def some(docnames: list[str]) -> None:
        for docname in docnames:
            if _has_one(app, docname) and (printed := out / f"{docname}.html").is_file():
                title = app.env.titles[docname].astext()
                write(out / card_of(app, docname), title, book, figure_of(printed, kept(app, "")))

    pages = sorted(app.env.all_docs)
    tasks: ParallelTasks | SerialTasks = ParallelTasks(2) if app.parallel > 1 else SerialTasks()
    for half in (pages[::2], pages[1::2]):
        tasks.add_task(some, half)
    tasks.join()


def setup(app: Sphinx) -> None:
    """Have the cards drawn at the end of a build."""
    app.connect("build-finished", _write)
