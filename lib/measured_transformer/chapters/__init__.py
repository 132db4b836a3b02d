"""One room a chapter, with the same names in each.

- `claims.toml`: what the sources say, and the rule that each claim is judged by.
- `measure.py`: what the chapter measures.
- `figures.py`: what it draws.
- `exercises.py`: the checkers of its exercises.
- `results/`: what was measured.

A room is named like its chapter's file, with `_` for `-`. No room imports another: what two chapters use is an
instrument, and stands in `analysis`, `variants` or `figures`.
"""
