// Loaded before the page is painted, so that it never flashes in the other
// colors. A choice of the user goes before the system's.
"use strict";
const systemTheme = matchMedia("(prefers-color-scheme: dark)");

function chosenTheme() {
  try {
    return localStorage.getItem("tessera.theme");
  } catch {
    return null; // storage is blocked
  }
}

function applyTheme() {
  document.documentElement.dataset.theme = chosenTheme() ?? (systemTheme.matches ? "dark" : "light");
  document.dispatchEvent(new Event("theme"));
}

function switchTheme() {
  const other = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  const isSystems = other === (systemTheme.matches ? "dark" : "light");
  try {
    if (isSystems) localStorage.removeItem("tessera.theme");
    else localStorage.setItem("tessera.theme", other);
  } catch {
    // It is then for this visit.
  }
  document.documentElement.dataset.theme = other;
  document.dispatchEvent(new Event("theme"));
}

systemTheme.addEventListener("change", applyTheme);
applyTheme();
