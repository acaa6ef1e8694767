"use strict";
// Draws a comparison from the JSON beside it.
(() => {
  const { byId, el, percent, plural, figure, breakable, shell, factTable, filmOf, showKeys, changeScheme } = parts;
  const data = JSON.parse(byId("content").textContent);
  const MOST_CARDS = 60; // at first: a browser is slow with hundreds of films
  const state = { filter: "", which: "all", cards: MOST_CARDS };

  const points = (x) => `${x > 0 ? "+" : x < 0 ? "−" : "±"}${Math.abs(100 * x).toFixed(1)}`;
  const chance = (p) => (p === null || p === undefined ? "–" : p < 0.001 ? "p < 0.001" : `p = ${p.toFixed(3)}`);
  const signed = (x) => `${x > 0 ? "+" : x < 0 ? "−" : "±"}${figure(Math.abs(x))}`;
  const tone = (difference, sure) => (!sure || !difference ? "" : difference > 0 ? "won" : "lost");

  // What is compared: how its numbers are told, how far a bar reaches, and what the episodes are that are shown.
  const SUCCESS = {
    told: points, unit: "points", columns: ["points, and rates", "won − lost"],
    value: (compared, side) => percent([compared.first, compared.second][side].success_rate),
    count: (one) => (one.paired ? plural(Math.round(one.overall.pairs.n), "pair") : `${figure(one.overall.first.n)} and ${figure(one.overall.second.n)} episodes, unpaired`),
    beside: (task) => (task.pairs ? `${figure(task.pairs.only_second)} − ${figure(task.pairs.only_first)}` : ""),
    reach: () => 1,
    heading: "Episodes that flipped", none: "none: both did the same episodes",
    change: (episode) => (episode.won ? "✗ → ✓" : "✓ → ✗"),
    more: "",
  };
  const RETURNS = {
    told: signed, unit: "of the mean return", columns: ["difference, and mean returns", "pairs"],
    value: (compared, side) => figure(compared.means && compared.means[side]),
    count: (one) => plural(one.overall.n, "pair"),
    beside: (task) => figure(task.n),
    reach: (one) => Math.max(...[one.overall, ...one.tasks].flatMap((each) => [each.difference || 0, ...(each.interval || [])].map(Math.abs)), 1e-300),
    heading: "Episodes that differ most", none: "none: both have the same returns",
    change: (episode) => signed(episode.difference),
    more: " --metric return",
  };
  const kindOf = (one) => (one.metric === "return" ? RETURNS : SUCCESS);

  // ---- the head: what is compared, and what came of it

  function drawHead() {
    const head = byId("head");
    head.append(el("h1", null, data.title));
    if (data.comparisons.length > 1) head.append(el("p", { class: "dim" }, `${plural(data.comparisons.length, "comparison")}, one below the other`));
  }

  function headline(one) {
    const all = one.overall;
    const section = el("section", { "aria-label": "verdict" });
    const kind = kindOf(one);
    if (one.obstacles.length) {
      const told = "Not comparable, and compared all the same: what moves a score is not the same in both.";
      section.append(el("div", { class: "notice", role: "note" }, el("b", null, told), el("ul", null, ...one.obstacles.map((sentence) => el("li", null, sentence)))));
    }
    section.append(
      el("div", { class: "headline" },
        el("b", { class: tone(all.difference, one.decided) }, kind.told(all.difference)), el("span", null, kind.unit),
        el("span", null, all.interval ? `95 % interval ${all.interval.map(kind.told).join(" to ")}` : "no interval"),
        el("span", null, one.p_value === null ? "" : chance(one.p_value)), el("span", null, kind.count(one))),
      el("p", null, one.verdict));
    const runs = el("div", { class: "runs" });
    one.runs.forEach((run, side) => {
      const note = run.status === "finished" && !run.status_told.startsWith("stopped") ? "" : ` (${run.status_told})`;
      runs.append(el("b", null, run.name), el("span", { class: "number" }, kind.value(all, side)), el("span", { class: "dim", title: run.folder || "" }, run.title + note));
    });
    section.append(runs);
    for (const { text, caution } of one.sentences) section.append(el("p", { class: caution ? "caution" : "dim" }, text));
    return section;
  }

  // ---- differences per task

  function matches(name) {
    return state.filter.toLowerCase().split(/\s+/).filter(Boolean).every((word) => name.toLowerCase().includes(word));
  }

  function differences(one) {
    const section = el("section", { class: "tasks", "aria-label": "differences per task" }, el("h2", null, "Differences, with 95 % intervals"));
    const kind = kindOf(one), reach = kind.reach(one);
    const table = el("div", { class: "differences" },
      ...["", "", kind.columns[0], one.paired ? kind.columns[1] : "", "p by Holm"].map((text, at) => el("div", { class: `head number ${at > 3 ? "seldom" : ""}` }, text)));
    const shown = one.tasks.filter((task) => matches(task.name));
    for (const task of shown) table.append(...line(kind, reach, task, task.name, task.differs, chance(task.p_value_by_holm), false));
    if (!shown.length) table.append(el("p", { class: "dim" }, "no task matches the filter"));
    if (!state.filter && one.tasks.length > 1) table.append(...line(kind, reach, one.overall, "overall", one.decided, "", true));
    section.append(table);
    return section;
  }

  function line(kind, reach, task, name, sure, told, strong) {
    const place = (x) => 50 + 50 * Math.max(-1, Math.min(1, x / reach));
    const drawn = el("div", { class: `change ${tone(task.difference, sure)}`, role: "img", "aria-label": `${name}: ${task.difference === null ? "no difference known" : `${kind.told(task.difference)} ${kind.unit}`}` });
    if (task.difference !== null) {
      const middle = place(task.difference);
      drawn.append(el("i", { style: { left: `${Math.min(50, middle)}%`, width: `${Math.abs(middle - 50)}%` } }));
    }
    if (task.difference !== null && task.interval) {
      const [low, high] = task.interval;
      drawn.append(el("u", { style: { left: `${place(low)}%`, width: `${place(high) - place(low)}%` }, title: `${kind.told(low)} to ${kind.told(high)}` }));
    }
    const bold = strong ? " strong" : "";
    return [
      el("div", { class: `name${bold}` }, ...breakable(name)), drawn,
      el("div", { class: `number${bold}` }, task.difference === null ? "–" : kind.told(task.difference), el("span", { class: "dim" }, `  ${kind.value(task, 0)} → ${kind.value(task, 1)}`)),
      el("div", { class: `number${bold}` }, kind.beside(task)), el("div", { class: "number dim seldom" }, told),
    ];
  }

  // ---- episodes that flipped, or differ most

  function flips(one) {
    const kind = kindOf(one);
    const section = el("section", { class: "flipped", "aria-label": kind.heading });
    const shown = one.flipped.filter((episode) => matches(episode.task) && (state.which === "all" || (state.which === "won") === episode.won));
    section.append(el("h2", null, `${kind.heading} (${shown.length === one.flipped.length ? shown.length : `${shown.length} of ${one.flipped.length}`})`));
    if (!one.paired) section.append(el("p", { class: "dim" }, "the runs have no episodes in common"));
    else if (!one.flipped.length) section.append(el("p", { class: "dim" }, kind.none));
    const often = reasons(one, shown);
    for (const [why, told] of often) section.append(el("p", { class: "dim" }, `${told.n} films${told.runs.size > 1 ? "" : ` of ${[...told.runs][0]}`} are missing: ${why}`));
    section.append(el("div", { class: "flips" }, ...shown.slice(0, state.cards).map((episode) => card(one, episode, often))));
    if (shown.length > state.cards) section.append(el("p", null, el("button", { type: "button", "data-more": true }, `show ${shown.length - state.cards} more`)));
    if (one.left_out) section.append(el("p", { class: "dim" }, `and ${plural(one.left_out, "episode")} that differ less`));
    return section;
  }

  // Why many films are missing: said once, with the runs that it is told of, and not in each card.
  function reasons(one, episodes) {
    const found = new Map();
    for (const episode of episodes) {
      episode.sides.forEach((side, at) => {
        if (side.film) return;
        const told = found.get(side.why_no_film) || { n: 0, runs: new Set() };
        told.n += 1;
        told.runs.add(one.runs[at].name);
        found.set(side.why_no_film, told);
      });
    }
    return new Map([...found].filter(([, told]) => told.n > 4));
  }

  function card(one, episode, often) {
    const name = `${episode.task} #${episode.index}`;
    const filmed = episode.sides.some((side) => side.film);
    const noFilm = (side) => (often.has(side.why_no_film) ? (filmed ? el("div", { class: "nofilm" }, "no film") : null) : el("div", { class: "nofilm" }, side.why_no_film));
    return el("article", { class: `flip ${filmed ? "" : "bare"}` },
      el("h3", null, ...breakable(name), " ", el("span", { class: episode.won ? "won" : "lost" }, kindOf(one).change(episode))),
      el("div", { class: "dim", style: { fontSize: ".85rem" } }, `${episode.instruction ? `${episode.instruction} · ` : ""}seed ${episode.seed}`),
      el("div", { class: "sides" }, ...episode.sides.map((side, at) => el("figure", null,
        side.film ? filmOf(side.film, `film of ${name}, ${one.runs[at].name}`, { preload: "metadata" }) : noFilm(side),
        el("figcaption", null, el("b", null, one.runs[at].name), " ", el("span", { class: `outcome ${side.outcome}` }, side.outcome), el("div", { class: "dim" }, `${plural(side.steps, "step")}, return ${figure(side.return)}`))))));
  }

  function about(one) {
    const section = el("section", { "aria-label": "about these runs" }, el("h2", null, "About these runs"));
    const facts = one.runs.flatMap((run) => [
      [run.name, run.folder || "–"],
      ...(run.checkpoint_sha256 ? [["", `checkpoint sha256 ${run.checkpoint_sha256}`]] : []),
      ...(run.errors ? [["", `${plural(run.errors, "episode")} ended in an error`]] : []),
    ]);
    section.append(el("div", { class: "scroll" }, factTable(facts)));
    if (one.settings.length) {
      const text = (value) => (value === undefined || value === null ? "–" : JSON.stringify(value));
      const table = el("table", null, el("tr", null, el("th", null, "setting"), ...one.runs.map((run) => el("th", null, run.name))));
      for (const [name, first, second] of one.settings) table.append(el("tr", null, el("td", null, name), el("td", null, text(first)), el("td", null, text(second))));
      section.append(el("details", null, el("summary", null, `${plural(one.settings.length, "setting")} that ${one.settings.length === 1 ? "is" : "are"} not the same`), el("div", { class: "scroll" }, table)));
    }
    const folders = one.runs.map((run) => run.folder);
    if (folders.every(Boolean)) section.append(el("p", { class: "dim" }, `made ${data.made.replace("T", " ").replace("+00:00", " UTC")} by`), el("pre", null, `sparring compare ${folders.map(shell).join(" ")}${kindOf(one).more}${one.obstacles.length ? " --force" : ""}`));
    return section;
  }

  // ---- what people do

  function redraw() {
    byId("main").replaceChildren(...data.comparisons.flatMap((one) => [headline(one), differences(one), flips(one), about(one)]));
  }

  // From their beginnings, so that two films side by side show the same step.
  function playAll() {
    const films = [...document.querySelectorAll("main video")];
    const playing = films.some((film) => !film.paused);
    for (const film of films) {
      if (playing) film.pause();
      else { film.currentTime = 0; film.play().catch(() => {}); }
    }
  }

  const KEYS = [["/", "filter"], ["p", "play all films that are shown, or stop them"], ["Esc", "close, or leave the filter"], ["d", "dark or light"]];

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (["INPUT", "SELECT"].includes(event.target.tagName)) { if (event.key === "Escape") event.target.blur(); return; }
    if (event.key === "/") { event.preventDefault(); byId("filter").focus(); }
    if (event.key === "?") showKeys(KEYS);
    if (event.key === "d") changeScheme();
    if (event.key === "p") playAll();
  });
  let waiting = 0;
  byId("filter").addEventListener("input", (event) => { clearTimeout(waiting); waiting = setTimeout(() => { state.filter = event.target.value; redraw(); }, 80); });
  byId("which").addEventListener("change", (event) => { state.which = event.target.value; redraw(); });
  byId("play").addEventListener("click", playAll);
  byId("main").addEventListener("click", (event) => { if (event.target.closest("[data-more]")) { state.cards = Infinity; redraw(); } });
  byId("scheme").addEventListener("click", changeScheme);
  byId("keys").addEventListener("click", () => showKeys(KEYS));
  byId("help").addEventListener("click", (event) => { if (event.target === byId("help") || event.target.closest("button")) byId("help").close(); });

  // The choices are made for what flipped.
  if (data.comparisons.every((one) => one.metric === "return")) {
    const told = { all: "all", won: "higher", lost: "lower" };
    for (const option of byId("which").options) option.textContent = told[option.value];
  }

  drawHead();
  redraw();
})();
