"""The chapter *How large should the first weights be?*: what it claims, measures, draws and asks."""
