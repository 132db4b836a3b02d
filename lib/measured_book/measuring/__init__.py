"""Measuring: functions of one seed are run for all seeds; results are kept, repeated, and judged at print.

A chapter's room declares what it measures in `measure.py`, and how that is read in `reading.py` (a small
room has both in `measure.py`):

- a `measurement` is a function of one seed that gives named arrays; what it trains, it declares, so that a
  scheduler trains for all seeds and all measurements together, and nothing twice;
- a `grid` is a measurement of many arms: one training for each cell, the same readings of each;
- what a claim is judged by stands beside its rule in `claims.toml`, and what the prose names in the prose, as
  expressions (`evidence.expressions`); `evidence` and `number` declare functions for what no expression says.

`make measure` runs what is missing and writes one file a measurement, `make attest` shows that changed code
gives the same values, and `make test` repeats the first seeds of everything. Printing trains nothing.

In a notebook, on the reader's own machine:

>>> from measured_book.measuring import measure
>>> from measured_book.rooms.norm_placement.measure import untrained  # doctest: +SKIP
>>> measure(untrained, seeds=2)  # doctest: +SKIP
"""

from measured_book.evidence.seeds import seeds_of
from measured_book.measuring.grids import Trained, grid, only
from measured_book.measuring.jobs import Search, job, tuned, tuning_seeds
from measured_book.measuring.measurement import (
    Measurement,
    evidence,
    measurement,
    number,
)
from measured_book.measuring.scheduler import measure

__all__ = [
    "Measurement",
    "Search",
    "Trained",
    "evidence",
    "grid",
    "job",
    "measure",
    "measurement",
    "number",
    "only",
    "seeds_of",
    "tuned",
    "tuning_seeds",
]
