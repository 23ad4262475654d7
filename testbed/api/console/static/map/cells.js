// What stands for the map where a lab is large: a honeycomb of NICs (a row for each rail, a column for each host) and a matrix of
// leaves and spines. Both are cells on one canvas; a cell is of two directions of a link, or shows the worse one.
import {HOST, NAME, POD, SEGMENT, TIER} from "../graph/picture.js";
import {readWords} from "../core/filter.js";
import {METRICS, measureText} from "../core/format.js";
import {openActions} from "../core/keys.js";
import {ramp, stepOf, themeNow} from "../core/scales.js";
import {onHold} from "../core/touch.js";

const SPINE = 1, LEAF = 2, PAD = 18, TITLE = 22, LABEL = 44, ROW_FONT = 10, WIDEST = 48;

const numbersOf = name => (name.match(/\d+/g) || []).map(Number);
const byName = (one, other) => {
  const [a, b] = [numbersOf(one), numbersOf(other)];
  for (let at = 0; at < Math.min(a.length, b.length); at++) if (a[at] !== b[at]) return a[at] - b[at];
  return one.localeCompare(other);
};
const grouped = (list, keyOf) => {
  const found = new Map();
  for (const one of list) { const key = keyOf(one); if (!found.has(key)) found.set(key, []); found.get(key).push(one); }
  return found;
};

// The blocks of the honeycomb: those of the hosts of each segment.
export const honeycombBlocks = (map, lab) => {
  const {nodes, links} = map.data, cells = [];
  links.forEach((link, index) => {
    const ports = lab.portsOfLink[map.link[index]];
    if (!ports || (link[7] || 0) !== 0) return;
    const atA = nodes[link[0]][TIER] === HOST, atB = nodes[link[2]][TIER] === HOST;
    if (atA === atB) return;
    const host = nodes[atA ? link[0] : link[2]];
    cells.push({host: host[NAME], segment: `${host[POD]}/${host[SEGMENT]}`, rail: link[4], mine: ports[atA ? 0 : 1], other: ports[atA ? 1 : 0]});
  });
  return [...grouped(cells, cell => cell.segment)].map(([segment, list]) => {
    const hosts = [...new Set(list.map(cell => cell.host))].sort(byName), [pod, number] = segment.split("/");
    const rails = [...new Set(list.map(cell => cell.rail))].sort((one, other) => one - other), perRail = grouped(list, cell => `${cell.host} ${cell.rail}`);
    const most = Math.max(...[...perRail.values()].map(same => same.length));
    const rows = rails.flatMap(rail => Array.from({length: most}, (_, way) => ({rail, way, title: rail ? `rail ${rail}` : "NIC"})));
    return {
      title: Number(pod) ? `Pod ${pod}, segment ${number}` : "Hosts", columns: hosts, rows: rows.map(row => row.way ? "" : row.title),
      cells: rows.flatMap((row, y) => hosts.map((host, x) => ({x, y, ...(perRail.get(`${host} ${row.rail}`) || [])[row.way]})).filter(cell => cell.mine !== undefined)),
    };
  });
};

