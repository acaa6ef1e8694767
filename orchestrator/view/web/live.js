"use strict";
// A run as it goes: the server sends what is new, and this draws it.
(() => {
  const { byId, el, svg, percent, between, plural, figure, breakable, sizeBars, factTable, filmOf, shell, walkCells } = parts;
  const { roughly, ago, words } = common;
  const SIGNS = { success: "✓", failure: "✗", error: "!", played: "•" };
  const MOST_CELLS = 20000; // beyond that, a browser takes seconds to lay them out
  const FEW = 25; // of a task: their cells may be larger
  const MOST_FILMS = 24;
  const FRAME_TIMEOUT = 10000; // milliseconds without a frame until it is said what may be the reason
  const WAITING = "waiting for a frame";
  const TONES = 4; // of lines, where several protocols have one each
  const LIVE = "live", LOST = "lost", OVER = "over";

  const run = { about: null, cells: new Map(), order: [], curve: [], slots: [], left: 0, notes: new Map(), progress: null, server: null, films: null, status: "", told: "" };
  const state = { link: "", filter: "", watched: new Map(), buttons: new Map(), open: null };
  const changed = new Set();
  const keyOf = (task, index) => `${task}:${index}`;
  const byReturn = () => run.about !== null && run.about.metric === "return";

  // ---- what comes in

  function take(news) {
    if (news.about) {
      Object.assign(run, { about: news.about, order: [], curve: [], slots: [] });
      run.cells.clear();
      run.notes.clear();
      changed.add("layout");
    }
    for (const [task, index, outcome, steps, reward, film, error, seed, seconds] of news.cells || []) {
      const key = keyOf(task, index);
      if (!run.cells.has(key)) run.order.push(key);
      run.cells.set(key, { task, index, outcome, steps, reward, film, error, seed, seconds });
      changed.add(`cell ${key}`);
      if (film) changed.add("films");
      if (state.open === key) changed.add("episode");
    }
    if (news.curve && news.curve.length) { run.curve.push(...news.curve); changed.add("curve"); }
    if (news.progress) { run.progress = news.progress; changed.add("head"); }
    if (news.slots) { run.slots = news.slots; run.left = news.slots_left_out; changed.add("slots"); }
    if (news.notes) {
      // A sentence that has come again is told with how often: it takes the place of what was said before.
      for (const note of news.notes) { const key = `${note.kind} ${note.sentence}`; run.notes.delete(key); run.notes.set(key, note); }
      changed.add("notes");
    }
    if (news.status !== undefined) {
      Object.assign(run, { status: news.status, told: news.status_told, films: news.films, server: news.server });
      for (const part of ["head", "server", "films", "slots"]) changed.add(part);
    }
    if (!drawing) { drawing = true; requestAnimationFrame(draw); }
  }

  let drawing = false;
  // In the background a browser draws nothing, and asks for it when it is looked at again.
  function draw() {
    drawing = false;
    const all = changed.has("layout");
    if (all) drawGrid();
    else for (const what of changed) if (what.startsWith("cell ")) drawCell(what.slice(5));
    if (all || changed.has("head")) drawHead();
    if (all || changed.has("curve")) drawCurve();
    if (all || changed.has("slots")) drawSlots();
    if (all || changed.has("films")) drawFilms();
    if (all || changed.has("server")) drawServer();
    if (all || changed.has("notes")) drawNotes();
    if (changed.has("episode") && state.open) openEpisode(state.open);
    changed.clear();
  }

  // ---- head

  function drawHead() {
    const head = byId("head"), about = run.about, now = run.progress;
    const badge = { class: `badge ${run.status}` };
    const link = state.link === LIVE ? null : el("span", { class: "badge lost", id: "link" }, state.link === OVER ? "the server has ended" : "the server does not answer");
    if (!about) {
      head.replaceChildren(el("h1", null, "Sparring ", link), el("p", { class: "caution" }, run.told));
      return;
    }
    document.title = now ? `${Math.floor((100 * now.done) / Math.max(1, about.planned))} % · ${about.title}` : about.title;
    const line = el("div", { class: "headline" }), wholes = now ? (now.by.length ? now.by : [now]) : [];
    for (const all of wholes) {
      const by = all.name ? ` by ${all.name}` : "";
      if (byReturn()) {
        line.append(el("b", null, figure(all.mean)), el("span", null, `mean return${by}`));
        if (all.mean_interval) line.append(el("span", null, `95 % interval ${figure(all.mean_interval[0])} – ${figure(all.mean_interval[1])}`));
      } else {
        line.append(el("b", null, percent(all.rate)), el("span", null, `success${by}`));
        if (all.interval) line.append(el("span", null, `95 % interval ${between(...all.interval)}`));
      }
    }
    const done = now ? now.done : 0;
    line.append(el("span", { id: "done" }, `${done.toLocaleString("en")} of ${plural(about.planned, "episode")}`));
    if (now && now.errors) line.append(el("span", { class: "caution" }, plural(now.errors, "error")));
    if (run.status === "running" && now && typeof now.eta === "number" && done < about.planned) line.append(el("span", null, `about ${roughly(now.eta)} left`));
    const part = (n) => ({ style: { width: `${(100 * n) / Math.max(1, about.planned)}%` } });
    const bar = el("div", { class: "progress", role: "progressbar", "aria-valuenow": done, "aria-valuemax": about.planned, "aria-valuemin": 0 });
    if (now) {
      const judged = done - now.errors, failures = byReturn() ? 0 : now.judged - now.successes;
      bar.append(el("i", { class: "success", ...part(now.successes) }), el("i", { class: "failure", ...part(failures) }), el("i", { class: "played", ...part(judged - now.successes - failures) }), el("i", { class: "error", ...part(now.errors) }));
    }
    const shown = [el("h1", null, about.title, " ", el("span", badge, run.status), " ", link), line, bar, el("p", { class: "dim folder" }, about.folder)];
    for (const all of wholes) if (all.any_time && !byReturn() && run.status === "running") shown.push(el("p", { class: "dim" }, `interval that holds whenever you look${all.name ? `, by ${all.name}` : ""}: ${between(...all.any_time)}, from the rounds that all tasks have finished; the one above holds only at the end of the run`));
    byId("report").hidden = state.link !== LIVE;
    if (state.link === OVER) shown.push(el("p", { class: "dim" }, "The page is served by the run itself, which has ended. To look at it again: ", el("code", null, `sparring view ${shell(about.folder)}`)));
    if (!["running", "finished"].includes(run.status)) shown.push(el("p", { class: "caution" }, run.told));
    head.replaceChildren(...shown);
  }

  // ---- how the rate comes to rest

  function drawCurve() {
    const section = byId("curve"), points = run.curve;
    if (points.length < 2) { section.replaceChildren(); return; }
    const width = Math.max(240, section.parentElement.clientWidth - 38); // in pixels of the screen, so that letters keep their size; an empty section has none
    const [height, left, right, top, bottom] = [width < 500 ? 150 : 190, 46, 8, 8, 22];
    const ends = points.flatMap(([, rate, low, high]) => (low === null ? [rate] : [low, high]));
    let [low, high] = byReturn() ? [Math.min(...ends), Math.max(...ends)] : [0, 1];
    if (low === high) [low, high] = [low - 1, high + 1];
    const rules = run.about.protocols, each = Math.max(1, rules.length);
    const last = points[points.length - 1][0], most = Math.max(...points.map(([n]) => n), byReturn() ? 0 : Math.min(run.about.planned / each, last * 1.05));
    const x = (n) => left + ((width - left - right) * n) / most;
    const y = (value) => height - bottom - ((height - top - bottom) * (value - low)) / (high - low);
    const at = (n, value) => `${x(n).toFixed(1)},${y(value).toFixed(1)}`;
    const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "success so far, with its interval" });
    for (let tick = 0; tick <= 4; tick++) {
      const value = low + ((high - low) * tick) / 4;
      drawn.append(svg("line", { class: "rule", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
      drawn.append(svg("text", { x: left - 6, y: y(value) + 3, "text-anchor": "end" }, byReturn() ? figure(value) : `${Math.round(100 * value)} %`));
    }
    for (let number = 0; number < each; number++) {
      const own = points.filter((point) => (point[4] || 0) === number);
      if (!own.length) continue;
      const banded = own.filter(([, , a]) => a !== null), tone = `tone${number % TONES}`;
      const band = [...banded.map(([n, , , b]) => at(n, b)), ...banded.slice().reverse().map(([n, , a]) => at(n, a))];
      drawn.append(svg("polygon", { class: `band ${tone}`, points: band.join(" ") }), svg("polyline", { class: `line ${tone}`, points: own.map(([n, rate]) => at(n, rate)).join(" ") }));
      const [n, rate] = own[own.length - 1];
      drawn.append(svg("circle", { class: `end ${tone}`, cx: x(n), cy: y(rate), r: 3 }));
    }
    drawn.append(svg("text", { x: x(last), y: height - 6, "text-anchor": "end" }, plural(last, "episode")), svg("text", { x: left, y: height - 6 }, "0"));
    const [, , a, b] = points[points.length - 1];
    const half = a === null || rules.length ? "" : byReturn() ? `, ± ${figure((b - a) / 2)}` : `, ± ${(50 * (b - a)).toFixed(1)} points`;
    const legend = rules.map((name, number) => el("span", null, el("i", { class: `tone${number % TONES}` }), name));
    const shown = rules.length ? [el("div", { class: "legend" }, ...legend), drawn] : [drawn];
    section.replaceChildren(el("h2", null, byReturn() ? "Mean return so far" : "Success so far", el("span", { class: "dim" }, `  with its 95 % interval${half}`)), ...shown);
  }

  // ---- slots

  const slotKey = (slot) => `${slot.worker}/${slot.slot}`;

  function drawSlots() {
    const section = byId("slots");
    if (!run.about || !run.about.has_slots) {
      const sentence = "What slots do, and what they see, is told by the run itself: start it with sparring run --view.";
      section.replaceChildren(...(run.about && run.status === "running" ? [el("h2", null, "Slots"), el("p", { class: "dim" }, sentence)] : []));
      return;
    }
    const over = run.status !== "running" || state.link !== LIVE;
    if (over) stopWatching();
    if (over || !run.slots.length) {
      section.replaceChildren(...(over ? [] : [el("h2", null, "Slots"), el("p", { class: "dim" }, "no worker has joined yet")]));
      return;
    }
    let list = section.querySelector(".slots");
    if (!list) {
      list = el("div", { class: "slots" });
      section.replaceChildren(el("h2", null, "Slots"), list, el("p", { class: "dim left" }));
    }
    const here = new Map([...list.children].map((card) => [card.dataset.slot, card]));
    for (const slot of run.slots) {
      const key = slotKey(slot);
      let card = here.get(key);
      here.delete(key);
      if (!card) {
        const button = el("button", { type: "button", class: "watch", "data-worker": slot.worker, "data-number": slot.slot, "aria-pressed": "false" }, "watch");
        card = el("div", { class: "slot", "data-slot": key }, el("div", { class: "line" }, el("span", { class: "who" }, key), el("span", { class: "steps number" }), button), el("div", { class: "doing" }));
        list.append(card);
      }
      const doing = slot.task ? `${slot.replay ? "filming " : ""}${slot.task} #${slot.index}` : "idle";
      if (card.dataset.doing !== doing) {
        card.dataset.doing = doing;
        card.querySelector(".doing").replaceChildren(...breakable(doing));
        const watched = state.watched.get(key);
        // What is seen is of the episode before.
        if (watched && watched.shown) { watched.box.classList.add("old"); watched.box.querySelector("p").textContent = WAITING; }
      }
      card.querySelector(".steps").textContent = slot.steps ? `step ${slot.steps}` : "";
      card.classList.toggle("idle", !slot.task);
    }
    for (const [key, card] of here) { stopWatching(key); card.remove(); }
    section.querySelector(".left").textContent = run.left ? `and ${plural(run.left, "more slot")}` : "";
  }

  // The newest frame of a slot is asked for while somebody looks at it, and by that alone it is drawn.
  function watch(card, worker, number) {
    const key = card.dataset.slot;
    if (state.watched.has(key)) { stopWatching(key); return; }
    const image = el("img", { class: "frame", alt: `what ${key} sees` });
    const box = el("div", { class: "screen" }, image, el("p", { class: "dim" }, WAITING));
    card.append(box);
    const watched = { card, box, shown: "", stop: false };
    state.watched.set(key, watched);
    card.querySelector(".watch").setAttribute("aria-pressed", "true");
    const since = Date.now();
    const address = `frame?worker=${encodeURIComponent(worker)}&slot=${number}`;
    (async () => {
      while (!watched.stop) {
        if (!document.hidden) {
          try {
            const answer = await fetch(address);
            if (answer.status === 200 && !watched.stop) {
              const next = URL.createObjectURL(await answer.blob());
              image.src = next;
              if (watched.shown) URL.revokeObjectURL(watched.shown);
              watched.shown = next;
              box.classList.remove("old");
              box.querySelector("p").textContent = `step ${answer.headers.get("x-steps")}`;
            } else if (!watched.shown && Date.now() - since > FRAME_TIMEOUT) {
              box.querySelector("p").textContent = "no frame yet: a simulator that names no camera shows none";
            }
          } catch { /* the server has gone; the page says so elsewhere */ }
        }
        await new Promise((done) => setTimeout(done, 500));
      }
      if (watched.shown) URL.revokeObjectURL(watched.shown);
    })();
  }

  function stopWatching(key) {
    for (const one of key === undefined ? [...state.watched.keys()] : [key]) {
      const watched = state.watched.get(one);
      if (!watched) continue;
      watched.stop = true;
      watched.box.remove();
      watched.card.querySelector(".watch").setAttribute("aria-pressed", "false");
      state.watched.delete(one);
    }
  }

  // ---- grid

  function matches(number) {
    const task = run.about.tasks[number];
    const own = `${task.name} ${task.benchmark} ${task.group} ${task.instruction}`.toLowerCase();
    return words(state.filter).every((word) => own.includes(word) || run.order.some((key) => {
      const cell = run.cells.get(key);
      return cell.task === number && (cell.outcome === word || cell.error.toLowerCase().includes(word));
    }));
  }

  function drawGrid() {
    const section = byId("grid"), about = run.about;
    state.buttons.clear();
    if (!about) { section.replaceChildren(); return; }
    const chosen = about.tasks.map((_, number) => number).filter((number) => !state.filter || matches(number));
    const legend = el("div", { class: "legend" });
    for (const [name, told] of byReturn() ? [["played", "played"], ["error", "error"], ["none", "to come"]] : [["success", "success"], ["failure", "failure"], ["error", "error"], ["none", "to come"]]) legend.append(el("span", null, el("i", { class: name }), told));
    const shown = [el("h2", null, "Episodes"), legend];
    if (!chosen.length) shown.push(el("p", { class: "dim" }, "no task matches"));
    else if (chosen.length * about.per_task > MOST_CELLS) shown.push(el("p", { class: "dim" }, `too many episodes to show one by one; filter tasks to see theirs`));
    else {
      const rows = el("div", { class: `rows ${about.per_task <= FEW ? "few" : ""}` });
      for (const number of chosen) {
        const cells = el("div", { class: "cells" });
        for (let index = 0; index < about.per_task; index++) {
          const key = keyOf(number, index);
          const button = el("button", { type: "button", class: "cell none", "data-key": key, disabled: true, tabindex: -1, title: `${about.tasks[number].name} #${index}: to come` });
          state.buttons.set(key, button);
          cells.append(button);
        }
        rows.append(el("div", { class: "name", title: about.tasks[number].instruction }, ...breakable(about.tasks[number].name)), cells);
      }
      shown.push(rows);
    }
    section.replaceChildren(...shown);
    for (const key of run.order) drawCell(key);
  }

  function drawCell(key) {
    const button = state.buttons.get(key);
    if (!button) return;
    const cell = run.cells.get(key), name = run.about.tasks[cell.task].name;
    button.className = `cell ${cell.outcome}${cell.film ? " film" : ""}`;
    button.textContent = SIGNS[cell.outcome] || "";
    button.disabled = false;
    if (!document.querySelector('.cell[tabindex="0"]')) button.tabIndex = 0;
    button.title = `${name} #${cell.index}: ${cell.outcome}`;
    button.setAttribute("aria-label", `${name} episode ${cell.index}, ${cell.outcome}`);
  }

  // ---- films and one episode

  const filmAt = (cell) => `film/${cell.task}/${cell.index}${cell.film.slice(cell.film.lastIndexOf("."))}`;

  function drawFilms() {
    const section = byId("films");
    if (!run.about) { section.replaceChildren(); return; }
    const filmed = run.order.filter((key) => run.cells.get(key).film);
    const films = run.films || { wanted: 0, made: 0, missing: 0 };
    if (!filmed.length && !films.wanted) { section.replaceChildren(); return; }
    const list = el("div", { class: "filmed" });
    for (const key of filmed.slice(-MOST_FILMS).reverse()) {
      const cell = run.cells.get(key);
      list.append(el("button", { type: "button", "data-key": key }, el("i", { class: cell.outcome }), ...breakable(run.about.tasks[cell.task].name), ` #${cell.index}`));
    }
    const more = filmed.length > MOST_FILMS ? el("p", { class: "dim" }, `and ${filmed.length - MOST_FILMS} more in the grid`) : null;
    const told = films.wanted ? `  ${films.made} of ${films.wanted} made${films.missing ? `, ${films.missing} could not be made` : ""}` : "";
    section.replaceChildren(el("h2", null, "Films", el("span", { class: "dim" }, told)), list, ...(more ? [more] : []));
  }

  function openEpisode(key) {
    const cell = run.cells.get(key);
    if (!cell) return;
    const task = run.about.tasks[cell.task], dialog = byId("episode");
    const film = cell.film ? filmAt(cell) : "";
    const same = dialog.open && state.open === key && dialog.dataset.film === film;
    state.open = key;
    if (same) return; // what plays goes on playing
    dialog.dataset.film = film;
    const facts = [["seed", cell.seed], ["steps", cell.steps], ["return", figure(cell.reward)], ["seconds", figure(cell.seconds)]];
    const shown = [
      el("header", null, el("h2", null, ...breakable(task.name), ` #${cell.index} `, el("span", { class: `badge ${cell.outcome}` }, cell.outcome)), el("button", { type: "button", "data-close": true, title: "close (Esc)" }, "✕")),
      el("p", { class: "dim" }, task.instruction),
    ];
    if (film) shown.push(filmOf(film, `film of ${task.name} #${cell.index}`, { autoplay: true }));
    if (cell.error) shown.push(el("p", { class: "caution" }, cell.error));
    dialog.replaceChildren(...shown, factTable(facts));
    if (!dialog.open) dialog.showModal();
  }

  // ---- policy server

  function drawServer() {
    const section = byId("server"), server = run.server;
    if (!server) { section.replaceChildren(); return; }
    const ms = (seconds) => (typeof seconds === "number" ? `${(1000 * seconds).toFixed(1)} ms` : "–");
    const tile = (value, name) => el("div", { class: "tile" }, el("b", null, value), el("span", null, name));
    const tiles = el("div", { class: "tiles" });
    if (server.waiting !== null) tiles.append(tile(server.waiting.toLocaleString("en"), "in the queue"));
    if (server.sessions !== null) tiles.append(tile(server.sessions.toLocaleString("en"), "sessions"));
    tiles.append(
      tile(figure(server.batch_size.mean), "rows in a batch"), tile(server.batches.toLocaleString("en"), "batches"), tile(figure(server.observations_per_second), "observations/s"),
      tile(ms(server.queue_wait_s.p50), "wait, median"), tile(ms(server.queue_wait_s.p99), "wait, 99 of 100"), tile(ms(server.inference_s.mean), "a batch takes"),
    );
    section.replaceChildren(el("h2", null, "Policy server"), tiles, ...(server.sizes.length > 1 ? [el("p", { class: "dim" }, "batches by their size"), sizeBars(server.sizes)] : []));
  }

  // ---- warnings and errors

  const TOLD = { warning: "warning", error: "error", retry: "tried again", worker: "worker" };

  function drawNotes() {
    const section = byId("notes"), notes = [...run.notes.values()].reverse();
    if (!notes.length) { section.replaceChildren(); return; }
    const list = el("div", { class: "notes" });
    for (const note of notes.slice(0, 100)) {
      const who = note.episodes > 1 ? `${plural(note.episodes, "episode")}${note.n > note.episodes ? `, ${note.n} times` : ""}; the last: ${note.last}` : note.last + (note.n > 1 ? `${note.last ? ", " : ""}${note.n} times` : "");
      list.append(el("div", { class: `note ${note.kind}` }, el("time", { "data-at": note.at, title: new Date(1000 * note.at).toLocaleString() }, ago(Date.now() / 1000 - note.at)), el("span", { class: "kind" }, TOLD[note.kind] || note.kind), el("span", { class: "said" }, note.sentence, who ? el("span", { class: "dim" }, `  ${who}`) : null)));
    }
    section.replaceChildren(el("h2", null, "What happened"), list);
  }

  setInterval(() => { for (const time of document.querySelectorAll("time")) time.textContent = ago(Date.now() / 1000 - Number(time.dataset.at)); }, 10000);

  // ---- the stream

  let source = null, waiting = 1000;
  function connect() {
    source = new EventSource("events");
    source.addEventListener("open", () => { waiting = 1000; setLink(LIVE); });
    source.addEventListener("message", (event) => take(JSON.parse(event.data)));
    source.addEventListener("end", () => { source.close(); setLink(OVER); again(3000); });
    source.addEventListener("error", () => { source.close(); if (state.link !== OVER) setLink(LOST); again(waiting); waiting = Math.min(15000, waiting * 2); });
  }

  // A run that is resumed serves its page at the same address again.
  function again(after) {
    setTimeout(connect, after);
  }

  function setLink(link) {
    if (state.link === link) return;
    state.link = link;
    for (const part of ["head", "slots"]) changed.add(part);
    if (!drawing) { drawing = true; requestAnimationFrame(draw); }
  }

  addEventListener("resize", () => { changed.add("curve"); if (!drawing) { drawing = true; requestAnimationFrame(draw); } });

  // ---- what people do

  let typing = 0;
  byId("filter").addEventListener("input", (event) => { clearTimeout(typing); typing = setTimeout(() => { state.filter = event.target.value; drawGrid(); }, 80); });
  byId("all").hidden = "alone" in document.body.dataset;
  for (const id of ["grid", "films"]) byId(id).addEventListener("click", (event) => { const button = event.target.closest("button[data-key]"); if (button) openEpisode(button.dataset.key); });
  byId("slots").addEventListener("click", (event) => { const button = event.target.closest("button.watch"); if (button) watch(button.closest(".slot"), button.dataset.worker, button.dataset.number); });
  document.addEventListener("keydown", (event) => { if (!event.ctrlKey && !event.metaKey && !event.altKey && !byId("episode").open) walkCells(event); });
  const dialog = byId("episode");
  dialog.addEventListener("click", (event) => { if (event.target === dialog || event.target.closest("[data-close]")) dialog.close(); });
  dialog.addEventListener("close", () => { state.open = null; dialog.dataset.film = ""; dialog.replaceChildren(); });
  addEventListener("pagehide", () => source.close());
  connect();
})();
