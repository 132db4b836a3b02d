"""A tiny book with a page in the form of a chapter."""

from __future__ import annotations

import tiny_pages

LOADED = """
```{code-cell} ipython3
:tags: [remove-cell]
from pathlib import Path
from measured_book.evidence import results
results.results_folder = lambda room: Path("rooms") / room / "results"
```

```{code-cell} ipython3
from measured_book.evidence.results import load_result

reversal = load_result("some_room", "reversal")
accuracy = reversal.accuracy.mean("seed")
```
"""
DRAWN = """
```{{code-cell}} ipython3
---
tags: [hide-input]
{data}mystnb:
  figure:
    caption: |
      Accuracy by what is added to the tokens. (a) Nothing. (b) Anything at all: each position gets a vector of
      its own, and that is enough.
    name: {name}
  image:
    alt: A line that rises.
---
from measured_book.figures.plots import subplots
from measured_transformer.viewer.style import themed

@themed
def plot(values):
    figure, axes = subplots(height=2)
    axes.plot(values)
    return figure

plot(accuracy)
```
"""
PAGE = f"""{tiny_pages.ROOM_FRONT}
(good)=
# Positional encoding

*Dog bites man* is not *man bites dog*. To attention, the two are the same three words: without help it
cannot tell which came first. Random vectors reach {{measured}}`reversal.accuracy[arm=random]|mean:.3f`, the
floor is {{measured}}`floor:.2f`, and the effect {{measured}}`DD-7.7.alibi.effect:+.2f`.
{LOADED}
{DRAWN.format(data="", name="fig-one")}
As {{numref}}`fig-one` shows, {{claim}}`only the offset counts <CS-1.3>`, though {{claim}}`DD-7.7` and
{{claim}}`attention came after recurrence <DA-2.1>`.

```{{claim}} CS-1.3
```

Whoever adds a position to a token adds it once, at the bottom, and the layers above carry it on. How far, is
measured in a later chapter.

```{{claim}} DD-7.7
Mind that both are compared with the same base, {{measured}}`reversal.accuracy[arm=none]|mean:.2f`.
```

(smoothly)=
## Does it fall off smoothly?

It does not.

## What the sources say, what was measured

```{{claims-table}}
```
"""
LAB_NOTES = "# Lab notes\n\nHow tests came about.\n\n```{lab-notes}\n```\n"
SCORECARD = "# Scorecard\n\n```{scorecard-counts}\n```\n\n```{scorecard}\n```\n"
WALK = "# Case study\n\n```{source-claims} CS\n:places: section 1\n```\n"


def make(root, page=PAGE, **states):
    """Return a book with the page `good`, a Scorecard, lab notes and a table of what ran."""
    book = tiny_pages.make(root)
    book.settings = {
        "measured_lab_notes": "lab-notes",
        "exclude_patterns": ["_build", "lab-notes"],
    }
    book.states = states
    book.claims("good")
    book.write("good.md", page)
    book.write("scorecard.md", SCORECARD)
    book.write("walk.md", WALK)
    book.write("lab-notes.md", LAB_NOTES)
    book.write(
        "lab-notes/good.md",
        "# Positional encoding\n\nThree seeds first.\n\n## Seeds\n\nThen ten.\n",
    )
    book.write("ran.md", "# What ran\n\n```{runs-table}\n```\n")
    return book
