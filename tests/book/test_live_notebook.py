"""A live model in a notebook: executed, exported to HTML, and in a frame as strict as those of outputs.

Colab shows an output in a frame of another origin; others put it into a sandbox without an origin, where
storage is forbidden and workers may be. Whatever is forbidden, the model answers, and no script fails. Colab
itself has not been asked: what is played here is what is known of its frames.
"""

from __future__ import annotations

import html
import re

import nbformat
import pytest
from measured_transformer.viewer.live import live_choice

CELL = """import torch
from measured_transformer import Config, Decoder
from measured_transformer.viewer.live import live

torch.manual_seed(0)
config = Config(vocab=256, d_model=16, n_layers=2, n_heads=2, positions="rotary")
live(Decoder(config), ["my own text", "another"])"""
FORBIDDEN = re.compile("Content Security Policy|Permissions policy violation|TrustedScriptURL")
"""What a browser writes where it forbids something, whatever a script then makes of it."""
SANDBOX = "allow-scripts"  # neither an origin nor forms, downloads or windows
POLICIES = {
    "nothing more": "",
    "no workers": "worker-src 'none'",
    "no workers, nothing from elsewhere": "default-src 'none'; script-src 'unsafe-inline'; style-src "
    "'unsafe-inline'; img-src data:",
}


@pytest.fixture(scope="module")
def executed():
    """A notebook of one cell, with its output."""
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    notebook.metadata.kernelspec = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return notebook


@pytest.fixture
def page(browser):
    """A page that complains about nothing of its own."""
    page = browser.new_page()
    page.set_default_timeout(20_000)
    complaints = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: (
            complaints.append(message.text)
            if message.type == "error" and not FORBIDDEN.search(message.text)
            else None
        ),
    )
    yield page
    page.close()
    assert complaints == []


def plays(frame):
    """Type, switch a head off, look at each view, ask kept sentences, share and read the Python."""
    frame.locator(".lm-strip button").first.wait_for()
    assert frame.locator(".lm-live").get_attribute("data-theme") in ("light", "dark")
    frame.get_by_label(re.compile("^Text")).fill("my own")
    frame.get_by_text("Position 5").first.wait_for()
    frame.get_by_label("Switch off layer 0, head 1", exact=True).check()
    frame.locator(".lm-readout", has_text="Without head 0.1").wait_for()
    for name in ("Heads", "Lens", "Ledger", "Write on"):
        frame.get_by_role("tab", name=name, exact=True).click()
    frame.get_by_role("button", name="Write on").click()
    frame.locator(".lm-written").first.wait_for()
    frame.get_by_role("tab", name="Was that luck?").click()
    frame.get_by_role("button", name="Ask 64 kept sentences").click()
    frame.get_by_text("On 64 kept sentences").wait_for()
    frame.get_by_role("button", name="Share").click()
    assert "#live=" in frame.get_by_label("Address of this state").first.input_value()
    frame.get_by_role("button", name="As Python").click()
    assert "bench.model" in frame.locator(".lm-live pre").inner_text()


def test_the_output_has_html_a_drawing_and_words(executed):
    (output,) = executed.cells[0].outputs
    assert set(output.data) == {"text/html", "image/png", "text/plain"}
    assert output.data["text/plain"].startswith("Live(2 texts")
    assert len(output.data["text/html"]) < 1_000_000


@pytest.mark.parametrize("policy", POLICIES)
def test_it_runs_in_a_sandbox_without_storage_and_perhaps_without_workers(executed, page, policy):
    (output,) = executed.cells[0].outputs
    said = POLICIES[policy]
    meta = f'<meta http-equiv="Content-Security-Policy" content="{said}">' if said else ""
    inner = (
        f"<!doctype html><html><head>{meta}</head><body>{output.data['text/html']}</body></html>"
    )
    page.set_content(
        f'<iframe sandbox="{SANDBOX}" width="900" height="900" srcdoc="{html.escape(inner)}"></iframe>'
    )
    frame = page.frames[1]
    frame.wait_for_load_state()
    forbidden = frame.evaluate(
        "() => { try { return String(localStorage); } catch { return true; } }"
    )
    assert forbidden is True, "the frame has no storage, as it is meant to"
    plays(frame)


