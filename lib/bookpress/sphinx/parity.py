"""The page on parity: every result of a CPU and of a GPU side by side.

The directive ``{parity}`` compares the results that pages show with a second set of the same seeds, which a GPU
measured into the folder that the setting `measured_parity` names. Where that folder holds none, it says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

_SCORECARD = "book/scorecard"
_FILES = "measured_parity_files"


def files(env: BuildEnvironment) -> list[Path]:
    """The results of the second set."""
    return sorted((Path(env.srcdir) / env.config.measured_parity).glob("*/results/*.json"))


class _Parity(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        found = files(self.env)
        self.env.metadata[self.env.docname][_FILES] = _names(found)
        if not found:
            return [_none_yet(self.env.config.measured_parity)]
        for path in found:
            self.env.note_dependency(str(path))
        from measured_book.measuring.changes import changes, kept, results_in

        own = kept()
        for one in (result for room in own.values() for result in room.values()):
            self.env.note_dependency(str(one.path))
        folder = Path(self.env.srcdir) / self.env.config.measured_parity
        told = changes(own, results_in(folder))
        card = self.env.app.builder.get_relative_uri(self.env.docname, _SCORECARD)
        return [*_summary(told), *_claims(told, card), *_measurements(told)]


def _none_yet(folder: str) -> nodes.Node:
    box = nodes.admonition("", nodes.title("", "Not measured yet"), classes=["note"])
    text = "No GPU has measured this book's results so far: the folder "
    after = (
        " holds none. So there is nothing to put side by side, and nothing is said about parity."
    )
    box += nodes.paragraph("", "", nodes.Text(text), nodes.literal("", folder), nodes.Text(after))
    return box


def _summary(told: Any) -> list[nodes.Node]:
    from measured_book.measuring.changes import where_from

    counts = {what: told.count(what) for what in ("equal", "within", "outside")}
    made = len(told.compared) + len(told.only_after)
    have = "has" if made == 1 else "have"
    rest = ""
    if made < told.declared:
        rest = " so far; where a claim needs one of the others, the CPU's stands in"
    first = (
        f"{made} of {told.declared} measurements {have} been made on a GPU{rest}. "
        f"Of {sum(counts.values()):,} values {counts['equal']:,} are equal, {counts['within']:,} lie within "
        f"the spread of the seeds and {counts['outside']:,} outside. Of {told.judged} claims "
        f"{len(told.verdicts)} get another verdict; {len(told.intervals)} intervals moved so far that one "
        "effect lies outside of the other's interval."
    )
    found: list[nodes.Node] = [nodes.paragraph("", first)]
    listed = nodes.bullet_list()
    for device, which in (("CPU", "before"), ("GPU", "after")):
        words = f"{device}: {where_from(getattr(one, which) for one in told.compared)}."
        listed += nodes.list_item("", nodes.paragraph("", words))
    for room, why in told.unjudged.items():
        listed += nodes.list_item("", nodes.paragraph("", f"{room} could not be judged: {why}"))
    return [*found, listed]


def _claims(told: Any, card: str) -> list[nodes.Node]:
    from measured_book.measuring.changes import effect_text, moved

    found: list[nodes.Node] = []
    for room, pairs in groupby(told.pairs, key=lambda pair: pair.room):
        rows = []
        for pair in pairs:
            link: Any = nodes.Text(pair.part)
            if not pair.part:
                link = nodes.reference("", pair.claim, refuri=f"{card}#{pair.claim}", internal=True)
            sides = [
                effect_text(one)
                if pair.part or one.effect is None
                else f"{one.verdict}: {effect_text(one)}"
                for one in (pair.before, pair.after)
            ]
            flipped = not pair.part and pair.before.verdict != pair.after.verdict
            words = ["another verdict"] * flipped
            words += ["moved"] * moved(pair.before, pair.after)
            rows.append([link, *map(nodes.Text, [*sides, ", ".join(words)])])
        found.append(nodes.rubric("", room.replace("_", " ").capitalize()))
        found.append(_table(("Claim or part", "CPU", "GPU", "Differs"), rows, (22, 34, 34, 10)))
    return found


def _measurements(told: Any) -> list[nodes.Node]:
    rows = []
    for one in told.compared:
        times = [
            f"{float(each.provenance.get('seconds', 0)):,.0f} s" for each in (one.before, one.after)
        ]
        counts = [one.why, "", ""]
        if one.comparison is not None:
            counts = [f"{getattr(one.comparison, w):,}" for w in ("equal", "within", "outside")]
        rows.append([nodes.Text(text) for text in (one.measurement.label, *times, *counts)])
    head = ("Measurement", "CPU took", "GPU took", "Equal", "Within the spread", "Outside")
    return [
        nodes.rubric("", "All measurements"),
        _table(head, rows, (40, 12, 12, 12, 12, 12)),
    ]


def _table(
    head: Sequence[str], rows: Sequence[Sequence[nodes.Node]], widths: Sequence[int]
) -> nodes.Node:
    def row(cells: Sequence[nodes.Node]) -> nodes.row:
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells))

    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=width) for width in widths]
    group += nodes.thead("", row([nodes.Text(text) for text in head]))
    group += nodes.tbody("", *map(row, rows))
    return nodes.table("", group, classes=["parity"])


def _names(found: Sequence[Path]) -> list[str]:
    return [str(path) for path in found]


def _read_again(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """Read the page again when results came or went."""
    del app, added, changed, removed
    now = _names(files(env))
    return [page for page in env.all_docs if env.metadata.get(page, {}).get(_FILES, now) != now]


def setup(app: Sphinx) -> None:
    """Register the directive and the setting, and read its page again when results came or went."""
    app.add_config_value("measured_parity", "results-gpu", "env")
    app.add_directive("parity", _Parity)
    app.connect("env-get-outdated", _read_again)
