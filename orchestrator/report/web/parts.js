"use strict";
// What the pages of this folder have in common. Everything that comes from a run is set as text, never as HTML.
const parts = (() => {
  const byId = (id) => document.getElementById(id);

  function el(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === undefined || value === null || value === false) continue;
      if (name === "class") node.className = value;
      else if (name === "style") Object.assign(node.style, value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }

  function svg(tag, attributes, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }

  const percent = (rate) => (rate === null || rate === undefined ? "–" : `${(100 * rate).toFixed(1)} %`);
  const between = (low, high) => `${(100 * low).toFixed(1)} – ${(100 * high).toFixed(1)} %`;
  const plural = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
  const figure = (x) => (x === null || x === undefined ? "–" : Math.abs(x) >= 1000 || Number.isInteger(x) ? Math.round(x).toLocaleString("en") : x.toPrecision(4).replace(/\.?0+$/, ""));

  function duration(seconds) {
    if (seconds < 120) return `${seconds.toFixed(1)} s`;
    if (seconds < 7200) return `${(seconds / 60).toFixed(1)} min`;
    return `${(seconds / 3600).toFixed(1)} h`;
  }

  const shell = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

  function factTable(facts) {
    const table = el("table", { class: "facts" });
    for (const [name, value] of facts) table.append(el("tr", null, el("th", null, name), el("td", null, String(value))));
    return table;
  }

  // An element that shows a film, wherever it is: beside the page, or in it.
  function filmOf(film, alt, attributes) {
    if (film.startsWith("data:image/") || film.endsWith(".gif")) return el("img", { class: "film", src: film, alt });
    return el("video", { src: film, controls: true, muted: true, loop: true, playsinline: true, "aria-label": alt, ...attributes });
  }

  function showKeys(keys) {
    const dialog = byId("help");
    const table = el("table");
    for (const [key, what] of keys) table.append(el("tr", null, el("td", null, el("kbd", null, key)), el("td", null, what)));
    dialog.replaceChildren(el("header", null, el("h2", null, "Keys"), el("button", { type: "button", "data-close": true }, "✕")), table);
    if (!dialog.open) dialog.showModal();
  }

  function changeScheme() {
    const root = document.documentElement;
    const dark = root.dataset.scheme ? root.dataset.scheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.scheme = dark ? "light" : "dark";
  }

  return { byId, el, svg, percent, between, plural, figure, duration, shell, factTable, filmOf, showKeys, changeScheme };
})();
