// Cells of the grids: names are React text, so markup in a name is shown and never run.
(function () {
  "use strict";
  const cells = (window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {});
  const make = window.React.createElement;

  // A name that leads to the page of its source or family; params.page and params.field say which.
  cells.PageLink = function (props) {
    const id = props.data && props.data[props.field];
    if (!id || props.value == null) return null;
    const href = "/" + props.page + "/" + encodeURIComponent(id) + "?" + window.atlasShared();
    const go = function (event) {
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
      event.preventDefault();
      window.history.pushState({}, "", href);
      window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
      window.scrollTo(0, 0);
    };
    return make("a", { href, onClick: go, className: "name-link", dir: "auto" }, String(props.value));
  };

  // A family with its mark: columns <field>_symbol, <field>_dark and <field>_light of the row.
  cells.Family = function (props) {
    if (props.value == null) return null;
    const of = (part) => props.data[props.colDef.field + "_" + part];
    const colour = "light-dark(" + of("light") + ", " + of("dark") + ")";
    return make(
      "span", { className: "marked" },
      make("span", { className: "symbol", style: { color: colour }, "data-symbol": of("symbol"), "aria-hidden": "true" }),
      make("span", { className: "legend-name", dir: "auto" }, String(props.value)),
    );
  };
})();
