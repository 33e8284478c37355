// Pictures of figures: the drawing as it stands, with what it needs without its page: question, sentence, choices and generation.
(function () {
  "use strict";
  const SCALE = 2, EDGE = 24, LINE = 17, ROW = 19, BAR = 216;  // pixels of a line of text, of a family, and of a scale of colours
  const FAMILIES = 152;  // width of the list of families, beside the map
  const SANS = '"IBM Plex Sans", sans-serif';
  const pen = document.createElement("canvas").getContext("2d");
  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/"/g, "&quot;");
  const shown = (id) => (document.getElementById(id) || {}).value || "";
  const texts = (selector) => [...document.querySelectorAll(selector)].map((one) => one.textContent.trim()).filter(Boolean);

  const on = (id) => document.querySelector(`#${id} input:checked + label`).textContent.trim();
  const generation = () => (document.querySelector("[data-generation]") || { dataset: {} }).dataset.generation;

  function wrapped(text, room, size, weight = 400) {
    const lines = [""];
    pen.font = `${weight} ${size}px ${SANS}`;
    for (const word of text.split(/[ \n]+/)) {
      const longer = (lines[lines.length - 1] + " " + word).trim();
      if (pen.measureText(longer).width <= room) lines[lines.length - 1] = longer;
      else lines.push(word);
    }
    return lines;
  }

  const write = (x, y, text, colour, more = "") => `<text x="${x}" y="${y}" fill="${colour}" font-size="12" ${more}>${escaped(text)}</text>`;

  // What was asked, what is seen, what was chosen, and out of which data; a live result has no generation and no such choices.
  function headOf(figure, plot, place) {
    const heading = place.querySelector("h1, h2, h3"), sentence = place.querySelector(".sentence, figcaption"), map = figure === "map";
    const title = heading ? heading.textContent : plot.closest("[role=img]").getAttribute("aria-label");
    const parts = [...((sentence || {}).childNodes || [])].filter((part) => !(part.matches && part.matches(".origin")));
    const said = parts.map((part) => part.textContent).join("").replace(/^[\s·]+/, "")
      .split(/(?<=\.) /).filter((one) => !/^(Click|Point|Tap|Press) /.test(one)).join(" ");  // nobody clicks on paper
    const own = map ? [`${on("projection")} in ${on("dim")}`, ...document.getElementById("trust").innerText.split("\n")] : [];
    // Pairs of related models have no roster; some figures are of a roster that they name.
    const pairs = window.location.pathname === "/relationships", other = /\b\d+-way\b/.test(title + said);
    const chosen = [!pairs && !other && "roster", !pairs && "domain"].map((id) => id && shown(id));
    const compared = texts(".compare-choice:not([hidden]) .mantine-Pill-label").join(", ");  // else its marks have their names
    const reader = place.closest(".compare") ? compared : !map && shown("reader");
    const origins = new Set([...place.querySelectorAll(".origin")].map((one) => one.textContent)), made = generation(), day = `saved ${new Date().toISOString().slice(0, 10)}`;
    const scope = [...origins, reader, ...chosen, ...own].filter(Boolean).join(" · ");
    return { title, lines: [said, ...(made ? [scope, `Generation ${made}, ${day}`] : [`Live result, ${day}`])].filter(Boolean) };
  }

  // Names over the map, and their thin lines, which the page writes beside the drawing.
  function namesOf(plot, ink, soft) {
    const stage = document.getElementById("map-stage").getBoundingClientRect(), box = plot.getBoundingClientRect();
    const [left, top] = [stage.left - box.left, stage.top - box.top];
    return [...document.querySelectorAll("#names > :is(.name-at, .leader)")].map((one) => {
      const [x, y, turn, away] = one.style.transform.match(/-?[\d.]+(?:e-?\d+)?(?=px|rad)/g).map(Number);
      const at = [x + left, y + top];
      if (one.matches(".leader")) {
        const turned = `translate(${at}) rotate(${(turn * 180) / Math.PI}) translate(${away})`;
        return `<line x2="${parseFloat(one.style.width)}" stroke="${soft}" transform="${turned}"/>`;
      }
      const halo = 'stroke="var(--halo)" stroke-width="3" stroke-linejoin="round" paint-order="stroke"';
      return write(at[0], at[1] + 12, one.textContent, one.matches(".other") ? soft : ink, `${one.matches(".other") ? "" : 'font-weight="600"'} ${halo}`);
    }).join("");
  }

  // The scale of colours that are not those of families.
  function scaleOf(top, ink, soft) {
    const bar = document.querySelector("#scale .scale-bar");
    if (!bar) return "";
    const colours = bar.style.background.match(/(#\w+|rgb\([^)]*\))(?: \d+%)?/g).map((one) => one.split(/ (?=\d+%)/));
    const stops = colours.map(([colour, at], i) => `<stop offset="${at || `${(100 * i) / (colours.length - 1)}%`}" stop-color="${colour}"/>`);
    const ends = texts("#scale .scale-ends > span");
    const ticks = [...bar.children].map((tick) => write(EDGE + (BAR * parseFloat(tick.style.left)) / 100, top - 4, tick.textContent, soft, 'text-anchor="middle"'));
    return `<linearGradient id="scale-colours">${stops.join("")}</linearGradient>${ticks.join("")}`
      + `<rect x="${EDGE}" y="${top}" width="${BAR}" height="8" fill="url(#scale-colours)"/>`
      + write(EDGE, top + 24, ends[0], ink) + write(EDGE + BAR, top + 24, ends[1], ink, 'text-anchor="end"');
  }

  // Below the map: by what its points are coloured, which are in front, and whose ranks are on it.
  function footOf() {
    const near = [...document.querySelectorAll("#card .near-line .near-row")].map((row) => `${row.querySelector(".rank").textContent} ${row.querySelector(".name").title}`);
    const ranked = document.querySelector("#names .near") && near.length ? [`Nearest of ${shown("search")} in the original space: ${near.join(" · ")}`] : [];
    const filters = [["access", "Access"], ["size", "Size"]].filter(([id]) => on(id) !== "All").map(([id, word]) => `${word}: ${on(id)}`);
    const [scale] = texts("#scale .scale-name");
    const coloured = shown("colour") && document.querySelector("#scale .scale-bar") ? [`Colour: ${(scale || shown("colour")).replace(/:$/, "")}`] : [];
    return [...coloured, ...texts("#scale p"), ...texts("#undated p"), ...filters, ...ranked];
  }

  // The page's letters, without which another program would set wider ones.
  let letters = null;
  async function lettersOf() {
    const sheets = [...document.styleSheets].filter((sheet) => sheet.href && sheet.href.startsWith(window.location.origin));
    const faces = sheets.flatMap((sheet) => [...sheet.cssRules].filter((rule) => rule instanceof CSSFontFaceRule && /Sans/.test(rule.cssText)).map((rule) => [rule.cssText, sheet.href]));
    const whole = faces.map(async ([text, base]) => {
      const file = await (await fetch(new URL(/url\("([^"]+)"\)/.exec(text)[1], base))).blob();
      const read = new FileReader(), data = new Promise((done) => { read.onload = () => done(read.result); });
      read.readAsDataURL(file);
      return text.replace(/url\("[^"]+"\)/, `url("${await data}")`);
    });
    return (await Promise.all(whole)).join("");
  }

  // Families, the largest first, as traces that draw nothing; shapes alone where colours are not those of families.
  function familiesOf(plot, shape, ink) {
    const found = new Map();
    for (const { type, name, marker, customdata = [] } of plot.data) {
      if (name === "context") continue;
      customdata.forEach(([, family], i) => {
        const line = { width: marker.line.width < 1.5 ? 0 : 2, color: shape ? ink : marker.line.color[i] };
        const one = found.get(family) || { n: 0, type, name: family, mode: "markers", x: [null], y: [null], z: [null], showlegend: true,
          marker: { symbol: marker.symbol[i], color: shape || marker.color[i], size: 8, line } };
        found.set(family, { ...one, n: one.n + 1 });
      });
    }
    return [...found.values()].sort((a, b) => b.n - a.n).map(({ n, ...trace }) => trace);
  }

  async function draw(figure, plot, place) {
    const style = getComputedStyle(plot), [ground, ink, soft] = ["ground", "ink", "soft"].map((name) => style.getPropertyValue(`--${name}`).trim());  // a brief is drawn on paper
    const map = figure === "map", coloured = map && document.querySelector("#scale .scale-bar"), listed = map || figure === "brief-map";
    const families = listed ? familiesOf(plot, coloured ? soft : "", ink) : [];
    const wide = plot.clientWidth + (listed ? FAMILIES : 0), high = Math.max(plot.clientHeight, families.length * ROW + 32);
    const data = listed ? [...plot.data.map((trace) => ({ ...trace, showlegend: false })), ...families] : plot.data;
    const beside = listed && {
      margin: { ...plot.layout.margin, r: FAMILIES, b: high - plot.clientHeight, autoexpand: false },
      showlegend: true,
      legend: { x: 1, y: 1, xanchor: "left", title: { text: coloured ? "Shape: family" : "" }, font: { size: 11 }, itemsizing: "constant" },
    };
    const layout = { ...plot.layout, ...beside, width: wide, height: high, paper_bgcolor: "rgba(0,0,0,0)" };
    const drawing = await window.Plotly.toImage({ data, layout }, { format: "svg", width: wide, height: high, imageDataOnly: true });
    const { title, lines } = headOf(figure, plot, place), room = wide - 2 * EDGE;
    const heads = wrapped(title, room, 18, 600), above = lines.flatMap((line) => wrapped(line, room, 12));
    const below = map ? footOf().flatMap((line) => wrapped(line, room, 12)) : [];
    const start = EDGE + 24 * heads.length, top = start + LINE * above.length + 12, end = top + high;
    const bar = coloured ? 56 : 0, whole = end + bar + (below.length ? LINE * below.length + 12 : 0);
    letters = letters || (await lettersOf());
    return [wide, whole, `<svg xmlns="http://www.w3.org/2000/svg" width="${wide}" height="${whole}" viewBox="0 0 ${wide} ${whole}" font-family="${escaped(SANS)}">`
      + `<style>${letters} svg { --halo: ${ground}; }</style><rect width="100%" height="100%" fill="${ground}"/>`
      + heads.map((line, i) => `<text x="${EDGE}" y="${EDGE + 12 + 24 * i}" fill="${ink}" font-size="18" font-weight="600">${escaped(line)}</text>`).join("")
      + above.map((line, i) => write(EDGE, start + 8 + LINE * i, line, soft)).join("")
      + `<g transform="translate(0 ${top})">${drawing}${map ? namesOf(plot, ink, soft) : ""}</g>`
      + (map ? scaleOf(end + 20, ink, soft) : "") + below.map((line, i) => write(EDGE, end + bar + LINE * (i + 1), line, soft)).join("") + "</svg>"];
  }

  function save(address, name) {
    const link = document.createElement("a");
    link.href = address;
    link.download = name;
    link.click();
  }

  window.atlasPicture = async function ({ figure, type }) {
    const place = document.getElementById("figure-" + figure), plot = place && place.querySelector(".js-plotly-plot");
    if (!plot || !window.Plotly) return;
    const [wide, high, text] = await draw(figure, plot, place);
    const given = new URL(window.location.href).searchParams;
    const name = ["atlas", figure, ...(generation() ? [given.get("roster"), given.get("domain"), generation()] : [])].filter(Boolean).join("_");
    const address = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
    if (type === "svg") { save(address, name + ".svg"); return; }
    const image = new Image(), canvas = document.createElement("canvas");
    image.src = address;
    await image.decode();
    Object.assign(canvas, { width: SCALE * wide, height: SCALE * high });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    save(canvas.toDataURL("image/png"), name + ".png");
  };
})();
