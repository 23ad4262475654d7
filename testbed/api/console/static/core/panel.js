// What is selected, at the right: what it is, how it does, and what can be done with it. Nothing selected: where it is worst.
import {html, useEffect, useState} from "./lib.js";
import {useStore} from "./store.js";
import {Button, Pill} from "./ui.js";
import {portsOf} from "./app.js";
import {METRICS, countText, measureText, plural, rateText, timeText} from "./format.js";
import {Slots, useTheme} from "./frame.js";
import {openActions} from "./keys.js";
import {colourOf} from "./scales.js";

const MOST = 12, MOST_PORTS = 40;

export const Panel = ({app}) => {
  const selection = useStore(app.address, a => a.selection);
  return html`<aside class="panel" aria-label="What is selected">
    ${selection.length === 0 ? html`<${Overview} app=${app} />`
    : selection.length === 1 ? html`<${One} app=${app} id=${selection[0]} key=${selection[0]} />` : html`<${Several} app=${app} ids=${selection} />`}
    <${Slots} app=${app} name="panel" />
  </aside>`;
};

const Overview = ({app}) => {
  const {lab, shown, events} = useStore(app.live), measure = useStore(app.address, a => a.measure), off = useStore(app.address, a => a.off);
  const state = shown && shown.state, states = {};
  for (const word of (state && state.nodes) || []) states[word] = (states[word] || 0) + 1;
  return html`<h2>${lab.name}</h2>
    <p class="soft">${lab.design ? lab.design + " · " : ""}${plural(lab.nodes.name.length, "node")} · ${plural(lab.links, "link")}</p>
    <dl class="facts">
      ${Object.entries(states).map(([word, count]) => html`<dt><i class=${`dot ${stateKind(word)}`}></i>${word}</dt><dd>${countText(count)}</dd>`)}
      ${state && state.sessions_planned ? html`<dt>BGP sessions up</dt><dd class=${state.sessions_up < state.sessions_planned ? "bad" : ""}>${countText(state.sessions_up)} of ${countText(state.sessions_planned)}</dd>` : null}
    </dl>
    <${Worst} app=${app} lab=${lab} shown=${shown} measure=${measure} off=${off} />
    <${Events} app=${app} lab=${lab} events=${events} />`;
};

// The ports with the highest values of the measure.
export const worstPorts = (lab, columns, measure, off, most = 8) => {
  const column = columns && columns[measure];
  if (!column) return [];
  const hidden = lab.networks.map(one => off.includes(one.name)), found = [];
  for (let port = 0; port < column.length; port++) {
    if (column[port] <= 0 || hidden[lab.ports.network[port]]) continue;
    if (found.length === most && column[port] <= column[found[most - 1]]) continue;
    found.push(port);
    found.sort((one, other) => column[other] - column[one]);
    found.length = Math.min(found.length, most);
  }
  return found;
};

const Worst = ({app, lab, shown, measure, off}) => {
  const theme = useTheme(), column = shown && shown.columns && shown.columns[measure], ports = worstPorts(lab, shown && shown.columns, measure, off);
  return html`<h3>Highest ${METRICS[measure].title === "CE marks" ? METRICS[measure].title : METRICS[measure].title.toLowerCase()}</h3>
    ${ports.length ? html`<ol class="worst">${ports.map(port => html`<li key=${port}><button type="button" onClick=${() => app.select([`port:${lab.portName(port)}`])}>
      <i style=${{background: colourOf(measure, column[port], theme)}}></i><span>${lab.portName(port)}</span><b>${measureText(measure, column[port])}</b></button></li>`)}</ol>`
    : html`<p class="soft">${column && column.some(value => value >= 0) ? "Nothing anywhere." : "Not measured yet, or not at all."}</p>`}`;
};

const Events = ({app, lab, events}) => {
  if (!events.length) return null;
  const last = events.slice(-MOST).reverse();
  return html`<h3>Events</h3><ol class="events">${last.map((one, at) => html`<li key=${`${one.t} ${at}`}>
    <button type="button" title=${`Show ${timeText(one.t, lab.clock)}`} onClick=${() => { app.at(one.t); if (one.node && lab.nodeNumber.has(one.node)) app.select([`node:${one.node}`]); }}>
      <time>${timeText(one.t, lab.clock)}</time><span>${[one.kind, one.node, one.subject].filter(Boolean).join(" ")}</span></button></li>`)}</ol>`;
};

