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

  // Where the key was pressed; slides lead away from it, and the end of the presentation back.
  let origin = null;

  function present(wanted) {
    if (wanted) {
      root.dataset.present = "1";
      origin = { address: window.location.href, top: document.getElementById("content")?.scrollTop };
    } else delete root.dataset.present;
    strip(wanted, wanted && slide());
    if (!wanted && origin?.left) {
      go(origin.address);
      const { top } = origin, now = ++asked, until = Date.now() + 4000;
      (function back() {
        if (now !== asked || Date.now() > until) return;
        document.getElementById("content")?.scrollTo({ top });
        window.setTimeout(back, 100);
      })();
    }
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

  // What a presenter shows with one key: pages, the part of them that comes to the top, and its name.
  const SLIDES = {
    1: ["/", "", "#map", "Map"],
    2: ["/attribution", "", ".first-screen", "Accuracy"],
    3: ["/attribution", "", "#figure-confusion", "Confusions"],
    4: ["/brief", "&figures=case", ".sheet-case", "Your case"],
  };

  // The number of the slide in sight, 0 elsewhere.
  function slide() {
    const { pathname, search } = window.location, confusion = document.querySelector(SLIDES[3][2]);
    if (pathname === "/attribution") return confusion && confusion.getBoundingClientRect().top < 60 ? 3 : 2;
    if (pathname === "/brief") return new URLSearchParams(search).get("figures") === "case" ? 4 : 0;
    return pathname === "/" ? 1 : 0;
  }

  // A brief is a deck of its own: number keys choose its sheets.
  const brief = () => window.location.pathname === "/brief" && !slide();

  // What the arrows stop at, and how far below the top of the screen it is; the head of a page is one too.
  function stops() {
    const figures = ".column > .page-head, .first-screen, .figure:not(.first-screen *), .sheet";
    return [...document.querySelectorAll(figures)].filter((one) => one.checkVisibility());
  }

  const far = (stop) => stop.getBoundingClientRect().top - document.getElementById("content").getBoundingClientRect().top - 16;

  // The figures that follow the confusions belong to their slide.
  function figure(number) {
    const all = number === 3 ? stops() : [], own = all.slice(all.findIndex((one) => one.matches(SLIDES[3][2])));
    return own.length > 1 ? ` · figure ${Math.max(own.filter((one) => far(one) < 32).length, 1)} of ${own.length}` : "";
  }

  // Which figure of a page that is no slide is at the top, of how many; '' on a slide and where there is one only.
  function position() {
    if (!on() || slide()) return "";
    const ways = links(), all = ways.length ? ways : stops();
    const chosen = ways.findIndex((link) => link.hasAttribute("aria-current")) + 1, seen = atEnd() ? all.length : all.filter((one) => far(one) < 32).length;
    return all.length > 1 ? `${Math.max(ways.length ? chosen : seen, 1)} / ${all.length}` : "";
  }

  // The slide after or before this one; a page that is none goes through its figures.
  function turn(way) {
    const at = slide();
    if (!at) step(way);
    else if (SLIDES[at + way]) show(at + way);
  }

  // The figure after or before the one at the top.
  function step(way) {
    if (!document.getElementById("content")) return;
    const stop = following(way);
    if (stop && stop.matches(SLIDES[3][2])) show(3);
    else if (stop) reach(stop);
    else if (links().length) (links()[links().findIndex((link) => link.hasAttribute("aria-current")) + way] || links()[0]).click();
    if (stop) strip(keysShown(), slide());
  }

  function following(way) {
    const all = stops();
    return way > 0 ? !atEnd() && all.find((one) => far(one) > 32) : all.filter((one) => far(one) < -32).pop();
  }

  function reach(stop) {
    const stage = document.getElementById("content");
    stage.scrollTo({ top: stage.scrollTop + far(stop) });
  }

  // Whether the arrow down leads somewhere.
  const more = () => Boolean(following(1)) || links().length > 0;

  // Compare has one figure at a time: after the last one of the page comes the next link to one.
  const links = () => [...document.querySelectorAll(".questions > div:first-child a")];

  function atEnd() {
    const stage = document.getElementById("content");
    return stage && stage.scrollHeight > stage.clientHeight && stage.scrollTop + stage.clientHeight > stage.scrollHeight - 4;
  }

  // The keys in a strip: while presenting until "?" hides them, else until one of them is pressed. A slide's number is with them.
  const PRESENTING = [...Object.entries(SLIDES).map(([key, slide]) => [key, slide[3]]), ["← →", "Slide"], ["↓", "More figures"], ["?", "Hide keys"], ["Esc", "Leave"]];
  const SHEETS = [["1 to 9", "Choose a sheet"], ["← →", "Next sheet"], ["?", "Hide keys"], ["Esc", "Leave"]];
  const READING = [["/", "Find a source (map)"], ["Tab", "Next control"], ["Enter", "Choose"], ["P, then 1 to 4", "Present the map, accuracy, confusions, your case"], ["?", "Hide keys"], ["Esc", "Close"]];
  function strip(shown, number) {
    let keys = document.getElementById("present-keys");
    if (!keys) {
      keys = document.createElement("aside");
      keys.id = keys.className = "present-keys";
      keys.setAttribute("role", "status");
      keys.setAttribute("aria-label", "Keys");
      document.body.append(keys);
    }
    const own = ["P, then 1 to 9", "Present the sheets of this brief"];
    const reading = READING.map((pair) => (brief() && pair[0].startsWith("P") ? own : pair));
    keys.replaceChildren(...(!on() ? reading : brief() ? SHEETS : PRESENTING).map(([key, name]) => {
      const pair = document.createElement("span"), cap = document.createElement("kbd");
      if (key === "↓") [pair.className, pair.hidden] = ["present-more", !more()];
      cap.textContent = key;
      pair.append(cap, " " + name);
      return pair;
    }));
    const place = document.createElement("span");
    place.className = "present-place";
    place.textContent = number ? number + " / " + Object.keys(SLIDES).length + figure(number) : position();
    if (on()) keys.prepend(place);
    keys.hidden = !shown;
    above(keys);
  }

  // Pages end above the keys, so that these lie over nothing.
  function above(keys) {
    const height = on() ? keys.offsetHeight : 0, now = height + "px";
    if (root.style.getPropertyValue("--keys") === now) return;
    root.style.setProperty("--keys", now);
    window.requestAnimationFrame(() => window.dispatchEvent(new Event("resize")));
  }

  const keysShown = () => !document.getElementById("present-keys")?.hidden;

  function go(address) {
    window.history.pushState({}, "", address);
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
  }

  // Between two keys a page may be drawn once more over the one that was found: a slide is looked for until the next key, press
  // or turn of the wheel.
  let asked = 0;
  function show(number) {
    const [path, choices, place] = SLIDES[number];
    if (origin) origin.left = true;
    if (window.location.pathname !== path || choices) go(path + "?" + window.atlasShared() + choices);
    strip(keysShown(), number);
    const now = ++asked, until = Date.now() + 20000;
    let shown = null;
    (function top() {
      const found = window.location.pathname === path && document.querySelector(place);
      if (found && found !== shown) {
        shown = found;
        found.scrollIntoView({ block: "start" });
        strip(keysShown(), number);  // how many figures it has is known now
        const sample = found.querySelector("#sample-run");
        if (sample) sample.focus({ preventScroll: true });  // Enter runs it
        // Without a chosen pair the matrix says little from afar, where only a family's cells can be told apart.
        const { searchParams } = new URL(window.location.href);
        if (number === 3 && !searchParams.get("zoom")) document.getElementById("enlarge").click();
        else if (number === 3 && !searchParams.get("truth")) document.getElementById("largest").click();
      }
      if (now === asked && Date.now() < until) window.setTimeout(top, 100);
    })();
  }

  for (const act of ["keydown", "pointerdown", "wheel"]) document.addEventListener(act, () => { asked += 1; }, { passive: true });

  document.addEventListener("click", function (event) {
    if (!(event.target instanceof Element)) return;
    if (event.target.closest("#present")) present(true);
    if (event.target.closest("#present-off")) present(false);
  });

  document.addEventListener("keydown", function (event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.target instanceof Element && event.target.closest(".ag-root, input:not([type=radio]), textarea")) return;
    if (event.key === "p" && !on()) present(true);
    root.dataset.resting = "";
    const keys = document.getElementById("present-keys");
    if (event.key === "?") strip(!keys || keys.hidden, on() && slide());
    else if (keys && !on() && event.key !== "p" && event.key !== "Shift") strip(false);
    if (!on()) return;
    const sheet = brief() && stops()[Number(event.key) - 1];
    if (sheet) {
      reach(sheet);
      strip(keysShown(), 0);
    } else if (SLIDES[event.key] && !brief()) show(Number(event.key));
    if (event.key === "Escape") present(false);
    const space = event.key === " " && !(event.target.matches && event.target.matches("a, summary, button:not([data-quiet])"));
    const back = ["ArrowLeft", "ArrowUp", "PageUp"].includes(event.key) || (space && event.shiftKey);
    if (!back && !space && !["ArrowRight", "ArrowDown", "PageDown"].includes(event.key)) return;
    event.preventDefault();
    if (space) document.activeElement.blur(); // Else its release would press the button that leaves.
    (event.key === "ArrowUp" || event.key === "ArrowDown" ? step : turn)(back ? -1 : 1);
  });

  document.addEventListener("pointermove", (event) => {
    if (event.movementX || event.movementY) delete root.dataset.resting;
  });

  // A page that is opened from here is presented too, whatever its link says.
  window.addEventListener("_dashprivate_pushstate", () => {
    link();
    if (on()) strip(keysShown(), slide());
  });
  window.addEventListener("popstate", link);
  // Its figures come when the server has drawn them, and a wheel moves them.
  window.setInterval(() => {
    const place = document.querySelector(".present-place"), now = position();
    if (place && now && place.textContent !== now) place.textContent = now;
    const down = document.querySelector(".present-more");
    if (down && down.hidden === more()) {
      down.hidden = !down.hidden;
      above(document.getElementById("present-keys"));
    }
  }, 400);
  window.addEventListener("resize", () => {
    const keys = document.getElementById("present-keys");
    if (keys) above(keys);
  });
  if (new URL(window.location.href).searchParams.get("present") === "1") {
    root.dataset.present = "1";
    document.addEventListener("DOMContentLoaded", () => strip(true, slide()));
  }
})();
