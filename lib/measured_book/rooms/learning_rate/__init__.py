"""The chapter *Which hyper-parameter first?*: what it claims, measures, draws and asks."""
