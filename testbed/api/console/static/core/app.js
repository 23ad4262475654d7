// The one object that all parts of the page share: what is in the address, what the server tells, and what they offer each
// other. It draws nothing.
import {ApiError, LOGGED_OUT, ask, logIn} from "./api.js";
import {EMPTY, format, parse} from "./address.js";
import {askAhead, forgetAhead, neededOf} from "./early.js";
import {Store} from "./store.js";
import {Stream} from "./stream.js";

const MOST_MOMENTS = 240, AGAIN_MS = 3000;

export class App {
  constructor() {
    this.address = new Store({...EMPTY, ...parse(location.hash)});
    this.live = new Store({console: null, labs: [], tasks: [], trust: null, connected: false, lab: null, columns: null, t: null, state: null, shown: null, events: [], failed: null, gone: null, failing: [], machines: [], loggedOut: false, crowded: false});
    this.toasts = new Store({list: []});
    this.dialogs = new Store({list: []});
    this.views = new Store({list: []});
    this.services = {};
    this.keys = new Map();
    this.listeners = new Map();
    this.stream = new Stream((name, data) => this.told(name, data), connected => this.live.set(connected ? {connected, loggedOut: false} : {connected}), () => this.askWhetherKnown(), crowded => this.live.set({crowded}));
    this.moments = new Map();
    this.kept = new Map();  // the parameters that views had when one left them
    this.asked = 0;
    addEventListener(LOGGED_OUT, () => this.live.set({loggedOut: true}));
    addEventListener("hashchange", () => this.address.set({...EMPTY, ...parse(location.hash)}));
    this.address.on((now, before) => this.moved(now, before));
  }

  // --- the address
  // Goes where these members of the address say: a new entry of the history for another view or base, else the same one.
  go(changes, {replace = false} = {}) {
    const before = this.address.get(), far = ["base", "view"].some(key => key in changes && changes[key] !== before[key]);
    const next = {...before, ...changes};
    if ("base" in changes && changes.base !== before.base) Object.assign(next, {selection: [], moment: null, off: [], filter: "", params: {}}, changes);
    else if ("view" in changes && changes.view !== before.view) {
      this.kept.set(before.view, before.params);
      next.params = changes.params || this.kept.get(changes.view) || {};
    }
    const hash = format(next);
    if (hash !== location.hash) history[far && !replace ? "pushState" : "replaceState"](null, "", hash);
    this.address.set(next);
  }

  select(ids, {add = false} = {}) {
    const before = this.address.get().selection;
    const one = ids.length === 1 && before.includes(ids[0]);
    const selection = add ? (one ? before.filter(id => id !== ids[0]) : [...new Set([...before, ...ids])]) : ids;
    this.go({selection});
  }

  // Sets the moment that the page shows, in seconds; null: live.
  at(seconds) { this.go({moment: seconds === null ? null : this.rounded(seconds)}); }

  // A moment as the address has it: in milliseconds, and of a run, which may be simulated and short, in nanoseconds.
  rounded(seconds) {
    const {lab} = this.live.get(), parts = lab && lab.clock === "run" ? 1e9 : 1e3;
    return Math.round(seconds * parts) / parts;
  }

  param(name) { return this.address.get().params[name]; }

  setParam(changes) {
    const params = {...this.address.get().params};
    for (const [key, value] of Object.entries(changes)) if (value === null || value === undefined || value === "") delete params[key]; else params[key] = String(value);
    this.go({params});
  }

  moved(now, before) {
    if (now.base !== before.base) this.open(now.base);
    else if (now.moment !== before.moment) this.showMoment();
  }

  // --- the server
  get(path, signal) { return ask("GET", this.path(path), undefined, signal); }
  post(path, body = {}) { return ask("POST", this.path(path), body); }
  put(path, body) { return ask("PUT", this.path(path), body); }
  path(path) {
    if (path.startsWith("./")) return `${this.address.get().base}${path.slice(1)}`;
    return path.startsWith("/api") ? path : `/api${path.startsWith("/") ? "" : "/"}${path}`;
  }

  async start() {
    const [console, labs] = await Promise.all([this.get("console"), this.get("labs")]);
    this.live.set({console, labs});
    const here = this.address.get(), first = console.open || (labs.length === 1 ? labs[0].base || null : null);
    if (here.base === null && !here.view && first) this.go({base: first, view: "map"}, {replace: true});  // which opens it
    else if (here.base) await this.open(here.base);
    else this.stream.follow("/api/stream");
  }

  // The console may have been started anew, and knows no browser then: `ask` tells.
  async askWhetherKnown() {
    if (!this.live.get().loggedOut) await this.get("console").catch(() => null);
  }

  // Logs in again without losing what the page holds; whether the token was right.
  async logIn(token) {
    if (!await logIn(token)) return false;
    this.live.set({loggedOut: false});
    const {base} = this.address.get(), {console: known} = this.live.get();
    if (!known) location.reload();
    this.stream.last = "";
    this.stream.open();
    if (base && !this.live.get().lab) await this.open(base);
    return true;
  }

