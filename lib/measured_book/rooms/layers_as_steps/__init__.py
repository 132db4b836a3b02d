"""The chapter *Refine or rewrite?*: what it claims, measures, draws and asks."""
