"use strict";
const all = (selector) => [...document.querySelectorAll(selector)];
const light = (claim) => {
  document.body.classList.toggle("focus", claim !== null);
  for (const each of all("[data-claim]")) each.classList.toggle("lit", each.dataset.claim === claim);
};
document.addEventListener("mouseover", (event) => {
  const part = event.target.closest("[data-claim]");
  light(part ? part.dataset.claim : null);
});
const words = new Map(all(".card, tbody tr, .waiting li").map((each) => [each, each.textContent.toLowerCase()]));
document.getElementById("filter").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  for (const [each, text] of words) each.classList.toggle("away", !text.includes(wanted));
});
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
document.getElementById("tools").hidden = false;