  // Looks at another lab or run; null: at none.
  async open(base) {
    const mine = ++this.asked;
    if (mine > 1) forgetAhead();  // the first is what was asked for before there was an App
    this.moments.clear();
    this.live.set({lab: null, layers: null, columns: null, t: null, state: null, shown: null, events: [], failed: null, gone: null});
    if (!base) { this.stream.follow("/api/stream"); return; }
    this.stream.follow(base + "/stream");
    askAhead(neededOf(base, this.address.get().view));
    try {
      const lab = await this.get(base);
      if (mine !== this.asked) return;
      this.live.set({lab: indexed(lab)});
      this.showMoment();
      const events = await this.get(base + "/events?count=200").catch(() => []);
      if (mine === this.asked) this.live.set({events});
    } catch (error) {
      if (mine !== this.asked) return;
      this.live.set({failed: error});
      if (error.status === 0) setTimeout(() => { if (mine === this.asked) { this.stream.follow(null); this.open(base); } }, AGAIN_MS);  // with a snapshot
    }
  }

  on(name, listener) {
    if (!this.listeners.has(name)) this.listeners.set(name, new Set());
    this.listeners.get(name).add(listener);
    return () => this.listeners.get(name).delete(listener);
  }

  told(name, data) {
    const told = this[`on_${name}`];
    if (told) told.call(this, data);
    for (const listener of this.listeners.get(name) || []) listener(data);
  }

  on_snapshot(data) {
    const next = {labs: data.labs || this.live.get().labs, tasks: data.tasks || [], trust: data.trust || null, failing: data.failing || [], machines: data.machines || []};
    if (data.columns) {
      next.columns = columnsOf(data.columns);
      next.state = data.state;
      next.t = data.t;
      next.gone = null;  // it is there again, if it was gone
      if (this.address.get().moment === null) next.shown = {t: data.t, columns: next.columns, state: data.state};
    }
    this.live.set(next);
    this.lookWhetherBack(next.labs);
    const {lab} = this.live.get();
    if (lab && data.revision && data.revision !== lab.revision) this.on_shape({revision: data.revision});
  }

  on_tick({t, d}) {
    const {columns, state} = this.live.get();
    if (!columns) return;
    for (const [metric, [ports, values]] of Object.entries(d)) {
      const column = columns[metric];
      if (column) for (let i = 0; i < ports.length; i++) column[ports[i]] = values[i];
    }
    this.live.set(this.address.get().moment === null ? {t, shown: {t, columns, state}} : {t});
  }

  on_state(change) {
    const before = this.live.get().state;
    if (!before) return;
    const state = {...before, nodes: [...before.nodes], links: [...before.links]};
    for (const key of ["conditions", "sessions"]) state[key] = merged(before[key], change[key]);
    for (const [node, word] of Object.entries(change.nodes || {})) state.nodes[node] = word;
    for (const [port, word] of Object.entries(change.links || {})) state.links[port] = word;
    for (const key of ["sessions_up", "sessions_planned"]) if (change[key] !== undefined) state[key] = change[key];
    const {shown} = this.live.get();
    this.live.set(this.address.get().moment === null && shown ? {state, shown: {...shown, state}} : {state});
  }

  on_machines(machines) { this.live.set({machines}); }
  on_failing(failing) { this.live.set({failing}); }
  on_event(event) { this.live.set({events: [...this.live.get().events.slice(-499), event]}); }
  on_trust(trust) { this.live.set({trust}); }
  on_labs(labs) { this.live.set({labs}); this.lookWhetherBack(labs); }

  on_task(task) {
    const tasks = this.live.get().tasks.filter(one => one.id !== task.id);
    this.live.set({tasks: [...tasks, task]});
  }

  // The lab has gone: what is told of the machine is told on, and a lab that has its name again is looked at.
  on_gone(gone) {
    this.live.set({gone});
    this.stream.follow("/api/stream");
  }

  lookWhetherBack(labs) {
    const {gone, lab} = this.live.get(), {base} = this.address.get();
    if (gone && labs.some(one => one.base === base && (!lab || one.created !== lab.created))) this.open(base);
  }

  async on_shape() {
    forgetAhead();
    const {base} = this.address.get();
    try {
      const lab = await this.get(base);
      if (base === this.address.get().base) this.live.set({lab: indexed(lab)});
    } catch (error) {
      this.say(error.message, {kind: "bad"});
    }
  }

