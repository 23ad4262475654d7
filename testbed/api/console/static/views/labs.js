// The labs of this machine: how each is, and what is done to it; a file deployed, with its problems beside the text; a text
// edited and applied, with what that would change.
import {html, useEffect, useRef, useState} from "../core/lib.js";
import {useStore} from "../core/store.js";
import {Button, CopyLine, Dialog, Empty, Failure, Field, Menu, Pill, Spinner} from "../core/ui.js";
import {countText, plural, spanText} from "../core/format.js";
import {Editor, Problems, goTo} from "./editor.js";
import {TaskList} from "./tasks.js";

const STATES = {running: "ok", degraded: "warn", deploying: "", changing: "warn", destroying: "warn"};
const CHECK_MS = 350, AGAIN_MS = 1000;

const LabsView = ({app}) => {
  const {labs, console, machines} = useStore(app.live), file = app.param("file"), lab = app.param("edit");
  useStore(app.address, a => a.params);
  if (!console) return html`<${Spinner} />`;
  const close = () => app.setParam({file: "", edit: ""});
  return html`<div class="labs page">
    <header class="page-head"><h2 class="title">Labs</h2><span class="soft">${plural(labs.length, "lab")} on ${machines.length ? plural(machines.length + 1, "machine") : "this machine"}</span>
      <span class="grow"></span>
      <${Button} onClick=${() => app.serve("ask", "run", [])} disabled=${!console.write}>Run a scenario …</${Button}>
      <${Button} kind="primary" onClick=${() => app.setParam({file: "choose", edit: ""})} disabled=${Boolean(console.only)} title=${console.write ? "" : "This console only reads: a file can be looked at"}>${console.write ? "Deploy …" : "Check a file …"}</${Button}></header>
    ${labs.length ? html`<div class="lab-cards">${labs.map(one => html`<${LabCard} key=${`${one.machine} ${one.name}`} app=${app} lab=${one} write=${console.write} only=${Boolean(console.only)} />`)}</div>`
      : html`<${Empty} title="No lab is up">${console.write ? "Deploy one from a topology file: what is wrong with it is said before anything is touched." : "Deploy one with ./lab deploy; it appears here by itself."}</${Empty}>`}
    ${machines.filter(one => one.error).map(one => html`<p key=${one.name} class="soft" role="status"><i class="dot warn"></i><b>${one.name}</b>: ${one.error}</p>`)}
    ${file && html`<${DeployDialog} app=${app} file=${file} close=${close} />`}
    ${lab && html`<${ApplyDialog} app=${app} name=${lab} close=${close} />`}
    <${Running} app=${app} />
    ${console.write && html`<h2>What was begun here</h2><${TaskList} app=${app} />`}
  </div>`;
};

const LabCard = ({app, lab, write, only}) => {
  const {health} = lab, worse = Object.entries(health || {}).filter(([word, count]) => word !== "running" && count);
  const menu = event => {
    const box = event.currentTarget.getBoundingClientRect();
    app.services.actions && openLabMenu(app, lab, box.left, box.bottom + 4);
  };
  return html`<article class="card lab-card">
    <header>${lab.base ? html`<a class="lab-name" href=${`#${lab.base.replace("/api", "")}/map`}>${lab.name}</a>` : html`<b class="lab-name">${lab.name}</b>`}<${Pill} kind=${STATES[lab.state] ?? "bad"}>${lab.state}</${Pill}>
      ${lab.machine && html`<${Pill}>${lab.machine}</${Pill}>`}</header>
    <p class="soft">${[lab.design, lab.topology].filter(Boolean).join(" · ")}</p>
    <dl class="facts">
      <dt>nodes</dt><dd>${plural(lab.hosts ?? 0, "host")}, ${plural(lab.switches ?? 0, "switch", "switches")}, ${plural(lab.links ?? 0, "link")}</dd>
      ${lab.networks && html`<dt>networks</dt><dd>${Array.isArray(lab.networks) ? lab.networks.map(one => one.name || one).join(", ") : lab.networks}</dd>`}
      ${lab.k > 0 && html`<dt>time scale</dt><dd>k = ${lab.k}</dd>`}
      ${lab.created && html`<dt>up for</dt><dd>${spanText((Date.now() - Date.parse(lab.created)) / 1000)}</dd>`}
      ${health && Object.keys(health).length > 0 && html`<dt>health</dt><dd class=${worse.length ? "warn" : ""}>${worse.length ? worse.map(([word, count]) => `${count} ${word}`).join(", ") : `all ${countText(health.running || 0)} running`}</dd>`}
    </dl>
    ${(lab.working || []).map((one, at) => html`<p key=${at} class="working"><i class="dot"></i><span class="mono">${one.who}</span><span class="soft">${one.what}</span></p>`)}
    ${!lab.base ? html`<${There} app=${app} lab=${lab} />` : html`<footer><a class="button small" href=${`#${lab.base.replace("/api", "")}/map`}>Open</a>
      <${Button} kind="small" disabled=${!write && only} onClick=${() => app.setParam({edit: lab.name})}>${write ? "Edit and apply …" : "Compare with its file …"}</${Button}>
      <${Button} kind="small" disabled=${!write} onClick=${menu} label=${`More for ${lab.name}`}>More ▾</${Button}></footer>`}
  </article>`;
};

