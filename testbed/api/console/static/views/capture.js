// Packets of several ports while they pass, decoded; the same as a file, and as a line for one's own Wireshark.
import {html, useEffect, useRef, useState} from "../core/lib.js";
import {useStore} from "../core/store.js";
import {Button, CopyLine, Empty, Field, Pill} from "../core/ui.js";
import {bytesText, countText, plural} from "../core/format.js";

const MOST_ROWS = 2000, MOST_PORTS = 8;
// What was captured is kept while one looks at another view. The server ends a capture that nobody has asked for half a minute.
const kept = {base: null, capture: null, rows: [], told: null};

const CaptureView = ({app}) => {
  const {lab, console} = useStore(app.live), params = useStore(app.address, a => a.params), base = useStore(app.address, a => a.base);
  if (kept.base !== base) Object.assign(kept, {base, capture: null, rows: [], told: null});
  const [ports, setPorts] = useState(params.ports || ""), [words, setWords] = useState(params.filter || ""), [count, setCount] = useState("");
  const [capture, setCapture] = useState(kept.capture), [rows, setRows] = useState(kept.rows), [told, setTold] = useState(kept.told);
  const [still, setStill] = useState(false), [only, setOnly] = useState(""), [error, setError] = useState(null), body = useRef(null), held = useRef(false);
  held.current = still;
  useEffect(() => { if (params.ports) setPorts(params.ports); }, [params.ports]);
  useEffect(() => {
    if (!capture || (kept.told && kept.told.over)) return undefined;
    const stop = new AbortController();
    const read = async () => {
      for (;;) {
        const after = kept.rows.length ? kept.rows[kept.rows.length - 1].number : 0;
        const found = await app.get(`./views/capture/${capture.id}/rows?after=${after}&frames=${kept.told ? kept.told.frames : 0}`, stop.signal);
        kept.rows = [...kept.rows, ...found.rows].slice(-MOST_ROWS);
        kept.told = found;
        setTold(found);
        if (!held.current) setRows(kept.rows);
        if (found.over && !found.rows.length) return;
      }
    };
    read().catch(refused => { if (refused.name !== "AbortError") setError(refused); });
    return () => stop.abort();
  }, [capture]);
  useEffect(() => { if (!still && body.current) body.current.scrollTop = body.current.scrollHeight; }, [rows]);
  const begin = async event => {
    event.preventDefault();
    setError(null);
    const names = ports.split(/[\s,]+/).filter(Boolean);
    try {
      if (capture && kept.told && !kept.told.over) await app.post(`./views/capture/${capture.id}/stop`);
      const found = await app.post("./views/capture/start", {ports: names, filter: words.trim(), ...(count && {count: Number(count)})});
      Object.assign(kept, {capture: found, rows: [], told: null});
      setRows([]);
      setTold(null);
      setCapture(found);
      app.setParam({ports: names.join(" "), filter: words.trim()});
    } catch (refused) { setError(refused); }
  };
  const end = () => app.post(`./views/capture/${capture.id}/stop`).catch(refused => setError(refused));
  const goes = capture && !(told && told.over), low = only.toLowerCase();
  const shown = low ? rows.filter(row => `${row.port} ${row.source} ${row.destination} ${row.transport} ${row.kind} ${row.text}`.toLowerCase().includes(low)) : rows;
  const names = ports.split(/[\s,]+/).filter(Boolean), allowed = console.write;
  return html`<div class="page capture">
    <header class="page-head"><h2 class="title">Capture</h2>${goes && html`<${Pill} kind="ok">capturing</${Pill}>`}${told && told.over && html`<${Pill}>${told.over}</${Pill}>`}
      ${told && html`<span class="soft">${plural(told.frames, "frame")}, ${bytesText(told.bytes)}</span>`}<span class="grow"></span>
      ${capture && html`<a class="button" download href=${`${base}/views/capture/${capture.id}/file`}>Download pcapng</a>`}</header>
    <form class="capture-form" onSubmit=${begin}>
      <${Field} label="Ports" hint=${names.length > MOST_PORTS ? `at most ${MOST_PORTS}` : "NODE:IF, several with spaces"}><input type="text" value=${ports} placeholder="p1-s1-h1:rail1 p1-s1-rail1:uplink1" spellcheck=${false} list="capture-ports" onInput=${event => setPorts(event.target.value)} /></${Field}>
      <${Field} label="Filter" hint="as tcpdump has it"><input type="text" value=${words} placeholder="udp port 4791" spellcheck=${false} onInput=${event => setWords(event.target.value)} /></${Field}>
      <${Field} label="Packets of each" hint="empty: until it is stopped"><input type="text" inputmode="numeric" value=${count} onInput=${event => setCount(event.target.value.replace(/\D/g, ""))} /></${Field}>
      <span class="capture-buttons">${goes ? html`<${Button} onClick=${end}>Stop</${Button}>` : null}
        <button type="submit" class="button primary" disabled=${!allowed || !names.length || names.length > MOST_PORTS} title=${allowed ? "" : "This console only reads: it was started without --write"}>${goes ? "Begin anew" : "Capture"}</button></span>
    </form>
    ${error && html`<p class="bad" role="alert">${[error.message, error.hint].filter(Boolean).join(" — ")}</p>`}
    ${told && told.problems.map((one, at) => html`<p class="bad" role="alert" key=${at}>${one}</p>`)}
    ${capture && html`<details class="pipes"><summary>Into your own Wireshark</summary>${capture.pipes.map(line => html`<${CopyLine} key=${line} text=${line} />`)}</details>`}
    ${!capture ? html`<${Empty} title="Nothing is captured">${lab && allowed ? "Choose ports here, or select some on the map and press c." : "This console only reads: it was started without --write."}</${Empty}>`
    : html`<p class="row"><input type="search" aria-label="Only rows with" placeholder="Only rows with …" value=${only} onInput=${event => setOnly(event.target.value)} /><${Button} kind="small" pressed=${still} onClick=${() => { if (still) setRows(kept.rows); setStill(!still); }}>Hold still</${Button}>
        ${told && Object.entries(told.others).map(([what, number]) => html`<${Pill} key=${what}>${countText(number)} ${what}</${Pill}>`)}</p>
      <div ref=${body} class="packets" tabindex="0" role="region" aria-label="Packets"><table class="table"><thead><tr><th scope="col" class="num">no.</th><th scope="col" class="num">s</th><th scope="col">port</th><th scope="col">from</th><th scope="col">to</th><th scope="col">transport</th><th scope="col">packet</th><th scope="col" class="num">bytes</th></tr></thead>
        <tbody>${shown.slice(-500).map(row => html`<tr key=${row.number} class=${row.damaged ? "damaged" : row.trimmed ? "trimmed" : row.marked ? "marked" : ""}><td class="num">${row.number}</td><td class="num">${row.time_s.toFixed(6)}</td><td>${row.port}</td><td>${row.source}</td><td>${row.destination}</td><td>${row.transport}</td><td class="mono">${row.text}</td><td class="num">${row.length}</td></tr>`)}</tbody></table>
        ${!shown.length && html`<p class="soft">${goes ? "No packet of our transports has passed yet." : "No packet of our transports is among them."}</p>`}</div>`}
  </div>`;
};

export default {
  name: "capture",
  title: "Capture",
  order: 80,
  component: CaptureView,
  panel: false,
  start(app) {
    app.services.capture = ports => app.go({view: "capture", params: {ports: ports.slice(0, MOST_PORTS).join(" ")}});
    const chosen = () => app.targets().filter(one => one.kind === "port" || one.kind === "link");
    app.key({key: "c", title: "Capture the port", group: "What is selected", when: () => chosen().length > 0 && Boolean(app.live.get().lab && app.live.get().lab.live), run: () => app.services.capture(chosen().map(one => one.name))});
  },
};
