// Small live cells: a few controls, a drawing, a sentence. Each lever says which controls it has and what is
// seen for their values; the rest is the same for all.
(() => {
  const { make, clamp, plain, followTheme, select, slider, check, toldTo, nowAndSoon, speaker } = liveControls();
  const range = (n) => Array.from({ length: n }, (_, i) => i);
  const sum = (values) => values.reduce((total, one) => total + one, 0);
  const number = (key, label, min, max, step, value, words = (one) => plain(one, step % 1 ? 2 : 0)) => ({ key, label, min, max, step, value, words });
  const grouped = (value) => Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",");

  const inWords = (value) => {
    const [size, name] = [[1e15, " quadrillion"], [1e12, " trillion"], [1e9, " billion"], [1e6, " million"]].find(([each]) => value >= each) || [1, ""];
    return `${plain(value / size, name ? 2 : 0)}${name}`;
  };

  // The levers: `controls` of the options, and `see` of values and options: a drawing, and words.
  const levers = {
    softmax: {
      controls: ({ scores, labels, temperature }) => [number("temperature", "Temperature", 0.1, 5, 0.1, temperature),
        ...scores.map((score, i) => number(`s${i}`, `Score of ${labels[i]}`, -4, 4, 0.1, score))],
      see: (values, { scores, labels }) => {
        const raised = scores.map((_, i) => values[`s${i}`] / values.temperature);
        const most = Math.max(...raised);
        const shares = raised.map((one) => Math.exp(one - most));
        const p = shares.map((one) => one / sum(shares));
        const entropy = -sum(p.map((one) => (one > 0 ? one * Math.log(one) : 0)));
        return { chart: "bars", names: labels, series: [["weight", p]], low: 0, high: 1,
          words: `${labels[p.indexOf(Math.max(...p))]} gets ${plain(Math.max(...p))}; entropy ${plain(entropy)} nats, which is as uncertain as an even choice among ${plain(Math.exp(entropy), 1)}.` };
      },
    },
    sinusoids: {
      controls: ({ position, reach }) => [number("position", "Position", 0, reach, 1, position), number("offset", "Offset", -reach, reach, 1, 4)],
      see: ({ position, offset }, { d, base, reach }) => {
        const encoding = (p) => range(d / 2).flatMap((i) => [Math.sin(p * base ** (-2 * i / d)), Math.cos(p * base ** (-2 * i / d))]);
        const own = encoding(position);
        const similarity = (k) => sum(encoding(position + k).map((one, i) => one * own[i])) / (d / 2);
        const curve = range(2 * reach + 1).map((i) => similarity(i - reach));
        return { chart: "lines", from: -reach, series: [["similarity", curve]], mark: offset, low: -1, high: 1, axis: "offset",
          words: `The encodings of positions ${position} and ${position + offset} have similarity ${plain(similarity(offset))}. Move the position: the curve stays.` };
      },
    },
    rotation: {
      controls: ({ query, key, reach }) => [number("query", "Position of the query", 0, reach, 1, query), number("key", "Position of the key", 0, reach, 1, key), number("turn", "Angle a position, degrees", 0, 90, 1, 20)],
      see: ({ query, key, turn }) => {
        const at = (p) => [Math.cos(p * turn * Math.PI / 180), Math.sin(p * turn * Math.PI / 180)];
        const [q, k] = [at(query), at(key)];
        const score = q[0] * k[0] + q[1] * k[1];
        return { chart: "plane", arrows: [["query", q], ["key", k]],
          words: `Query and key were the same arrow. Turned by their positions they stand ${Math.abs(query - key) * turn} degrees apart: score ${plain(score)}. Move both by the same number of positions: the score stays.` };
      },
    },
    mask: {
      controls: ({ n, window, padding }) => [{ key: "causal", label: "Nobody looks ahead", checked: true }, number("window", "Keys that a query sees at most", 1, n, 1, window), number("padding", "Padded tokens at the end", 0, n - 1, 1, padding)],
      see: ({ causal, window, padding }, { n }) => {
        const allowed = range(n).map((q) => range(n).map((k) => +((!causal || k <= q) && Math.abs(q - k) < window && k < n - padding)));
        const count = sum(allowed.flat());
        const none = allowed.filter((row) => !sum(row)).length;
        return { chart: "matrix", cells: allowed, words: `${count} of ${n * n} pairs are allowed.${none ? ` ${none === 1 ? "One query sees" : `${none} queries see`} nothing: the softmax would divide by zero.` : ` The last query sees ${sum(allowed[n - 1])} keys.`}` };
      },
    },
    norm: {
      controls: ({ vector, norm }) => [{ key: "norm", label: "Norm", options: [["layer", "LayerNorm"], ["rms", "RMSNorm"]], value: norm }, number("shift", "Add to all entries", -5, 5, 0.1, 0), number("scale", "Multiply all entries by", 0.1, 5, 0.1, 1), ...vector.map((one, i) => number(`x${i}`, `Entry ${i}`, -5, 5, 0.1, one))],
      see: (values, { vector, eps }) => {
        const x = vector.map((_, i) => values.scale * values[`x${i}`] + values.shift);
        const mean = values.norm === "layer" ? sum(x) / x.length : 0;
        const scale = Math.sqrt(sum(x.map((one) => (one - mean) ** 2)) / x.length + eps);
        const y = x.map((one) => (one - mean) / scale);
        return { chart: "bars", names: range(x.length).map(String), series: [["before", x], ["after", y]],
          words: `${values.norm === "layer" ? `The mean ${plain(mean)} is taken off; what` : "What"} is left is divided by ${plain(scale)}. Adding to all entries ${values.norm === "layer" ? "changes nothing after a LayerNorm" : "does change what comes after an RMSNorm"}; multiplying changes neither.` };
      },
    },
    schedule: {
      controls: ({ schedule, warmup, steps }) => [{ key: "schedule", label: "Schedule", options: [["cosine", "warm-up, then cosine"], ["linear", "warm-up, then linear"], ["root", "warm-up, then 1/\u221astep"]], value: schedule }, number("warmup", "Steps of warm-up", 1, steps - 1, 1, warmup), number("at", "Look at step", 0, steps - 1, 1, Math.floor(steps / 2))],
      see: ({ schedule, warmup, at }, { steps }) => {
        const factor = (step) => {
          if (step < warmup) return (step + 1) / warmup;
          const done = clamp((step - (warmup - 1)) / (steps - (warmup - 1)), 0, 1);
          return { cosine: 0.5 * (1 + Math.cos(Math.PI * done)), linear: 1 - done, root: Math.sqrt(warmup / (step + 1)) }[schedule];
        };
        const curve = range(steps).map(factor);
        return { chart: "lines", from: 0, series: [["share of the highest rate", curve]], mark: at, low: 0, high: 1, axis: "step",
          words: `At step ${at} the rate is ${plain(curve[at])} of its highest. Over all ${steps} steps it is ${plain(sum(curve) / steps)} on average.` };
      },
    },
    cache: {
      controls: ({ tokens, layers, heads, width, bytes }) => [number("tokens", "Tokens read and written", 1, 8192, 1, tokens, grouped), number("layers", "Layers", 1, 64, 1, layers), number("groups", "Heads of keys and values", 1, heads, 1, heads), number("width", "Width of a head", 8, 256, 8, width), { key: "bytes", label: "A number takes", options: [[4, "4 bytes"], [2, "2 bytes"], [1, "1 byte"]], value: bytes }],
      see: ({ tokens, layers, groups, width, bytes }, { heads }) => {
        const size = (some) => (2 * tokens * layers * some * width * Number(bytes)) / 1e6;
        return { chart: "bars", names: ["as chosen", `all ${heads} heads`, "one head"], series: [["megabytes", [size(groups), size(heads), size(1)]]], low: 0,
          words: `2 \u00d7 ${grouped(tokens)} \u00d7 ${layers} \u00d7 ${groups} \u00d7 ${width} numbers take ${plain(size(groups), 1)} MB. Without the cache, each new token would read all ${grouped(tokens)} again.` };
      },
    },
    count: {
      controls: ({ d, layers, heads, groups, width, neurons, gate, vocab, tied, tokens }) => [number("d", "Width of the stream", 64, 16384, 64, d, grouped), number("layers", "Blocks", 1, 128, 1, layers), number("heads", "Heads of queries", 1, 128, 1, heads), number("groups", "Heads of keys and values", 1, 128, 1, groups), number("width", "Width of a head", 8, 256, 8, width), number("neurons", "Neurons of a network", 64, 65536, 64, neurons, grouped), { key: "gate", label: "Networks have a gate", checked: gate }, number("vocab", "Tokens in the vocabulary", 256, 262144, 1, vocab, grouped), { key: "tied", label: "One matrix embeds and unembeds", checked: tied }, number("tokens", "Tokens read at once", 1, 131072, 1, tokens, grouped)],
      see: ({ d, layers, heads, groups, width, neurons, gate, vocab, tied, tokens }) => {
        const shared = Math.min(groups, heads);
        const attention = layers * 2 * d * width * (heads + shared);
        const network = layers * (gate ? 3 : 2) * d * neurons;
        const held = [attention, network, vocab * d * (tied ? 1 : 2)];
        const done = [2 * tokens * attention + 4 * layers * tokens * tokens * heads * width, 2 * tokens * network, 2 * tokens * vocab * d];
        const [all, work] = [sum(held) + (2 * layers + 1) * d, sum(done)];
        return { chart: "bars", names: ["attention", "networks", "embeddings"], low: 0, high: 1,
          series: [["share of the parameters", held.map((one) => one / all)], ["share of the operations", done.map((one) => one / work)]],
          words: `${inWords(all)} parameters; the networks have ${plain(network / attention, 1)} times those of attention. Reading ${grouped(tokens)} tokens takes ${inWords(work)} operations, ${plain(work / tokens / all, 1)} a token for each parameter.${heads % shared ? ` But ${heads} heads of queries cannot share ${shared} heads of keys and values evenly.` : ""}` };
      },
    },
  };

  // Drawing, in SVG ---------------------------------------------------------------------------------

  const svg = (name, attributes, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const [wide, tall, left, bottom] = [480, 220, 44, 26];
  const text = (x, y, words, anchor = "middle") => svg("text", { x, y, "text-anchor": anchor }, words);
  const scaled = ({ low, high, series }) => {
    const all = series.flatMap(([, values]) => values);
    const [least, most] = [low ?? Math.min(0, ...all), high ?? Math.max(0, ...all)];
    const y = (value) => 10 + (1 - (value - least) / (most - least || 1)) * (tall - bottom - 10);
    return { y, frame: [text(left - 6, y(most) + 5, plain(most, Math.abs(most) < 100 ? 1 : 0), "end"), text(left - 6, y(least) + 4, plain(least, Math.abs(least) < 100 ? 1 : 0), "end"), svg("line", { x1: left, x2: wide, y1: y(0), y2: y(0), class: "lm-axis" })] };
  };
  const charts = {
    bars(seen) {
      const { y, frame } = scaled(seen);
      const step = (wide - left) / seen.names.length;
      const each = (step * 0.7) / seen.series.length;
      const drawn = seen.series.flatMap(([name, values], s) => values.map((value, i) => svg("rect", { x: left + step * (i + 0.15) + s * each, width: each * 0.94, y: Math.min(y(value), y(0)), height: Math.max(0.5, Math.abs(y(value) - y(0))), class: s ? "lm-b" : "lm-a" }, svg("title", {}, `${seen.names[i]}, ${name}: ${plain(value)}`))));
      return [...frame, ...drawn, ...seen.names.map((name, i) => text(left + step * (i + 0.5), tall - 6, name))];
    },
    lines(seen) {
      const { y, frame } = scaled(seen);
      const count = seen.series[0][1].length;
      const x = (i) => left + (i / Math.max(1, count - 1)) * (wide - left - 8);
      const at = clamp(seen.mark - seen.from, 0, count - 1);
      const value = seen.series[0][1][at];
      return [...frame, ...seen.series.map(([, values], s) => svg("polyline", { points: values.map((one, i) => `${x(i).toFixed(1)},${y(one).toFixed(1)}`).join(" "), class: s ? "lm-line lm-b" : "lm-line lm-a" })),
        svg("circle", { cx: x(at), cy: y(value), r: 6, class: "lm-b" }), text(left, tall - 6, plain(seen.from, 0), "start"), text((left + wide) / 2, tall - 6, seen.axis), text(wide - 8, tall - 6, plain(seen.from + count - 1, 0), "end")];
    },
    matrix(seen) {
      const n = seen.cells.length;
      const cell = (tall - 30) / n;
      const from = (wide - n * cell) / 2;
      return [...seen.cells.flatMap((row, q) => row.map((one, k) => svg("rect", { x: from + k * cell, y: 4 + q * cell, width: cell - 1.5, height: cell - 1.5, class: one ? "lm-a" : "lm-empty" }))), text(wide / 2, tall - 8, "key \u2192"), text(from - 8, 4 + (n * cell) / 2, "query \u2193", "end")];
    },
    plane(seen) {
      const [cx, cy, r] = [wide / 2, tall / 2, tall / 2 - 34];
      return [svg("circle", { cx, cy, r, class: "lm-round" }), ...seen.arrows.flatMap(([name, [x, y]], s) => [svg("line", { x1: cx, y1: cy, x2: cx + r * x, y2: cy - r * y, class: s ? "lm-line lm-b lm-dashed" : "lm-line lm-a" }), svg("circle", { cx: cx + r * x, cy: cy - r * y, r: s ? 5 : 7, class: s ? "lm-b" : "lm-a" }), text(cx + (r + 34) * x, cy - (r + 22) * y + 5, name)])];
    },
  };

  function start(root) {
    const own = toldTo(root, "lm-lever");
    if (!own || root.live) return;
    root.live = true;
    root.querySelector(".lm-live")?.remove(); // of a page that was saved with it
    const { kind, options, title } = JSON.parse(own.textContent);
    const lever = levers[kind];
    const [status, say] = speaker();
    const values = {};
    const told = lever.controls(options).map((control) => {
      const { key, label } = control;
      if (control.options) {
        const [box, field] = select(label, control.options, control.value);
        values[key] = () => field.value;
        return box;
      }
      if (control.checked !== undefined) {
        const [box, field] = check(label, key, control.checked);
        values[key] = () => field.checked;
        return box;
      }
      const [box, field] = slider(label, control, control.words);
      values[key] = () => Number(field.value);
      return box;
    });
    const readout = make("p", { class: "lm-readout" });
    const drawing = svg("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", class: "lm-chart" });
    const legend = make("p", { class: "lm-note" });
    const box = make("div", { class: "lm-live", role: "group", "aria-label": title }, make("div", { class: "lm-cell" }, make("div", { class: "lm-levers" }, ...told), make("div", {}, drawing, legend)), readout, status);
    const draw = (heard) => {
      const seen = lever.see(Object.fromEntries(Object.entries(values).map(([key, value]) => [key, value()])), options);
      drawing.replaceChildren(...charts[seen.chart](seen));
      drawing.setAttribute("aria-label", seen.words);
      readout.textContent = seen.words;
      legend.replaceChildren(...(seen.series || []).flatMap(([name], s) => [make("span", { class: s ? "lm-key-b" : "lm-key-a", "aria-hidden": "true" }, "\u25a0 "), `${name}   `]));
      root.seen = seen; // for who asks
      if (heard) say(seen.words);
    };
    box.addEventListener("input", () => draw(true));
    root.prepend(box);
    root.dataset.live = "";
    followTheme(box);
    draw(false);
  }

  nowAndSoon(() => document.querySelectorAll('.live-model[data-kind="lever"]').forEach(start));
})();
