// The keyboard of the whole page. What one types into a field is the field's; Escape and the keys of the list below are ours.
import {html, useState} from "./lib.js";
import {Dialog} from "./ui.js";

const typing = target => target.closest("input, textarea, select, [contenteditable], .xterm, [role='dialog'], [role='menu']") !== null;

// Keys of one character can be turned off, for who speaks to the computer (WCAG 2.1.4): the page remembers that.
const OFF = "character-keys", areOff = () => localStorage.getItem(OFF) === "off";

export const bindKeys = app => {
  document.addEventListener("keydown", event => {
    if (event.key.length === 1 && areOff()) return;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (!event.target.closest || typing(event.target)) return;
    const found = (app.keys.get(event.key) || []).filter(one => one.when(event)).pop();
    if (!found) return;
    event.preventDefault();
    found.run(event);
  });
  app.key({key: "/", title: "Find: nodes and ports by name", run: () => { const field = document.getElementById("find"); field.focus(); field.select(); }});
  app.key({key: ".", title: "What can be done with what is selected", run: () => openActions(app)});
  app.key({key: "?", title: "These keys", run: () => app.dialog(({close}) => html`<${KeyList} app=${app} close=${close} />`)});
  app.key({key: "Escape", title: "Let go of the selection", run: () => { if (app.address.get().selection.length) app.select([]); else if (app.address.get().moment !== null) app.at(null); }});
  app.key({key: "m", title: "Colour by the next measure", run: () => nextMeasure(app, 1), when: () => app.live.get().lab !== null});
  app.key({key: "l", title: "Live again", run: () => app.at(null), when: () => app.live.get().lab !== null});
  for (let at = 1; at <= 9; at++) {
    app.key({key: String(at), title: "The view of that number", run: () => { const view = shownViews(app)[at - 1]; if (view) app.go({view: view.name}); }});
  }
};

const nextMeasure = (app, step) => {
  const {metrics} = app.live.get().lab, at = metrics.indexOf(app.address.get().measure);
  app.go({measure: metrics[(at + step + metrics.length) % metrics.length]});
};

// The views that have something for what the page looks at.
export const shownViews = app => {
  const {lab} = app.live.get(), {base} = app.address.get();
  return app.views.get().list.filter(view => {
    if (!view.component) return false;
    if (view.scope === "machine") return view.name === "labs" || !(app.live.get().console || {}).only;  // records are of the whole machine
    return Boolean(base) && (!lab || (lab.live ? view.live !== false : view.recorded !== false));
  });
};

// Opens the menu of actions beside what has the focus, or at a place.
export const openActions = (app, place = null) => {
  const targets = app.address.get().selection;
  if (!targets.length) { app.say("Select a node, a port or a link first", {kind: "warn"}); return; }
  const element = document.activeElement && document.activeElement !== document.body ? document.activeElement : document.querySelector(".pinned") || document.querySelector("main");
  const box = element.getBoundingClientRect();
  const small = box.width < 400 && box.height < 200;
  app.serve("actions", {targets, element, ...(place || {x: small ? box.right : innerWidth / 2 - 120, y: small ? box.top : 140})});
};

const KeyList = ({app, close}) => {
  const groups = new Map();
  for (const list of app.keys.values()) for (const one of list) {
    if (/^[2-9]$/.test(one.key)) continue;
    if (!groups.has(one.group)) groups.set(one.group, []);
    groups.get(one.group).push(/^1$/.test(one.key) ? {...one, key: "1 … 9"} : one);
  }
  const [off, setOff] = useState(areOff());
  const flip = () => { localStorage.setItem(OFF, off ? "on" : "off"); setOff(!off); };
  return html`<${Dialog} title="Keys" close=${close}>
    <label class="action-flag"><input type="checkbox" checked=${!off} onChange=${flip} />Keys of one character work, wherever the focus is</label>
    ${[...groups].map(([group, list]) => html`<section key=${group}><h3>${group}</h3><dl class="keys">
      ${list.map(one => html`<dt><kbd>${one.key === " " ? "Space" : one.key}</kbd></dt><dd>${one.title}</dd>`)}</dl></section>`)}
    <p class="soft">On the map: arrows walk between nodes, Enter selects one, Shift+Enter adds it to the selection, + and − zoom, 0 shows all.</p>
  </${Dialog}>`;
};
