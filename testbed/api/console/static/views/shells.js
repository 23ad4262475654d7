// Shells and logs in tabs at the lower edge: the map stays in view. A shell ends with its tab, or with the page.
import {html, useEffect, useLayoutEffect, useRef, useState} from "../core/lib.js";
import {Store, useStore} from "../core/store.js";
import {Button, Tabs} from "../core/ui.js";
import {themeNow} from "../core/scales.js";

const open = new Store({list: [], shown: null, tall: false, folded: false});
const MOST_LOG_LINES = 5000;
let counted = 0;

const addTab = (app, tab) => {
  const key = `${tab.kind}-${counted++}`;
  const list = [...open.get().list, {...tab, key, base: app.address.get().base}];
  open.set({list, shown: key, folded: false});
};

const closeTab = key => {
  const {list, shown} = open.get(), at = list.findIndex(one => one.key === key), left = list.filter(one => one.key !== key);
  const next = shown === key ? (left[Math.min(at, left.length - 1)] || {key: null}).key : shown;
  open.set({list: left, shown: next});
};

const Dock = ({app}) => {
  const {list, shown, tall, folded} = useStore(open);
  if (!list.length) return null;
  return html`<section class=${`dock ${tall ? "tall" : ""} ${folded ? "folded" : ""}`} aria-label="Shells and logs">
    <header class="dock-head">
      <${Tabs} label="Shells and logs" value=${shown} onChange=${key => open.set({shown: key, folded: false})}
        options=${list.map(one => ({value: one.key, title: `${one.kind === "log" ? "log " : ""}${one.node}${one.detail ? ` ${one.detail}` : ""}`}))} />
      <span class="grow"></span>
      <${Button} kind="plain" label=${folded ? "Unfold" : "Fold"} onClick=${() => open.set({folded: !folded})}>${folded ? "▴" : "▾"}</${Button}>
      <${Button} kind="plain" label=${tall ? "Lower" : "Higher"} onClick=${() => open.set({tall: !tall, folded: false})}>${tall ? "⤓" : "⤒"}</${Button}>
      <${Button} kind="plain" label="Close this tab" onClick=${() => closeTab(shown)}>✕</${Button}></header>
    <div class="dock-body">${list.map(one => html`<div key=${one.key} class="dock-tab" hidden=${one.key !== shown}>
      ${one.kind === "log" ? html`<${Log} app=${app} tab=${one} />` : html`<${Shell} app=${app} tab=${one} shown=${one.key === shown && !folded} tall=${tall} />`}</div>`)}</div>
  </section>`;
};