// The blocks of the matrix: the switches of two tiers of a pod or network that are linked.
export const matrixBlocks = (map, lab, isOff) => {
  const {nodes, links} = map.data, pairs = new Map();
  links.forEach((link, index) => {
    const ports = lab.portsOfLink[map.link[index]];
    if (!ports || isOff(link[7] || 0)) return;
    const tierA = nodes[link[0]][TIER], tierB = nodes[link[2]][TIER];
    if (tierA === HOST || tierB === HOST || tierA === tierB) return;
    const below = tierA > tierB, low = nodes[below ? link[0] : link[2]], high = nodes[below ? link[2] : link[0]], key = `${low[NAME]} ${high[NAME]}`;
    if (!pairs.has(key)) pairs.set(key, {low, high, network: link[7] || 0, mine: [], other: []});
    pairs.get(key).mine.push(ports[below ? 0 : 1]);
    pairs.get(key).other.push(ports[below ? 1 : 0]);
  });
  const name = number => (map.layers.find(one => one.number === number) || {}).name || "";
  const groups = grouped([...pairs.values()], ({low, high, network}) => low[TIER] === LEAF && high[TIER] === SPINE ? `${network}/${low[POD]}` : `${network}/up`);
  return [...groups].map(([key, list]) => {
    const [network, pod] = key.split("/"), lows = [...new Set(list.map(one => one.low[NAME]))].sort(byName), highs = [...new Set(list.map(one => one.high[NAME]))].sort(byName);
    const words = pod === "up" ? "spines and super-spines" : Number(pod) ? `pod ${pod}` : "leaves and spines";
    return {
      title: [name(Number(network)), words].filter(Boolean).join(", "), columns: highs, rows: lows,
      cells: list.map(one => ({x: highs.indexOf(one.high[NAME]), y: lows.indexOf(one.low[NAME]), low: one.low[NAME], high: one.high[NAME], mine: one.mine, other: one.other})),
    };
  });
};

export class Cells {
  // `kind` is "honeycomb" or "matrix".
  constructor(stage, app, lab, map, kind) {
    Object.assign(this, {stage, app, lab, map, kind, cursor: null, pointed: null});
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-roledescription", kind === "honeycomb" ? "honeycomb of NICs" : "matrix of links");
    this.canvas.setAttribute("aria-label", kind === "honeycomb" ? "NICs by rail and host; arrows move, Enter selects" : "Links by leaf and spine; arrows move, Enter selects");
    this.said = Object.assign(document.createElement("p"), {className: "said"});
    this.said.setAttribute("aria-live", "polite");
    this.tip = Object.assign(document.createElement("div"), {className: "tip", hidden: true});
    this.scroll = Object.assign(document.createElement("div"), {className: "cells"});
    this.scroll.append(this.canvas);
    stage.replaceChildren(this.scroll, this.tip, this.said);
    this.rebuild();
    this.canvas.addEventListener("pointermove", event => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { this.pointed = null; this.tip.hidden = true; this.look(); });
    this.canvas.addEventListener("click", event => { const cell = this.cellAt(event); this.cursor = cell || this.cursor; this.pick(cell, event.shiftKey); });
    this.canvas.addEventListener("contextmenu", event => this.context(event));
    this.unhold = onHold(this.canvas, event => this.context(event));
    this.canvas.addEventListener("keydown", event => this.keys(event));
    this.canvas.addEventListener("focus", () => { if (!this.cursor) this.cursor = this.all[0] || null; this.look(); this.say(); });
    this.canvas.addEventListener("blur", () => this.look());
    this.resize = new ResizeObserver(() => this.arrange());
    this.resize.observe(this.scroll);
  }

  rebuild() {
    const isOff = number => { const layer = this.map.layers.find(one => one.number === number); return layer !== undefined && this.app.address.get().off.includes(layer.name); };
    this.blocks = this.kind === "honeycomb" ? (isOff(0) ? [] : honeycombBlocks(this.map, this.lab)) : matrixBlocks(this.map, this.lab, isOff);
    this.all = this.blocks.flatMap(block => block.cells);
    for (const cell of this.all) {
      cell.mine = [].concat(cell.mine);
      cell.other = [].concat(cell.other);
      cell.ports = [...cell.mine, ...cell.other];
    }
    this.scroll.classList.toggle("nothing", this.all.length === 0);
    this.arrange();
  }

