// What can be done with what is selected: the menu, the dialog with its command line, the question where it harms, and the
// one step that undoes it. The server says which actions there are (`/api/console`), and does them.
import {html, useEffect, useState} from "../core/lib.js";
import {Button, CopyLine, Dialog, Failure, Field, Menu} from "../core/ui.js";

const KINDS = {node: "node", port: "port", link: "link", gpu: "port", plane: "port", lab: "lab"};
const OWN = {node: ["shell", "logs"], port: ["capture"], link: ["capture"]};

// The targets of an action for ids of the selection ("port:p1-s1-h1:rail1"): those of a kind that it is for.
export const targetsOf = (action, ids) => ids
  .map(id => ({kind: KINDS[id.slice(0, id.indexOf(":"))], name: id.slice(id.indexOf(":") + 1)}))
  .filter(one => action.on.includes(one.kind))
  .map(one => one.name);

const isMeant = (action, ids) => {
  const targets = targetsOf(action, ids);
  return targets.length > 0 && (action.many || targets.length === 1);
};

// Opens the menu of actions for some ids at a place.
const openMenu = (app, {targets, x, y}) => {
  const {console, lab} = app.live.get();
  if (!lab || !lab.live) {
    app.say("This is a record: nothing of it can be changed", {kind: "warn"});
    return;
  }
  const why = console.write ? "" : "This console only reads: it was started without --write";
  const kinds = new Set(targets.map(id => id.slice(0, id.indexOf(":"))));
  const items = [];
  let group = "";
  for (const action of console.actions.filter(one => one.group && isMeant(one, targets))) {
    if (group && action.group !== group) items.push(null);
    group = action.group;
    items.push({title: action.title, key: action.key, disabled: Boolean(why), why, run: () => ask(app, action, targetsOf(action, targets))});
  }
  const own = [...new Set([...kinds].flatMap(kind => OWN[kind] || []))];
  if (own.length && items.length) items.push(null);
  const names = targets.map(id => id.slice(id.indexOf(":") + 1));
  const nodes = targets.filter(id => id.startsWith("node:")).map(id => id.slice(5));
  if (own.includes("shell")) items.push({title: "Shell", key: "s", disabled: Boolean(why), why, run: () => nodes.forEach(node => app.serve("shell", node))});
  if (own.includes("logs")) items.push({title: "Logs", key: "g", disabled: Boolean(why), why, run: () => nodes.forEach(node => app.serve("logs", node))});
  if (own.includes("capture")) items.push({title: "Capture …", key: "c", disabled: Boolean(why), why, run: () => app.serve("capture", names.filter((_, at) => !targets[at].startsWith("node:")))});
  const title = names.length === 1 ? names[0] : `${names.length} selected`;
  const from = document.activeElement;
  const dialog = app.dialog(({close}) => html`<${Menu} x=${x} y=${y} title=${title} items=${items} close=${close} />`);
  dialog.from = from;
};

// Asks for an action: at once where it has no fields and harms nothing, else in a dialog.
export const ask = async (app, action, targets, values = {}) => {
  if (!action.fields.length && !action.asks) return perform(app, action, targets, values, false);
  app.dialog(({close}) => html`<${ActionDialog} app=${app} action=${action} targets=${targets} first=${values} close=${close} />`);
  return undefined;
};

const pathOf = (app, action, targets) => {
  const {lab} = app.live.get();
  const named = action.on.includes("lab") && targets.length === 1 ? `/api/labs/${encodeURIComponent(targets[0])}` : app.address.get().base;
  const below = named && !named.startsWith("/api/runs/") && (lab || action.on.includes("lab")) ? named : "/api";
  return `${below}/actions/${action.name}`;
};

// Does an action, says so, and offers to undo it.
export const perform = async (app, action, targets, values, confirmed) => {
  try {
    const done = await app.post(pathOf(app, action, targets), {targets, values, confirmed});
    told(app, action, done);
    return done;
  } catch (error) {
    app.say([error.message, error.hint].filter(Boolean).join(" — "), {kind: "bad", lasts: 12000});
    return null;
  }
};

