"""The book with Sphinx and MyST-NB as they are today, without Jupyter Book, and without the press unless asked.

    sphinx-build -c tools/plain . _build/plain            # what the press fills in is missing
    PRESS=1 sphinx-build -c tools/plain . _build/plain    # with the press's extension

Settings come from `_config.yml`. Cells are not executed unless EXECUTE says how (`force`, `cache`).
"""

import os
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
_settings = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
_sphinx = _settings["sphinx"]["config"]
_press = bool(os.environ.get("PRESS"))
sys.path.insert(0, str(ROOT / "lib"))

globals().update({name: value for name, value in _sphinx.items() if name != "extensions"})
extensions = [
    name
    for name in _sphinx["extensions"]
    if name not in ("jupyter_book", "sphinx_comments") and (_press or name != "bookpress.sphinx")
]
project, author = _settings["title"], _settings["author"]
copyright = f"{_settings['copyright']}, {author}"
exclude_patterns = _settings["exclude_patterns"]
external_toc_path, external_toc_exclude_missing = str(ROOT / "_toc.yml"), True
bibtex_bibfiles = [str(ROOT / "references.bib")]
html_theme = "sphinx_book_theme"
html_static_path = [str(ROOT / path) for path in _sphinx["html_static_path"]]
html_favicon = str(ROOT / _sphinx["html_favicon"])
html_theme_options = {
    **_sphinx["html_theme_options"],
    "repository_url": _settings["repository"]["url"],
    "repository_branch": _settings["repository"]["branch"],
}
myst_enable_extensions = _settings["parse"]["myst_enable_extensions"]
nb_execution_mode = os.environ.get("EXECUTE", "off")
nb_execution_timeout = _settings["execute"]["timeout"]
nb_execution_raise_on_error = _settings["execute"]["raise_on_error"]
numfig = True
use_multitoc_numbering = True

linkcheck_timeout, linkcheck_retries, linkcheck_workers = 20, 2, 8
linkcheck_anchors = False
linkcheck_ignore = [
    # The book's own address: what a page links to there may be about to be pushed.
    f"{_settings['repository']['url']}.*",
    # Publishers that answer no program, though readers get through: a check says nothing of them.
    r"https://(www\.)?(doi\.org|dl\.acm\.org|openreview\.net|www\.jstor\.org)/.*",
]
