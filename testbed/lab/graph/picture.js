// The picture of a lab as one works with it: following a node's links, opening host groups, leaving networks out,
// walking by keyboard, moving nodes. It knows no panel, no zoom and no page: those have `page.js` and the console.
// Columns of the data: node [name, tier, tray, state, pod, segment, rails, labels];
// link [node a, interface a, node b, interface b, rail, properties, Mbit/s]; where there are several networks both end with
// the number of theirs, -1 for a host.
export const NAME = 0, TIER = 1, TRAY = 2, STATE = 3, POD = 4, SEGMENT = 5, RAILS = 6, LABELS = 7, NET = 8;
export const HOST = 3;

export const drawn = (tag, attributes) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
};
export const colour = rail => rail ? `q${(rail - 1) % 8 + 1}` : "";
export const tint = (link, rail = link[4]) => link[7] ? "net" + link[7] : colour(rail);
export const nodeAt = target => { const element = target.closest && target.closest(".n"); return element ? Number(element.dataset.n) : null; };

const number = (element, key) => Number(element.dataset[key]);
const shelf = element => Number(element.dataset.shelf || 0);
const translate = (element, x, y) => element.setAttribute("transform", `translate(${x} ${y})`);
const SHELF_GAP = 30, OPEN = {width: 64, height: 34, gap: 6};

// A line as numbers: where its ends are, and the height of its bend. Its first point is that of `data-a`, but for
// what leads downwards from a host, and what is below the hosts.
class Line {
  constructor(element) {
    const at = element.getAttribute("d").match(/-?[\d.]+/g).map(Number);
    this.element = element;
    this.ends = [at[0], at[1], at[at.length - 2], at[at.length - 1]];
    this.straight = at.length === 4;
    const level = element.classList.contains("level");
    this.bend = level ? at[3] - at[1] : null;
    this.low = element.closest(".low") !== null;
    this.drop = element.classList.contains("drop");
    this.flipped = this.drop || (this.low && !level);
    this.shelves = [Number(element.dataset.u || 0), Number(element.dataset.v || 0)];
    this.shifted = false;
  }

  draw(dx1, dy1, dx2, dy2) {
    const [x1, y1, x2, y2] = this.ends, at = [x1 + dx1, y1 + dy1, x2 + dx2, y2 + dy2];
    const middle = this.bend === null ? (at[1] + at[3]) / 2 : at[1] + this.bend;
    this.element.setAttribute("d", `M${at[0]} ${at[1]}` + (this.straight ? `L${at[2]} ${at[3]}` : `C${at[0]} ${middle} ${at[2]} ${middle} ${at[2]} ${at[3]}`));
  }
}

export class Picture {
  // `root` has the drawing's parts, `data` is what `page.py` says of the lab, `isOff` tells whether a network is left out;
  // `arranged` is called when things have another place.
  constructor(root, data, {isOff = () => false, arranged = () => {}} = {}) {
    this.root = root;
    this.data = data;
    this.isOff = isOff;
    this.arranged = arranged;
    this.svg = root.matches("svg") ? root : root.querySelector("#picture");
    this.overlay = root.querySelector("#overlay");
    this.layered = data.networks !== undefined;
    this.trays = [...root.querySelectorAll(".tray")];
    this.linksOf = data.nodes.map(() => []);
    data.links.forEach((link, i) => { this.linksOf[link[0]].push(i); this.linksOf[link[2]].push(i); });
    this.boxes = new Map();
    for (const element of root.querySelectorAll(".n")) this.boxes.set(Number(element.dataset.n), element);
    this.lines = new Map();
    this.joined = new Set();
    this.drawnLines = [...root.querySelectorAll(".lines .k")].map(element => new Line(element));
    for (const line of this.drawnLines) {
      const {a, b} = line.element.dataset;
      for (const end of [a, b]) {
        if (!this.lines.has(end)) this.lines.set(end, []);
        this.lines.get(end).push(line.element);
      }
      this.joined.add(a + "|" + b);
    }
    for (const cell of root.querySelectorAll(".cell")) cell.dataset.closed = cell.getAttribute("transform");
    this.bands = [...root.querySelectorAll(".band")];
    this.lifted = {};
    this.standing = [...root.querySelectorAll("[data-shelf]")].filter(one => !one.closest(".low") && !one.matches(".tray, .frame"));
    for (const one of this.standing) {
      const at = one.transform.baseVal.length ? one.transform.baseVal[0].matrix : {e: 0, f: 0};
      one.dataset.at = `${at.e} ${at.f}`;
    }
    this.offsets = new Map();
    this.shifts = {moved: {}, most: 0, growth: new Map(), upTo: () => 0};
    this.size = {width: number(this.svg, "w"), height: number(this.svg, "h"), top: 0};
  }

