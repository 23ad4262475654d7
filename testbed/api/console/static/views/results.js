// What was measured: a list of records, one opened, two compared; each of its runs can be played back in this page.
import {html, useEffect, useState} from "../core/lib.js";
import {useStore} from "../core/store.js";
import {Button, CopyLine, Empty, Failure, Pill, Spinner, useTurn} from "../core/ui.js";
import {plural, spanText, timeText} from "../core/format.js";
import {valueText} from "./job.js";

const VERDICTS = {pass: "ok", fail: "bad", invalid: "warn", broken: "bad"};

const useFetched = (app, path) => {
  const [state, setState] = useState({data: null, error: null}), turn = useTurn(state.error);
  useEffect(() => { setState({data: null, error: null}); }, [path]);
  useEffect(() => {
    let stale = false;
    if (path) app.get(path).then(data => { if (!stale) setState({data, error: null}); }, error => { if (!stale) setState({data: null, error}); });
    return () => { stale = true; };
  }, [path, turn]);
  return state;
};

const ResultsView = ({app}) => {
  const params = useStore(app.address, a => a.params), {data, error} = useFetched(app, "/api/views/results");
  const [chosen, setChosen] = useState([]);
  if (error) return html`<${Failure} error=${error} />`;
  if (!data) return html`<${Spinner} />`;
  const byName = name => data.results.find(one => one.directory === name || one.name === name);
  if (params.base && params.other) return html`<${Compared} app=${app} base=${params.base} other=${params.other} />`;
  if (params.open) return html`<${Opened} app=${app} row=${byName(params.open)} name=${params.open} />`;
  if (!data.results.length) return html`<${Empty} title="No results yet">Each ./lab run leaves its record in results/, and it is listed here.</${Empty}>`;
  const flip = name => setChosen(chosen.includes(name) ? chosen.filter(one => one !== name) : [...chosen.slice(-1), name]);
  const words = (params.q || "").toLowerCase();
  const rows = data.results.filter(one => !words || `${one.scenario} ${one.name} ${one.verdict}`.toLowerCase().includes(words));
  return html`<div class="page results"><header class="page-head"><h2 class="title">Results</h2><span class="soft">${plural(rows.length, "record")}</span>
      <input type="search" aria-label="Only records with" placeholder="Only with …" value=${params.q || ""} onInput=${event => app.setParam({q: event.target.value})} /><span class="grow"></span>
      <${Button} disabled=${chosen.length !== 2} onClick=${() => app.setParam({base: chosen[0], other: chosen[1]})}>Compare two</${Button}></header>
    <div class="scroll" tabindex="0" role="region" aria-label="Records"><table class="table"><thead><tr><th scope="col"><span class="unseen">Compare</span></th><th scope="col">when (UTC)</th><th scope="col">scenario</th><th scope="col">verdict</th><th scope="col" class="num">points</th><th scope="col" class="num">runs</th><th scope="col" class="num">took</th><th scope="col">remark</th></tr></thead>
      <tbody>${rows.map(one => html`<tr key=${one.directory}><td><input type="checkbox" aria-label=${`Compare ${one.name}`} checked=${chosen.includes(one.directory)} disabled=${one.verdict === "broken"} onChange=${() => flip(one.directory)} /></td>
        <td class="nowrap">${one.started.slice(0, 19).replace("T", " ")}</td><td><button type="button" class="link" onClick=${() => app.setParam({open: one.directory})}><b>${one.scenario || one.name}</b></button></td>
        <td><${Pill} kind=${VERDICTS[one.verdict]}>${one.verdict}</${Pill}></td><td class="num">${one.points}</td><td class="num">${one.runs}</td><td class="num">${one.wall_s == null ? "–" : spanText(one.wall_s)}</td><td class="soft">${one.remark}</td></tr>`)}</tbody></table></div>
  </div>`;
};

