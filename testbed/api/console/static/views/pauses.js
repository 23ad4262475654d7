// Who pauses whom: a tree from each root of congestion outwards, with how long each pause lasts; and where storms come from.
import {html, useEffect, useRef, useState} from "../core/lib.js";
import {useStore} from "../core/store.js";
import {Button, Empty, Failure, Pill, Spinner, useTurn} from "../core/ui.js";
import {bytesText, plural, shareText} from "../core/format.js";

const PausesView = ({app}) => {
  const lab = useStore(app.live, live => live.lab), moment = useStore(app.address, a => a.moment), shown = useStore(app.live, live => live.shown);
  const [found, setFound] = useState(null), [error, setError] = useState(null), [still, setStill] = useState(false), held = useRef(false), turn = useTurn(error);
  held.current = still;
  const t = lab.live ? null : shown ? shown.t : 0;
  useEffect(() => {
    let stale = false;
    app.get(t === null ? "./views/pauses" : `./views/pauses?t=${t}`).then(data => { if (!stale) { setFound(data); setError(null); } }, refused => { if (!stale) setError(refused); });
    const stop = app.on("view", ({view, data}) => { if (view === "pauses" && !stale && !held.current) setFound(data); });
    return () => { stale = true; stop(); };
  }, [lab, t, turn]);
  if (error) return html`<${Failure} error=${error} />`;
  if (!found) return html`<${Spinner} />`;
  if (!found.lossless) return html`<${Empty} title="Nothing is paused here">${lab.live ? "No class of this lab is lossless: PFC pauses those alone. A file has one with qos: {preset: dcqcn}." : "No pauses were sampled in this run."}</${Empty}>`;
  return html`<div class="page pauses"><header class="page-head"><h2 class="title">Pauses</h2>
      <span class="soft" role="status">${found.paused_now ? `${plural(found.paused_now, "queue")} paused now` : "no queue is paused now"}</span>
      ${found.storms.map(port => html`<${Pill} kind="bad" key=${port}>storm from ${port}</${Pill}>`)}
      <span class="grow"></span>${lab.live && moment !== null && html`<${Pill} kind="warn">live, and not of the moment that is shown</${Pill}>`}
      ${lab.live && html`<${Button} pressed=${still} onClick=${() => setStill(!still)}>Hold still</${Button}>`}</header>
    ${found.trees.length ? html`<${Tree} app=${app} trees=${found.trees} />`
      : html`<${Empty} title="Nobody pauses anybody">Congestion that begins to pause appears here at once, from its root outwards.</${Empty}>`}
  </div>`;
};

const CAUSES = {
  queue: "holds what does not drain",
  storm: "pauses its peers without a reason",
  pause: "is stopped, and passes it on",
};

// Arrows walk through the tree as through any (WAI-ARIA Authoring Practices, tree view); the item that was focused last is the
// one that Tab comes back to, also when the tree has changed.
const Tree = ({app, trees}) => {
  const [here, setHere] = useState(""), box = useRef(null), paths = new Set(pathsOf(trees, "")), current = paths.has(here) ? here : pathOf("", trees[0].node);
  const walk = event => {
    const item = event.target.closest("[role='treeitem']");
    if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = [...box.current.querySelectorAll("[role='treeitem']")], at = all.indexOf(item), group = item.querySelector("[role='treeitem']"), above = item.parentElement.closest("[role='treeitem']");
    const to = {ArrowDown: () => all[at + 1], ArrowUp: () => all[at - 1], Home: () => all[0], End: () => all[all.length - 1], ArrowRight: () => group, ArrowLeft: () => above}[event.key];
    if (!to) return;
    event.preventDefault();
    event.stopPropagation();
    const next = to();
    if (next) next.focus();
  };
  return html`<ul ref=${box} class="pause-tree" role="tree" aria-label="Pauses from their roots outwards" onKeyDown=${walk}
    onFocusIn=${event => { const item = event.target.closest("[role='treeitem']"); if (item) setHere(item.dataset.path); }}>
    ${trees.map(tree => html`<${Branch} app=${app} branch=${tree} key=${tree.node} level=${1} above="" current=${current} />`)}</ul>`;
};

