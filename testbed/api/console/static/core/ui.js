// The parts that pages are made of. They look alike everywhere, and each can be used by keyboard.
import {Component, createPortal, html, useEffect, useLayoutEffect, useRef, useState} from "./lib.js";
import {useStore} from "./store.js";

export const Button = ({title, onClick, kind = "", disabled = false, pressed, label, children, ...more}) => html`
  <button type="button" class=${`button ${kind}`} onClick=${onClick} disabled=${disabled} aria-pressed=${pressed === undefined ? undefined : String(pressed)}
    aria-label=${label} title=${title} ...${more}>${children}</button>`;

export const Pill = ({kind = "", children, title}) => html`<span class=${`pill ${kind}`} title=${title}>${children}</span>`;
export const Spinner = ({children = "Loading …"}) => html`<p class="spinner" role="status"><i></i>${children}</p>`;

// What a page says that has nothing to show: what is missing, and what to do about it.
export const Empty = ({title, children, action}) => html`
  <div class="empty"><h2>${title}</h2>${children && html`<p>${children}</p>`}${action}</div>`;

// An error of the server's, with its hint and the problems of a file.
export const Failure = ({error}) => html`
  <div class="failure" role="alert"><strong>${error.message}</strong>
    ${error.hint && html`<p>${error.hint}</p>`}
    ${(error.problems || []).map(one => html`<p class="mono">${one.file}:${one.line}:${one.column} ${one.message}${one.hint && ` (${one.hint})`}</p>`)}
  </div>`;

const AGAIN_MS = 3000;

// A number for the dependencies of an effect that asks the console for something: while it does not answer, it is asked again.
export const useTurn = error => {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (!error || error.status !== 0) return undefined;
    const timer = setTimeout(() => setTurn(one => one + 1), AGAIN_MS);
    return () => clearTimeout(timer);
  }, [error]);
  return turn;
};

// One of several: a row of buttons, of which the arrows choose.
export const Segments = ({label, value, options, onChange, kind = ""}) => {
  const move = event => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const at = options.findIndex(one => one.value === value), next = (at + step + options.length) % options.length;
    onChange(options[next].value);
    event.currentTarget.children[next].focus();
  };
  return html`<div class=${`segments ${kind}`} role="radiogroup" aria-label=${label} onKeyDown=${move}>
    ${options.map(one => html`<button type="button" role="radio" key=${one.value} aria-checked=${String(one.value === value)} tabindex=${one.value === value ? 0 : -1}
      title=${one.about} onClick=${() => onChange(one.value)}>${one.title}</button>`)}</div>`;
};