// A lab of another machine: a console there shows it, which is forwarded here and opened in a tab of its own.
const There = ({app, lab}) => {
  const [busy, setBusy] = useState(false), [link, setLink] = useState("");
  const ask = async () => {
    setBusy(true);
    try { setLink((await app.post("/api/machines/open", {machine: lab.machine, lab: lab.name})).link); } catch (error) { app.say([error.message, error.hint].filter(Boolean).join(" — "), {kind: "bad"}); }
    setBusy(false);
  };
  return html`<footer>${link ? html`<a class="button small primary" href=${link} target="_blank" rel="noopener" onClick=${() => setTimeout(() => setLink(""), 0)}>Open in a tab</a>`
    : html`<${Button} kind="small" disabled=${busy} onClick=${ask} label=${`Show ${lab.name} of ${lab.machine}`}>${busy ? "Connecting …" : "Show"}</${Button}>`}</footer>`;
};

const openLabMenu = (app, lab, x, y) => {
  const {console} = app.live.get();
  const actions = console.actions.filter(one => one.on.includes("lab"));
  app.dialog(({close}) => html`<${LabMenu} app=${app} lab=${lab} actions=${actions} x=${x} y=${y} close=${close} />`);
};

const LabMenu = ({app, lab, actions, x, y, close}) => html`<${Menu} x=${x} y=${y} title=${lab.name} close=${close}
  items=${actions.map(one => ({title: one.title, run: () => app.serve("ask", one.name, [lab.name])}))} />`;

// --- deploying -----------------------------------------------------------------------------------------------

// Looks at a text on the server while it is written.
const useCheck = (app, request) => {
  const [found, setFound] = useState(null);
  const key = request && JSON.stringify(request);
  useEffect(() => {
    if (!request) { setFound(null); return undefined; }
    let stale = false;
    const timer = setTimeout(async () => {
      try {
        const answer = await app.post("/api/views/labs/check", request);
        if (!stale) setFound(answer);
      } catch (error) {
        if (!stale) setFound({valid: false, problems: error.problems && error.problems.length ? error.problems : [{message: error.message, hint: error.hint}], warnings: []});
      }
    }, CHECK_MS);
    return () => { stale = true; clearTimeout(timer); };
  }, [key]);
  return found;
};

// The command line that deploys a file, as the server would run it.
const useCommand = (app, values) => {
  const [line, setLine] = useState("");
  useEffect(() => {
    if (!values) { setLine(""); return undefined; }
    let stale = false;
    const timer = setTimeout(() => app.post("/api/actions/deploy", {targets: [], values, dry: true}).then(
      found => { if (!stale) setLine(found.command[0]); }, () => { if (!stale) setLine(""); }), CHECK_MS);
    return () => { stale = true; clearTimeout(timer); };
  }, [values && JSON.stringify(values)]);
  return line;
};

