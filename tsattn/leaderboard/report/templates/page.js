"use strict";
(() => {
  const root = document.documentElement;
  const themeButton = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const nameTheme = () => { themeButton.textContent = isDark() ? "Light" : "Dark"; };
  themeButton.setAttribute("aria-label", "Switch between light and dark");
  themeButton.hidden = false;
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
  });
  system.addEventListener("change", nameTheme);
  nameTheme();

  const textOf = (cell) => (cell.firstChild ? cell.firstChild.textContent.trim() : "");
  const keyOf = (cell) => {
    if (!("sort" in cell.dataset)) return textOf(cell);
    return cell.dataset.sort === "" ? null : Number(cell.dataset.sort);
  };
  const isNothing = (key) => key === null || key === "–" || key === "";
  const compare = (one, other) => {
    if (typeof one === "number" && typeof other === "number") return one - other;
    return String(one).localeCompare(String(other), "en", { numeric: true });
  };

  const makeSortable = (table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
        heads.forEach((other) => other.setAttribute("aria-sort", other === head ? direction : "none"));
        const sign = direction === "ascending" ? 1 : -1;
        const rows = [...table.tBodies[0].rows].map((row) => [keyOf(row.cells[column]), row]);
        rows.sort(([one], [other]) => {
          if (isNothing(one) || isNothing(other)) return isNothing(one) - isNothing(other);
          return sign * compare(one, other);
        });
        table.tBodies[0].append(...rows.map(([, row]) => row));
      });
    });
  };

  const labelled = (text, control) => {
    const label = document.createElement("label");
    label.append(text, control);
    return label;
  };

  const makeFilterable = (holder, table) => {
    const heads = [...table.tHead.rows[0].cells];
    const rows = [...table.tBodies[0].rows];
    if (rows.length < 8) return;
    const bar = document.createElement("div");
    bar.className = "filters";
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", `Filter: ${table.caption.textContent}`);
    const search = document.createElement("input");
    search.type = "search";
    const shown = document.createElement("output");
    const choices = [];
    const apply = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      rows.forEach((row) => {
        const text = row.textContent.toLowerCase();
        const fits = choices.every(([column, select]) => !select.value || textOf(row.cells[column]) === select.value)
          && words.every((word) => text.includes(word));
        row.hidden = !fits;
        count += fits;
      });
      shown.textContent = count === rows.length ? `${count} rows` : `${count} of ${rows.length} rows`;
    };
    heads.forEach((head, column) => {
      if (!("filter" in head.dataset)) return;
      const values = [...new Set(rows.map((row) => textOf(row.cells[column])))];
      if (values.length < 2) return;
      values.sort(compare);
      const select = document.createElement("select");
      select.append(new Option("all", ""), ...values.map((value) => new Option(value)));
      select.addEventListener("change", apply);
      choices.push([column, select]);
      bar.append(labelled(textOf(head), select));
    });
    search.addEventListener("input", apply);
    bar.append(labelled("search", search), shown);
    holder.prepend(bar);
    apply();
  };

  document.querySelectorAll("[data-table]").forEach((holder) => {
    const table = holder.querySelector("table");
    makeFilterable(holder, table);
    makeSortable(table);
  });
})();