STRICT = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "require-trusted-types-for 'script'"
)
"""No origin to fetch from, no workers, no WebAssembly, and no text becomes a script unless a policy says so."""
FRAMES = {
    "another origin": ("allow-scripts allow-same-origin", ""),
    "no origin": ("allow-scripts", ""),
    "no origin, and nothing but what is inline": ("allow-scripts", STRICT),
}
"""What a notebook may say of the frame of its outputs: its sandbox, and its policy."""
INSERT = """([text, where]) => {
  // As the front end of a notebook does it: HTML that is set runs no script, so each is made anew.
  const policy = trustedTypes.createPolicy("output", { createHTML: (it) => it, createScript: (it) => it });
  const output = document.body.appendChild(document.createElement("div"));
  const holder = where === "before the rest" ? document.createElement("div") : output;
  holder.innerHTML = policy.createHTML(text);
  for (const old of holder.querySelectorAll("script")) {
    const script = document.createElement("script");
    for (const { name, value } of old.attributes) script.setAttribute(name, value);
    script.textContent = policy.createScript(old.textContent);
    if (where === "in place") old.replaceWith(script);
    else { old.remove(); document.head.append(script); }
  }
  if (holder !== output) output.append(...holder.childNodes);
}"""


@pytest.mark.parametrize("where", ["in place", "in the head", "before the rest"])
@pytest.mark.parametrize("kind", FRAMES)
def test_it_runs_in_a_frame_of_another_origin_wherever_scripts_are_put(executed, page, kind, where):
    """Colab has outputs in a frame of another origin; others take the origin, or scripts from their places."""
    (output,) = executed.cells[0].outputs
    sandbox, policy = FRAMES[kind]
    headers = {"Content-Security-Policy": policy} if policy else {}

    def answer(route):
        if "outputframe" in route.request.url:
            body = "<!doctype html><meta charset='utf-8'><body></body>"
            route.fulfill(body=body, content_type="text/html", headers=headers)
        elif route.request.url == "https://notebook.example/":
            frame = f'<iframe sandbox="{sandbox}" width="900" height="900" src="https://x-0-output.example/outputframe.html"></iframe>'
            route.fulfill(body=f"<!doctype html>{frame}", content_type="text/html")
        else:
            route.fulfill(status=404)

    page.route("**/*", answer)
    page.goto("https://notebook.example/")
    frame = page.frames[1]
    frame.wait_for_load_state()
    assert frame.evaluate("origin") == (
        "https://x-0-output.example" if "same-origin" in sandbox else "null"
    )
    frame.evaluate(INSERT, [output.data["text/html"], where])
    plays(frame)
    assert frame.locator(".lm-live").count() == 1, "it has begun once"


def test_a_choice_and_a_small_cell_run_where_scripts_lose_their_places(page):
    from measured_transformer.viewer.live_lever import live_lever

    names = {}
    exec(CELL.replace("live(Decoder", "one = live(Decoder"), names)
    choice = live_choice({"One": names["one"], "The same": names["one"]})
    page.set_content("<!doctype html><body></body>")
    for html_of in (choice.html, live_lever("mask").html):
        page.evaluate(
            INSERT.replace('"output"', f'"output{len(html_of)}"'), [html_of, "in the head"]
        )
    page.locator(".lm-choose").wait_for()
    page.locator(".live-model:not([hidden]) .lm-strip button").first.wait_for()
    page.locator(".lm-chart rect").first.wait_for()
    page.get_by_role("radio", name="The same").click()
    page.locator(".live-model:not([hidden]) .lm-strip button").first.wait_for()


def test_it_runs_in_an_export_to_html(executed, browser, tmp_path):
    exporter = pytest.importorskip("nbconvert").HTMLExporter()
    body, _ = exporter.from_notebook_node(executed)
    path = tmp_path / "export.html"
    path.write_text(body, "utf-8")
    page = browser.new_page()
    page.set_default_timeout(20_000)
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.route(re.compile("^https?:"), lambda route: route.abort())  # the export's own scripts
    page.goto(path.as_uri())
    plays(page)
    page.close()
    assert [error for error in errors if "MathJax" not in error and "require" not in error] == []
