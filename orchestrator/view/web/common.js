"use strict";
// What both pages have in common, beside parts.js.
const common = (() => {
  const { byId, duration, changeScheme } = parts;

  // In whole numbers: it changes all the time.
  const roughly = (seconds) => (seconds < 100 ? `${Math.round(seconds)} s` : seconds < 6000 ? `${Math.round(seconds / 60)} min` : duration(seconds));

  function ago(seconds) {
    if (seconds < 5) return "now";
    return seconds < 86400 * 2 ? `${roughly(seconds)} ago` : `${Math.round(seconds / 86400)} days ago`;
  }

  const words = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

  byId("scheme").addEventListener("click", changeScheme);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (["INPUT", "SELECT"].includes(event.target.tagName)) { if (event.key === "Escape") event.target.blur(); return; }
    if (event.key === "/" && !document.querySelector("dialog[open]")) { event.preventDefault(); byId("filter").focus(); }
    if (event.key === "d") changeScheme();
  });

  return { roughly, ago, words };
})();
