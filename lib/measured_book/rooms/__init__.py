"""One room a chapter, with the same names in each: what it claims, measures, reads off, draws and asks.

- `claims.toml`: what the sources say, and the rule that each claim is judged by.
- `measure.py`: what the chapter measures.
- `reading.py`: how the results are read: what claims are judged by, and the numbers that the prose names.
- `figures.py`: what it draws.
- `exercises.py`: the checkers of its exercises.
- `results/`: what was measured.

A room is named like its chapter's file, with `_` for `-`. No room imports another: what two chapters use is an
instrument, and stands in `analysis`, `variants` or `figures`.

>>> from measured_book.rooms.initialisation.measure import gains
>>> gains(4, 4, 0.25)
Gains(forward=1.0, backward=1.0)
"""
