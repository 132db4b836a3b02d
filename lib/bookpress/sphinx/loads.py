"""Tables of the page *What loads*, made of what the library's families, GGUF files and packages answer.

{what-loads} families     model types, classes, what they become, kinds of rotary scaling, GGUF
{what-loads} settings     the settings of each model type that are computed as a checkpoint says
{what-loads} refused      what is not computed, the sentence that says so, and the model types that say it
{what-loads} gguf         architectures of GGUF files, and the keys that are read
{what-loads} pretrained   models by name, the packages that hold them, and what each becomes
{what-loads} live         an example that works for every other model, from the module's docstring
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from inspect import getdoc, getfile
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

Cell = list[nodes.Node]
Rows = list[list[Cell]]
Table = tuple[Sequence[str], Sequence[int], Rows]


def families() -> Table:
    """A row for each model type."""
    from measured_transformer.interop.loads import what_loads

    rows: Rows = [
        [
            _code([one.name]),
            _code(one.classes),
            _code([one.kind]),
            _code(one.rope_types),
            _code(one.gguf),
        ]
        for one in what_loads()
    ]
    head = ("Model type", "Classes", "Becomes", "Rotary scaling", "GGUF")
    return head, (15, 38, 18, 17, 12), rows


def settings() -> Table:
    """The computed settings of each model type; those of several alike stand once."""
    from measured_transformer.interop.loads import what_loads

    alike: dict[tuple[str, ...], list[str]] = {}
    for one in what_loads():
        alike.setdefault(one.settings, []).append(one.name)
    rows = [[_code(names), _code(read)] for read, names in alike.items()]
    return ("Model type", "Settings"), (20, 80), rows


def refused() -> Table:
    """Every refusal with its sentence, and who refuses so."""
    from measured_transformer.interop.loads import what_loads

    loads = what_loads()
    found: dict[tuple[str, str], list[str]] = {}
    for one in loads:
        for asked, sentence in one.refused.items():
            found.setdefault((asked, sentence), []).append(one.name)
    rows = []
    for (asked, sentence), names in found.items():
        others = [one.name for one in loads if one.name not in names]
        who = _code(names)
        if len(others) < len(names):
            who = [nodes.Text("all but "), *_code(others)] if others else [nodes.Text("all")]
        rows.append([_code([asked]), _code([sentence]), who])
    return ("Setting", "The sentence", "Model types"), (30, 45, 25), rows


def gguf() -> Table:
    """The architectures of GGUF files."""
    from measured_transformer.interop.gguf_architectures import ARCHITECTURES

    rows: Rows = [
        [_code([name]), _code([how.family]), _code(sorted({*how.settings, *how.derived}))]
        for name, how in ARCHITECTURES.items()
    ]
    return ("Architecture", "Model type", "Keys"), (20, 20, 60), rows


def pretrained() -> Table:
    """The models that have a name."""
    from measured_transformer.language.published import PUBLISHED

    rows: Rows = [
        [
            _code([name]),
            [nodes.Text(one.about)],
            _code(["LanguageModel" if one.file.endswith(".gguf") else "TextEncoder"]),
            _code([one.install]),
        ]
        for name, one in PUBLISHED.items()
    ]
    return ("Name", "Weights", "Gives", "Installed by"), (30, 22, 20, 28), rows


def live_example() -> str:
    """The example of the library's module, as it stands there."""
    from measured_transformer.interop import loads

    block = re.search(r"::\n\n((?: {4}.*\n|\n)+)", f"{getdoc(loads)}\n")
    if block is None:
        raise ValueError("the docstring of measured_transformer.interop.loads has no example")
    lines = block[1].rstrip().splitlines()
    return "\n".join(line.removeprefix("    ") for line in lines)


class _WhatLoads(SphinxDirective):
    required_arguments = 1
    tables: ClassVar[dict[str, Any]] = {
        "families": families,
        "settings": settings,
        "refused": refused,
        "gguf": gguf,
        "pretrained": pretrained,
    }

    def run(self) -> list[nodes.Node]:
        import measured_transformer
        from measured_transformer.language.published import pretrained as by_name

        home = Path(measured_transformer.__file__).parent
        read = [*(home / "interop").glob("*.py"), Path(getfile(by_name))]
        for path in sorted(read):
            self.env.note_dependency(str(path))
        asked = self.arguments[0]
        if asked == "live":
            text = live_example()
            return [nodes.literal_block(text, text, language="python")]
        if asked not in self.tables:
            known = ", ".join((*self.tables, "live"))
            raise self.error(f"what-loads takes one of {known}; got {asked!r}")
        return [_table(*self.tables[asked]())]


def _code(words: Iterable[str]) -> Cell:
    """Words as code, with commas between them."""
    cell: Cell = []
    for word in words:
        cell += [nodes.Text(", ")] if cell else []
        cell.append(nodes.literal("", word))
    return cell


def _table(head: Sequence[str], widths: Sequence[int], rows: Rows) -> nodes.table:
    def row(cells: Iterable[Cell]) -> nodes.row:
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", *cell)) for cell in cells))

    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=width) for width in widths]
    group += nodes.thead("", row([nodes.Text(title)] for title in head))
    group += nodes.tbody("", *map(row, rows))
    return nodes.table("", group, classes=["what-loads", "colwidths-given"])


def setup(app: Sphinx) -> None:
    """Register the directive."""
    app.add_directive("what-loads", _WhatLoads)
