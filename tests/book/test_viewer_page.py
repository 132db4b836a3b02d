"""The viewer for attention as a figure of a page: numbered, captioned, with its drawings for light and dark."""

from __future__ import annotations

import base64

import nbformat
import pytest
import tiny_pages

VIEWER = """
```{{code-cell}} ipython3
---
mystnb:
{metadata}
---
import numpy as np
from measured_transformer.viewer.attention import attention_viewer

{call}
```
"""
CALL = """\
attention_viewer(np.full((1, 1, 2, 3, 3), 1 / 3), ["a", "<b>", "c"], title="Even heads")"""
METADATA = """\
  figure:
    caption: Two heads; see {ref}`top`.
    name: fig-even
  image:
    alt: Two matrices of one shade."""
PAGE = f"""{tiny_pages.FRONT}
(top)=
# A page with a viewer

See {{numref}}`fig-even`.
{VIEWER.format(metadata=METADATA, call=CALL)}
{VIEWER.format(metadata=METADATA.replace("even", "again"), call=CALL.replace("Even", "More"))}
"""


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    book = tiny_pages.make(tmp_path_factory.mktemp("viewer"))
    book.write("claims/none.toml", "")
    book.write("page.md", PAGE)
    assert book.build() == []
    return book


def test_a_viewer_is_a_numbered_figure_with_a_drawing_for_each_theme(book):
    page = book.page("page").select_one("article")
    figure = page.select_one("figure#fig-even")
    assert figure.select_one("figcaption").get_text().strip().startswith("Fig. 1 Two heads; see")
    assert page.select_one("a[href='#fig-even']").get_text() == "Fig. 1"
    (viewer,) = figure.select(".attention-viewer")
    light, dark = viewer.select(".av-static > .drawings img")
    assert light["alt"] == dark["alt"] == "Two matrices of one shade."
    assert "only-light" in light["class"]
    assert "only-dark" in dark["class"]
    for image in (light, dark):
        assert image["src"].endswith(".png"), "pixels stay pixels"
        assert image["src"].startswith("_images/"), (
            "a file of its own, which is loaded when it is shown"
        )
        assert (book.root / "_build/html" / image["src"]).is_file()
    assert len(viewer.select("script.av-data")) == 1
    assert viewer.select_one("script:not([type])") is not None
    assert viewer.select_one(".av-words li b").get_text() == "Layer 0, head 0."
    assert figure.select(".attention-viewer .caption-text") == [], "the caption stands outside"
    assert len(page.select(".attention-viewer")) == 2
    html = (book.root / "_build/html/page.html").read_text("utf-8")
    assert "data:image/png" not in html
    assert "<!--drawing-->" not in html


def test_the_notebook_of_the_page_has_the_call(book):
    notebook = nbformat.read(book.root / "_build/html/_notebooks/page.ipynb", as_version=4)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert sum(CALL in source for source in code) == 1
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert "**Figure 1:** Two heads; see" in text
    assert "attention-viewer" not in text


def test_other_formats_print_the_drawing(book):
    assert book.build("latex") == []
    (source,) = (book.root / "_build/latex").glob("*.tex")
    text = source.read_text("utf-8")
    assert text.count("\\sphinxincludegraphics[") == 2
    assert "Two heads; see" in text
    assert "attention-viewer" not in text


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_on_the_page(book, browser, theme, scripts):
    context = browser.new_context(color_scheme=theme, java_script_enabled=scripts)
    page = context.new_page()
    complaints = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((book.root / "_build/html/page.html").as_uri())
    figure = page.locator("figure#fig-even")
    shown = [image.get_attribute("class") for image in figure.locator("img:visible").all()]
    if scripts:
        assert shown == []
        assert figure.locator(".av-live").get_attribute("data-theme") == theme
        page.locator("button.theme-switch-button:visible").first.click()
        chosen = page.evaluate("document.documentElement.dataset.theme")
        assert figure.locator(".av-live").get_attribute("data-theme") == chosen
        figure.get_by_role("radio", name="Layer 0, head 1").click()
        assert "0.333" in figure.locator("[role=status]").text_content()
        assert page.locator("#fig-again .av-live").get_attribute("aria-label") == "More heads"
    else:
        assert len(shown) == 1
        assert figure.locator(".av-live").count() == 0
    assert figure.locator("figcaption").is_visible()
    context.close()
    assert complaints == []


WITHOUT_PLACE = f"""\
bundle, more = {CALL}._repr_mimebundle_()
bundle["text/html"] = "x"
get_ipython().display_pub.publish(bundle, more)"""


def test_a_viewer_is_checked_like_every_figure(tmp_path):
    book = tiny_pages.make(tmp_path)
    book.write("claims/none.toml", "")
    cells = [
        VIEWER.format(metadata=METADATA.split("  image")[0], call=CALL),
        VIEWER.format(metadata="  image:\n    alt: Two matrices.", call=CALL),
        VIEWER.format(metadata=METADATA.replace("even", "odd"), call=WITHOUT_PLACE),
    ]
    book.write("page.md", f"{tiny_pages.FRONT}\n# Page\n" + "".join(cells))
    lines = "\n".join(book.build())
    assert "figure without alternative text" in lines
    assert "figure without caption or name" in lines
    assert "viewer without a drawing" in lines
    assert book.failed


def test_what_the_page_prints_is_what_a_notebook_gets():
    from measured_transformer.viewer.attention import attention_viewer

    viewer = attention_viewer([[[[1.0, 0.0], [0.5, 0.5]]]], ["a", "b"])
    drawn = base64.b64encode(viewer.static.light).decode()
    assert viewer.html.split("<!--drawing-->")[1].split("<!--/drawing-->")[0].count(drawn) == 1