  // Makes cells as large as lets all of them be seen, and places the blocks in rows.
  arrange() {
    const width = this.scroll.clientWidth, height = this.scroll.clientHeight;
    if (!width || !height) return;
    let size = this.kind === "honeycomb" ? 26 : 34;
    for (; size > 7; size -= 1) if (this.flow(size, width) <= height) break;
    this.size = size;
    this.wide = size;
    if (this.kind === "matrix") while (this.wide < WIDEST && this.flow(size, width, this.wide + 2) <= height) this.wide += 2;
    this.height = Math.max(height, this.flow(size, width, this.wide));
    const ratio = Math.min(2, devicePixelRatio || 1);
    this.ratio = ratio;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.look();
  }

  get step() { return this.kind === "honeycomb" ? [this.size, this.size * .866] : [this.wide, this.size]; }

  // Places blocks with cells of a size; returns how high all are.
  flow(size, width, wide = size) {
    const dy = this.kind === "honeycomb" ? size * .866 : size;
    let x = PAD, y = PAD, row = 0;
    for (const block of this.blocks) {
      const label = Math.min(150, Math.max(LABEL, ...block.rows.map(text => text.length * 6.4 + 12)));
      const head = TITLE + (this.kind === "matrix" ? Math.min(90, Math.max(...block.columns.map(text => text.length * 6 + 6))) : 0);
      const w = label + block.columns.length * wide + size / 2, h = head + block.rows.length * dy + dy * .4;
      if (x > PAD && x + w > width - PAD) { x = PAD; y += row + PAD; row = 0; }
      Object.assign(block, {left: x, top: y, label, head, right: x + w});
      x += w + PAD;
      row = Math.max(row, h);
    }
    const widest = Math.max(0, ...this.blocks.map(block => block.right));
    return widest > width && size > 8 ? Infinity : y + row + PAD;
  }

  // The middle of a cell, in pixels of the canvas's place.
  middle(block, cell) {
    const [dx, dy] = this.step, odd = this.kind === "honeycomb" && cell.y % 2 ? dx / 2 : 0;
    return [block.left + block.label + cell.x * dx + dx / 2 + odd, block.top + block.head + cell.y * dy + dy / 2];
  }

  worst(ports) {
    const {shown} = this.app.live.get(), column = shown && shown.columns && shown.columns[this.app.address.get().measure];
    let worst = -1;
    if (column) for (const port of ports) if (port >= 0 && column[port] > worst) worst = column[port];
    return worst;
  }

  down(cell) {
    const {shown} = this.app.live.get(), links = shown && shown.state && shown.state.links;
    return Boolean(links) && cell.ports.some(port => port >= 0 && links[port] === 0);
  }

  isLit() {
    const {selection, filter} = this.app.address.get(), words = readWords(filter), {nodes, ports} = this.lab, {shown} = this.app.live.get();
    if (selection.length) {
      const names = new Set(selection.map(id => id.slice(id.indexOf(":") + 1)));
      return cell => cell.ports.some(port => port >= 0 && (names.has(this.lab.portName(port)) || names.has(nodes.name[ports.node[port]])));
    }
    if (words.empty) return null;
    return cell => cell.ports.some(port => port >= 0 && words.port(this.lab, shown && shown.state, port));
  }

