// A task: a command line that the console runs, with what it prints as it goes. Its steps are lines such as
// "links      168 nodes (1.2 s)" (see testbed/cli/progress.py).
import {html, useEffect, useRef, useState} from "../core/lib.js";
import {useStore} from "../core/store.js";
import {Button, Pill} from "../core/ui.js";
import {spanText} from "../core/format.js";

export const KINDS = {running: "", done: "ok", failed: "bad", cancelled: "warn"};
const MOST_LINES = 2000;

// The lines of a task: those that it had when it was asked for, and those that are told since; the latest, as the server keeps them.
const useLines = (app, task) => {
  const [lines, setLines] = useState([]);
  useEffect(() => {
    let stale = false, kept = null, count = 0, early = [];
    const begin = (found, number) => { kept = found; count = number; setLines(kept); early.forEach(add); early = []; };
    const add = one => {
      const told = one.new || [], more = Math.min(one.line_count - count, told.length);
      if (more <= 0) return;
      kept = [...kept, ...told.slice(-more)].slice(-MOST_LINES);
      count = one.line_count;
      setLines(kept);
    };
    const stop = app.on("task", one => { if (one.id !== task.id) return; if (kept) add(one); else early.push(one); });
    app.get(`/api/tasks/${task.id}`).then(found => { if (!stale) begin(found.lines, found.line_count); }, () => { if (!stale) begin([], 0); });
    return () => { stale = true; stop(); };
  }, [task.id]);
  return lines;
};

const STEP = /^([^\s:]+)\s+(.*?)\s*\(([\d.]+) s\)$/;

export const TaskCard = ({app, task}) => {
  const lines = useLines(app, task), [open, setOpen] = useState(task.state !== "done"), box = useRef(null), card = useRef(null), running = task.state === "running";
  useEffect(() => { if (running) card.current.scrollIntoView({block: "nearest"}); }, []);  // one that was begun here is seen at work
  useEffect(() => { if (box.current) box.current.scrollTop = box.current.scrollHeight; }, [lines, open]);
  const title = task.title.replace(/ …$/, ""), steps = lines.map(line => STEP.exec(line)).filter(Boolean);
  const cancel = () => app.post(`/api/tasks/${task.id}/cancel`).catch(error => app.say(error.message, {kind: "bad"}));
  return html`<section ref=${card} class="task card" aria-label=${`${title}: ${task.state}`}>
    <header><h3>${title}${task.lab ? ` · ${task.lab}` : ""}</h3><${Pill} kind=${KINDS[task.state]}>${task.state}${task.code ? `, status ${task.code}` : ""}</${Pill}>
      <span class="soft">${took(task)}</span>
      <span class="task-buttons">${running && html`<${Button} kind="small" onClick=${cancel}>Cancel</${Button}>`}
      <${Button} kind="small" pressed=${open} onClick=${() => setOpen(!open)}>${open ? "Less" : "Lines"}</${Button}></span></header>
    <code class="task-command">${task.command}</code>
    ${steps.length > 0 && html`<ol class="task-steps" aria-label="Steps">${steps.map(([, name, detail, seconds], at) => html`<li key=${at}><b>${name}</b><span>${detail}</span><span class="num soft">${seconds} s</span></li>`)}
      ${running && html`<li class="going"><b>…</b><span>${last(lines, steps)}</span></li>`}</ol>`}
    ${open && html`<pre ref=${box} class="task-lines" role="log" tabindex="0" aria-label="What it prints">${lines.join("\n") || (running ? "…" : "It printed nothing.")}</pre>`}
  </section>`;
};

const last = (lines, steps) => {
  const line = lines[lines.length - 1] || "";
  return steps.length && STEP.test(line) ? "" : line;
};

const took = task => {
  const from = Date.parse(task.started), to = task.ended ? Date.parse(task.ended) : Date.now();
  return Number.isFinite(from) ? spanText(Math.max(0, to - from) / 1000) : "";
};

// The tasks of the console, the latest first, at most so many of those that have ended.
export const TaskList = ({app, most = 6, of = () => true}) => {
  const tasks = useStore(app.live, live => live.tasks).filter(of);
  const [, again] = useState(0), running = tasks.some(one => one.state === "running");
  useEffect(() => {
    if (!running) return undefined;
    const timer = setInterval(() => again(one => one + 1), 1000);
    return () => clearInterval(timer);
  }, [running]);
  const shown = [...tasks].sort((one, other) => (other.started || "").localeCompare(one.started || "")).slice(0, most);
  if (!shown.length) return html`<p class="soft">Nothing was begun from here yet.</p>`;
  return html`<div class="tasks">${shown.map(task => html`<${TaskCard} key=${task.id} app=${app} task=${task} />`)}</div>`;
};