  unseen(node) { return this.layered && this.isOff(this.data.nodes[node][NET]); }

  // --- following links
  clear() {
    this.root.classList.remove("focus");
    for (const element of this.root.querySelectorAll(".on, .pinned")) element.classList.remove("on", "pinned");
    for (const tray of this.trays) tray.style.removeProperty("--c");
    this.overlay.replaceChildren();
  }

  place(element) {
    const box = element.querySelector(".c").getBBox();
    let x = 0, y = 0;
    for (let at = element; at !== this.root && at !== this.svg; at = at.parentNode) {
      const move = at.transform && at.transform.baseVal.length ? at.transform.baseVal[0].matrix : null;
      if (move) { x += move.e; y += move.f; }
    }
    return {x: x + box.width / 2, left: x, right: x + box.width, top: y, bottom: y + box.height};
  }

  // Marks a node, what it is linked to, and its lines; adds those that a closed host group hides.
  follow(node) {
    const {data, boxes, trays} = this, self = boxes.get(node), inTray = data.nodes[node][TRAY] >= 0;
    this.root.classList.add("focus");
    self.classList.add("on");
    for (const line of this.lines.get(String(node)) || []) {
      line.classList.add("on");
      if (line.classList.contains("under")) this.overlay.append(line.cloneNode());  // it passes behind boxes
    }
    const here = this.place(self), across = new Map();
    for (const index of this.linksOf[node]) {
      const link = data.links[index], other = link[0] === node ? link[2] : link[0];
      if (this.isOff(link[7])) continue;
      boxes.get(other).classList.add("on");
      const tray = data.nodes[other][TRAY];
      if (tray >= 0) trays[tray].classList.add("on");
      if (inTray) trays[data.nodes[node][TRAY]].classList.add("on");
      if (tray >= 0 && !inTray) continue;
      if (this.joined.has(node + "|" + other) || this.joined.has(other + "|" + node)) continue;
      if (!across.has(other)) across.set(other, []);
      across.get(other).push(link);
    }
    for (const [other, links] of across) {
      const there = this.place(boxes.get(other)), below = here.top > there.top;
      const [low, high] = below ? [here, there] : [there, here];
      const own = data.nodes[below ? node : other][RAILS];
      links.forEach((link, position) => {
        const shift = (position - (links.length - 1) / 2) * Math.min(4, 60 / links.length);
        const middle = (high.bottom + low.top) / 2, x1 = high.x + shift, x2 = low.x + shift;
        const hue = tint(link, link[4] || (own.length === 1 ? own[0] : 0));
        this.overlay.append(drawn("path", {class: `k ${hue}`, d: `M${x1} ${high.bottom}C${x1} ${middle} ${x2} ${middle} ${x2} ${low.top}`}));
      });
    }
  }

  followRail(rail) {
    this.root.classList.add("focus");
    for (const element of this.root.querySelectorAll(".r" + rail)) {
      element.classList.add("on");
      if (!element.classList.contains("cell")) continue;
      const tray = element.closest(".tray");
      tray.classList.add("on");
      tray.style.setProperty("--c", `var(--${colour(Number(rail))})`);
    }
  }

  // Marks the nodes that `chosen` says yes to.
  mark(chosen) {
    this.root.classList.add("focus");
    this.data.nodes.forEach((one, node) => {
      if (!chosen(one, node) || this.unseen(node)) return;
      this.boxes.get(node).classList.add("on");
      if (one[TRAY] >= 0) this.trays[one[TRAY]].classList.add("on");
    });
  }

  // The node that words mean: the one of that name, or the first whose name has them; -1 for none.
  find(words) {
    const names = this.data.nodes.map(one => one[NAME].toLowerCase()), node = names.indexOf(words);
    return node >= 0 && !this.unseen(node) ? node : names.findIndex((name, at) => name.includes(words) && !this.unseen(at));
  }

