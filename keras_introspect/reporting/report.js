"use strict";
(() => {
  const table = document.getElementById("table");
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const search = document.getElementById("search");
  const view = document.getElementById("view");
  const notable = document.getElementById("notable");
  const count = document.getElementById("count");
  const names = new Map(rows.map((row) => {
    const mark = row.cells[0].querySelector(".mark");
    return [row, row.cells[0].textContent.slice(mark ? mark.textContent.length : 0).trim().toLowerCase()];
  }));

  // --- filter: every word must occur in the name, the view or the shape ---
  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = `${names.get(row)} ${row.dataset.view} ${row.cells[2].textContent}`;
      row.hidden =
        (view.value && row.dataset.view !== view.value) ||
        (notable.checked && !row.className) ||
        !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    count.textContent = shown === rows.length ? `${rows.length} tensors` : `${shown} of ${rows.length} tensors`;
  }

  // --- sort: numbers largest first, text from a to z; what has no value comes last either way ---
  function key(row, index, kind) {
    if (kind === "text") return index ? row.cells[index].textContent : names.get(row);
    const value = row.cells[index].dataset.v;
    return value === "" || value === undefined ? null : Number(value);
  }
  function sort(head, index, kind) {
    const before = head.getAttribute("aria-sort");
    const ascending = before === null ? kind === "text" : before === "descending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const sign = ascending ? 1 : -1;
    const order = new Intl.Collator("en", { numeric: true });
    const keyed = Array.from(body.rows, (row) => [key(row, index, kind), row]);
    keyed.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return sign * (kind === "text" ? order.compare(a, b) : a < b ? -1 : a > b ? 1 : 0);
    });
    body.append(...keyed.map(([, row]) => row));
  }
  Array.from(table.tHead.rows[0].cells).forEach((head, index) => {
    const kind = head.dataset.kind;
    if (!kind) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(head, index, kind));
    head.replaceChildren(button);
  });

  search.addEventListener("input", filter);
  view.addEventListener("change", filter);
  notable.addEventListener("change", filter);
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      search.focus();
    } else if (event.key === "Escape" && event.target === search) {
      search.value = "";
      filter();
    }
  });
  // A finding leads to its row, which a filter may hide.
  window.addEventListener("hashchange", () => {
    const row = document.getElementById(location.hash.slice(1));
    if (row && row.hidden) {
      search.value = view.value = "";
      notable.checked = false;
      filter();
      row.scrollIntoView({ block: "center" });
    }
  });

  // --- wide pictures, which the page shows smaller than they are, can be seen at their full size ---
  for (const figure of document.querySelectorAll("figure.wide")) {
    const heading = figure.parentElement.querySelector("h2, h3");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "zoom";
    button.textContent = "full size";
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(figure.classList.toggle("full")));
    });
    heading.before(button);
  }

  document.querySelector(".controls").hidden = false;
  filter();
})();
