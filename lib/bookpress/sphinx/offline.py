"""Pages that load nothing from elsewhere, and no more than they need.

MathJax comes from the package `sphinx-mathjax-offline`; of its 24 MB only what a page can ask for is
copied. Font Awesome's script of 1.5 MB holds thousands of icons; the pages get one with the few
that they show. Maps from style sheets to sources that are not here go, fonts in a second format, and the
theme's words in other languages, which printing has read.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging

logger = logging.getLogger(__name__)

_MATHJAX = ("tex-chtml.js", "output/chtml", "input/tex", "a11y/assistive-mml.js")
_WHOLE = "all-packages.js"
"""What loads all of MathJax's extensions at once; pages ask for each by its name."""
_PREFIXES = {"fas": "fas", "fa-solid": "fas", "fab": "fab", "fa-brands": "fab"} | {
    "far": "far",
    "fa-regular": "far",
}
_ICON = re.compile(r'"?([a-z0-9-]+)"?:\[(\d+),(\d+),\[([^\]]*)\],"[0-9a-f]+","([^"]+)"\]')
_FORMER_NAME = re.compile(r'"([a-z0-9-]+)"')
_UNASKED = re.compile(r",url\([^)]*\.ttf[^)]*\)\s*format\([^)]*\)|/\*# sourceMappingURL=\S+ \*/")
_USED = re.compile(r'class="([^"]*\bfa-[^"]*)"')

_SCRIPT = """/* The icons of this book, from Font Awesome Free (https://fontawesome.com, CC BY 4.0). */
(() => {
  const icons = %s;
  const draw = (element) => {
    for (const name of element.classList) {
      const icon = icons[name.slice(3)];
      if (!name.startsWith("fa-") || !icon) continue;
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      for (const { name, value } of element.attributes) svg.setAttribute(name, value);
      svg.classList.add("svg-inline--fa");
      svg.setAttribute("viewBox", `0 0 ${icon[0]} ${icon[1]}`);
      svg.setAttribute("aria-hidden", "true");
      svg.setAttribute("focusable", "false");
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("fill", "currentColor");
      path.setAttribute("d", icon[2]);
      svg.append(path);
      element.replaceWith(svg);
      return;
    }
  };
  const all = () => document.querySelectorAll("i[class*='fa-'], span[class*='fa-']").forEach(draw);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", all);
  else all();
})();
"""


def _use_own_mathjax(app: Sphinx, config: Config) -> None:
    config.mathjax_path = f"mathjax/{_MATHJAX[0]}"


def _copy_mathjax(app: Sphinx) -> None:
    """Copy it before pages are written: their addresses of it carry its checksum."""
    if app.builder.format != "html":
        return
    found = importlib.util.find_spec("sphinx-mathjax-offline")
    if found is None or found.origin is None:
        raise RuntimeError(
            "expected the package sphinx-mathjax-offline, got none; install requirements.txt"
        )
    source = Path(found.origin).parent / "static" / "mathjax"
    target = Path(app.outdir) / "_static" / "mathjax"
    if target.exists():
        return
    for name in _MATHJAX:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, ignore=shutil.ignore_patterns(_WHOLE))
        else:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, target / name)


def _keep_used_icons(app: Sphinx, error: Exception | None) -> None:
    """Replace Font Awesome's script by one that holds the icons of the written pages."""
    scripts = Path(app.outdir) / "_static" / "scripts"
    script = scripts / "fontawesome.js"
    if error is not None or app.builder.format != "html" or not script.exists():
        return
    known = _icons(script.read_text("utf-8"))
    if not known:
        logger.info("Font Awesome's script has an unknown form and stays whole")
        return
    wanted = {"xmark": "fas"}  # which the theme's own script draws
    for page in Path(app.outdir).rglob("*.html"):
        for classes in set(_USED.findall(page.read_text("utf-8"))):
            wanted.update(_wanted(classes))
    icons = {
        name: known[prefix][name]
        for name, prefix in sorted(wanted.items())
        if name in known.get(prefix, {})
    }
    script.write_text(_SCRIPT % json.dumps(icons, separators=(",", ":")), "utf-8")


def _drop_what_nobody_asks_for(app: Sphinx, error: Exception | None) -> None:
    """Leave out maps to sources, and fonts for browsers that cannot read the smaller format beside them."""
    static = Path(app.outdir) / "_static"
    if error is not None or app.builder.format != "html":
        return
    unasked = [*static.rglob("*.css.map"), *static.rglob("*.js.map")]
    unasked += [font for font in static.rglob("*.ttf") if font.with_suffix(".woff2").is_file()]
    for path in unasked:
        path.unlink()
    shutil.rmtree(static / "locales", ignore_errors=True)
    for sheet in static.glob("styles/*.css"):
        text = sheet.read_text("utf-8")
        if (asked := _UNASKED.sub("", text)) != text:
            sheet.write_text(asked, "utf-8")


def _wanted(classes: str) -> Iterator[tuple[str, str]]:
    names = classes.split()
    prefix = next((_PREFIXES[name] for name in names if name in _PREFIXES), "fas")
    for name in names:
        if name.startswith("fa-") and name not in _PREFIXES:
            yield name.removeprefix("fa-"), prefix


def _icons(script: str) -> dict[str, dict[str, tuple[int, int, str]]]:
    """Return prefix -> name -> (width, height, path) from Font Awesome's script."""
    found: dict[str, dict[str, tuple[int, int, str]]] = {}
    prefixes = iter(("fab", "far", "fas"))
    last = 0
    prefix = ""
    for match in _ICON.finditer(script):
        if match.start() - last > 300 or not prefix:  # code stands between two sets of icons
            prefix = next(prefixes, "")
        last = match.end()
        if prefix:
            name, width, height, former, path = match.groups()
            for known in (name, *_FORMER_NAME.findall(former)):
                found.setdefault(prefix, {})[known] = (int(width), int(height), path)
    return found if len(found) == 3 else {}


def setup(app: Sphinx) -> None:
    """Register them."""
    app.connect("config-inited", _use_own_mathjax)
    app.connect("builder-inited", _copy_mathjax)
    app.connect("build-finished", _keep_used_icons)
    app.connect("build-finished", _drop_what_nobody_asks_for)
