// The job on a lab: points and runs, the traffic and the step that is in flight, who is furthest behind, and which queue holds
// them up; faults on the time axis; at its end the verdict, and the report in its place. A run that is played back has all
// of it at once.
import {html, useEffect, useState} from "../core/lib.js";
import {useStore} from "../core/store.js";
import {Button, CopyLine, Empty, Failure, Pill, Spinner, useTurn} from "../core/ui.js";
import {bytesText, plural, rateText, shareText, spanText, timeText} from "../core/format.js";

const VERDICTS = {pass: "ok", fail: "bad", invalid: "warn"};

const JobView = ({app}) => {
  const lab = useStore(app.live, live => live.lab), [found, setFound] = useState(null), [error, setError] = useState(null), turn = useTurn(error);
  useEffect(() => {
    let stale = false;
    const load = () => app.get("./views/job").then(data => { if (!stale) { setFound(data); setError(null); } }, refused => { if (!stale) setError(refused); });
    load();
    const again = app.on("snapshot", load);  // what was told while nobody saw the page is not told again
    const stop = app.on("view", ({view, data}) => { if (view === "job" && !stale) setFound(now => ({...(now || {recorded: null}), ...data})); });
    return () => { stale = true; stop(); again(); };
  }, [lab, turn]);
  if (error) return html`<${Failure} error=${error} />`;
  if (!found) return html`<${Spinner} />`;
  if (found.recorded) return html`<${Recorded} app=${app} job=${found.recorded} />`;
  if (!found.jobs.length && !found.ended.length) {
    return html`<${Empty} title="No scenario runs on this lab" action=${app.live.get().console.write && html`<${Button} onClick=${() => app.serve("ask", "run", [])}>Run a scenario …</${Button}>`}>
      Whoever starts one, from here or from a terminal (./lab run), it appears here by itself.</${Empty}>`;
  }
  return html`<div class="page job"><h2 class="title">Job</h2>
    ${found.jobs.map(job => html`<${Running} app=${app} job=${job} key=${job.pid} />`)}
    ${[...found.ended].reverse().map((one, at) => html`<${Ended} app=${app} job=${one} key=${at} />`)}
  </div>`;
};

// --- while it runs -------------------------------------------------------------------------------------------

const Running = ({app, job}) => {
  const [, again] = useState(0), point = job.points.find(one => one.index === job.point), share = job.total ? job.done / job.total : 0;
  useEffect(() => { const timer = setInterval(() => again(one => one + 1), 500); return () => clearInterval(timer); }, []);
  const runs = job.points.reduce((sum, one) => sum + one.done, 0), all = job.points.length * job.runs;
  const elapsed = job.traffic_began ? Date.now() / 1000 - job.traffic_began : null;
  return html`<section class="card" aria-label=${`The scenario ${job.scenario}`}>
    <header class="job-head"><h2>${job.scenario}</h2><${Pill}>${job.workload}</${Pill}><${Pill}>${job.transport}</${Pill}><span class="soft">${spanText(Date.now() / 1000 - job.started)}</span></header>
    <p class="soft mono">${job.command}</p>
    <div class="job-bars">
      <label><span>${plural(job.points.length, "point")}, ${runs} of ${plural(all, "run")} done</span><progress max=${all} value=${runs}></progress></label>
      <label><span>${phaseText(job)}</span><progress max="1" value=${Math.min(1, share)}></progress></label>
    </div>
    ${job.points.length > 1 && html`<ol class="points" aria-label="Points">${job.points.map(one => html`<li key=${one.index} class=${one.state} title=${`${one.name || "the only point"}: ${one.state}, ${one.done} of ${job.runs}`}>${one.name || one.index}</li>`)}</ol>`}
    ${point && point.name && html`<p>Now: <b>${point.name}</b>, run ${job.run} of ${job.runs}</p>`}
    ${elapsed !== null && job.faults.some(one => one.at_s !== null) && html`<${Axis} faults=${job.faults.filter(one => one.at_s !== null)} now=${elapsed} />`}
    <${Behind} app=${app} job=${job} />
  </section>`;
};

