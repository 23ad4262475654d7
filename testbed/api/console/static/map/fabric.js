// The picture of the lab with what is measured on it: the drawing of `lab graph` in two layers, and between them a canvas with
// the lines. It draws what `app.live.shown` says, and tells the address what one selects.
import {HOST, NAME, NET, Picture, RAILS, TIER, TRAY, drawn, nodeAt} from "../graph/picture.js";
import {portsOf} from "../core/app.js";
import {readWords} from "../core/filter.js";
import {METRICS, measureText, plural, rateText} from "../core/format.js";
import {openActions} from "../core/keys.js";
import {stateKind} from "../core/panel.js";
import {colourOf, themeNow} from "../core/scales.js";
import {onHold} from "../core/touch.js";
import {Lines} from "./lines.js";
import {View} from "./view.js";

const MOST_LINKS = 64, STILL = 4, ARROWS = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};

const boxOf = stage => ({width: stage.clientWidth, height: stage.clientHeight});

export class Fabric {
  constructor(stage, app, lab, map, positions, {moved}) {
    Object.assign(this, {stage, app, lab, map, positions: {...positions}, moved, moving: false, hover: null, lit: null, chosen: new Set(), hidden: false});
    const box = boxOf(stage);  // as long as it is empty, that costs nothing
    this.build();
    this.picture = new Picture(this.world, map.data, {isOff: number => this.isOff(number), arranged: () => this.arranged()});
    this.lines = null;
    this.nicPorts = this.findNicPorts();
    this.view = new View(box, [this.low, this.high], this.canvas, (paint, zoom) => this.paint(paint, zoom));
    for (const [name, [dx, dy]] of Object.entries(this.positions)) this.moveNode(name, dx, dy);
    this.picture.arrange();
    this.lines = new Lines(this.picture, map, lab);
    this.enter(this.high.querySelector(".n"));
    this.listen();
    this.marked = new Map();
    this.fills = new Map();
    this.markedState = undefined;
    this.look();
    this.fit();
  }

  // Two layers of the drawing: what is below lines, and what is above them.
  build() {
    const parsed = new DOMParser().parseFromString(this.map.svg, "image/svg+xml").documentElement, low = document.importNode(parsed, true);
    const high = low.cloneNode(false), parts = [...low.children], last = parts.map(part => part.matches("g.lines")).lastIndexOf(true);
    high.removeAttribute("id");
    high.setAttribute("aria-label", "Nodes of the lab");
    low.removeAttribute("role");
    low.removeAttribute("aria-label");
    low.setAttribute("aria-hidden", "true");
    for (const part of parts.slice(last + 1)) high.append(part);
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("aria-hidden", "true");
    this.tip = Object.assign(document.createElement("div"), {className: "tip", hidden: true});
    this.rubber = Object.assign(document.createElement("div"), {className: "rubber", hidden: true});
    this.world = Object.assign(document.createElement("div"), {className: "world"});
    Object.assign(this, {low, high});
    this.world.append(low, this.canvas, high);
    for (const node of this.world.querySelectorAll(".n[aria-label]")) {  // what is read begins with what is seen (WCAG 2.5.3)
      const texts = [...node.querySelectorAll("text")];
      for (const text of texts.slice(1)) text.before(" ");
      const seen = texts.map(text => text.textContent).join(" ");
      if (seen) node.setAttribute("aria-label", `${seen}, ${node.getAttribute("aria-label")}`);
    }
    this.stage.replaceChildren(this.world, this.rubber, this.tip);
  }

  isOff(number) {
    const layer = this.map.layers.find(one => one.number === number);
    return layer !== undefined && this.app.address.get().off.includes(layer.name);
  }

  arranged() {
    for (const svg of [this.low, this.high]) {
      const {width, height, top} = this.picture.size;
      svg.setAttribute("viewBox", `0 0 ${width} ${height + top}`);
      svg.setAttribute("width", width);
      svg.setAttribute("height", height + top);
    }
    if (this.lines) { this.lines.place(); this.view.redraw(); }
  }

  fit() { this.view.fit(this.picture.size); }