  // The element that an arrow key leads to from another one; null where there is none.
  next(current, x, y) {
    const from = this.place(current), centre = (from.top + from.bottom) / 2;
    let best = null, least = Infinity;
    for (const element of this.boxes.values()) {
      if (element === current || this.unseen(Number(element.dataset.n))) continue;
      const to = this.place(element), dx = to.x - from.x, dy = (to.top + to.bottom) / 2 - centre;
      const along = x ? dx * x : dy * y, aside = Math.abs(x ? dy : dx);
      if (along < 1 || (x && aside > 8)) continue;
      const cost = along + aside * (x ? 1 : .6);
      if (cost < least) { least = cost; best = element; }
    }
    return best;
  }

  // --- host groups
  isOpen(tray) { return tray.classList.contains("open"); }

  setTray(tray, open) {
    tray.classList.toggle("open", open);
    tray.querySelector(".toggle").setAttribute("aria-expanded", String(open));
    tray.querySelector(".arrow").setAttribute("transform", open ? "rotate(90 16.5 13.5)" : "");
    tray.querySelector(".c").setAttribute("height", open ? tray.dataset.open : tray.dataset.h);
    const columns = number(tray, "ocolumns"), {width, height, gap} = OPEN;
    const left = (number(tray, "w") - columns * (width + gap) + gap) / 2;
    [...tray.querySelectorAll(".cell")].forEach((cell, position) => {
      cell.classList.toggle("open", open);
      const rect = cell.querySelector(".c");
      for (const extra of [...cell.children]) if (extra !== rect) extra.remove();
      if (!open) {
        cell.setAttribute("transform", cell.dataset.closed);
        rect.setAttribute("width", 15); rect.setAttribute("height", 11);
        return;
      }
      translate(cell, left + position % columns * (width + gap), 28 + Math.floor(position / columns) * (height + gap));
      rect.setAttribute("width", width); rect.setAttribute("height", height);
      this.nameCell(cell, this.data.nodes[Number(cell.dataset.n)]);
    });
    this.arrange();
  }

  nameCell(cell, one) {
    const label = drawn("text", {class: "l", x: OPEN.width / 2, y: 22});
    const short = one[POD] ? one[NAME].split("-").pop() : one[NAME];
    label.textContent = short.length > 9 ? short.slice(0, 4) + "…" + short.slice(-4) : short;
    cell.append(label);
    const step = Math.min(7, 58 / Math.max(1, one[RAILS].length));
    one[RAILS].forEach((rail, index) => cell.append(drawn("rect", {
      class: `m ${colour(rail)}${this.layered ? " net0" : ""}`, x: OPEN.width / 2 + (index - one[RAILS].length / 2) * step + step * .12, y: -2.5, width: step * .76, height: 5, rx: 1.2})));
  }

  setTrays(open) { this.trays.forEach(tray => this.setTray(tray, open)); }

  // --- nodes that a person moves
  // Moves a card by so much from where it is laid out; one in a host group stays.
  moveNode(node, dx, dy) {
    if (this.data.nodes[node][TRAY] >= 0) return;
    this.offsets.set(String(node), [dx, dy]);
    const element = this.boxes.get(node);
    if (!element.dataset.home) {
      const at = element.transform.baseVal[0].matrix;
      element.dataset.home = element.dataset.at || `${at.e} ${at.f}`;
    }
    const [x, y] = element.dataset.home.split(" ").map(Number);
    if (element.dataset.at) element.dataset.at = `${x + dx} ${y + dy}`;
    translate(element, x + dx, y + dy + (element.dataset.at ? this.shifts.upTo(shelf(element)) : 0));
    const touched = new Set(this.lines.get(String(node)) || []);
    for (const line of this.drawnLines) if (touched.has(line.element)) this.drawLine(line);
  }