const Opened = ({app, row, name}) => {
  const directory = row ? row.directory : name, {data, error} = useFetched(app, `/api/views/results/record?dir=${encodeURIComponent(directory)}`);
  const [report, setReport] = useState(false);
  const back = html`<${Button} onClick=${() => app.setParam({open: "", q: app.param("q")})}>‹ All results</${Button}>`;
  if (error) return html`<div class="page">${back}<${Failure} error=${error} /></div>`;
  if (!data) return html`<${Spinner} />`;
  const first = data.points.flatMap(point => point.runs)[0];
  return html`<div class="page results"><header class="page-head">${back}<h2 class="title">${data.scenario}</h2><${Pill} kind=${VERDICTS[data.verdict]}>${data.verdict}</${Pill}><span class="soft">${data.started.slice(0, 19).replace("T", " ")} · ${data.backend}${data.wall_s ? ` · ${spanText(data.wall_s)}` : ""}</span>
      <span class="grow"></span>${first && html`<a class="button primary" href=${playing(first.base)}>▶ Play back</a>`}<${Button} pressed=${report} onClick=${() => setReport(!report)}>Report</${Button}></header>
    ${data.description && html`<p class="soft">${data.description}</p>`}
    ${data.reasons.map((one, at) => html`<p key=${at}>${one}</p>`)}
    ${report && first ? html`<iframe class="report" title="Report" sandbox="" src=${`${first.base}/report`}></iframe>` : html`
    ${data.points.map((point, at) => html`<section class="card" key=${at}><h2>${point.name || "Its only point"}</h2><p class="soft">${point.lab}: ${plural(point.hosts, "host")}, k = ${point.k}</p>
      <div class="scroll" tabindex="0" role="region" aria-label=${`Metrics of ${point.name || "the point"}`}><table class="table"><thead><tr>${point.metrics.map(one => html`<th key=${one.name} scope="col" class="num">${one.title}</th>`)}</tr></thead>
        <tbody><tr>${point.metrics.map(one => html`<td key=${one.name} class="num"><b>${valueText(one.median, one.unit)}</b></td>`)}</tr></tbody></table></div>
      <ul class="runs">${point.runs.map(run => html`<li key=${run.index}><a class="button small" href=${playing(run.base)}>▶ Run ${run.index}</a><span class="soft">seed ${run.seed}, ${timeText(run.elapsed_s, "run")}</span>
        ${!run.valid && html`<${Pill} kind="warn" title=${run.broken.join("\n")}>not to be trusted</${Pill}>`}${run.touched > 0 && html`<${Pill} kind="bad">touched</${Pill}>`}</li>`)}</ul></section>`)}
    <h3>Repeats it</h3><${CopyLine} text=${data.command.join(" ")} />
    ${data.approximations.length > 0 && html`<h3>What it does not reproduce</h3><ul class="plain">${data.approximations.map((one, at) => html`<li key=${at}>${one}</li>`)}</ul>`}`}
  </div>`;
};

const playing = base => `#${base.replace("/api", "")}/map`;

const SHIFTS = {better: "ok", worse: "bad", different: "warn"};

const Compared = ({app, base, other}) => {
  const {data, error} = useFetched(app, `/api/views/results/compare?base=${encodeURIComponent(base)}&other=${encodeURIComponent(other)}`);
  const [all, setAll] = useState(false);
  const back = html`<${Button} onClick=${() => app.setParam({base: "", other: ""})}>‹ All results</${Button}>`;
  if (error) return html`<div class="page">${back}<${Failure} error=${error} /></div>`;
  if (!data) return html`<${Spinner} />`;
  const rows = data.changes.filter(one => all || one.judged || one.outcome !== "same");
  return html`<div class="page results"><header class="page-head">${back}<h2 class="title">Two records</h2><${Pill} kind=${SHIFTS[data.verdict] || ""}>${data.verdict}</${Pill}><span class="grow"></span>
      <${Button} pressed=${all} onClick=${() => setAll(!all)}>All metrics</${Button}><${Button} onClick=${() => app.setParam({base: other, other: base})}>Swap</${Button}></header>
    <p><b>${data.base}</b> <span class="soft">→</span> <b>${data.other}</b></p>
    ${Object.keys(data.differing).length > 0 && html`<h3>They differ in</h3><ul class="plain">${Object.entries(data.differing).slice(0, 12).map(([key, [one, two]]) => html`<li key=${key}><code>${key}</code>: ${String(JSON.stringify(one))} → ${String(JSON.stringify(two))}</li>`)}</ul>`}
    <div class="scroll" tabindex="0" role="region" aria-label="Metrics"><table class="table"><thead><tr><th scope="col">point</th><th scope="col">metric</th><th scope="col" class="num">before</th><th scope="col" class="num">after</th><th scope="col" class="num">change</th><th scope="col" class="num">p</th><th scope="col"><span class="unseen">what of it</span></th></tr></thead>
      <tbody>${rows.map((one, at) => html`<tr key=${at}><td>${one.point || "–"}</td><td>${one.metric}</td><td class="num">${valueText(one.base_median, one.unit)}</td><td class="num">${valueText(one.other_median, one.unit)}</td>
        <td class="num">${one.change === null ? "–" : `${one.change > 0 ? "+" : ""}${+(100 * one.change).toPrecision(3)} %`}</td><td class="num">${one.adjusted_p == null ? "–" : +one.adjusted_p.toPrecision(2)}</td><td><${Pill} kind=${SHIFTS[one.outcome] || ""}>${one.outcome}</${Pill}></td></tr>`)}</tbody></table></div>
    ${data.notes.map((one, at) => html`<p key=${at} class="soft">${one}</p>`)}
  </div>`;
};

export default {name: "results", title: "Results", order: 70, scope: "machine", panel: false, component: ResultsView};
