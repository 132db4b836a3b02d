// The table of what carries over: filters above it, and columns that sort. The page is complete without this script.
(() => {
  const table = document.querySelector("table.carry-table.whole");
  if (!table) return;
  const body = table.tBodies[0];
  const kind = (row, prefix) =>
    [...row.classList].find((name) => name.startsWith(prefix))?.slice(prefix.length) || "";
  // The first number of a cell, with the signs and powers of ten that the page writes.
  const number = (cell) => {
    const found = cell.textContent.match(/[-−]?\d+(?:\.\d+)?(?:\s×\s10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?/);
    if (!found) return NaN;
    const digits = "⁰¹²³⁴⁵⁶⁷⁸⁹";
    const power = [...(found[1] || "⁰")].map((c) => (c === "⁻" ? "-" : digits.indexOf(c))).join("");
    return Number.parseFloat(found[0].replace("−", "-")) * 10 ** Number(power);
  };
  const rows = [...body.rows].map((row, index) => ({
    row,
    index,
    theme: kind(row, "theme-"),
    outcome: kind(row, "outcome-"),
    text: row.textContent.toLowerCase().replace(/\s+/g, " "),
    keys: [...row.cells].map((cell, i) =>
      i === 1 || i === 2 ? number(cell) : cell.textContent.trim().toLowerCase()
    ),
  }));

  const form = document.createElement("form");
  form.className = "score-filter carry-filter";
  form.setAttribute("role", "search");
  form.setAttribute("aria-label", "Filter the findings");
  const select = (name, label, everything) => {
    const values = [...new Set(rows.map((row) => row[name]))];
    const options = values.map((value) => {
      const option = document.createElement("option");
      option.value = value;
      option.textContent = value.replaceAll("-", " ");
      return option;
    });
    const first = document.createElement("option");
    first.value = "";
    first.textContent = everything;
    const made = document.createElement("select");
    made.name = name;
    made.append(first, ...options);
    const holder = document.createElement("label");
    holder.append(`${label} `, made);
    form.append(holder);
  };
  select("outcome", "Outcome", "all outcomes");
  select("theme", "Theme", "all themes");
  const words = document.createElement("input");
  words.type = "search";
  words.name = "words";
  words.autocomplete = "off";
  words.placeholder = "such as attention";
  const holder = document.createElement("label");
  holder.append("Words ", words);
  const found = document.createElement("p");
  found.className = "score-found";
  found.setAttribute("role", "status");
  form.append(holder, found);
  table.parentElement.insertBefore(form, table);

  function apply() {
    const asked = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    let over = 0;
    for (const row of rows) {
      const fit =
        ["outcome", "theme"].every((n) => !form.elements[n].value || row[n] === form.elements[n].value) &&
        asked.every((word) => row.text.includes(word));
      row.row.hidden = !fit;
      count += fit;
      over += fit && row.outcome === "carries-over";
    }
    found.textContent = `${over} of ${count} findings carry over`;
  }

  // Sorting: by a click on the head of a column, once upwards, once downwards, then as printed.
  let by = -1;
  let way = 0;
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "carry-sort";
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      way = by === column ? (way + 1) % 3 : 1;
      by = column;
      const missing = (key) => typeof key === "number" && Number.isNaN(key);
      const less = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b));
      const order = (one, other) => {
        const [a, b] = [one.keys[column], other.keys[column]];
        if (way === 0) return one.index - other.index;
        if (missing(a) || missing(b)) return missing(a) - missing(b) || one.index - other.index;
        return (way === 1 ? 1 : -1) * less(a, b) || one.index - other.index;
      };
      body.append(...[...rows].sort(order).map((row) => row.row));
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      if (way) cell.setAttribute("aria-sort", way === 1 ? "ascending" : "descending");
    });
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", apply);
  apply();
})();
