"""The chapter *Without skips*: what it claims, measures, draws and asks."""