// A file that can be edited: its text as it is on disk and as it is here, and the tag by which the server knows its state.
const useFile = (app, path) => {
  const [file, setFile] = useState(null), [error, setError] = useState(null), [turn, setTurn] = useState(0);
  useEffect(() => {
    let stale = false;
    setFile(null);
    setError(null);
    if (path) app.get(`/api/files/${path.split("/").map(encodeURIComponent).join("/")}`).then(
      found => { if (!stale) setFile({...found, written: found.text}); }, refused => { if (!stale) setError(refused); });
    return () => { stale = true; };
  }, [path, turn]);
  const save = async () => {
    const {etag} = await app.put(`/api/files/${path.split("/").map(encodeURIComponent).join("/")}`, {text: file.text, etag: file.etag});
    setFile(now => ({...now, etag, written: now.text}));
  };
  return {file, error, edit: text => setFile(now => ({...now, text})), save, reload: () => setTurn(turn + 1), changed: Boolean(file) && file.text !== file.written};
};

// Why a text was not saved or used; one that somebody else has changed meanwhile can be read anew.
const Refused = ({error, reload}) => html`<${Failure} error=${error} />
  ${error.code === "changed" && html`<p class="row"><${Button} onClick=${reload}>Load it as it is now</${Button}><span class="soft">What was changed here goes: copy it first, if it is long.</span></p>`}`;

const DeployDialog = ({app, file: chosen, close}) => {
  const writes = app.live.get().console.write, [files, setFiles] = useState(null), path = chosen === "choose" ? "" : chosen, root = useRef(null);
  const [name, setName] = useState(""), [set, setSet] = useState(""), [busy, setBusy] = useState(false), [refused, setRefused] = useState(null);
  useEffect(() => { app.get("/api/files?kind=topology").then(setFiles, () => setFiles([])); }, []);
  const {file, error, edit, save, reload, changed} = useFile(app, path), anew = () => { setRefused(null); reload(); };
  const found = useCheck(app, file && {path, text: file.text, name, set: set.trim().split(/\s+(?=[\w.]+=)/).join("\n")});
  const values = {file: path, ...(name.trim() && {name: name.trim()}), ...(set.trim() && {set: set.trim()})}, line = useCommand(app, path && values);
  const deploy = async () => {
    setBusy(true);
    setRefused(null);
    try {
      if (changed) await save();
      const done = await app.post("/api/actions/deploy", {targets: [], values, confirmed: true});
      app.say(done.command[0]);
      close();
    } catch (problem) { setRefused(problem); }
    setBusy(false);
  };
  const valid = found && found.valid, scenario = valid && found.kind === "scenario";
  return html`<${Dialog} wide title=${writes ? "Deploy a lab" : "Check a file"} close=${close} unsaved=${changed} buttons=${leave => html`
      <span class="verdict" role="status">${!file ? "" : !found ? "Looking at it …" : valid ? (scenario ? "This is a scenario: run it instead." : lab(found.lab)) : plural(found.problems.length, "problem")}</span>
      <${Button} onClick=${leave}>${writes ? "Cancel" : "Close"}</${Button}>
      ${!writes ? null : scenario ? html`<${Button} kind="primary" onClick=${() => { close(); app.serve("ask", "run", [], {file: path}); }}>Run it …</${Button}>`
        : html`<${Button} kind="primary" disabled=${!valid || busy} onClick=${deploy}>${busy ? "Beginning …" : changed ? "Save and deploy" : "Deploy"}</${Button}>`}`}>
    <div ref=${root}>
    <div class="deploy-fields">
      <${Field} label="File"><select autofocus value=${path} onChange=${event => app.setParam({file: event.target.value || "choose"})}>
        <option value="">Choose a topology …</option>${(files || []).map(one => html`<option key=${one.path} value=${one.path}>${one.path}</option>`)}</select></${Field}>
      <${Field} label="Name"><input type="text" value=${name} placeholder="that of the file" onInput=${event => setName(event.target.value)} /></${Field}>
      <${Field} label="Set"><input type="text" value=${set} placeholder="fabric.hosts=4" onInput=${event => setSet(event.target.value)} /></${Field}>
    </div>
    ${error && html`<${Failure} error=${error} />`}${refused && html`<${Refused} error=${refused} reload=${anew} />`}
    ${path && !file && !error && html`<${Spinner} />`}
    ${found && html`<${Problems} problems=${found.problems} warnings=${found.warnings} onChoose=${one => goTo(root.current, one.line, one.column)} />`}
    ${file && html`<${Editor} label=${`Text of ${path}`} value=${file.text} onInput=${edit} problems=${(found && found.problems) || []} rows=${15} />`}
    ${file && valid && !scenario && line && html`<${CopyLine} text=${line} />`}
    </div>
  </${Dialog}>`;
};

