"""The chapter *Layers in order*: what it claims, measures, draws and asks."""