  look() {
    if (!this.size) return;
    const paint = this.canvas.getContext("2d"), style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue(name).trim();
    const {measure} = this.app.address.get(), colours = ramp(themeNow()), lit = this.isLit(), focus = document.activeElement === this.canvas && this.cursor;
    paint.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    paint.clearRect(0, 0, this.canvas.width, this.canvas.height);
    paint.textBaseline = "middle";
    const hue = value => { const step = stepOf(measure, value); return step < 0 ? colour("--hover") : colours[step]; };
    for (const block of this.blocks) {
      paint.fillStyle = colour("--ink");
      paint.font = "600 12.5px system-ui, 'DejaVu Sans', sans-serif";
      paint.textAlign = "left";
      paint.fillText(block.title, block.left, block.top + 8);
      paint.fillStyle = colour("--soft");
      paint.font = `${ROW_FONT}px system-ui, 'DejaVu Sans', sans-serif`;
      paint.textAlign = "right";
      const [dx, dy] = this.step;
      const every = Math.ceil(10.5 / dy);
      block.rows.forEach((text, y) => { if (text && y % every === 0) paint.fillText(text, block.left + block.label - 7, block.top + block.head + y * dy + dy / 2, block.label - 8); });
      if (this.kind === "matrix" && dx >= 12) block.columns.forEach((text, x) => {
        paint.save();
        paint.translate(block.left + block.label + x * dx + dx / 2, block.top + block.head - 5);
        paint.rotate(-Math.PI / 2);
        paint.textAlign = "left";
        paint.fillText(text, 0, 0, block.head - TITLE);
        paint.restore();
      });
      for (const cell of block.cells) this.drawCell(paint, block, cell, {hue, on: lit === null || lit(cell), bad: colour("--bad"), edge: colour("--paper")});
    }
    for (const [cell, width, name] of [[this.pointed, 2, "--ink"], [focus, 3, "--focus"]]) {
      const block = cell && this.blocks.find(one => one.cells.includes(cell));
      if (!block) continue;
      paint.strokeStyle = colour(name);
      paint.lineWidth = width;
      this.outline(paint, ...this.middle(block, cell), 1);
      paint.stroke();
    }
  }

  outline(paint, x, y, grow = 0) {
    paint.beginPath();
    if (this.kind === "matrix") { const half = this.size / 2 - 1 + grow, side = this.wide / 2 - 1 + grow; paint.rect(x - side, y - half, side * 2, half * 2); return; }
    const r = this.size / 1.732 - .8 + grow;
    for (let corner = 0; corner < 6; corner++) { const turn = Math.PI / 180 * (60 * corner - 90); paint.lineTo(x + r * Math.cos(turn), y + r * Math.sin(turn)); }
    paint.closePath();
  }

  drawCell(paint, block, cell, {hue, on, bad}) {
    const [x, y] = this.middle(block, cell), half = this.size / 2 - 1, wide = this.wide / 2 - 1;
    paint.globalAlpha = on ? 1 : .16;
    if (this.kind === "honeycomb") {
      paint.fillStyle = hue(this.worst(cell.ports));
      this.outline(paint, x, y);
      paint.fill();
    } else {
      for (const [ports, side] of [[cell.mine, -1], [cell.other, 1]]) {
        paint.fillStyle = hue(this.worst(ports));
        paint.beginPath();
        paint.moveTo(x - wide, y - half); paint.lineTo(x + wide, y + half); paint.lineTo(x + wide * side, y - half * side);
        paint.fill();
      }
    }
    if (this.down(cell)) {
      paint.strokeStyle = bad;
      paint.lineWidth = 2;
      paint.beginPath();
      paint.moveTo(x - half / 2, y - half / 2); paint.lineTo(x + half / 2, y + half / 2);
      paint.moveTo(x + half / 2, y - half / 2); paint.lineTo(x - half / 2, y + half / 2);
      paint.stroke();
    }
    paint.globalAlpha = 1;
  }

  cellAt(event) {
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let best = null, least = this.size / 1.7;
    const narrow = this.size / this.wide;
    for (const block of this.blocks) for (const cell of block.cells) {
      const [cx, cy] = this.middle(block, cell), away = Math.hypot((x - cx) * narrow, y - cy);
      if (away < least) { least = away; best = cell; }
    }
    return best;
  }

  words(cell) {
    const {measure} = this.app.address.get(), text = ports => measureText(measure, this.worst(ports)), first = cell.mine.find(port => port >= 0), peer = cell.other.find(port => port >= 0);
    const title = this.kind === "matrix" ? `${cell.low} – ${cell.high}` : `${this.lab.portName(first)} – ${peer === undefined ? "?" : this.lab.portName(peer)}`;
    const lines = [title, `${METRICS[measure].title}: ${this.kind === "matrix" ? `up ${text(cell.mine)}, down ${text(cell.other)}` : `sends ${text(cell.mine)}, gets ${text(cell.other)}`}`];
    if (cell.mine.length > 1) lines.push(`${cell.mine.length} links, the worst of them`);
    if (this.down(cell)) lines.push("down");
    return lines;
  }

