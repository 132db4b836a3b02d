// The filters of the Scorecard. The page is complete without them: this script shows the form that
// is part of it, hides the rows that do not fit, and keeps what is chosen in the address.
(() => {
  const form = document.querySelector("form.score-filter");
  const table = document.querySelector("table.scorecard");
  if (!form || !table) return;

  const body = table.tBodies[0];
  const found = form.querySelector(".score-found");
  const empty = document.querySelector(".score-empty");
  const boxes = [...form.querySelectorAll("input[name=verdict]")];
  const names = ["source", "chapter", "surprise", "size", "again"];
  const selects = names.map((name) => form.elements[name]);
  const options = selects.flatMap((select) =>
    [...select.options].filter((option) => option.value).map((option) => [select.name, option])
  );
  const rank = new Map(boxes.map((box, index) => [box.value, index]));
  const rows = [...body.rows].map((row, index) => ({
    row,
    index,
    ...Object.fromEntries(names.map((name) => [name, row.dataset[name]])),
    rank: Number(row.dataset.rank),
    effect: row.dataset.effect === "" ? -1 : Number(row.dataset.effect),
    verdict: row.dataset.verdict.replaceAll(" ", "-"),
    text: row.textContent.toLowerCase().replace(/\s+/g, " "),
  }));

  const chosen = () => ({
    ...Object.fromEntries(names.map((name) => [name, form.elements[name].value])),
    verdict: boxes.filter((box) => box.checked).map((box) => box.value),
    words: form.elements.words.value.trim(),
    order: form.elements.order.value,
  });

  // Whether a row fits; `except` names a filter that is left aside, to count what it would leave.
  const fits = (row, filter, words, except) =>
    names.every((name) => except === name || !filter[name] || row[name] === filter[name]) &&
    (except === "verdict" || !filter.verdict.length || filter.verdict.includes(row.verdict)) &&
    words.every((word) => row.text.includes(word));

  // What a second set of seeds does: another verdict first, those that were not measured again last.
  const agreement = ["other", "open", "same", "none"];
  const order = {
    "": (a, b) => a.index - b.index,
    verdict: (a, b) => rank.get(a.verdict) - rank.get(b.verdict) || a.index - b.index,
    chapter: (a, b) => a.chapter.localeCompare(b.chapter) || a.index - b.index,
    surprise: (a, b) => b.rank - a.rank || a.index - b.index,
    effect: (a, b) => b.effect - a.effect || a.index - b.index,
    again: (a, b) => agreement.indexOf(a.again) - agreement.indexOf(b.again) || a.index - b.index,
  };
  let ordered = "";

  function apply() {
    const filter = chosen();
    const words = filter.words.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const fit = fits(row, filter, words);
      row.row.hidden = !fit;
      count += fit;
    }
    if (filter.order !== ordered) {
      ordered = filter.order;
      body.append(...[...rows].sort(order[ordered]).map((row) => row.row));
    }
    const left = (name, value) =>
      rows.filter((row) => row[name] === value && fits(row, filter, words, name)).length;
    for (const box of boxes) {
      box.parentElement.querySelector(".score-number").textContent = left("verdict", box.value);
    }
    for (const [name, option] of options) {
      option.textContent = `${option.dataset.label} (${left(name, option.value)})`;
    }
    const all = count === rows.length;
    const text = all ? `${count} claims` : `${count} of ${rows.length} claims`;
    if (found.textContent !== text) found.textContent = text;
    empty.hidden = count > 0;
    table.hidden = count === 0;
  }

  function remember() {
    const { verdict, ...filter } = chosen();
    const said = Object.entries({ ...filter, verdict: verdict.join(",") }).filter(([, v]) => v);
    const state = said.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
    const address = state.replaceAll("%2C", ",");
    history.replaceState(null, "", address ? `#${address}` : location.pathname + location.search);
  }

  // An address holds filters (#source=DA&verdict=refuted) or the id of a claim (#DA-4.17).
  function read() {
    const hash = location.hash.slice(1);
    if (hash && !hash.includes("=")) return reach(decodeURIComponent(hash));
    const state = new URLSearchParams(hash);
    const verdicts = (state.get("verdict") || "").split(",");
    for (const box of boxes) box.checked = verdicts.includes(box.value);
    for (const name of [...names, "order"]) {
      form.elements[name].value = state.get(name) || "";
      if (form.elements[name].selectedIndex < 0) form.elements[name].value = "";
    }
    form.elements.words.value = state.get("words") || "";
    apply();
    if (hash) form.scrollIntoView();
  }

  function reach(id) {
    const row = rows.find((each) => each.row.id === id)?.row;
    if (row?.hidden) {
      form.reset();
      return; // which comes back here through its own event
    }
    apply();
    row?.scrollIntoView();
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => {
    apply();
    remember();
  });
  form.addEventListener("reset", () =>
    setTimeout(() => {
      apply();
      const row = rows.find((each) => each.row.id === location.hash.slice(1))?.row;
      if (row) row.scrollIntoView();
      else remember();
    })
  );
  addEventListener("hashchange", read);
  form.hidden = false;
  read();
})();
