"use strict";
const all = (selector) => [...document.querySelectorAll(selector)];
const highlight = (claim) => {
  document.body.classList.toggle("highlighting", claim !== null);
  for (const each of all("[data-claim]")) each.classList.toggle("highlighted", each.dataset.claim === claim);
};
document.addEventListener("mouseover", (event) => {
  const part = event.target.closest("[data-claim]");
  highlight(part ? part.dataset.claim : null);
});
const texts = new Map(all(".card, tbody tr, .not-placed li").map((each) => [each, each.textContent.toLowerCase()]));
document.getElementById("filter").addEventListener("input", (event) => {
  const filter = event.target.value.trim().toLowerCase();
  for (const [each, text] of texts) each.classList.toggle("filtered", !text.includes(filter));
});
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
document.getElementById("tools").hidden = false;