  // The ports of each host and of their switches towards it: what a cell of a host group is coloured by.
  findNicPorts() {
    const found = new Map(), {data} = this.map;
    data.links.forEach((link, index) => {
      const ports = this.lab.portsOfLink[this.map.link[index]];
      if (!ports) return;
      for (const node of [link[0], link[2]]) {
        if (data.nodes[node][TIER] !== HOST) continue;
        if (!found.has(node)) found.set(node, []);
        found.get(node).push(...ports);
      }
    });
    return found;
  }

  // --- drawing
  tick() { this.look(); }

  look() {
    const {shown, lab} = this.app.live.get(), {measure} = this.app.address.get();
    this.lab = lab || this.lab;
    this.shown = shown;
    const theme = themeNow(), stale = theme !== this.theme || measure !== this.measure;
    Object.assign(this, {theme, measure});
    this.markNodes();
    this.fillCells(measure, theme);
    if (this.lines.update({shown, measure}) || stale) this.view.redraw();
  }

  // Closed cells have the colour of their host's worst port.
  fillCells(measure, theme) {
    const columns = this.shown && this.shown.columns, column = columns && columns[measure];
    for (const [node, ports] of this.nicPorts) {
      if (this.map.data.nodes[node][TRAY] < 0) continue;
      let worst = -1;
      if (column) for (const port of ports) if (port >= 0 && column[port] > worst) worst = column[port];
      const fill = colourOf(measure, worst, theme) || "";
      if (this.fills.get(node) === fill) continue;
      this.fills.set(node, fill);
      this.picture.boxes.get(node).querySelector(".c").style.fill = fill;
    }
  }

  // Marks nodes that do not run, and those of a lost session.
  markNodes() {
    const state = this.shown && this.shown.state;
    if (state === this.markedState) return;
    this.markedState = state;
    if (this.words && this.words.keys.state) this.emphasise();
    const lost = new Map();
    if (state) for (const [place, word] of Object.entries(state.sessions || {})) {
      if (!word.startsWith("Established")) { const node = place.split(":")[0]; lost.set(node, (lost.get(node) || 0) + 1); }
    }
    this.map.data.nodes.forEach((one, node) => {
      const number = this.lab.nodeNumber.get(one[NAME]), element = this.picture.boxes.get(node);
      if (!element) return;
      const word = state && number !== undefined ? state.nodes[number] : "", kind = word ? stateKind(word) : "", sessions = lost.get(one[NAME]) || 0;
      const mark = kind && kind !== "ok" ? kind : sessions ? "warn" : "", words = mark ? (kind !== "ok" ? word : `${plural(sessions, "session")} down`) : "";
      if (this.marked.get(node) === words) return;
      this.marked.set(node, words);
      this.markNode(element, one[TRAY] >= 0, mark);
      const label = element.dataset.label || (element.dataset.label = element.getAttribute("aria-label"));
      element.setAttribute("aria-label", words ? `${label}, ${words}` : label);
    });
  }

  markNode(element, inTray, mark) {
    for (const kind of ["warn", "bad"]) element.classList.toggle(`is-${kind}`, mark === kind);
    if (inTray) return;
    const old = element.querySelector(".st");
    if (old) old.remove();
    if (mark) element.append(drawn("circle", {class: `st ${mark === "none" ? "off" : mark}`, cx: Number(element.querySelector(".c").getAttribute("width")) - 3, cy: 3, r: 5.5}));
  }

  paint(paint, zoom) {
    if (!this.lines) return;
    const style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue(name).trim(), {measure} = this.app.address.get();
    this.lines.draw(paint, {shown: this.shown, measure, theme: themeNow(), wire: colour("--wire"), bad: colour("--bad"), warn: colour("--warn"), focus: colour("--focus"), lit: this.lit, chosen: this.chosen, zoom});
  }

