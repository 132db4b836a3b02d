"""The chapter *The workbench*: what it measures, draws and asks."""
