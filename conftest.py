"""Settings of every pytest run in this folder."""

pytest_plugins = ["bookpress.collect"]

# Under --doctest-modules pytest would also import each conftest.py as a module of that one name.
collect_ignore_glob = ["*conftest.py"]