  // --- what is selected, found, or pointed at
  emphasise() {
    const {selection, filter} = this.app.address.get(), words = readWords(filter), {data} = this.map, picture = this.picture;
    picture.clear();
    Object.assign(this, {words, chosen: new Set()});
    const nodes = new Set();
    if (selection.length) {
      const numbers = new Map(data.nodes.map((one, node) => [one[NAME], node]));
      for (const id of selection) {
        const cut = id.indexOf(":"), kind = id.slice(0, cut), name = id.slice(cut + 1);
        if (kind === "node" && numbers.has(name)) nodes.add(numbers.get(name));
        if (kind === "gpu" && numbers.has(name.split("/")[0])) nodes.add(numbers.get(name.split("/")[0]));
        if (kind === "port" || kind === "link") for (const port of portsOf(this.lab, [id])) this.chosen.add(port);
      }
    }
    if (this.hover !== null && !nodes.size && !this.chosen.size && words.empty) nodes.add(this.hover);
    if (nodes.size) {
      for (const node of nodes) picture.follow(node);
      for (const node of nodes) if (selection.length) picture.boxes.get(node).classList.add("pinned");
      this.lit = line => [...nodes].some(node => line.nodes.has(node));
    } else if (this.chosen.size) {
      const ends = new Set([...this.chosen].flatMap(port => [port, this.lab.ports.peer[port]]).filter(port => port >= 0).map(port => this.lab.nodes.name[this.lab.ports.node[port]]));
      picture.mark(one => ends.has(one[NAME]));
      this.lit = line => line.near.some(port => this.chosen.has(port)) || line.far.some(port => this.chosen.has(port));
    } else if (!words.empty) {
      const {state} = this.shown || {}, networks = new Map(this.map.layers.map(one => [one.number, one.name]));
      const found = new Set();
      data.nodes.forEach((one, node) => {
        const number = this.lab.nodeNumber.get(one[NAME]);
        if (words.node(one[NAME], networks.get(one[NET]), state && number !== undefined ? state.nodes[number] : undefined)) found.add(node);
      });
      const ports = new Set(this.lab.ports.node.map((node, port) => port).filter(port => words.port(this.lab, state, port)));
      for (const port of ports) found.add(data.nodes.findIndex(one => one[NAME] === this.lab.nodes.name[this.lab.ports.node[port]]));
      picture.mark((one, node) => found.has(node));
      this.lit = line => [...line.near, ...line.far].some(port => ports.has(port));
    } else {
      this.lit = null;
    }
    this.view.redraw();
  }

  // --- pointer and keyboard
  listen() {
    const {stage} = this, on = (name, listener, options) => stage.addEventListener(name, listener, options);
    this.pointers = new Map();
    on("pointerdown", event => this.down(event));
    on("pointermove", event => this.drag(event));
    on("pointerup", event => this.up(event));
    on("pointercancel", event => { this.pointers.delete(event.pointerId); this.gesture = null; this.stage.classList.remove("dragging"); });
    on("pointerleave", () => this.point(null, null));
    on("wheel", event => {
      event.preventDefault();
      const box = stage.getBoundingClientRect(), by = event.deltaMode === 1 ? event.deltaY * 18 : event.deltaY;
      this.view.zoomBy(Math.exp(-Math.max(-120, Math.min(120, by)) * .0022), event.clientX - box.left, event.clientY - box.top);
    }, {passive: false});
    on("dblclick", event => { const node = nodeAt(event.target); if (node !== null) this.app.serve("shell", this.map.data.nodes[node][NAME]); });
    on("contextmenu", event => this.context(event));
    this.unhold = onHold(stage, event => { if (this.gesture && !this.gesture.far && this.gesture.kind !== "pinch") this.context(event); });
    on("keydown", event => this.keys(event));
    on("focusin", event => { const node = nodeAt(event.target); if (node !== null && event.target.matches(":focus-visible")) { this.hover = node; this.emphasise(); } });
    on("focusout", () => { if (this.hover !== null) { this.hover = null; this.emphasise(); } });
    this.resize = new ResizeObserver(() => {
      const box = boxOf(stage), {width, height} = this.view.box;
      if (box.width !== width || box.height !== height) this.view.resize(box);  // it is told once more in the beginning
    });
    this.resize.observe(stage);
  }

