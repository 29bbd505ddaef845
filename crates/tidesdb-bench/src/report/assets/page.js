"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const night = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : night.matches);
  const label = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  if (button) {
    button.hidden = false;
    button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; label(); });
    night.addEventListener("change", label);
    label();
  }
  const filter = document.getElementById("filter");
  if (filter) {
    filter.hidden = false;
    filter.addEventListener("click", (event) => {
      const chosen = event.target.closest("button");
      if (!chosen) return;
      for (const other of filter.children) other.setAttribute("aria-pressed", String(other === chosen));
      const show = chosen.dataset.show;
      for (const group of document.querySelectorAll("#all tbody")) {
        group.hidden = show !== "" && !group.dataset.marks.split(" ").includes(show);
      }
    });
  }
  root.dataset.ready = "yes";
})();