const pathOf = (above, name) => `${above}/${name}`;
const nameOf = pause => `${pause.paused} ${pause.traffic_class}`;
const pathsOf = (branches, above) => branches.flatMap(one => {
  const path = pathOf(above, one.node);
  return [path, ...one.pauses.map(pause => pathOf(path, nameOf(pause))), ...pathsOf(one.branches, path)];
});

// What keys do with an item that has the focus itself, and not a button in it: Enter selects; a branch folds and unfolds.
const itemKeys = (event, {choose, open = true, setOpen = null}) => {
  if (event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) return;
  const folds = setOpen && ((event.key === "ArrowRight" && !open) || (event.key === "ArrowLeft" && open));
  if (!folds && event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  event.stopPropagation();
  if (folds) setOpen(!open); else choose();
};

const Branch = ({app, branch, level, above, current}) => {
  const [open, setOpen] = useState(true), path = pathOf(above, branch.node), choose = () => app.select([`node:${branch.node}`]);
  return html`<li role="treeitem" aria-level=${level} aria-expanded=${String(open)} aria-selected="false" aria-label=${branch.node} data-path=${path} tabindex=${path === current ? 0 : -1}
    onKeyDown=${event => itemKeys(event, {choose, open, setOpen})}>
  <div class=${`branch ${branch.cause}`}>
    <button type="button" class="link fold" tabindex="-1" aria-label=${`${open ? "Fold" : "Unfold"} ${branch.node}`} onClick=${() => setOpen(!open)}>${open ? "▾" : "▸"}</button>
    <button type="button" class="link" tabindex="-1" onClick=${choose}><b>${branch.node}</b></button>
    <span>${level === 1 ? CAUSES[branch.cause === "pause" ? "queue" : branch.cause] : CAUSES[branch.cause]}</span>
    ${branch.queue && html`<button type="button" class="link queue" onClick=${() => app.select([`port:${branch.queue}`])}>deepest queue ${branch.queue}: <b>${bytesText(branch.queue_bytes)}</b></button>`}
  </div>
  ${open && html`<ul role="group">${branch.pauses.map(one => html`<${PauseRow} app=${app} pause=${one} key=${nameOf(one)} level=${level + 1} path=${pathOf(path, nameOf(one))} current=${current} />`)}
    ${branch.branches.map(one => html`<${Branch} app=${app} branch=${one} key=${one.node} level=${level + 1} above=${path} current=${current} />`)}</ul>`}
</li>`;
};

const PauseRow = ({app, pause, level, path, current}) => html`<li role="treeitem" aria-level=${level} aria-selected="false" class="pause-row" aria-label=${`${pause.paused}, paused by ${pause.by}`} data-path=${path} tabindex=${path === current ? 0 : -1}
  onKeyDown=${event => itemKeys(event, {choose: () => app.select([`port:${pause.paused}`])})}>
  <i class=${`dot ${pause.now ? "bad" : "none"}`} title=${pause.now ? "paused now" : "paused a moment ago"}></i>
  <button type="button" class="link" tabindex="-1" onClick=${() => app.select([`port:${pause.paused}`])}>${pause.paused}</button>
  <span class="soft">paused by</span><button type="button" class="link" onClick=${() => app.select([`port:${pause.by}`])}>${pause.by}</button>
  ${pause.traffic_class && html`<${Pill}>${pause.traffic_class}</${Pill}>`}
  <span class="meter" title=${`${shareText(Math.round(pause.share * 1000))} of the time`}><i style=${{width: `${Math.round(pause.share * 100)}%`}}></i></span><span class="num">${shareText(Math.round(pause.share * 1000))}</span>
  ${pause.since_s > 0 && html`<span class="soft">since ${pause.since_s >= 1 ? `${pause.since_s.toFixed(1)} s` : `${(pause.since_s * 1000).toFixed(1)} ms`}</span>`}
  ${pause.total_s > 0 && html`<span class="soft">${pause.total_s.toFixed(2)} s in all</span>`}
  ${pause.storm && html`<${Pill} kind="bad">storm</${Pill}>`}${pause.freed && html`<${Pill} kind="warn">freed by the watchdog</${Pill}>`}
</li>`;

export default {name: "pauses", title: "Pauses", order: 60, component: PausesView};
