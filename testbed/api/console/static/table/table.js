// The view "Table": ports, queues, sessions, routes, GPUs, planes, tenants, services. The server sorts and filters, by the words of
// the command line; the page shows a part of it, and says how much there is.
import {html, useEffect, useRef, useState} from "../core/lib.js";
import {useStore} from "../core/store.js";
import {Empty, Failure, Pill, Spinner, Tabs} from "../core/ui.js";
import {METRICS, bytesText, countText} from "../core/format.js";
import {useTheme} from "../core/frame.js";
import {openActions} from "../core/keys.js";
import {colourOf} from "../core/scales.js";
import {onHold} from "../core/touch.js";

const numeric = column => column.numeric || Boolean(column.unit);
const PART = 200, AGAIN_MS = 1000;
const UNITS = {"%": value => `${value} %`, B: bytesText, "packets/s": value => `${countText(value)}/s`, ms: value => `${+value.toPrecision(4)} ms`};

// Words as the server takes them: one that is no name and has no wildcards is looked for anywhere in names.
const wordsOf = (filter, lab) => filter.split(/[\s,]+/).filter(Boolean)
  .map(word => /[*?[=]/.test(word) || lab.nodeNumber.has(word) || lab.portNumber.has(word) ? word : word.includes(":") ? `${word}*` : `*${word}*`).join(" ");

const query = ({filter, off, networks, sort, offset, moment}, more = {}) => {
  const words = new URLSearchParams({offset: String(offset), limit: String(PART), ...more});
  if (filter) words.set("q", filter);
  if (off.length) words.set("network", networks.filter(name => !off.includes(name)).join(","));
  if (sort) { words.set("sort", sort.replace(/^-/, "")); words.set("order", sort.startsWith("-") ? "desc" : "asc"); }
  if (moment !== null) words.set("t", String(moment));
  return words.toString();
};

const TableView = ({app}) => {
  const lab = useStore(app.live, l => l.lab), address = useStore(app.address);
  const {tables} = lab, name = tables.some(one => one.name === address.params.table) ? address.params.table : (tables[0] || {}).name;
  const {filter, off, moment, selection} = address, sort = address.params.sort || "", [offset, setOffset] = useState(0);
  const [found, setFound] = useState(null), [failed, setFailed] = useState(null), body = useRef(null);
  const networks = lab.networks.map(one => one.name), selected = new Set(selection);

  useEffect(() => { setFound(null); setOffset(0); }, [name]);
  useEffect(() => setOffset(0), [filter, off, sort]);
  useEffect(() => {
    if (!name) return undefined;
    let timer = 0;
    const stop = new AbortController();
    let ofNow = moment === null;
    const load = async () => {
      try {
        const page = await app.get(`./table/${name}?${query({filter: wordsOf(filter, lab), off, networks, sort, offset, moment})}`, stop.signal);
        ofNow = moment === null || page.of_now;
        setFound({name, ...page});
        setFailed(null);
      } catch (error) {
        if (error.name === "AbortError") return;
        setFailed(error);
      }
      if (lab.live && ofNow) timer = setTimeout(load, document.hidden ? AGAIN_MS * 10 : AGAIN_MS);
    };
    load();
    return () => { stop.abort(); clearTimeout(timer); };
  }, [name, filter, off, sort, offset, moment, lab]);

  if (!tables.length) return html`<${Empty} title="No tables">Nothing of this is kept in tables.</${Empty}>`;
  const csv = `${app.address.get().base}/table/${name}?${query({filter: wordsOf(filter, lab), off, networks, sort, offset: 0, moment}, {format: "csv", limit: "1000000"})}`;
  const tabs = tables.map(one => ({value: one.name, title: one.title}));
  return html`<div class="table-view">
    <div class="table-head"><${Tabs} label="Tables" value=${name} options=${tabs} onChange=${table => app.setParam({table: table === tables[0].name ? null : table, sort: null})} />
      ${moment !== null && lab.live && found && found.name === name && found.of_now && html`<${Pill} kind="warn">live, and not of the moment that is shown</${Pill}>`}
      <a class="button small" href=${csv} download=${`${lab.name}-${name}.csv`}>CSV</a></div>
    ${failed && failed.status === 400 && filter ? html`<${Empty} title="Nothing matches">${failed.message}${failed.hint && `: ${failed.hint}`}</${Empty}>` : failed ? html`<${Failure} error=${failed} />` : !found || found.name !== name ? html`<${Spinner} />` : html`
      <${Rows} app=${app} found=${found} sort=${sort} selected=${selected} body=${body} filter=${filter} title=${tabs.find(one => one.value === name).title} />
      <${Pages} found=${found} offset=${offset} setOffset=${value => { setOffset(value); if (body.current) body.current.scrollTop = 0; }} />`}
  </div>`;
};

const Rows = ({app, found, sort, selected, body, filter, title}) => {
  const theme = useTheme();
  const turn = column => {
    const ways = [column.name, `-${column.name}`];
    if (numeric(column)) ways.reverse();  // the largest first
    app.setParam({sort: sort === ways[0] ? ways[1] : sort === ways[1] ? null : ways[0]});
  };
  const pick = (key, event) => { if (key) app.select([key], {add: event.shiftKey || event.ctrlKey || event.metaKey}); };
  const keys = event => {
    const row = event.target.closest("tr[data-key]");
    if (!row) return;
    const to = {ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling, Home: row.parentNode.firstElementChild, End: row.parentNode.lastElementChild}[event.key];
    if (to) { event.preventDefault(); event.stopPropagation(); to.focus(); }
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); pick(row.dataset.key, event); }
  };
  const context = (key, event) => {
    if (!key) return;
    event.preventDefault();
    if (!app.address.get().selection.includes(key)) app.select([key]);
    openActions(app, {x: event.clientX, y: event.clientY});
  };
  const some = found.rows.length > 0;
  useEffect(() => some && body.current ? onHold(body.current, event => { const row = event.target.closest("tr[data-key]"); if (row) context(row.dataset.key, event); }) : undefined, [some]);
  if (!found.rows.length) return html`<${Empty} title=${filter ? "Nothing matches" : "There are none"}>${filter ? `No row has "${filter}".` : `This has no ${title.toLowerCase()}.`}</${Empty}>`;
  const first = found.keys.findIndex(key => selected.has(key));
  return html`<div class="rows" ref=${body} tabindex="-1"><table class="table" role="grid" aria-label=${title} aria-rowcount=${found.matched}>
    <thead><tr>${found.columns.map(column => {
      const way = sort === column.name ? "ascending" : sort === `-${column.name}` ? "descending" : "none";
      return html`<th key=${column.name} class=${numeric(column) ? "num" : ""} aria-sort=${way}><button type="button" onClick=${() => turn(column)}>${column.heading || column.name}<i aria-hidden="true">${way === "ascending" ? "▲" : way === "descending" ? "▼" : ""}</i></button></th>`;
    })}</tr></thead>
    <tbody onKeyDown=${keys}>${found.rows.map((row, at) => {
      const key = found.keys[at];
      return html`<tr key=${at} data-key=${key} tabindex=${at === Math.max(0, first) ? 0 : -1} aria-selected=${String(selected.has(key))} onClick=${event => pick(key, event)} onContextMenu=${event => context(key, event)}>
        ${row.map((value, column) => html`<${Cell} column=${found.columns[column]} value=${value} theme=${theme} />`)}</tr>`;
    })}</tbody></table></div>`;
};

