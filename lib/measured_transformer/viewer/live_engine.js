// A Transformer over typed arrays: what `Decoder` computes, one sentence at a time, to within rounding.
//
// Every tap is one array of rows, a row a position: (position, head, width) where it has heads, else
// (position, width). What a run has computed for the tokens at the beginning of a text stays as it is when the
// text goes on otherwise, because no position sees a later one: only rows from the first changed token on are
// computed again. The same function runs in a worker and in the page.
//
// n: tokens; D: width of the stream; H: heads; G: heads of keys and values; E: width of a head; V: vocabulary.
function liveEngine() {
  // Vector instructions ----------------------------------------------------------------------------

  const kernels = new WeakMap(); // memory with weights -> the product with them

  // The product as a WebAssembly module, product(y, x, weight, inputs, outputs, rows), which computes four rows
  // and two outputs at a time, four inputs in each instruction. All but the counts are addresses in bytes.
  function module() {
    const unsigned = (n) => (n < 128 ? [n] : [(n & 127) | 128, ...unsigned(n >> 7)]);
    const section = (id, ...content) => [id, ...unsigned(content.flat(Infinity).length), ...content.flat(Infinity)];
    const [int, vector, nothing, end] = [0x7f, 0x7b, 0x40, 0x0b];
    const get = (name) => [0x20, locals.indexOf(name)];
    const set = (name, ...value) => [value, 0x21, locals.indexOf(name)];
    const constant = (n) => [0x41, n]; // up to 63
    const [plus, times, shifted] = [0x6a, 0x6c, 0x74];
    const advance = (name, by) => set(name, get(name), by, plus);
    const loop = (name, limit, step, ...body) => [set(name, constant(0)), 0x03, nothing, body, advance(name, step),
      get(name), limit, 0x49, 0x0d, 0, end]; // again while it is below the limit
    const load = (...address) => [address, 0xfd, 0x00, 4, 0];
    const lane = (name, i) => [get(name), 0xfd, 0x1f, i];
    const [vectorPlus, vectorTimes, floatPlus] = [[0xfd, 0xe4, 1], [0xfd, 0xe6, 1], 0x92];
    const sums = ["s00", "s01", "s10", "s11", "s20", "s21", "s30", "s31"]; // row, output
    const ints = ["y", "x", "weight", "inputs", "outputs", "rows", "width", "o", "t", "i", "row", "at"];
    const locals = [...ints, "a", "b", "v", ...sums];
    const body = [
      set("width", get("inputs"), constant(2), shifted), // of a row of x and of the weights, in bytes
      loop("o", get("outputs"), constant(2),
        set("row", get("x")),
        set("at", get("y"), get("o"), constant(2), shifted, plus),
        loop("t", get("rows"), constant(4),
          sums.map((sum) => set(sum, 0xfd, 0x0c, new Array(16).fill(0))),
          loop("i", get("width"), constant(16),
            set("a", load(get("weight"), get("i"), plus)),
            set("b", load(get("weight"), get("width"), plus, get("i"), plus)),
            [0, 1, 2, 3].map((r) => [
              set("v", load(get("row"), get("i"), plus, get("width"), constant(r), times, plus)),
              set(`s${r}0`, get(`s${r}0`), get("v"), get("a"), vectorTimes, vectorPlus),
              set(`s${r}1`, get(`s${r}1`), get("v"), get("b"), vectorTimes, vectorPlus)])),
          [0, 1, 2, 3].map((r) => [
            [0, 1].map((c) => [get("at"), [0, 1, 2, 3].map((k) => [lane(`s${r}${c}`, k), k ? floatPlus : []]), 0x38, 2, 4 * c]),
            advance("at", [get("outputs"), constant(2), shifted])]),
          advance("row", [get("width"), constant(2), shifted])),
        advance("weight", [get("width"), constant(1), shifted])),
      end];
    const code = [2, unsigned(6), int, unsigned(locals.length - ints.length), vector, body].flat(Infinity);
    return Uint8Array.from([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
      ...section(1, 1, 0x60, 6, new Array(6).fill(int), 0), // a function of six whole numbers
      ...section(2, 1, 1, 0x6d, 1, 0x6d, 2, 0, 1), // that uses a memory from outside, "m.m"
      ...section(3, 1, 0),
      ...section(7, 1, 1, 0x70, 0, 0), // called "p"
      ...section(10, 1, unsigned(code.length), code)]);
  }

  // Arrays for that many weights, and a kernel for products with them; arrays alone where a page may not have one.
  function weightStore(count, room, widest) {
    try {
      const bytes = 4 * count + 4 * 2 * (room + 4) * widest + 64 * 1024;
      const memory = new WebAssembly.Memory({ initial: Math.ceil(bytes / 65536) });
      const { p } = new WebAssembly.Instance(new WebAssembly.Module(module()), { m: { m: memory } }).exports;
      let at = 0;
      const take = (numbers) => {
        const found = new Float32Array(memory.buffer, at, numbers);
        at += 16 * Math.ceil(numbers / 4);
        return found;
      };
      const [x, y] = [take((room + 4) * widest), take((room + 4) * widest)];
      kernels.set(memory.buffer, (into, from, weight, bias, inputs, outputs, first, n) => {
        const rows = n - first;
        x.set(from.subarray(first * inputs, n * inputs));
        p(y.byteOffset, x.byteOffset, weight.byteOffset, inputs, outputs, 4 * Math.ceil(rows / 4));
        if (!bias) into.set(y.subarray(0, rows * outputs), first * outputs);
        for (let t = 0; bias && t < rows; t += 1) {
          for (let o = 0; o < outputs; o += 1) into[(first + t) * outputs + o] = y[t * outputs + o] + bias[o];
        }
      });
      return take;
    } catch {
      return (numbers) => new Float32Array(numbers);
    }
  }

  // Parts ------------------------------------------------------------------------------------------

  // y = x W' + b for the rows from `from` to `n`; W is (output, input), as in PyTorch. Two rows of x and four
  // of W at a time: every number that is read is used several times. Where the weights lie in the memory of a
  // vector kernel, that computes the product.
  function linear(y, x, weight, bias, inputs, outputs, from, n) {
    const kernel = kernels.get(weight.buffer);
    if (kernel && inputs % 4 === 0 && outputs % 2 === 0) {
      kernel(y, x, weight, bias, inputs, outputs, from, n);
      return;
    }
    for (let o = 0; o < outputs; o += 4) {
      if (o + 4 > outputs) { // the last few outputs, one by one
        for (; o < outputs; o += 1) {
          for (let t = from; t < n; t += 1) {
            let sum = bias ? bias[o] : 0;
            for (let i = 0; i < inputs; i += 1) sum += x[t * inputs + i] * weight[o * inputs + i];
            y[t * outputs + o] = sum;
          }
        }
        return;
      }
      const [w0, w1, w2, w3] = [o * inputs, (o + 1) * inputs, (o + 2) * inputs, (o + 3) * inputs];
      const [b0, b1, b2, b3] = bias ? [bias[o], bias[o + 1], bias[o + 2], bias[o + 3]] : [0, 0, 0, 0];
      for (let t = from; t < n; t += 2) {
        const second = t + 1 < n ? inputs : 0; // a single last row is computed twice
        const a = t * inputs;
        const b = a + second;
        let [p0, p1, p2, p3] = [b0, b1, b2, b3];
        let [q0, q1, q2, q3] = [b0, b1, b2, b3];
        for (let i = 0; i < inputs; i += 1) {
          const p = x[a + i];
          const q = x[b + i];
          const u0 = weight[w0 + i];
          const u1 = weight[w1 + i];
          const u2 = weight[w2 + i];
          const u3 = weight[w3 + i];
          p0 += p * u0; p1 += p * u1; p2 += p * u2; p3 += p * u3;
          q0 += q * u0; q1 += q * u1; q2 += q * u2; q3 += q * u3;
        }
        const at = t * outputs + o;
        y[at] = p0; y[at + 1] = p1; y[at + 2] = p2; y[at + 3] = p3;
        if (second) {
          const next = at + outputs;
          y[next] = q0; y[next + 1] = q1; y[next + 2] = q2; y[next + 3] = q3;
        }
      }
    }
  }

  // The error function, to 1.5e-7 (Abramowitz and Stegun, 7.1.26).
  function erf(x) {
    const t = 1 / (1 + 0.3275911 * Math.abs(x));
    const tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    const value = 1 - tail * Math.exp(-x * x);
    return x < 0 ? -value : value;
  }
  const gelu = (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2));
  const geluTanh = (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
  const silu = (x) => x / (1 + Math.exp(-x));
  const relu = (x) => (x > 0 ? x : 0);
  const activations = {
    relu, gelu, gelu_tanh: geluTanh, silu, gelu_sigmoid: (x) => x / (1 + Math.exp(-1.702 * x)),
    reglu: relu, geglu: gelu, geglu_tanh: geluTanh, swiglu: silu,
  };

  // In place: numbers to probabilities.
  function softmax(row) {
    let most = -Infinity;
    for (let i = 0; i < row.length; i += 1) if (row[i] > most) most = row[i];
    let sum = 0;
    for (let i = 0; i < row.length; i += 1) sum += row[i] = Math.exp(row[i] - most);
    for (let i = 0; i < row.length; i += 1) row[i] /= sum;
    return row;
  }

  // A norm by its name in the model; `scale` is what the centred row is divided by.
  function norm(model, name, x, run, how, from, n, tap) {
    const { D, config, weights } = model;
    const y = rows(run, `${name} read`, D);
    if (config.norm === "none") {
      y.set(x.subarray(from * D, n * D), from * D);
      return y;
    }
    const scale = rows(run, `${name}.scale`, 1);
    const centred = config.norm !== "rms" && !how.switches.includes("mean");
    const [gain, shift] = [weights[`${name}.weight`], weights[`${name}.bias`]];
    for (let t = from; t < n; t += 1) {
      let mean = 0;
      if (centred) for (let i = 0; i < D; i += 1) mean += x[t * D + i] / D;
      let square = 0;
      for (let i = 0; i < D; i += 1) {
        const value = x[t * D + i] - mean;
        y[t * D + i] = value;
        square += value * value;
      }
      scale[t] = Math.sqrt(square / D + config.eps);
    }
    tap(`${name}.scale`);
    for (let t = from; t < n; t += 1) {
      for (let i = 0; i < D; i += 1) {
        const value = (y[t * D + i] / scale[t]) * (gain ? gain[i] + config.offset : 1);
        y[t * D + i] = shift ? value + shift[i] : value;
      }
    }
    return y;
  }

  // Rotary positions: the first `turned` entries of each head, pair by pair.
  function rotate(y, x, heads, model, how, from, n) {
    const { config, E } = model;
    const { base, turned, halves } = config.rotary;
    const pairs = turned / 2;
    for (let t = from; t < n; t += 1) {
      const position = how.switches.includes("positions") ? 0 : t;
      for (let pair = 0; pair < pairs; pair += 1) {
        const angle = position * base ** (-pair / pairs);
        const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
        const [one, two] = halves ? [pair, pair + pairs] : [2 * pair, 2 * pair + 1];
        for (let h = 0; h < heads; h += 1) {
          const at = (t * heads + h) * E;
          const [a, b] = [x[at + one], x[at + two]];
          y[at + one] = a * cos - b * sin;
          y[at + two] = a * sin + b * cos;
        }
      }
      for (let h = 0; h < heads; h += 1) {
        for (let i = turned; i < E; i += 1) y[(t * heads + h) * E + i] = x[(t * heads + h) * E + i];
      }
    }
  }

  // What attention adds to the stream.
  function attend(model, name, read, run, how, from, n, tap) {
    const { D, H, G, E, config, weights } = model;
    const project = (part, what, heads) => {
      const y = rows(run, `${name}.${what}`, heads * E);
      linear(y, read, weights[`${name}.${part}.weight`], weights[`${name}.${part}.bias`], D, heads * E, from, n);
      return tap(`${name}.${what}`);
    };
    let queries = project("query", "queries", H);
    let keys = project("key", "keys", G);
    const values = project("value", "values", G);
    if (config.rotary) {
      const turned = [["rotated_queries", queries, H], ["rotated_keys", keys, G]].map(([what, x, heads]) => {
        rotate(rows(run, `${name}.${what}`, heads * E), x, heads, model, how, from, n);
        return tap(`${name}.${what}`);
      });
      [queries, keys] = turned;
    }
    const scale = how.switches.includes("scale") ? 1 : config.scale;
    const room = run.room;
    const seesAll = how.switches.includes("mask");
    const scores = rows(run, `${name}.scores`, H * room);
    for (let q = from; q < n; q += 1) {
      for (let h = 0; h < H; h += 1) {
        const [ask, group] = [(q * H + h) * E, Math.floor((h * G) / H)];
        const slope = config.slopes && !how.switches.includes("positions") ? config.slopes[h] : 0;
        for (let k = 0; k < (seesAll ? n : q + 1); k += 1) {
          const key = (k * G + group) * E;
          let sum = 0;
          for (let i = 0; i < E; i += 1) sum += queries[ask + i] * keys[key + i];
          scores[(q * H + h) * room + k] = sum * scale - slope * Math.abs(q - k);
        }
      }
    }
    tap(`${name}.scores`);
    const pattern = rows(run, `${name}.pattern`, H * room);
    for (let q = from; q < n; q += 1) {
      const seen = seesAll ? n : q + 1;
      for (let h = 0; h < H; h += 1) {
        const at = (q * H + h) * room;
        pattern.set(scores.subarray(at, at + seen), at);
        pattern.fill(0, at + seen, at + room);
        softmax(pattern.subarray(at, at + seen));
      }
    }
    tap(`${name}.pattern`);
    const mixed = rows(run, `${name}.mixed`, H * E);
    mixed.fill(0, from * H * E, n * H * E);
    for (let q = from; q < n; q += 1) {
      for (let h = 0; h < H; h += 1) {
        const [to, group] = [(q * H + h) * E, Math.floor((h * G) / H)];
        for (let k = 0; k < n; k += 1) {
          const weight = pattern[(q * H + h) * room + k];
          if (weight === 0) continue;
          const value = (k * G + group) * E;
          for (let i = 0; i < E; i += 1) mixed[to + i] += weight * values[value + i];
        }
      }
    }
    tap(`${name}.mixed`);
    const out = rows(run, `${name}.out`, D);
    const bias = weights[`${name}.output.bias`];
    if (how.changes.some((change) => change.tap === `${name}.head_outputs`)) {
      const each = headOutputs(model, name, run, from, n);
      tap(`${name}.head_outputs`);
      for (let t = from; t < n; t += 1) {
        for (let i = 0; i < D; i += 1) {
          let sum = bias ? bias[i] : 0;
          for (let h = 0; h < H; h += 1) sum += each[(t * H + h) * D + i];
          out[t * D + i] = sum;
        }
      }
    } else {
      linear(out, mixed, weights[`${name}.output.weight`], bias, H * E, D, from, n);
    }
    return tap(`${name}.out`);
  }

  // What each head adds by itself: (position, head, D).
  function headOutputs(model, name, run, from, n) {
    const { D, H, E, weights } = model;
    const [mixed, weight] = [run.taps[`${name}.mixed`], weights[`${name}.output.weight`]];
    const each = rows(run, `${name}.head_outputs`, H * D);
    for (let t = from; t < n; t += 1) {
      for (let h = 0; h < H; h += 1) {
        for (let i = 0; i < D; i += 1) {
          let sum = 0;
          for (let e = 0; e < E; e += 1) sum += mixed[(t * H + h) * E + e] * weight[i * H * E + h * E + e];
          each[(t * H + h) * D + i] = sum;
        }
      }
    }
    return each;
  }

  // What the feed-forward network adds to the stream.
  function feedForward(model, name, read, run, how, from, n, tap) {
    const { D, F, config, weights } = model;
    const activate = activations[config.activation];
    const before = rows(run, `${name}.pre_activation`, F);
    const gated = weights[`${name}.gate.weight`];
    const first = gated ? "gate" : "up";
    linear(before, read, weights[`${name}.${first}.weight`], weights[`${name}.${first}.bias`], D, F, from, n);
    tap(`${name}.pre_activation`);
    const neurons = rows(run, `${name}.neurons`, F);
    if (gated) linear(neurons, read, weights[`${name}.up.weight`], weights[`${name}.up.bias`], D, F, from, n);
    for (let i = from * F; i < n * F; i += 1) neurons[i] = activate(before[i]) * (gated ? neurons[i] : 1);
    tap(`${name}.neurons`);
    const out = rows(run, `${name}.out`, D);
    linear(out, neurons, weights[`${name}.down.weight`], weights[`${name}.down.bias`], F, D, from, n);
    return tap(`${name}.out`);
  }

  // The whole pass ---------------------------------------------------------------------------------

  const newRun = (room) => ({ room, tokens: [], taps: {}, lens: {} });

  // The array of a tap, made when it is first asked for.
  function rows(run, name, width) {
    if (!run.taps[name]) run.taps[name] = new Float32Array(run.room * width);
    return run.taps[name];
  }

  const whole = { changes: [], switches: [] };

  // Runs the model. `how` has the changes at taps, in their order, and the switches; `run` an earlier run with the same `how`.
  function forward(model, tokens, how = whole, run = newRun(model.room), start = null, unembedded = true) {
    const { D, L, V, config, weights } = model;
    const n = tokens.length;
    let from = 0;
    if (!how.switches.includes("mask")) {
      while (from < n && from < run.tokens.length && run.tokens[from] === tokens[from]) from += 1;
    }
    run.tokens = Array.from(tokens);
    run.from = from;
    const tap = (name) => {
      for (const change of how.changes) if (change.tap === name) apply(change, run.taps[name], run.room, from, n);
      return run.taps[name];
    };
    const copy = (name, x) => {
      rows(run, name, D).set(x.subarray(from * D, n * D), from * D);
      return tap(name);
    };
    const add = (name, x, written, normed) => {
      const y = rows(run, name, D);
      for (let i = from * D; i < n * D; i += 1) y[i] = x[i] + written[i];
      if (config.placement === "post") y.set(norm(model, normed, y, run, how, from, n, tap).subarray(from * D, n * D), from * D);
      return tap(name);
    };
    const before = (normed, x) => (config.placement === "post" ? x : norm(model, normed, x, run, how, from, n, tap));

    let x;
    if (start) {
      x = start.state;
    } else {
      x = rows(run, "embedding", D);
      const [table, positions] = [weights["token_embedding.weight"], weights.positions];
      for (let t = from; t < n; t += 1) {
        const position = how.switches.includes("positions") ? 0 : t;
        for (let i = 0; i < D; i += 1) {
          x[t * D + i] = config.embedding * table[tokens[t] * D + i] + (positions ? positions[position * D + i] : 0);
        }
      }
      x = tap("embedding");
    }
    for (let layer = start ? start.depth : 0; layer < L; layer += 1) {
      const name = `blocks.${layer}`;
      x = copy(`${name}.residual_pre`, x);
      let written = attend(model, `${name}.attention`, before(`${name}.attention_norm`, x), run, how, from, n, tap);
      x = add(`${name}.residual_mid`, x, written, `${name}.attention_norm`);
      written = feedForward(model, `${name}.feedforward`, before(`${name}.feedforward_norm`, x), run, how, from, n, tap);
      x = add(`${name}.residual_post`, x, written, `${name}.feedforward_norm`);
    }
    const state = config.finalNorm ? norm(model, "final_norm", x, run, how, from, n, tap) : x;
    const last = copy("final_state", state);
    if (!unembedded) return run;
    const logits = rows(run, "logits", V);
    unembed(model, logits, last, from, n);
    tap("logits");
    return run;
  }

  function unembed(model, logits, state, from, n) {
    const { D, V, config, weights } = model;
    linear(logits, state, weights["unembedding.weight"], weights["unembedding.bias"], D, V, from, n);
    if (config.logitScale !== 1) for (let i = from * V; i < n * V; i += 1) logits[i] *= config.logitScale;
  }

  // Replaces, or adds to, what passed a tap: at all positions or one, of all heads or one. A replacement is an
  // array of rows like the tap's: row p for position p, or the row that is told. None of it: zeros.
  function apply({ tap, head, heads, position, row, values, last, dose }, x, room, from, n) {
    const width = x.length / room;
    const [begin, end] = head === undefined || head === null ? [0, width] : [head * width / heads, (head + 1) * width / heads];
    const upTo = Math.min(n, last === undefined ? n : last);
    for (let t = from; t < upTo; t += 1) {
      if (position !== undefined && position !== null && t !== position) continue;
      const source = (row === undefined || row === null ? t : row) * width;
      for (let i = begin; i < end; i += 1) {
        if (dose === undefined) x[t * width + i] = values ? values[source + i] : 0;
        else x[t * width + i] += dose * values[i];
      }
    }
  }

  // Experiments ------------------------------------------------------------------------------------

  const fail = (message) => { throw new Error(message); };
  const depthTap = (depth) => (depth ? `blocks.${depth - 1}.residual_post` : "embedding");
  const headsAt = (model, tap) => {
    const what = tap.split(".").pop();
    if (/(keys|values)$/.test(what)) return model.G;
    return /(queries|scores|pattern|mixed|head_outputs)$/.test(what) ? model.H : 1;
  };

  // The names of all taps, in the order in which they are passed.
  function tapNames(model) {
    const { config, L } = model;
    const scales = (name) => (config.norm === "none" ? [] : [`${name}.scale`]);
    const attention = ["queries", "keys", "values", ...(config.rotary ? ["rotated_queries", "rotated_keys"] : []),
      "scores", "pattern", "mixed", "head_outputs", "out"];
    const names = ["embedding"];
    for (let layer = 0; layer < L; layer += 1) {
      const at = `blocks.${layer}`;
      const norms = [scales(`${at}.attention_norm`), scales(`${at}.feedforward_norm`)];
      const post = config.placement === "post";
      names.push(`${at}.residual_pre`, ...(post ? [] : norms[0]), ...attention.map((one) => `${at}.attention.${one}`),
        ...(post ? norms[0] : []), `${at}.residual_mid`, ...(post ? [] : norms[1]),
        ...["pre_activation", "neurons", "out"].map((one) => `${at}.feedforward.${one}`),
        ...(post ? norms[1] : []), `${at}.residual_post`);
    }
    return [...names, ...(config.finalNorm ? scales("final_norm") : []), "final_state", "logits"];
  }

  // A run of the whole model on a text that stands in for another.
  function donor(model, tokens) {
    const key = tokens.join();
    const known = model.donors;
    if (!known.has(key)) {
      if (known.size > 12) known.delete(known.keys().next().value);
      known.set(key, forward(model, tokens));
    }
    return known.get(key);
  }

  // What is taken off, as taps: "1.2" a head, "1.n" a network, "1.b" a block.
  function offTaps(off) {
    return off.flatMap((place) => {
      const [layer, what] = place.split(".");
      const name = `blocks.${layer}`;
      if (what === "n") return [{ tap: `${name}.feedforward.out` }];
      if (what === "b") return [{ tap: `${name}.attention.out` }, { tap: `${name}.feedforward.out` }];
      return [{ tap: `${name}.attention.mixed`, head: Number(what) }];
    });
  }

  // The changes of an experiment. What stands in for a part is always taken from the whole model.
  // `sentence`: the number of the kept sentence that is changed; none for the reader's own.
  function changesOf(model, experiment, n, sentence = null) {
    const { off = [], instead = "zero", patch = null, steer = null } = experiment;
    const changes = offTaps(off).map((part) => {
      const change = { ...part, heads: headsAt(model, part.tap) };
      if (instead === "zero") return change;
      if (n > model.keptLength) {
        fail(`What stands in is known for the first ${model.keptLength} tokens; the text has ${n}.`);
      }
      if (instead === "mean") return { ...change, values: model.means[part.tap] };
      const count = model.kept.length;
      const which = sentence === null ? experiment.donor || 0 : (sentence + 1) % count;
      return { ...change, values: donor(model, model.kept[which]).taps[part.tap] };
    });
    if (patch) {
      const { tap, head = null, position = null, row = position } = patch;
      const other = patch.tokens;
      const heads = headsAt(model, tap);
      if (!other.length) fail("The second sentence is empty: there is nothing to patch from.");
      const run = donor(model, other);
      if (/head_outputs$/.test(tap)) headOutputs(model, tap.replace(/\.head_outputs$/, ""), run, 0, other.length);
      if (/(scores|pattern)$/.test(tap) && other.length !== n) {
        fail(`Scores and patterns have a column a token: the second sentence needs ${n} tokens too, it has ${other.length}.`);
      }
      if (position !== null && position >= n) fail(`The text has no position ${position}: it has ${n} tokens, 0 to ${n - 1}.`);
      if (row !== null && row >= other.length) fail(`The second sentence has no position ${row}: its last one is ${other.length - 1}. Say from which of its positions to take.`);
      changes.push({ tap, head: heads > 1 ? head : null, heads, position, row, values: run.taps[tap], last: position === null ? other.length : n });
    }
    if (steer && steer.dose) {
      const { towards, away, depth } = steer;
      if (!towards.length || !away.length) fail("Steering needs a text to lead towards and one to lead away from.");
      const { D } = model;
      const ends = [towards, away].map((tokens) => donor(model, tokens).taps[depthTap(depth)]
        .subarray((tokens.length - 1) * D, tokens.length * D));
      changes.push({ tap: depthTap(depth), values: ends[0].map((value, i) => value - ends[1][i]), dose: steer.dose });
    }
    return { changes, switches: experiment.switches || [] };
  }

  const changed = ({ off = [], patch = null, steer = null, switches = [] }) =>
    off.length > 0 || !!patch || !!(steer && steer.dose) || switches.length > 0;

  // What is seen -----------------------------------------------------------------------------------

  const row = (array, at, width) => array.subarray(at * width, (at + 1) * width);
  // The logarithm of the sum of exponentials: what is taken from logits to have log-probabilities.
  function logSum(logits) {
    let [most, sum] = [-Infinity, 0];
    for (let i = 0; i < logits.length; i += 1) if (logits[i] > most) most = logits[i];
    for (let i = 0; i < logits.length; i += 1) sum += Math.exp(logits[i] - most);
    return most + Math.log(sum);
  }
  function chances(logits) {
    const found = new Float64Array(logits.length);
    const sum = logSum(logits);
    for (let i = 0; i < logits.length; i += 1) found[i] = Math.exp(logits[i] - sum);
    return found;
  }
  const highest = (values) => { let best = 0; for (let i = 1; i < values.length; i += 1) if (values[i] > values[best]) best = i; return best; };
  const top = (values, count) => Array.from(values.keys()).sort((a, b) => values[b] - values[a] || a - b).slice(0, count);

  // For each position: the likeliest next token and its probability, and nats that the next one costs. What
  // the last call has found of rows that are as they were is kept.
  function predictions(model, run) {
    const n = run.tokens.length;
    const logits = (t) => row(run.taps.logits, t, model.V);
    const sums = run.sums || (run.sums = []);
    const best = run.best || (run.best = []);
    sums.length = best.length = Math.min(sums.length, run.from);
    for (let t = sums.length; t < n; t += 1) {
      sums.push(logSum(logits(t)));
      best.push(highest(logits(t)));
    }
    const cost = (t, token) => sums[t] - run.taps.logits[t * model.V + token];
    const token = best.slice();
    return { sums, token, chance: token.map((each, t) => Math.exp(-cost(t, each))),
      loss: token.map((_, t) => (t + 1 < n ? cost(t, run.tokens[t + 1]) : NaN)) };
  }

  // By how many nats the predictions of a changed run have moved at a position: KL(before, after).
  const moved = (model, [one, other], [before, after], t) =>
    divergence(row(one.taps.logits, t, model.V), row(other.taps.logits, t, model.V), before.sums[t], after.sums[t]);
  function divergence(one, other, oneSum = logSum(one), otherSum = logSum(other)) {
    let sum = 0;
    for (let i = 0; i < one.length; i += 1) {
      const own = one[i] - oneSum;
      sum += Math.exp(own) * (own - other[i] + otherSum);
    }
    return Math.max(0, sum);
  }

  // The logits that the stream at a depth would give, at the positions told: through the final norm and the
  // unembedding; the tuned lens first translates it, x + W x + b.
  function lens(model, run, how, depth, tuned = false, positions = null) {
    const { D, V } = model;
    const asked = positions || Array.from({ length: run.tokens.length }, (_, t) => t);
    const n = asked.length;
    const pick = (rows, width) => {
      const found = new Float32Array(n * width);
      asked.forEach((t, i) => found.set(row(rows, t, width), i * width));
      return found;
    };
    if (depth === model.L) return pick(run.taps.logits, V);
    const x = pick(run.taps[depthTap(depth)], D);
    if (tuned) {
      const moved = new Float32Array(n * D);
      linear(moved, x, row(model.tuned.weight, depth, D * D), row(model.tuned.bias, depth, D), D, D, 0, n);
      for (let i = 0; i < n * D; i += 1) x[i] += moved[i];
    }
    const state = model.config.finalNorm ? norm(model, "final_norm", x, newRun(n), how, 0, n, () => null) : x;
    const logits = new Float32Array(n * V);
    unembed(model, logits, state, 0, n);
    return logits;
  }

  // The likeliest token at each depth, for the positions told, and its probability.
  function lensOf(model, run, how, positions, tuned) {
    return Array.from({ length: model.L + 1 }, (_, depth) => {
      const logits = lens(model, run, how, depth, tuned, positions);
      return positions.map((_, i) => {
        const own = row(logits, i, model.V);
        const best = highest(own);
        return [best, Math.exp(own[best] - logSum(own))];
      });
    });
  }

  // What each head adds by itself at a position, with the changes at that tap: (head, D).
  function headWrites(model, run, how, layer, position) {
    const name = `blocks.${layer}.attention`;
    const each = headOutputs(model, name, run, position, position + 1);
    for (const change of how.changes) if (change.tap === `${name}.head_outputs`) apply(change, each, run.room, position, position + 1);
    return row(each, position, model.H * model.D);
  }

  // The model at a glance, at a position: how long the stream is at each depth and what would be read from it there;
  // of each part, how long its write is, and how long relative to the stream that it is added to; and the neurons.
  function overview(model, run, how, position) {
    const { D, F, H, L } = model;
    const at = (tap, width = D) => row(run.taps[tap], position, width);
    const length = (vector) => Math.sqrt(vector.reduce((sum, one) => sum + one * one, 0));
    const written = (vector, stream) => ({ length: length(vector), share: length(vector) / stream || 0 });
    const blocks = Array.from({ length: L }, (_, layer) => {
      const name = `blocks.${layer}`;
      const [before, middle, after] = ["pre", "mid", "post"].map((place) => length(at(`${name}.residual_${place}`)));
      const each = headWrites(model, run, how, layer, position);
      return { before, after, heads: Array.from({ length: H }, (_, h) => written(row(each, h, D), before)),
        attention: written(at(`${name}.attention.out`), before), network: written(at(`${name}.feedforward.out`), middle), neurons: at(`${name}.feedforward.neurons`, F).slice() };
    });
    return { embedding: length(at("embedding")), blocks, depths: lensOf(model, run, how, [position], false).map(([one]) => one) };
  }

  // What was added to the stream at a position, part by part: its length, and, where logits are a sum, what it
  // adds to a token's logit (minus the mean over all tokens; the final norm's scale as it is).
  function ledger(model, run, how, position, token) {
    const { D, H, L, V, config, weights } = model;
    const sums = config.placement === "pre";
    const w = weights["unembedding.weight"];
    const read = new Float64Array(D); // the token's row minus the mean row
    for (let i = 0; i < D; i += 1) {
      let mean = 0;
      for (let v = 0; v < V; v += 1) mean += w[v * D + i] / V;
      read[i] = w[token * D + i] - mean;
    }
    const centred = config.finalNorm && config.norm !== "rms" && config.norm !== "none" && !how.switches.includes("mean");
    const scale = config.finalNorm && config.norm !== "none" ? run.taps["final_norm.scale"][position] : 1;
    const gain = weights["final_norm.weight"];
    const entry = (name, vector) => {
      let [square, mean, push] = [0, 0, 0];
      for (let i = 0; i < D; i += 1) { square += vector[i] ** 2; mean += vector[i] / D; }
      for (let i = 0; i < D; i += 1) {
        const through = ((vector[i] - (centred ? mean : 0)) / scale) * (gain ? gain[i] + config.offset : 1);
        push += through * read[i];
      }
      return { name, length: Math.sqrt(square), push: sums ? push * config.logitScale : null };
    };
    const found = [entry("embedding", row(run.taps.embedding, position, D))];
    for (let layer = 0; layer < L; layer += 1) {
      const name = `blocks.${layer}.attention`;
      const each = headWrites(model, run, how, layer, position);
      for (let h = 0; h < H; h += 1) found.push(entry(`${layer}.${h}`, row(each, h, D)));
      // What is left of attention: its bias, and what a change put in its place.
      const rest = Float64Array.from(row(run.taps[`${name}.out`], position, D));
      for (let h = 0; h < H; h += 1) for (let i = 0; i < D; i += 1) rest[i] -= each[h * D + i];
      found.push(entry(`${layer}.a`, rest));
      found.push(entry(`${layer}.n`, row(run.taps[`blocks.${layer}.feedforward.out`], position, D)));
    }
    return { parts: found, stream: entry("stream", row(run.taps[depthTap(L)], position, D)) };
  }

  // One head's pattern, or weight times the length of what the head makes of the token that is looked at.
  function patternOf(model, run, layer, head, weighted) {
    const { D, H, G, E, weights } = model;
    const n = run.tokens.length;
    const name = `blocks.${layer}.attention`;
    const [pattern, values, weight] = [run.taps[`${name}.pattern`], run.taps[`${name}.values`], weights[`${name}.output.weight`]];
    const group = Math.floor((head * G) / H);
    const lengths = new Float64Array(n).fill(1);
    for (let k = 0; weighted && k < n; k += 1) {
      let square = 0;
      for (let i = 0; i < D; i += 1) {
        let sum = 0;
        for (let e = 0; e < E; e += 1) sum += weight[i * H * E + head * E + e] * values[(k * G + group) * E + e];
        square += sum * sum;
      }
      lengths[k] = Math.sqrt(square);
    }
    const found = new Float32Array(n * n);
    for (let q = 0; q < n; q += 1) {
      for (let k = 0; k < n; k += 1) found[q * n + k] = pattern[(q * H + head) * run.room + k] * lengths[k];
    }
    return found;
  }

  // What follows when each head and network by itself is switched off: the likeliest next token at a position and
  // its probability, by how many nats the prediction moves there, and how many more the text costs a token.
  function eachAlone(model, experiment, position) {
    const { L, H } = model;
    const [{ tokens }, before] = [model.now, predictions(model, model.now)];
    const n = tokens.length;
    const mean = (loss) => loss.slice(0, -1).reduce((sum, one) => sum + one, 0) / (n - 1);
    const run = newRun(model.room);
    const places = Array.from({ length: L }, (_, l) => [...Array.from({ length: H }, (_, h) => `${l}.${h}`), `${l}.n`]).flat();
    return places.map((place) => {
      const how = changesOf(model, { off: [place], instead: experiment.instead, donor: experiment.donor }, n);
      const depth = firstChanged(model, how);
      run.tokens = []; // another change: nothing that was known holds
      forward(model, tokens, how, run, depth ? { depth, state: model.now.taps[depthTap(depth)] } : null);
      const after = predictions(model, run);
      return { place, token: after.token[position], chance: after.chance[position], moved: moved(model, [model.now, run], [before, after], position),
        cost: n > 1 ? mean(after.loss) - mean(before.loss) : 0 };
    });
  }

  // Runs whole and changed model on a text, and tells what is wanted for a page. `model.now` and `model.then` keep both runs.
  function look(model, { tokens, experiment = {}, position = tokens.length - 1, count = 8, want = [], layer = 0, head = 0, weighted = false, tuned = false, tap = "logits", sampling = {} }) {
    const began = performance.now();
    const n = tokens.length;
    if (!n) fail("The text is empty: type something.");
    model.now = forward(model, tokens, whole, model.now || undefined);
    const isChanged = changed(experiment);
    const how = isChanged ? changesOf(model, experiment, n) : whole;
    const key = JSON.stringify([experiment, /(scores|pattern)$/.test(experiment.patch ? experiment.patch.tap : "") ? n : 0]);
    if (isChanged) {
      if (!model.then || model.thenKey !== key) model.then = newRun(model.room);
      model.thenKey = key;
      const depth = firstChanged(model, how); // what lies below is the whole model's
      for (const [name, rows] of depth ? Object.entries(model.now.taps) : []) {
        if (name === "embedding" || Number(/^blocks\.(\d+)/.exec(name)?.[1] ?? model.L) < depth) model.then.taps[name] = rows;
      }
      forward(model, tokens, how, model.then, depth ? { depth, state: model.now.taps[depthTap(depth)] } : null);
    }
    const sides = [[model.now, whole], ...(isChanged ? [[model.then, how]] : [])];
    const told = sides.map(([run]) => predictions(model, run));
    const [before, after] = [told[0], told[told.length - 1]];
    const shift = before.token.map((_, t) => (isChanged ? moved(model, [model.now, model.then], [before, after], t) : 0));
    const here = sides.map(([run]) => chances(row(run.taps.logits, position, model.V)));
    const shown = top(here[0], count);
    if (isChanged) for (const token of top(here[1], count)) if (!shown.includes(token)) shown.push(token);
    const answer = { n, changed: isChanged, position, shift, shown: shown.map((token) => [token, here[0][token], here[here.length - 1][token]]) };
    answer.sides = told.map(({ token, chance, loss }) => ({ token, chance, loss }));
    if (want.includes("lens")) {
      const first = Math.max(0, Math.min(position - 11, n - 16)); // as many as are shown
      answer.lensAt = Array.from({ length: Math.min(16, n) }, (_, i) => first + i);
      answer.lens = sides.map(([run, own]) => lensOf(model, run, own, answer.lensAt, tuned && !!model.tuned));
    }
    if (want.includes("heads")) {
      answer.pattern = sides.map(([run]) => patternOf(model, run, layer, head, weighted));
      const rowOf = (run, l, h, what) => run.taps[`blocks.${l}.attention.${what}`].subarray((position * model.H + h) * run.room, (position * model.H + h) * run.room + n);
      answer.scores = sides.map(([run]) => rowOf(run, layer, head, "scores").slice());
      const last = sides[sides.length - 1][0];
      answer.looks = Array.from({ length: model.L }, (_, l) => Array.from({ length: model.H }, (_, h) => {
        const weights = rowOf(last, l, h, "pattern");
        return [highest(weights), Math.max(...weights)];
      }));
    }
    if (want.includes("overview")) {
      answer.overview = sides.map(([run, own]) => overview(model, run, own, position));
      const last = sides[sides.length - 1][0];
      answer.patterns = Array.from({ length: model.L }, (_, l) => Array.from({ length: model.H }, (_, h) => patternOf(model, last, l, h, false)));
    }
    if (want.includes("ledger")) {
      answer.ledger = sides.map(([run, own]) => ledger(model, run, own, position, before.token[position]));
      answer.ledgerToken = before.token[position];
    }
    if (want.includes("write")) {
      const shares = sides.map(([run]) => drawable(row(run.taps.logits, position, model.V), sampling));
      const totals = shares.map((p) => p.reduce((sum, one) => sum + one, 0));
      answer.drawable = top(shares[shares.length - 1], count).map((token) => [token, ...shares.map((p, side) => p[token] / totals[side])]);
      answer.left = shares.map((p) => p.reduce((sum, one) => sum + (one > 0), 0));
    }
    if (want.includes("each")) answer.each = eachAlone(model, experiment, position);
    if (want.includes("numbers")) answer.numbers = sides.map(([run]) => run.taps[tap].slice(0, n * (run.taps[tap].length / run.room)));
    answer.milliseconds = performance.now() - began;
    return answer;
  }

  // Was that luck? ---------------------------------------------------------------------------------

  // The first block that an experiment changes: what comes before is as in the whole model.
  function firstChanged(model, how) {
    if (how.switches.length) return 0;
    return Math.min(model.L, ...how.changes.map(({ tap }) => {
      const found = tap.match(/^blocks\.(\d+)/);
      if (!found) return tap === "embedding" ? 0 : model.L;
      return Number(found[1]);
    }));
  }

  // What an experiment changes in each of the kept sentences from `from` to `to`: mean nats a token by which the
  // sentence costs more, and by how many nats the prediction at a position moves.
  function luck(model, { experiment, from, to, position = 0 }) {
    const { D, V, L } = model;
    const n = model.keptLength;
    if (experiment.patch && experiment.patch.position !== null && experiment.patch.position >= n) {
      fail(`The kept sentences have ${n} tokens: there is no position ${experiment.patch.position}.`);
    }
    const at = Math.min(position, n - 1);
    const [found, before] = [[], new Float32Array(V)];
    for (let which = from; which < to; which += 1) {
      const how = changesOf(model, experiment, n, which);
      const depth = firstChanged(model, how);
      const streams = model.streams[which] || (model.streams[which] = []);
      const known = Math.min(depth, streams.length);
      const run = newRun(n);
      forward(model, model.kept[which], how, run, known ? { depth: known, state: streams[known - 1] } : null);
      for (let d = streams.length; d < depth && model.streamBytes < 96e6; d += 1) {
        streams.push(run.taps[depthTap(d + 1)].slice(0, n * D));
        model.streamBytes += 4 * n * D;
      }
      let loss = 0;
      for (let t = 0; t + 1 < n; t += 1) {
        loss += (logSum(row(run.taps.logits, t, V)) - run.taps.logits[t * V + model.kept[which][t + 1]]) / (n - 1);
      }
      if (!model.finals[which]) { // of the whole model
        const end = streams.length;
        const own = forward(model, model.kept[which], whole, newRun(n), end ? { depth: end, state: streams[end - 1] } : null, false);
        model.finals[which] = own.taps.final_state.slice(0, n * D);
      }
      unembed(model, before, row(model.finals[which], at, D), 0, 1);
      found.push({ cost: loss - model.losses[which], moved: divergence(before, row(run.taps.logits, at, V)) });
    }
    return found;
  }

  // Sampling ---------------------------------------------------------------------------------------

  // PyTorch's generator (Mersenne Twister, Matsumoto and Nishimura, 1998) and its `rand` in single precision.
  function generator(seed) {
    const state = new Uint32Array(624);
    state[0] = seed >>> 0;
    for (let i = 1; i < 624; i += 1) {
      const before = state[i - 1] ^ (state[i - 1] >>> 30);
      state[i] = Math.imul(1812433253, before) + i;
    }
    let at = 624;
    return () => {
      if (at === 624) {
        for (let i = 0; i < 624; i += 1) {
          const y = (state[i] & 0x80000000) | (state[(i + 1) % 624] & 0x7fffffff);
          state[i] = state[(i + 397) % 624] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
        }
        at = 0;
      }
      let y = state[at];
      at += 1;
      y ^= y >>> 11;
      y ^= (y << 7) & 0x9d2c5680;
      y ^= (y << 15) & 0xefc60000;
      y ^= y >>> 18;
      return (y & 0xffffff) / 0x1000000;
    };
  }

  // In proportion to what may each token be drawn: temperature, then top-k, then top-p, as in `inference.sampling`.
  function drawable(logits, { temperature = 1, topK = null, topP = 1 }) {
    let most = -Infinity;
    for (const one of logits) if (one > most) most = one;
    const scaled = Array.from(logits, (one) => (one - most) / temperature);
    const order = Array.from(scaled.keys()).sort((a, b) => scaled[b] - scaled[a] || a - b);
    if (topK !== null && topK < order.length) {
      const least = scaled[order[topK - 1]];
      for (let i = 0; i < scaled.length; i += 1) if (scaled[i] < least) scaled[i] = -Infinity;
    }
    const p = chances(scaled);
    if (topP < 1) {
      let before = 0;
      for (const [rank, token] of order.entries()) {
        const own = p[token];
        if (rank && before >= topP) p[token] = 0;
        before += own;
      }
    }
    return p;
  }

  // One token, drawn with a number between nought and one.
  function drawn(logits, sampling, uniform) {
    const p = drawable(logits, sampling);
    const total = p.reduce((sum, one) => sum + one, 0);
    let [sum, last] = [0, 0];
    for (let i = 0; i < p.length; i += 1) {
      if (p[i] === 0) continue;
      sum += p[i];
      last = i;
      if (sum > uniform * total) return i;
    }
    return last;
  }

  // How a text goes on, under an experiment: the tokens that are drawn.
  function sample(model, { tokens, experiment = {}, sampling, count }) {
    const next = generator(sampling.seed);
    const text = Array.from(tokens);
    const standIn = (experiment.off || []).length && experiment.instead !== "zero";
    const most = standIn ? model.keptLength : model.room;
    const columns = experiment.patch && /(scores|pattern)$/.test(experiment.patch.tap);
    let run = newRun(model.room);
    const found = [];
    while (found.length < count && text.length <= most && !(columns && found.length === 1)) {
      const how = changed(experiment) ? changesOf(model, experiment, text.length) : whole;
      run = forward(model, text, how, run);
      const token = drawn(row(run.taps.logits, text.length - 1, model.V), sampling, next());
      found.push(token);
      text.push(token);
    }
    return found;
  }

  // Pieces -----------------------------------------------------------------------------------------

  // Cuts texts into pieces, as `tasks.byte_pairs`: words with the blank before them, and within each the merge
  // that was learned first is made first. `merges`: left, right, left, right ... Pieces 0 to 255 are the bytes.
  function pieces(merges) {
    const rank = new Map();
    const spelled = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte));
    for (let i = 0; 2 * i < merges.length; i += 1) {
      const [left, right] = [merges[2 * i], merges[2 * i + 1]];
      rank.set(left * 65536 + right, i);
      spelled.push(spelled[left] + spelled[right]);
    }
    const known = new Map();
    const cutWord = (word) => {
      const tokens = Array.from(word, (byte) => byte.charCodeAt(0));
      for (;;) {
        let first = Infinity;
        for (let i = 0; i + 1 < tokens.length; i += 1) first = Math.min(first, rank.get(tokens[i] * 65536 + tokens[i + 1]) ?? Infinity);
        if (first === Infinity) return tokens;
        const [left, right] = [merges[2 * first], merges[2 * first + 1]];
        for (let i = 0; i + 1 < tokens.length; i += 1) {
          if (tokens[i] === left && tokens[i + 1] === right) tokens.splice(i, 2, 256 + first);
        }
      }
    };
    const encode = (text) => {
      let letters = ""; // one for each byte
      for (const byte of new TextEncoder().encode(text)) letters += String.fromCharCode(byte);
      const words = letters.match(/ ?[A-Za-z]+| ?[0-9]+| ?[^ \t\n\r\f\vA-Za-z0-9]+|[ \t\n\r\f\v]+/g) || [];
      return words.flatMap((word) => {
        if (!known.has(word)) known.set(word, cutWord(word));
        return known.get(word);
      });
    };
    const decode = (tokens) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(tokens.map((token) => spelled[token]).join(""), (letter) => letter.charCodeAt(0)));
    return { encode, decode };
  }

  // Weights ----------------------------------------------------------------------------------------

  // Zlib's checksum.
  function crc32(bytes) {
    const table = new Int32Array(256).map((_, n) => { let c = n; for (let k = 0; k < 8; k += 1) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1; return c; });
    let crc = -1;
    for (let i = 0; i < bytes.length; i += 1) crc = table[(crc ^ bytes[i]) & 255] ^ (crc >>> 8);
    return (crc ^ -1) >>> 0;
  }

  // Numbers in half precision; there are no infinite ones.
  function halves(buffer, at, count, numbers) {
    const [codes, bits] = [new Uint16Array(buffer, at, count), new Uint32Array(numbers.buffer, numbers.byteOffset, count)];
    for (let i = 0; i < count; i += 1) bits[i] = ((codes[i] & 0x8000) << 16) | ((codes[i] & 0x7fff) << 13);
    for (let i = 0; i < count; i += 1) numbers[i] *= 2 ** 112;
    return numbers;
  }

  // The model in the bytes that `live_weights.packed` makes.
  function unpack(told, buffer) {
    if (buffer.byteLength !== told.bytes || crc32(new Uint8Array(buffer)) !== told.checksum) {
      fail("The model's weights did not arrive whole: their checksum is another one. Load the page again.");
    }
    const sizes = told.sizes;
    const size = ({ shape }) => shape.reduce((product, each) => product * each, 1);
    const maps = [...Object.values(told.weights), ...Object.values(told.lens || {})];
    const store = weightStore(maps.reduce((sum, each) => sum + size(each) + 4, 0), Math.max(sizes.room, told.kept.shape[1]),
      Math.max(sizes.V, sizes.F, sizes.D, sizes.H * sizes.E) + 4);
    const read = (one) => {
      const { at, kind, shape, scales } = one;
      const count = size(one);
      if (kind === "half") return halves(buffer, at, count, maps.includes(one) ? store(count) : new Float32Array(count));
      if (kind === "code") { // eight bits each, and a factor for each row
        const [codes, factors, width] = [new Int8Array(buffer, at, count), read(scales), shape[shape.length - 1]];
        const numbers = store(count);
        for (let i = 0; i < count; i += 1) numbers[i] = codes[i] * factors[Math.floor(i / width)];
        return numbers;
      }
      return new { single: Float32Array, token: Uint16Array, byte: Uint8Array }[kind](buffer, at, count);
    };
    const arrays = (group) => Object.fromEntries(Object.entries(group).map(([name, one]) => [name, read(one)]));
    const weights = arrays(told.weights);
    if (!weights["unembedding.weight"]) weights["unembedding.weight"] = weights["token_embedding.weight"];
    const tokens = read(told.kept);
    const [count, keptLength] = told.kept.shape;
    const kept = Array.from({ length: count }, (_, i) => Array.from(row(tokens, i, keptLength)));
    const means = arrays(told.means);
    const { L, D, H, E } = told.sizes;
    for (let layer = 0; layer < L; layer += 1) { // a mean passes a linear map
      const name = `blocks.${layer}.attention`;
      means[`${name}.out`] = new Float32Array(keptLength * D);
      linear(means[`${name}.out`], means[`${name}.mixed`], weights[`${name}.output.weight`], weights[`${name}.output.bias`], H * E, D, 0, keptLength);
    }
    return { ...told.sizes, config: told.config, weights, kept, keptLength, means, tuned: told.lens ? arrays(told.lens) : null,
      losses: read(told.losses), donors: new Map(), streams: [], streamBytes: 0, finals: [] };
  }

  return { unpack, forward, changesOf, look, luck, sample, lens, patternOf, ledger, tapNames, headsAt, offTaps, drawn, generator, newRun, crc32, headOutputs, pieces, kernels };
}