export const stateKind = word => ({running: "ok", up: "ok", Established: "ok", degraded: "warn", starting: "warn", off: "none"})[word] || "bad";

const One = ({app, id}) => {
  const cut = id.indexOf(":"), kind = id.slice(0, cut), name = id.slice(cut + 1);
  if (kind === "node") return html`<${NodeFacts} app=${app} name=${name} />`;
  if (kind === "port" || kind === "link") return html`<${PortFacts} app=${app} name=${name} whole=${kind === "link"} />`;
  return html`<${Other} app=${app} kind=${kind} name=${name} />`;
};

const Head = ({app, title, kind, children}) => html`<div class="panel-head"><div><h2>${title}</h2><p class="soft">${kind}</p></div>
  <button type="button" class="button plain" aria-label="Let go of the selection" onClick=${() => app.select([])}>✕</button></div>${children}
  <p class="row"><${Button} onClick=${event => { const box = event.currentTarget.getBoundingClientRect(); openActions(app, {x: box.left, y: box.bottom + 4}); }}>Actions <kbd>.</kbd></${Button}>
    <${Button} onClick=${() => app.go({view: "time"})}>Over time</${Button}></p>`;

const NodeFacts = ({app, name}) => {
  const {lab, shown} = useStore(app.live), [more, setMore] = useState(null);
  const number = lab.nodeNumber.get(name);
  useEffect(() => {
    const stop = new AbortController();
    setMore(null);
    if (number !== undefined) app.get(`./node/${encodeURIComponent(name)}`, stop.signal).then(setMore, () => {});
    return () => stop.abort();
  }, [name, lab]);
  if (number === undefined) return html`<${Gone} app=${app} name=${name} />`;
  const {nodes} = lab, state = shown && shown.state ? shown.state.nodes[number] : "";
  return html`<${Head} app=${app} title=${name} kind=${[nodes.role[number] || nodes.kind[number], nodes.network[number]].filter(Boolean).join(" · ")} />
    <dl class="facts">
      ${state && html`<dt>state</dt><dd><i class=${`dot ${stateKind(state)}`}></i>${state}</dd>`}
      ${more && more.addresses && more.addresses.length ? html`<dt>address</dt><dd class="mono">${more.addresses[0]}</dd>` : null}
      ${more && more.missing_daemons && more.missing_daemons.length ? html`<dt>missing</dt><dd class="bad">${more.missing_daemons.join(", ")}</dd>` : null}
      ${more && more.pids && Object.keys(more.pids).length ? html`<dt>processes</dt><dd>${Object.keys(more.pids).join(", ")}</dd>` : null}
      ${nodes.runtime[number] && nodes.runtime[number] !== "netns" ? html`<dt>runtime</dt><dd>${nodes.runtime[number]}${more && more.image ? ` · ${more.image}` : ""}</dd>` : null}
      ${more && more.labels ? Object.entries(more.labels).map(([key, value]) => html`<dt>${key}</dt><dd>${value}</dd>`) : null}
    </dl>
    <${Ports} app=${app} lab=${lab} shown=${shown} ports=${lab.portsOfNode[number]} />`;
};

// The ports of a selection with the values of the measure in both directions.
const Ports = ({app, lab, shown, ports, named = false}) => {
  const measure = useStore(app.address, a => a.measure), theme = useTheme(), [all, setAll] = useState(false);
  const column = shown && shown.columns && shown.columns[measure];
  if (!ports.length) return html`<p class="soft">It has no ports.</p>`;
  const some = all ? ports : ports.slice(0, MOST_PORTS);
  const cell = port => port < 0 || !column ? html`<td class="num">–</td>` : html`<td class="num"><i class="swatch" style=${{background: colourOf(measure, column[port], theme) || "transparent"}}></i>${measureText(measure, column[port])}</td>`;
  const links = shown && shown.state && shown.state.links;
  return html`<table class="ports"><thead><tr><th>${plural(ports.length, "port")}</th><th>peer</th><th class="num">sends</th><th class="num">gets</th></tr></thead>
    <tbody>${some.map(port => html`<tr key=${port} class=${links && links[port] === 0 ? "down" : links && links[port] === 2 ? "changed" : ""}>
      <td><button type="button" onClick=${() => app.select([`port:${lab.portName(port)}`])}>${named ? lab.portName(port) : lab.ports.name[port]}</button></td>
      <td>${lab.ports.peer[port] >= 0 ? lab.nodes.name[lab.ports.node[lab.ports.peer[port]]] : "–"}</td>${cell(port)}${cell(lab.ports.peer[port])}</tr>`)}</tbody></table>
    ${some.length < ports.length && html`<${Button} kind="small" onClick=${() => setAll(true)}>All ${countText(ports.length)}</${Button}>`}`;
};