const Cell = ({column, value, theme}) => {
  if (value === null || value === undefined || value === "") return html`<td class=${numeric(column) ? "num" : ""}>–</td>`;
  const text = typeof value === "number" && UNITS[column.unit] ? UNITS[column.unit](value) : typeof value === "number" ? value.toLocaleString("en", {maximumFractionDigits: 3}) : Array.isArray(value) ? value.join(", ") : typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
  const hue = METRICS[column.name] && typeof value === "number" ? colourOf(column.name, column.unit === "%" ? value * 10 : value, theme) : null;
  const word = column.name === "state" ? ({running: "ok", up: "ok", Established: "ok", degraded: "warn", down: "bad"})[text] : null;
  return html`<td class=${numeric(column) ? "num" : ""}>${hue && html`<i class="swatch" style=${{background: hue}}></i>`}${word && html`<i class=${`dot ${word}`}></i>`}${text}</td>`;
};

const Pages = ({found, offset, setOffset}) => html`<div class="pages" role="status">
  <span>${found.matched ? `${countText(offset + 1)} – ${countText(offset + found.rows.length)} of ${countText(found.matched)}` : ""}${found.matched < found.total ? `, of ${countText(found.total)} in all` : ""}</span>
  ${found.matched > PART && html`<button type="button" class="button small" disabled=${offset === 0} onClick=${() => setOffset(Math.max(0, offset - PART))}>Before</button>
    <button type="button" class="button small" disabled=${offset + PART >= found.matched} onClick=${() => setOffset(offset + PART)}>After</button>`}</div>`;

export const tableView = {name: "table", title: "Table", order: 20, scope: "base", live: true, recorded: true, measures: true, component: TableView};
