// Presentation: ?present=1 hides the controls and enlarges what is left. The mode is a fact of the window; the link follows it.
(function () {
  "use strict";
  const root = document.documentElement;
  const on = () => root.dataset.present === "1";

  function link() {
    const url = new URL(window.location.href);
    if (on() === (url.searchParams.get("present") === "1")) return;
    if (on()) url.searchParams.set("present", "1");
    else url.searchParams.delete("present");
    window.history.replaceState(window.history.state, "", url);
  }

  function present(wanted) {
    if (wanted) root.dataset.present = "1";
    else delete root.dataset.present;
    strip(wanted);
    link();
    // Links of the navigation carry the mode to the next page; figures take their new width.
    if (window.dash_clientside && window.dash_clientside.atlas) window.dash_clientside.atlas.header();
    window.requestAnimationFrame(() => window.dispatchEvent(new Event("resize")));
    const next = document.getElementById(wanted ? "present-off" : "present");
    if (!next) return;
    // Seen once the pointer or Tab reaches it: until then it would cover what is shown.
    next.dataset.quiet = "";
    next.addEventListener("blur", () => delete next.dataset.quiet, { once: true });
    next.focus({ preventScroll: true });
  }

  // The figure after or before the one at the top; the head of the page counts as one.
  function step(way) {
    const stage = document.getElementById("content");
    const stops = [...document.querySelectorAll(".column > .page-head, .figure, .sheet")];
    if (!stage || !stops.length) return;
    const top = stage.getBoundingClientRect().top;
    const places = stops.map((stop) => stop.getBoundingClientRect().top - top + stage.scrollTop);
    const now = stage.scrollTop + 16;
    // Compare has one figure at a time: after the last one of the page comes the next link to one.
    const links = [...document.querySelectorAll(".questions > div:first-child a")];
    const place = way > 0 ? places.find((y) => y > now + 32) : places.filter((y) => y < now - 32).pop();
    if (place !== undefined) stage.scrollTo({ top: place - 16 });
    else if (links.length) (links[links.findIndex((link) => link.hasAttribute("aria-current")) + way] || links[0]).click();
  }

  // What a presenter shows with one key: pages, the part of them that comes to the top, and its name.
  const STAGES = {
    1: ["/", "", "#map", "Map"],
    2: ["/attribution", "", "#figure-budget", "Accuracy"],
    3: ["/attribution", "", "#figure-confusion", "Confusions"],
    4: ["/brief", "&figures=case", ".sheet-case", "Your case"],
  };

  // The keys in a strip, until one of them is pressed; "?" shows it again, also outside a presentation.
  const PRESENTING = [...Object.entries(STAGES).map(([key, stage]) => [key, stage[3]]), ["← →", "Figures"], ["?", "Keys"], ["Esc", "Leave"]];
  const READING = [["/", "Find a source (map)"], ["Tab", "Next control"], ["Enter", "Choose"], ["P, then 1 to 4", "Present the map, accuracy, confusions, your case"], ["?", "Keys"], ["Esc", "Close"]];
  function strip(shown) {
    let keys = document.getElementById("present-keys");
    if (!keys) {
      keys = document.createElement("aside");
      keys.id = keys.className = "present-keys";
      keys.setAttribute("role", "status");
      keys.setAttribute("aria-label", "Keys");
      document.body.append(keys);
    }
    keys.replaceChildren(...(on() ? PRESENTING : READING).map(([key, name]) => {
      const pair = document.createElement("span"), cap = document.createElement("kbd");
      cap.textContent = key;
      pair.append(cap, " " + name);
      return pair;
    }));
    keys.hidden = !shown;
  }

  function show([path, choices, place]) {
    if (window.location.pathname !== path || choices) {
      window.history.pushState({}, "", path + "?" + window.atlasShared() + choices);
      window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
    }
    const until = Date.now() + 20000;
    (function top() {
      const found = window.location.pathname === path && document.querySelector(place);
      if (found) {
        found.scrollIntoView({ block: "start" });
        // Without a chosen pair the matrix says little from afar.
        const truth = new URL(window.location.href).searchParams.get("truth");
        if (place === "#figure-confusion" && !truth) document.getElementById("largest").click();
      } else if (Date.now() < until) window.setTimeout(top, 100);
    })();
  }

  document.addEventListener("click", function (event) {
    if (!(event.target instanceof Element)) return;
    if (event.target.closest("#present")) present(true);
    if (event.target.closest("#present-off")) present(false);
  });

  document.addEventListener("keydown", function (event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.target instanceof Element && event.target.closest(".ag-root, input:not([type=radio]), textarea")) return;
    if (event.key === "p" && !on()) present(true);
    const keys = document.getElementById("present-keys");
    if (event.key === "?") strip(!keys || keys.hidden);
    else if (keys && event.key !== "p" && event.key !== "Shift") strip(false);
    if (!on()) return;
    if (STAGES[event.key]) show(STAGES[event.key]);
    if (event.key === "Escape") present(false);
    else if (event.key === "ArrowRight" || event.key === "PageDown") { event.preventDefault(); step(1); }
    else if (event.key === "ArrowLeft" || event.key === "PageUp") { event.preventDefault(); step(-1); }
  });

  // A page that is opened from here is presented too, whatever its link says.
  window.addEventListener("_dashprivate_pushstate", link);
  window.addEventListener("popstate", link);
  if (new URL(window.location.href).searchParams.get("present") === "1") {
    root.dataset.present = "1";
    document.addEventListener("DOMContentLoaded", () => strip(true));
  }
})();