const told = (app, action, done) => {
  const undo = done.undo && {title: "Undo", run: () => undoIt(app, done.undo)};
  if (!done.task) {
    app.say(`${plain(action.title)}: done`, {action: undo, lasts: undo ? 30000 : 6000});
    return;
  }
  waiting.set(done.task, {title: plain(action.title), undo});
  app.say(`${plain(action.title)}: ${done.command.length === 1 ? done.command[0] : `${done.command.length} commands`}`, {lasts: 4000});
};

const plain = title => title.replace(/ …$/, "");
const waiting = new Map();
let latest = null;

const undoIt = async (app, {action, targets, values}) => {
  latest = null;
  const found = app.live.get().console.actions.find(one => one.name === action);
  if (found) await perform(app, found, targets, values, true);
};

// A task ends: say how, if it was started here, and offer the undo now that there is something to undo.
const taskEnded = async (app, task) => {
  if (task.state === "running") return;
  const known = waiting.get(task.id);
  waiting.delete(task.id);
  if (task.state === "done") {
    if (known && known.undo) latest = known.undo;
    if (known) app.say(`${known.title}: done`, {action: known.undo, lasts: known.undo ? 30000 : 6000});
    return;
  }
  if (task.state === "failed") {
    const {lines} = await app.get(`/api/tasks/${task.id}`).catch(() => ({lines: []}));
    const from = lines.findLastIndex(line => line.startsWith("error:"));
    const why = from < 0 ? `it ended with status ${task.code}` : lines.slice(from, from + 3).map(line => line.trim()).join(" ").replace(/^error: /, "").replace(" hint: ", " — ");
    const partly = known && known.undo && lines.filter(line => line.startsWith("$ ")).length > 1;  // those before the one that failed are done
    if (partly) latest = known.undo;
    app.say(`${plain(task.title)}: ${why}`, {kind: "bad", lasts: 20000, action: partly ? known.undo : null});
  }
};

const valuesOf = action => Object.fromEntries(action.fields.map(field => [field.name, field.default ?? (field.kind === "flag" ? false : "")]));
const sent = (action, values) => Object.fromEntries(action.fields
  .filter(field => values[field.name] !== "" && values[field.name] !== undefined && values[field.name] !== null)
  .map(field => [field.name, field.kind === "number" ? Number(values[field.name]) : values[field.name]]));

// The dialog of an action. While one types, the server tells the command line that it will run.
export const ActionDialog = ({app, action, targets, first, close}) => {
  const [values, setValues] = useState({...valuesOf(action), ...first}), [dry, setDry] = useState(null), [error, setError] = useState(null), [busy, setBusy] = useState(false);
  const path = pathOf(app, action, targets);
  useEffect(() => {
    let stale = false;
    const timer = setTimeout(async () => {
      try {
        const found = await app.post(path, {targets, values: sent(action, values), dry: true});
        if (!stale) { setDry(found); setError(null); }
      } catch (refused) {
        if (!stale) { setDry(null); setError(refused); }
      }
    }, 150);
    return () => { stale = true; clearTimeout(timer); };
  }, [JSON.stringify(values)]);
  const run = async event => {
    if (event) event.preventDefault();
    if (!dry || busy) return;
    setBusy(true);
    const done = await perform(app, action, targets, sent(action, values), true);
    setBusy(false);
    if (done) close();
  };
  const set = (name, value) => setValues({...values, [name]: value});
  const harm = dry && dry.harms, told = error && !untouched(action, values);
  return html`<${Dialog} title=${plain(action.title)} close=${close} buttons=${html`
      <${Button} onClick=${close}>Cancel</${Button}>
      <${Button} kind=${harm ? "danger" : "primary"} disabled=${!dry || busy} onClick=${run}>${busy ? "Working …" : harm ? `Yes, ${plain(action.title).toLowerCase()}` : plain(action.title)}</${Button}>`}>
    <form class="action" onSubmit=${run}>
      ${targets.length > 0 && html`<p class="action-targets mono">${targets.slice(0, 6).join(", ")}${targets.length > 6 ? ` and ${targets.length - 6} more` : ""}</p>`}
      <div class="action-fields">${action.fields.map(field => html`<${Input} key=${field.name} app=${app} field=${field} value=${values[field.name]} set=${value => set(field.name, value)} action=${action} />`)}</div>
      ${harm && html`<p class="action-harm" role="alert">${harm}</p>`}
      ${told && html`<${Failure} error=${error} />`}
      ${dry && html`<div class="action-command"><span class="soft">The same on the command line</span>${dry.command.slice(0, 8).map(line => html`<${CopyLine} key=${line} text=${line} />`)}
        ${dry.command.length > 8 && html`<p class="soft">and ${dry.command.length - 8} more</p>`}</div>`}
      <button type="submit" class="action-submit" tabindex="-1" aria-hidden="true" disabled=${!dry || busy}></button>
    </form>
  </${Dialog}>`;
};