const Shell = ({app, tab, shown, tall}) => {
  const box = useRef(null), terminal = useRef(null), [ended, setEnded] = useState("");
  useEffect(() => {
    const term = tab.openTerminal(box.current, {theme: themeNow()});
    terminal.current = term;
    term.fit();
    const address = new URL(`${tab.base}/shell/${encodeURIComponent(tab.node)}`, location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    address.search = new URLSearchParams({cols: term.cols, rows: term.rows, ...(tab.program && {program: tab.program})});
    const socket = new WebSocket(address), encoder = new TextEncoder();
    socket.binaryType = "arraybuffer";
    socket.onopen = () => { term.focus(); };
    socket.onmessage = ({data}) => term.write(typeof data === "string" ? data : new Uint8Array(data));
    socket.onclose = ({code, reason}) => setEnded(reason || (code === 1006 ? "the console is gone" : `it was closed (${code})`));
    const typed = term.onData(text => { if (socket.readyState === 1) socket.send(encoder.encode(text)); });
    const sized = term.onResize(({cols, rows}) => { if (socket.readyState === 1) socket.send(JSON.stringify({resize: [cols, rows]})); });
    const watch = new ResizeObserver(() => { if (box.current && box.current.offsetWidth) term.fit(); });
    watch.observe(box.current);
    const themes = new MutationObserver(() => term.setTheme(themeNow()));
    themes.observe(document.documentElement, {attributeFilter: ["data-theme"]});
    return () => { watch.disconnect(); themes.disconnect(); typed.dispose(); sized.dispose(); socket.close(); term.dispose(); };
  }, []);
  useLayoutEffect(() => { if (shown && terminal.current) { terminal.current.fit(); terminal.current.focus(); } }, [shown, tall]);
  return html`<div class="terminal-box"><div class="terminal" ref=${box}></div>${ended && html`<p class="dock-said" role="status">${ended}</p>`}</div>`;
};

// A log is followed by one request, whose answer goes on. Lines that begin with ASCII's record separator are the console's.
const Log = ({app, tab}) => {
  const [lines, setLines] = useState([]), [command, setCommand] = useState(""), [said, setSaid] = useState(""), [words, setWords] = useState("");
  const box = useRef(null), stuck = useRef(true);
  useEffect(() => {
    const stop = new AbortController();
    const read = async () => {
      try {
        const query = tab.daemon ? `?daemon=${encodeURIComponent(tab.daemon)}` : "";
        const answer = await fetch(`${tab.base}/views/logs/${encodeURIComponent(tab.node)}${query}`, {signal: stop.signal});
        if (!answer.ok) { const told = await answer.json().catch(() => ({error: {}})); setSaid(told.error.message || `status ${answer.status}`); return; }
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let rest = "";
        for (;;) {
          const {value, done} = await reader.read();
          if (done) break;
          const parts = (rest + value).split("\n");
          rest = parts.pop();
          const own = parts.filter(line => line.startsWith("\u001e")), others = parts.filter(line => !line.startsWith("\u001e"));
          for (const line of own) { if (line.includes("testbed logs")) setCommand(line.slice(1)); else setSaid(line.slice(1)); }
          if (others.length) setLines(now => [...now, ...others].slice(-MOST_LOG_LINES));
        }
      } catch (error) {
        if (error.name !== "AbortError") setSaid(error.message);
      }
    };
    read();
    return () => stop.abort();
  }, []);
  useLayoutEffect(() => { if (box.current && stuck.current) box.current.scrollTop = box.current.scrollHeight; }, [lines]);
  const scrolled = event => { const {scrollTop, scrollHeight, clientHeight} = event.currentTarget; stuck.current = scrollTop + clientHeight >= scrollHeight - 4; };
  const low = words.toLowerCase(), shown = low ? lines.filter(line => line.toLowerCase().includes(low)) : lines;
  return html`<div class="log"><p class="log-head"><code>${command}</code><input type="search" placeholder="Only lines with …" aria-label="Only lines with" value=${words} onInput=${event => setWords(event.target.value)} /></p>
    <pre ref=${box} role="log" tabindex="0" aria-label=${`Log of ${tab.node}`} onScroll=${scrolled}>${shown.join("\n")}</pre>${said && html`<p class="dock-said" role="status">${said}</p>`}</div>`;
};

// A terminal is large, and is loaded with the first shell.
const openShell = async (app, node, program) => {
  try {
    const {openTerminal} = await import("../core/terminal.js");
    addTab(app, {kind: "shell", node, program, detail: program, openTerminal});
  } catch (error) {
    app.say(`The terminal does not load: ${error.message}`, {kind: "bad"});
  }
};

const writes = app => {
  const {console, lab} = app.live.get();
  if (!lab || !lab.live) { app.say("This is a record: no node is there", {kind: "warn"}); return false; }
  if (!console.write) { app.say("This console only reads: it was started without --write", {kind: "warn"}); return false; }
  return true;
};

export default {
  name: "shells",
  title: "Shells",
  order: 95,
  slots: {dock: Dock},
  start(app) {
    app.services.shell = (node, program = "") => { if (writes(app)) openShell(app, node, program); };
    app.services.logs = (node, daemon = "") => { if (writes(app)) addTab(app, {kind: "log", node, daemon, detail: daemon}); };
    const one = () => app.targets().filter(target => target.kind === "node");
    app.key({key: "s", title: "Shell in the node", group: "What is selected", when: () => one().length > 0, run: () => one().forEach(target => app.serve("shell", target.name))});
    app.key({key: "g", title: "Logs of the node", group: "What is selected", when: () => one().length > 0, run: () => one().forEach(target => app.serve("logs", target.name))});
  },
};
