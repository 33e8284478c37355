// What the browser does by itself: the query string, the theme, keys and copying. No figure is computed here.
(function () {
  "use strict";
  const SHARED = ["reader", "roster", "domain", "theme", "source", "present"];
  const LISTS = ["families", "readers", "figures"];

  function query() {
    return Object.fromEntries(new URL(window.location.href).searchParams);
  }

  // The choices that go along to another page.
  function shared() {
    const given = new URL(window.location.href).searchParams, kept = new URLSearchParams();
    for (const name of SHARED) if (given.has(name)) kept.set(name, given.get(name));
    if (given.get("back")) kept.set("roster", given.get("back"));  // a figure of Compare alone is of another roster
    return kept.toString();
  }

  window.atlasShared = shared;

  function escapeName(name) {
    return String(name).replace(/\\/g, "\\\\").replace(/,/g, "\\,");
  }

  // Write choices into the query string without a page load, and tell the store and the navigation.
  function remember(choices) {
    const url = new URL(window.location.href);
    for (const [name, value] of Object.entries(choices)) {
      if (value === undefined) continue;
      const text = Array.isArray(value) ? value.map(LISTS.includes(name) ? escapeName : String).join(",") : value;
      if (text === null || text === "") url.searchParams.delete(name);
      else url.searchParams.set(name, text);
    }
    window.history.replaceState(window.history.state, "", url);
    const still = replaced.filter((one) => holds(one, choices));
    if (still.length < replaced.length) tell(still);
    window.dash_clientside.set_props("view", { data: query() });
    window.dash_clientside.set_props("trouble", { children: "" });
    for (const [id, path] of Object.entries(window.atlasPages || {})) {
      window.dash_clientside.set_props(id, { href: path + "?" + shared() });
    }
    return window.dash_clientside.no_update;
  }

  function dress(theme) {
    document.documentElement.dataset.theme = theme;
    document.documentElement.dataset.mantineColorScheme = theme;
    try { window.localStorage.setItem("atlas-theme", theme); } catch (_) { /* private window */ }
  }

  function say(text) {
    const place = document.getElementById("said");
    if (!place) return;
    place.textContent = text;
    place.classList.add("shown");
    window.clearTimeout(say.timer);
    say.timer = window.setTimeout(() => place.classList.remove("shown"), 2200);
  }

  function copy(text) {
    const done = () => say("Link copied");
    if (navigator.clipboard && window.isSecureContext) {
      navigator.clipboard.writeText(text).then(done, () => say("The browser did not allow copying"));
      return;
    }
    const field = document.createElement("textarea");
    field.value = text;
    document.body.appendChild(field);
    field.select();
    document.execCommand("copy");
    field.remove();
    done();
  }

  function triggered() {
    const entry = window.dash_clientside.callback_context.triggered[0];
    return entry && entry.value ? window.dash_clientside.callback_context.triggered_id : null;
  }

  const none = () => window.dash_clientside.no_update;

  function choice(id, part = "value") {
    const found = window.dash_component_api.getLayout(id);
    return found && found.props[part];
  }

  // A camera as the link has it: eye, centre, up.
  const numbers = (camera) =>
    ["eye", "center", "up"].flatMap((part) => ["x", "y", "z"].map((axis) => +camera[part][axis].toFixed(3)));

  // Whether the map turns by itself; where it stops, its camera goes into the link.
  let turning = false;

  function halt(event) {
    if (!turning || (event && event.target.closest && event.target.closest("#turn"))) return;
    turning = false;
    const button = document.getElementById("turn"), plot = document.querySelector("#map .js-plotly-plot");
    if (button) button.setAttribute("aria-pressed", "false");
    const scene = plot && plot._fullLayout && plot._fullLayout.scene;
    if (scene) window.dash_clientside.set_props("camera", { data: numbers(scene.camera) });
  }

  // A clicked point gets its name, over which a flat map would go on drawing what it shows of the point below the pointer.
  function rest() {
    const plot = document.querySelector("#map .js-plotly-plot");
    if (!plot || !plot._fullLayout || plot._fullLayout.scene) return;
    plot._fullLayout._hoversubplot = null;  // else the next drawing shows it once more
    window.Plotly.Fx.unhover(plot);
  }

  // What a link asked for and another choice of the header stands in for; told until that choice changes.
  let replaced = [];

  // Whether none of the choices that it was told of is another one now.
  const holds = ({ shown }, now) =>
    Object.entries(shown).every(([name, value]) => now[name] === undefined || (now[name] || "") === (value || ""));

  function tell(changes) {
    replaced = changes;
    const children = replaced.map(({ text }) => (typeof text === "function" ? text() : text)).join(" ");
    window.dash_clientside.set_props("link-note", { children });
  }

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    atlas: {
      // Header choices as the link has them, where the data offers them.
      arrive: function (search, pathname, readers, rosters, domains, reader, roster, domain) {
        const given = query();
        const offered = (options, value) =>
          options.some((o) => o.value === value || (o.items || []).some((i) => i.value === value));
        const pick = (options, value, now) => (value && offered(options, value) ? value : now);
        const label = (options, value) =>
          (options.flatMap((o) => [o, ...(o.items || [])]).find((o) => o.value === value) || {}).label;
        const choices = [["reader", readers, reader], ["roster", rosters, roster], ["domain", domains, domain]];
        const begun = (options, value) => options.flatMap((o) => o.items || [o]).filter((o) => o.value.startsWith(value)).length;
        // A page may offer some of them: those that can be chosen are counted.
        const vain = (name, options, value) => {
          const many = begun(choice(name, "data"), value);
          return many ? `names no ${name} fully; ${many} in the list above begin so. `
            : begun(options, value) ? `names no ${name} fully, and none that begins so can be chosen here. ` : "is not in this atlas: ";
        };
        tell(choices.filter(([name, options, now]) => given[name] && now && !offered(options, given[name])).map(
          // On a page without that control nothing is shown in its place; on Attribute an ecosystem brings the reader.
          ([name, options, shown]) => ({
            shown: { [name]: shown }, text: () => !document.getElementById(name).checkVisibility() ? (
              name === "reader" && pathname === "/attribute" ? `The link's reader, ${given.reader.slice(0, 80)}, is not used here: the ecosystem below brings its own.` : ""
            ) : `The link's ${name}, ${given[name].slice(0, 80)}, ${vain(name, options, given[name])}${label(options, shown)} is shown.`,
          })));
        window.setTimeout(() => remember({}), 0);
        document.documentElement.dataset.page = pathname;
        for (const [id, path] of Object.entries(window.atlasPages)) {
          window.dash_clientside.set_props(id, { className: path === pathname ? "rail-link here" : "rail-link" });
        }
        // What stays as it is, is not set: setting it would ask for every figure of the page that is being left.
        const changed = (value, now) => (value === now ? none() : value);
        return [
          changed(pick(readers, given.reader, reader), reader),
          changed(pick(rosters, given.roster, roster), roster),
          changed(pick(domains, given.domain, domain), domain),
        ];
      },
      retell: () => tell(replaced),
      header: function (reader, roster, domain, theme) {
        const now = { reader, roster, domain };
        tell(replaced.filter((one) => holds(one, now)));
        return remember({ reader, roster, domain, theme, back: query().roster === roster ? undefined : "" });
      },
      // A page that shows another reader, roster or map than was asked for: the header and its controls follow.
      settled: function (data) {
        const { text, ...choices } = data || {};
        if (!text) return none();
        const shown = Object.fromEntries(["reader", "roster", "domain"].map((name) => [name, choices[name] || choice(name)]));
        tell([...replaced.filter((one) => one.text !== text), { shown, text }]);
        for (const [id, value] of Object.entries(choices)) window.dash_clientside.set_props(id, { value });
        return none();
      },
      // What else there is to say of a link.
      linkWords: function (words) {
        const { text, shown: sources } = words || {};
        const shown = Object.fromEntries(["reader", "roster", "domain"].map((name) => [name, choice(name)]));
        if (text) tell([...replaced.filter((one) => one.text !== text), { shown: { ...shown, ...sources }, text }]);
        return none();
      },
      // Choices of a page by name; what equals its default is left out of the link.
      choices: function (names, defaults, ...values) {
        return remember(Object.fromEntries(names.map((name, i) => [name, values[i] === defaults[i] ? "" : values[i]])));
      },
      theme: function (clicks, now) {
        const current = document.documentElement.dataset.theme || "dark";
        const theme = clicks && now ? (current === "dark" ? "light" : "dark") : current;
        dress(theme);
        return [theme, theme];
      },
      map: function (projection, dim, access, size, links, space, regions, families, source, other, camera) {
        const stage = document.getElementById("map-stage");
        if (stage && stage.dataset.dim !== dim) {
          stage.dataset.dim = dim;
          window.dispatchEvent(new Event("resize"));
        }
        // Another selection is read from its beginning.
        const before = query();
        if ((source || "") !== (before.source || "") || (other || "") !== (before.other || "")) {
          document.querySelectorAll(".map-side .card").forEach((card) => { card.scrollTop = 0; });
        }
        const unless = (value, standard) => (value === standard ? "" : value);
        return remember({
          projection: unless(projection, "tsne"),
          dim: unless(dim, "3"),
          access: unless(access, "all"),
          size: unless(size, "all"),
          links: unless(links, "selected"),
          space: unless(space, "one"),
          regions: unless(regions, "off"),
          families,
          source,
          other,
          camera,
        });
      },
      // Turn the scene about its vertical axis until it is pressed again or anything else is.
      turn: function (clicks) {
        const plot = document.querySelector("#map .js-plotly-plot"), button = document.getElementById("turn");
        if (!clicks || !plot || !plot._fullLayout.scene) return none();
        if (turning) { halt(); return none(); }
        turning = true;
        button.setAttribute("aria-pressed", "true");
        const step = () => {
          const scene = plot.isConnected && plot._fullLayout && plot._fullLayout.scene;
          if (!turning || !scene) return halt();
          const camera = JSON.parse(JSON.stringify(scene.camera)), { x, y } = camera.eye, angle = 0.012;
          camera.eye.x = x * Math.cos(angle) - y * Math.sin(angle);
          camera.eye.y = x * Math.sin(angle) + y * Math.cos(angle);
          window.Plotly.relayout(plot, { "scene.camera": camera }).then(() => window.setTimeout(step, 30));
        };
        window.setTimeout(() => {
          for (const kind of ["pointerdown", "keydown"]) document.addEventListener(kind, halt, { once: true });
        }, 0);
        step();
        return none();
      },
      // What is seen after a turn of the scene, or after a drag or zoom of a flat map: its camera, or its edges.
      camera: function (relayout) {
        const camera = relayout && relayout["scene.camera"];
        if (camera) return turning ? none() : numbers(camera);
        const plot = document.querySelector("#map .js-plotly-plot");
        if (!relayout || !("xaxis.range[0]" in relayout) || !plot || !plot._fullLayout.xaxis) return none();
        return [plot._fullLayout.xaxis, plot._fullLayout.yaxis].flatMap((axis) => axis.range.map((edge) => +edge.toFixed(3)));
      },
      // The answer about two models is in sight, from its beginning, whatever they were chosen by.
      pairShown: function () {
        const card = document.querySelector(".kin-asked"), top = card ? card.getBoundingClientRect().top : 0;
        const answer = document.getElementById("kin-answer"), begin = answer ? answer.getBoundingClientRect().top : 0;
        if (card && (top < 0 || begin > window.innerHeight - 80)) card.scrollIntoView({ block: "start" });
        return none();
      },
      nearestShown: function (rows) {
        const place = document.getElementById("figure-nearest");
        if (place && rows && rows.length && place.getBoundingClientRect().bottom > window.innerHeight)
          place.scrollIntoView({ block: "nearest" });
        return none();
      },
      // A figure of as many dimensions keeps its layout, and with it the reader's camera.
      redraw: function (redrawn, now, drawn) {
        const { figure, drawn: dimensions } = redrawn, { template, shapes, xaxis, yaxis } = figure.layout;
        if (dimensions !== drawn) return [figure, dimensions];
        const layout = { ...now.layout, ...(xaxis && { xaxis, yaxis }), template, shapes: shapes || [] };
        return [{ ...now, data: figure.data, layout }, dimensions];
      },
      resetCamera: function (clicks) {
        const scene = document.querySelector("#map .js-plotly-plot");
        if (!clicks || !scene) return none();
        const home = window.atlasCamera;
        if (scene._fullLayout.scene) window.Plotly.relayout(scene, { "scene.camera": JSON.parse(JSON.stringify(home)) });
        else window.atlasWhole(scene);
        return [];
      },
      pick: function (click, walked) {
        const id = window.dash_clientside.callback_context.triggered_id;
        if (id === "map") {
          const point = click && click.points && click.points[0];
          window.setTimeout(rest, 0);
          return point && point.customdata ? point.customdata[0] : none();
        }
        const chosen = triggered();
        return chosen ? chosen.source : none();
      },
      isolate: function (clicks, all, families) {
        const chosen = triggered();
        if (!chosen) return none();
        if (chosen["all-families"]) return [];
        const now = families || [];
        return now.includes(chosen.family) ? now.filter((f) => f !== chosen.family) : [...now, chosen.family];
      },
      attribution: function (k, metric, reduction, others, zoom, truth, answer) {
        return remember({
          k: k === "20" ? "" : k,
          metric: metric === "accuracy" ? "" : metric,
          reduction: reduction === "pooled" ? "" : reduction,
          others: others === "on" ? "" : others,
          zoom,
          truth,
          answer,
        });
      },
      // The figures whose tables are to be filled: the one whose button was pressed, or all open ones for another view.
      tables: function (clicks, view, identities) {
        const pressed = window.dash_clientside.callback_context.triggered_id;
        const open = identities.filter((id, i) => (clicks[i] || 0) % 2 === 1).map((id) => id.figure);
        const figures = pressed && pressed.figure ? open.filter((figure) => figure === pressed.figure) : open;
        return figures.length ? { figures, view } : none();
      },
      tableShown: function (clicks) {
        const shown = (clicks || 0) % 2 === 1;
        return [shown ? "figure-body as-table" : "figure-body", shown ? "true" : "false"];
      },
      copyLink: function (clicks) {
        if (clicks) {
          const id = window.dash_clientside.callback_context.triggered_id;
          const url = new URL(window.location.href);
          if (id && id.figure) url.hash = "figure-" + id.figure;
          copy(url.href);
        }
        return none();
      },
      picture: function (png, svg) {
        const pressed = triggered();
        if (pressed) window.atlasPicture(pressed);
        return none();
      },
      fold: function (clicks) {
        const root = document.documentElement;
        const narrow = window.innerWidth < 1100;
        const folded = root.dataset.rail ? root.dataset.rail === "folded" : narrow;
        if (clicks) {
          root.dataset.rail = folded ? "open" : "folded";
          try { window.localStorage.setItem("atlas-rail", root.dataset.rail); } catch (_) { /* private window */ }
          window.setTimeout(() => window.dispatchEvent(new Event("resize")), 220);
        }
        const now = clicks ? !folded : folded;
        return now ? "false" : "true";
      },
    },
  });

  // The theme is a fact of the window: an older address, or a link without one, follows it before Dash reads it.
  function keepTheme() {
    const url = new URL(window.location.href), theme = document.documentElement.dataset.theme;
    if (!theme || url.searchParams.get("theme") === theme) return;
    url.searchParams.set("theme", theme);
    window.history.replaceState(window.history.state, "", url);
  }

  window.addEventListener("_dashprivate_pushstate", keepTheme);
  window.addEventListener("popstate", keepTheme);

  const wordsOf = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) || [];
  const numbersOf = (text) => text.match(/\d+(?:\.\d+)?/g) || [];
  const usual = (word) => window.atlasWords[word] || word;  // "openai" stands for "gpt"
  const joined = (text) => wordsOf(text).map(usual).join("");
  const LONGEST = 1000;  // letters, more than a name has
  // Letters that follow each other or stand one apart, so that two swapped letters spoil few pairs.
  const pairs = (text) => new Set([...text].flatMap((letter, i, all) => [1, 2].map((back) => (all[i - back] || "") + letter)));

  // Options of a list that hold every word that was typed, in any order, in their name or in that of their group. Where
  // there are none: those that hold it without punctuation or as another name of it, else, under a heading that says so, those
  // that are spelled alike. A number is that of another version or size unless an option has it or begins with it.
  window.dashMantineFunctions = Object.assign({}, window.dashMantineFunctions, {
    byWords: function (found) {
      const typed = found.search.toLowerCase().split(/\s+/).filter(Boolean), words = wordsOf(found.search);
      const numbers = numbersOf(found.search), spelled = (text) => text.replace(/\d/g, "");
      const letters = [...pairs(spelled([...new Set(words.map(usual))].join("")))];
      const pick = (fits) => found.options
        .map((entry) => (entry.items ? { ...entry, items: entry.items.filter((item) => fits(item, entry.group)) } : entry))
        .filter((entry) => (entry.items ? entry.items.length : fits(entry, "")));
      const plain = (option, group) => wordsOf([option.label, option.value, group].join(" ")).join("");
      const counted = (option, group) => numbers.filter((number) => (number.length > 1 && plain(option, group).includes(number))
        || numbersOf(option.label + " " + option.value).some((one) => one.startsWith(number))).length;
      // By its own name alone: a heading's words spell anything.
      const likeness = (option) => {
        const theirs = pairs(spelled(wordsOf(option.label).join(""))), alike = letters.filter((pair) => theirs.has(pair)).length;
        return (alike + 2 * counted(option, "")) / (letters.length + 2 * numbers.length);
      };
      const best = (entry) => Math.max(...(entry.items || [entry]).map(likeness));
      const exact = pick((option, group) => {
        const text = (option.label + " " + group).toLowerCase();
        return typed.every((word) => text.includes(word));
      });
      if (exact.length || !words.length) return exact;
      const named = pick((option, group) => {
        const text = plain(option, group);
        return words.every((word) => text.includes(word) || text.includes(usual(word))) && counted(option, group) === numbers.length;
      });
      if (named.length) return named;
      const least = Math.max(0.6, ...found.options.map((entry) => best(entry) - 0.1));
      const near = pick((option) => likeness(option) >= least).flatMap((entry) => entry.items || [entry])
        .sort((a, b) => likeness(b) - likeness(a) || a.label.length - b.label.length);
      return near.length ? [{ group: "No such name; near:", items: near, ranked: true }] : [];
    },
    // The same for sources: those whose name begins with what was typed come first, and the shortest name before longer ones,
    // of which a date or an organisation is no part: "claude sonnet 4" is 4 of some day before it is 4.6. A group named first stays so.
    closest: function (found, { first } = {}) {
      const typed = joined(found.search), fitting = window.dashMantineFunctions.byWords(found);
      if (!typed || fitting.some((entry) => entry.ranked)) return fitting;
      const begins = ({ label }) => [label, label.replace(/^.*\/(?=.)/, "")].some((name) => joined(name).startsWith(typed));
      const bare = ({ label }) => label.replace(/^.*\/(?=.)/, "").replace(/-(20\d\d-?\d\d-?\d\d|\d{4})$/, "").length;
      const length = (item) => (begins(item) ? 0 : LONGEST) + bare(item) + item.label.length / LONGEST;
      const weight = (entry) => (entry.group && entry.group === first ? -1 : Math.min(...(entry.items || [entry]).map(length)));
      const sorted = (entries) => [...entries].sort((a, b) => weight(a) - weight(b));
      return sorted(fitting.map((entry) => (entry.items ? { ...entry, items: sorted(entry.items) } : entry)));
    },
  });

  // "/" goes to the search, Escape leaves it.
  document.addEventListener("keydown", function (event) {
    // A segmented control is made of radio buttons, into which nobody types.
    const typing = (document.activeElement || document.body).matches("textarea, select, input:not([type=radio], [type=checkbox])");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      const field = document.getElementById("search");
      if (field) { event.preventDefault(); field.focus(); field.select(); }
    }
  });

  // Links that change some choices of the address, or lead to another page, and keep the others; Back undoes them.
  document.addEventListener("click", function (event) {
    const link = event.target instanceof Element && event.target.closest("a[data-choices]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    const page = link.dataset.page, url = new URL(page ? page + "?" + shared() : window.location.href, window.location.href);
    url.hash = "";
    for (const [name, value] of Object.entries(JSON.parse(link.dataset.choices))) {
      if (value) url.searchParams.set(name, value);
      else url.searchParams.delete(name);
      // A change of the header asks for the links once more, maybe after the new page: they are those of the new page.
      if (!page && name !== "roster") window.dash_clientside.set_props("compare-" + name, { data: value });
    }
    window.history.pushState({}, "", url);
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
    if (page) document.getElementById("content").scrollTo({ top: 0, behavior: "instant" });
  });

  // Compare shows one figure at a time: an anchor says which, before Dash reads the address.
  if (window.location.pathname === "/compare" && /^#(figure|chapter)-/.test(window.location.hash)) {
    const url = new URL(window.location.href);
    url.searchParams.set("figure", url.hash.slice(1).replace("figure-", ""));
    window.history.replaceState(window.history.state, "", url);
  }

  // No line ends between a number and its unit or sign, wherever a sentence came from; what people sent stays as it is.
  const verbatim = "pre, code, textarea, svg, .heat-text, .preview-grid, .preview-table, .name, [contenteditable]";
  const firm = function (node) {
    const texts = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
    for (let text = node.nodeType === Node.TEXT_NODE ? node : texts.nextNode(); text; text = texts.nextNode()) {
      const bound = text.data.replace(/(\d) (?=%)|\b([nkKpr]) (?=[=<>] ?[\d.])|([=<>]) (?=[\d.])/g, "$1$2$3\u00a0");
      if (bound !== text.data && text.parentElement && !text.parentElement.closest(verbatim)) text.data = bound;
    }
  };
  new MutationObserver(function (changes) {
    for (const change of changes) {
      if (change.type === "characterData") firm(change.target);
      else change.addedNodes.forEach(firm);
    }
  }).observe(document.documentElement, { childList: true, characterData: true, subtree: true });

  // A link that names a figure unfolds it and scrolls to it, once the page is there; a page drawn again unfolds it again.
  let reached = null;
  function reach() {
    if (!window.location.hash.startsWith("#figure-")) return;
    const place = document.getElementById(window.location.hash.slice(1)), first = reached === null;
    if (!place || place === reached) return;
    reached = place;
    if (place.closest("details")) place.closest("details").open = true;
    if (first) place.scrollIntoView({ block: "start" });
  }
  window.addEventListener("hashchange", function () { reached = null; reach(); });
  new MutationObserver(reach).observe(document.documentElement, { childList: true, subtree: true });
})();