  // --- the moment
  // Shows all as it was at the moment of the address; the latest that was asked for wins.
  async showMoment() {
    const {moment, base} = this.address.get(), {columns, state, t} = this.live.get();
    if (moment === null || !base) {
      if (columns) this.live.set({shown: {t, columns, state}});
      return;
    }
    if (this.asking) { this.askAgain = true; return; }
    this.asking = true;
    try {
      const found = this.moments.get(moment) || await this.get(`./moment?t=${moment}`);
      if (this.address.get().moment !== null && this.address.get().base === base) this.live.set({shown: shownOf(found)});
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 404 && this.address.get().moment === moment) {
        this.say("That moment is no longer kept: the console is live again", {kind: "warn"});
        this.at(null);
      }
    } finally {
      this.asking = false;
      if (this.askAgain) { this.askAgain = false; this.showMoment(); }
    }
  }

  // Fetches moments ahead of a playback, at most 60.
  async fetchMoments(times) {
    const found = await this.get(`./moment?t=${times.join(",")}`), moments = found.moments || [found];
    times.forEach((time, at) => this.moments.set(time, moments[at]));
    for (const old of [...this.moments.keys()].slice(0, -MOST_MOMENTS)) this.moments.delete(old);
  }

  // --- what is selected, as actions want it
  targets() {
    return this.address.get().selection.map(id => {
      const cut = id.indexOf(":");
      return {kind: id.slice(0, cut), id, name: id.slice(cut + 1)};
    });
  }

  // --- what parts offer each other
  say(text, {kind = "ok", action = null, lasts = 6000} = {}) {
    const toast = {text, kind, action, id: Math.random()};
    this.toasts.set({list: [...this.toasts.get().list.slice(-3), toast]});
    if (lasts) setTimeout(() => this.unsay(toast), lasts);
    return toast;
  }

  unsay(toast) { this.toasts.set({list: this.toasts.get().list.filter(one => one !== toast)}); }

  dialog(draw) {
    const one = {draw, id: Math.random(), from: document.activeElement};
    one.close = () => {
      this.dialogs.set({list: this.dialogs.get().list.filter(other => other !== one)});
      if (one.from && one.from.isConnected) one.from.focus();
    };
    this.dialogs.set({list: [...this.dialogs.get().list, one]});
    return one;
  }

  key({key, title, run, when = () => true, group = "Everywhere"}) {
    const entry = {key, title, run, when, group};
    if (!this.keys.has(key)) this.keys.set(key, []);
    this.keys.get(key).push(entry);
    return () => this.keys.set(key, this.keys.get(key).filter(one => one !== entry));
  }

  // Runs a service of a view, or says that there is none.
  serve(name, ...words) {
    if (this.services[name]) return this.services[name](...words);
    return this.say("This console has nothing for that", {kind: "warn"});
  }

  addView(view) {
    const list = [...this.views.get().list.filter(one => one.name !== view.name), view];
    this.views.set({list: list.sort((one, other) => (one.order || 0) - (other.order || 0))});
    if (view.onEvent) this.on("view", ({view: name, data}) => { if (name === view.name) view.onEvent(data, this); });
    for (const [key, one] of Object.entries(view.keys || {})) this.key({key, group: view.title, ...one, run: event => one.run(this, event)});
    if (view.start) view.start(this);
  }
}

// What the server knew before, with what differs since: null is what is gone.
const merged = (before, change) => Object.fromEntries(Object.entries({...before, ...change}).filter(([, value]) => value !== null));
const columnsOf = columns => Object.fromEntries(Object.entries(columns).map(([metric, values]) => [metric, Int32Array.from(values)]));
const shownOf = ({t, columns, state}) => ({t, columns: columns.use instanceof Int32Array ? columns : columnsOf(columns), state});

// A lab's answer with what is asked of it often: numbers by names, ports of nodes and of links.
const indexed = lab => {
  const {nodes, ports} = lab;
  lab.nodeNumber = new Map(nodes.name.map((name, number) => [name, number]));
  lab.portNumber = new Map();
  lab.portsOfNode = nodes.name.map(() => []);
  lab.portsOfLink = [];
  ports.node.forEach((node, port) => {
    lab.portNumber.set(`${nodes.name[node]}:${ports.name[port]}`, port);
    lab.portsOfNode[node].push(port);
    const link = ports.link[port];
    if (link >= 0) (lab.portsOfLink[link] = lab.portsOfLink[link] || [-1, -1])[ports.end[port]] = port;
  });
  lab.portName = port => `${nodes.name[ports.node[port]]}:${ports.name[port]}`;
  return lab;
};

// The ports that a selection means, by number.
export const portsOf = (lab, selection) => {
  const found = new Set();
  for (const id of selection) {
    const cut = id.indexOf(":"), kind = id.slice(0, cut), name = id.slice(cut + 1);
    if (kind === "node" && lab.nodeNumber.has(name)) for (const port of lab.portsOfNode[lab.nodeNumber.get(name)]) found.add(port);
    if ((kind === "port" || kind === "link") && lab.portNumber.has(name)) {
      const port = lab.portNumber.get(name);
      found.add(port);
      if (kind === "link" && lab.ports.peer[port] >= 0) found.add(lab.ports.peer[port]);
    }
    if (kind === "gpu") {
      const host = name.split("/")[0];
      if (lab.nodeNumber.has(host)) for (const port of lab.portsOfNode[lab.nodeNumber.get(host)]) found.add(port);
    }
  }
  return [...found];
};
