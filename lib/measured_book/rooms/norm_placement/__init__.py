"""The chapter *Before the sublayer or after the addition?*: what it claims, measures, draws and asks."""