const phaseText = job => {
  if (job.phase === "lab" || !job.phase) return "its lab is being made ready";
  if (job.phase === "servers") return `receivers: ${Math.round(job.done)} of ${Math.round(job.total)}`;
  if (job.phase === "run") return `run ${job.run} has ended`;
  return job.total === 1 ? `traffic: ${shareText(Math.round(job.done * 1000))} of its bytes have arrived` : `traffic: ${job.done.toFixed(0)} of ${job.total.toFixed(0)} s`;
};

const Behind = ({app, job}) => {
  const list = job.behind || [];
  if (!list.length) return null;
  const [first] = list;
  return html`<h3>Furthest behind</h3>
    <p>${first.label ? html`Step <b>${first.label}</b> is in flight${first.collective ? html`, of <b>${first.collective}</b>` : ""}.` : first.collective}</p>
    <table class="table behind"><thead><tr><th scope="col">host</th><th scope="col" class="num">has got</th><th scope="col">waits for</th><th scope="col">from</th><th scope="col"><span class="unseen">what of it</span></th></tr></thead>
      <tbody>${list.map(one => html`<tr key=${one.host}><td><button type="button" class="link" onClick=${() => app.select([`node:${one.host}`])}>${one.host}</button></td>
        <td class="num">${shareText(Math.round(one.share * 1000))}</td><td>${one.label || "–"}</td>
        <td>${one.source ? `rank ${one.source_rank}, ${one.source}` : "–"}</td>
        <td>${one.source && one.destination && html`<${Path} app=${app} flow=${one} transport=${job.transport.split(", ")[0]} />`}</td></tr>`)}</tbody></table>
    <${Ways} app=${app} />`;
};

// Asks for the ways of a flow: its ports are selected, so that map, table and charts show them.
const Path = ({app, flow, transport}) => {
  const [busy, setBusy] = useState(false);
  const ask = async () => {
    setBusy(true);
    const words = new URLSearchParams({source: flow.source, destination: flow.destination, source_port: flow.source_port || 0, destination_port: flow.destination_port || 0, transport});
    try {
      const found = await app.get(`./views/job/path?${words}`);
      ways.flow = flow;
      ways.found = found;
      ways.version += 1;
      app.select(found.ports.map(port => `port:${port}`));
    } catch (error) { app.say([error.message, error.hint].filter(Boolean).join(" — "), {kind: "bad"}); }
    setBusy(false);
  };
  return html`<${Button} kind="small" disabled=${busy} onClick=${ask}>${busy ? "Following …" : "Path"}</${Button}>`;
};
const ways = {flow: null, found: null, version: 0};

const Ways = ({app}) => {
  useStore(app.address, a => a.selection);
  const {flow, found} = ways;
  if (!found) return null;
  return html`<section class="ways" aria-label="The path of the flow"><h3>${flow.source} → ${flow.destination}</h3>
    <table class="table"><thead><tr><th scope="col">hop</th><th scope="col">port</th><th scope="col">to</th><th scope="col" class="num">queue now</th><th scope="col" class="num">deepest of ${found.over_s} s</th><th scope="col" class="num">it waits</th><th scope="col" class="num">load</th><th scope="col" class="num">dropped</th></tr></thead>
      <tbody>${found.hops.map((hop, at) => html`<tr key=${at} class=${`${hop.node}:${hop.interface}` === found.holds ? "holds" : ""}>
        <td>${hop.hop}</td><td><button type="button" class="link" onClick=${() => app.select([`port:${hop.node}:${hop.interface}`])}>${hop.node}:${hop.interface}</button></td><td>${hop.peer}</td>
        <td class="num">${bytesText(hop.queue_bytes)}</td><td class="num">${bytesText(hop.deepest_bytes)}</td><td class="num">${hop.wait_s ? `${(hop.wait_s * 1000).toPrecision(3)} ms` : "–"}</td>
        <td class="num">${hop.load_bps != null ? `${rateText(hop.load_bps)} of ${rateText(hop.rate_bps)}` : "–"}</td><td class="num">${hop.dropped_packets}</td></tr>`)}</tbody></table>
    <p>${found.holds ? html`<b>${found.holds}</b> holds it up: packets wait there longest.` : `No queue on its way held anything when it was looked at, twice a second, for ${found.over_s} s.`}${found.certain ? "" : " It may take other ways, too: not all that chooses them is known."}
      ${found.lost.map(line => html`<span class="bad"> ${line}</span>`)} <button type="button" class="link" onClick=${() => app.go({view: "map"})}>See it on the map</button></p></section>`;
};

