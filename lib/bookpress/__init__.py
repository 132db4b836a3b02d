"""What prints the book: execution, staleness, and the Sphinx extension.

From a chapter to its page: `chapters` reads the cells, `fingerprint` tells what else they depend
on, `cache` holds the notebooks that were executed, `execute` runs what is missing there (`jobs`, each
in a `kernel`, which `kernel_server` may fork) and shows `progress`, `staleness` lets Sphinx print from the
cache, and `cli` is the command line. `collect` and `items` let
`pytest --nbmake` run chapters as well.
"""

import sys

# nbformat imports jsonschema, which compiles a grammar of internationalised addresses where the
# package for it is installed (JupyterLab brings it): a second in every process that touches a
# notebook.  Notebooks hold no such addresses to check, and jsonschema does without.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