export const Tabs = ({label, value, options, onChange}) => {
  const move = event => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step) return;
    event.preventDefault();
    const at = options.findIndex(one => one.value === value), next = (at + step + options.length) % options.length;
    onChange(options[next].value);
    event.currentTarget.children[next].focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${move}>
    ${options.map(one => html`<button type="button" role="tab" key=${one.value} aria-selected=${String(one.value === value)} tabindex=${one.value === value ? 0 : -1}
      title=${one.about} onClick=${() => onChange(one.value)}>${one.title}</button>`)}</div>`;
};

export const Field = ({label, hint, error, children}) => html`
  <label class="field"><span class="name">${label}</span>${children}${hint && html`<span class="hint">${hint}</span>`}${error && html`<span class="wrong" role="alert">${error}</span>`}</label>`;

// A line that can be copied, such as the command that does the same.
export const CopyLine = ({text}) => {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    try { await navigator.clipboard.writeText(text); setCopied(true); setTimeout(() => setCopied(false), 1500); } catch { /* not allowed: it can be selected */ }
  };
  return html`<div class="copyline"><code tabindex="0">${text}</code><button type="button" class="button small" onClick=${copy}>${copied ? "Copied" : "Copy"}</button></div>`;
};

// Keeps a mistake in one part of the page from taking the others with it: says so in its place.
export class Guarded extends Component {
  componentDidCatch(error) {
    console.error(error);
    this.setState({error});
  }

  render({children}, {error}) {
    return error ? html`<div class="failure" role="alert"><strong>This part of the page has failed: ${error.message}</strong>
      <p><button type="button" class="button small" onClick=${() => this.setState({error: null})}>Try again</button></p></div>` : children;
  }
}

const FOCUSED = "a[href], button:not([disabled]), input:not([disabled]), select:not([disabled]), textarea:not([disabled]), [tabindex]:not([tabindex='-1'])";

// A window above the page: the focus stays in it, Escape closes it. With `unsaved` it asks before it is left; `buttons` may be
// a function of what leaves it so.
export const Dialog = ({title, close, children, wide = false, buttons, unsaved = false}) => {
  const box = useRef(null), [asking, setAsking] = useState(false), before = useRef(null);
  const leave = () => {
    if (!unsaved) { close(); return; }
    if (!asking) before.current = document.activeElement;
    setAsking(true);
  };
  const stay = () => { setAsking(false); if (before.current && before.current.isConnected) before.current.focus(); };
  useLayoutEffect(() => { if (asking) box.current.querySelector(".leaving button").focus(); }, [asking]);
  useEffect(() => {
    if (!unsaved) return undefined;
    const ask = event => event.preventDefault();
    addEventListener("beforeunload", ask);
    return () => removeEventListener("beforeunload", ask);
  }, [unsaved]);
  useLayoutEffect(() => {  // before a key can go to what is behind it
    const first = box.current.querySelector("[autofocus], input, textarea, select") || box.current.querySelector(FOCUSED);
    if (first) first.focus();
  }, []);
  const keys = event => {
    if (event.key === "Escape") { event.stopPropagation(); if (asking) stay(); else leave(); }
    if (event.key !== "Tab") return;
    const all = [...box.current.querySelectorAll(FOCUSED)], first = all[0], last = all[all.length - 1];
    if (event.shiftKey && document.activeElement === first) { event.preventDefault(); last.focus(); }
    else if (!event.shiftKey && document.activeElement === last) { event.preventDefault(); first.focus(); }
  };
  return html`<div class="shade" onMouseDown=${event => { if (event.target === event.currentTarget) { event.preventDefault(); leave(); } }}>
    <section ref=${box} class=${`dialog ${wide ? "wide" : ""}`} role="dialog" aria-modal="true" aria-label=${title} onKeyDown=${keys}>
      <header role="none"><h2>${title}</h2><button type="button" class="button plain" aria-label="Close" onClick=${leave}>✕</button></header>
      <div class="inside">${children}</div>
      ${asking && html`<div class="leaving" role="alertdialog" aria-label="The text was changed"><span>The text was changed, and is not kept.</span>
        <button type="button" class="button" onClick=${stay}>Go on editing</button><button type="button" class="button danger" onClick=${close}>Discard it</button></div>`}
      ${buttons && html`<footer role="none">${typeof buttons === "function" ? buttons(leave) : buttons}</footer>`}
    </section></div>`;
};

// A menu at a place: `items` are {title, key, run, disabled, why} or null for a line between groups.
export const Menu = ({x, y, title, items, close}) => {
  const box = useRef(null);
  useLayoutEffect(() => {
    const {width, height} = box.current.getBoundingClientRect();
    box.current.style.left = `${Math.max(4, Math.min(x, innerWidth - width - 4))}px`;
    box.current.style.top = `${Math.max(4, Math.min(y, innerHeight - height - 4))}px`;
    (box.current.querySelector("button:not([disabled])") || box.current).focus();
  }, []);
  useEffect(() => {
    const outside = event => { if (box.current && !box.current.contains(event.target)) close(); };
    addEventListener("pointerdown", outside, true);
    return () => removeEventListener("pointerdown", outside, true);
  }, []);
  const keys = event => {
    event.stopPropagation();
    const all = [...box.current.querySelectorAll("button:not([disabled])")], at = all.indexOf(document.activeElement);
    const to = {ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1}[event.key];
    if (event.key === "Escape" || event.key === "Tab") { event.preventDefault(); close(); }
    else if (to !== undefined && all.length) { event.preventDefault(); all[(to + all.length) % all.length].focus(); }
    else {
      const item = items.find(one => one && one.key === event.key && !one.disabled);
      if (item) { event.preventDefault(); close(); item.run(); }
    }
  };
  return createPortal(html`<aside aria-label=${title || "Actions"}><div ref=${box} class="menu" role="menu" tabindex="-1" aria-label=${title || "Actions"} onKeyDown=${keys}>
    ${title && html`<p class="menu-title">${title}</p>`}
    ${items.map((one, at) => one === null ? html`<hr key=${at} />` : html`
      <button type="button" role="menuitem" key=${at} disabled=${one.disabled} title=${one.why} onClick=${() => { close(); one.run(); }}>
        <span>${one.title}</span>${one.key && html`<kbd>${one.key}</kbd>`}</button>`)}
  </div></aside>`, document.body);
};

export const Toasts = ({app}) => {
  const list = useStore(app.toasts, one => one.list);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${list.map(one => html`<div key=${one.id} class=${`toast ${one.kind}`}><span>${one.text}</span>
      ${one.action && html`<button type="button" class="button small" onClick=${() => { app.unsay(one); one.action.run(); }}>${one.action.title}</button>`}
      <button type="button" class="button plain" aria-label="Dismiss" onClick=${() => app.unsay(one)}>✕</button></div>`)}</div>`;
};

export const Dialogs = ({app}) => useStore(app.dialogs, one => one.list).map(one => html`<div key=${one.id}>${one.draw({close: one.close, app})}</div>`);