// Faults as spans on the axis of the run, with where it is now.
const Axis = ({faults, now = null, events = [], end = null, onChoose}) => {
  const last = Math.max(end || 0, now || 0, ...faults.map(one => one.until_s ?? one.at_s), end ? 0 : 1) * 1.05, text = seconds => seconds < 1 ? timeText(seconds, "run") : `${seconds.toFixed(1)} s`;
  const at = seconds => `${Math.min(100, 100 * seconds / last)}%`;
  return html`<div class="axis" role="img" aria-label=${`Faults over ${text(last)}: ${faults.map(one => `${one.kind} of ${one.target} at ${one.at_s} s`).join(", ") || "none"}`}>
    ${faults.map((one, row) => html`<div key=${row} class="axis-row"><span class="axis-name" title=${one.detail}>${one.kind} ${one.target}</span>
      <span class="axis-line"><i style=${{left: at(one.at_s), width: `calc(${at((one.until_s ?? last) - one.at_s)} + 2px)`}}></i>${now !== null && html`<u style=${{left: at(now)}}></u>`}</span></div>`)}
    <div class="axis-row"><span class="axis-name"></span><span class="axis-ticks"><span>0 s</span><span>${text(last / 2)}</span><span>${text(last)}</span></span></div>
  </div>`;
};

// --- when it has ended ---------------------------------------------------------------------------------------

const Verdict = ({verdict, reasons, incomplete}) => html`<p class="verdict-line"><${Pill} kind=${VERDICTS[verdict] || "bad"}>${verdict || "broken off"}</${Pill}>
  <span>${(reasons || []).slice(0, 3).join("; ") || (incomplete ? `It ended early: ${incomplete}` : "Everything was as expected.")}</span></p>`;

const Expectations = ({list}) => list && list.length ? html`<table class="table"><thead><tr><th scope="col">expected</th><th scope="col">point</th><th scope="col" class="num">from</th><th scope="col" class="num">to</th><th scope="col" class="num">measured</th><th scope="col"><span class="unseen">what of it</span></th></tr></thead>
  <tbody>${list.map((one, at) => html`<tr key=${at}><td>${one.title}</td><td>${one.point || "–"}</td><td class="num">${valueText(one.minimum, one.unit)}</td><td class="num">${valueText(one.maximum, one.unit)}</td>
    <td class="num"><b>${valueText(one.measured, one.unit)}</b></td><td><${Pill} kind=${VERDICTS[one.outcome]}>${one.outcome}</${Pill}></td></tr>`)}</tbody></table>` : null;

export const valueText = (value, unit) => {
  if (value === null || value === undefined) return "–";
  if (unit === "share" || unit === "ratio") return unit === "share" ? `${+(100 * value).toPrecision(3)} %` : `${+value.toPrecision(3)} ×`;
  if (unit === "bit/s") return rateText(value);
  if (unit === "byte") return bytesText(value);
  if (unit === "s") return value >= 1 || value === 0 ? `${+value.toPrecision(3)} s` : value >= 1e-3 ? `${+(value * 1e3).toPrecision(3)} ms` : `${+(value * 1e6).toPrecision(3)} µs`;
  return `${+value.toPrecision(4)}${unit && unit !== "count" ? ` ${unit}` : ""}`;
};

const Ended = ({app, job}) => html`<section class="card"><header class="job-head"><h2>${job.scenario}</h2><span class="soft">has ended</span></header>
  <${Verdict} ...${job} /><${Expectations} list=${job.expectations} />
  ${job.name && html`<p class="row"><${Button} onClick=${() => app.go({base: null, view: "results", params: {open: job.name}})}>Record and report</${Button}></p>`}</section>`;