  drawLine(line) {
    const {moved, most, growth, upTo} = this.shifts, {a, b, net} = line.element.dataset;
    const [ax, ay] = this.offsets.get(a) || [0, 0], [bx, by] = this.offsets.get(b) || [0, 0];
    let ends = [ax, ay, bx, by];
    if (line.drop) {
      const grown = upTo(line.shelves[1]) + (b.startsWith("#") ? growth.get(this.trays[b.slice(1)].dataset.s) || 0 : 0);
      ends = [ax + (moved[net] || 0), ay + most - (this.lifted[net] || 0), bx, by + grown];
    } else if (!line.low) {
      ends = [ax, ay + upTo(line.shelves[0]), bx, by + upTo(line.shelves[1])];
    }
    const shifted = ends.some(Boolean);
    if (!shifted && !line.shifted) return;
    line.shifted = shifted;
    line.draw(...(line.flipped ? [ends[2], ends[3], ends[0], ends[1]] : ends));
  }

  // --- where things are as host groups open and networks are left out
  // Networks below the hosts move down as host groups open, together as others are left out, and up as a shelf is empty.
  arrangeBelow(most) {
    const {bands, lifted, root} = this, net = band => number(band, "net"), moved = {};
    let lift = 0;
    for (const row of new Set(bands.map(shelf).sort())) {
      const all = bands.filter(band => shelf(band) === row), shown = all.filter(band => !this.isOff(net(band)));
      for (const label of root.querySelectorAll(`.low > [data-shelf="${row}"]:is(.row, .rowd)`)) {
        label.style.display = shown.length ? "" : "none";
        translate(label, 0, -lift);
      }
      for (const band of all) lifted[net(band)] = lift;
      if (!shown.length) { lift += Number(all[0].getAttribute("height")) + SHELF_GAP; continue; }
      const gap = all.length > 1 ? number(all[1], "x") - number(all[0], "x") - number(all[0], "w") : 0;
      const first = all[0], last = all[all.length - 1];
      let used = gap * (shown.length - 1);
      for (const band of shown) used += number(band, "w");
      let x = (number(first, "x") + number(last, "x") + number(last, "w") - used) / 2;
      for (const band of shown) {
        moved[net(band)] = x - number(band, "x");
        for (const part of root.querySelectorAll(".low .net" + net(band))) translate(part, moved[net(band)], -lift);
        x += number(band, "w") + gap;
      }
    }
    for (const low of root.querySelectorAll(".low")) translate(low, 0, most);
    return moved;
  }

  // Segments stand on shelves: as host groups open, what is below moves down by what the shelves above have grown.
  arrange() {
    const growth = new Map(), grown = [], before = new Map();
    for (const tray of this.trays) {
      before.set(tray, growth.get(tray.dataset.s) || 0);
      const after = before.get(tray) + (this.isOpen(tray) ? number(tray, "open") - number(tray, "h") : 0);
      growth.set(tray.dataset.s, after);
      grown[shelf(tray)] = Math.max(grown[shelf(tray)] || 0, after);
    }
    const upTo = last => grown.slice(0, last).reduce((sum, one) => sum + (one || 0), 0), most = upTo(grown.length);
    for (const tray of this.trays) translate(tray, tray.transform.baseVal[0].matrix.e, number(tray, "y") + before.get(tray) + upTo(shelf(tray)));
    for (const frame of this.root.querySelectorAll(".frame")) {
      const first = shelf(frame);
      translate(frame, 0, upTo(first));
      frame.setAttribute("height", number(frame, "h") + upTo(first + number(frame, "span")) - upTo(first));
    }
    for (const one of this.standing) {
      const [x, y] = one.dataset.at.split(" ").map(Number);
      translate(one, x, y + upTo(shelf(one)));
    }
    this.shifts = {moved: this.arrangeBelow(most), most, growth, upTo};
    for (const line of this.drawnLines) this.drawLine(line);
    this.crop(most);
    this.arranged();
  }

  // Leaves out, at the top and at the bottom, the room of networks that are not shown.
  crop(grown) {
    let bottom = number(this.svg, "h");
    if (this.layered) {
      this.size.top = this.isOff(0) ? number(this.svg, "hosts") - 24 : 0;
      const ends = this.bands.filter(band => !this.isOff(number(band, "net"))).map(band => number(band, "end") - (this.lifted[number(band, "net")] || 0));
      bottom = Math.max(number(this.svg, "rest"), ...ends);
    }
    this.size.height = bottom + grown - this.size.top;
  }
}