const lab = found => `${found.name}: ${plural(found.hosts, "host")}, ${plural(found.switches, "switch", "switches")}, ${plural(found.links, "link")}`;

// --- applying ------------------------------------------------------------------------------------------------

const ApplyDialog = ({app, name, close}) => {
  const writes = app.live.get().console.write, [path, setPath] = useState(null), root = useRef(null);
  useEffect(() => { app.get(`/api/views/labs/source?lab=${encodeURIComponent(name)}`).then(found => setPath(found.path || ""), () => setPath("")); }, [name]);
  const {file, error, edit, save, reload, changed} = useFile(app, path), anew = () => { setRefused(null); reload(); };
  const [diff, setDiff] = useState(null), [allow, setAllow] = useState([]), [repair, setRepair] = useState(false), [busy, setBusy] = useState(false), [refused, setRefused] = useState(null);
  const text = file && file.text;
  // What the list tells of the lab that a comparison may have missed: who changes it, and what became of it.
  const seen = useStore(app.live, live => JSON.stringify((live.labs || []).filter(one => one.name === name && one.base).map(one => [one.state, one.revision, one.working.filter(worker => worker.what === "changes it")])));
  useEffect(() => {
    if (path === null || (path && text === null)) return undefined;
    let stale = false, timer = 0;
    setDiff(null);
    const compare = async () => {
      try {
        const found = await app.post("/api/views/labs/diff", {lab: name, ...(text !== null && path ? {path, text} : {})});
        if (stale) return;
        setDiff(found);
        if (found.changing) timer = setTimeout(compare, AGAIN_MS);
      } catch (problem) {
        if (!stale) setDiff({valid: false, problems: problem.problems && problem.problems.length ? problem.problems : [{message: problem.message, hint: problem.hint}]});
      }
    };
    timer = setTimeout(compare, CHECK_MS);
    return () => { stale = true; clearTimeout(timer); };
  }, [name, text, path, seen]);
  const needs = (diff && diff.needs) || [], missing = needs.filter(word => !allow.includes(word)), some = diff && diff.valid && !diff.changing && diff.groups.length > 0;
  const apply = async () => {
    setBusy(true);
    setRefused(null);
    try {
      if (changed) await save();
      const values = {...(path && changed ? {file: path} : {}), restart: allow.includes("restart"), recreate: allow.includes("recreate"), repair};
      const done = await app.post(`/api/labs/${encodeURIComponent(name)}/actions/apply`, {targets: [name], values, confirmed: true});
      app.say(done.command[0]);
      close();
    } catch (problem) { setRefused(problem); }
    setBusy(false);
  };
  const flip = word => setAllow(allow.includes(word) ? allow.filter(one => one !== word) : [...allow, word]);
  return html`<${Dialog} wide title=${writes ? `Edit and apply ${name}` : `What would change of ${name}`} close=${close} unsaved=${changed} buttons=${leave => html`
      <span class="verdict" role="status">${!diff ? "Comparing …" : diff.changing ? `Waiting for ${diff.changing.join(", ")}` : !diff.valid ? plural(diff.problems.length, "problem") : some ? diff.summary : "Nothing to change"}</span>
      <${Button} onClick=${leave}>${writes ? "Cancel" : "Close"}</${Button}>
      ${writes && html`<${Button} kind=${needs.length ? "danger" : "primary"} disabled=${!some || busy || missing.length > 0} onClick=${apply}>${busy ? "Beginning …" : changed ? "Save and apply" : "Apply"}</${Button}>`}`}>
    <div ref=${root}>
    ${error && html`<${Failure} error=${error} />`}${refused && html`<${Refused} error=${refused} reload=${anew} />`}
    ${path === "" && html`<p class="soft">Its file is not below a directory of this console: here is how the lab differs from it.</p>`}
    ${path && !file && !error && html`<${Spinner} />`}
    ${file && html`<${Editor} label=${`Text of ${path}`} value=${file.text} onInput=${edit} problems=${(diff && diff.problems) || []} rows=${12} />`}
    ${diff && html`<${Problems} problems=${diff.problems} onChoose=${one => goTo(root.current, one.line, one.column)} />`}
    ${some && html`<${Changes} diff=${diff} />`}
    ${some && html`<div class="allow">${needs.map(word => html`<label key=${word} class="action-flag"><input type="checkbox" checked=${allow.includes(word)} onChange=${() => flip(word)} />
        ${word === "restart" ? "Processes may end and begin again" : "Nodes, or the whole lab, may be made again"}</label>`)}
      ${diff.repairs > 0 && html`<label class="action-flag"><input type="checkbox" checked=${repair} onChange=${event => setRepair(event.target.checked)} />Bring back ${plural(diff.repairs, "thing")} changed by hand, too</label>`}</div>
      <p class=${diff.at_stake.length ? "warn" : "soft"}>${diff.at_stake.length ? `At stake: ${diff.at_stake.join("; ")}.` : "No packet and no session is at stake."}</p>`}
    </div>
  </${Dialog}>`;
};

