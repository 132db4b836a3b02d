"""The data of a room's page: links under its figures, and the files that they lead to.

Beside the pages, `_data/<room>/` holds each result that a page shows, as the file that is kept in the
repository and as a long table in CSV: a line for each value, with its variable, seed and other axes. A table
too long to be read in a spreadsheet is compressed, which makes it thirty times smaller; what computes with
tables (pandas, R, DuckDB) opens it as it is. So is a kept file that is not small. Of very many values, such as
the weights of a model, there is the kept file alone: a table would say nothing.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from docutils import nodes
from measured_book.evidence.results import Result, read_result, to_csv
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from bookpress.sphinx import rooms
from bookpress.sphinx.nodes import data_link, figure_data
from bookpress.sphinx.page import page_of, warn
from bookpress.sphinx.rooms import room_of
from bookpress.sphinx.shown_data import Source, read_spec, shown

FOLDER = "_data"
"""Folder of the data, beside the pages."""
LONG = 1000
"""Values from which a table is compressed."""
LONGEST = 30_000
"""Values up to which there is a table."""
LARGE = 5_000
"""Bytes from which a kept file is compressed."""
_OFFERED = "measured_data"
"""Page metadata: room, measurement, variable and file of all data that the page links to."""
_AFTER_FIGURES_ARE_PLACED = 110


def links(env: BuildEnvironment, source: Source) -> list[nodes.Node]:
    """Return the links to a result as CSV and as the file itself, and have both written with the page.

    Returns nothing where there is no such file.
    """
    result = rooms.judged(env, source.room).results.get(source.measurement)
    if result is None or result.result is None:
        return []
    offered = env.metadata[env.docname].setdefault(_OFFERED, [])
    entry = (source.room, source.measurement, source.variable, str(result.path))
    if entry not in offered:
        offered.append(entry)
    kept = f"{FOLDER}/{source.room}/{_kept_name(source.measurement, result.path)}"
    whole = "compressed result file" if kept.endswith(".gz") else "result file"
    label = f"{whole} of {source.measurement}"
    found: list[nodes.Node] = [data_link("", whole, docname=env.docname, file=kept, label=label)]
    if values_in(result.result, source.variable) > LONGEST:
        return found
    table = f"{FOLDER}/{source.room}/{table_name(result.result, source.variable)}"
    kind = "compressed CSV" if table.endswith(".gz") else "CSV"
    label = f"{kind} of {_name(source)}"
    found[:0] = [
        data_link("", kind, docname=env.docname, file=table, label=label),
        nodes.Text(", "),
    ]
    return found


def values_in(result: Result, variable: str | None) -> int:
    """Return how many values a result has, or one of its variables."""
    names = [variable] if variable else list(result.variables)
    return sum(int(result.variables[name][1].size) for name in names)


def table_name(result: Result, variable: str | None) -> str:
    """Return the name of the file that has a result, or one of its variables, as a table."""
    stem = f"{result.name}.{variable}" if variable else result.name
    return f"{stem}.csv.gz" if values_in(result, variable) > LONG else f"{stem}.csv"


def _kept_name(measurement: str, path: Path) -> str:
    return f"{measurement}.json.gz" if path.stat().st_size > LARGE else f"{measurement}.json"


def _name(source: Source) -> str:
    return f"{source.measurement}.{source.variable}" if source.variable else source.measurement


# Under figures ------------------------------------------------------------------------------------


def _link_figures(app: Sphinx, doctree: nodes.document) -> None:
    """Put links to its data under each figure that shows results."""
    env = app.env
    room = room_of(env) if doctree.settings is not None else None
    notebook = page_of(env, doctree).notebook if room else None
    if room is None or notebook is None:
        return
    read = shown(cell.source if cell.cell_type == "code" else "" for cell in notebook.cells)
    for container in doctree.findall(nodes.container):
        index = container.get("cell_index")
        figures = list(container.findall(nodes.figure)) if index is not None else []
        if not figures:
            continue
        declared = (notebook.cells[index].metadata.get("measured") or {}).get("data")
        if declared is None:
            sources = list(_followed(env, read[index]))
        else:
            sources = list(_declared(env, declared, room, figures[0]))
        for figure in figures:
            if under := _under(env, sources):
                figure += figure_data("", nodes.paragraph("", "", *under, classes=["data-links"]))


def _followed(env: BuildEnvironment, sources: Iterable[Source]) -> Iterator[Source]:
    """Yield the results that code reads: whole ones once, variables only of those not read as a whole."""
    kept: dict[Source, None] = {}
    for source in sorted(sources, key=lambda s: (s.room, s.measurement, s.variable or "")):
        shown = rooms.judged(env, source.room).results.get(source.measurement)
        result = None if shown is None else shown.result
        if result is None:
            continue
        if source.variable in result.variables:
            kept[source] = None
        elif source.variable not in result.coords:
            kept[source._replace(variable=None)] = None
    yield from (s for s in kept if s.variable is None or s._replace(variable=None) not in kept)


def _declared(
    env: BuildEnvironment, specs: Any, room: str, figure: nodes.Element
) -> Iterator[Source]:
    """Yield what a cell declares; complain of what there is not."""
    for spec in [specs] if isinstance(specs, str) else specs:
        try:
            source = read_spec(str(spec), room)
        except ValueError as error:
            warn(str(error), "figure", figure)
            continue
        results = rooms.judged(env, source.room).results
        if source.measurement not in results:
            known = ", ".join(results) or "none"
            warn(f"data of a figure: {source.room} has {known}, got {spec!r}", "figure", figure)
            continue
        result = results[source.measurement].result
        if result is not None and source.variable and source.variable not in result.variables:
            known = ", ".join(result.variables)
            warn(f"data of a figure: expected one of {known}, got {spec!r}", "figure", figure)
            continue
        yield source


def _under(env: BuildEnvironment, sources: Sequence[Source]) -> list[nodes.Node]:
    found: list[nodes.Node] = []
    for source in sources:
        ways = links(env, source)
        if not ways:
            continue
        found.append(nodes.Text("Data: " if not found else "; "))
        found += [nodes.inline("", _name(source), classes=["data-name"]), nodes.Text(" as ")]
        found += ways
        if why := rooms.doubt_of(rooms.judged(env, source.room).results[source.measurement]):
            found += [nodes.Text(" "), nodes.inline("", f"({why})", classes=["claim-doubt"])]
    return found


# The files ----------------------------------------------------------------------------------------


def _write(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Write the data of a page when the page is written."""
    del templatename, context
    if doctree is None or app.builder.format != "html":
        return
    for room, measurement, variable, path in app.env.metadata[pagename].get(_OFFERED, ()):
        folder = Path(app.outdir) / FOLDER / room
        folder.mkdir(parents=True, exist_ok=True)
        write_kept(folder, measurement, Path(path))
        result = read_result(Path(path))
        if values_in(result, variable) <= LONGEST:
            write_table(folder, result, variable)


def write_table(folder: Path, result: Result, variable: str | None) -> Path:
    """Write a result, or one of its variables, as a table; returns where it lies."""
    path = folder / table_name(result, variable)
    text = to_csv(result, [variable] if variable else []).encode()
    path.write_bytes(_as_kept(text, path))
    return path


def write_kept(folder: Path, measurement: str, path: Path) -> Path:
    """Write the file that is kept of a measurement, compressed where it is large; returns where it lies."""
    kept = folder / _kept_name(measurement, path)
    kept.write_bytes(_as_kept(path.read_bytes(), kept))
    return kept


def _as_kept(text: bytes, path: Path) -> bytes:
    """Compressed where the name says so; without a time, so that equal data are equal bytes."""
    return gzip.compress(text, mtime=0) if path.suffix == ".gz" else text


def setup(app: Sphinx) -> None:
    """Link the figures of rooms' pages, and write what they link to."""
    app.connect("doctree-read", _link_figures, priority=_AFTER_FIGURES_ARE_PLACED)
    app.connect("html-page-context", _write)
