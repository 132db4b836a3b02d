// A search knows the glossary. What a reader types is compared with all names of its entries, whatever the
// case, hyphens, spaces, endings, British or American spelling; the places that explain an entry come first.
// All else is listed by kind of page: chapters, the glossary, other pages, the reference. A name from code that
// is typed in full ("fused_attention") leads to its own entry.
//
// FINDING stands in the page before this script. Search, Scorer, Stemmer and stopwords are Sphinx's, and come
// after it.
document.addEventListener("DOMContentLoaded", () => {
  const { glossary, kinds, entries } = FINDING;
  const GLOSSARY = 2;
  const CHAPTER = 3;
  const KNOWN = 5; // the whole query is a name of the glossary
  const TIER = 1000; // farther apart than any two scores within a kind
  const LEAST = 1 / 3; // of the words of a query and a name, the share that they have in common
  const ASKING = new Set("what which how why when where who does do did i can mean means explain".split(" "));
  const GREEK = { α: "alpha", β: "beta", γ: "gamma", ε: "epsilon", η: "eta", μ: "mu", σ: "sigma" };
  const PREFIX = 5; // letters from which on the beginning of a name counts
  const stemmer = new Stemmer();

  const spelled = (word) => word.replace(/is(e[drs]?|ing|ations?|ers?)$/, "iz$1").replace(/our(s?)$/, "or$1");
  const wordsOf = (text) => {
    const plain = text.normalize("NFKD").replace(/\p{Mark}/gu, "").toLowerCase();
    const latin = plain.replace(/[αβγεημσ]/g, (letter) => GREEK[letter]);
    const words = latin.match(/[\p{Letter}\p{Number}]+/gu) ?? [];
    const telling = words.filter((word) => !stopwords.includes(word) && !ASKING.has(word));
    return (telling.length ? telling : words).map((word) => stemmer.stemWord(spelled(word)));
  };
  // "warmup" and "KVcache" are "warm-up" and "KV cache"; an ending counts only at the end.
  const joined = (text) => stemmer.stemWord(wordsOf(text).join(""));

  const names = entries.flatMap((entry) =>
    entry.names.map((name) => ({ entry, words: new Set(wordsOf(name)), key: joined(name) })),
  );

  // How much of a query and a name is the same: 1 for all, 0 where neither has all words of the other and the
  // query is not how the name begins.
  const likeness = (name, words, key) => {
    if (key === name.key) return 1;
    const common = [...words].filter((word) => name.words.has(word)).length;
    const begins = key.length >= PREFIX && name.key.startsWith(key) ? key.length / name.key.length : 0;
    if (common < Math.min(words.size, name.words.size)) return begins < LEAST ? 0 : begins;
    const share = common / (words.size + name.words.size - common);
    return share < LEAST ? 0 : Math.min(share, 0.99);
  };

  const likest = (query) => {
    const words = new Set(wordsOf(query));
    const key = joined(query);
    const found = new Map();
    if (key)
      for (const name of names) {
        const like = likeness(name, words, key);
        if (like > (found.get(name.entry) ?? 0)) found.set(name.entry, like);
      }
    return [...found].sort(([, a], [, b]) => b - a);
  };

  // Results as Sphinx keeps them: [page, title, anchor, description, score, file].
  const known = (query) => {
    const { docnames, filenames, titles } = Search._index;
    const results = new Map();
    const add = (page, anchor, section, says, score) => {
      const place = docnames.indexOf(page);
      const key = `${page}#${anchor}`;
      if (place < 0 || results.has(key)) return;
      const title = section ? `${titles[place]} &gt; ${section}` : titles[place];
      results.set(key, [page, title, anchor && `#${anchor}`, says, score, filenames[place]]);
    };
    for (const [entry, like] of likest(query)) {
      const whole = like === 1;
      const says = `${entry.names[0]}: ${entry.says}`;
      entry.leads.forEach(([page, anchor, section], i) =>
        add(page, anchor, section, says, (whole ? KNOWN : kinds[page]) * TIER + 100 * like - i),
      );
      const own = (whole ? KNOWN : GLOSSARY) * TIER + 50 * like;
      add(glossary, entry.anchors[0], entry.names[0], entry.says, own);
    }
    return results;
  };

  // The other names of an entry lie beside its first.
  const first = new Map(
    entries.flatMap(({ anchors }) => anchors.map((anchor) => [`#${anchor}`, `#${anchors[0]}`])),
  );
  const placed = (page, anchor) => page + ((page === glossary && first.get(anchor)) || anchor || "#");

  let asked = "";
  const isCode = (text) => /[_.]|[a-z][A-Z]/.test(text) && !/\s/.test(text);
  Scorer.partialTitle = 3; // less than a whole word of the text: "rope" is not "properties"
  Scorer.score = ([page, title, , described, score]) => {
    const typed = asked.replace(/\(\)$/, "");
    const named = described && isCode(typed) && (title === typed || title.endsWith(`.${typed}`));
    const kind = named ? CHAPTER + 1 : (kinds[page] ?? 0);
    return kind * TIER + Math.min(score, 20);
  };

  const perform = Search._performSearch;
  Search._performSearch = (query, ...more) => {
    asked = query.trim();
    const better = known(asked);
    const explained = new Set([...better.values()].map(([page]) => page));
    const others = perform(query, ...more).filter(
      ([page, , anchor]) => !better.has(placed(page, anchor)) && !(anchor === "" && explained.has(page)),
    );
    // Sphinx shows the last one first.
    return [...others, ...[...better.values()].reverse()].sort((a, b) => a[4] - b[4]);
  };
});