const Recorded = ({app, job}) => {
  const shown = useStore(app.live, live => live.shown), [report, setReport] = useState(false), base = useStore(app.address, a => a.base), now = shown ? shown.t : 0;
  const seconds = now, flight = job.collectives.filter(one => one.start_s <= seconds && seconds <= one.end_s);
  const others = job.points.map((name, number) => ({name, number})), here = base.split("/");
  const other = (point, run) => app.go({base: [...here.slice(0, -2), point, run].join("/"), view: "job"});
  const faults = spansOf(job.events);
  const touched = job.events.filter(one => one.kind === "touched");
  return html`<div class="page job"><header class="page-head"><h2 class="title">${job.scenario}</h2>
      ${job.points.length > 1 && html`<label class="soft">Point <select value=${here[here.length - 2]} onChange=${event => other(event.target.value, job.runs[0])}>${others.map(one => html`<option key=${one.number} value=${one.number}>${one.name || "the only one"}</option>`)}</select></label>`}
      ${job.runs.length > 1 && html`<label class="soft">Run <select value=${here[here.length - 1]} onChange=${event => other(here[here.length - 2], event.target.value)}>${job.runs.map(one => html`<option key=${one} value=${one}>${one}</option>`)}</select></label>`}
      <span class="grow"></span><${Button} pressed=${report} onClick=${() => setReport(!report)}>Report</${Button}></header>
    ${job.description && html`<p class="soft">${job.description}</p>`}
    <${Verdict} ...${job} />
    ${touched.length > 0 && html`<div class="failure" role="alert"><strong>This run was touched</strong>${touched.map((one, at) => html`<p key=${at}>${timeText(one.at_s, "run")}, ${one.target}: ${one.detail}</p>`)}</div>`}
    ${report ? html`<iframe class="report" title="Report" src=${`${base}/report`} sandbox=""></iframe>` : html`
    <div class="job-grid">
      <section class="card"><h2>Expected and measured</h2><${Expectations} list=${job.expectations} />
        <table class="table"><thead><tr><th scope="col">of this point</th><th scope="col" class="num">median</th><th scope="col" class="num">least</th><th scope="col" class="num">most</th></tr></thead>
          <tbody>${job.metrics.map((one, at) => html`<tr key=${at}><td>${one.title}</td><td class="num"><b>${valueText(one.median, one.unit)}</b></td><td class="num">${valueText(one.minimum, one.unit)}</td><td class="num">${valueText(one.maximum, one.unit)}</td></tr>`)}</tbody></table></section>
      <section class="card"><h2>At ${timeText(now, "run")} of ${timeText(job.elapsed_s, "run")}</h2>
        ${flight.length ? html`<ul>${flight.map((one, at) => html`<li key=${at}><b>${one.kind}</b> ${one.label} is in flight since ${timeText(one.start_s, "run")}</li>`)}</ul>` : html`<p class="soft">${job.collectives.length ? "No collective is in flight." : `The workload is ${job.workload}, over ${job.transport}.`}</p>`}
        ${faults.length > 0 && html`<${Axis} faults=${faults} now=${seconds} end=${job.elapsed_s} />`}
        ${job.slowest.length > 0 && html`<h3>Slowest flows</h3><table class="table"><thead><tr><th scope="col">from</th><th scope="col">to</th><th scope="col" class="num">of its ideal</th><th scope="col" class="num">goodput</th><th scope="col" class="num">sent again</th></tr></thead>
          <tbody>${job.slowest.map((one, at) => html`<tr key=${at}><td><button type="button" class="link" onClick=${() => app.select([`port:${one.source}`, `port:${one.destination}`])}>${one.source}</button></td><td>${one.destination}</td>
            <td class="num">${one.share === null ? "–" : shareText(Math.round(one.share * 1000))}</td><td class="num">${rateText(one.goodput_bps)}</td><td class="num">${one.retransmits}</td></tr>`)}</tbody></table>`}</section>
      <section class="card"><h2>Trust</h2><ul class="checks">${job.checks.map(one => html`<li key=${one.name} class=${one.ok ? "" : "bad"}><i class=${`dot ${one.ok ? "ok" : "bad"}`}></i>${one.message}</li>`)}</ul></section>
    </div>`}
  </div>`;
};

// What was done to the lab, from when until when: events that begin it, and those that undo it.
const spansOf = events => {
  const found = [];
  for (const one of events) {
    if (one.kind.startsWith("undone-")) {
      const open = found.find(other => other.kind === one.kind.slice(7) && other.target === one.target && other.until_s === null);
      if (open) open.until_s = one.at_s;
    } else if (events.some(other => other.kind === `undone-${one.kind}`) || one.kind === "touched") {
      found.push({kind: one.kind, target: one.target, at_s: one.at_s, until_s: one.kind === "touched" ? one.at_s : null, detail: one.detail});
    }
  }
  return found;
};

export default {name: "job", title: "Job", order: 50, component: JobView};
