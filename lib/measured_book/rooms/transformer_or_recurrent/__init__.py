"""The chapter *Transformer or recurrent*: what it claims, measures, draws and asks."""
