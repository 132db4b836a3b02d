"""The chapter *How attention learns where to look*: what it claims, measures, draws and asks."""
