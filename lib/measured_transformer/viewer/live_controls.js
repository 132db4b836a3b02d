// Controls that a live page is made of. Tokens and texts reach the page as text only, never as markup.
function liveControls() {
  const make = (name, attributes, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === true) element.setAttribute(key, "");
      else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
    }
    element.append(...children);
    return element;
  };
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
  const signed = (value, digits = 3) => {
    const size = Math.abs(value).toFixed(digits);
    return (value < 0 && +size ? "\u2212" : "+") + size; // no minus before nothing
  };
  const plain = (value, digits = 2) => value.toFixed(digits).replace("-", "\u2212");

  // Light or dark: as the page says (this book, JupyterLab, Colab, VS Code), else as the reader prefers.
  // Paper is light.
  const preference = matchMedia("(prefers-color-scheme: dark)");
  const paper = matchMedia("print");
  let printing = false;
  const isDark = () => {
    if (printing || paper.matches) return false;
    const [page, body] = [document.documentElement, document.body];
    const said = page.dataset.theme || page.getAttribute("theme") || body.className;
    const jupyter = body.dataset.jpThemeLight;
    if (jupyter) return jupyter === "false";
    if (/\bdark\b|vscode-(dark|high-contrast)(?!-light)/.test(said)) return true;
    return /\blight\b|vscode-/.test(said) ? false : preference.matches;
  };
  // Calls back at once, and whenever the theme changes.
  const followTheme = (box, drawn = () => {}) => {
    const follow = () => {
      const theme = isDark() ? "dark" : "light";
      if (box.dataset.theme === theme) return;
      box.dataset.theme = theme;
      drawn();
    };
    for (const each of [preference, paper]) each.addEventListener("change", follow);
    for (const [kind, is] of [["beforeprint", true], ["afterprint", false]]) { // at once, before the page is laid out
      addEventListener(kind, () => { printing = is; follow(); });
    }
    const watch = new MutationObserver(follow);
    for (const each of [document.documentElement, document.body]) watch.observe(each, { attributes: true });
    follow();
  };
  const colour = (box, name) => getComputedStyle(box).getPropertyValue(name).trim();

  // Shades of shares between nought and one, as [red, green, blue]: from `none` by a quarter to `half`, then to `full`.
  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const ramp = (...colours) => {
    const [none, half, full] = colours.map(rgb);
    const shades = Array.from({ length: 256 }, (_, i) => {
      const [from, to, part] = i < 64 ? [none, half, i / 64] : [half, full, (i - 64) / 191];
      return from.map((one, c) => Math.round(one + (to[c] - one) * part));
    });
    return (share) => shades[Math.round(255 * clamp(share, 0, 1))];
  };

  const labelled = (text, control, more = {}) => {
    control.setAttribute("aria-label", text);
    return make("label", more, make("span", {}, text), control);
  };
  const select = (text, options, value) => {
    const box = make("select", {}, ...options.map(([key, name]) => make("option", { value: key, selected: `${key}` === `${value}` }, name)));
    return [labelled(text, box), box];
  };
  const input = (text, attributes) => {
    const box = make("input", attributes);
    return [labelled(text, box), box];
  };
  // A slider that says its value beside its name; `words` makes the value's words.
  const slider = (text, { min, max, step, value }, words) => {
    const said = make("b", { "aria-hidden": "true" });
    const box = make("input", { type: "range", min, max, step, value, "aria-label": text });
    const tell = () => {
      said.textContent = words(Number(box.value));
      box.setAttribute("aria-valuetext", said.textContent);
    };
    box.addEventListener("input", tell);
    tell();
    return [make("label", { class: "lm-slide" }, make("span", {}, text, " ", said), box), box, tell];
  };
  const check = (text, value, checked = false) => {
    const box = make("input", { type: "checkbox", value });
    box.checked = checked;
    return [make("label", { class: "lm-check" }, box, make("span", {}, text)), box];
  };
  const button = (text, pressed, more = {}) => {
    const box = make("button", { type: "button", ...more }, text);
    box.addEventListener("click", pressed);
    return box;
  };
  const fold = (text, open, ...children) => make("details", { open }, make("summary", {}, text), ...children);

  // A group of buttons of which one is chosen, by click or arrow keys.
  const group = (box, count, columns, choose) => {
    const buttons = () => Array.from(box.querySelectorAll("button"));
    box.addEventListener("click", (event) => {
      const at = buttons().indexOf(event.target.closest("button"));
      if (at >= 0) choose(at);
    });
    box.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const all = buttons();
      const from = all.indexOf(document.activeElement);
      const to = {
        ArrowLeft: from - 1, ArrowRight: from + 1, ArrowUp: from - columns(), ArrowDown: from + columns(), Home: 0, End: all.length - 1,
      }[event.key];
      if (to === undefined || from < 0) return;
      event.preventDefault();
      if (!all[to]) return;
      choose(to);
      buttons()[to].focus();
    });
  };
  const mark = (box, chosen, state) => Array.from(box.querySelectorAll("button")).forEach((each, at) => {
    each.setAttribute(state, at === chosen);
    each.tabIndex = at === chosen ? 0 : -1;
  });

  // Tabs: names on buttons, one panel.
  const tabs = (id, label, names, chosen) => {
    const list = make("div", { class: "lm-tabs", role: "tablist", "aria-label": label },
      ...names.map(([key, name]) => make("button", { type: "button", role: "tab", id: `${id}-${key}`, "aria-controls": `${id}-panel` }, name)));
    const panel = make("div", { class: "lm-panel", role: "tabpanel", id: `${id}-panel`, tabindex: 0 });
    const show = (at) => {
      mark(list, at, "aria-selected");
      panel.setAttribute("aria-labelledby", `${id}-${names[at][0]}`);
      chosen(names[at][0]);
    };
    group(list, names.length, () => 1, show);
    mark(list, 0, "aria-selected");
    panel.setAttribute("aria-labelledby", `${id}-${names[0][0]}`);
    return { list, panel, show: (key) => show(names.findIndex(([each]) => each === key)) };
  };

  // A table: its heading cells, then rows of which the first cell is a heading.
  const table = (caption, heads, rows, more = {}) => make("table", more, make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)))),
    make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell, at) => {
      const node = cell instanceof Node ? cell : make("span", {}, cell);
      return at ? make("td", {}, node) : make("th", { scope: "row" }, node);
    })))));
  const bar = (share, text, second = false) => {
    const line = make("i", { class: second ? "lm-bar lm-second" : "lm-bar", "aria-hidden": "true" });
    line.style.setProperty("--lm-share", clamp(share, 0, 1));
    return make("span", { class: "lm-barred" }, line, make("span", {}, text));
  };
  // What a box is told, in a script inside of it. Some notebooks take scripts out of their places: then the one of
  // its key, or the first that has lost its box.
  const toldTo = (root, name) => root.querySelector(`script.${name}`)
    || Array.from(document.querySelectorAll(`script.${name}`)).find((each) => (root.dataset.key ? each.dataset.key === root.dataset.key : !each.closest(".live-model, .live-choice")));
  // Calls back now and soon again: some notebooks run scripts before the rest of an output is in the page.
  const nowAndSoon = (begin) => [0, 50, 1000].forEach((wait) => (wait ? setTimeout(begin, wait) : begin()));
  const note = (...children) => make("p", { class: "lm-note" }, ...children);
  const scroll = (label, ...children) => make("div", { class: "lm-scroll", tabindex: 0, role: "group", "aria-label": label }, ...children);

  // Says a sentence to those who hear the page, once nothing new has come for a moment.
  const speaker = () => {
    const box = make("p", { class: "lm-status", role: "status", "aria-live": "polite" });
    let waiting;
    const say = (text) => {
      clearTimeout(waiting);
      waiting = setTimeout(() => { box.textContent = text; }, 400);
    };
    return [box, say];
  };

  return { make, clamp, signed, plain, followTheme, colour, rgb, ramp, labelled, select, input, slider, check, button, fold, group, mark, tabs, table, bar, toldTo, nowAndSoon, note, scroll, speaker };
}
