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
    if (seconds > 0 && seconds < 1) return `${seconds < 0.01 ? (1000 * seconds).toPrecision(2) : Math.round(1000 * seconds)} ms`;
    if (seconds < 120) return `${seconds.toFixed(1)} s`;
    if (seconds < 7200) return `${(seconds / 60).toFixed(1)} min`;
    return `${(seconds / 3600).toFixed(1)} h`;
  }

  // How values are spread, by outcome.
  function histogram(title, groups) {
    const all = Object.values(groups).flat();
    if (all.length < 2) return null;
    const low = all.reduce((a, b) => Math.min(a, b)), high = all.reduce((a, b) => Math.max(a, b)); // there may be too many for arguments
    if (low === high) return el("figure", null, el("figcaption", null, title), el("p", null, `${figure(low)} in all of them`));
    const bins = Math.min(30, Math.max(8, Math.ceil(Math.sqrt(all.length))));
    const at = (x) => Math.min(bins - 1, Math.floor(((x - low) / (high - low)) * bins));
    const counts = Object.entries(groups).map(([outcome, values]) => { const found = Array(bins).fill(0); for (const x of values) found[at(x)] += 1; return [outcome, found]; });
    const most = Math.max(...Array.from({ length: bins }, (_, bin) => counts.reduce((sum, [, found]) => sum + found[bin], 0)));
    const [width, height, base] = [300, 120, 104];
    const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": title });
    const step = width / bins;
    for (let bin = 0; bin < bins; bin++) {
      let top = base;
      for (const [outcome, found] of counts) {
        if (!found[bin]) continue;
        const tall = (found[bin] / most) * (base - 6);
        top -= tall;
        const mark = svg("rect", { x: bin * step + 0.5, y: top, width: step - 1, height: tall, style: `fill: var(--${outcome})` });
        mark.append(svg("title", null, `${found[bin]} × ${outcome}, ${figure(low + ((high - low) * bin) / bins)} to ${figure(low + ((high - low) * (bin + 1)) / bins)}`));
        drawn.append(mark);
      }
    }
    drawn.append(svg("line", { x1: 0, x2: width, y1: base + 0.5, y2: base + 0.5, style: "stroke: var(--line)" }));
    const mean = all.reduce((a, b) => a + b, 0) / all.length;
    const ends = el("div", { class: "dim", style: { display: "flex", justifyContent: "space-between", fontSize: ".8rem", marginTop: "-14px" } }, el("span", null, figure(low)), el("span", null, `up to ${most.toLocaleString("en")} in a bar`), el("span", null, figure(high)));
    return el("figure", null, el("figcaption", null, title, el("span", null, `mean ${figure(mean)}`)), drawn, ends);
  }

  const shell = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

  // A name that may be broken where its words end, and not in the middle of one.
  const breakable = (name) => name.split(/(?<=[_/:.-])/).flatMap((word, at) => (at ? [el("wbr"), word] : [word]));

  // How often each size came: [[size, n], ...].
  function sizeBars(sizes) {
    const most = Math.max(1, ...sizes.map(([, n]) => n));
    const bars = el("div", { class: "sizes" });
    for (const [size, n] of sizes.slice(0, 64)) bars.append(el("div", { title: `${n.toLocaleString("en")} × ${size}` }, el("i", { style: { height: `${Math.max(2, (60 * n) / most)}px` } }), el("span", null, String(size))));
    return bars;
  }

  function factTable(facts) {
    const table = el("table", { class: "facts" });
    for (const [name, value] of facts) table.append(el("tr", null, el("th", null, name), el("td", null, String(value))));
    return table;
  }

  // An element that shows a film, wherever it is: beside the page, or in it.
  function filmOf(film, alt, attributes) {
    const isPicture = film.startsWith("data:image/") || film.endsWith(".gif");
    const shown = isPicture ? el("img", { class: "film", src: film, alt }) : el("video", { src: film, controls: true, muted: true, loop: true, playsinline: true, "aria-label": alt, ...attributes });
    shown.addEventListener(isPicture ? "load" : "loadedmetadata", () => shown.style.setProperty("--ratio", isPicture ? shown.naturalWidth / shown.naturalHeight : shown.videoWidth / shown.videoHeight));
    shown.addEventListener("error", () => shown.replaceWith(el("div", { class: "nofilm dim" }, "This film cannot be shown: its file is gone, or no film.")));
    return shown;
  }

  function showKeys(keys) {
    const dialog = byId("help");
    const table = el("table");
    for (const [key, what] of keys) table.append(el("tr", null, el("td", null, el("kbd", null, key)), el("td", null, what)));
    dialog.replaceChildren(el("header", null, el("h2", null, "Keys"), el("button", { type: "button", "data-close": true }, "✕")), table);
    if (!dialog.open) dialog.showModal();
  }

  // Of all cells Tab comes to one, the one that was left last; arrow keys walk from there.
  function focusCell(cell) {
    for (const other of document.querySelectorAll('.cell[tabindex="0"]')) other.tabIndex = -1;
    cell.tabIndex = 0;
    cell.focus();
  }

  function walkCells(event) {
    if (!event.key.startsWith("Arrow") || !document.activeElement.matches(".cell")) return;
    const cells = [...document.querySelectorAll("button.cell:enabled")], here = cells.indexOf(document.activeElement);
    const moves = { ArrowLeft: here - 1, ArrowRight: here + 1, ArrowUp: cellAcross(cells, here, -1), ArrowDown: cellAcross(cells, here, 1) };
    event.preventDefault();
    const cell = cells[moves[event.key]];
    if (cell) focusCell(cell);
  }

  // The cell above or below: the nearest in the next line, wherever lines break.
  function cellAcross(cells, here, direction) {
    const own = cells[here].getBoundingClientRect();
    let best = here, distance = Infinity, line = null;
    for (let to = here + direction; to >= 0 && to < cells.length; to += direction) {
      const box = cells[to].getBoundingClientRect();
      if (Math.abs(box.top - own.top) < 4) continue;
      if (line === null) line = box.top;
      if (Math.abs(box.top - line) > 4) break;
      if (Math.abs(box.left - own.left) < distance) { distance = Math.abs(box.left - own.left); best = to; }
    }
    return best;
  }

  function changeScheme() {
    const root = document.documentElement;
    const dark = root.dataset.scheme ? root.dataset.scheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.scheme = dark ? "light" : "dark";
  }

  return { byId, el, svg, percent, between, plural, figure, duration, histogram, breakable, sizeBars, shell, factTable, filmOf, showKeys, focusCell, walkCells, changeScheme };
})();
