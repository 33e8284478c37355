// What a page shows while the server is asked, and when it does not answer: a line that says so, a banner with a way to
// try again, and controls and an address that go back to what is drawn.
(function () {
  "use strict";
  const SLOW = 200;  // milliseconds after which a page that opens says so
  const GONE = [502, 503, 504];  // what a reverse proxy answers in place of a server that is down
  const HEADER = ["reader", "roster", "domain"];
  const root = document.documentElement;
  const drawn = new Map();  // values of controls, by "id.property", from which what is shown was made
  let wishes = {}, opening = 0, reload = false;

  const page = (output) => output.includes("_pages_content");
  const figures = (output) => page(output) || output.includes('"type":"sentence"');
  const known = (id) => typeof id === "string";

  // Values of the controls in a layout.
  function learn(part) {
    if (Array.isArray(part)) part.forEach(learn);
    else if (part && typeof part === "object") {
      const props = part.props;
      if (props && known(props.id)) {
        for (const name of ["value", "data"]) if (name in props) drawn.set(props.id + "." + name, props[name]);
      }
      for (const name of props ? ["children", "component"] : Object.keys(part)) learn((props || part)[name]);
    }
  }

  // What a callback was called with is drawn now; of a page that opens, what it brought and what the header says.
  function answered(body, answer) {
    for (const one of (body.inputs || []).flat()) if (known(one.id)) drawn.set(one.id + "." + one.property, one.value);
    learn(answer);
    if (answer) {
      for (const id of HEADER) {
        const found = window.dash_component_api.getLayout(id);
        if (found) drawn.set(id + ".value", found.props.value);
      }
    }
    wishes = {};
    reload = false;
    delete root.dataset.offline;
  }

  function lost(body) {
    root.dataset.offline = "true";
    reload = reload || (page(body.output) && !drawn.has("_pages_location.pathname"));  // nothing was opened so far
    if (!figures(body.output)) return;
    const values = new Map((body.inputs || []).flat().map((one) => [one.id + "." + one.property, one.value]));
    for (const changed of body.changedPropIds || []) {
      const before = drawn.get(changed), [id, name] = changed.split(".");
      if (!drawn.has(changed) || JSON.stringify(before) === JSON.stringify(values.get(changed))) continue;
      wishes[id] = { ...wishes[id], [name]: values.get(changed) };
      window.setTimeout(() => window.dash_clientside.set_props(id, { [name]: before }), 0);
    }
  }

  function open(by) {
    opening += by;
    if (opening) open.timer = open.timer || window.setTimeout(() => { root.dataset.opening = "true"; }, SLOW);
    else {
      window.clearTimeout(open.timer);
      open.timer = 0;
      delete root.dataset.opening;
    }
  }

  const send = window.fetch.bind(window);
  window.fetch = async function (address, options) {
    const path = typeof address === "string" ? address : "";
    if (path.includes("_dash-layout")) {
      const response = await send(address, options);
      response.clone().json().then(learn, () => {});
      return response;
    }
    if (!path.includes("_dash-update-component")) return send(address, options);
    const body = JSON.parse(options.body), opens = page(body.output);
    if (opens) open(1);
    try {
      const response = await send(address, options);
      if (GONE.includes(response.status)) lost(body);
      else if (response.ok) {
        answered(body, response.status === 200 && opens ? await response.clone().json() : null);
      }
      return response;
    } catch (error) {
      if (!error || error.name !== "AbortError") lost(body);
      throw error;
    } finally {
      if (opens) open(-1);
    }
  };

  // Once the server answers, address and controls are set as they were to be.
  document.addEventListener("click", async function (event) {
    const button = event.target.closest && event.target.closest("#offline-retry");
    if (!button) return;
    button.disabled = true;
    try {
      const response = await send("/health", { cache: "no-store" });
      if (GONE.includes(response.status)) return;
      if (reload) window.location.reload();
      delete root.dataset.offline;
      const again = wishes;
      wishes = {};
      for (const [id, props] of Object.entries(again)) window.dash_clientside.set_props(id, props);
    } catch (_) {  // it is still down, and the banner says so
    } finally {
      button.disabled = false;
    }
  });
})();
