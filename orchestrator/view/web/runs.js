"use strict";
// The runs in a folder: searched, sorted, and chosen for a comparison.
(() => {
  const { byId, el, percent, between, plural, figure } = parts;
  const { ago, words } = common;
  const state = { runs: [], cut: false, filter: "", sort: "newest", chosen: new Set(), loaded: false };
  const EVERY = 5000;

  function rate(run) {
    const all = run.overall;
    if (!all) return null;
    return run.metric === "return" ? (all.return ? all.return.mean : null) : all.success_rate;
  }

  function shown() {
    const wanted = words(state.filter);
    const found = state.runs.filter((run) => {
      const own = `${run.name} ${run.title} ${run.status} ${run.problem} ${(run.tasks || []).join(" ")}`.toLowerCase();
      return wanted.every((word) => own.includes(word));
    });
    if (state.sort === "newest") found.sort((a, b) => (b.began || "").localeCompare(a.began || "") || a.name.localeCompare(b.name));
    if (state.sort === "best") found.sort((a, b) => (rate(b) ?? -Infinity) - (rate(a) ?? -Infinity));
    return found;
  }

  function line(run) {
    const box = el("input", { type: "checkbox", "data-id": run.id, "aria-label": `choose ${run.name}` });
    box.checked = state.chosen.has(run.id);
    box.disabled = run.status === "unreadable";
    const all = run.overall, value = rate(run);
    const number = el("span", { class: "number" });
    if (value !== null && value !== undefined) {
      number.append(el("b", null, run.metric === "return" ? figure(value) : percent(value)));
      const interval = run.metric === "return" ? all.return.interval : all.interval;
      if (interval) number.append(el("span", { class: "dim" }, ` ${run.metric === "return" ? `${figure(interval[0])} to ${figure(interval[1])}` : between(...interval)}`));
    }
    if (run.errors) number.append(" ", el("span", { class: "caution" }, plural(run.errors, "error")));
    const seconds = run.began ? Date.now() / 1000 - Date.parse(run.began) / 1000 : null;
    const recorded = run.recorded === null || run.recorded === undefined ? "" : `${run.recorded.toLocaleString("en")} of ${plural(run.planned || 0, "episode")}`;
    return el("div", { class: "run" }, box,
      el("div", { class: "what" }, el("a", { href: `/run/${run.id}/` }, run.name), " ", el("span", { class: `badge ${run.status}` }, run.status), el("div", { class: run.problem ? "caution" : "dim" }, run.problem || run.title)),
      el("div", { class: "much" }, number, el("div", { class: "dim" }, [recorded, seconds === null ? "" : ago(Math.max(0, seconds))].filter(Boolean).join(" · "))),
      el("a", { class: "button", href: `/run/${run.id}/report`, target: "_blank", rel: "noopener", hidden: run.status === "unreadable" }, "report"));
  }

  function draw() {
    const found = shown();
    byId("count").textContent = `${plural(state.runs.length, "run")}${found.length === state.runs.length ? "" : `, ${found.length} shown`}${state.cut ? "; there are more folders than are looked through" : ""}`;
    const section = byId("runs");
    const nothing = state.runs.length ? "no run matches" : "There is no run in this folder yet. One that begins is shown here by itself.";
    const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.id : undefined;
    section.replaceChildren(...(found.length ? found.map(line) : state.loaded ? [el("p", { class: "dim" }, nothing)] : []));
    if (focused) section.querySelector(`[data-id="${focused}"]`)?.focus();
    const here = new Set(state.runs.map((run) => run.id));
    for (const id of [...state.chosen]) if (!here.has(id)) state.chosen.delete(id);
    byId("compare").disabled = state.chosen.size < 2;
    byId("compare").textContent = state.chosen.size ? `compare ${state.chosen.size}` : "compare";
  }

  let before = "";
  async function load() {
    if (!document.hidden || !state.loaded) {
      try {
        const answer = await fetch("/runs.json");
        const text = await answer.text();
        if (answer.ok && text !== before) { before = text; Object.assign(state, JSON.parse(text), { loaded: true }); draw(); }
      } catch { byId("count").textContent = "the server does not answer"; before = ""; }
    }
    setTimeout(load, EVERY);
  }

  byId("filter").addEventListener("input", (event) => { state.filter = event.target.value; draw(); });
  byId("sort").addEventListener("change", (event) => { state.sort = event.target.value; draw(); });
  byId("runs").addEventListener("change", (event) => {
    const id = event.target.dataset.id;
    if (event.target.checked) state.chosen.add(id); else state.chosen.delete(id);
    draw();
  });
  // The older one is the first: what it was before is held against what it is now.
  byId("compare").addEventListener("click", () => {
    const chosen = state.runs.filter((run) => state.chosen.has(run.id)).sort((a, b) => (a.began || "").localeCompare(b.began || ""));
    const metric = byId("metric").value;
    open(`/compare?${chosen.map((run) => `run=${run.id}`).join("&")}${metric && `&metric=${metric}`}`, "_blank", "noopener");
  });
  load();
})();