const untouched = (action, values) => {
  const before = valuesOf(action);
  return action.fields.every(field => values[field.name] === before[field.name]);
};

const Input = ({app, field, value, set, action}) => {
  const [files, setFiles] = useState(null);
  useEffect(() => {
    if (field.kind !== "file") return;
    app.get(`/api/files?kind=${action.name === "run" ? "scenario" : "topology"}`).then(setFiles, () => setFiles([]));
  }, []);
  if (field.kind === "flag") {
    return html`<label class="action-flag"><input type="checkbox" checked=${value} onChange=${event => set(event.target.checked)} />${field.title}</label>`;
  }
  if (field.kind === "choice") {
    return html`<${Field} label=${field.title}><select value=${value} onChange=${event => set(event.target.value)}>
      ${!field.default && html`<option value="">as it is</option>`}${field.choices.map(one => html`<option key=${one} value=${one}>${one}</option>`)}</select></${Field}>`;
  }
  if (field.kind === "file") {
    return html`<${Field} label=${field.title} hint=${field.example && `such as ${field.example}`}><input type="text" list="action-files" value=${value} autocomplete="off" spellcheck=${false} onInput=${event => set(event.target.value)} />
      <datalist id="action-files">${(files || []).map(one => html`<option key=${one.path} value=${one.path}></option>`)}</datalist></${Field}>`;
  }
  return html`<${Field} label=${field.title}><input type="text" inputmode=${field.kind === "number" ? "numeric" : "text"} value=${value} placeholder=${field.example} autocomplete="off" spellcheck=${false}
    onInput=${event => set(event.target.value)} /></${Field}>`;
};

export default {
  name: "actions",
  title: "Actions",
  order: 15,
  start(app) {
    app.services.actions = request => openMenu(app, request);
    app.services.ask = (name, targets, values) => {
      const action = app.live.get().console.actions.find(one => one.name === name);
      return action && ask(app, action, targets, values);
    };
    app.on("task", task => taskEnded(app, task));
    app.key({key: "z", title: "Undo the latest change", group: "What is selected", when: () => latest !== null, run: () => latest.run()});
    const {console} = app.live.get();
    for (const action of console.actions.filter(one => one.key && one.group)) {
      app.key({
        key: action.key,
        title: plain(action.title),
        group: "What is selected",
        when: () => Boolean(app.live.get().lab && app.live.get().lab.live && isMeant(action, app.address.get().selection)),
        run: () => {
          if (!console.write) { app.say("This console only reads: it was started without --write", {kind: "warn"}); return; }
          ask(app, action, targetsOf(action, app.address.get().selection));
        },
      });
    }
  },
};