const Changes = ({diff}) => {
  const columns = Object.keys(diff.groups[0]).filter(key => diff.groups.some(group => group[key] !== "" && group[key] !== null && group[key] !== undefined));
  return html`<div class="scroll" tabindex="0" role="region" aria-label="What would change"><table class="table"><thead><tr>${columns.map(key => html`<th key=${key} scope="col">${key.replace(/_/g, " ")}</th>`)}</tr></thead>
    <tbody>${diff.groups.map((group, at) => html`<tr key=${at}>${columns.map(key => html`<td key=${key}>${text(group[key])}</td>`)}</tr>`)}</tbody></table></div>`;
};
const text = value => Array.isArray(value) ? value.join(", ") : value === null || value === undefined ? "" : String(value);

// --- what runs -----------------------------------------------------------------------------------------------

// The scenarios that run on this machine, whoever has started them.
const Running = ({app}) => {
  const [jobs, setJobs] = useState([]), labs = useStore(app.live, live => live.labs);
  useEffect(() => {
    let stopped = false, timer = 0;
    const load = async () => {
      const found = await app.get("/api/views/labs/running").catch(() => []);
      if (stopped) return;
      setJobs(found);
      timer = setTimeout(load, 2000);
    };
    load();
    return () => { stopped = true; clearTimeout(timer); };
  }, []);
  if (!jobs.length) return null;
  return html`<h2>Scenarios that run</h2><ul class="running">${jobs.map(job => {
    const here = labs.find(one => one.name === job.lab), done = job.points.filter(one => one.state === "done").length;
    return html`<li key=${job.pid} class="card"><b>${job.scenario}</b><span class="soft">${job.backend === "simulation" ? "simulated" : job.lab ? `on ${job.lab}` : "its lab is being deployed"}</span>
      <progress max=${job.points.length * job.runs} value=${job.points.reduce((sum, one) => sum + one.done, 0)} aria-label=${`${job.scenario}: runs that are done`}></progress>
      <span>${done} of ${plural(job.points.length, "point")}, run ${job.run} of ${job.runs}</span>
      ${here && html`<a class="button small" href=${`#${here.base.replace("/api", "")}/job`}>Watch</a>`}</li>`;
  })}</ul>`;
};


export default {name: "labs", title: "Labs", order: 10, scope: "machine", panel: false, component: LabsView};