  at(event) {
    const box = this.stage.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  down(event) {
    if (event.button !== 0 || event.target.closest("button")) return;
    const [x, y] = this.at(event), node = nodeAt(event.target);
    this.pointers.set(event.pointerId, [x, y]);
    if (this.pointers.size === 2) { this.gesture = {kind: "pinch", apart: this.apart()}; return; }
    const movable = this.moving && node !== null && this.map.data.nodes[node][TRAY] < 0;
    this.gesture = {kind: movable ? "node" : event.shiftKey ? "box" : "pan", node, target: event.target, x, y, from: [x, y], far: false};
    if (movable) this.gesture.offset = this.picture.offsets.get(String(node)) || [0, 0];
  }

  apart() {
    const [[x1, y1], [x2, y2]] = [...this.pointers.values()];
    return {length: Math.hypot(x2 - x1, y2 - y1), x: (x1 + x2) / 2, y: (y1 + y2) / 2};
  }

  drag(event) {
    const [x, y] = this.at(event), {gesture} = this;
    if (!gesture || !this.pointers.has(event.pointerId)) { this.point(event, [x, y]); return; }
    this.pointers.set(event.pointerId, [x, y]);
    if (gesture.kind === "pinch" && this.pointers.size === 2) {
      const now = this.apart();
      this.view.panBy(now.x - gesture.apart.x, now.y - gesture.apart.y);
      this.view.zoomBy(now.length / (gesture.apart.length || 1), now.x, now.y);
      gesture.apart = now;
      return;
    }
    if (!gesture.far && Math.hypot(x - gesture.from[0], y - gesture.from[1]) < STILL) return;
    if (!gesture.far) { gesture.far = true; this.stage.setPointerCapture(event.pointerId); this.point(null, null); this.stage.classList.add("dragging"); }
    if (gesture.kind === "pan") this.view.panBy(x - gesture.x, y - gesture.y);
    if (gesture.kind === "node") {
      const {zoom} = this.view, name = this.map.data.nodes[gesture.node][NAME];
      this.moveNode(name, gesture.offset[0] + (x - gesture.from[0]) / zoom, gesture.offset[1] + (y - gesture.from[1]) / zoom);
    }
    if (gesture.kind === "box") {
      const [fx, fy] = gesture.from;
      Object.assign(this.rubber.style, {left: `${Math.min(fx, x)}px`, top: `${Math.min(fy, y)}px`, width: `${Math.abs(x - fx)}px`, height: `${Math.abs(y - fy)}px`});
      this.rubber.hidden = false;
    }
    Object.assign(gesture, {x, y});
  }

  up(event) {
    const {gesture} = this;
    this.pointers.delete(event.pointerId);
    if (gesture && gesture.kind === "pinch" && this.pointers.size === 1) {  // the finger that is left moves the map on
      const [[x, y]] = this.pointers.values();
      this.gesture = {kind: "pan", node: null, target: event.target, x, y, from: [x, y], far: true};
      return;
    }
    if (!gesture || this.pointers.size) return;
    this.gesture = null;
    this.stage.classList.remove("dragging");
    if (gesture.kind === "box" && gesture.far) { this.selectBox(gesture); return; }
    if (gesture.kind === "node" && gesture.far) { this.keepPositions(); return; }
    if (gesture.far || gesture.kind === "pinch") return;
    const toggle = gesture.target.closest && gesture.target.closest(".toggle"), add = event.shiftKey;
    if (toggle) this.picture.setTray(toggle.parentNode, !this.picture.isOpen(toggle.parentNode));
    else if (gesture.node !== null) { this.enter(this.picture.boxes.get(gesture.node)); this.current.focus({preventScroll: true}); this.pick([`node:${this.map.data.nodes[gesture.node][NAME]}`], add); }
    else {
      const [px, py] = this.view.toPicture(...gesture.from), near = this.lines.nearest(px, py, this.view.zoom);
      if (near) this.pick(this.linkIds(near), add); else if (!add) this.app.select([]);
    }
  }

  pick(ids, add) {
    const {selection} = this.app.address.get();
    if (!add && ids.length === selection.length && ids.every(id => selection.includes(id))) this.app.select([]);
    else this.app.select(ids, {add});
  }

  // The selection that a line means: the port of that half, or all links of a line that stands for several.
  linkIds({one, near}) {
    const ports = (near ? one.near : one.far).filter(port => port >= 0).slice(0, MOST_LINKS);
    return ports.length === 1 ? [`port:${this.lab.portName(ports[0])}`] : ports.map(port => `link:${this.lab.portName(port)}`);
  }

  selectBox({from, x, y}) {
    this.rubber.hidden = true;
    const [l, t] = this.view.toPicture(Math.min(from[0], x), Math.min(from[1], y)), [r, b] = this.view.toPicture(Math.max(from[0], x), Math.max(from[1], y));
    const ids = [];
    for (const [node, element] of this.picture.boxes) {
      if (this.picture.unseen(node)) continue;
      const place = this.picture.place(element), middle = (place.top + place.bottom) / 2;
      if (place.x >= l && place.x <= r && middle >= t && middle <= b) ids.push(`node:${this.map.data.nodes[node][NAME]}`);
    }
    this.app.select(ids.slice(0, 200));
  }

  context(event) {
    event.preventDefault();
    this.gesture = null;  // a finger that rests is still down
    const node = nodeAt(event.target), [x, y] = this.at(event), {selection} = this.app.address.get();
    let ids = node !== null ? [`node:${this.map.data.nodes[node][NAME]}`] : null;
    if (!ids) {
      const near = this.lines.nearest(...this.view.toPicture(x, y), this.view.zoom);
      ids = near ? this.linkIds(near) : null;
    }
    if (ids && !ids.every(id => selection.includes(id))) this.app.select(ids);
    if (ids || selection.length) openActions(this.app, {x: event.clientX, y: event.clientY});
  }

  // What the pointer is above, in words beside it; a node's links are followed.
  point(event, at) {
    const node = event ? nodeAt(event.target) : null, near = event && node === null && !event.target.closest(".tray") ? this.lines.nearest(...this.view.toPicture(...at), this.view.zoom) : null;
    if (event && event.pointerType === "touch") return;
    if (node !== this.hover) { this.hover = node; this.emphasise(); }
    const words = node !== null ? this.nodeWords(node) : near ? this.lineWords(near) : null;
    this.stage.classList.toggle("over-line", near !== null);
    this.tip.hidden = words === null;
    if (words === null) return;
    this.tip.replaceChildren(...words.map((text, row) => Object.assign(document.createElement(row ? "div" : "b"), {textContent: text})));
    const {width, height} = this.view.box, box = this.tip.getBoundingClientRect();
    this.tip.style.left = `${Math.min(at[0] + 14, width - box.width - 6)}px`;
    this.tip.style.top = `${at[1] + 20 + box.height > height ? at[1] - box.height - 10 : at[1] + 20}px`;
  }

  nodeWords(node) {
    const one = this.map.data.nodes[node], name = one[NAME], number = this.lab.nodeNumber.get(name), {measure} = this.app.address.get();
    const words = [name], state = this.shown && this.shown.state && number !== undefined ? this.shown.state.nodes[number] : "";
    words.push([(this.map.data.named || {})[name] || this.map.data.tiers[one[TIER]], state, one[RAILS].length ? `rail${one[RAILS].length > 1 ? "s" : ""} ${one[RAILS].length > 4 ? `${one[RAILS][0]}–${one[RAILS][one[RAILS].length - 1]}` : one[RAILS].join(", ")}` : ""].filter(Boolean).join(" · "));
    const column = this.shown && this.shown.columns && this.shown.columns[measure];
    if (column && number !== undefined && this.lab.portsOfNode[number].length) {
      const worst = this.lab.portsOfNode[number].reduce((most, port) => column[port] > column[most] ? port : most);
      words.push(`${METRICS[measure].title}: ${measureText(measure, column[worst])} at ${this.lab.ports.name[worst]}`);
    }
    return words;
  }

  lineWords({one, near}) {
    const ports = near ? one.near : one.far, {measure} = this.app.address.get(), {columns} = this.shown || {}, first = ports.find(port => port >= 0);
    if (first === undefined) return ["not a link of the lab's own"];
    const peer = this.lab.ports.peer[first], other = near ? one.far : one.near, column = columns && columns[measure];
    const title = ports.length === 1 ? `${this.lab.portName(first)} → ${peer >= 0 ? this.lab.portName(peer) : "?"}` : `${plural(ports.length, "link")}: ${this.lab.portName(first)} …`;
    const words = [title, `${METRICS[measure].title}: ${measureText(measure, this.lines.worst(ports, column))}, back ${measureText(measure, this.lines.worst(other, column))}${ports.length > 1 ? " (worst)" : ""}`];
    if (columns && columns.use) words.push(`${rateText(this.lines.sent(ports, columns.use))} of ${rateText(ports.reduce((sum, port) => sum + (port >= 0 ? this.lab.ports.rate_bps[port] : 0), 0))}`);
    const condition = this.shown && this.shown.state && this.shown.state.conditions && ports.map(port => port >= 0 && this.shown.state.conditions[this.lab.portName(port)]).find(Boolean);
    if (condition) words.push(condition);
    return words;
  }

  enter(element) {
    if (this.current) this.current.setAttribute("tabindex", "-1");
    this.current = element;
    if (element) element.setAttribute("tabindex", "0");
  }

  keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const toggle = event.target.closest(".toggle"), node = nodeAt(event.target), {key} = event;
    const handled = () => { event.preventDefault(); event.stopPropagation(); };
    if ((key === "Enter" || key === " ") && toggle) { handled(); this.picture.setTray(toggle.parentNode, !this.picture.isOpen(toggle.parentNode)); }
    else if ((key === "Enter" || key === " ") && node !== null) {
      handled();
      const id = `node:${this.map.data.nodes[node][NAME]}`, {selection} = this.app.address.get();
      if (key === "Enter" && !event.shiftKey && selection.length === 1 && selection[0] === id) this.app.serve("shell", this.map.data.nodes[node][NAME]);
      else this.app.select([id], {add: event.shiftKey});
    } else if (ARROWS[key] && node !== null && event.shiftKey && this.moving && this.map.data.nodes[node][TRAY] < 0) {
      handled();
      const [dx, dy] = this.picture.offsets.get(String(node)) || [0, 0], [sx, sy] = ARROWS[key];
      this.moveNode(this.map.data.nodes[node][NAME], dx + sx * 10, dy + sy * 10);
      this.keepPositions();
    } else if (ARROWS[key] && node !== null) {
      handled();
      const next = this.picture.next(this.current, ...ARROWS[key]);
      if (next) { this.enter(next); next.focus({preventScroll: true}); this.view.reveal(this.picture.place(next)); }
    } else if (ARROWS[key] && event.target === this.stage) { handled(); this.view.panBy(-ARROWS[key][0] * 60, -ARROWS[key][1] * 60); }
    else if (key === "+" || key === "=") { handled(); this.view.zoomBy(1.25); }
    else if (key === "-") { handled(); this.view.zoomBy(.8); }
    else if (key === "0") { handled(); this.fit(); }
    else if (key === "." && node !== null && !this.app.address.get().selection.length) this.app.select([`node:${this.map.data.nodes[node][NAME]}`]);
  }

