// The page Attribute: refuses a file that is too large before it is read, and writes the choices that are no
// secret into the link. Traces never leave through the link.
(function () {
  "use strict";
  const LARGEST = 25e6;
  const none = () => window.dash_clientside.no_update;

  function tooLarge(files) {
    return Array.from(files || []).find((file) => file.size > LARGEST);
  }

  function refuse(event, files) {
    const file = tooLarge(files);
    const place = event.target.closest && event.target.closest(".drop");
    if (!file || !place) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const parts = [["#attr-two", "win"], ["#attr-reference", "ref"], ["#attr-check", "check"], ["*", "attr"]];
    const told = parts.find(([within]) => place.closest(within))[1] + "-problem";
    window.dash_clientside.set_props(told, {
      children: {
        namespace: "dash_html_components",
        type: "Div",
        props: {
          className: "problem",
          role: "alert",
          children: file.name + " is larger than 25 MB. Run it by command line, which has no such limit: python -m jobs attribute FILE",
        },
      },
    });
    if (event.target.type === "file") event.target.value = "";
  }

  // The file field of a drop place comes without a name, and who listens to the page could not tell what it is for.
  new MutationObserver(() => {
    document.querySelectorAll('.drop input[type="file"]:not([aria-label])').forEach((field) => {
      field.setAttribute("aria-label", "A file of traces");
    });
  }).observe(document.documentElement, { childList: true, subtree: true });

  // What was pressed may be gone with its answer: Tab then goes on from here, and not from the top of the page.
  function focus(id) {
    const place = document.getElementById(id);
    if (!place || document.activeElement !== document.body) return;
    place.tabIndex = -1;
    place.focus({ preventScroll: true });
  }

  // A claim that is typed and not chosen leaves its field when that is left: an exact name is chosen, of another one the
  // page says that it was not, and a press of Run in between waits for that.
  let typed = "";
  function missed() {
    const field = document.getElementById("attr-claim"), lost = typed;
    typed = "";
    if (!lost || !field || field.value === lost) return false;
    window.dash_clientside.set_props("attr-claim-lost", { data: { typed: lost, at: Date.now() } });
    return true;
  }
  document.addEventListener("focusout", (event) => {
    if (event.target.id !== "attr-claim") return;
    typed = event.target.value;
    window.setTimeout(missed, 200);
  }, true);
  document.addEventListener("click", (event) => {
    if (!event.target.closest("#attr-go, #attr-go-now, #attr-go-ask") || !missed()) return;
    event.stopImmediatePropagation();
    document.getElementById("attr-claim").scrollIntoView({ block: "center" });
  }, true);

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    attribute: {
      // A secret of this page, by which files that arrive together begin one session.
      visit: () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join(""),
      watch: function () {
        if (!window.atlasDropsWatched) {
          window.atlasDropsWatched = true;
          document.addEventListener("drop", (event) => refuse(event, event.dataTransfer && event.dataTransfer.files), true);
          document.addEventListener("change", (event) => {
            if (event.target.type === "file") refuse(event, event.target.files);
          }, true);
        }
        return none();
      },
      // What a person waits for comes into view once: the work when it begins, the answer when it is there. Both inputs
      // may be set to what they were, so the stage before is what tells a change.
      follow: function (hidden, stage, before) {
        const now = (stage || "").includes("stage-result") ? "answered" : hidden ? "asked" : "working";
        if (now === before) return none();
        if (now === "working") document.getElementById("attr-go").scrollIntoView({ block: "start" });
        if (now === "answered") {
          // After the layout: what grows above would push the answer out of view again.
          const top = () => {
            document.getElementById("content").scrollTo({ top: 0, behavior: "instant" });
            focus("verdict-word");
          };
          window.requestAnimationFrame(() => window.setTimeout(top, 50));
        }
        return now;
      },
      // What was read of a file comes into view, or what is wrong with it.
      given: function (head, problem) {
        const run = document.getElementById("attr-go-now");
        const place = problem ? document.getElementById("attr-problem") : run?.parentElement;
        const options = { block: problem ? "start" : "nearest" };
        if ((head || problem) && place) {
          window.setTimeout(() => {
            place.scrollIntoView(options);
            if (!problem) focus("attr-preview-head");
          }, 50);
        }
        return none();
      },
      // An answer of a comparison comes into view once, and not again when another theme draws it anew.
      reveal: function (answer, place, done, seen) {
        const now = answer && done ? JSON.stringify(done) : null;
        if (now && now !== seen) {
          window.setTimeout(() => {
            const answered = document.getElementById(place);
            if (!answered.checkVisibility()) return;
            // The form of a comparison is folded with its answer, which then stands at the top.
            if (answered.closest(".comparison")) document.getElementById("content").scrollTo({ top: 0, behavior: "instant" });
            else answered.scrollIntoView({ block: "start" });
            focus(place.replace("result", "verdict"));
          }, 50);
        }
        return now === seen ? none() : now;
      },
      // The words of a clicked bar stand further down, and come into view.
      picked: function (click) {
        const trace = click?.points?.[0]?.customdata?.[0], head = document.getElementById("title-tokens");
        if (!trace) return none();
        if (head) {
          const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
          head.closest("section").scrollIntoView({ behavior: still ? "instant" : "smooth", block: "start" });
          head.tabIndex = -1;
          head.focus({ preventScroll: true });
        }
        return String(trace);
      },
      // A comparison that was started from above its files shows how far it is.
      working: function (jobs, id) {
        if (jobs) document.getElementById(id).scrollIntoView({ block: "start" });
        return none();
      },
      // A command into the clipboard; without its permission the text is selected instead. The button says so for a while.
      copy: function (clicks, id) {
        const text = document.getElementById(id || "attr-verify");
        if (!clicks || !text) return none();
        const button = window.dash_clientside.callback_context.triggered_id;
        window.setTimeout(() => {
          if (document.getElementById(button)) window.dash_clientside.set_props(button, { children: "Copy" });
        }, 2200);
        const select = function () {
          const range = document.createRange();
          range.selectNodeContents(text);
          window.getSelection().removeAllRanges();
          window.getSelection().addRange(range);
          document.execCommand("copy");
          return "Copied";
        };
        if (!navigator.clipboard || !window.isSecureContext) return select();
        return navigator.clipboard.writeText(text.textContent).then(() => "Copied", select);
      },
      // The next step of an answer is gone once: a reload keeps what was answered since.
      carried: (taken) => (taken ? window.dash_clientside.atlas.choices(["carry"], [null], "") : none()),
      // What follows the header, or came with the sample, is no choice of a person's and stands in no link.
      choices: function (ecosystem, claim, mode, last) {
        const picked = !last || ecosystem !== last.shown || ecosystem === last.picked;
        return window.dash_clientside.atlas.choices(
          ["ecosystem", "claim", "mode"], [null, null, "one"], (picked && ecosystem) || "", claim || "", mode,
        );
      },
    },
  });
})();
