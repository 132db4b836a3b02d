// On the published site, the link to other editions becomes a choice among them, which keeps the page. Read from
// a folder or from another server, the link stays a link, and nothing is asked for.
(() => {
  const words = (edition) => (edition === "latest" ? "latest" : `edition ${edition}`);
  const choose = async () => {
    const line = document.querySelector("p.edition[data-site]");
    if (!line || !location.href.startsWith(`${line.dataset.site}/`)) return;
    const { site, edition } = line.dataset;
    const answer = await fetch(`${site}/editions.json`).catch(() => null);
    if (!answer?.ok) return;
    const { editions, newest } = await answer.json();
    const path = location.href.slice(`${site}/${edition}/`.length);
    const select = document.createElement("select");
    select.setAttribute("aria-label", "Edition");
    for (const name of editions) select.add(new Option(words(name), name, false, name === edition));
    select.addEventListener("change", async () => {
      const page = `${site}/${select.value}/${path}`;
      const there = await fetch(page, { method: "HEAD" }).catch(() => null);
      location.href = there?.ok ? page : `${site}/${select.value}/index.html`;
    });
    line.querySelector("a.editions")?.replaceWith(select);
    if (edition === "latest" || edition === newest) return;
    const note = document.createElement("p");
    note.className = "older-edition";
    note.append(`This is the ${words(edition)} of the book. `);
    const way = document.createElement("a");
    way.href = `${site}/${newest}/index.html`;
    way.textContent = `The newest is ${newest}.`;
    note.append(way);
    document.querySelector("article.bd-article")?.prepend(note);
  };
  addEventListener("DOMContentLoaded", choose);
})();
