"""The chapter *Induction and learning in context*: what it claims, measures, draws and asks."""
