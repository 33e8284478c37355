// Narrow screens: the menu of the header, and one rule for all figures: names stand above their rows, labels of line ends and the legend below
// the drawing, panels below or, of tall ones, above each other. The server draws every figure once, for a wide screen.
(function () {
  "use strict";
  const NARROW = 560, LINE = 18, LETTER = 6.4, BOLD = 7.2, EDGE = 16;
  const TITLED = 48, ENTRY = 19;  // pixels below a drawing whose axis has a title; of an entry of a legend
  const SMALL = 10;  // pixels of a family's name on a slide, which is enlarged
  const TALL = 560;  // pixels of a drawing whose legend stands above it, as its foot is out of sight
  const MANY = 64;  // rows and columns of a matrix whose cells nobody tells apart on a narrow screen: it stays square
  const LOW = 340;  // pixels of a slide's figure in which labels of line ends would run into each other
  const COLUMN = 38;  // pixels of a column of numbers at the ends of rows
  const SHORT = 8;  // letters of a label that finds room inside the drawing
  const MANY_NAMES = 6;  // of marks; fewer than so many always stand
  const PANEL = 176, APART = 76;  // pixels of a panel below another one, and of the space for its head and its axis

  const presented = () => document.documentElement.dataset.present === "1";
  const scale = () => presented() ? 0.5 : 0.56;  // of colours, as a share of the drawing's width
  const bare = (text) => String(text || "").replace(/<(?!br)[^>]*>/g, "");
  const longest = (texts) => Math.max(0, ...texts.map((text) => Math.max(...bare(text).split("<br>").map((line) => line.length))));
  const axes = (layout, letter) => Object.keys(layout).filter((name) => name.startsWith(letter + "axis"));
  const atEnd = (note) => note.xref === "paper" && note.x === 1 && note.yref !== "paper" && !note.showarrow;

  function wrapped(text, room) {
    const lines = [];
    for (const word of bare(text).split(" ")) {
      const last = lines.length - 1;
      if (last >= 0 && lines[last].length + word.length < room) lines[last] += " " + word;
      else lines.push(word);
    }
    return lines;
  }

  // Names without a maker that all of them share, so that what differs has room.
  function withoutMaker(names) {
    const makers = names.map((name) => (name.match(/^[\w.-]+\//) || [""])[0]), [shared, ...others] = new Set(makers.filter(Boolean));
    const short = names.map((name, i) => name.slice(makers[i].length));
    return shared && !others.length && new Set(short).size === new Set(names).size ? short : names;
  }

  // Names cut in the middle, or where no other name has the same beginning and end: those that differ look different.
  function cutApart(names, fits, glue = "") {
    const taken = new Set(names.filter(fits));
    return names.map((name, at) => {
      if (fits(name, at)) return name;
      const parts = glue ? name.split(/ (?![^<>]*>)/) : [...name];  // a tag is whole
      let spare = null;
      for (let left = parts.length - 1; left > 0; left--) {
        for (let step = 0; step < left; step++) {
          const head = Math.ceil(left / 2) + Math.ceil(step / 2) * (step % 2 ? 1 : -1);
          if (head < 1 || head > left) continue;
          const start = parts.slice(0, head).join(glue), end = parts.slice(parts.length - left + head).join(glue);
          const text = [start, "…", end].filter(Boolean).join(glue);
          if (!fits(text, at)) continue;
          if (spare === null || (taken.has(spare) && !taken.has(text))) spare = text;
          if (names.some((other) => other !== name && other.startsWith(start) && other.endsWith(end))) continue;
          return text;
        }
      }
      taken.add(spare);
      return spare === null ? name : spare;
    });
  }

  // Names of rows above them, over the lines of the grid, and the number at the end of a row on the line of its name.
  function nameAbove(data, layout, room, ground) {
    const { yaxis, margin } = layout, names = yaxis.ticktext, notes = layout.annotations || [];
    const off = data.flatMap((trace) => (trace.y || []).map((y) => Math.abs(y - Math.round(y)) || 0));
    const half = data.some((trace) => trace.type === "bar") ? 0.26 : Math.min(0.32, Math.max(0, ...off));  // of a row
    const font = yaxis.tickfont;
    const columns = notes.filter((note) => note.name === "column"), last = Math.max(0, ...columns.map((note) => note.xshift));
    const first = last - Math.min(last, ...columns.map((note) => note.xshift)), taken = columns.length ? first + COLUMN : 0;
    const numbers = notes.filter((note) => atEnd(note) && note.name !== "column"), alone = numbers.length <= names.length;
    const pen = document.createElement("canvas").getContext("2d"), wide = (text) => {
      pen.font = `${(font && font.size) || 12}px ${getComputedStyle(document.body).fontFamily}`;
      return pen.measureText(text).width;
    };
    const over = columns.length && Math.max(...names.map((name) => wide(bare(name).replace(/<br>/g, " ")))) + taken > room ? LINE : 0;  // names stand above their numbers
    const pitch = Math.max(44, Math.round((2 * LINE + over) / (1 - 2 * half))), up = Math.round(half * pitch) + 9;  // half a line over the marks, whose numbers are as high
    const number = (at) => numbers.find((note) => alone && Math.round(note.y) === at);
    const free = yaxis.tickvals.map((at) => room - (number(at) ? wide(bare(number(at).text)) : 0) - (over ? 0 : taken) - EDGE / 2);
    const fits = (text, i) => wide(text) <= free[i], whole = names.map((name) => bare(name).replace(/<br>/g, " "));
    const cut = whole.every(fits) ? whole : cutApart(withoutMaker(whole), fits);
    layout.annotations = notes
      .map((note) => (note.name === "column" ? { ...note, xshift: note.xshift - last, ...(atEnd(note) ? { yanchor: "bottom", yshift: up } : { yshift: -LINE }) } : note))
      .map((note) => (alone && numbers.includes(note) ? { ...note, xanchor: "right", xshift: 0, yanchor: "bottom", yshift: up } : note))
      .map((note) => (note.yref === "paper" && note.y >= 1 ? { ...note, yshift: (note.yshift || 0) + LINE } : note))
      .concat(names.map((name, i) => ({
        text: name.startsWith("<b>") ? `<b>${cut[i]}</b>` : cut[i],
        x: 0, xref: "paper", xanchor: "left", y: yaxis.tickvals[i], yref: "y", yanchor: "bottom", yshift: up + over,
        showarrow: false, font, bgcolor: ground, borderpad: 0,
      })));
    // A rule over each name, else it may be read with the marks of the row before.
    layout.shapes = (layout.shapes || []).concat(yaxis.tickvals.slice(1).map((at) => ({
      type: "line", layer: "below", xref: "paper", x0: 0, x1: 1, y0: at - (up + over + LINE) / pitch, y1: at - (up + over + LINE) / pitch,
      line: { color: (font || {}).color, width: 1 }, opacity: 0.35,
    })));
    yaxis.showticklabels = false;
    if (layout.xaxis.side === "top") { layout.xaxis.side = "bottom"; margin.b = 56; }
    margin.t += LINE;
    margin.l = EDGE;
    const ends = numbers.length ? 0 : beyond(data, layout);  // words that stand behind bars or marks
    margin.r = alone ? Math.max(EDGE, ends) : LETTER * longest(numbers.map((note) => note.text)) + EDGE;
    for (const trace of data) if (trace.type === "bar") trace.width = 2 * half;
    return pitch * Math.abs(yaxis.range ? yaxis.range[0] - yaxis.range[1] : names.length);
  }

  // Labels of line ends: short ones on their lines where no bars of intervals are, others as a key below the drawing.
  function keyBelow(data, layout) {
    const notes = layout.annotations || [], ends = notes.filter(atEnd);
    const heights = ends.map((note) => note.y), [low, high] = (layout.yaxis && layout.yaxis.range) || [Math.min(...heights), Math.max(...heights)];
    const alone = (note) => ends.every((other) => other === note || Math.abs(other.y - note.y) > Math.abs(high - low) / 8);
    const barred = data.some((trace) => trace.error_y && trace.error_y.array && trace.error_y.array.length);
    const short = (note) => note.name !== "head" && bare(note.text).length <= SHORT && alone(note) && !barred;
    const inside = ends.filter(short).map((note) => ({ ...note, xanchor: "right", xshift: 0, yanchor: "bottom" }));
    const key = ends.filter((note) => !short(note)).sort((a, b) => b.y - a.y);
    layout.annotations = [...notes.filter((note) => !atEnd(note)), ...inside];
    layout.shapes = (layout.shapes || []).filter((shape) => shape.name !== "leader");
    return key;
  }

  // Labels in so many pixels: of names with a number at their end the names are cut, of sentences the last parts go.
  function shortened(notes, room) {
    const all = notes.map((note) => note.text.replace(/<br>/g, " ").split(/ (?![^<>]*>)/)), numbers = all.map((words) => words.pop());
    const joined = (name, i) => [name, numbers[i]].filter(Boolean).join(" "), said = (i) => notes[i].name === "sentence";
    const fits = (name, i) => said(i) || bare(joined(name, i)).length <= Math.floor(room / LETTER);
    return cutApart(all.map((words) => words.join(" ")), fits, " ").map(joined)
      .map((text, i) => (said(i) ? fewerParts(text, Math.floor(room / BOLD)) : text));
  }

  // Without a part in its middle, a sentence would say something else.
  function fewerParts(text, most) {
    const parts = bare(text).split(/(?<=[,:]) /);
    while (parts.length > 1 && parts.join(" ").length > most) parts.pop();
    const said = parts.join(" ").replace(/[,:]$/, "");
    return text.startsWith("<b>") ? `<b>${said}</b>` : said;
  }

  // Pixels that words at the right of marks may need beyond the drawing.
  function beyond(data, layout) {
    const texts = data.filter((trace) => /text/.test(trace.mode) && /right/.test(trace.textposition)).flatMap((trace) => trace.text);
    const notes = (layout.annotations || []).filter((note) => note.xref !== "paper" && note.xanchor === "left");
    return LETTER * longest([...texts, ...notes.filter((note) => !note.textangle).map((note) => note.text)]) + EDGE + (notes.some((note) => note.textangle) ? LINE : 0);
  }

  // Marks with long names get numbers, which a key below the drawing tells; nothing where they are few or short.
  function numbered(data) {
    const words = (text) => /[^\d,– ]/.test(bare(text));  // ranks are numbers already, the table's
    const named = data.filter((trace) => /text/.test(trace.mode) && Array.isArray(trace.text) && trace.text.some(words));
    const texts = named.flatMap((trace) => trace.text);
    if (texts.length < 6 || longest(texts) < 12) return [];
    let count = 0;
    return named.flatMap((trace) => {
      const { color, size } = trace.textfont || {}, key = [];
      trace.text = trace.text.map((text, i) => {
        if (!text) return text;  // a mark without a name, for which a wide drawing has no room either
        key.push({ text: `${++count}  ${text}`, sign: "", showarrow: false, xref: "paper", font: { size, color: Array.isArray(color) ? color[i] : color } });
        return String(count);
      });
      return key;
    });
  }

  // Panels that stand side by side, below each other; returns the pixels that they need.
  function stack(layout) {
    const panels = axes(layout, "x").map((name) => layout[name]).filter((axis) => axis.domain && axis.domain[1] - axis.domain[0] < 0.9);
    const own = panels.map((axis) => layout["yaxis" + String(axis.anchor || "y").slice(1)]);
    if (panels.length < 2 || own.some((axis) => !axis || axis.domain)) return 0;
    const ends = panels.map((axis) => axis.domain), pixels = panels.length * (PANEL + APART) - APART;
    const places = ends.map((_, i) => [1 - (i * (PANEL + APART) + PANEL) / pixels, 1 - (i * (PANEL + APART)) / pixels]);
    for (const note of layout.annotations || []) {
      const at = ends.findIndex(([start, stop]) => note.x >= start - 1e-6 && note.x <= stop + 1e-6);
      if (note.xref !== "paper" || note.yref !== "paper" || at < 0 || !note.y) continue;
      const [low, high] = places[at];
      note.x = (note.x - ends[at][0]) / (ends[at][1] - ends[at][0]);
      note.y = low + note.y * (high - low);
      if (note.xanchor === "left" && note.x < 1e-6) note.xshift = EDGE - layout.margin.l;  // a head has the whole width
    }
    panels.forEach((axis, i) => {
      axis.domain = [0, 1];
      Object.assign(own[i], { domain: [Math.max(0, places[i][0]), places[i][1]], showticklabels: true });
    });
    return pixels;
  }

  // Ticks that do not run into each other; returns the pixels that turned ones need below the drawing.
  function thin(axis, across) {
    if (axis.showticklabels === false) return 0;
    if (axis.tickangle) {
      axis.ticktext = (axis.ticktext || []).map((text) => bare(text).replace(/<br>/g, ", "));
      axis.tickangle = -90;
      return Math.min(200, LETTER * longest(axis.ticktext)) + EDGE;
    }
    axis.tickangle = 0;
    if (axis.tickvals) return 0;
    if (axis.dtick && axis.range && axis.type !== "log") {
      while (((axis.range[1] - axis.range[0]) / axis.dtick) * 24 > across) axis.dtick *= 2;
    } else if (axis.type !== "log" && axis.type !== "category") axis.nticks = Math.floor(across / 56);
    return 0;
  }

  // Names of families moved apart where all have room beside their rows and above their columns; whether they have.
  function spread(notes, ofRow, cells, length) {
    const size = ofRow ? SMALL + 1 : 1.3 * SMALL, at = (note) => ((ofRow ? note.y : note.x) + 0.5) / cells * length;
    const own = notes.toSorted((a, b) => at(a) - at(b)), places = own.map(at);
    if (own.length * size > length) return false;
    for (let i = 1; i < own.length; i++) places[i] = Math.max(places[i], places[i - 1] + size);
    for (let i = own.length - 1, end = length; i >= 0; i--) end = (places[i] = Math.min(places[i], end - size / 2)) - size / 2;
    own.forEach((note, i) => {
      note.font = { ...note.font, size: SMALL };
      if (ofRow) note.yshift = at(note) - places[i];
      else note.xshift = (note.xshift || 0) + places[i] - at(note);
    });
    return true;
  }

  // Names above the columns of a matrix, and beside its rows, that do not run into the one before: a name stands at both or at none.
  function headsApart([columns, rows], layout, across, down) {
    const notes = layout.annotations || [], line = presented() ? SMALL : LINE, gap = presented() ? 0 : LETTER;
    const ofRow = (note) => !note.xref && !note.yref && note.x === -0.5;
    const ofColumn = (note) => !note.xref && note.yref === "paper" && note.y === 1;
    const all = columns > MANY && [[ofRow, rows, down], [ofColumn, columns, across]].every(([of, cells, length]) => spread(notes.filter(of), of === ofRow, cells, length));
    if (all) return;
    const apart = (place, half, end) => (place - half < end ? null : place + half);
    const named = new Map();
    for (const note of notes.filter((one) => ofRow(one) || ofColumn(one))) {
      const name = bare(note.text), middle = ofRow(note) ? ((note.y + 0.5) / rows) * down : ((note.x + 0.5) / columns) * across;
      const half = ofRow(note) ? line / 2 : note.textangle ? line * 0.8 : (LETTER * name.length) / 2;
      named.set(name, { ...named.get(name), [ofRow(note) ? "row" : "column"]: [middle, half] });
    }
    const ends = { row: -Infinity, column: -Infinity }, clear = new Set();
    for (const [name, places] of [...named].sort(([, a], [, b]) => (a.row || a.column)[0] - (b.row || b.column)[0])) {
      const found = Object.entries(places).map(([side, [middle, half]]) => [side, apart(middle, half, ends[side])]);
      if (found.some(([, end]) => end === null)) continue;
      clear.add(name);
      for (const [side, end] of found) ends[side] = end + (side === "column" ? gap : 0);
    }
    layout.annotations = notes.filter((note) => {
      if (presented() && (note.x === -0.5 || note.y === 1)) note.font = { ...note.font, size: SMALL };
      if (ofRow(note) || ofColumn(note)) return clear.has(bare(note.text));
      return note.xref || note.yref || across / columns > 5 * LETTER;  // a number in its cell
    });
  }

  // A scale of rates as wide as the drawing, without ticks that would run into each other.
  function roomy(bar, across) {
    const free = (bar.tickvals || []).map((value, i, all) => i === all.length - 1 || (all[i + 1] - value) * across * scale() > 24);
    const kept = (values) => values && values.filter((_, i) => free[i]);
    return { ...bar, len: scale(), tickangle: 0, tickvals: kept(bar.tickvals), ticktext: kept(bar.ticktext) };
  }

  // A figure for a drawing so wide, and by how many pixels it grows.
  function fit(traces, wide, width, height, ground) {
    const data = traces.map((trace) => ({ ...trace }));
    const layout = structuredClone(wide), margin = layout.margin, before = { ...margin };
    const heat = data.find((trace) => trace.type === "heatmap"), { yaxis } = layout;
    const rows = yaxis && yaxis.ticktext && margin.l > 96 && !heat && !(yaxis.title && yaxis.title.text);
    let drawing = Math.max(height - margin.t - margin.b, 120), key = [];
    if (rows) drawing = nameAbove(data, layout, width - 2 * EDGE, ground);
    else {
      key = [...keyBelow(data, layout), ...numbered(data)];
      const cells = heat && [heat.z[0].length, heat.z.length], square = heat && cells[0] === cells[1] && cells[0] > MANY;
      if (square && !presented()) {  // its cells need the width: families are named above them alone
        const upright = { textangle: -90, xanchor: "center", xshift: 0 };
        layout.annotations = layout.annotations.filter((note) => note.x !== -0.5).map((note) => (note.y === 1 ? { ...note, ...upright } : note));
      }
      const right = yaxis && yaxis.side === "right", side = right ? "r" : "l";
      margin.r = Math.min(margin.r, Math.max(EDGE, right ? margin.r : beyond(data, layout)), Math.round(0.45 * width));
      if (heat) margin.l = Math.min(margin.l, Math.round(0.34 * width));
      if (heat) {
        const names = (layout.annotations || []).filter((note) => note.x === -0.5).map((note) => note.text);
        if (square) margin.l = Math.min(margin.l, LETTER * longest(names) + EDGE + LINE);
        for (const note of layout.annotations || []) if (note.textangle === -90 && note.y !== 1) note.xshift = LINE + 4 - margin.l;
        if (square && presented()) margin.r = Math.max(margin.r, width - margin.l - drawing);  // a slide keeps its height
        const across = width - margin.l - margin.r;
        if (square && !presented()) drawing = across;
        headsApart(cells, layout, across, drawing);
      }
      if ((heat || right) && yaxis.ticktext) {
        const titled = (layout.annotations || []).some((note) => note.textangle === -90 && note.y !== 1);
        const most = Math.floor((margin[side] - (titled ? LINE : 0)) / LETTER) - 1;
        const fits = (line) => line.length <= most, lines = yaxis.ticktext.map((name) => bare(name).split("<br>"));
        const flat = lines.flat(), cut = flat.every(fits) ? flat : cutApart(withoutMaker(flat), fits);
        yaxis.ticktext = lines.map((own) => cut.splice(0, own.length).join("<br>"));
      }
    }
    drawing = Math.max(drawing, stack(layout));
    const across = width - margin.l - margin.r;
    let turned = 0, lines = 0, least = 0;
    for (const name of axes(layout, "x")) {
      turned = Math.max(turned, thin(layout[name], across));
      const title = layout[name].title && layout[name].title.text;
      if (!title) continue;
      const text = wrapped(title, Math.floor(across / LETTER));
      layout[name].title = { ...layout[name].title, text: text.join("<br>") };
      lines = Math.max(lines, text.length - 1);
      least = TITLED;
    }
    const below = Math.max(margin.b, turned + 8, least) + lines * LINE;
    const entries = new Set(data.filter((trace) => layout.showlegend && trace.showlegend !== false && trace.visible !== false)
      .map((trace) => trace.legendgroup || trace.name));
    const { title } = layout.legend || {}, head = entries.size && title && title.text ? wrapped(title.text, Math.floor((width - 2 * EDGE) / LETTER)) : [];
    const named = entries.size ? head.length * LINE + entries.size * ENTRY + 8 : 0, above = drawing > TALL;
    if (entries.size) {
      margin.t = Math.min(margin.t, 32);
      layout.legend = {
        ...layout.legend, ...(head.length ? { title: { ...title, text: head.join("<br>") } } : {}), x: 0, xref: "container", xanchor: "left", y: above ? 1 : 0, yref: "container", yanchor: above ? "top" : "bottom",
        entrywidth: (width - EDGE) / across, entrywidthmode: "fraction", tracegroupgap: 0,
      };
    }
    margin.b = below + key.length * LINE + (above ? 0 : named);
    for (const note of (layout.annotations || []).filter((one) => one.xref === "paper" && one.yref === "paper" && one.x === 0 && one.y === 1)) {
      const text = wrapped(note.text.replace(/<br>/g, " "), Math.floor(across / LETTER));
      note.text = text.join("<br>");
      margin.t = Math.max(margin.t, text.length * LINE + 16);
    }
    if (above) margin.t += named;
    const words = shortened(key, width - 2 * EDGE - 2 * LETTER);
    layout.annotations = (layout.annotations || []).concat(key.map((note, i) => ({
      ...note, text: (note.sign === undefined && note.name !== "head" ? "━ " : "") + words[i], x: 0, y: 0, yref: "paper", xanchor: "left", yanchor: "top", yshift: -below - i * LINE,
      xshift: EDGE - margin.l,
    })));
    const own = data.map((trace) => ({
      ...trace,
      ...(/text/.test(trace.mode) ? { cliponaxis: false } : {}),
      ...(trace.colorbar ? { colorbar: roomy(trace.colorbar, across) } : {}),
    }));
    return { data: own, layout, taller: Math.round(drawing + margin.t + margin.b - height) };
  }

  // A low slide: labels of line ends get one line each, with the number at their end, and are moved apart in its pixels.
  function endsApart(wide, width, height) {
    const layout = structuredClone(wide), { margin, yaxis: { range: [low, high] } } = layout;
    const notes = layout.annotations.filter((note) => atEnd(note) && note.name !== "head").sort((a, b) => a.y - b.y);
    const pitch = (LINE - 2) * (high - low) / (height - margin.t - margin.b);
    const room = Math.max(margin.r, 0.4 * width), said = notes.some((note) => note.name === "sentence");
    shortened(notes, room - 24).forEach((text, i) => { notes[i].text = text; });
    const needed = Math.min(0.4 * width, LETTER * longest(notes.map((note) => note.text.replace(/<br>/g, " "))) + (said ? 24 : 40));
    margin.r = said ? needed : Math.max(margin.r, needed);
    const before = notes.map((note) => note.y);
    notes.forEach((note, i) => {
      if (i) note.y = Math.max(note.y, notes[i - 1].y + pitch);
    });
    for (let i = notes.length - 1, top = high; i >= 0; i--) top = (notes[i].y = Math.min(notes[i].y, top - pitch));
    for (const line of layout.shapes.filter((shape) => shape.name === "leader")) line.y1 = notes[before.indexOf(line.y1)].y;
    return layout;
  }

  // The server places names of marks by the letters that it counts: those that still meet a mark or another name wait for the pointer.
  function hideMeeting(plot) {
    const texts = [...plot.querySelectorAll(".scatterlayer .textpoint text")];
    if (plot.clientWidth < NARROW || texts.length < MANY_NAMES || plot.closest("#map")) return;
    const ink = getComputedStyle(plot).getPropertyValue("--ink").trim(), pen = document.createElement("canvas").getContext("2d");
    const colour = (one) => { pen.fillStyle = one; return pen.fillStyle; };
    const chief = (text) => colour(getComputedStyle(text).fill) === colour(ink);  // the best and the cheapest
    const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
    const taken = [...plot.querySelectorAll(".scatterlayer .point, .xtick text, .ytick text")].map((one) => one.getBoundingClientRect());
    for (const text of texts.toSorted((a, b) => chief(b) - chief(a))) {
      const box = text.getBoundingClientRect();
      text.style.visibility = taken.some((one) => meet(one, box)) ? "hidden" : "";
      if (!text.style.visibility) taken.push(box);
    }
  }

  // The same figure as its place asks for it.
  function placed(plot, { data, layout, ...rest }) {
    plot.atlasWide = { data, layout, ...rest };
    plot.atlasWidth = plot.clientWidth;
    const body = plot.closest(".figure-body[style*=height]"), width = plot.clientWidth;
    const low = presented() && width >= NARROW && plot.clientHeight < LOW && ((layout && layout.shapes) || []).some((shape) => shape.name === "leader");
    plot.atlasLow = low;
    if (low) return { data, layout: endsApart(layout, width, plot.clientHeight), ...rest };
    if (body && body.atlasHeight) { body.style.height = body.atlasHeight; body.atlasHeight = ""; }
    if (!width || width >= NARROW || !layout || !layout.margin || layout.scene || !layout.xaxis || plot.closest("#map")) {
      return plot.atlasWide;
    }
    const { taller, ...narrow } = fit(data || [], layout, width, plot.clientHeight, getComputedStyle(plot).getPropertyValue("--ground").trim());
    if (body) {
      body.atlasHeight = body.style.height;
      body.style.height = `${parseFloat(body.style.height) + taller}px`;
    }
    return { ...rest, ...narrow };
  }

  function teach(Plotly) {
    const { react } = Plotly, { resize } = Plotly.Plots;
    Plotly.react = (place, data, layout, config) => {
      const plot = typeof place === "string" ? document.getElementById(place) : place;
      return react(plot, placed(plot, Array.isArray(data) ? { data, layout, config } : data)).then((drawn) => {
        if (!plot.atlasHides) plot.on("plotly_afterplot", () => hideMeeting(plot));
        plot.atlasHides = true;
        hideMeeting(plot);
        return drawn;
      });
    };
    Plotly.Plots.resize = (plot) => {
      const now = plot.clientWidth, again = Math.min(now, plot.atlasWidth) < NARROW || plot.atlasLow || presented();
      if (!plot.atlasWide || !now || now === plot.atlasWidth || !again) return resize(plot);
      return Plotly.react(plot, plot.atlasWide).then(() => resize(plot));
    };
    Plotly.atlas = true;
  }

  // The words on readers, of which one line stands, unfold.
  document.addEventListener("click", (event) => {
    const root = document.documentElement, button = event.target.closest("#readers-more");
    if (!button) return;
    const open = root.dataset.readers !== "open";
    root.dataset.readers = open ? "open" : "";
    button.setAttribute("aria-expanded", String(open));
    button.textContent = open ? "less" : "more";
  });

  // The header's button unfolds pages and choices; a page that was chosen folds them again.
  document.addEventListener("click", (event) => {
    const root = document.documentElement, button = document.getElementById("menu");
    const pressed = event.target.closest("#menu"), open = Boolean(pressed) && root.dataset.menu !== "open";
    if (!button || !(pressed || event.target.closest(".rail-link"))) return;
    root.dataset.menu = open ? "open" : "";
    button.setAttribute("aria-expanded", String(open));
  });

  // plotly.js comes when the first figure does: it learns this before anything is drawn.
  document.addEventListener("load", () => { if (window.Plotly && !window.Plotly.atlas) teach(window.Plotly); }, true);
})();