  say() { this.said.textContent = this.cursor ? this.words(this.cursor).join(", ") : ""; }

  point(event) {
    const cell = this.cellAt(event);
    if (cell !== this.pointed) { this.pointed = cell; this.look(); }
    this.tip.hidden = cell === null;
    if (!cell) return;
    this.tip.replaceChildren(...this.words(cell).map((text, row) => Object.assign(document.createElement(row ? "div" : "b"), {textContent: text})));
    const stage = this.stage.getBoundingClientRect(), box = this.tip.getBoundingClientRect(), x = event.clientX - stage.left, y = event.clientY - stage.top;
    this.tip.style.left = `${Math.max(4, Math.min(x + 14, stage.width - box.width - 6))}px`;
    this.tip.style.top = `${y + 20 + box.height > stage.height ? y - box.height - 10 : y + 20}px`;
  }

  ids(cell) {
    const ports = cell.mine.filter(port => port >= 0);
    return ports.length === 1 && this.kind === "honeycomb" ? [`port:${this.lab.portName(ports[0])}`] : ports.map(port => `link:${this.lab.portName(port)}`);
  }

  pick(cell, add) {
    if (!cell) { if (!add) this.app.select([]); return; }
    const ids = this.ids(cell), {selection} = this.app.address.get();
    this.app.select(!add && ids.length === selection.length && ids.every(id => selection.includes(id)) ? [] : ids, {add});
  }

  context(event) {
    event.preventDefault();
    const cell = this.cellAt(event);
    if (!cell) return;
    this.app.select(this.ids(cell));
    openActions(this.app, {x: event.clientX, y: event.clientY});
  }

  keys(event) {
    const way = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]}[event.key];
    if (way && this.cursor) {
      event.preventDefault();
      event.stopPropagation();
      const at = this.blocks.findIndex(block => block.cells.includes(this.cursor)), block = this.blocks[at], {x, y} = this.cursor;
      const along = block.cells.filter(cell => way[0] ? cell.y === y && (cell.x - x) * way[0] > 0 : cell.x === x && (cell.y - y) * way[1] > 0);
      along.sort((one, other) => Math.abs(one.x - x) + Math.abs(one.y - y) - Math.abs(other.x - x) - Math.abs(other.y - y));
      const beyond = this.blocks[at + (way[0] + way[1])];
      this.cursor = along[0] || (beyond ? beyond.cells[0] : this.cursor);
      this.look();
      this.say();
    } else if ((event.key === "Enter" || event.key === " ") && this.cursor) {
      event.preventDefault();
      event.stopPropagation();
      this.pick(this.cursor, event.shiftKey);
    } else if (event.key === "." && this.cursor && !this.app.address.get().selection.length) this.app.select(this.ids(this.cursor));
  }

  // Draws anew where a tick has changed a colour.
  tick() {
    const {measure} = this.app.address.get(), {shown} = this.app.live.get(), links = shown && shown.state && shown.state.links, parts = this.kind === "matrix";
    const looks = this.all.map(cell => (parts ? stepOf(measure, this.worst(cell.mine)) * 16 + stepOf(measure, this.worst(cell.other)) : stepOf(measure, this.worst(cell.ports))) * 2 + (links && this.down(cell) ? 1 : 0));
    if (this.looks && this.looks.length === looks.length && this.looks.every((look, at) => look === looks[at])) return;
    this.looks = looks;
    this.look();
  }

  emphasise() { this.look(); }
  relayer() { this.rebuild(); }
  fit() { this.arrange(); }

  close() {
    this.resize.disconnect();
    this.unhold();
    this.stage.replaceChildren();
  }
}
