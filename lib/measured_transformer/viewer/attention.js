// The viewer for attention. It finds the boxes on the page that have not begun yet, reads the data beside
// it, and builds its controls in front of the words that are there already. Tokens reach the page as text
// only, never as markup.
(() => {
  const MASKED = 4095;
  const LONGEST = 10; // letters of a token beside a matrix
  const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const VALUE = Object.fromEntries([...DIGITS].map((digit, index) => [digit, index]));

  const make = (name, attributes, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const bdi = (text) => make("bdi", {}, text);
  const say = (code) => (code === MASKED ? "masked" : (code / 1000).toFixed(3));
  const signed = (value) => (value < 0 ? "\u2212" : "+") + (Math.abs(value) / 1000).toFixed(3);
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.trim().slice(at, at + 2), 16));
  const mix = (from, to, share) => from.map((value, at) => value + (to[at] - value) * share);

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

  function start(root) {
    const source = root.querySelector(".av-data");
    if (!source || root.attentionViewer) return;
    root.attentionViewer = true;
    root.dataset.live = "";
    root.querySelector(".av-live")?.remove(); // of a page that was saved with it
    const data = JSON.parse(source.textContent);
    const [nLayers, nHeads] = [data.layers.length, data.heads.length];
    const words = [...root.querySelectorAll(".av-words ul")].map((list) =>
      [...list.querySelectorAll("li > span")].map((each) => each.textContent)
    );
    const examples = data.examples.map((each) => {
      const keys = each.keys || each.queries;
      const codes = new Uint16Array(each.weights.length / 2);
      for (let at = 0; at < codes.length; at++) {
        codes[at] = VALUE[each.weights[2 * at]] * 64 + VALUE[each.weights[2 * at + 1]];
      }
      return { label: each.label, queries: each.queries, keys, codes };
    });

    // What is chosen. `other` is the head to compare with, or null; `query` and `key` the cell.
    let [example, layer, head] = data.start;
    let other = data.compare;
    let [query, key] = [0, 0];
    let hover = null; // a cell under the mouse, shown for as long as it is there
    const now = () => examples[example];
    const headName = (l, h) => `${data.layers[l]}, ${data.heads[h]}`;
    const offset = (l, h) => (l * nHeads + h) * now().queries.length * now().keys.length;
    const at = (l, h, q, k) => now().codes[offset(l, h) + q * now().keys.length + k];
    const difference = (q, k) => {
      const [one, two] = [at(layer, head, q, k), at(...other, q, k)];
      return one === MASKED ? null : one - two;
    };

    // Controls --------------------------------------------------------------------------------

    const select = (label, names, groups) => {
      const box = make("select", { "aria-label": label }); // or its options would be part of its name
      if (groups) {
        box.append(make("option", { value: "" }, "no other head"));
        groups.forEach((group, l) => {
          const inside = make("optgroup", { label: group });
          names.forEach((name, h) =>
            inside.append(make("option", { value: `${l} ${h}` }, headName(l, h)))
          );
          box.append(inside);
        });
      } else names.forEach((name, index) => box.append(make("option", { value: index }, name.replace(/^(Layer|head) /, ""))));
      return [make("label", {}, make("span", {}, label), box), box];
    };
    const [exampleLabel, exampleBox] = select("Example", examples.map((each) => each.label));
    const [layerLabel, layerBox] = select("Layer", data.layers);
    const [headLabel, headBox] = select("Head", data.heads);
    const [otherLabel, otherBox] = select("Compare with", data.heads, data.layers);
    const [queryLabel, queryBox] = select("Query", []);
    [exampleLabel.hidden, layerLabel.hidden] = [examples.length < 2, nLayers < 2];
    [headLabel.hidden, otherLabel.hidden] = [nHeads < 2, nLayers * nHeads < 2];
    exampleLabel.className = "av-wide";
    const choose = make("div", { class: "av-choose" }, exampleLabel, layerLabel, headLabel, otherLabel);
    choose.hidden = examples.length * nLayers * nHeads < 2;

    // All heads, small, to choose one by what it looks like.
    const overview = make("div", { class: "av-heads", role: "radiogroup", "aria-label": "Choose a head" });
    overview.hidden = otherLabel.hidden;
    const thumbs = data.layers.flatMap((name, l) => {
      const row = make("div", { class: "av-row" });
      const title = make("span", { class: "av-row-name", "aria-hidden": "true" }, bdi(name));
      const buttons = data.heads.map((_, h) => {
        const label = headName(l, h);
        return make("button", { type: "button", role: "radio", "aria-label": label, title: label },
          make("canvas", { "aria-hidden": "true" }));
      });
      row.append(title, make("div", { class: "av-thumbs", role: "presentation" }, ...buttons));
      overview.append(row);
      return buttons;
    });
    thumbs.forEach((button, index) => {
      button.addEventListener("click", () => choosing(Math.floor(index / nHeads), index % nHeads));
    });
    overview.addEventListener("keydown", (event) => {
      const from = layer * nHeads + head;
      const to = {
        ArrowLeft: from - 1, ArrowRight: from + 1, ArrowUp: from - nHeads, ArrowDown: from + nHeads,
        Home: 0, End: thumbs.length - 1,
      }[event.key];
      if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      if (!thumbs[to]) return;
      choosing(Math.floor(to / nHeads), to % nHeads);
      thumbs[to].focus();
    });

    // Matrices ---------------------------------------------------------------------------------

    const panel = (name) => {
      const title = make("p", { class: "av-title" });
      const canvas = make("canvas", { "aria-hidden": "true" });
      const cursor = make("div", { class: "av-cursor" });
      const band = make("div", { class: "av-band", "aria-hidden": "true" });
      const field = make("div", { class: "av-field" }, canvas, band);
      const rows = make("div", { class: "av-names av-rows", "aria-hidden": "true" });
      const columns = make("div", { class: "av-names av-columns", "aria-hidden": "true" });
      const grid = make("div", { class: "av-grid" }, columns, rows, field);
      const box = make("div", { class: `av-panel av-${name}` }, title, grid);
      if (name === "one") {
        const row = make("div", { role: "row" }, cursor);
        cursor.setAttribute("role", "gridcell");
        cursor.tabIndex = 0;
        field.append(row);
        field.setAttribute("role", "grid");
      } else {
        field.append(cursor);
        field.setAttribute("role", "img");
      }
      const cell = (event) => {
        const place = canvas.getBoundingClientRect();
        const index = (share, count) => clamp(Math.floor(share * count), 0, count - 1);
        return [
          index((event.clientY - place.top) / place.height, now().queries.length),
          index((event.clientX - place.left) / place.width, now().keys.length),
        ];
      };
      field.addEventListener("pointermove", (event) => {
        if (event.pointerType === "mouse") look(cell(event));
      });
      field.addEventListener("pointerleave", () => look(null));
      field.addEventListener("click", (event) => {
        if (event.detail) pin(...cell(event)); // a mouse or a finger; keys have no place
      });
      return { box, title, canvas, cursor, band, field, rows, columns };
    };
    const [one, two, three] = ["one", "two", "three"].map(panel);
    one.cursor.addEventListener("keydown", (event) => {
      const [rows, columns] = [now().queries.length, now().keys.length];
      const far = event.ctrlKey || event.metaKey;
      const to = {
        ArrowLeft: [query, key - 1], ArrowRight: [query, key + 1],
        ArrowUp: [query - 1, key], ArrowDown: [query + 1, key],
        Home: far ? [0, 0] : [query, 0], End: far ? [rows - 1, columns - 1] : [query, columns - 1],
      }[event.key];
      if (!to || event.altKey || (far && event.key.startsWith("Arrow"))) return;
      event.preventDefault();
      pin(clamp(to[0], 0, rows - 1), clamp(to[1], 0, columns - 1));
    });

    // One query in words: its tokens with their weights.
    const list = make("ul", { class: "av-tokens", "aria-label": "Weights of the query by token" });
    const listTitle = make("p", { class: "av-title" });
    const sentence = make("div", { class: "av-sentence" }, queryLabel, listTitle, list);
    list.addEventListener("pointerover", (event) => {
      const item = event.target.closest("li");
      if (item && event.pointerType === "mouse") look([query, +item.dataset.key]);
    });
    list.addEventListener("click", (event) => {
      const item = event.target.closest("li");
      if (item) pin(query, +item.dataset.key);
    });
    list.addEventListener("pointerleave", () => look(null));

    const readout = make("p", { class: "av-readout", "aria-hidden": "true" });
    const status = make("p", { class: "av-status", role: "status", "aria-live": "polite" });
    const about = make("p", { class: "av-about" });
    const scale = make("p", { class: "av-scale" });
    const ramp = (kind) => make("span", { class: `av-ramp ${kind}`, "aria-hidden": "true" });
    const empty = make("span", { class: "av-empty" }, "empty: masked");
    const minus = make("span", { class: "av-signs" }, "difference \u22121 ", ramp("av-change-ramp"), " +1");
    scale.append(make("span", {}, "weight 0 ", ramp(""), " 1"), minus, empty);
    const help = make("p", { class: "av-help" },
      "Point at a cell, or tap it. By keyboard: Tab to the matrix, then arrow keys, Home and End.");
    const matrices = make("div", { class: "av-matrices" }, one.box, two.box, three.box);
    const main = make("div", { class: "av-main" }, matrices, sentence);
    const live = make("div", { class: "av-live", role: "group", "aria-label": data.title },
      choose, overview, about, readout, main, scale, help, status);

    // Drawing ----------------------------------------------------------------------------------

    let colours;
    const readColours = () => {
      live.dataset.theme = isDark() ? "dark" : "light";
      const style = getComputedStyle(live);
      const stops = (...names) => names.map((name) => rgb(style.getPropertyValue(`--av-${name}`)));
      const ramp = (names) => {
        const [low, middle, high] = stops(...names);
        return (share) => (share < 0.5 ? mix(low, middle, 2 * share) : mix(middle, high, 2 * share - 1));
      };
      const weight = ramp(["none", "half", "full"]);
      const change = ramp(["less", "none", "more"]);
      const all = Array.from({ length: 1001 }, (_, code) => weight(Math.sqrt(code / 1000)));
      colours = {
        weight: (code) => all[code],
        change: (value) => change(0.5 + 0.5 * Math.sign(value) * Math.sqrt(Math.abs(value) / 1000)),
      };
    };

    // Paint values (null: empty) with a size in pixels for each cell; numbers where there is room.
    const paint = (canvas, rows, columns, size, value, colour, number) => {
      const dense = devicePixelRatio || 1;
      canvas.width = Math.max(1, Math.round(columns * size * dense));
      canvas.height = Math.max(1, Math.round(rows * size * dense));
      const pen = canvas.getContext("2d");
      const gap = size * dense >= 8 ? 1 : 0;
      const edge = (index) => Math.round(index * size * dense);
      for (let r = 0; r < rows; r++) {
        for (let c = 0; c < columns; c++) {
          const shown = value(r, c);
          if (shown === null) continue;
          const [red, green, blue] = colour(shown);
          pen.fillStyle = `rgb(${red},${green},${blue})`;
          const [x, y] = [edge(c), edge(r)];
          pen.fillRect(x, y, Math.max(1, edge(c + 1) - x - gap), Math.max(1, edge(r + 1) - y - gap));
          if (!number) continue;
          const light = 0.21 * red ** 2.2 + 0.72 * green ** 2.2 + 0.07 * blue ** 2.2;
          pen.fillStyle = light > 0.18 * 255 ** 2.2 ? "#000" : "#fff"; // the better contrast
          pen.font = `${11 * dense}px system-ui, sans-serif`;
          pen.textAlign = "center";
          pen.textBaseline = "middle";
          pen.fillText(number(shown), x + (size * dense) / 2, y + (size * dense) / 2);
        }
      }
    };
    const short = (code) => (code / 1000).toFixed(2).replace(/^0/, "");
    const shortSigned = (value) => (value < 0 ? "\u2212" : "+") + short(Math.abs(value));
    const unmasked = (l, h) => (q, k) => (at(l, h, q, k) === MASKED ? null : at(l, h, q, k));

    const paintSmall = (canvas, rows, columns, value) => {
      [canvas.width, canvas.height] = [columns, rows];
      const pen = canvas.getContext("2d");
      const image = pen.createImageData(columns, rows);
      for (let cell = 0; cell < rows * columns; cell++) {
        const shown = value(Math.floor(cell / columns), cell % columns);
        if (shown !== null) image.data.set([...colours.weight(shown), 255], 4 * cell);
      }
      pen.putImageData(image, 0, 0);
    };
    const drawOverview = () => {
      const [rows, columns] = [now().queries.length, now().keys.length];
      const room = main.clientWidth - 6;
      const most = nHeads * nLayers > 48 ? 34 : 52;
      const beside = (room - 64) / nHeads >= 26;
      overview.classList.toggle("av-stacked", !beside);
      const size = clamp(Math.floor((room - (beside ? 64 : 0)) / nHeads) - 6, 20, most);
      thumbs.forEach((button, index) => {
        const [l, h] = [Math.floor(index / nHeads), index % nHeads];
        const canvas = button.firstChild;
        paintSmall(canvas, rows, columns, unmasked(l, h));
        const scaled = size / Math.max(rows, columns);
        canvas.style.width = `${Math.max(4, columns * scaled)}px`;
        canvas.style.height = `${Math.max(4, rows * scaled)}px`;
        button.style.width = button.style.height = `${size + 6}px`;
      });
    };

    const measure = () => {
      const { queries, keys } = now();
      const [longQuery, longKey] = [queries, keys].map((all) =>
        clamp(Math.max(...all.map((token) => [...token].length)), 1, LONGEST));
      const margin = 8 + longQuery * 8;
      const room = main.clientWidth - 3;
      const cells = (width) => clamp(Math.min((width - margin) / keys.length, 560 / queries.length), 1, 40);
      let width = room >= 620 ? room * 0.56 : room;
      if (other) {
        width = [3, 2, 1].map((count) => (room - 18 * (count - 1)) / count)
          .find((each) => cells(each) >= 14) || (room >= 620 ? (room - 18) / 2 : room);
      }
      const size = cells(width);
      return { size: size >= 4 ? Math.floor(size) : size, margin, top: 10 + longKey * 8, named: size >= 11 };
    };

    let layout = null;
    const drawMatrices = () => {
      const { queries, keys } = now();
      layout = measure();
      const { size, margin, top, named } = layout;
      const font = clamp(Math.round(size * 0.8), 10, 13);
      for (const [name, value] of Object.entries({ cell: size, margin, top, font })) {
        live.style.setProperty(`--av-${name}`, `${value}px`);
      }
      const shown = other ? [one, two, three] : [one];
      for (const each of [one, two, three]) each.box.hidden = !shown.includes(each);
      for (const each of shown) {
        const name = (token) => {
          const letters = [...token];
          const brief = letters.length > LONGEST ? `${letters.slice(0, LONGEST - 1).join("")}\u2026` : token;
          return make("span", { title: token }, bdi(brief));
        };
        each.rows.replaceChildren(...queries.map(name));
        each.columns.replaceChildren(...keys.map(name));
        each.rows.classList.toggle("av-few", !named);
        each.columns.classList.toggle("av-few", !named);
        each.canvas.style.width = each.field.style.width = `${keys.length * size}px`;
        each.canvas.style.height = each.field.style.height = `${queries.length * size}px`;
      }
      const [name, roomy] = [headName(layer, head), size >= 32];
      const draw = (target, value, colour, number) =>
        paint(target.canvas, queries.length, keys.length, size, value, colour, roomy && number);
      one.title.replaceChildren(bdi(name));
      one.field.setAttribute("aria-label", `Weights of ${name}: a query a row, a key a column`);
      one.field.setAttribute("aria-rowcount", queries.length);
      one.field.setAttribute("aria-colcount", keys.length);
      draw(one, unmasked(layer, head), colours.weight, short);
      if (!other) return;
      const second = headName(...other);
      two.title.replaceChildren(bdi(second));
      two.field.setAttribute("aria-label", `Weights of ${second}, with the same cell marked`);
      draw(two, unmasked(...other), colours.weight, short);
      three.title.textContent = "Difference";
      three.field.setAttribute("aria-label", `Weights of ${name} less those of ${second}`);
      draw(three, difference, colours.change, shortSigned);
    };

    const drawTokens = (q) => {
      const { queries, keys } = now();
      listTitle.replaceChildren(`Position ${q}, `, bdi(`\u201c${queries[q]}\u201d`), ", looks at");
      list.replaceChildren(...keys.map((token, k) => {
        const item = make("li", { "data-key": k, title: token }, bdi(token));
        [at(layer, head, q, k), ...(other ? [at(...other, q, k)] : [])].forEach((code, place) => {
          const bar = make("i", { class: place ? "av-bar av-second" : "av-bar", "aria-hidden": "true" });
          bar.style.setProperty("--av-share", code === MASKED ? 0 : code / 1000);
          const number = make("span", { class: "av-number" }, code === MASKED ? "masked" : say(code));
          if (code === MASKED && place) return;
          item.classList.toggle("av-masked", code === MASKED);
          item.append(bar, number);
        });
        const changed = other && difference(q, k);
        if (other && changed !== null) {
          item.append(make("span", { class: "av-number av-change" }, signed(changed)));
        }
        return item;
      }));
    };

    const words_of = (q, k) => {
      const first = at(layer, head, q, k);
      if (first === MASKED) return "masked, this query may not look there";
      if (!other) return say(first);
      return `${headName(layer, head)}: ${say(first)}; ${headName(...other)}: ${say(at(...other, q, k))}; ` +
        `difference ${signed(difference(q, k))}`;
    };

    // Show the cell under the mouse, else the chosen one.
    let listed = "";
    const drawCell = () => {
      const [q, k] = hover || [query, key];
      const { queries, keys } = now();
      const { size } = layout;
      for (const each of other ? [one, two, three] : [one]) {
        each.cursor.style.transform = `translate(${k * size}px, ${q * size}px)`;
        each.band.style.transform = `translateY(${q * size}px)`;
        for (const [names, index] of [[each.rows, q], [each.columns, k]]) {
          names.querySelector(".av-here")?.classList.remove("av-here");
          names.children[index].classList.add("av-here");
        }
      }
      const state = [example, layer, head, other, q].join();
      if (state !== listed) drawTokens(q);
      listed = state;
      list.querySelector(".av-here")?.classList.remove("av-here");
      list.children[k].classList.add("av-here");
      if (list.scrollHeight > list.clientHeight + 1) list.tabIndex = 0; // or no key could scroll it
      else list.removeAttribute("tabindex");
      readout.replaceChildren(
        "From ", bdi(`\u201c${queries[q]}\u201d`), ` (${q}) to `, bdi(`\u201c${keys[k]}\u201d`), ` (${k}): `,
        make("b", {}, words_of(q, k)));
    };
    const look = (cell) => {
      if (String(cell) === String(hover)) return;
      hover = cell;
      drawCell();
    };

    // Changing what is chosen ------------------------------------------------------------------

    const cellWords = () =>
      `From ${now().queries[query]}, position ${query}, to ${now().keys[key]}, position ${key}: ${words_of(query, key)}`;
    const pin = (q, k) => {
      [query, key, hover] = [q, k, null];
      queryBox.value = q;
      one.cursor.parentNode.setAttribute("aria-rowindex", q + 1);
      one.cursor.setAttribute("aria-colindex", k + 1);
      one.cursor.setAttribute("aria-label", cellWords());
      drawCell();
      status.textContent = cellWords();
    };
    const busiest = (q) => {
      const codes = now().keys.map((_, k) => at(layer, head, q, k) % MASKED);
      return codes.indexOf(Math.max(...codes));
    };

    const drawHead = () => {
      [layerBox.value, headBox.value, otherBox.value] = [layer, head, other ? other.join(" ") : ""];
      thumbs.forEach((button, index) => {
        const chosen = index === layer * nHeads + head;
        button.setAttribute("aria-checked", chosen);
        button.tabIndex = chosen ? 0 : -1;
        button.classList.toggle("av-other", !!other && index === other[0] * nHeads + other[1]);
      });
      about.replaceChildren();
      (other ? [[layer, head], other] : [[layer, head]]).forEach(([l, h], place) => {
        const sign = make("i", { class: place ? "av-sign av-second" : "av-sign", "aria-hidden": "true" });
        about.append(make("span", {}, other ? sign : "", make("b", {}, bdi(headName(l, h)), ". "),
          words[example][l * nHeads + h]));
      });
      live.classList.toggle("av-compared", !!other);
      minus.hidden = !other;
      empty.hidden = !now().codes.includes(MASKED);
      drawMatrices();
    };
    const announce = () => {
      pin(query, key);
      status.textContent = `${about.innerText} ${cellWords()}`;
    };
    const choosing = (l, h) => {
      [layer, head] = [l, h];
      drawHead();
      announce();
    };
    const drawExample = () => {
      exampleBox.value = example;
      query = now().queries.length - 1;
      key = busiest(query);
      queryBox.replaceChildren(...now().queries.map((token, q) => make("option", { value: q }, `${q} ${token}`)));
      drawHead();
      drawOverview();
    };
    exampleBox.addEventListener("change", () => {
      example = +exampleBox.value;
      drawExample();
      announce();
    });
    layerBox.addEventListener("change", () => choosing(+layerBox.value, head));
    headBox.addEventListener("change", () => choosing(layer, +headBox.value));
    otherBox.addEventListener("change", () => {
      other = otherBox.value ? otherBox.value.split(" ").map(Number) : null;
      choosing(layer, head);
    });
    queryBox.addEventListener("change", () => pin(+queryBox.value, busiest(+queryBox.value)));

    const redraw = () => {
      if (!live.isConnected) return watcher.disconnect(); // a notebook has cleared the output
      readColours();
      drawOverview();
      drawMatrices();
      drawCell();
    };
    root.querySelector(".av-static").after(live);
    readColours();
    drawExample();
    pin(query, key);
    status.textContent = ""; // nobody has asked yet
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

  document.querySelectorAll(".attention-viewer").forEach(start);
})();
