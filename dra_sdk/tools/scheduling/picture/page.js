"use strict";
const root = document.documentElement;
const byId = (id) => document.getElementById(id);
const view = new URLSearchParams(location.hash.slice(1));
const keep = (key, value) => {
  if (value) view.set(key, value); else view.delete(key);
  history.replaceState(null, "", view.size ? `#${view}` : location.pathname + location.search);
};

// -- claims: the one below the pointer, or the one that was clicked

const parts = new Map();
for (const each of document.querySelectorAll("[data-claim]")) {
  const claim = each.dataset.claim;
  if (parts.has(claim)) parts.get(claim).push(each); else parts.set(claim, [each]);
}
const names = new Map();
for (const row of document.querySelectorAll("tr[data-claim]")) names.set(row.firstChild.textContent, row.dataset.claim);
const nameOf = (claim) => [...names].find(([, each]) => each === claim)?.[0] ?? "";
let shown = null;
let pinned = null;
const highlight = (claim) => {
  if (claim === shown) return;
  for (const each of parts.get(shown) ?? []) each.classList.remove("highlighted");
  for (const each of parts.get(claim) ?? []) each.classList.add("highlighted");
  document.body.classList.toggle("highlighting", claim !== null);
  shown = claim;
};
const claimAt = (event) => event.target.closest?.("[data-claim]")?.dataset.claim ?? null;
const pin = (claim) => {
  pinned = claim;
  highlight(claim);
  keep("claim", claim === null ? "" : nameOf(claim));
};
document.addEventListener("mouseover", (event) => highlight(claimAt(event) ?? pinned));
document.addEventListener("click", (event) => {
  const claim = claimAt(event);
  if (claim !== null) pin(claim === pinned ? null : claim);
  else if (pinned !== null && event.target.closest("main")) pin(null);
});

// -- finding

let texts = null;
const textOf = (each) => {
  const titles = [...each.querySelectorAll("[title]")].map((one) => one.title);
  return [each.textContent, ...titles].join(" ").toLowerCase();
};
const find = (words) => {
  const wanted = words.trim().toLowerCase();
  if (!wanted && texts === null) return;
  texts ??= new Map([...document.querySelectorAll(".card, [data-claim] > td:first-child, .not-placed li")].map(
    (each) => [each.matches("td") ? each.parentElement : each, textOf(each.matches("td") ? each.parentElement : each)]));
  const count = { card: 0, claim: 0 };
  for (const [each, text] of texts) {
    const matches = text.includes(wanted);
    each.classList.toggle("filtered", !matches);
    if (matches && each.matches(".card")) count.card += 1;
    if (matches && each.matches("tr")) count.claim += 1;
  }
  for (const group of document.querySelectorAll(".cards, .group")) {
    group.classList.toggle("filtered", !group.querySelector(".card:not(.filtered)"));
  }
  const notPlaced = document.querySelector(".not-placed");
  notPlaced?.parentElement.classList.toggle("filtered", !notPlaced.querySelector("li:not(.filtered)"));
  const said = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  byId("found").textContent = wanted ? `${said(count.card, "node")}, ${said(count.claim, "claim")}` : "";
};
byId("filter").addEventListener("input", (event) => {
  find(event.target.value);
  keep("find", event.target.value.trim());
});
byId("filter").addEventListener("keydown", (event) => {
  if (event.key === "Enter") document.querySelector(".card:not(.filtered)")?.scrollIntoView({ block: "center" });
});

// -- light and dark, folded groups

const setTheme = (theme) => {
  if (theme) root.dataset.theme = theme;
};
byId("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(dark ? "light" : "dark");
  keep("theme", root.dataset.theme);
});
for (const group of document.querySelectorAll(".group")) {
  group.addEventListener("toggle", () => {
    const folded = [...document.querySelectorAll(".group:not([open])")].map((each) => each.dataset.group);
    view.delete("folded");
    for (const each of folded) view.append("folded", each);
    keep("find", byId("filter").value.trim());
  });
}

// -- the view that the link keeps

setTheme({ light: "light", dark: "dark" }[view.get("theme")]);
const folded = new Set(view.getAll("folded"));
for (const group of document.querySelectorAll(".group")) if (folded.has(group.dataset.group)) group.open = false;
byId("filter").value = view.get("find") ?? "";
find(byId("filter").value);
if (names.has(view.get("claim"))) {
  pinned = names.get(view.get("claim"));
  highlight(pinned);
  parts.get(pinned)[0].scrollIntoView({ block: "center" });
}
byId("tools").hidden = false;
