// A live model. It finds the boxes on the page that have not begun yet, takes the weights that lie beside them,
// starts the engine in a worker (in the page where workers are forbidden), and builds its controls in front of
// the drawing that is there already.
(() => {
  const controls = liveControls();
  const { make, clamp, signed, plain, followTheme, colour, rgb, ramp, labelled, select, input, slider, check, button, fold,
    group, mark, tabs, table, bar, toldTo, nowAndSoon, note, scroll, speaker } = controls;
  const bdi = (text) => make("bdi", {}, text);

  // Weights ----------------------------------------------------------------------------------------

  const missing = "The model\u2019s weights did not arrive, so it cannot be asked; its drawing stays. Try again when the page\u2019s folder is complete.";

  // The weights as base64: from the page, or from a file beside it, which a page fetches once.
  function delivered(source) {
    if (!source.dataset.from) return Promise.resolve(source.textContent.trim());
    const store = globalThis.liveWeights || (globalThis.liveWeights = {});
    const key = source.dataset.key;
    if (!store[key]) {
      store[key] = new Promise((resolve, reject) => {
        const script = make("script", { src: (document.documentElement.dataset.content_root || "./") + source.dataset.from });
        globalThis.liveArrived = globalThis.liveArrived || {};
        script.addEventListener("load", () => (globalThis.liveArrived[key] ? resolve(globalThis.liveArrived[key]) : reject(new Error(missing))));
        script.addEventListener("error", () => { delete store[key]; reject(new Error(missing)); });
        document.head.append(script);
      });
    }
    return store[key];
  }

  function bytes(text) {
    let packed;
    try {
      packed = atob(text);
    } catch {
      throw new Error("The model\u2019s weights did not arrive whole. Load the page again.");
    }
    return Uint8Array.from(packed, (letter) => letter.charCodeAt(0)).buffer;
  }

  // The engine -------------------------------------------------------------------------------------

  // What runs in a worker: the engine, asked by messages.
  function served() {
    const engine = liveEngine();
    let model;
    onmessage = ({ data: { id, call, given } }) => {
      try {
        if (call === "unpack") model = engine.unpack(given.told, given.buffer);
        const result = call === "unpack" ? engine.tapNames(model).map((tap) => [tap, engine.headsAt(model, tap)]) : engine[call](model, given);
        postMessage({ id, result });
      } catch (error) {
        postMessage({ id, error: error.message });
      }
    };
    postMessage({ ready: true });
  }

  // An engine with the model, to be asked `ask(call, given)`: in a worker, or here.
  async function hired(told, buffer) {
    const here = () => {
      const engine = liveEngine();
      const model = engine.unpack(told, buffer);
      const names = engine.tapNames(model).map((tap) => [tap, engine.headsAt(model, tap)]);
      const ask = (call, given) => new Promise((resolve, reject) => setTimeout(() => {
        try { resolve(engine[call](model, given)); } catch (error) { reject(error); }
      }));
      return { ask, names, inWorker: false };
    };
    let worker;
    try {
      const address = URL.createObjectURL(new Blob([`${liveEngine}\n(${served})();`], { type: "text/javascript" }));
      worker = new Worker(address);
      await new Promise((resolve, reject) => {
        setTimeout(reject, 4000);
        worker.onerror = (event) => { event.preventDefault(); reject(); };
        worker.onmessage = resolve;
      });
    } catch {
      if (worker) worker.terminate();
      return here();
    }
    const waiting = new Map();
    let last = 0;
    worker.onmessage = ({ data: { id, result, error } }) => {
      const [resolve, reject] = waiting.get(id);
      waiting.delete(id);
      if (error) reject(new Error(error)); else resolve(result);
    };
    worker.onerror = (event) => { // what it was asked would be waited for without end
      event.preventDefault();
      for (const [, reject] of waiting.values()) reject(new Error("The model has stopped, perhaps for want of memory. Load the page again."));
      waiting.clear();
    };
    const ask = (call, given) => new Promise((resolve, reject) => {
      last += 1;
      waiting.set(last, [resolve, reject]);
      worker.postMessage({ id: last, call, given });
    });
    return { ask, names: await ask("unpack", { told, buffer }), inWorker: true };
  }

  // Texts ------------------------------------------------------------------------------------------

  // Cuts a text: into bytes, pieces, characters or words. What the model has never seen is left out, and told.
  function cutter(data) {
    if (data.cut === "pieces") {
      const { encode } = piecesOf(data);
      return (text) => ({ tokens: encode(text), unknown: [] });
    }
    if (data.cut === "bytes") {
      const encoder = new TextEncoder();
      return (text) => ({ tokens: Array.from(encoder.encode(text)), unknown: [] });
    }
    const known = new Map(data.words.map((word, at) => [word, at]));
    return (text) => {
      const parts = data.cut === "words" ? text.split(/\s+/).filter(Boolean) : Array.from(text);
      return { tokens: parts.filter((part) => known.has(part)).map((part) => known.get(part)), unknown: parts.filter((part) => !known.has(part)) };
    };
  }

  const piecesOf = (data) => data.pieces || (data.pieces = liveEngine().pieces(data.merges));

  function joined(data, tokens) {
    if (data.cut === "pieces") return piecesOf(data).decode(tokens);
    if (data.cut === "bytes") return new TextDecoder().decode(Uint8Array.from(tokens));
    return tokens.map((token) => data.words[token]).join(data.cut === "words" ? " " : "");
  }

  // Places in the model -----------------------------------------------------------------------------

  const inWords = {
    embedding: "embeddings", residual_pre: "stream before it", residual_mid: "stream after attention", residual_post: "stream after it",
    "attention_norm.scale": "what attention\u2019s norm divides by", "feedforward_norm.scale": "what the network\u2019s norm divides by", "final_norm.scale": "what the last norm divides by",
    queries: "queries", keys: "keys", values: "values", rotated_queries: "queries, rotated", rotated_keys: "keys, rotated", scores: "scores", pattern: "weights",
    mixed: "values mixed by each head", head_outputs: "what each head adds", "attention.out": "what attention adds", "feedforward.out": "what the network adds",
    pre_activation: "neurons before their activation", neurons: "neurons", final_state: "state that is unembedded", logits: "logits",
  };

  // A choice among taps: in words, with the library's name, block by block.
  function tapChoice(text, taps, chosen, none = null) {
    const [label, box] = select(text, none === null ? [] : [["", none]], chosen);
    for (const tap of taps) {
      const [, layer, rest] = /^(?:blocks\.(\d+)\.)?(.+)$/.exec(tap);
      const title = layer ? `Block ${layer}` : tap === "embedding" ? "Before the blocks" : "After the blocks";
      if (box.lastChild?.label !== title) box.append(make("optgroup", { label: title }));
      const words = inWords[rest] || inWords[rest.split(".").pop()];
      box.lastChild.append(make("option", { value: tap, selected: tap === chosen }, `${layer ? `${title}: ` : ""}${words === rest ? rest : `${words} (${rest})`}`));
    }
    return [label, box];
  }

  // Addresses --------------------------------------------------------------------------------------

  const packState = (state) => btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(state)))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  const unpackState = (text) => JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (letter) => letter.charCodeAt(0))));

  // Python -----------------------------------------------------------------------------------------

  // The same experiment with the library. What stands in is taken from the whole model, before any switch.
  function python(data, state, tokens, heads, written) {
    const encoded = (text) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(new TextEncoder().encode(text)); // half a letter is none
    const quoted = (text) => JSON.stringify(encoded(text)).replace(/\u2028|\u2029/g, (one) => `\\u${one.charCodeAt(0).toString(16)}`);
    const given = (text, cut) => {
      if (data.cut === "bytes") return `torch.tensor([list(${quoted(text)}.encode())[-${data.most}:]])`;
      return `torch.tensor([[${cut.join(", ")}]])`;
    };
    const { experiment } = state;
    const { off, instead, patch, steer, switches } = experiment;
    const lines = [];
    const change = (tap, value) => lines.push(`changes.append((${quoted(tap)}, ${value}))`);
    const limited = (value, head, position) => {
      const limits = [head === null ? "" : `heads=${head}`, position === null ? "" : `positions=${position}`].filter(Boolean);
      return limits.length ? `at(${value}, ${limits.join(", ")})` : value;
    };
    if (off.length) lines.push("", `# Switched off: ${{ zero: "zeros", mean: "the mean over the kept sentences", resample: "another sentence" }[instead]} in its place.`);
    for (const { tap, head = null } of liveEngine().offTaps(off)) {
      const cut = head === null ? ":n" : `[${head}], :n`;
      const found = { zero: "0.0", mean: `seen(kept, ${quoted(tap)}).mean(0, keepdim=True)[:, ${cut}]`, resample: `seen(kept[[${experiment.donor}]], ${quoted(tap)})[:, ${cut}]` };
      change(tap, limited(found[instead], head, null));
    }
    if (patch) {
      const many = heads(patch.tap) > 1;
      const head = many ? patch.head : null;
      const { position } = patch;
      lines.push("", "# Patched from a second sentence.", `other = ${given(patch.text, patch.tokens)}`);
      if (position === null) {
        lines.push("both = slice(0, min(n, other.shape[1]))");
        change(patch.tap, `at(seen(other, ${quoted(patch.tap)})[:, ${many ? `${head === null ? ":" : `[${head}]`}, both` : "both"}], ${head === null ? "" : `heads=${head}, `}positions=both)`);
      } else {
        change(patch.tap, limited(`seen(other, ${quoted(patch.tap)})[:, ${many ? `${head === null ? ":" : `[${head}]`}, [${patch.row}]` : `[${patch.row}]`}]`, head, position));
      }
    }
    if (steer && steer.dose) {
      const tap = steer.depth ? `blocks.${steer.depth - 1}.residual_post` : "embedding";
      lines.push("", "# Steered: the difference of two last states is added, times a dose.",
        `towards = seen(${given(steer.towardsText, steer.towards)}, ${quoted(tap)})[0, -1]`,
        `away = seen(${given(steer.awayText, steer.away)}, ${quoted(tap)})[0, -1]`);
      change(tap, `lambda x: x + ${steer.dose} * (towards - away)`);
    }
    const rules = [];
    if (switches.includes("scale")) rules.push("for block in model.blocks:", "    block.attention.scale = 1.0");
    if (switches.includes("mask")) rules.push("model.causal = False");
    if (switches.includes("mean")) {
      rules.push("", "", "def without_mean(norm, x):", "    scale = norm.scale((x.square().mean(-1, keepdim=True) + norm.eps).sqrt())",
        '    y = x / scale * getattr(norm, "weight", 1.0)', '    bias = getattr(norm, "bias", None)', "    return y if bias is None else y + bias", "", "",
        "for part in model.modules():", "    if isinstance(part, (LayerNorm, PlainLayerNorm)):", "        part.forward = partial(without_mean, part)");
    }
    const uses = (word) => [...lines, ...rules].some((line) => line.includes(word));
    const asked = switches.includes("positions") ? "model(tokens, positions=torch.zeros_like(tokens))" : "model(tokens)";
    const names = data.cut === "bytes" ? "bytes([token])" : "token";
    return [
      ...(lines.length ? ["from contextlib import ExitStack"] : []),
      ...(switches.includes("mean") ? ["from functools import partial"] : []),
      ...(lines.length || switches.includes("mean") ? [""] : []),
      "import torch",
      ...(written ? ["from measured_transformer.inference.generate import generate", "from measured_transformer.inference.sampling import Sampling"] : []),
      ...(uses("at(") ? ["from measured_transformer.internals.at import at"] : []),
      ...(uses("seen(") ? ["from measured_transformer.internals.capture import capture"] : []),
      ...(lines.length ? ["from measured_transformer.internals.intervene import intervene"] : []),
      ...(switches.includes("mean") ? ["from measured_transformer.parts.norms import LayerNorm, PlainLayerNorm"] : []),
      data.origin, "",
      "torch.set_grad_enabled(False)",
      `tokens = ${given(state.text, tokens)}`,
      "n = tokens.shape[1]",
      "before = model(tokens)[0].softmax(-1)",
      ...(uses("seen(") ? ["", "", "def seen(tokens, tap):", "    with capture(model, tap) as values:", "        model(tokens)", "    return values[tap]", "", ""] : []),
      ...(written ? ["", "# The text that the whole model writes on.",
        `strategy = Sampling(torch.Generator().manual_seed(${written.seed}), temperature=${written.temperature}, top_k=${written.topK === null ? "None" : written.topK}, top_p=${written.topP})`,
        `text = generate(model, tokens, max_new_tokens=${written.count}, strategy=strategy).tokens[0]`] : []),
      ...(lines.length ? ["changes = []", ...lines, ""] : []),
      ...(rules.length ? ["", "# The model by other rules.", ...rules, ""] : []),
      ...(lines.length ? ["with ExitStack() as stack:", "    for tap, change in changes:", "        stack.enter_context(intervene(model, {tap: change}))", `    after = ${asked}[0].softmax(-1)`] : [`after = ${asked}[0].softmax(-1)`]),
      "",
      `for token in before[${state.position}].topk(5).indices.tolist():`,
      `    print(${names}, f"{before[${state.position}, token]:.3f} -> {after[${state.position}, token]:.3f}")`,
      "",
    ].join("\n");
  }

  // The component ----------------------------------------------------------------------------------

  async function start(root) {
    const [source, own] = ["lm-weights", "lm-told"].map((each) => toldTo(root, each));
    if (!source || !own || root.live) return;
    root.live = true;
    root.querySelector(".lm-live")?.remove(); // of a page that was saved with it
    const data = JSON.parse(own.textContent);
    const waiting = make("div", { class: "lm-live" }, make("p", { role: "status" }, "The model is on its way \u2026"));
    root.prepend(waiting);
    followTheme(waiting);
    try {
      const buffer = bytes(await delivered(source));
      const engine = await hired(data.packed, buffer);
      waiting.remove();
      root.dataset.live = "";
      build(root, data, engine, buffer);
    } catch (error) {
      delete root.dataset.live; // the drawing stays
      waiting.replaceChildren(make("p", { class: "lm-wrong", role: "alert" }, error.message),
        button("Try again", () => { waiting.remove(); root.live = false; start(root); }));
    }
  }

  function build(root, data, engine, buffer) {
    let number = 1; // no other one of the page has it
    while (document.getElementById(`lm-${number}-panel`)) number += 1;
    const id = `lm-${number}`;
    const { L, H } = data.packed.sizes;
    const headsAt = new Map(engine.names);
    const cut = cutter(data);
    const name = (token) => data.names[token];
    const near = (token) => bdi(`\u201c${name(token)}\u201d`);

    const state = {
      text: data.texts[0], position: null, layer: 0, head: 0, weighted: false, tuned: false, tab: data.views[0], number: "moved", tap: `blocks.${L - 1}.residual_post`, part: null,
      experiment: { off: [], instead: "zero", donor: 0, patch: null, steer: null, switches: [] },
    };
    let cutting = { tokens: [], unknown: [] };
    let seen = null; // the last answer
    let hidden = null; // what a reader is to guess before it is shown
    let guesses = { right: 0, all: 0 };
    let settled = ""; // the experiment that was revealed last
    let written = null; // how the text was written on
    const tokens = () => cutting.tokens;

    // The text.
    const area = make("textarea", { rows: 2, spellcheck: "false", autocapitalize: "off", autocomplete: "off" });
    const [pickLabel, pick] = select("Or pick one", [["", "your own"], ...data.texts.map((text, at) => [at, text.length > 60 ? `${text.slice(0, 59)}\u2026` : text])], 0);
    const limits = make("div", {});
    const tellRefusal = make("p", { class: "lm-wrong", role: "alert", hidden: true });
    const strip = make("div", { class: "lm-strip", role: "radiogroup", "aria-label": "Choose a position" });
    const wrong = make("p", { class: "lm-wrong", role: "alert", hidden: true });
    const [status, say] = speaker();
    const slow = make("p", { class: "lm-note", hidden: true });

    // What is switched off.
    const offRows = [];
    const offBoxes = new Map();
    for (let layer = 0; layer < L; layer += 1) {
      const places = [...Array.from({ length: H }, (_, h) => [`${layer}.${h}`, `layer ${layer}, head ${h}`]), [`${layer}.n`, `layer ${layer}, network`], [`${layer}.b`, `layer ${layer}, whole block`]];
      offRows.push([`layer ${layer}`, ...places.map(([key, label]) => {
        const box = make("input", { type: "checkbox", value: key, "aria-label": `Switch off ${label}` });
        offBoxes.set(key, box);
        return make("label", { title: label }, box);
      })]);
    }
    const [insteadLabel, instead] = select("In its place", [["zero", "zeros"], ["mean", "its mean over kept sentences"], ["resample", "its value on another sentence"]], "zero");
    const other = button("Take another sentence", () => { state.experiment.donor = (state.experiment.donor + 1) % data.packed.kept.shape[0]; refresh(); });
    const donorNote = make("p", { class: "lm-note" });
    const offFold = fold("Switch off", true, make("div", { class: "lm-scroll", tabindex: 0, role: "group", "aria-label": "What is switched off" },
      table("Tick any set of parts.", ["off", ...Array.from({ length: H }, (_, h) => `h${h}`), "network", "block"], offRows, { class: "lm-off" })), insteadLabel, donorNote, other);

    // What is patched.
    const [patchLabel, patchText] = input("Second sentence", { type: "text", spellcheck: "false", autocapitalize: "off", autocomplete: "off" });
    const [tapLabel, tap] = tapChoice("Taken at", engine.names.map(([each]) => each), "", "nowhere");
    const [patchHeadLabel, patchHead] = select("Head", [["", "all"], ...Array.from({ length: H }, (_, h) => [h, h])], "");
    const [patchAtLabel, patchAt] = input("Put at position (none: all)", { type: "number", min: 0, step: 1 });
    const [patchFromLabel, patchFrom] = input("From its position (none: the same)", { type: "number", min: 0, step: 1 });
    const patchNote = make("p", { class: "lm-note", hidden: true });
    const patchStrip = make("div", { class: "lm-tokens", role: "radiogroup", "aria-label": "Tokens to patch from", hidden: true });
    const patchFold = fold("Patch from a second sentence", false, patchLabel, patchNote, patchStrip, make("div", { class: "lm-row" }, tapLabel, patchHeadLabel), make("div", { class: "lm-row" }, patchAtLabel, patchFromLabel));

    // Where it is led.
    const [towardsLabel, towards] = input("Towards", { type: "text", spellcheck: "false", autocapitalize: "off", autocomplete: "off" });
    const [awayLabel, away] = input("Away from", { type: "text", spellcheck: "false", autocapitalize: "off", autocomplete: "off" });
    const [depthLabel, depth] = select("After", Array.from({ length: L + 1 }, (_, d) => [d, d ? `block ${d - 1}` : "the embedding"]), Math.min(1, L));
    const [doseLabel, dose, tellDose] = slider("Dose", { min: -4, max: 4, step: 0.25, value: 0 }, (value) => signed(value, 2));
    const steerFold = fold("Steer", false, make("div", { class: "lm-row" }, towardsLabel, awayLabel, depthLabel), doseLabel,
      note("Added at every position: dose \u00d7 (last state of the first text \u2212 last state of the second)."));
    [towards.value, away.value] = data.steer;

    // Other rules.
    const rulesNote = note("The model has learned by all its rules as they are. A change shows what it relies on, not what a model that has learned without the rule would do.");
    const { norm, positions } = data.packed.config;
    const rules = [
      ...(positions === "none" ? [] : [["positions", "positions off (every token stands at 0)"]]),
      ["scale", "scores without their scale"],
      ...(norm === "rms" || norm === "none" ? [] : [["mean", "norms without their mean"]]),
      ["mask", "no causal mask"],
    ].map(([key, label]) => check(label, key));
    const rulesFold = fold("Change the rules", false, ...rules.map(([label]) => label), rulesNote);

    const [predictLabel, predict] = check("I predict first, then it is revealed", "predict");
    const reset = button("Whole model again", () => { clear(); refresh(); });

    // What is seen.
    const readout = make("div", { class: "lm-readout" });
    const guess = make("div", { class: "lm-guess", role: "group", "aria-label": "Predict first", hidden: true });
    const names = { next: "Next token", overview: "Overview", heads: "Heads", lens: "Lens", ledger: "Ledger", numbers: "Numbers", each: "One by one", write: "Write on", luck: "Was that luck?" };
    const views = data.views.map((key) => [key, names[key]]);
    const { list, panel, show } = tabs(id, "What is seen", views, (key) => { state.tab = key; arrange(); refresh(); });
    const experimentBox = make("section", { "aria-label": "The experiment" }, make("p", { class: "lm-heading" }, "What if \u2026"),
      ...Object.entries({ off: offFold, patch: patchFold, steer: steerFold, rules: rulesFold }).filter(([key]) => data.experiments.includes(key)).map(([, each]) => each), predictLabel, make("div", { class: "lm-buttons" }, reset));
    const answer = make("div", { class: "lm-answer", role: "group", "aria-label": "What the model says" }, readout, guess);
    const results = make("section", { "aria-label": "A closer look" }, list, panel);
    // The overview takes the whole width, and what is changed stands under it.
    const columns = make("div", { class: "lm-columns" }, experimentBox, results);
    function arrange() {
      const wide = state.tab === "overview";
      columns.classList.toggle("lm-wide", wide);
      if (wide !== (columns.lastChild === experimentBox)) columns.append(columns.firstChild);
    }
    const address = make("input", { type: "text", readonly: true, "aria-label": "Address of this state" });
    const code = make("pre", {}, make("code", {}));
    const codeBox = make("div", { hidden: true }, scroll("The experiment as Python", code));
    const shareBox = make("div", { hidden: true }, labelled("Address of this state", address));
    const copied = (text, what) => {
      const done = () => say(`${what} is in the clipboard.`);
      try { navigator.clipboard.writeText(text).then(done, () => {}); } catch { /* it can be taken by hand */ }
    };
    const share = button("Share", () => {
      address.value = addressOf();
      shareBox.hidden = false;
      address.select();
      copied(address.value, "The address");
    });
    const pythonButton = button("As Python", () => {
      codeBox.hidden = !codeBox.hidden;
      pythonButton.setAttribute("aria-expanded", !codeBox.hidden);
      if (!codeBox.hidden) { tellCode(); copied(code.textContent, "The code"); }
    }, { "aria-expanded": "false" });

    const box = make("div", { class: "lm-live", role: "region", "aria-label": data.title },
      make("div", { class: "lm-source" }, labelled(`Text (the model reads at most ${data.most} ${data.unit})`, area), make("div", {}, pickLabel, tellRefusal, limits)),
      wrong, slow, strip, answer, columns, make("div", { class: "lm-buttons" }, share, pythonButton), shareBox, codeBox, status);
    root.prepend(box);
    followTheme(box, () => { if (seen) draw(); });

    // From the controls to the state ----------------------------------------------------------------

    function clear() {
      for (const each of offBoxes.values()) each.checked = false;
      for (const [, each] of rules) each.checked = false;
      tap.value = "";
      dose.value = 0;
      tellDose();
      read();
    }

    const whole = (field) => (field.value.trim() === "" || !(Number(field.value) >= 0) ? null : Math.floor(Number(field.value)));
    const last = (text) => cut(text).tokens.slice(-data.most);
    // What a field says; of more than it may, the end, because the model reads the end.
    const MOST = 4000;
    const short = (field) => {
      if (field.value.length > MOST) field.value = field.value.slice(-MOST);
      return field.value;
    };

    function read() {
      const { experiment } = state;
      const long = area.value.length > MOST;
      state.text = short(area);
      for (const field of [patchText, towards, away]) short(field);
      cutting = cut(state.text);
      const all = cutting.tokens.length;
      cutting.tokens = cutting.tokens.slice(-data.most);
      experiment.off = [...offBoxes].filter(([, each]) => each.checked).map(([key]) => key);
      experiment.instead = instead.value;
      const many = headsAt.get(tap.value) || 1;
      patchHeadLabel.hidden = many < 2;
      Array.from(patchHead.options).forEach((option, at) => { option.hidden = option.disabled = at > many; });
      const position = whole(patchAt);
      experiment.patch = tap.value && patchText.value ? {
        text: patchText.value, tokens: last(patchText.value), tap: tap.value, head: many < 2 || patchHead.value === "" ? null : Math.min(Number(patchHead.value), many - 1),
        position, row: position === null ? null : whole(patchFrom) ?? position,
      } : null;
      experiment.steer = Number(dose.value) ? { towardsText: towards.value, awayText: away.value, towards: last(towards.value), away: last(away.value), depth: Number(depth.value), dose: Number(dose.value) } : null;
      experiment.switches = rules.filter(([, each]) => each.checked).map(([, each]) => each.value);
      const second = last(patchText.value);
      patchNote.hidden = !second.length && !tap.value;
      patchNote.textContent = !second.length ? "Type a second sentence: nothing is patched so far."
        : `It has ${second.length} ${data.unit}, at positions 0 to ${second.length - 1}.${tap.value ? "" : " Say below where in the model its values are taken: nothing is patched so far."}`;
      patchStrip.hidden = !second.length;
      drawTokens(patchStrip, second);
      mark(patchStrip, whole(patchFrom) ?? position, "aria-checked");
      if (!patchStrip.querySelector("[tabindex='0']") && second.length) patchStrip.firstChild.tabIndex = 0;
      other.hidden = donorNote.hidden = instead.value !== "resample";
      donorNote.textContent = `What stands in comes from kept sentence ${experiment.donor}.`;
      tellLimits(all, long);
    }

    function tellLimits(all, shortened) {
      const told = shortened ? [`A text may have ${MOST} letters here: its end has been kept.`] : [];
      const { unknown } = cutting;
      if (all > data.most) told.push(`The text has ${all} ${data.unit}: the model reads the last ${data.most}; the first ${all - data.most} are left out.`);
      if (unknown.length) told.push(`The model has never seen ${unknown.slice(0, 4).map((one) => `\u201c${one}\u201d`).join(", ")}${unknown.length > 4 ? " and more" : ""}: left out.`);
      if ((data.cut === "bytes" || data.cut === "pieces") && tokens().some((token) => token > 126 && token < 256)) told.push("A letter beyond ASCII is several bytes, of which the model has seen few or none: what it says after them is worth little.");
      limits.replaceChildren(...told.map((text) => note(text)));
    }

    // Asking ----------------------------------------------------------------------------------------

    let asking = false;
    const answers = []; // milliseconds of each
    let again = false;
    async function refresh() {
      read();
      if (asking) { again = true; return; }
      asking = true;
      box.dataset.busy = "";
      do {
        again = false;
        await once();
      } while (again);
      asking = false;
      delete box.dataset.busy;
    }

    async function once() {
      const n = tokens().length;
      const position = state.position === null ? n - 1 : clamp(state.position, 0, n - 1);
      if (!n) {
        [seen, hidden] = [null, null];
        guess.hidden = true;
        strip.replaceChildren();
        panel.replaceChildren();
        readout.replaceChildren(cutting.unknown.length ? "The model knows nothing of this text: type something else, or pick a sentence." : "The text is empty: type something, or pick a sentence.");
        return;
      }
      const given = { tokens: tokens(), experiment: state.experiment, position, want: [state.tab], layer: state.layer, head: state.head, weighted: state.weighted, tuned: state.tuned, tap: state.tap, sampling: samplingOf() };
      const began = performance.now();
      try {
        seen = await engine.ask("look", given);
        [seen.tokens, seen.tap] = [given.tokens, given.tap];
        wrong.hidden = true;
      } catch (error) { // nothing of an earlier answer stays, as if it were one to this
        [seen, hidden] = [null, null];
        wrong.textContent = error.message;
        wrong.hidden = false;
        guess.hidden = true;
        panel.hidden = list.hidden = false;
        drawStrip({ tokens: given.tokens, position });
        panel.replaceChildren();
        readout.replaceChildren("This experiment has no answer: the sentence above the tokens says why.");
        return;
      }
      const took = performance.now() - began;
      box.dataset.milliseconds = took.toFixed(1);
      answers.push(took);
      if (answers.length > 2 && Math.min(...answers.slice(-2)) > 250) { // the first ones warm it up
        slow.textContent = `This device is slow for it: an answer took ${Math.round(took)} ms${engine.inWorker ? "" : ", in the page itself because workers are not allowed here"}. Shorter texts are faster.`;
        slow.hidden = false;
      } else if (Math.max(...answers.slice(-3)) < 150) slow.hidden = true;
      const key = JSON.stringify(state.experiment);
      hidden = predict.checked && seen.changed && key !== settled ? key : null;
      if (!seen.changed) settled = "";
      draw();
    }

    // Drawing ---------------------------------------------------------------------------------------

    function sentence() {
      const [before, after] = [seen.sides[0], seen.sides[seen.sides.length - 1]];
      const at = seen.position;
      const first = ["Position ", `${at}, after `, near(seen.tokens[at]), ": most likely next is "];
      if (!seen.changed) {
        const own = [...first, near(before.token[at]), ` (${plain(before.chance[at])}).`];
        if (at + 1 < seen.n) own.push(" The text goes on with ", near(seen.tokens[at + 1]), `, which costs ${plain(before.loss[at])} nats.`);
        return own;
      }
      const mean = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;
      const cost = seen.n > 1 ? mean(after.loss.slice(0, -1)) - mean(before.loss.slice(0, -1)) : 0;
      return [`${described()} `, ...first, near(after.token[at]), ` (${plain(after.chance[at])})`,
        ...(after.token[at] === before.token[at] ? [`, as in the whole model (${plain(before.chance[at])}).`] : ["; in the whole model it is ", near(before.token[at]), ` (${plain(before.chance[at])}).`]),
        ` The prediction moves by ${plain(seen.shift[at], 3)} nats (KL) here and by ${plain(mean(seen.shift), 3)} on average; the text costs ${signed(cost)} nats a token.`];
    }

    function described() {
      const { off, instead: how, patch, steer, switches } = state.experiment;
      const told = [];
      const part = (key) => { const [layer, what] = key.split("."); return what === "n" ? `network ${layer}` : what === "b" ? `block ${layer}` : `head ${layer}.${what}`; };
      if (off.length) told.push(`without ${off.length > 6 ? `${off.length} parts` : off.map(part).join(", ")} (${{ zero: "zeros", mean: "mean", resample: "another sentence" }[how]})`);
      if (patch) {
        const where = patch.position === null ? "at every position that both texts have" : `at position ${patch.position} from position ${patch.row} of the second sentence`;
        told.push(`with ${patch.tap} patched ${where}`);
      }
      if (steer) told.push(`steered by ${signed(steer.dose, 2)}`);
      for (const one of switches) told.push({ positions: "positions off", scale: "scores unscaled", mean: "norms without mean", mask: "no causal mask" }[one]);
      const text = told.join("; ");
      return `${text[0].toUpperCase()}${text.slice(1)}.`;
    }

    function draw() {
      drawStrip({ tokens: seen.tokens, position: seen.position, shift: seen.changed && !hidden ? seen.shift : null });
      guess.hidden = !hidden;
      const within = panel.contains(document.activeElement);
      panel.hidden = list.hidden = !!hidden;
      if (hidden) {
        drawGuess();
        if (within) guess.querySelector("button").focus(); // a switch of the overview, which is hidden now
        return;
      }
      const words = sentence();
      readout.replaceChildren(...words.map((word) => (word instanceof Node ? word.cloneNode(true) : word)));
      say(readout.textContent);
      if (!codeBox.hidden) tellCode();
      const focused = panel.contains(document.activeElement) ? document.activeElement.dataset.key : null;
      ({ next: drawNext, overview: drawOverview, heads: drawHeads, lens: drawLens, ledger: drawLedger, numbers: drawNumbers, each: drawEach, write: drawWrite, luck: drawLuck })[state.tab]();
      if (focused) panel.querySelector(`[data-key="${focused}"]`)?.focus();
    }

    // Its tokens; where a prediction has moved, by how much.
    function drawStrip({ tokens: row, position, shift = null }) {
      const had = strip.contains(document.activeElement);
      const most = shift ? Math.max(...shift, 0.05) : 1;
      drawTokens(strip, row, shift ? (at) => `, moves by ${plain(shift[at], 2)} nats` : undefined);
      Array.from(strip.children).forEach((each, at) => each.lastChild.style.setProperty("--lm-share", shift ? shift[at] / most : 0));
      mark(strip, position, "aria-checked");
      if (had) strip.children[position].focus();
    }

    function drawTokens(box, row, more = () => "") {
      while (box.children.length > row.length) box.lastChild.remove();
      while (box.children.length < row.length) box.append(make("button", { type: "button", role: "radio" }, bdi(""), make("i", { class: "lm-bar", "aria-hidden": "true" })));
      Array.from(box.children).forEach((each, at) => {
        const told = name(row[at]);
        const label = `${at}, ${told}${more(at)}`;
        if (each.getAttribute("aria-label") === label) return;
        each.firstChild.textContent = told;
        each.setAttribute("aria-label", label);
        each.title = `Position ${label}`;
      });
    }

    function drawGuess() {
      const before = seen.sides[0];
      const token = before.token[seen.position];
      const chance = seen.shown.find(([each]) => each === token);
      const reveal = (said) => {
        const moved = chance[2] - chance[1];
        const is = Math.abs(moved) < 0.05 ? "about the same" : moved < 0 ? "less likely" : "more likely";
        guesses = { right: guesses.right + (said === is), all: guesses.all + 1 };
        settled = hidden;
        hidden = null;
        draw();
        readout.prepend(make("b", {}, `You said ${said}, and it is ${is}: ${plain(chance[1])} before, ${plain(chance[2])} now (${guesses.right} of ${guesses.all} right). `));
        say(readout.textContent);
        list.querySelector("[aria-selected=true]").focus();
      };
      readout.replaceChildren(`${described()} What happens?`);
      guess.replaceChildren(make("p", {}, "In the whole model ", near(token), ` is likeliest next, with ${plain(chance[1])}. With the change it will be \u2026`),
        make("div", { class: "lm-buttons" }, ...["less likely", "about the same", "more likely"].map((said) => button(said, () => reveal(said)))));
      say(`${readout.textContent} ${guess.textContent}`);
    }

    function drawNext() {
      const heads = ["token", seen.changed ? "whole model" : "probability", ...(seen.changed ? ["changed", "difference"] : [])];
      const rows = seen.shown.map(([token, before, after]) => [bdi(name(token)), bar(before, plain(before, 3), seen.changed),
        ...(seen.changed ? [bar(after, plain(after, 3)), signed(after - before)] : [])]);
      panel.replaceChildren(scroll("Next tokens", table(`What comes after position ${seen.position}`, heads, rows)));
    }

    // One picture from the text to the next token.
    const detailOf = (key) => { const what = key.split(".")[1]; return { n: "numbers", b: "lens" }[what] || "heads"; };
    const overview = liveOverview(controls, {
      data, box, name,
      toggle: (key) => { const each = offBoxes.get(key); each.checked = !each.checked; refresh(); },
      views: {
        of: (key) => (data.views.includes(detailOf(key)) ? names[detailOf(key)] : null),
        open: (key) => {
          const [layer, what] = key.split(".");
          if (detailOf(key) === "heads") [state.layer, state.head] = [Number(layer), Number(what)];
          if (what === "n") state.tap = `blocks.${layer}.feedforward.neurons`;
          show(detailOf(key));
          list.querySelector("[aria-selected=true]").focus();
        },
      },
      // Puts a token behind the text, where the text then reads so.
      append: (token, asked = false) => {
        const text = `${state.text}${data.cut === "words" ? " " : ""}${joined(data, [token])}`;
        const after = cut(text).tokens;
        const fits = after.length === cut(state.text).tokens.length + 1 && after[after.length - 1] === token;
        if (asked || !fits) return fits;
        area.value = text;
        pick.value = "";
        state.position = null;
        refresh();
        return true;
      },
      chose: (key) => { state.part = key; },
    });
    function drawOverview() {
      if (!seen.overview) return; // on its way
      if (panel.firstChild !== overview.element) panel.replaceChildren(overview.element);
      overview.draw(seen, state.experiment);
    }

    function drawHeads() {
      if (!seen.pattern) return; // on its way
      const grid = make("div", { class: "lm-heads", role: "radiogroup", "aria-label": "Choose a head" });
      grid.style.gridTemplateColumns = `repeat(${H}, auto)`;
      for (let l = 0; l < L; l += 1) {
        for (let h = 0; h < H; h += 1) {
          const [best, weight] = seen.looks[l][h];
          grid.append(make("button", { type: "button", role: "radio", "data-key": `${l}.${h}`, title: `Looks most at position ${best}`,
            "aria-label": `Layer ${l}, head ${h}: looks most at position ${best}, ${name(seen.tokens[best])} (${plain(weight)})` },
          make("b", {}, `${l}.${h}`), make("span", {}, bdi(name(seen.tokens[best])), ` ${plain(weight)}`)));
        }
      }
      group(grid, L * H, () => H, (at) => { [state.layer, state.head] = [Math.floor(at / H), at % H]; mark(grid, at, "aria-checked"); refresh(); });
      mark(grid, state.layer * H + state.head, "aria-checked");
      const [label, how] = select("Shown", [["raw", "weights as they are"], ["weighted", "weights \u00d7 length of what the head makes of the value"]], state.weighted ? "weighted" : "raw");
      how.dataset.key = "shown";
      how.addEventListener("change", () => { state.weighted = how.value === "weighted"; refresh(); });
      const told = seen.pattern.map((pattern, side) => {
        const own = Array.from(pattern.subarray(seen.position * seen.n, (seen.position + 1) * seen.n));
        const best = own.indexOf(Math.max(...own));
        return make("p", {}, `${seen.changed ? ["Whole: from", "Changed: from"][side] : "From"} position ${seen.position}, `, near(seen.tokens[seen.position]), `, it looks most at position ${best}, `, near(seen.tokens[best]), ` (${plain(own[best])}).`);
      });
      const figures = seen.pattern.map((pattern, side) => {
        const canvas = make("canvas", { role: "img", "aria-label": `Pattern of layer ${state.layer}, head ${state.head}; the sentence above says where it looks` });
        paint(canvas, pattern);
        canvas.addEventListener("click", (event) => {
          state.position = Math.floor((event.offsetY / canvas.clientHeight) * seen.n);
          refresh();
        });
        return make("figure", {}, make("figcaption", {}, seen.changed ? ["whole model", "changed"][side] : "rows: queries; columns: keys"), canvas);
      });
      panel.replaceChildren(scroll("Heads", grid), note(`Under each head${seen.changed ? " of the changed model" : ""}: at which token it looks most from position ${seen.position}, and with what weight.`),
        make("p", { class: "lm-heading" }, `Layer ${state.layer}, head ${state.head}`), ...told, label, make("div", { class: "lm-matrices" }, ...figures),
        ...(state.experiment.patch?.tap === `blocks.${state.layer}.attention.pattern` ? [] : [weighing()]));
    }

    // From scores to weights, in numbers, for the chosen head and position.
    let weighed = false; // whether it is open
    function weighing() {
      const side = seen.pattern.length - 1;
      const { experiment } = state;
      const { scale, slopes } = data.packed.config;
      const count = experiment.switches.includes("mask") ? seen.n : seen.position + 1;
      const scores = Array.from(seen.scores[side].subarray(0, count));
      const most = Math.max(...scores);
      const raised = scores.map((score) => Math.exp(score - most));
      const sum = raised.reduce((total, one) => total + one, 0);
      const rows = scores.map((score, k) => [`${k}`, bdi(name(seen.tokens[k])), signed(score, 2), plain(raised[k], 3), plain(raised[k] / sum, 3)]);
      rows.push(["sum", "", "", plain(sum, 3), "1"]);
      const words = `Score: query \u00b7 key \u00d7 ${plain(experiment.switches.includes("scale") ? 1 : scale, 3)}${slopes && !experiment.switches.includes("positions") ? ` \u2212 ${plain(slopes[state.head], 3)} \u00d7 distance` : ""}. Weight: e to the score, divided by the sum of these over all positions that may be looked at. The largest score is taken from each first, which changes no weight.`;
      const box = fold("From scores to weights", weighed, note(words), scroll("From scores to weights", table(`Layer ${state.layer}, head ${state.head}, from position ${seen.position}`, ["position", "token", "score", "e to it", "weight"], rows)));
      box.addEventListener("toggle", () => { weighed = box.open; });
      return box;
    }

    function paint(canvas, pattern) {
      const { n } = seen;
      const cell = Math.max(3, Math.floor(Math.min(seen.changed ? 220 : 300, box.clientWidth - 40) / n));
      canvas.width = canvas.height = n;
      canvas.style.width = canvas.style.height = `${cell * n}px`;
      const most = state.weighted ? Math.max(...pattern, 1e-9) : 1;
      const shade = ramp(...["--lm-none", "--lm-half", "--lm-full"].map((each) => colour(box, each)));
      const context = canvas.getContext("2d");
      const image = context.createImageData(n, n);
      const seesAll = state.experiment.switches.includes("mask");
      pattern.forEach((value, at) => {
        const [q, k] = [Math.floor(at / n), at % n];
        image.data.set(shade(value / most), 4 * at);
        image.data[4 * at + 3] = k <= q || seesAll ? (q === seen.position ? 255 : 215) : 0;
      });
      context.putImageData(image, 0, 0);
    }

    function drawLens() {
      if (!seen.lens) return;
      const shown = seen.lensAt;
      const one = (lens, caption) => {
        const made = table(caption, ["depth", ...shown.map((t) => `${t}`)], [
          ...lens.map((depths, d) => [d ? `after block ${d - 1}` : "embedding", ...shown.map((_, i) => bdi(name(depths[i][0])))]).reverse(),
          ["token read", ...shown.map((t) => bdi(name(seen.tokens[t])))]], { class: "lm-lens" });
        made.querySelectorAll("tbody tr").forEach((line, at) => line.querySelectorAll("td").forEach((cell, i) => {
          const chance = at <= L ? lens[L - at][i][1] : 0;
          cell.style.setProperty("--lm-share", chance);
          if (at <= L) cell.title = plain(chance);
          if (shown[i] === seen.position) cell.className = "lm-here";
        }));
        return made;
      };
      const depths = seen.lens[seen.lens.length - 1];
      const here = shown.indexOf(seen.position);
      const words = depths.map((each, d) => [`${d ? `after block ${d - 1}` : "the embedding alone"}: `, near(each[here][0]), ` (${plain(each[here][1])})${d < L ? "; " : "."}`]).flat();
      const choice = [];
      if (data.packed.lens) {
        const [label, how] = select("Read with", [["logit", "the logit lens: the last layer\u2019s own reading"], ["tuned", "the tuned lens: translated by a map fitted for each depth"]], state.tuned ? "tuned" : "logit");
        how.dataset.key = "lens";
        how.addEventListener("change", () => { state.tuned = how.value === "tuned"; refresh(); });
        choice.push(label);
      }
      panel.replaceChildren(...choice, make("p", {}, `At position ${seen.position}, `, ...words), scroll(state.tuned ? "Tuned lens" : "Logit lens", ...seen.lens.map((lens, side) =>
        one(lens, `${seen.changed ? ["Whole model: ", "Changed: "][side] : ""}likeliest next token if the stream were read at each depth; the darker, the likelier`))));
    }

    function drawLedger() {
      if (!seen.ledger) return;
      const token = seen.ledgerToken;
      const part = (key) => {
        if (key === "embedding") return "embedding";
        const [layer, what] = key.split(".");
        return { a: `layer ${layer}, attention\u2019s bias`, n: `layer ${layer}, network` }[what] || `layer ${layer}, head ${what}`;
      };
      const sums = seen.ledger[0].parts[0].push !== null;
      const heads = ["what is added", "length", ...(sums ? [`push on \u201c${name(token)}\u201d`] : []), ...(seen.changed ? ["length, changed", ...(sums ? ["push, changed"] : [])] : [])];
      const [before, after] = [seen.ledger[0], seen.ledger[seen.ledger.length - 1]];
      const cells = (entry) => [plain(entry.length), ...(sums ? [signed(entry.push, 2)] : [])];
      const rows = before.parts.map((entry, at) => [part(entry.name), ...cells(entry), ...(seen.changed ? cells(after.parts[at]) : [])]);
      rows.push(["the stream, in sum", ...cells(before.stream), ...(seen.changed ? cells(after.stream) : [])]);
      panel.replaceChildren(scroll("Ledger", table(`What each part adds to the stream at position ${seen.position}`, heads, rows)),
        ...(sums ? [note("Push: what a part adds by itself to the logit of the whole model\u2019s likeliest token, minus the mean over all tokens, the final norm\u2019s scale held.")] : []));
    }

    const changing = (field, key) => {
      field.dataset.key = key;
      field.addEventListener("change", () => { state[key] = field.value; refresh(); });
    };
    const choice = (text, options, key) => {
      const [label, field] = select(text, options, state[key]);
      changing(field, key);
      return label;
    };

    // Any values that the model computes, a row a token.
    const tapsOfNumbers = engine.names.map(([each]) => each).filter((each) => !/(scores|pattern|head_outputs)$/.test(each));
    function drawNumbers() {
      if (!seen.numbers || seen.tap !== state.tap) return; // on its way
      const { position } = seen;
      const wide = seen.numbers[0].length / seen.n;
      const own = seen.numbers.map((all) => all.subarray(position * wide, (position + 1) * wide));
      const most = Math.max(...seen.numbers.map((all) => all.reduce((high, one) => Math.max(high, Math.abs(one)), 1e-9)));
      const said = own.map((row, side) => {
        const [low, high] = [Math.min(...row), Math.max(...row)];
        return make("p", {}, `${seen.changed ? ["Whole: ", "Changed: "][side] : ""}position ${position}, `, near(seen.tokens[position]), wide > 1
          ? `, has ${wide} numbers of length ${plain(Math.hypot(...row))}, from ${plain(low)} (number ${row.indexOf(low)}) to ${plain(high)} (number ${row.indexOf(high)}).` : `, has one number, ${plain(row[0], 3)}.`);
      });
      const figures = seen.numbers.map((all, side) => {
        const canvas = make("canvas", { role: "img", "aria-label": `${state.tap}, a row a position; the sentence above says the chosen one in numbers` });
        paintNumbers(canvas, all, wide, most);
        canvas.addEventListener("click", (event) => { state.position = Math.floor((event.offsetY / canvas.clientHeight) * seen.n); refresh(); });
        return make("figure", {}, make("figcaption", {}, `${seen.changed ? ["whole model: ", "changed: "][side] : ""}a row a position; the farther from zero, the stronger; orange is above, blue below`), canvas);
      });
      const rows = Array.from(own[0], (_, i) => [`${i}`, ...own.map((row) => plain(row[i], 3))]);
      const [label, field] = tapChoice("Numbers at", tapsOfNumbers, state.tap);
      changing(field, "tap");
      panel.replaceChildren(label, ...said, make("div", { class: "lm-matrices" }, ...figures),
        scroll("Numbers", table(`${state.tap} at position ${position}`, ["number", ...(seen.changed ? ["whole model", "changed"] : ["value"])], rows)));
    }

    function paintNumbers(canvas, all, wide, most) {
      const { n } = seen;
      [canvas.width, canvas.height] = [wide, n];
      [canvas.style.width, canvas.style.height] = [`${Math.min(wide * 8, Math.max(120, panel.clientWidth - 12))}px`, `${n * clamp(Math.floor(220 / n), 4, 14)}px`];
      const [none, high, low] = ["--lm-none", "--lm-half", "--lm-second"].map((each) => rgb(colour(box, each)));
      const context = canvas.getContext("2d");
      const image = context.createImageData(wide, n);
      all.forEach((value, at) => {
        const share = Math.sqrt(Math.abs(value) / most);
        for (let c = 0; c < 3; c += 1) image.data[4 * at + c] = none[c] + ((value > 0 ? high : low)[c] - none[c]) * share;
        image.data[4 * at + 3] = Math.floor(at / wide) === seen.position ? 255 : 200;
      });
      context.putImageData(image, 0, 0);
    }

    // Each part switched off by itself.
    function drawEach() {
      if (!seen.each) return;
      const before = seen.sides[0].token[seen.position];
      const part = (place) => place.replace(/^(\d+)\.n$/, "network $1");
      const others = seen.each.filter(({ token }) => token !== before);
      const numberOf = { moved: (one) => one.moved, cost: (one) => one.cost }[state.number];
      const most = seen.each.reduce((best, one) => (Math.abs(numberOf(one)) > Math.abs(numberOf(best)) ? one : best));
      const heads = Array.from({ length: L }, (_, l) => seen.each.slice(l * (H + 1), (l + 1) * (H + 1)));
      const told = (one) => make("span", {}, state.number === "cost" ? signed(one.cost) : plain(one.moved, 3), ...(one.token === before ? [] : [make("span", { class: "lm-under" }, "\u2192 ", make("b", {}, near(one.token)))]));
      const made = table(`Without this part alone: ${state.number === "cost" ? "nats a token by which the text costs more" : `nats by which the prediction at position ${seen.position} moves (KL)`}, and the likeliest token where it is another one`,
        ["without", ...Array.from({ length: H }, (_, h) => `h${h}`), "network"], heads.map((row, l) => [`layer ${l}`, ...row.map(told)]), { class: "lm-lens" });
      made.querySelectorAll("tbody td").forEach((cell, at) => { cell.style.setProperty("--lm-share", clamp(Math.abs(numberOf(seen.each[at])) / (Math.abs(numberOf(most)) || 1), 0, 1)); });
      const words = others.length ? [`${others.length} of ${seen.each.length} parts, each taken away by itself, change the likeliest token `, near(before), `: ${others.map(({ place }) => part(place)).join(", ")}.`]
        : [`No part, taken away by itself, changes the likeliest token `, near(before), "."];
      const instead = { zero: "zeros", mean: "their means", resample: "their values on another sentence" }[state.experiment.instead];
      panel.replaceChildren(choice("Number", [["moved", "how far the prediction at this position moves"], ["cost", "how much more the text costs"]], "number"),
        make("p", {}, ...words, ` The largest number is that of ${part(most.place)}.`), scroll("One by one", made),
        note(`In the whole model, with ${instead} in their place, as chosen under Switch off.`));
    }

    // Writing on.
    const [temperatureLabel, temperature, tellTemperature] = slider("Temperature", { min: 0.1, max: 2, step: 0.1, value: 0.8 }, (value) => plain(value, 1));
    const [topKLabel, topK] = input("Top-k (none: all)", { type: "number", min: 1, step: 1 });
    const [topPLabel, topP, tellTopP] = slider("Top-p", { min: 0.05, max: 1, step: 0.05, value: 1 }, (value) => plain(value));
    const [seedLabel, seed] = input("Seed", { type: "number", min: 0, step: 1, value: 0 });
    const [countLabel, count] = input("Tokens", { type: "number", min: 1, max: data.packed.sizes.room, step: 1, value: 48 });
    const texts = make("div", { "aria-live": "polite" });
    const samplingOf = () => ({ temperature: Number(temperature.value), topK: whole(topK) || null, topP: Number(topP.value), seed: (whole(seed) || 0) % 2 ** 32 });
    const go = button("Write on", async () => {
      read();
      if (!tokens().length) return;
      const sampling = samplingOf();
      const most = data.packed.sizes.room - tokens().length;
      const given = { tokens: tokens(), sampling, count: clamp(whole(count) || 1, 1, most) };
      go.disabled = true;
      try {
        const sides = [["whole model", {}], ...(seen && seen.changed ? [["changed", state.experiment]] : [])];
        const found = [];
        for (const [who, experiment] of sides) {
          const own = await engine.ask("sample", { ...given, experiment });
          found.push(make("div", {}, make("p", { class: "lm-note" }, `${who}, ${own.length} ${data.unit}:`), make("p", { class: "lm-written" }, joined(data, given.tokens), data.cut === "words" ? " " : "", make("b", {}, joined(data, own)))));
        }
        written = { ...sampling, count: given.count };
        texts.replaceChildren(...found);
        if (!codeBox.hidden) tellCode();
      } catch (error) {
        texts.replaceChildren(make("p", { class: "lm-wrong" }, error.message));
      }
      go.disabled = false;
    });
    const next = make("div", {});
    const levers = make("div", { class: "lm-row" }, temperatureLabel, topPLabel, topKLabel, seedLabel, countLabel);
    levers.addEventListener("input", () => refresh());
    const writing = [levers, make("div", { class: "lm-buttons" }, go), texts, next];
    function drawWrite() {
      if (panel.firstChild !== levers) panel.replaceChildren(...writing);
      if (!seen.drawable) return; // on its way
      const heads = ["may be drawn", ...(seen.changed ? ["whole model", "changed"] : ["probability"])];
      const rows = seen.drawable.filter((each) => Math.max(...each.slice(1)) > 0)
        .map(([token, ...shares]) => [bdi(name(token)), ...shares.map((share, side) => bar(share, plain(share, 3), side === 0 && seen.changed))]);
      next.replaceChildren(scroll("What may be drawn", table(`After position ${seen.position}, by temperature, top-p and top-k: ${seen.left.join(" and ")} of ${data.names.length} tokens are left`, heads, rows)));
    }

    // Was that luck? The same change on every kept sentence, in pieces, by several workers where there may be.
    const total = data.packed.kept.shape[0];
    const verdict = make("div", { "aria-live": "polite" });
    const progress = make("progress", { max: total, value: 0, "aria-label": "Sentences done", hidden: true });
    let crew = null;
    let drawHistograms = () => {};
    const ask = button(`Ask ${total} kept sentences`, async () => {
      const began = performance.now();
      const experiment = structuredClone(state.experiment); // the reader may go on meanwhile
      const { position } = seen;
      const { of } = verdict.dataset;
      const own = { cost: seen.n > 1 ? seen.sides[1].loss.slice(0, -1).reduce((sum, one, at) => sum + one - seen.sides[0].loss[at], 0) / (seen.n - 1) : null, moved: seen.shift[position] };
      ask.disabled = true;
      progress.hidden = false;
      verdict.replaceChildren();
      try {
        if (!crew) {
          const more = engine.inWorker ? clamp((navigator.hardwareConcurrency || 2) - 1, 1, 4) : 0;
          crew = more ? await Promise.all(Array.from({ length: more }, () => hired(data.packed, buffer))) : [engine];
        }
        const found = new Array(total);
        const [piece, share] = [crew[0].inWorker ? 8 : 2, Math.ceil(total / crew.length)];
        let done = 0;
        // Each has its own stretch, so that what it has computed serves the next question.
        await Promise.all(crew.map(async (each, at) => {
          const end = Math.min(total, (at + 1) * share);
          for (let from = at * share; from < end; from += piece) {
            const to = Math.min(end, from + piece);
            (await each.ask("luck", { experiment, from, to, position })).forEach((value, i) => { found[from + i] = value; });
            done += to - from;
            progress.value = done;
          }
        }));
        if (verdict.dataset.of === of) drawVerdict(found, own, position, performance.now() - began);
        else verdict.replaceChildren(note("The experiment has changed while the sentences were asked: ask again."));
      } catch (error) {
        verdict.replaceChildren(make("p", { class: "lm-wrong" }, error.message));
      }
      progress.hidden = true;
      ask.disabled = false;
    });

    function drawVerdict(found, own, position, took) {
      const count = found.length;
      const of = (key) => {
        const values = found.map((each) => each[key]);
        const mean = values.reduce((sum, one) => sum + one, 0) / count;
        const spread = Math.sqrt(values.reduce((sum, one) => sum + (one - mean) ** 2, 0) / (count - 1));
        const order = [...values].sort((a, b) => a - b);
        return { values, mean, spread, order, half: (1.96 * spread) / Math.sqrt(count), at: (share) => order[Math.round(share * (count - 1))],
          below: (one) => Math.round((100 * values.filter((each) => each < one).length) / count) };
      };
      const [cost, moves] = [of("cost"), of("moved")];
      box.dataset.luck = JSON.stringify(cost.values);
      box.dataset.moved = JSON.stringify(moves.values);
      const last = data.packed.kept.shape[1] - 1;
      const there = `At position ${Math.min(position, last)}${position > last ? ", their last," : ""}`;
      const moving = `${there} the prediction of a kept sentence moves by ${plain(moves.mean, 3)} nats (KL) on average; half of them move by ${plain(moves.at(0.25), 3)} to ${plain(moves.at(0.75), 3)}, all by ${plain(moves.order[0], 3)} to ${plain(moves.order[count - 1], 3)}. Yours moves by ${plain(own.moved, 3)} at position ${position}, more than ${moves.below(own.moved)} % of them.`;
      const costing = `On ${count} kept sentences the change costs ${signed(cost.mean)} nats a token on average (95 % interval ${signed(cost.mean - cost.half)} to ${signed(cost.mean + cost.half)}). Single sentences spread by ${plain(cost.spread, 3)} (standard deviation): half of them lie between ${signed(cost.at(0.25))} and ${signed(cost.at(0.75))}, all between ${signed(cost.order[0])} and ${signed(cost.order[count - 1])}; ${cost.values.filter((one) => one > 0).length} of ${count} cost more than before.${own.cost === null ? "" : ` Yours: ${signed(own.cost)}, more than ${cost.below(own.cost)} % of them.`}`;
      const drawn = (order, value, unit) => {
        const canvas = make("canvas", { class: "lm-drawn", role: "img", "aria-label": "Histogram; the sentence above says it in numbers" });
        return [canvas, () => histogram(canvas, order, value, unit)];
      };
      const [first, drawFirst] = drawn(moves.order, own.moved, "nats");
      const [second, drawSecond] = drawn(cost.order, own.cost, "nats a token");
      verdict.replaceChildren(make("p", {}, moving), first, make("p", {}, costing), second, note(`It took ${plain(took / 1000, 1)} s.`));
      drawHistograms = () => { drawFirst(); drawSecond(); };
      drawHistograms();
    }

    function histogram(canvas, order, own, unit) {
      const [width, height] = [Math.min(460, panel.clientWidth - 8), 130];
      const density = window.devicePixelRatio || 1;
      [canvas.width, canvas.height] = [width * density, height * density];
      [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
      const context = canvas.getContext("2d");
      context.scale(density, density);
      const low = Math.min(order[0], own ?? 0, 0);
      const high = Math.max(order[order.length - 1], own ?? 0, 1e-6);
      const bins = new Array(32).fill(0);
      const x = (value) => 8 + ((value - low) / (high - low || 1)) * (width - 16);
      for (const one of order) bins[clamp(Math.floor(((one - low) / (high - low || 1)) * 32), 0, 31)] += 1;
      const most = Math.max(...bins);
      const ink = colour(box, "--lm-ink");
      context.fillStyle = colour(box, "--lm-second");
      bins.forEach((number, at) => { const tall = (number / most) * 78; context.fillRect(8 + (at * (width - 16)) / 32 + 0.5, 104 - tall, (width - 16) / 32 - 1, tall); });
      context.fillStyle = context.strokeStyle = ink;
      context.fillRect(8, 104, width - 16, 1);
      context.font = "12px system-ui, sans-serif";
      context.textAlign = "center";
      const line = (value, text, top) => {
        context.fillRect(x(value) - 0.75, top, 1.5, 104 - top);
        context.fillText(text, clamp(x(value), 34, width - 34), top - 4);
      };
      line(0, "no change", 26);
      if (own !== null) line(own, "yours", 13);
      context.textAlign = "start";
      context.fillText(signed(low), 8, 120);
      context.textAlign = "end";
      context.fillText(`${signed(high)} ${unit}`, width - 8, 120);
    }

    function drawLuck() {
      ask.disabled = !seen.changed || progress.hidden === false;
      const words = make("p", {}, seen.changed
        ? "What is seen on one sentence may be peculiar to it. The same change on kept sentences, which were drawn at random:"
        : "Change something first: switch a head off, patch, steer, or change a rule. Then ask whether its effect on your sentence was luck.");
      const of = JSON.stringify([state.experiment, seen.tokens, seen.position]);
      if (verdict.dataset.of !== of) {
        verdict.replaceChildren();
        drawHistograms = () => {};
      }
      verdict.dataset.of = of;
      panel.replaceChildren(words, make("div", { class: "lm-buttons" }, ask), progress, verdict);
      drawHistograms(); // perhaps in another theme
    }

    // Sharing ---------------------------------------------------------------------------------------

    const kept = () => {
      const { experiment } = state;
      const controls = { patch: [patchText.value, tap.value, patchHead.value, patchAt.value, patchFrom.value], steer: [towards.value, away.value, depth.value, dose.value], g: [temperature, topK, topP, seed, count].map((field) => field.value) };
      return { t: state.text, p: state.position, v: state.tab, s: state.part, l: state.layer, h: state.head, r: state.tuned ? 1 : 0, a: state.tap, e: state.number, o: experiment.off, i: experiment.instead, d: experiment.donor, w: experiment.switches, x: state.weighted ? 1 : 0, y: predict.checked ? 1 : 0, ...controls };
    };
    // In a frame without an address of its own, what is put behind that of a page.
    const addressOf = () => `${/^(https?|file):$/.test(location.protocol) ? location.href.split("#")[0] : ""}#live=${data.version}~${packState(kept())}`;
    const tellCode = () => { code.firstChild.textContent = python(data, { ...state, position: seen ? seen.position : 0 }, tokens(), (each) => headsAt.get(each), written); };

    // Takes the state of an address, where it is one of this model, and tells whether it was meant; what does not
    // fit is told in `refusal`.
    let refusal = "";
    function take() {
      const found = /^#live=([^~]+)~(.+)$/.exec(location.hash);
      refusal = "";
      if (!found) return false;
      if (found[1] !== data.version) {
        if (number > 1 || versions().includes(found[1])) return false; // another model of the page takes it
        refusal = "This address is from another version of the page or of its model: the experiment begins anew.";
        return true;
      }
      let told;
      try {
        told = unpackState(found[2]);
        if (typeof told.t !== "string" || ![told.o, told.w, told.patch, told.steer].every(Array.isArray)) throw new Error();
      } catch {
        refusal = "This address cannot be read: the experiment begins anew.";
        return true;
      }
      let left = false; // something that this model does not have
      const set = (field, value) => {
        field.value = `${value ?? ""}`;
        if (field.value !== `${value ?? ""}`) left = true;
      };
      const among = (value, values, usual) => {
        if (values.includes(value)) return value;
        left ||= value !== undefined && value !== null;
        return usual;
      };
      const upTo = (value, most) => among(value, Array.from({ length: most }, (_, at) => at), 0);
      clear();
      area.value = told.t;
      state.position = Number.isInteger(told.p) && told.p >= 0 ? told.p : null;
      [state.layer, state.head] = [upTo(told.l, L), upTo(told.h, H)];
      state.tuned = told.r === 1 && !!data.packed.lens;
      state.weighted = told.x === 1;
      state.tap = among(told.a, tapsOfNumbers, state.tap);
      state.number = among(told.e, ["moved", "cost"], "moved");
      for (const key of told.o) {
        if (offBoxes.has(key)) offBoxes.get(key).checked = true;
        else left = true;
      }
      for (const [, each] of rules) each.checked = told.w.includes(each.value);
      left ||= told.w.some((key) => !rules.some(([, each]) => each.value === key));
      instead.value = among(told.i, ["zero", "mean", "resample"], "zero");
      state.experiment.donor = upTo(told.d, total);
      [patchText, tap, patchHead, patchAt, patchFrom].forEach((field, at) => set(field, told.patch[at]));
      [towards, away, depth, dose].forEach((field, at) => set(field, told.steer[at]));
      if (Array.isArray(told.g)) [temperature, topK, topP, seed, count].forEach((field, at) => set(field, told.g[at]));
      if (tap.selectedIndex < 0) tap.value = "";
      if (patchHead.selectedIndex < 0) patchHead.value = "";
      if (depth.selectedIndex < 0) depth.value = "0";
      for (const tell of [tellDose, tellTemperature, tellTopP]) tell();
      patchFold.open = !!tap.value;
      steerFold.open = Number(dose.value) !== 0;
      rulesFold.open = rules.some(([, each]) => each.checked);
      predict.checked = told.y === 1;
      pick.value = "";
      state.tab = among(told.v, views.map(([key]) => key), state.tab);
      state.part = among(told.s, [...offBoxes.keys()], null);
      if (state.part !== null) overview.show(state.part);
      if (left) refusal = "This address asks for things that this model does not have: they are left out.";
      return true;
    }

    // An address that arrives when the page is open, and the beginning.
    function takeNow() {
      const meant = take();
      tellRefusal.textContent = refusal;
      tellRefusal.hidden = !refusal;
      if (meant) box.scrollIntoView();
      return meant;
    }
    addEventListener("hashchange", () => { if (root.isConnected && takeNow()) show(state.tab); });

    // Begin -----------------------------------------------------------------------------------------

    area.value = data.texts[0];
    takeNow();
    pick.addEventListener("change", () => { if (pick.value !== "") { area.value = data.texts[Number(pick.value)]; state.position = null; refresh(); } });
    area.addEventListener("input", () => { pick.value = ""; state.position = null; tellRefusal.hidden = true; refresh(); });
    group(patchStrip, 1, () => 1, (at) => {
      patchFrom.value = at;
      if (patchAt.value === "" && seen) patchAt.value = seen.position;
      refresh();
    });
    experimentBox.addEventListener("input", () => refresh());
    group(strip, 1, () => 1, (at) => { state.position = at; mark(strip, at, "aria-checked"); refresh(); });
    show(state.tab);
  }

  // Several models --------------------------------------------------------------------------------

  const versions = () => Array.from(document.querySelectorAll(".lm-told"), (each) => JSON.parse(each.textContent).version);

  // A choice between models: the one that is chosen is shown, and begins when it is shown first.
  function choose(root) {
    const told = toldTo(root, "lm-names");
    if (!told || root.live) return;
    root.live = true;
    root.querySelector(":scope > .lm-choose")?.remove(); // of a page that was saved with it
    const { names, title } = JSON.parse(told.textContent);
    const boxes = Array.from(root.querySelectorAll(":scope > .live-model"));
    const list = make("div", { class: "lm-tabs", role: "radiogroup", "aria-label": "Choose a model" },
      ...names.map((each) => make("button", { type: "button", role: "radio" }, each)));
    const bar = make("div", { class: "lm-live", role: "group", "aria-label": title }, list);
    const show = (at) => {
      mark(list, at, "aria-checked");
      boxes.forEach((box, i) => { box.hidden = i !== at; });
      start(boxes[at]);
    };
    group(list, names.length, () => 1, show);
    root.prepend(make("div", { class: "live-model lm-choose" }, bar));
    followTheme(bar);
    const own = boxes.map((box) => JSON.parse(toldTo(box, "lm-told").textContent).version);
    const asked = () => own.indexOf(/^#live=([^~]+)~/.exec(location.hash)?.[1]);
    show(Math.max(0, asked()));
    addEventListener("hashchange", () => { if (root.isConnected && asked() >= 0) show(asked()); });
  }

  // A notebook inserts the HTML and runs its script later, or again: every box that has not begun begins.
  nowAndSoon(() => {
    document.querySelectorAll(".live-choice").forEach(choose);
    document.querySelectorAll('.live-model[data-kind="model"]').forEach((root) => { if (!root.closest(".live-choice")) start(root); });
  });
})();
