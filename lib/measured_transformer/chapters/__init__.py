"""One room a chapter, with the same names in each: what it claims, what it measures, draws and asks.

- `claims.toml`: what the sources say, and the rule that each claim is judged by.
- `measure.py`: what the chapter measures.
- `figures.py`: what it draws.
- `exercises.py`: the checkers of its exercises.
- `results/`: what was measured.

A room is named like its chapter's file, with `_` for `-`. No room imports another: what two chapters use is an
instrument, and stands in `analysis`, `variants` or `figures`.

>>> from measured_transformer.chapters.initialisation.measure import gains
>>> gains(4, 4, 0.25)
Gains(forward=1.0, backward=1.0)
"""
