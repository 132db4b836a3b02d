// The workbench. It finds the boxes on the page that have not begun yet, unpacks the data beside it, and builds
// its controls in front of the words that are there already. Tokens reach the page as text only, never as
// markup.
(() => {
  const make = (name, attributes, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const bdi = (text) => make("bdi", {}, text);
  const quoted = (text) => bdi(`\u201c${text}\u201d`);
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
  const share = (value) => value.toFixed(2);
  const signed = (value, digits = 2) => {
    const size = Math.abs(value).toFixed(digits);
    return (value < 0 && +size ? "\u2212" : "+") + size; // no minus before nothing
  };
  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.trim().slice(at, at + 2), 16));
  const mix = (from, to, part) => from.map((value, at) => value + (to[at] - value) * part);
  const highest = (values) => values.reduce((best, value, at) => (value > values[best] ? at : best), 0);

  // Light or dark: as the page says (this book, JupyterLab, Colab, VS Code), else as the reader prefers.
  const preference = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => {
    const [page, body] = [document.documentElement, document.body];
    const said = page.dataset.theme || page.getAttribute("theme") || body.className;
    const jupyter = body.dataset.jpThemeLight;
    if (jupyter) return jupyter === "false";
    if (/\bdark\b|vscode-(dark|high-contrast)(?!-light)/.test(said)) return true;
    return /\blight\b|vscode-/.test(said) ? false : preference.matches;
  };

  async function unpack(text) {
    const packed = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    const buffer = await new Response(stream).arrayBuffer();
    const length = new DataView(buffer).getUint32(0, true);
    const data = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    // Each array becomes a function of its indices; one index fewer gives the last axis as a list.
    const reader = (told) => {
      const size = told.shape.reduce((product, count) => product * count, 1);
      const codes = new (told.bits === 8 ? Uint8Array : Uint16Array)(buffer, 4 + length + told.at, size);
      const last = 2 ** told.bits - 1;
      const value = told.step === undefined
        ? (code) => (code === last ? null : data.names[code])
        : (code) => (code === last ? NaN : told.low + told.step * code);
      return (...place) => {
        let offset = 0;
        told.shape.forEach((count, axis) => { offset = offset * count + (place[axis] || 0); });
        if (place.length === told.shape.length) return value(codes[offset]);
        return Array.from(codes.subarray(offset, offset + told.shape.at(-1)), value);
      };
    };
    const readers = (told) => Object.fromEntries(Object.entries(told).map(([name, one]) =>
      [name, one.shape ? reader(one) : readers(one)]));
    data.sentences = data.sentences.map(readers);
    return data;
  }

  async function start(root) {
    const source = root.querySelector(".wb-data");
    if (!source || root.workbench) return;
    root.workbench = true;
    root.querySelector(".wb-live")?.remove(); // of a page that was saved with it
    let data;
    try {
      data = await unpack(source.textContent);
    } catch (error) {
      delete root.dataset.live; // the drawing stays
      root.prepend(make("p", {}, "This browser cannot unpack the workbench; here is its drawing."));
      return;
    }
    root.dataset.live = "";
    build(root, data);
  }

  function build(root, data) {
    let number = 1; // no other workbench of the page has it
    while (document.getElementById(`wb-${number}-panel`)) number += 1;
    const id = (name) => `wb-${number}-${name}`;
    const { layers, heads } = data;
    const speaks = !!data.sentences[0].lensTokens;
    const pushes = !!data.sentences[0].directTokens;

    // What is chosen.
    let [sentence, layer, head] = data.start;
    let position = 0;
    let instead = data.instead;
    let off = false;
    let shown = "effect"; // the number on each head
    let tab = "looks";
    let tokens = []; // of the sentence
    let answers = [];
    const now = () => data.sentences[sentence];
    const gone = () => now()[instead];
    const headName = (l = layer, h = head) => `Layer ${l}, head ${h}`;
    const answered = (p) => answers[p] !== null;
    const scored = () => answers.some((answer) => answer !== null);
    const allowed = (q, k) => !data.causal || k <= q;

    // Controls ---------------------------------------------------------------------------------

    const select = (label, options) => {
      const box = make("select", { "aria-label": label },
        ...options.map(([value, name]) => make("option", { value }, name)));
      return [make("label", {}, make("span", {}, label), box), box];
    };
    const [sentenceLabel, sentenceBox] = select("Sentence", data.labels.map((label, at) => [at, label]));
    sentenceLabel.className = "wb-wide";
    sentenceLabel.hidden = data.labels.length < 2;

    // A group of buttons of which one is chosen, by click or arrow keys.
    const choice = (box, buttons, columns, chosen, choose) => {
      buttons().forEach((button, at) => button.addEventListener("click", () => choose(at)));
      if (box.listening) return;
      box.listening = true;
      box.addEventListener("keydown", (event) => {
        if (event.altKey || event.ctrlKey || event.metaKey) return;
        const [from, all] = [chosen(), buttons()];
        const to = {
          ArrowLeft: from - 1, ArrowRight: from + 1, ArrowUp: from - columns(), ArrowDown: from + columns(),
          Home: 0, End: all.length - 1,
        }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        if (!all[to]) return;
        choose(to);
        buttons()[to].focus();
      });
    };
    const mark = (buttons, chosen, state) => buttons.forEach((button, at) => {
      button.setAttribute(state, at === chosen);
      button.tabIndex = at === chosen ? 0 : -1;
    });

    const strip = make("div", { class: "wb-strip", role: "radiogroup", "aria-label": "Choose a token" });
    const readout = make("div", { class: "wb-readout", "aria-hidden": "true" });
    const status = make("p", { class: "wb-status", role: "status", "aria-live": "polite" });

    const [shownLabel, shownBox] = select("Number on each head", [
      ["effect", "effect, whole sentence"], ["here", "effect, at the token"],
      ["size", "length written, at the token"],
      ...(pushes ? [["push", "push on the answer"]] : []),
    ]);
    const grid = make("div", { class: "wb-heads", role: "radiogroup", "aria-label": "Choose a head" });
    const thumbs = Array.from({ length: layers }, (_, l) => {
      const buttons = Array.from({ length: heads }, (_, h) => make("button",
        { type: "button", role: "radio", title: headName(l, h) }, make("canvas", { "aria-hidden": "true" }),
        make("span", { class: "wb-number" }), make("i", { class: "wb-bar", "aria-hidden": "true" })));
      grid.append(make("div", { class: "wb-row", role: "presentation" },
        make("span", { class: "wb-row-name", "aria-hidden": "true" }, `Layer ${l}`),
        make("div", { class: "wb-thumbs", role: "presentation" }, ...buttons)));
      return buttons;
    }).flat();
    const off_button = make("button", { type: "button", class: "wb-switch", "aria-pressed": "false" });
    const [insteadLabel, insteadBox] = select("In its place", [["mean", "its mean"], ["zero", "zeros"]]);
    const switches = make("div", { class: "wb-switches" }, off_button, insteadLabel);
    const effects = make("p", { class: "wb-note" });
    const left = make("div", { class: "wb-left" }, switches, shownLabel, grid, effects);

    const TABS = [
      ["looks", "Looks at"], ["writes", "Writes"], ...(speaks ? [["lens", "Lens"]] : []),
      ["without", "Without it"], ["stream", "Stream"],
    ];
    const tabs = TABS.map(([key, name]) => make("button",
      { type: "button", role: "tab", id: id(`tab-${key}`), "aria-controls": id("panel") }, name));
    const tablist = make("div", { class: "wb-tabs", role: "tablist", "aria-label": "What to look at" }, ...tabs);
    const panel = make("div", { class: "wb-panel", role: "tabpanel", id: id("panel") });
    const right = make("div", { class: "wb-right" }, tablist, panel);
    const main = make("div", { class: "wb-main" }, left, right);
    const hint = make("p", { class: "wb-note", id: id("hint") });
    const help = make("p", { class: "wb-note" },
      "By keyboard: Tab goes from group to group; arrow keys, Home and End choose among tokens, heads and tabs.");
    const live = make("div", { class: "wb-live", role: "group", "aria-label": data.title },
      sentenceLabel, hint, strip, readout, main, help, status);
    strip.setAttribute("aria-describedby", hint.id);

    // Drawing ----------------------------------------------------------------------------------

    let ramp;
    const readColours = () => {
      live.dataset.theme = isDark() ? "dark" : "light";
      const style = getComputedStyle(live);
      const [low, middle, high] = ["none", "half", "full"].map((name) => rgb(style.getPropertyValue(`--wb-${name}`)));
      ramp = Array.from({ length: 257 }, (_, at) => {
        const part = Math.sqrt(at / 256);
        return part < 0.5 ? mix(low, middle, 2 * part) : mix(middle, high, 2 * part - 1);
      });
    };
    const paint = (canvas, l, h) => {
      const n = tokens.length;
      [canvas.width, canvas.height] = [n, n];
      const pen = canvas.getContext("2d");
      const image = pen.createImageData(n, n);
      for (let q = 0; q < n; q++) {
        now().pattern(l, h, q).forEach((weight, k) => {
          if (!allowed(q, k)) return;
          image.data.set([...ramp[clamp(Math.round(weight * 256), 0, 256)], 255], 4 * (q * n + k));
        });
      }
      pen.putImageData(image, 0, 0);
    };
    const bar = (part, more = "") => {
      const made = make("i", { class: `wb-bar ${more}`, "aria-hidden": "true" });
      made.style.setProperty("--wb-share", clamp(part || 0, 0, 1));
      return made;
    };

    // What a head's number is, and how it is said.
    const KINDS = {
      effect: { digits: 2, of: (l, h) => gone().effect(l, h), unit: () => (scored() ? "nats a token" : speaks ? "nats (KL)" : "of the state's length") },
      here: {
        digits: 2,
        of: (l, h) => (answered(position) ? gone().loss(l, h, position)
          : speaks ? gone().divergence(l, h, position) : gone().shift(l, h, position)),
        unit: () => (answered(position) ? "nats" : speaks ? "nats (KL)" : "of the state's length"),
      },
      size: { digits: 2, of: (l, h) => now().size(l, h, position), unit: () => "long" },
      push: { digits: 2, of: (l, h) => now().directTarget(l, h, position), unit: () => "logits" },
    };
    const numbered = (l, h) => {
      const value = KINDS[shown].of(l, h);
      if (Number.isNaN(value)) return "\u2013";
      return shown === "size" ? value.toFixed(2) : signed(value);
    };

    const drawHeads = () => {
      const most = Math.max(1e-9, ...thumbs.map((_, at) =>
        Math.abs(KINDS[shown].of(Math.floor(at / heads), at % heads)) || 0));
      thumbs.forEach((button, at) => {
        const [l, h] = [Math.floor(at / heads), at % heads];
        const value = KINDS[shown].of(l, h);
        const [, text, line] = button.children;
        text.textContent = numbered(l, h);
        line.style.setProperty("--wb-share", Math.abs(value) / most || 0);
        line.classList.toggle("wb-less", value < 0);
        button.setAttribute("aria-label", `${headName(l, h)}: ${numbered(l, h)} ${KINDS[shown].unit()}`);
        button.classList.toggle("wb-gone", off && l === layer && h === head);
      });
      mark(thumbs, layer * heads + head, "aria-checked");
      const all = thumbs.map((_, at) => gone().effect(Math.floor(at / heads), at % heads));
      const best = highest(all);
      effects.textContent = `Numbers are ${KINDS[shown].unit()}. Over this sentence, removal matters most for ` +
        `${headName(Math.floor(best / heads), best % heads).toLowerCase()} (${signed(all[best])}).`;
    };
    const drawThumbs = () => {
      const room = (left.clientWidth || 320) - 8;
      const beside = room - 62 >= heads * 46;
      grid.classList.toggle("wb-stacked", !beside);
      const many = beside ? heads : Math.ceil(heads / Math.ceil((heads * 46) / room)); // in a line, lines alike
      live.style.setProperty("--wb-many", many);
      live.style.setProperty("--wb-thumb", `${clamp(Math.floor((room - (beside ? 62 : 0)) / many) - 10, 32, 56)}px`);
      thumbs.forEach((button, at) => paint(button.firstChild, Math.floor(at / heads), at % heads));
      const chosen = thumbs[layer * heads + head]; // many heads are a list that scrolls
      if (chosen.offsetTop + chosen.offsetHeight > grid.scrollTop + grid.clientHeight || chosen.offsetTop < grid.scrollTop) {
        grid.scrollTop = chosen.offsetTop - grid.clientHeight / 2;
      }
    };

    // The sentence: each token with the weight that the chosen head gives it from the chosen token.
    const drawStrip = () => {
      strip.replaceChildren(...tokens.map((token) => make("button", { type: "button", role: "radio" },
        bdi(token), make("span", { class: "wb-number" }), bar(0), make("span", { class: "wb-number wb-change" }))));
      choice(strip, () => [...strip.children], () => 1, () => position, (at) => pick(at));
    };
    const drawWeights = () => {
      const weights = now().pattern(layer, head, position);
      [...strip.children].forEach((button, k) => {
        const [, text, line, change] = button.children;
        const hidden = !allowed(position, k);
        text.textContent = hidden ? "\u2013" : share(weights[k]);
        line.style.setProperty("--wb-share", hidden ? 0 : weights[k]);
        button.classList.toggle("wb-hidden", hidden);
        change.hidden = !off || !answered(k);
        change.textContent = answered(k) ? `${signed(gone().loss(layer, head, k))} nats` : "";
        button.setAttribute("aria-label", `${k}, ${tokens[k]}: ${hidden ? "not seen" : `weight ${share(weights[k])}`}` +
          (change.hidden ? "" : `, ${change.textContent} without the head`));
      });
      mark([...strip.children], position, "aria-checked");
      hint.replaceChildren("Choose a token. Bars and numbers: the weight that ", make("b", {}, headName()),
        " gives each token, seen from the chosen one", off && scored() ? "; below, what its absence costs there." : ".");
    };

    const said = () => { // what the model says at the token, as pieces of text
      const parts = [`Position ${position}, `, quoted(tokens[position])];
      if (!speaks) return parts.concat(". This model names no tokens: it gives a state.");
      const depth = layers;
      parts.push(": most likely ", quoted(now().lensTokens(depth, position)[0]),
        ` (${share(now().lensChances(depth, position)[0])})`);
      if (answered(position)) {
        parts.push("; the answer ", quoted(answers[position]), ` has ${share(now().lensTarget(depth, position))}`);
      }
      return parts.concat(".");
    };
    const lost = () => { // what changes there without the head
      const parts = [`Without ${headName().toLowerCase()}`];
      if (!speaks) return parts.concat(` the state moves by ${(100 * gone().shift(layer, head, position)).toFixed(1)} % of its length.`);
      parts.push(": most likely ", quoted(gone().token(layer, head, position)),
        ` (${share(gone().chance(layer, head, position))})`);
      if (answered(position)) {
        parts.push(`; the answer has ${share(gone().targetChance(layer, head, position))}, ` +
          `${signed(gone().loss(layer, head, position))} nats`);
      }
      return parts.concat(".");
    };
    const text = (parts) => make("span", {}, ...parts).textContent;

    // Panels -----------------------------------------------------------------------------------

    const scroller = (label, ...children) =>
      make("div", { class: "wb-scroll", role: "region", tabindex: 0, "aria-label": label }, ...children);
    const table = (names, rows) => make("table", {},
      make("thead", {}, make("tr", {}, ...names.map((name) => (name ? make("th", { scope: "col" }, name) : make("td"))))),
      make("tbody", {}, ...rows));
    const cell = (...children) => make("td", {}, ...children);
    const rowHead = (...children) => make("th", { scope: "row" }, ...children);
    const line = (...children) => make("p", {}, ...children);
    const here = (p) => (p === position ? { class: "wb-here" } : {});

    const PANELS = {
      looks() {
        const n = tokens.length;
        const size = clamp(Math.floor(((right.clientWidth || 340) - 92) / n), 5, 30);
        const canvas = make("canvas", { role: "img", class: "wb-matrix",
          "aria-label": `Weights of ${headName()}: a row for each token that looks, a column for each token seen` });
        paint(canvas, layer, head);
        [canvas.style.width, canvas.style.height] = [`${n * size}px`, `${n * size}px`];
        canvas.addEventListener("click", (event) => {
          const box = canvas.getBoundingClientRect();
          pick(clamp(Math.floor(((event.clientY - box.top) / box.height) * n), 0, n - 1));
        });
        const name = (token, at) => make("span", at === position ? { class: "wb-here" } : {}, bdi(token));
        const names = make("div", { class: "wb-names", "aria-hidden": "true" }, ...tokens.map(name));
        names.classList.toggle("wb-few", size < 12);
        const field = make("div", { class: "wb-field" }, canvas, make("div", { class: "wb-band", "aria-hidden": "true" }));
        panel.style.setProperty("--wb-cell", `${size}px`);
        panel.style.setProperty("--wb-place", position);
        const weights = now().pattern(layer, head, position);
        const order = weights.map((_, k) => k).filter((k) => allowed(position, k))
          .sort((a, b) => weights[b] - weights[a]).slice(0, 3);
        return [
          line(make("b", {}, headName()), " from ", quoted(tokens[position]), " looks most at ",
            ...order.flatMap((k, at) => [at ? ", " : "", quoted(tokens[k]), ` (${k}): ${share(weights[k])}`]), "."),
          make("div", { class: "wb-pattern" }, names, field),
          make("p", { class: "wb-note" }, "Rows look at columns, both in the order of the sentence; the frame is the chosen token's row. ",
            "Weight 0 ", make("span", { class: "wb-ramp", "aria-hidden": "true" }), " 1",
            data.causal ? "; empty: not seen." : "."),
        ];
      },
      writes() {
        const sizes = tokens.map((_, p) => now().size(layer, head, p));
        const most = Math.max(...sizes, 1e-9);
        const length = now().stream(layer, position);
        const parts = [line(make("b", {}, headName()), " writes at ", quoted(tokens[position]),
          ` a vector of length ${sizes[position].toFixed(2)}, ${(100 * sizes[position] / length).toFixed(0)} % of the stream's length before the layer.`)];
        if (pushes) {
          const [names, values] = [now().directTokens(layer, head, position), now().directLogits(layer, head, position)];
          const half = names.length / 2;
          if (answered(position)) {
            parts.push(line("By itself it moves the answer ", quoted(answers[position]), " by ",
              make("b", {}, `${signed(now().directTarget(layer, head, position))} logits`), " against the mean of all tokens."));
          }
          parts.push(table(["raises", "logits", "lowers", "logits"], Array.from({ length: half }, (_, at) =>
            make("tr", {}, cell(bdi(names[at])), cell(signed(values[at])), cell(bdi(names[half + at])), cell(signed(values[half + at]))))));
        } else {
          parts.push(make("p", { class: "wb-note" }, speaks
            ? "Which tokens it raises cannot be said directly: a norm after every layer, or a layer before the unembedding, stands between."
            : "This model has no unembedding: what a head writes names no tokens."));
        }
        parts.push(scroller("Length of what the head writes at every token", table(["token", "length", ""],
          sizes.map((size, p) => make("tr", here(p), rowHead(bdi(tokens[p])), cell(size.toFixed(2)), cell(bar(size / most)))))));
        return parts;
      },
      lens() {
        const depths = Array.from({ length: layers + 1 }, (_, at) => layers - at);
        const name = (depth) => (depth ? `after ${depth} layer${depth > 1 ? "s" : ""}` : "embedding");
        const rows = depths.map((depth) => make("tr", {}, rowHead(name(depth)),
          ...now().lensTokens(depth, position).map((token, at) => cell(bdi(token),
            token === answers[position] ? " \u2713" : "", make("br"), share(now().lensChances(depth, position)[at])))));
        const ranks = now().lensTokens(layers, position).map((_, at) => (at ? `${at + 1}` : "likeliest"));
        const grid = depths.map((depth) => make("tr", {}, rowHead(name(depth)), ...tokens.map((_, p) => {
          const best = now().lensTokens(depth, p)[0];
          const made = cell(bdi(best), best === answers[p] ? " \u2713" : "", make("br"), share(now().lensChances(depth, p)[0]));
          if (p === position) made.className = "wb-here";
          made.style.setProperty("--wb-share", now().lensChances(depth, p)[0]);
          made.addEventListener("click", () => pick(p));
          return made;
        })));
        const changes = depths.slice(1).filter((depth) =>
          now().lensTokens(depth, position)[0] !== now().lensTokens(depth + 1, position)[0]);
        const from = changes.length ? Math.max(...changes) + 1 : 0;
        return [
          line("What the stream at ", quoted(tokens[position]), " would say if the remaining layers were left out. ",
            make("b", {}, from ? `It settles on its likeliest token ${name(from)}.` : "It never changes its mind."),
            answered(position) ? " \u2713 marks the answer." : ""),
          scroller("What each depth would say at the chosen token", table(["", ...ranks], rows)),
          line("The likeliest at every token:"),
          scroller("The likeliest token at every depth, for all tokens",
            make("div", { class: "wb-lens" }, table(["", ...tokens.map((token) => bdi(token))], grid))),
        ];
      },
      without() {
        const total = gone().effect(layer, head);
        const changed = speaks ? tokens.filter((_, p) => gone().token(layer, head, p) !== now().lensTokens(layers, p)[0]).length : 0;
        const place = instead === "mean" ? "its mean" : "zeros";
        const parts = [line(make("b", {}, headName()), ` replaced by ${place}: `, scored()
          ? `a token costs ${signed(total, 3)} nats on average over this sentence`
          : speaks ? `predictions move by ${total.toFixed(3)} nats (KL) on average` : `states move by ${(100 * total).toFixed(1)} % of their length on average`,
          speaks ? `, and the likeliest token is another one at ${changed} of ${tokens.length} positions.` : ".")];
        const names = speaks ? ["token", scored() ? "nats" : "KL", "likeliest", "without it", ...(scored() ? ["answer"] : [])] : ["token", "moves by", ""];
        const rows = tokens.map((token, p) => {
          if (!speaks) {
            const moved = gone().shift(layer, head, p);
            return make("tr", here(p), rowHead(bdi(token)), cell(`${(100 * moved).toFixed(1)} %`), cell(bar(moved)));
          }
          const [before, after] = [now().lensTokens(layers, p)[0], gone().token(layer, head, p)];
          const other = before !== after;
          return make("tr", here(p), rowHead(bdi(token)),
            cell(!scored() ? gone().divergence(layer, head, p).toFixed(3) : answered(p) ? signed(gone().loss(layer, head, p)) : "\u2013"),
            cell(bdi(before), ` ${share(now().lensChances(layers, p)[0])}`),
            cell(other ? make("b", {}, "\u2192 ", bdi(after)) : "the same", ` ${share(gone().chance(layer, head, p))}`),
            ...(scored() ? [cell(answered(p) ? bdi(answers[p]) : "\u2013")] : []));
        });
        return [...parts, scroller("What changes at every token without the head", table(names, rows))];
      },
      stream() {
        const most = Math.max(...Array.from({ length: layers + 1 }, (_, depth) => now().stream(depth, position)), 1e-9);
        const rows = [["embedding", now().stream(0, position), "wb-second"]];
        for (let l = 0; l < layers; l++) {
          rows.push([`layer ${l}: attention writes`, now().writes(l, 0, position), ""],
            [`layer ${l}: network writes`, now().writes(l, 1, position), "wb-third"],
            [`stream after layer ${l}`, now().stream(l + 1, position), "wb-second"]);
        }
        return [
          line("Lengths of vectors at ", quoted(tokens[position]), ": the residual stream, and what each part writes to it."),
          table(["", "length", ""], rows.map(([name, value, kind]) => make("tr", kind === "wb-second" ? { class: "wb-sum" } : {},
            rowHead(name), cell(value.toFixed(2)), cell(bar(value / most, kind))))),
        ];
      },
    };
    const drawPanel = () => {
      mark(tabs, TABS.findIndex(([key]) => key === tab), "aria-selected");
      panel.setAttribute("aria-labelledby", id(`tab-${tab}`));
      const kept = [...panel.querySelectorAll(".wb-scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
      const same = panel.dataset.tab === tab;
      const focused = [...panel.querySelectorAll(".wb-scroll")].indexOf(document.activeElement);
      panel.dataset.tab = tab;
      panel.replaceChildren(...PANELS[tab]());
      const boxes = [...panel.querySelectorAll(".wb-scroll")];
      boxes.forEach((box, at) => {
        if (same && kept[at]) [box.scrollLeft, box.scrollTop] = kept[at];
        const chosen = box.querySelector("td.wb-here, tr.wb-here");
        if (!chosen) return;
        const [a, b] = [chosen.getBoundingClientRect(), box.getBoundingClientRect()];
        if (a.width < b.width && (a.left < b.left + 90 || a.right > b.right)) box.scrollLeft += a.left - b.left - b.width / 2;
        if (a.top < b.top + 30 || a.bottom > b.bottom) box.scrollTop += a.top - b.top - b.height / 2;
      });
      if (same && boxes[focused]) boxes[focused].focus();
    };

    // Changing what is chosen ------------------------------------------------------------------

    const draw = () => {
      drawWeights();
      drawHeads();
      off_button.setAttribute("aria-pressed", off);
      off_button.textContent = `${off ? "\u2715 Off" : "Switch off"}: layer ${layer}, head ${head}`;
      readout.replaceChildren(line(...said()), ...(off ? [line(...lost())] : []));
      drawPanel();
    };
    const announce = (...parts) => { status.textContent = parts.join(" "); };
    const pick = (at) => {
      position = at;
      draw();
      announce(text(said()), ...(off ? [text(lost())] : []));
    };
    const chooseHead = (at) => {
      [layer, head] = [Math.floor(at / heads), at % heads];
      draw();
      announce(`${headName()}.`, panel.querySelector("p").textContent, ...(off ? [text(lost())] : []));
    };
    const chooseSentence = () => {
      const n = now().tokens().length;
      tokens = now().tokens();
      answers = now().targets();
      position = n - 1;
      while (scored() && !answered(position)) position -= 1;
      drawStrip();
      drawThumbs();
      draw();
    };
    choice(grid, () => thumbs, () => heads, () => layer * heads + head, chooseHead);
    choice(tablist, () => tabs, () => TABS.length, () => TABS.findIndex(([key]) => key === tab), (at) => {
      tab = TABS[at][0];
      drawPanel();
      announce(panel.querySelector("p").textContent);
    });
    sentenceBox.addEventListener("change", () => {
      sentence = +sentenceBox.value;
      chooseSentence();
      announce(text(said()));
    });
    shownBox.addEventListener("change", () => {
      shown = shownBox.value;
      drawHeads();
      announce(effects.textContent);
    });
    insteadBox.addEventListener("change", () => {
      instead = insteadBox.value;
      draw();
      announce(text(lost()));
    });
    off_button.addEventListener("click", () => {
      off = !off;
      draw();
      announce(off ? text(lost()) : `${headName()} is on again.`);
    });

    const redraw = () => {
      if (!live.isConnected) return watcher.disconnect(); // a notebook has cleared the output
      readColours();
      drawThumbs();
      drawPanel();
    };
    root.querySelector(".wb-static").after(live);
    [sentenceBox.value, insteadBox.value] = [sentence, instead];
    readColours();
    chooseSentence();
    preference.addEventListener("change", redraw);
    const watcher = new MutationObserver(() => {
      if ((live.dataset.theme === "dark") !== isDark()) redraw();
    });
    for (const each of [document.documentElement, document.body]) {
      watcher.observe(each, { attributeFilter: ["data-theme", "theme", "class", "data-jp-theme-light"] });
    }
    let width = live.clientWidth;
    new ResizeObserver(() => {
      const changed = live.clientWidth && live.clientWidth !== width;
      width = live.clientWidth || width;
      if (changed) redraw();
    }).observe(live);
  }

  document.querySelectorAll(".workbench").forEach(start);
})();
