// The overview of a live model: one picture from the text to the next token, at the chosen position. The residual
// stream is a line; every head shows its pattern and every network its neurons. An arrow's thickness,
// relative to the line, is the length of what the part writes, relative to the stream that it is added to. Parts are
// buttons: one opens a card, which says more and switches the part off. All is drawn from one answer of the engine.
//
// The picture runs along the stream (u) and away from it (v), so that it is laid out once: from left to right where
// there is room for all blocks, else downwards.
function liveOverview(controls, { data, box, name, toggle, views, append, chose }) {
  const { make, clamp, plain, button, note, colour, ramp } = controls;
  const { L, H, E, D, F } = data.packed.sizes;
  const { norm, placement, finalNorm } = data.packed.config;
  const range = (n) => Array.from({ length: n }, (_, i) => i);
  const quoted = (token) => `\u201c${name(token)}\u201d`;
  const bdi = (text) => make("bdi", {}, text);

  const STREAM = 12; // thickness of the stream, and of a write that is as long
  const GAP = 5; // between heads
  const NEAREST = 30; // from the stream to the nearest head
  const CHANNEL = Math.max(34, 8 * H); // in which the heads' arrows turn
  const NETWORK = 24;
  const START = 56; // of the picture from left to right, before and after the blocks
  const END = 128; // at least
  const SHOWN = 5; // next tokens

  // Its plan for a width: along which way it runs, and how large a head is.
  function planned(width) {
    const block = 11 + CHANNEL + 15 + NETWORK + (placement === "post" ? 30 : 22); // along the stream, without heads
    const wide = Math.floor((width - START - END) / L - block);
    const across = wide >= 36;
    const reading = width < 420 ? 72 : 120; // room for what a depth would say, beside the stream
    const s = across ? Math.min(wide, clamp(Math.floor(380 / H) - GAP, 36, 88)) : clamp(Math.floor((width - NEAREST - STREAM - reading) / H) - GAP, 26, 72);
    const extent = NEAREST + H * (s + GAP);
    const lead = across ? 2 : 32;
    const u = { read: lead + 4, heads: lead + 9, out: lead + 9 + s };
    u.network = u.out + 4 + CHANNEL + 11;
    u.adds = u.network + NETWORK + 10;
    u.end = u.adds + (placement === "post" ? 20 : 12);
    const end = across ? clamp(width - START - L * u.end, END, 240) : 60 + 26 * (SHOWN + 1);
    return { across, s, extent, u, end, reading, y: (across ? 28 : 0) + Math.max(extent, 110), x: extent };
  }

  // A place in the picture, and a box of `du` along and `dv` away, in pixels of their section.
  const place = ({ across, x, y }, u, v) => (across ? [u, y - v] : [x - v, u]);
  const boxed = (node, { across, x, y }, u, v, du, dv) => {
    const [left, top, width, height] = across ? [u, y - v - dv, du, dv] : [x - v - dv, u, dv, du];
    Object.assign(node.style, { left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px` });
    return node;
  };
  const svg = (kind, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  const path = (plan, ...steps) => steps.map(([command, ...points]) => `${command}${points.map(([u, v]) => place(plan, u, v).map((one) => one.toFixed(1)).join(" ")).join(" ")}`).join("");
  // Sets what is another value than before: most of a picture stays as it is.
  const put = (node, key, value) => { if (node.getAttribute(key) !== `${value}`) node.setAttribute(key, value); };
  const style = (node, key, value) => { if (node.style.getPropertyValue(key) !== `${value}`) node.style.setProperty(key, value); };
  const write = (node, text) => { if (node.textContent !== text) node.textContent = text; };

  // What is there --------------------------------------------------------------------------------

  const map = make("div", { class: "lm-map", role: "toolbar", "aria-label": "The model, part by part. Arrow keys go from part to part; Enter says more and lets you switch it off; Delete switches it off and on.", dir: "ltr" });
  const legend = `An arrow’s thickness, relative to the blue stream, is the length of what the part writes, relative to the stream that it is added to. Orange: heads, with their patterns; green: networks, with their neurons${norm === "none" ? "" : "; pink: norms"}. Beside the stream: what would come next if it were read there. Press a part to see more, or to switch it off.`;
  const key = note(legend);
  const card = make("div", { class: "lm-card", role: "group" });
  const between = make("div", { class: "lm-between" }, card);
  const inner = make("div", {}, map, key);
  const element = make("div", { class: "lm-scroll lm-overview", tabindex: 0, role: "group", "aria-label": "Overview" }, inner);
  let plan = null;
  let drawn = null; // what the picture is made of
  let last = null; // what was drawn last: the answer and its experiment
  let chosen = null; // the part whose card is open
  let thinner = false; // are there arrows that do not fit?
  let looked = null; // the head whose weights the tokens show

  const partName = (key) => { const [layer, what] = key.split("."); return { n: `network ${layer}`, b: `block ${layer}` }[what] || `head ${key}`; };
  const capital = (text) => text[0].toUpperCase() + text.slice(1);
  const part = (key, kind, ...children) => make("button", { type: "button", class: `lm-part ${kind}`, "data-place": key, tabindex: -1, "aria-expanded": "false" }, ...children);
  const reading = () => make("span", { class: "lm-reading", "aria-hidden": "true" }, make("b", {}, bdi("")), make("span", {}));
  const stage = (label, along) => {
    const { across, y, x, reading: side } = plan;
    const [width, height] = across ? [along, y + 52] : [x + STREAM + side, along];
    const lines = svg("svg", { width, height, "aria-hidden": "true", focusable: "false" });
    const node = make("div", { class: "lm-stage", role: "group", "aria-label": label }, lines);
    Object.assign(node.style, { width: `${width}px`, height: `${height}px` });
    return { node, lines };
  };
  const line = (lines, kind, d) => lines.appendChild(svg("path", { class: kind, d }));
  const streamed = (lines, from, to) => line(lines, "lm-stream", path(plan, ["M", [from, 0]], ["L", [to, 0]]));
  const normed = (lines, u, v) => { // a mark on the way from the stream, or on the stream
    if (norm === "none") return;
    const [x, y] = place(plan, u, v);
    const [wide, tall] = v ? [8, 8] : plan.across ? [5, 20] : [20, 5];
    lines.append(svg("rect", { class: "lm-norm", x: x - wide / 2, y: y - tall / 2, width: wide, height: tall, rx: 2 }));
  };
  const read = (node, u) => { // what the stream would say, at its end of a section
    const { across, x, y, reading: side } = plan;
    Object.assign(node.style, across ? { left: "0", top: `${y + 10}px`, width: `${u}px` } : { left: `${x + 12}px`, top: `${u - 40}px`, width: `${side - 4}px` });
    return node;
  };

  function build() {
    const { across, s, extent, u } = plan;
    map.classList.toggle("lm-across", across);
    map.classList.toggle("lm-upright", data.cut === "bytes" || data.cut === "characters");
    const pixelated = (node) => node.appendChild(make("canvas", { "aria-hidden": "true" }));
    drawn = null; // nobody is to draw while it is built
    map.replaceChildren();
    drawn = { blocks: [], parts: new Map() };
    const opening = () => {
      const deep = map.matches(".lm-upright, .lm-across") ? 34 : 52; // room for a token
      const along = across ? START : deep + 26;
      const { node, lines } = stage("The text", along);
      const pitch = across ? 16 : 20;
      const count = Math.max(2, Math.floor((extent - 8) / pitch));
      const tokens = range(count).map((i) => {
        const token = make("span", { class: "lm-token", "aria-hidden": "true" }, bdi(""));
        node.append(boxed(token, plan, 0, i * pitch - pitch / 2 + (i ? 6 : 0), across ? 40 : deep, i ? pitch - 1 : pitch + 2));
        return token;
      });
      streamed(lines, across ? 40 : deep, along);
      const [said, chip] = [make("span", { class: "lm-heard" }), reading()];
      node.append(said, read(chip, across ? along - 2 : along + 6));
      map.append(node);
      Object.assign(drawn, { tokens, said, chip });
    };
    const blockOf = (layer) => {
      const { node, lines } = stage(`Block ${layer}`, u.end);
      const far = extent - GAP;
      const centre = (h) => NEAREST + (H - 1 - h) * (s + GAP) + s / 2;
      const whole = part(`${layer}.b`, "lm-block", make("b", {}));
      Object.assign(whole.style, across ? { left: `${u.heads - 2}px`, top: "0" } : { left: "0", top: "4px" });
      node.append(whole);
      line(lines, "lm-read", path(plan, ["M", [u.read, 0]], ["L", [u.read, centre(0)]]));
      streamed(lines, 0, u.end);
      if (placement === "pre") normed(lines, u.read, 17);
      const heads = range(H).map((h) => {
        line(lines, "lm-read", path(plan, ["M", [u.read, centre(h)]], ["L", [u.heads, centre(h)]]));
        const own = part(`${layer}.${h}`, "lm-head");
        const canvas = pixelated(own);
        const label = own.appendChild(make("span", { "aria-hidden": "true" }));
        node.append(boxed(own, plan, u.heads, centre(h) - s / 2, s, s));
        return { button: own, canvas, face: canvas, label, flow: line(lines, "lm-flow", ""), tip: line(lines, "lm-tip", "") };
      });
      const own = part(`${layer}.n`, "lm-net");
      const label = own.appendChild(make("span", { "aria-hidden": "true" }, across ? "net" : "network"));
      const canvas = pixelated(own);
      node.append(boxed(own, plan, u.network, NEAREST, NETWORK, far - NEAREST));
      line(lines, "lm-read", path(plan, ["M", [u.network - 6, 0]], ["L", [u.network - 6, NEAREST + 14], [u.network, NEAREST + 14]]));
      if (placement === "pre") normed(lines, u.network - 6, 17);
      else for (const at of [u.network - 10, u.end - 5]) normed(lines, at, 0);
      const network = { button: own, canvas, face: canvas, label, flow: line(lines, "lm-flow lm-green", ""), tip: line(lines, "lm-tip lm-green", "") };
      const chip = reading();
      node.append(read(chip, across ? u.end - 2 : u.end));
      map.append(node);
      for (const [key, one] of [[`${layer}.b`, whole], ...heads.map((one, h) => [`${layer}.${h}`, one.button]), [`${layer}.n`, own]]) drawn.parts.set(key, one);
      return { node, whole, heads, network, chip, centre };
    };
    const closing = () => {
      const { node, lines } = stage("The next token", plan.end);
      const until = across ? 18 : 24;
      streamed(lines, 0, until);
      line(lines, "lm-stream-tip", path(plan, ["M", [until, -10]], ["L", [until, 10], [until + 9, 0]]));
      if (finalNorm) normed(lines, 5, 0);
      const rows = range(SHOWN + 1).map(() => button("", () => {}, { class: "lm-next", tabindex: -1 }));
      const list = make("div", { class: "lm-ends" }, make("span", { class: "lm-note", "aria-hidden": "true" }, "next token"), ...rows);
      Object.assign(list.style, across ? { left: "32px", bottom: "2px", width: `${plan.end - 32}px` } : { right: "2px", top: "36px", width: `${Math.min(220, plan.x + plan.reading)}px` });
      node.append(list);
      map.append(node);
      rows.forEach((row, at) => row.addEventListener("click", () => { if (!row.hasAttribute("aria-disabled")) append(drawn.next[at]); }));
      Object.assign(drawn, { rows });
    };
    opening();
    drawn.blocks = range(L).map(blockOf);
    closing();
    show(chosen);
  }

  // What is said ---------------------------------------------------------------------------------

  const offOf = ({ off }, key) => off.includes(key) || (!key.endsWith(".b") && off.includes(`${key.split(".")[0]}.b`));
  // Is this where something is patched in: a head, a network, or elsewhere in a block?
  function patchedOf({ patch }, key) {
    const at = patch && /^blocks\.(\d+)\.(attention\.|feedforward\.)?/.exec(patch.tap);
    const [layer, what] = key.split(".");
    if (!at || at[1] !== layer) return false;
    if (at[2] === "attention.") return /\d/.test(what) && (patch.head === null || patch.head === Number(what));
    return what === (at[2] ? "n" : "b");
  }
  const instead = ({ instead: how }) => ({ zero: "zeros stand", mean: "its mean over kept sentences stands", resample: "its value on another sentence stands" })[how];

  // The parts of an answer, of the changed model where there is one; and the whole model's.
  const found = (answer, side = answer.overview.length - 1) => answer.overview[side];
  function amount(of, key, experiment) {
    const [layer, what] = key.split(".");
    const block = of.blocks[layer];
    if (what === "b") return { length: block.after, share: block.before ? block.after / block.before : 0 };
    if (what === "n") return block.network;
    return experiment.off.includes(`${layer}.b`) ? { length: 0, share: 0 } : block.heads[what]; // it does not reach the stream
  }

  const weights = (answer, layer, h) => answer.patterns[layer][h].subarray(answer.position * answer.n, (answer.position + 1) * answer.n);
  const strongest = (values, count) => Array.from(values.keys()).sort((a, b) => values[b] - values[a] || a - b).slice(0, count);

  // One sentence for a part.
  function sentence(key, { answer, experiment }) {
    const [layer, what] = key.split(".");
    const of = found(answer);
    const own = amount(of, key, experiment);
    const before = answer.changed ? amount(found(answer, 0), key, { off: [] }) : null;
    const was = (value) => (before && plain(value) !== plain(own.share) ? ` (${plain(value)} in the whole model)` : "");
    const [token, chance] = of.depths[Number(layer) + 1];
    const who = `${capital(partName(key))}${patchedOf(experiment, key) ? ", patched from the second sentence," : ""}`;
    const after = `after it the logit lens reads ${quoted(token)} (${plain(chance)})`;
    if (offOf(experiment, key)) {
      const by = experiment.off.includes(key) ? "is switched off" : "is switched off with its block";
      return `${who} ${by}: ${instead(experiment)} in its place${what === "b" ? `; ${after}.` : own.share ? `, ${plain(own.share)} times the length of the stream.` : "."}`;
    }
    if (what === "b") {
      const { before: from, after: to } = of.blocks[layer];
      return `${who} turns a stream of length ${plain(from, 1)} into one of length ${plain(to, 1)}; ${after}.`;
    }
    const writes = `writes ${plain(own.share)} times the length of the stream${was(before ? before.share : 0)}`;
    if (what === "n") return `${who} ${writes}.`;
    const row = weights(answer, layer, what);
    const [best] = strongest(row, 1);
    return `${who} looks most at position ${best}, ${quoted(answer.tokens[best])} (${plain(row[best])}), and ${writes}.`;
  }

  // What the card adds.
  function more(key, { answer, experiment }) {
    const [layer, what] = key.split(".");
    if (what === "b") return `${H} head${H > 1 ? "s read the stream and add" : " reads the stream and adds"} to it, then a network does.${data.views.includes("ledger") ? " The ledger tells what each of them adds to a logit." : ""}`;
    if (what === "n") {
      const { neurons } = found(answer).blocks[layer];
      const sizes = Array.from(neurons, Math.abs);
      return `${D} numbers in, ${F} neurons, ${D} numbers out. Its strongest neurons here: ${strongest(sizes, 3).map((i) => `${i} (${plain(neurons[i])})`).join(", ")}.`;
    }
    const row = weights(answer, layer, what);
    const off = offOf(experiment, key);
    const others = strongest(row, 4).slice(off ? 0 : 1).filter((at) => row[at] >= 0.005);
    return `It carries ${E} numbers a token.${others.length ? ` ${off ? "It would look" : "Then it looks"} at ${others.map((at) => `position ${at}, ${quoted(answer.tokens[at])} (${plain(row[at])})`).join("; ")}.` : ""}`;
  }

  // Drawing ----------------------------------------------------------------------------------------

  function drawPart(key, one, now, share, flow) {
    const { experiment } = now;
    const off = offOf(experiment, key);
    const own = amount(found(now.answer), key, experiment);
    one.button.toggleAttribute("data-off", off);
    one.button.toggleAttribute("data-patched", patchedOf(experiment, key));
    put(one.button, "data-share", own.share.toPrecision(7));
    put(one.button, "data-length", own.length.toPrecision(7));
    const text = sentence(key, now);
    put(one.button, "aria-label", text);
    put(one.face, "title", text);
    if (!flow) return;
    const thick = clamp(STREAM * share, 0, 3 * STREAM);
    put(one.flow, "d", thick ? flow : "");
    put(one.flow, "stroke-width", Math.max(thick, 0.75).toFixed(2));
    one.flow.classList.toggle("lm-stand-in", off);
  }

  // The arrows of a block's heads: each turns towards the stream, the nearest first.
  function drawHeads(block, layer, now) {
    const { u } = plan;
    const { heads, attention } = found(now.answer).blocks[layer];
    const cut = now.experiment.off.includes(`${layer}.b`);
    const shares = heads.map(({ share }, h) => (cut ? (h === H - 1 ? attention.share : 0) : share)); // of a block that is off, what stands in
    const wide = shares.map((share) => clamp(STREAM * share, 1, 3 * STREAM));
    const squeezed = Math.min(1, (CHANNEL - 2 * H) / wide.reduce((sum, one) => sum + one, 0));
    thinner ||= squeezed < 1 || shares.some((share) => share > 3);
    let at = u.out + 4;
    for (let h = H - 1; h >= 0; h -= 1) {
      const half = (wide[h] * squeezed) / 2;
      const [to, from] = [at + half, block.centre(h)];
      at += 2 * half + 2;
      const bend = Math.min(10, to - u.out);
      drawPart(`${layer}.${h}`, block.heads[h], now, shares[h] * squeezed,
        path(plan, ["M", [u.out, from]], ["L", [to - bend, from]], ["Q", [to, from], [to, from - bend]], ["L", [to, 13]]));
      drawTip(block.heads[h].tip, to, half, shares[h]);
    }
  }
  const drawTip = (tip, u, half, share) => put(tip, "d", share > 0 ? path(plan, ["M", [u - half - 2.5, 14]], ["L", [u + half + 2.5, 14], [u, 5]]) : "");

  function drawNetwork(block, layer, now) {
    const { u } = plan;
    const { share } = found(now.answer).blocks[layer].network;
    const half = clamp(STREAM * share, 1, 2.4 * STREAM) / 2;
    thinner ||= share > 2.4;
    const [out, from, to] = [u.network + NETWORK, NEAREST + 18, Math.max(u.adds, u.network + NETWORK + half)];
    const bend = Math.min(10, to - out);
    drawPart(`${layer}.n`, block.network, now, Math.min(share, 2.4), path(plan, ["M", [out, from]], ["L", [to - bend, from]], ["Q", [to, from], [to, from - bend]], ["L", [to, 13]]));
    drawTip(block.network.tip, to, half, share);
  }

  const drawReading = (chip, [token, chance]) => {
    write(chip.firstChild.firstChild, name(token));
    write(chip.lastChild, plain(chance));
    put(chip, "data-chance", chance.toPrecision(7));
    style(chip, "--lm-share", chance.toFixed(3));
  };

  function same(one, other) {
    if (!one || one.length !== other.length) return false;
    for (let i = 0; i < one.length; i += 1) if (one[i] !== other[i]) return false;
    return true;
  }
  function drawPattern(head, layer, h, { answer }, shade, anew) {
    const pattern = answer.patterns[layer][h];
    const { n, position } = answer;
    if (!anew && head.position === position && same(head.pattern, pattern)) return;
    [head.pattern, head.position] = [pattern, position];
    paint(head.canvas, n, n, (cells) => {
      for (let q = 0, at = 0; q < n; q += 1) {
        const quiet = q === position ? 0xffffffff : 0xb0ffffff; // the alpha comes first
        for (let k = 0; k < n; k += 1, at += 1) if (k <= q || pattern[at] > 0) cells[at] = shade[Math.round(255 * pattern[at])] & quiet;
      }
    });
    head.canvas.style.imageRendering = n > plan.s ? "auto" : "pixelated";
  }
  // Its neurons, folded along its length.
  function drawNeurons(network, { neurons }, most, shade, anew) {
    if (!anew && network.most === most && same(network.neurons, neurons)) return;
    [network.neurons, network.most] = [neurons, most];
    const short = 7;
    const long = Math.ceil(F / short);
    const [width, height] = plan.across ? [short, long] : [long, short];
    paint(network.canvas, width, height, (cells) => {
      for (let i = 0; i < F; i += 1) {
        const [part, whole] = [i % short, Math.floor(i / short)];
        cells[plan.across ? whole * short + part : part * long + whole] = shade[Math.round((255 * Math.abs(neurons[i])) / most)];
      }
    });
  }
  // `fill` sets cells, a whole number each, as `packed` makes them.
  function paint(canvas, width, height, fill) {
    if (canvas.width !== width) canvas.width = width;
    if (canvas.height !== height) canvas.height = height;
    const context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    fill(new Uint32Array(image.data.buffer));
    context.putImageData(image, 0, 0);
  }
  // The 256 shades of a ramp as whole numbers: red in the lowest byte, then green, blue, alpha.
  const packed = (shade) => Uint32Array.from(range(256), (i) => shade(i / 255).reduce((sum, one, c) => sum + one * 256 ** c, 255 * 256 ** 3));

  function drawTokens({ answer }) {
    const { position, tokens } = answer;
    const first = Math.max(0, position - drawn.tokens.length + 1);
    const row = looked ? weights(answer, ...looked) : null;
    drawn.tokens.forEach((node, i) => {
      const at = position - i;
      node.hidden = at < 0;
      if (at < 0) return;
      const rest = i === drawn.tokens.length - 1 && first > 0; // stands for all tokens before
      write(node.firstChild, rest ? "\u2026" : name(tokens[at]));
      node.classList.toggle("lm-here", i === 0);
      const weight = row && (rest ? row.subarray(0, at + 1).reduce((sum, one) => sum + one, 0) : row[at]);
      style(node, "--lm-share", row ? Math.sqrt(weight).toFixed(3) : 0); // small weights show, too
    });
    const [token, chance] = found(answer).depths[0];
    write(drawn.said, `Position ${position}: the embedding of ${quoted(tokens[position])} has length ${plain(found(answer).embedding, 1)}; read at once, it would go on with ${quoted(token)} (${plain(chance)}).`);
    drawReading(drawn.chip, found(answer).depths[0]);
    drawn.chip.title = drawn.said.textContent;
  }

  function drawNext({ answer }) {
    write(key, `${legend}${thinner ? " Arrows that would not fit are thinner than that: the parts\u2019 words have the numbers." : ""}${answer.changed ? " The line across a bar: in the whole model." : ""}`);
    const rows = [...answer.shown].sort((a, b) => b[2] - a[2]).slice(0, SHOWN);
    const [before] = answer.shown; // the whole model's likeliest
    if (!rows.includes(before)) rows.push(before);
    drawn.next = rows.map(([token]) => token);
    drawn.rows.forEach((row, at) => {
      row.hidden = !rows[at];
      if (!rows[at]) return;
      const [token, was, chance] = rows[at];
      const can = answer.position === answer.n - 1 && append(token, true);
      if (can) row.removeAttribute("aria-disabled");
      else put(row, "aria-disabled", "true");
      put(row, "data-chance", chance.toPrecision(7));
      const said = `${quoted(token)} comes next with probability ${plain(chance)}${answer.changed ? `, ${plain(was)} in the whole model` : ""}${can ? ": press to append it to the text" : ""}.`;
      put(row, "aria-label", said);
      if (row.children.length < 3) row.replaceChildren(make("b", {}, bdi("")), make("i", { class: "lm-bar" }), make("span", {}));
      write(row.firstChild.firstChild, name(token));
      style(row.children[1], "--lm-share", chance.toFixed(4));
      style(row.children[1], "--lm-was", was.toFixed(4));
      row.classList.toggle("lm-both", answer.changed);
      write(row.lastChild, plain(chance));
    });
  }

  let shadedFor = null; // theme
  let shades = null;
  function draw(answer, experiment, built = false) {
    const now = { answer, experiment };
    last = now;
    const anew = plan && watched ? false : fit(); // to ask for the width would lay the page out once more
    if (!plan) return;
    const theme = box.dataset.theme;
    if (shadedFor !== theme) {
      shades = ["--lm-half", "--lm-net"].map((each) => packed(ramp(...["--lm-none", each, each === "--lm-net" ? "--lm-net-full" : "--lm-full"].map((one) => colour(box, one)))));
    }
    const repaint = anew || built || shadedFor !== theme;
    shadedFor = theme;
    drawTokens(now);
    const of = found(answer);
    thinner = false;
    const most = Math.max(1e-9, ...of.blocks.map(({ neurons }) => neurons.reduce((high, one) => Math.max(high, Math.abs(one)), 0)));
    drawn.blocks.forEach((block, layer) => {
      drawPart(`${layer}.b`, { button: block.whole, face: block.whole.firstChild }, now);
      drawHeads(block, layer, now);
      drawNetwork(block, layer, now);
      block.heads.forEach((head, h) => {
        drawPattern(head, layer, h, now, shades[0], repaint);
        write(head.label, offOf(experiment, `${layer}.${h}`) ? "off" : `h${h}`);
      });
      drawNeurons(block.network, of.blocks[layer], most, shades[1], repaint);
      write(block.network.label, offOf(experiment, `${layer}.n`) ? "off" : plan.across ? "net" : "network");
      write(block.whole.firstChild, `block ${layer}${experiment.off.includes(`${layer}.b`) ? ", off" : ""}`);
      drawReading(block.chip, of.depths[layer + 1]);
    });
    drawNext(now);
    drawCard();
    reachable();
  }

  // Fits the picture to the room that there is; says whether it was built anew.
  function fit() {
    const width = element.clientWidth - 8;
    if (width < 60) return false; // not to be seen
    const next = planned(width);
    if (plan && JSON.stringify(next) === JSON.stringify(plan)) return false;
    const had = map.contains(document.activeElement) ? document.activeElement.dataset.place : null;
    plan = next;
    build();
    if (had) drawn.parts.get(had).focus();
    return true;
  }
  // When the room changes; the picture's own size may change by it, so that it waits for the next frame.
  const again = () => { if (last && element.isConnected && fit()) draw(last.answer, last.experiment, true); };
  const watched = !!window.ResizeObserver;
  if (watched) new ResizeObserver(() => requestAnimationFrame(again)).observe(element);

  // The card -----------------------------------------------------------------------------------------

  const told = make("p", {});
  const further = note("");
  const toggled = button("", () => toggle(chosen));
  const opened = button("", () => views.open(chosen));
  const closed = button("Close", () => { const from = drawn.parts.get(chosen); choose(chosen); from.focus(); });
  card.append(told, further, make("div", { class: "lm-buttons" }, ...(data.experiments.includes("off") ? [toggled] : []), opened, closed));
  card.addEventListener("keydown", (event) => { if (event.key === "Escape") closed.click(); });

  function drawCard() {
    if (!chosen) return;
    card.setAttribute("aria-label", capital(partName(chosen)));
    write(told, sentence(chosen, last));
    write(further, more(chosen, last));
    toggled.hidden = offOf(last.experiment, chosen) && !last.experiment.off.includes(chosen);
    write(toggled, last.experiment.off.includes(chosen) ? `Switch ${partName(chosen)} on again` : `Switch off ${partName(chosen)}`);
    const where = views.of(chosen);
    opened.hidden = !where;
    write(opened, `See it under ${where}`);
  }

  // Opens the card of a part, or none: under the picture, or under its block where the picture runs downwards.
  function show(key) {
    if (chosen && drawn) drawn.parts.get(chosen)?.setAttribute("aria-expanded", "false");
    chosen = key;
    between.remove();
    if (!chosen || !drawn) return;
    drawn.parts.get(chosen).setAttribute("aria-expanded", "true");
    const block = drawn.blocks[Number(chosen.split(".")[0])].node;
    (plan.across ? map : block).after(between);
    between.style.setProperty("--lm-at", `${plan.x}px`);
    between.classList.toggle("lm-beside", !plan.across);
    if (last) drawCard();
    look();
  }
  function choose(key) {
    show(chosen === key ? null : key);
    look();
    chose(chosen);
    if (chosen) card.scrollIntoView({ block: "nearest" });
  }

  // Whose weights the tokens show: those of the head under the pointer or the focus, else of the one with the card.
  function look(key = null) {
    const head = [key, chosen].find((each) => each && /^\d+\.\d+$/.test(each));
    looked = head ? head.split(".").map(Number) : null;
    if (last && drawn) drawTokens(last);
  }
  const partAt = (event) => event.target.closest("[data-place]")?.dataset.place;
  for (const kind of ["pointerover", "focusin"]) map.addEventListener(kind, (event) => look(partAt(event)));
  for (const kind of ["pointerleave", "focusout"]) map.addEventListener(kind, () => look());
  map.addEventListener("click", (event) => { if (partAt(event)) { choose(partAt(event)); current = drawn.parts.get(chosen) || current; reachable(); } });

  // One of its buttons is reached by Tab, the others from it by arrow keys.
  let current = null;
  const buttons = () => Array.from(map.querySelectorAll(":is(.lm-part, .lm-next):not([hidden])"));
  function reachable() {
    const all = buttons();
    if (!all.includes(current)) current = drawn.parts.get(chosen) || all[0];
    for (const each of all) put(each, "tabindex", each === current ? 0 : -1);
  }
  map.addEventListener("focusin", (event) => { if (event.target.matches(".lm-part, .lm-next")) { current = event.target; reachable(); } });
  map.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const all = buttons();
    const from = all.indexOf(document.activeElement);
    if (from < 0) return;
    const key = all[from].dataset.place;
    if (key && event.key === "Delete" && data.experiments.includes("off")) { event.preventDefault(); toggle(key); return; }
    const to = { ArrowRight: from + 1, ArrowDown: from + 1, ArrowLeft: from - 1, ArrowUp: from - 1, Home: 0, End: all.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    all[clamp(to, 0, all.length - 1)].focus();
  });

  return { element, draw, show: (key) => { chosen = key; show(key); } };
}
