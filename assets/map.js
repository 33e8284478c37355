// The map in the browser: names where there is room for them, the lasso, choices in the address and in the history of
// the window, and which readers the header offers. No number is computed here.
(function () {
  "use strict";
  const STANDARD = {
    projection: "tsne", dim: "3", access: "all", size: "all", links: "selected", space: "one", regions: "off", colour: "family",
  };
  const FIELDS = { source: "search", other: "map-other" };
  const LISTS = ["families", "chosen"];
  const MINE = [...Object.keys(STANDARD), ...LISTS, "released", "unsized", "other", "camera"];
  const SETTLED = 150;  // milliseconds after which several changes are one step of the history
  const none = () => window.dash_clientside.no_update;
  const set = (id, props) => window.dash_clientside.set_props(id, props);
  const drawing = () => document.querySelector("#map .js-plotly-plot");

  function get(id, name) {
    const found = window.dash_component_api.getLayout(id);
    return found && found.props[name];
  }

  const escapeName = (name) => String(name).replace(/\\/g, "\\\\").replace(/,/g, "\\,");
  const split = (text) => ((text || "").match(/(?:\\.|[^,\\])+/g) || []).map((name) => name.replace(/\\(.)/g, "$1"));
  const MONTHS = /^(\d+)-(\d+)\.\.(\d+)-(\d+)(,undated)?$/;
  const UNDATED = ",undated";  // ends a range that keeps names without a date
  const monthText = (month) => `${Math.floor(month / 12)}-${String((month % 12) + 1).padStart(2, "0")}`;

  // ---- choices in the address, and steps back ----------------------------------------------------------------------

  let last = "", stage = null, settling = 0, sliding = 0;

  // What makes a step: neither the camera nor what belongs to the window.
  function step(href) {
    const given = new URL(href).searchParams;
    for (const name of ["camera", "theme", "present"]) given.delete(name);
    given.sort();
    return given.toString();
  }

  function settle() {
    window.clearTimeout(settling);
    settling = window.setTimeout(() => {
      const here = document.getElementById("map-stage"), now = window.location.href;
      if (!here || window.location.pathname !== "/") return;
      if (here === stage && step(now) !== step(last)) {
        window.history.replaceState(window.history.state, "", last);
        window.history.pushState(window.history.state, "", now);
      }
      stage = here;
      last = now;
      const given = new URL(now).searchParams;
      const saved = MINE.filter((name) => given.has(name)).map((name) => [name, given.get(name)]);
      try { window.sessionStorage.setItem("atlas-map", JSON.stringify(saved)); } catch (_) { /* private window */ }
    }, SETTLED);
  }

  const onTheMap = () => get("_pages_location", "pathname") === "/";

  // A link from another page opens the map as it was left.
  function recall() {
    if (window.location.pathname !== "/" || onTheMap()) return;
    const url = new URL(window.location.href);
    let saved = [];
    try { saved = JSON.parse(window.sessionStorage.getItem("atlas-map")) || []; } catch (_) { /* private window */ }
    for (const [name, value] of saved) if (!url.searchParams.has(name)) url.searchParams.set(name, value);
    window.history.replaceState(window.history.state, "", url);
  }

  function change(id, name, value) {
    const now = get(id, name);
    if (JSON.stringify(now === undefined ? null : now) !== JSON.stringify(value)) set(id, { [name]: value });
  }

  // A step back or forward on the map sets its controls; Dash would open the whole page, or see no change.
  function walk(event) {
    if (window.location.pathname !== "/" || !onTheMap() || !document.getElementById("map-stage")) return;
    event.stopImmediatePropagation();
    window.clearTimeout(settling);
    last = window.location.href;
    const given = new URL(last).searchParams;
    for (const name of ["reader", "roster", "domain"]) if (given.has(name)) change(name, "value", given.get(name));
    for (const [name, standard] of Object.entries(STANDARD)) change(name, "value", given.get(name) || standard);
    for (const [name, id] of Object.entries(FIELDS)) change(id, "value", given.get(name) || null);
    for (const name of LISTS) change(name, "data", split(given.get(name)));
    for (const name of ["released", "unsized"]) change(name, "data", given.get(name) || "");
  }

  // The slider as the range says, also after a step back or an answer that did not come.
  function slide(released) {
    const ends = ["min", "max"].map((end) => get("months", end)), range = MONTHS.exec(released || "");
    if (ends[0]) change("months", "value", range ? [1, 3].map((at) => 12 * range[at] + 1 * range[at + 1] - 1) : ends);
  }

  // ---- readers that the map can show -------------------------------------------------------------------------------

  let readers = null, rosters = null;
  const count = (groups) => groups.reduce((sum, group) => sum + group.items.length, 0);

  function leave() {
    if (!readers || window.location.pathname === "/") return;
    set("reader", { data: readers });
    set("roster", { data: rosters });
  }

  // Once all scripts have registered, and before Dash listens to the address.
  document.addEventListener("DOMContentLoaded", function () {
    window.addEventListener("_dashprivate_pushstate", () => { recall(); leave(); });
    window.addEventListener("popstate", (event) => { walk(event); leave(); });
  });

  // ---- names -------------------------------------------------------------------------------------------------------

  const TALL = 15, GAP = 8, RING = 15, MARK = 6, MOST = 60;
  const CLOSE = [1, 1.4, 2, 2.8, 3.8];  // times RING: a chosen name further off would read as that of another point
  const ABOVE = 8;  // pixels between what stays on top of the card and what it says of two sources
  const FEW = 9;  // points, all of which are named
  const NARROW = 640, PAPER = [672, 540], shrunk = new WeakSet();
  const widths = new Map(), pen = document.createElement("canvas").getContext("2d");
  const anchors = new Map();  // by the name and place of a group, the number of the member at which it stands
  const sizes = new WeakMap();
  let watched = null, waiting = false, compared = null;

  function wide(text, bold) {
    const key = (bold ? "b" : "n") + text;
    if (!widths.has(key)) {
      pen.font = `${bold ? 600 : 400} 12px "IBM Plex Sans", sans-serif`;
      widths.set(key, pen.measureText(text).width + 2);
    }
    return widths.get(key);
  }

  const decode = (text) => text.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
  const short = (name) => name.replace(/^[\u2068]?[\w.-]+\/(?=.)/, "");

  // Pixels in the stage at which a place of the map is seen.
  function seer(plot, left, top) {
    const full = plot._fullLayout, { l, t, w, h } = full._size;
    const scene = full.scene && full.scene._scene;
    if (scene && scene.glplot) {
      const { model, view, projection } = scene.glplot.cameraParams, scale = scene.dataScale;
      const times = (m, v) => [0, 1, 2, 3].map((row) => m[row] * v[0] + m[4 + row] * v[1] + m[8 + row] * v[2] + m[12 + row] * v[3]);
      return (at) => {
        const seen = times(projection, times(view, times(model, [at[0] * scale[0], at[1] * scale[1], at[2] * scale[2], 1])));
        return [left + l + (0.5 + 0.5 * seen[0] / seen[3]) * w, top + t + (0.5 - 0.5 * seen[1] / seen[3]) * h];
      };
    }
    const { xaxis, yaxis } = full;
    if (!xaxis || !yaxis) return null;
    const along = (axis, value) => (value - axis.range[0]) / (axis.range[1] - axis.range[0]) * axis._length;
    return (at) => [left + xaxis._offset + along(xaxis, at[0]), top + yaxis._offset + yaxis._length - along(yaxis, at[1])];
  }

  // The ranges of a flat map that hold its points, or those of the reader (left, right, bottom, top).
  window.atlasWhole = function (plot, edges) {
    const reach = (axis) => Math.max(...plot.data.flatMap((trace) => trace[axis]).filter(Number.isFinite).map(Math.abs)) + 0.08;
    const [wide, high] = ["x", "y"].map(reach), [left, right, bottom, top] = edges || [-wide, wide, -high, high];
    window.Plotly.relayout(plot, { "xaxis.range": [left, right], "yaxis.range": [bottom, top] });
  };

  // Equal scales widen one range; a figure of another size would keep that.
  function fit(plot) {
    const { width, height, xaxis } = plot._fullLayout, size = `${width} ${height}`, own = get("camera", "data") || [];
    const resized = sizes.has(plot) && sizes.get(plot) !== size;
    sizes.set(plot, size);
    if (xaxis && resized) window.atlasWhole(plot, own.length === 4 && own);
  }

  // A flat map has no room between both panels, and names families itself; on a phone a selected source comes before filters.
  function makeRoom(plot) {
    const legend = document.getElementById("legend-panel"), deep = String(!!plot._fullLayout.scene), picked = String(!!get("search", "value"));
    if (window.innerWidth <= NARROW && (legend.dataset.picked || "false") !== picked) legend.open = picked === "false";
    legend.dataset.picked = picked;
    if (legend.dataset.deep !== deep && window.innerWidth >= 1100 && window.innerWidth < 1440) legend.open = deep === "true";
    legend.dataset.deep = deep;
  }

  // Whole rows of families, and how many more there are below them.
  function wholeRows() {
    const list = document.getElementById("legend"), more = document.getElementById("legend-more");
    if (!list || !more || !list.firstElementChild) return;
    list.style.maxHeight = more.textContent = "";
    list.onscroll = null;
    delete list.dataset.below;
    if (list.scrollHeight <= list.clientHeight + 1) return;
    const many = list.childElementCount, tall = list.firstElementChild.offsetHeight;
    more.textContent = "families";  // its line takes room, too
    const rows = Math.floor(list.clientHeight / tall);
    list.style.maxHeight = `${rows * tall}px`;
    list.onscroll = () => {
      const above = Math.round(list.scrollTop / tall), below = many - rows - above, hidden = below || above;
      list.dataset.below = below;
      more.textContent = `${hidden} more ${hidden === 1 ? "family" : "families"} ${below ? "below" : "above"}`;
    };
    list.onscroll();
  }

  const meets = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

  function sides(x, y, width, gap) {
    const box = (left, top) => [left, top, left + width, top + TALL];
    return [
      box(x + gap, y - TALL / 2), box(x - gap - width, y - TALL / 2),
      box(x - width / 2, y - gap - TALL + 2), box(x - width / 2, y + gap - 2),
    ];
  }

  // The same, and at the corners, further and further away.
  function further(x, y, width, gap, steps = [1, 1.6, 2.4, 4, 6, 9]) {
    return steps.flatMap((by) => {
      const away = by * gap, side = 0.7 * away;
      const corners = [[side, -side - TALL], [side, side], [-side - width, -side - TALL], [-side - width, side]];
      return [...sides(x, y, width, away), ...corners.map(([left, top]) => [x + left, y + top, x + left + width, y + top + TALL])];
    });
  }

  // Whether a line (two places) runs through a box.
  function runs([from, to], box) {
    let first = 0, last = 1;
    for (const axis of [0, 1]) {
      const way = to[axis] - from[axis], ends = [box[axis] - from[axis], box[axis + 2] - from[axis]];
      if (!way) { if (ends[0] > 0 || ends[1] < 0) return false; continue; }
      const [enter, leave] = ends.map((end) => end / way).sort((a, b) => a - b);
      first = Math.max(first, enter);
      last = Math.min(last, leave);
    }
    return first < last;
  }

  // Neighbours that are seen in one place share a label.
  function joinedNear(near, see) {
    const found = [];
    for (const point of near) {
      const [x, y] = see(point.at), same = found.find((one) => Math.hypot(one.seen[0] - x, one.seen[1] - y) < MARK);
      if (same) same.text += `, ${point.rank}`;
      else found.push({ ...point, seen: [x, y], text: String(point.rank), kind: "near", gap: RING });
    }
    return found;
  }

  // The mark of a labelled point over those that hide it, as the legend draws it.
  function markOf(point, [x, y]) {
    const row = [...document.querySelectorAll(".legend-row")].find((one) => one.querySelector(".legend-name").textContent === point.family);
    if (!row) return [];
    const place = document.createElement("span"), symbol = row.querySelector(".symbol").cloneNode();
    place.className = "mark-at";
    place.style.transform = `translate(${(x - MARK).toFixed(1)}px, ${(y - MARK).toFixed(1)}px)`;
    symbol.style.color = point.colour;
    place.append(symbol);
    return [place];
  }

  const toward = ([x, y], box) => [Math.max(box[0], Math.min(x, box[2])), Math.max(box[1], Math.min(y, box[3]))];

  // A thin line from a place to a label that stands away from it.
  function leader([x, y], box, gap, rim) {
    const end = toward([x, y], box);
    const way = [end[0] - x, end[1] - y], long = Math.hypot(...way);
    if (long < 1.3 * gap) return [];
    const line = document.createElement("span");
    line.className = "leader";
    if (rim) line.style.background = `var(--${rim})`;
    line.style.width = `${(long - gap + 4).toFixed(1)}px`;
    line.style.transform = `translate(${x}px, ${y}px) rotate(${Math.atan2(way[1], way[0])}rad) translateX(${gap - 4}px)`;
    return [line];
  }

  const around = (x, y, half) => [x - half, y - half, x + half, y + half];

  // A box moved out of the panels and into the drawing, the shortest way.
  function freed(box, panels, edge) {
    const moved = (by, at) => [by[0] + at[0], by[1] + at[1], by[2] + at[0], by[3] + at[1]];
    const inside = (b) => moved(b, [
      Math.max(edge[0] - b[0], 0) + Math.min(edge[2] - b[2], 0), Math.max(edge[1] - b[1], 0) + Math.min(edge[3] - b[3], 0),
    ]);
    let now = inside(box);
    for (let round = 0; round < 4; round++) {
      const panel = panels.find((one) => meets(now, one));
      if (!panel) break;
      const ways = [[panel[0] - now[2] - 4, 0], [panel[2] - now[0] + 4, 0], [0, panel[1] - now[3] - 4], [0, panel[3] - now[1] + 4]];
      const fits = ways.map((way) => moved(now, way)).filter((b) => b[0] >= edge[0] && b[1] >= edge[1] && b[2] <= edge[2] && b[3] <= edge[3]);
      if (!fits.length) break;
      now = fits.sort((a, b) => Math.hypot(a[0] - now[0], a[1] - now[1]) - Math.hypot(b[0] - now[0], b[1] - now[1]))[0];
    }
    return now;
  }

  // Every point that can be clicked: its name, place, and whether it stands in front.
  function pointsOf(plot) {
    const found = [];
    for (const trace of plot.data) {
      if (!trace.customdata) continue;
      for (let i = 0; i < trace.customdata.length; i++) {
        const [, name] = /^<b>(.*?)<\/b>/.exec(trace.text[i]) || [], near = /nearest no\. (\d+)/.exec(trace.text[i]);
        found.push({
          source: trace.customdata[i][0],
          name: short(decode(name || "")),
          at: [trace.x[i], trace.y[i], trace.z ? trace.z[i] : 0],
          rank: near ? +near[1] : 0,
          family: decode(trace.customdata[i][1]),
          colour: [].concat(trace.marker.color)[Array.isArray(trace.marker.color) ? i : 0],
          front: trace.name !== "context" && !(trace.opacity < 1),
        });
      }
    }
    return found;
  }

  // Labels in the order of their weight; the first ones always find a place.
  function wanted(plot, points, see) {
    const chosen = new Set(get("chosen", "data") || []), first = [get("search", "value"), get("map-other", "value")];
    const trace = plot.data.find((one) => one.name === "labels"), flat = !plot._fullLayout.scene;
    const ends = first.map((source) => points.find((point) => point.source === source && point.front)).filter(Boolean);
    const rest = points.filter((point) => point.front && !ends.includes(point));
    const some = (fits) => rest.filter(fits);
    const near = some((point) => point.rank).sort((a, b) => a.rank - b.rank);
    const must = points.filter((point) => point.front).length <= FEW;
    const others = some((point) => !point.rank && (flat || must || chosen.has(point.source)));
    others.sort((a, b) => chosen.has(b.source) - chosen.has(a.source));
    const named = others.map((point) => ({ ...point, text: point.name, kind: "other", gap: GAP, must }));
    return [
      ...ends.map((point) => ({ ...point, text: point.name, kind: "end", gap: RING, rim: point.source === first[0] ? "accent" : "ink" })),
      ...joinedNear(near, see),
      ...(must ? named : []),
      // Named points need no family's name; a cluster's says more.
      ...((trace && trace.meta) || []).filter((one) => !must || one.at === undefined).map((one, i) => ({ places: one.places, text: one.text, key: `${one.text} ${i}`, kind: "group", gap: GAP + 2 })),
      ...(must ? [] : named),
    ];
  }

  function write() {
    waiting = false;
    const plot = drawing(), place = document.getElementById("names"), area = document.getElementById("map-stage");
    if (!plot || !place || !area || !plot._fullLayout || !plot.data) return;
    const frame = area.getBoundingClientRect(), canvas = plot.getBoundingClientRect();
    // A presentation enlarges the stage: boxes are measured after that, names and the figure's places stand before it.
    const larger = frame.width / area.offsetWidth || 1;
    const rect = (box) => [box.left - frame.left, box.top - frame.top, box.right - frame.left, box.bottom - frame.top].map((at) => at / larger);
    const edge = rect(canvas), see = seer(plot, edge[0], edge[1]);
    if (!see) { place.replaceChildren(); return; }
    const panels = [...document.querySelectorAll(".map-title, .legend, .map-side > .panel, .projector")]
      .filter((panel) => panel.offsetParent).map((panel) => rect(panel.getBoundingClientRect()));
    const points = pointsOf(plot), taken = [];
    const mark = plot._fullLayout.scene ? MARK + 2 : MARK, labels = wanted(plot, points, see);
    const ringed = new Map(labels.filter((label) => label.source).map((label) => [label.source, label.gap - 2]));
    const marks = points.map((point) => around(...see(point.at), Math.max(mark, point.front && ringed.get(point.source) || 0)));
    const out = (box) => box[0] < edge[0] || box[1] < edge[1] || box[2] > edge[2] || box[3] > edge[3];
    const blocked = (box) => out(box) || taken.some((one) => meets(box, one)) || panels.some((one) => meets(box, one));
    const covers = (box) => marks.filter((one) => meets(box, one)).length;
    const lines = [];
    for (const { x, y, z } of plot.data.filter((one) => ["own links", "pair link"].includes(one.name))) {
      for (let i = 0; i + 1 < x.length; i += 3) lines.push([i, i + 1].map((at) => see([x[at], y[at], z ? z[at] : 0])));
    }
    const crosses = (box) => lines.filter((line) => runs(line, box)).length;
    // What stands under a label, or between it and its mark.
    const between = (at, box) => taken.filter((one) => runs([at, toward(at, box)], one)).length;
    const cost = (at, box) => covers(box) + 3 * crosses(box) + 3 * between(at, box);
    const away = (at, box) => Math.hypot(...toward(at, box).map((end, axis) => end - at[axis])) / RING;
    const drawn = [];
    for (const label of labels) {
      if (drawn.length >= MOST) break;
      const text = label.text.length > 32 ? label.text.slice(0, 31) + "…" : label.text;
      const width = wide(text, label.kind !== "other");
      let box = null;
      if (label.kind === "group") {
        // The member that had the name keeps it while there is room, so that names do not jump in a turn.
        const before = anchors.get(label.key), order = label.places.map((_, i) => i);
        if (before < order.length) order.unshift(before);
        for (const at of order) {
          const [x, y] = see(label.places[at]);
          if (out([x, y, x, y])) continue;
          box = sides(x, y, width, label.gap).find((one) => !blocked(one) && !covers(one));
          if (box) { anchors.set(label.key, at); break; }
        }
      } else {
        const [x, y] = see(label.at), end = label.kind === "end";
        const boxes = label.kind === "other" && !label.must ? sides(x, y, width, label.gap) : further(x, y, width, label.gap, end ? CLOSE : undefined);
        if (!end && out([x, y, x, y])) continue;
        let free = boxes.filter((one) => !blocked(one));
        if (label.kind === "other" && !label.must) free = free.filter((one) => !covers(one));
        const full = (one) => cost([x, y], one) + (end ? away([x, y], one) : 0);
        box = free.sort((a, b) => full(a) - full(b))[0];
        if (!box && (end || label.must)) box = freed(boxes[0], panels, edge);
      }
      if (!box) continue;
      taken.push(box);
      if (label.kind !== "group" && covers(around(...see(label.at), 1)) > 1) drawn.push(...markOf(label, see(label.at)));
      if (label.must) lines.push([see(label.at), toward(see(label.at), box)]);
      if (label.kind === "near" || label.kind === "end" || label.must) drawn.push(...leader(see(label.at), box, label.gap, label.rim));
      const word = document.createElement("span");
      word.className = `name-at ${label.kind}`;
      word.textContent = text;
      word.style.transform = `translate(${box[0].toFixed(1)}px, ${box[1].toFixed(1)}px)`;
      drawn.push(word);
    }
    place.replaceChildren(...drawn);
  }

  // Smaller marks on a phone, once for each figure.
  function shrink(plot) {
    if (window.innerWidth > NARROW) return;
    const smaller = (size) => (Array.isArray(size) ? size.map(smaller) : 0.7 * size);
    const which = plot.data.map((trace, i) => i).filter((i) => (plot.data[i].marker || {}).size && !shrunk.has(plot.data[i].marker));
    which.forEach((i) => shrunk.add(plot.data[i].marker));
    if (which.length) window.Plotly.restyle(plot, { "marker.size": which.map((i) => smaller(plot.data[i].marker.size)) }, which);
  }

  function schedule() {
    if (waiting) return;
    waiting = true;
    window.requestAnimationFrame(write);
  }

  // Paper gets the map as it is seen: WebGL does not reach the printer, and names stand where they are on the screen.
  function picture() {
    const plot = drawing(), area = document.getElementById("map-stage");
    if (!plot || !area || !area.querySelector("#names").checkVisibility()) return;
    write();
    const frame = area.getBoundingClientRect(), canvas = plot.getBoundingClientRect(), larger = frame.width / area.offsetWidth || 1;
    const [left, top] = [canvas.left - frame.left, canvas.top - frame.top].map((at) => at / larger), see = seer(plot, left, top);
    const points = see ? pointsOf(plot).map((point) => around(...see(point.at), RING)) : [];
    if (!points.length) return;
    const names = [...area.querySelectorAll(".name-at")].map((name) => name.getBoundingClientRect())
      .map((box) => [box.left - frame.left, box.top - frame.top, box.right - frame.left, box.bottom - frame.top].map((at) => at / larger));
    const ends = [...points, ...names], [x, y] = [0, 1].map((axis) => Math.max(0, Math.min(...ends.map((box) => box[axis])) - GAP));
    const whole = [area.offsetWidth, area.offsetHeight];
    const [right, low] = [2, 3].map((axis) => Math.min(whole[axis - 2], Math.max(...ends.map((box) => box[axis])) + GAP));
    const paper = document.createElement("div"), moved = document.createElement("div"), copy = plot.cloneNode(true);
    const scene = plot._fullLayout.scene && plot._fullLayout.scene._scene;
    for (const blank of copy.querySelectorAll("canvas")) {
      const image = document.createElement("img");
      image.style.cssText = blank.style.cssText;
      if (scene) image.src = scene.toImage("png");
      blank.replaceWith(image);
    }
    copy.style.cssText = `position: absolute; left: ${left}px; top: ${top}px; width: ${plot.offsetWidth}px; height: ${plot.offsetHeight}px`;
    paper.className = "map-printed";
    paper.style.cssText = `width: ${right - x}px; height: ${low - y}px; zoom: ${Math.min(1.2, PAPER[0] / (right - x), PAPER[1] / (low - y))}`;
    moved.style.cssText = `position: absolute; left: ${-x}px; top: ${-y}px; width: ${area.offsetWidth}px; height: ${area.offsetHeight}px`;
    moved.append(copy, area.querySelector("#names").cloneNode(true));
    for (const named of moved.querySelectorAll("[id]")) if (!named.closest("svg")) named.removeAttribute("id");
    paper.append(moved);
    const told = document.createElement("p"), kept = document.getElementById("trust").innerText.replace(/\s+/g, " ");
    const which = ["projection", "dim"].map((id) => document.querySelector(`#${id} input:checked + label`)).filter(Boolean);
    told.className = "map-printed-note sentence";
    told.textContent = [which.map((one) => one.textContent).join(", "), kept].filter(Boolean).map((one) => `${one}.`).join(" ");
    document.querySelector(".map-title").after(told, paper);
  }

  window.addEventListener("beforeprint", picture);
  window.addEventListener("afterprint", () => document.querySelectorAll(".map-printed, .map-printed-note").forEach((drawn) => drawn.remove()));

  document.addEventListener("toggle", (event) => { if (event.target.closest(".map-page")) { wholeRows(); schedule(); } }, true);
  window.addEventListener("resize", wholeRows);

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    map: {
      remember: function (reader, roster, domain, projection, dim, access, size, links, space, regions, colour, families, released, chosen, unsized) {
        settle();
        slide(released);
        const names = (chosen || []).map(escapeName).join(",");
        return window.dash_clientside.atlas.choices(["colour", "released", "chosen", "unsized"], ["family", "", "", ""], colour, released || "", names, unsized || "");
      },
      offer: function (mapped, reader, roster, domain) {
        readers = readers || get("reader", "data");
        rosters = rosters || get("roster", "data");
        if (!mapped || !readers) return none();
        const drawn = ({ value }) => [value, ...get("domain", "data").map((one) => one.value)].some((of) => mapped[`${value} ${of}`]);
        set("roster", { data: rosters.map((one) => (drawn(one) ? one : { ...one, label: `${one.label} · no map`, disabled: true })) });
        if (!mapped[`${roster} ${domain}`]) return none();  // another roster will stand here
        const here = new Set([...mapped[`${roster} ${domain}`], reader]);
        const groups = readers.map((group) => ({ ...group, items: group.items.filter((one) => here.has(one.value)) }))
          .filter((group) => group.items.length);
        const others = count(readers) - count(groups);
        if (others && roster !== domain) {
          const label = `python -m jobs map --roster ${roster} --benchmark ${domain}`;
          groups.push({ group: `${others} readers without this map`, items: [{ value: "-", label, disabled: true }] });
        }
        set("reader", { data: groups });
        window.dash_clientside.atlas.retell();
        return none();
      },
      names: function () {
        const start = (tries) => {
          const plot = drawing();
          if (!plot || !plot.on || !plot._fullLayout) {
            if (tries) window.setTimeout(start, 100, tries - 1);
            return;
          }
          anchors.clear();
          makeRoom(plot);
          wholeRows();
          shrink(plot);
          fit(plot);
          if (plot !== watched) {
            watched = plot;
            plot.on("plotly_afterplot", () => fit(plot));
            for (const name of ["plotly_afterplot", "plotly_relayouting", "plotly_relayout"]) plot.on(name, schedule);
          }
          schedule();
        };
        start(100);
        return none();
      },
      // The texts below the slider follow a drag; the map waits until it rests.
      released: function (value, min, max) {
        window.clearTimeout(sliding);
        if (!value) return none();
        ["first-month", "last-month"].forEach((id, at) => set(id, { children: monthText(value[at]) }));
        sliding = window.setTimeout(() => {
          const undated = (get("released", "data") || "").endsWith(UNDATED) ? UNDATED : "";
          change("released", "data", value[0] > min || value[1] < max ? value.map(monthText).join("..") + undated : "");
        }, SETTLED);
        return none();
      },
      undated: function (clicks, now) {
        if (!clicks.some(Boolean) || !now) return none();
        return now.endsWith(UNDATED) ? now.slice(0, -UNDATED.length) : now + UNDATED;
      },
      unsized: (clicks, now) => (clicks.some(Boolean) ? (now ? "" : "on") : none()),
      lassoMode: function (clicks, selected) {
        const plot = drawing(), pressed = window.dash_clientside.callback_context.triggered_id === "lasso";
        const inside = selected && selected.points && selected.points.length;
        if (!plot || !plot._fullLayout.xaxis || !(pressed || inside)) return none();
        const on = pressed && plot._fullLayout.dragmode !== "lasso";
        const told = on ? { dragmode: "lasso" } : { dragmode: "pan", selections: [] };
        window.setTimeout(() => window.Plotly.relayout(plot, told), 0);
        return String(on);
      },
      choose: function (selected, clicks, cleared, chosen) {
        const context = window.dash_clientside.callback_context, by = context.triggered_id, now = chosen || [];
        if (by === "map") {
          const inside = ((selected && selected.points) || []).filter((point) => point.customdata);
          return inside.length ? [...new Set(inside.map((point) => point.customdata[0]))] : none();
        }
        if (!context.triggered[0] || !context.triggered[0].value) return none();
        if (by === "unchoose") return [];
        return now.includes(by.source) ? now.filter((source) => source !== by.source) : [...now, by.source];
      },
      // Another second source: the card is read from what it says of the two.
      pairShown: function (content, source, other) {
        const changed = compared !== null && other && other !== source && other !== compared;
        compared = other || "";
        if (changed) window.setTimeout(() => {
          const pair = document.getElementById("card-pair"), card = pair && pair.closest(".card");
          if (!card) return;
          const head = card.querySelector(".pair-head"), above = ABOVE + (head ? head.offsetHeight : 0);
          card.scrollTop += pair.getBoundingClientRect().top - card.getBoundingClientRect().top - above;
          if (card.scrollHeight <= card.clientHeight) pair.scrollIntoView({ block: "nearest" });
          // The pressed button was replaced with the rows of the card.
          if (document.activeElement === document.body) pair.focus({ preventScroll: true });
        }, 0);
        return none();
      },
      // A source is not compared with itself.
      apart: (source, other) => (other && other === source ? null : none()),
      beside: function () {
        const context = window.dash_clientside.callback_context;
        return context.triggered[0] && context.triggered[0].value ? context.triggered_id.source || null : none();
      },
    },
  });
})();
