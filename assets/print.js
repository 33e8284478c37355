// What a page has on paper and not on the screen: whose numbers it shows on every sheet, and whole tables.
(function () {
  "use strict";
  const LONG = 200, FIRST = 50;  // rows from which a table is cut on paper, and how many are left: builds would fill eighty sheets

  // What stands below a sheet of the brief on the screen, else page, choices, address and day.
  function foot() {
    const sheet = [...document.querySelectorAll(".sheet-foot:last-child")].pop();
    if (sheet) return [...sheet.children].map((part) => part.textContent);
    const choices = ["reader", "roster", "domain", "relates"].map((id) => document.getElementById(id)).filter((one) => one && one.checkVisibility());
    const day = new Date().toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
    return [document.title, ...choices.map((one) => one.value), day, window.location.host + window.location.pathname];
  }

  // A grid shows the rows that fit its window: paper has all that its filters leave, in its order, or says how many it leaves out.
  function tableOf(grid) {
    const api = window.dash_ag_grid.getApi(grid.id.startsWith("{") ? JSON.parse(grid.id) : grid.id);
    const table = document.createElement("table"), columns = api ? api.getAllDisplayedColumns() : [];
    const write = (row, kind, column, text) => {
      const cell = row.appendChild(document.createElement(kind));
      cell.textContent = text ?? "";
      if (column.getColDef().type === "rightAligned") cell.className = "number";
    };
    const groups = columns.map((column) => column.getParent()?.getColGroupDef()?.headerName ?? "");
    const over = groups.some(Boolean) && table.createTHead().insertRow(), head = table.createTHead().insertRow(), body = table.createTBody();
    // A name over several columns says what they are numbers of.
    if (over) groups.forEach((name, at) => {
      if (at && name && name === groups[at - 1]) return void over.lastElementChild.colSpan++;
      const cell = over.appendChild(document.createElement("th"));
      [cell.textContent, cell.colSpan] = [name, 1];
    });
    for (const column of columns) write(head, "th", column, api.getDisplayNameForColumn(column, null));
    const nodes = [];
    if (api) api.forEachNodeAfterFilterAndSort((node) => nodes.push(node));
    for (const node of nodes.length > LONG ? nodes.slice(0, FIRST) : nodes) {
      const row = body.insertRow();
      for (const column of columns) write(row, "td", column, api.getCellValue({ rowNode: node, colKey: column, useFormatter: true }));
    }
    if (nodes.length > LONG) table.createCaption().textContent = `The first ${FIRST} of ${nodes.length.toLocaleString("en")} rows. The CSV holds all.`;
    table.className = "grid-printed";
    return table;
  }

  window.addEventListener("beforeprint", function () {
    document.documentElement.style.setProperty("--foot", JSON.stringify(foot().join(" · ")));
    for (const grid of document.querySelectorAll(".atlas-grid[id]")) if (grid.checkVisibility()) grid.after(tableOf(grid));
  });
  window.addEventListener("afterprint", () => document.querySelectorAll(".grid-printed").forEach((table) => table.remove()));
})();
