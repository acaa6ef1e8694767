"use strict";
// Draws a report from the JSON beside it.
(() => {
  const { byId, el, svg, percent, between, plural, figure, duration, histogram, breakable, sizeBars, shell, factTable, filmOf, showKeys, focusCell, walkCells, changeScheme } = parts;
  const SIGNS = { success: "✓", failure: "✗", error: "!", played: "•" };
  const MOST_CELLS = 20000; // beyond that, a browser takes seconds to lay them out; bars still show every task

  const FEW = 25; // of a task: their cells may be larger

  const data = JSON.parse(document.getElementById("content").textContent);
  const state = { filter: "", sort: "plan", open: -1, shown: [] };

  const byReturn = data.metric === "return";

  // ---- headline

  function drawHead() {
    const wholes = data.overall ? [data.overall] : data.overall_by;
    const head = byId("head");
    head.append(
      el("h1", null, data.title, " ", el("span", { class: `badge ${data.status}` }, data.status)),
    );
    const line = el("div", { class: "headline" });
    for (const all of wholes) {
      const by = all.name ? ` by ${all.name}` : "";
      if (byReturn) {
        const mean = all.return;
        line.append(el("b", null, mean ? figure(mean.mean) : "–"), el("span", null, `mean return${by}`));
        if (mean && mean.interval) line.append(el("span", null, `95 % interval ${figure(mean.interval[0])} – ${figure(mean.interval[1])}`));
      } else if (all.success_rate === null) {
        line.append(el("b", null, "–"), el("span", null, all.errors ? `no success rate${by}: no episode ended in a success or a failure` : `no success rate${by} yet`));
      } else {
        line.append(el("b", null, percent(all.success_rate)), el("span", null, `success${by}`));
        line.append(el("span", null, `95 % interval ${between(...all.interval)}`));
      }
    }
    line.append(el("span", null, `${data.recorded < data.planned ? `${data.recorded.toLocaleString("en")} of ` : ""}${plural(data.planned, "episode")}`), el("span", null, plural(data.tasks.length, "task")), el("span", null, `took ${duration(data.seconds)}`));
    head.append(line);
    if (!byReturn && data.suite) {
      const such = data.suite.such_tasks;
      head.append(el("p", { class: "dim" }, `mean over tasks ${percent(data.suite.mean)}: ${between(...data.suite.these_tasks)} on these tasks${such ? `, ${between(...such)} on tasks like these` : ""}`));
    }
    const cautions = data.status === "finished" ? [] : [data.status_told];
    for (const all of wholes) if (!byReturn && all.errors) cautions.push(`${plural(all.errors, "episode")}${all.name ? ` by ${all.name}` : ""} ended in an error and ${all.errors === 1 ? "is" : "are"} not counted: ${between(all.worst_case, all.best_case)} if all of them were failures, or successes`);
    if (!byReturn && data.any_time) head.append(el("p", { class: "dim" }, `interval that holds whenever you look: ${between(...data.any_time)}, from the rounds that all tasks have finished; the one above holds only if the number of episodes was fixed beforehand`));
    cautions.push(...data.cautions);
    if (cautions.length) head.append(el("div", { class: "notice", role: "note" }, ...cautions.map((sentence) => el("p", null, sentence))));
  }

  // ---- which tasks are shown, and in which order

  const episodesOf = data.tasks.map(() => []);
  data.episodes.task.forEach((task, at) => episodesOf[task].push(at));

  function matches(task, number, words) {
    const own = `${task.name} ${task.benchmark} ${task.group} ${task.instruction}`.toLowerCase();
    return words.every((word) => own.includes(word) || episodesOf[number].some((at) => {
      const error = data.episodes.error[at];
      return data.episodes.outcome[at] === word || (error >= 0 && data.errors[error].sentence.toLowerCase().includes(word));
    }));
  }

  function chosenTasks() {
    const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = data.tasks.map((task, number) => number).filter((number) => matches(data.tasks[number], number, words));
    const value = (number) => {
      const task = data.tasks[number];
      const found = byReturn ? task.return && task.return.mean : task.success_rate;
      return found === null || found === undefined ? Infinity : found;
    };
    if (state.sort === "name") chosen.sort((a, b) => data.tasks[a].name.localeCompare(data.tasks[b].name, "en", { numeric: true }));
    if (state.sort === "worst") chosen.sort((a, b) => value(a) - value(b) || a - b);
    if (state.sort === "best") chosen.sort((a, b) => (value(b) === Infinity ? -1 : value(b)) - (value(a) === Infinity ? -1 : value(a)) || a - b);
    return chosen;
  }

  // ---- bars

  function range() {
    if (!byReturn) return [0, 1];
    const ends = [0];
    for (const task of data.tasks) if (task.return) ends.push(task.return.mean, ...(task.return.interval || []));
    return [Math.min(...ends), Math.max(...ends) || 1];
  }

  function bar(summary, name, strong) {
    const [low, high] = range();
    const place = (x) => `${(100 * (Math.min(Math.max(x, low), high) - low)) / (high - low || 1)}%`;
    const value = byReturn ? (summary.return ? summary.return.mean : null) : summary.success_rate;
    const interval = byReturn ? summary.return && summary.return.interval : summary.success_rate === null ? null : summary.interval;
    const drawn = el("div", { class: "bar", role: "img", "aria-label": `${name}: ${byReturn ? figure(value) : percent(value)}` });
    if (value !== null) drawn.append(el("i", { style: { width: place(value) } }));
    if (interval) drawn.append(el("u", { style: { left: place(interval[0]), right: `calc(100% - ${place(interval[1])})` } }));
    const told = byReturn ? figure(value) : percent(value);
    const n = byReturn ? summary.n : summary.judged;
    const mark = summary.errors ? ` · ${plural(summary.errors, "error")}` : "";
    return [
      el("div", { class: `name ${strong ? "strong" : ""}`, title: summary.instruction || "" }, ...breakable(name)),
      drawn,
      el("div", { class: `number ${strong ? "strong" : ""}` }, told, el("span", { class: "dim" }, `  n ${n}${mark}`)),
    ];
  }

  function drawRates(chosen) {
    const section = byId("rates");
    section.replaceChildren(el("h2", null, byReturn ? "Returns, with 95 % intervals" : "Success, with 95 % intervals"));
    const bars = el("div", { class: "bars" });
    for (const number of chosen) bars.append(...bar(data.tasks[number], data.tasks[number].name, false));
    if (!chosen.length) bars.append(el("p", { class: "dim" }, "no task matches the filter"));
    const names = new Set(data.tasks.map((task) => task.name));
    if (!state.filter) {
      const several = data.benchmarks.length > 1;
      for (const group of data.groups) if (!names.has(group.name)) bars.append(...bar(group, several ? `${group.benchmark}: ${group.name}` : group.name, true));
      if (several && data.overall) for (const benchmark of data.benchmarks) bars.append(...bar(benchmark, benchmark.name, true));
      if (data.overall && data.tasks.length > 1) bars.append(...bar(data.overall, "overall", true));
      for (const all of data.overall_by) bars.append(...bar(all, `overall by ${all.name}`, true));
    }
    section.append(bars);
  }

  // ---- the grid

  function drawGrid(chosen) {
    const section = byId("grid");
    section.replaceChildren(el("h2", null, "Every episode"));
    const found = new Set(data.episodes.outcome);
    const legend = el("div", { class: "legend" });
    for (const outcome of Object.keys(SIGNS)) if (found.has(outcome)) legend.append(el("span", null, el("i", { class: outcome }), outcome));
    if (data.recorded < data.planned) legend.append(el("span", null, el("i", { class: "none" }), "not run yet"));
    if (data.episodes.film.some(Boolean)) legend.append(el("span", null, el("i", { class: "played film" }), "with a film"));
    section.append(legend);
    state.shown = [];
    if (data.planned > MOST_CELLS) {
      section.append(el("p", { class: "dim" }, `${plural(data.planned, "episode")} are too many to draw one by one; episodes.csv has them all.`));
      return;
    }
    const rows = el("div", { class: `rows ${data.per_task <= FEW ? "few" : ""}` });
    for (const number of chosen) {
      const cells = el("div", { class: "cells" });
      const byIndex = new Map(episodesOf[number].map((at) => [data.episodes.index[at], at]));
      for (let index = 0; index < data.per_task; index++) {
        const at = byIndex.get(index);
        if (at === undefined) {
          cells.append(el("span", { class: "cell none", title: `${data.tasks[number].name} #${index}: not run yet` }));
          continue;
        }
        const outcome = data.episodes.outcome[at];
        state.shown.push(at);
        cells.append(el("button", {
          type: "button", class: `cell ${outcome}${data.episodes.film[at] ? " film" : ""}`, "data-at": at, tabindex: state.shown.length === 1 ? 0 : -1,
          title: `${data.tasks[number].name} #${index}: ${outcome}`, "aria-label": `${data.tasks[number].name} episode ${index}, ${outcome}`,
        }, SIGNS[outcome]));
      }
      rows.append(el("div", { class: "name", title: data.tasks[number].instruction }, ...breakable(data.tasks[number].name)), cells);
    }
    section.append(rows);
  }

  function cellOf(at) {
    return document.querySelector(`.cell[data-at="${at}"]`);
  }

  function go(to) {
    const cell = cellOf(state.shown[to]);
    if (cell) focusCell(cell);
  }

  // ---- one episode

  function openEpisode(at) {
    const of = (name) => data.episodes[name][at];
    const task = data.tasks[of("task")];
    state.open = at;
    const dialog = byId("episode");
    const film = of("film");
    const shown = [
      el("header", null,
        el("h2", null, ...breakable(task.name), ` #${of("index")} `, el("span", { class: `badge ${of("outcome")}` }, of("outcome"))),
        el("span", null, el("button", { type: "button", "data-go": "-1", title: "the one before (←)" }, "←"), " ", el("button", { type: "button", "data-go": "1", title: "the next (→)" }, "→"), " ", el("button", { type: "button", "data-close": true, title: "close (Esc)" }, "✕"))),
      el("p", { class: "dim" }, task.instruction),
    ];
    const name = `${task.name} #${of("index")}`;
    const moving = film ? filmOf(film, `film of ${name}`, { autoplay: true }) : null;
    if (of("error") >= 0) shown.push(el("div", { class: "notice" }, el("p", null, `${of("kind")}: ${data.errors[of("error")].sentence}`)));
    if (film) shown.push(moving);
    else if (data.folder) shown.push(el("p", { class: "dim" }, `${of("film_gone") ? "Its film is gone. To make another," : "It has no film. To make one,"} and then this page again:`), el("pre", null, `sparring film ${shell(data.folder)} --episodes ${shell(`${task.name}:${of("index")}`)}`));
    shown.push(el("div", { class: "course" }, firstFrame(of("frame"), moving, `what ${name} began with`), rewards(at)), timeline(at));
    const facts = [
      ["seed", of("seed")], ["steps", of("steps")], ["return", figure(of("reward_sum"))], ["largest reward", figure(of("reward_max"))],
      ...Object.entries(of("metrics")).map(([name, value]) => [name, figure(value)]),
      ["seconds", of("seconds").toFixed(2)], ["images drawn", of("renders")], ["asked the policy", `${of("round_trips")} times`],
      ["attempts", of("attempts")], ["actions out of range", of("out_of_range") || null], ["worker", of("worker")], ["host", of("host")], ["renderer", of("renderer")],
    ].filter(([, value]) => value !== "" && value !== null);
    shown.push(factTable(facts));
    dialog.replaceChildren(...shown);
    if (!dialog.open) dialog.showModal();
  }

  // What an episode began with: a picture that is in this page, or the first of its film.
  function firstFrame(picture, film, alt) {
    let image = null;
    if (picture) image = el("img", { src: picture, alt });
    else if (film instanceof HTMLVideoElement) {
      image = el("canvas", { role: "img", "aria-label": alt });
      film.addEventListener("loadeddata", () => {
        Object.assign(image, { width: film.videoWidth, height: film.videoHeight });
        image.getContext("2d").drawImage(film, 0, 0);
      }, { once: true });
    }
    return image && el("figure", { class: "frame" }, image, el("figcaption", null, "at its beginning"));
  }

  const PARTS = [["physics", "physics_s"], ["rendering", "render_s"], ["policy", "policy_s"], ["transport", "transport_s"]];

  function stack(parts) {
    const whole = parts.reduce((sum, [, seconds]) => sum + seconds, 0);
    const drawn = el("div", { class: "stack" });
    const legend = el("div", { class: "legend" });
    parts.forEach(([name, seconds], at) => {
      if (seconds <= 0) return;
      drawn.append(el("i", { class: `part${at}`, style: { width: `${(100 * seconds) / whole}%` }, title: `${name}: ${duration(seconds)}` }));
      legend.append(el("span", null, el("i", { class: `part${at}` }), `${name} ${duration(seconds)} (${((100 * seconds) / whole).toFixed(0)} %)`));
    });
    return whole > 0 ? [drawn, legend] : [];
  }

  function timeline(at) {
    const parts = PARTS.map(([name, column]) => [name, data.episodes[column][at]]);
    const rest = data.episodes.seconds[at] - parts.reduce((sum, [, seconds]) => sum + seconds, 0);
    return el("div", { style: { margin: "10px 0" } }, ...stack([...parts, ["other", Math.max(0, rest)]]));
  }

  // Rewards over steps, as the journal's trace has them; a line where the task was done.
  function rewards(at) {
    const values = data.episodes.rewards[at], steps = data.episodes.steps[at], done = data.episodes.success_at[at];
    if (!values.length || !steps) return null;
    const low = Math.min(0, ...values), high = Math.max(...values, low + 1e-9);
    const [width, height] = [600, 90];
    const x = (step) => (steps > 1 ? (width * (step - 1)) / (steps - 1) : width / 2);
    const y = (value) => height - 4 - ((value - low) / (high - low)) * (height - 8);
    const points = values.map((value, n) => [x(1 + (values.length > 1 ? (n * (steps - 1)) / (values.length - 1) : 0)), y(value)]);
    const line = points.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join(" ");
    const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": `rewards over ${steps} steps${done ? `, done at step ${done}` : ""}` });
    drawn.append(svg("polygon", { points: `${points[0][0]},${y(low)} ${line} ${points[points.length - 1][0]},${y(low)}`, class: "area" }));
    drawn.append(svg("polyline", { points: line, class: "curve" }));
    if (done) drawn.append(svg("line", { x1: x(done), x2: x(done), y1: 0, y2: height, class: "done" }));
    const told = steps > values.length ? `reward, mean of about ${Math.round(steps / values.length)} steps` : "reward of each step";
    return el("figure", { class: "rewards" },
      el("figcaption", null, `${told}: ${figure(low)} to ${figure(high)}`, done ? el("span", { class: "done" }, `done at step ${done.toLocaleString("en")}`) : null),
      drawn, el("div", { class: "ends" }, el("span", null, "step 1"), el("span", null, steps.toLocaleString("en"))));
  }

  // ---- distributions

  function drawSpread(chosen) {
    const section = byId("spread");
    const inside = new Set(chosen);
    const at = data.episodes.task.map((task, number) => number).filter((number) => inside.has(data.episodes.task[number]) && data.episodes.outcome[number] !== "error");
    const grouped = (value) => { const groups = {}; for (const number of at) { const x = value(number); if (x !== undefined) (groups[data.episodes.outcome[number]] ||= []).push(x); } return groups; };
    const names = new Set(at.flatMap((number) => Object.keys(data.episodes.metrics[number])));
    const plots = [
      histogram("steps", grouped((number) => data.episodes.steps[number])),
      histogram("return", grouped((number) => data.episodes.reward_sum[number])),
      histogram("largest reward", grouped((number) => data.episodes.reward_max[number])),
      ...[...names].sort().map((name) => histogram(name, grouped((number) => data.episodes.metrics[number][name]))),
    ].filter(Boolean);
    section.replaceChildren(...(plots.length ? [el("h2", null, "How long, and how much reward"), el("div", { class: "plots" }, ...plots)] : []));
  }

  // ---- time, errors, about

  function drawTime() {
    const drawn = stack(Object.entries(data.time));
    if (!drawn.length) return;
    const section = byId("time");
    const idle = "idle" in data.time;
    section.append(el("h2", null, idle ? "Where the slots' time went" : "Where the episodes' time went"), ...drawn);
    if (idle) section.append(el("p", { class: "dim" }, "other: making simulators, and episodes that were tried again or lost; idle: nothing was left to do, or the policy server was away for a while"));
    const server = data.server;
    if (server) {
      const ms = (seconds) => (seconds === null ? "–" : `${(1000 * seconds).toFixed(1)} ms`);
      section.append(el("div", { class: "scroll" }, factTable([
        ["forward passes", `${server.batches.toLocaleString("en")}, of ${figure(server.batch_size.mean)} rows on average and ${figure(server.batch_size.max)} at most`],
        ["a pass took", `${ms(server.inference_s.mean)} on average, ${ms(server.inference_s.p99)} at most in 99 of 100`],
        ["an observation waited", `${ms(server.queue_wait_s.mean)} on average, ${ms(server.queue_wait_s.p99)} at most in 99 of 100`],
        ["observations", `${server.observations.toLocaleString("en")}, ${figure(server.observations_per_second)} per second`],
      ])));
      if (data.batches.length > 1) section.append(el("p", { class: "dim" }, "forward passes by their rows"), sizeBars(data.batches));
    }
  }

  function drawErrors() {
    if (!data.errors.length) return;
    const section = byId("errors");
    section.append(el("h2", null, "Errors"));
    for (const kind of [...new Set(data.errors.map((error) => error.kind))].sort()) {
      const found = new Map(); // what differs only in numbers is said once
      for (const error of data.errors) if (error.kind === kind) found.set(error.alike, (found.get(error.alike) || 0) + error.n);
      const all = [...found.values()].reduce((sum, n) => sum + n, 0);
      section.append(el("h3", null, `${kind}: ${plural(all, "episode")}`));
      for (const [first, n] of [...found].sort((a, b) => b[1] - a[1])) section.append(el("div", { class: "wrong" }, el("span", { class: "number" }, `${n} ×`), el("span", null, data.errors[first].sentence)));
    }
  }

  function drawAbout() {
    const policy = data.policy;
    const facts = [["report made", data.made.replace("T", " ").replace("+00:00", " UTC")]];
    if (policy) {
      facts.push(["policy", policy.name]);
      if (Object.keys(policy.arguments).length) facts.push(["its arguments", JSON.stringify(policy.arguments)]);
      if (policy.checkpoint_sha256) facts.push(["checkpoint", `sha256 ${policy.checkpoint_sha256}`]);
      if (policy.commit) facts.push(["code", `commit ${policy.commit}${policy.modified ? ", with changes" : ""}`]);
    }
    for (const one of data.protocols) {
      const changed = one.changed.length ? `, but for ${one.changed.join(", ")}` : "";
      facts.push([`protocol of ${one.of}`, `${one.name}@${one.version}${changed}, sha256 ${one.sha256}`]);
    }
    facts.push(["seed", data.settings.seed], ["machine", [data.host.name, data.host.cpu, data.host.gpu, data.host.system].filter(Boolean).join(", ")]);
    const section = byId("about");
    section.append(el("h2", null, "About this run"), el("div", { class: "scroll" }, factTable(facts)));
    const commands = [...new Set(data.executions.map((execution) => execution.command).filter(Boolean))];
    if (commands.length) section.append(el("p", { class: "dim" }, commands.length > 1 ? "the commands that made it, one after the other" : "the command that made it"), ...commands.map((command) => el("pre", null, command)));
    else section.append(el("p", { class: "dim" }, data.executions.length ? "made by evaluate() in a program, with the settings below" : "the command that made it is not known"));
    const settings = Object.entries(data.settings).map(([name, value]) => [name, JSON.stringify(value)]);
    section.append(el("details", null, el("summary", null, "all settings"), el("div", { class: "scroll" }, factTable(settings))));
    const versions = Object.entries(data.versions).map(([where, packages]) => [where, Object.entries(packages).map(([name, version]) => `${name} ${version}`).join(", ")]);
    section.append(el("details", null, el("summary", null, "versions"), el("div", { class: "scroll" }, factTable(versions))));
  }

  // ---- what people do

  function redraw() {
    const chosen = chosenTasks();
    drawRates(chosen);
    drawGrid(chosen);
    drawSpread(chosen);
  }

  function step(by) {
    const here = state.shown.indexOf(state.open);
    const to = here + by;
    if (here >= 0 && to >= 0 && to < state.shown.length) openEpisode(state.shown[to]);
  }

  function nextFailure(from) {
    for (let to = from + 1; to < state.shown.length; to++) if (["failure", "error"].includes(data.episodes.outcome[state.shown[to]])) return to;
    return -1;
  }

  const KEYS = [["/", "filter"], ["← → ↑ ↓", "move in the grid"], ["Enter", "open an episode"], ["← →", "the one before or after, in an open episode"], ["n", "the next failure or error"], ["Esc", "close, or leave the filter"], ["d", "dark or light"]];

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inField = ["INPUT", "SELECT"].includes(event.target.tagName);
    if (inField) { if (event.key === "Escape") event.target.blur(); return; }
    const open = byId("episode").open;
    if (event.key === "/" && !open) { event.preventDefault(); byId("filter").focus(); return; }
    if (event.key === "?") { showKeys(KEYS); return; }
    if (event.key === "d") { changeScheme(); return; }
    if (event.key === "n") {
      const to = nextFailure(open ? state.shown.indexOf(state.open) : state.shown.indexOf(Number(document.activeElement.dataset.at ?? -1)));
      if (to >= 0) { if (open) openEpisode(state.shown[to]); else go(to); }
      return;
    }
    if (open) { if (event.key === "ArrowLeft") step(-1); if (event.key === "ArrowRight") step(1); return; }
    walkCells(event);
  }

  drawHead();
  redraw();
  drawTime();
  drawErrors();
  drawAbout();

  let waiting = 0;
  byId("filter").addEventListener("input", (event) => { clearTimeout(waiting); waiting = setTimeout(() => { state.filter = event.target.value; redraw(); }, 80); });
  byId("sort").addEventListener("change", (event) => { state.sort = event.target.value; redraw(); });
  byId("scheme").addEventListener("click", changeScheme);
  byId("keys").addEventListener("click", () => showKeys(KEYS));
  byId("grid").addEventListener("click", (event) => { const cell = event.target.closest("button.cell"); if (cell) openEpisode(Number(cell.dataset.at)); });
  for (const id of ["episode", "help"]) {
    const dialog = byId(id);
    dialog.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (event.target === dialog || (button && "close" in button.dataset)) dialog.close();
      else if (button && button.dataset.go) step(Number(button.dataset.go));
    });
  }
  byId("episode").addEventListener("close", () => { byId("episode").replaceChildren(); const at = state.open; state.open = -1; const to = state.shown.indexOf(at); if (to >= 0) go(to); });
  document.addEventListener("keydown", onKey);
})();
