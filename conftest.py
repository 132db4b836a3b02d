"""Settings of every pytest run in this folder."""

pytest_plugins = ["bookpress.collect"]