  // --- positions
  moveNode(name, dx, dy) {
    const node = this.map.data.nodes.findIndex(one => one[NAME] === name);
    if (node < 0) return;
    this.picture.moveNode(node, dx, dy);
    if (this.map.data.nodes[node][TRAY] < 0) this.positions[name] = [Math.round(dx * 10) / 10, Math.round(dy * 10) / 10];
    if (this.lines) { this.lines.place(); this.view.redraw(); }
  }

  keepPositions() {
    for (const [name, [dx, dy]] of Object.entries(this.positions)) if (!dx && !dy) delete this.positions[name];
    this.moved({...this.positions});
  }

  resetPositions() {
    for (const name of Object.keys(this.positions)) this.moveNode(name, 0, 0);
    this.positions = {};
    this.moved({});
  }

  // Networks were switched on or off.
  relayer() {
    for (const layer of this.map.layers) this.world.classList.toggle(`off${layer.number}`, this.isOff(layer.number));
    this.picture.arrange();
    if (this.view.untouched) this.fit(); else this.view.redraw();
    this.emphasise();
  }

  setTrays(open) { this.picture.setTrays(open); if (this.view.untouched) this.fit(); }
  get open() { return this.picture.trays.length > 0 && this.picture.trays.every(tray => this.picture.isOpen(tray)); }

  close() {
    this.resize.disconnect();
    this.unhold();
    this.view.close();
    this.stage.replaceChildren();
  }
}