const LINK_WORDS = ["down", "up", "up, changed"];

const PortFacts = ({app, name, whole}) => {
  const {lab, shown} = useStore(app.live), theme = useTheme(), port = lab.portNumber.get(name);
  if (port === undefined) return html`<${Gone} app=${app} name=${name} />`;
  const {ports} = lab, peer = ports.peer[port], columns = shown && shown.columns, state = shown && shown.state;
  const condition = state && state.conditions && state.conditions[name], up = state ? state.links[port] : undefined;
  const cell = (metric, at) => at < 0 || !columns || !columns[metric] ? "–" : measureText(metric, columns[metric][at]);
  const swatch = (metric, at) => html`<i class="swatch" style=${{background: (columns && columns[metric] && at >= 0 && colourOf(metric, columns[metric][at], theme)) || "transparent"}}></i>`;
  const use = columns && columns.use && columns.use[port] >= 0 ? rateText(ports.rate_bps[port] * columns.use[port] / 1000) : "–";
  return html`<${Head} app=${app} title=${name} kind=${`${whole ? "link" : "port"} · ${lab.networks.length ? (lab.networks[ports.network[port]] || {}).name || "" : ""}`} />
    <dl class="facts">
      ${peer >= 0 && html`<dt>peer</dt><dd><button type="button" class="link" onClick=${() => app.select([`port:${lab.portName(peer)}`])}>${lab.portName(peer)}</button></dd>`}
      <dt>rate</dt><dd>${rateText(ports.rate_bps[port])}</dd>
      <dt>sends</dt><dd>${use}</dd>
      ${up !== undefined && html`<dt>link</dt><dd class=${up === 0 ? "bad" : up === 2 ? "warn" : ""}>${LINK_WORDS[up]}</dd>`}
      ${condition && html`<dt>changed</dt><dd>${condition}</dd>`}
    </dl>
    <table class="ports"><thead><tr><th><span class="unseen">what</span></th><th class="num">sends</th><th class="num">gets</th></tr></thead>
      <tbody>${lab.metrics.map(metric => html`<tr key=${metric}><td>${METRICS[metric].title}</td><td class="num">${swatch(metric, port)}${cell(metric, port)}</td><td class="num">${swatch(metric, peer)}${cell(metric, peer)}</td></tr>`)}</tbody></table>
    <p><${Button} kind="small" onClick=${() => app.select([`node:${lab.nodes.name[ports.node[port]]}`])}>Its node</${Button}></p>`;
};

const Other = ({app, kind, name}) => {
  const {lab, shown} = useStore(app.live), ports = portsOf(lab, [`${kind}:${name}`]);
  return html`<${Head} app=${app} title=${name} kind=${kind} />
    ${ports.length ? html`<${Ports} app=${app} lab=${lab} shown=${shown} ports=${ports} named />` : html`<p class="soft">The table has its figures.</p>`}`;
};

const Several = ({app, ids}) => {
  const {lab, shown} = useStore(app.live), ports = portsOf(lab, ids);
  return html`<${Head} app=${app} title=${`${ids.length} selected`} kind=${plural(ports.length, "port")} />
    <ul class="chosen">${ids.slice(0, MOST_PORTS).map(id => html`<li key=${id}><${Pill}>${id.slice(id.indexOf(":") + 1)}
      <button type="button" class="plain" aria-label=${`Without ${id}`} onClick=${() => app.select([id], {add: true})}>✕</button></${Pill}></li>`)}</ul>
    <${Ports} app=${app} lab=${lab} shown=${shown} ports=${ports} named />`;
};

const Gone = ({app, name}) => html`<${Head} app=${app} title=${name} kind="is not in this lab" />`;
