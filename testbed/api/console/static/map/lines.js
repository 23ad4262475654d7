// The lines of the picture as the canvas draws them: each in two halves, of which a half is what its end sends, coloured by the
// measure and as wide as the rate that it carries.
import {TRAY} from "../graph/picture.js";
import {STEPS, ramp, stepOf} from "../core/scales.js";

const WIDTHS = [1, 1.6, 2.4, 3.4, 4.6, 6], THIN = 1.1, FAINT = .2, NEAR = 7, MANY = 400;
const DOWN = 0, CHANGED = 2;

// The width of a half that carries so many bit/s, where the fastest port of the lab has `most`.
export const widthOf = (bps, most) => bps <= 0 ? 0 : Math.min(WIDTHS.length - 1, 1 + Math.floor(Math.sqrt(bps / most) * 3));

const shifted = (element, root) => {
  let x = 0, y = 0;
  for (let at = element.parentNode; at && at !== root; at = at.parentNode) {
    const move = at.transform && at.transform.baseVal && at.transform.baseVal.length ? at.transform.baseVal[0].matrix : null;
    if (move) { x += move.e; y += move.f; }
  }
  return [x, y];
};

export class Lines {
  constructor(picture, map, lab) {
    this.picture = picture;
    this.lab = lab;
    const {data} = picture, inTray = (node, end) => end.startsWith("#") ? data.nodes[node][TRAY] === Number(end.slice(1)) : node === Number(end);
    this.all = picture.drawnLines.map(line => {
      const {a, l} = line.element.dataset, links = (l || "").split(" ").filter(Boolean).map(Number);
      const near = [], far = [], nodes = new Set();
      for (const index of links) {
        const link = data.links[index], ports = lab.portsOfLink[map.link[index]];
        nodes.add(link[0]); nodes.add(link[2]);
        if (!ports) continue;
        const first = inTray(link[0], a) !== line.flipped;
        near.push(ports[first ? 0 : 1]);
        far.push(ports[first ? 1 : 0]);
      }
      const network = links.length ? data.links[links[0]][7] || 0 : 0;
      return {line, near, far, nodes, network, under: line.element.classList.contains("under"), at: null, hidden: false};
    });
    this.most = lab.ports.rate_bps.reduce((most, rate) => Math.max(most, rate), 1);
    this.place();
  }

  // Reads where the lines are, after something moved.
  place() {
    const {root} = this.picture;
    for (const one of this.all) {
      const at = one.line.element.getAttribute("d").match(/-?[\d.]+/g).map(Number), [dx, dy] = shifted(one.line.element, root);
      const x1 = at[0] + dx, y1 = at[1] + dy, x2 = at[at.length - 2] + dx, y2 = at[at.length - 1] + dy;
      const straight = at.length === 4, bend = straight ? (y1 + y2) / 2 : at[3] + dy;
      one.at = {x1, y1, x2, y2, bend, straight, mx: (x1 + x2) / 2, my: straight ? (y1 + y2) / 2 : (y1 + 3 * bend + 3 * bend + y2) / 8};
      one.hidden = this.picture.isOff(one.network);
    }
  }

  // A half as a part of a path, from its end to the middle.
  static trace(path, {x1, y1, x2, y2, bend, straight, mx, my}, near) {
    const x = near ? x1 : x2, y = near ? y1 : y2;
    path.moveTo(x, y);
    if (straight) path.lineTo(mx, my);
    else path.bezierCurveTo(x, (y + bend) / 2, near ? (3 * x1 + x2) / 4 : (3 * x2 + x1) / 4, (y + 3 * bend) / 4, mx, my);
  }

  worst(ports, column) {
    let worst = -1;
    if (column) for (const port of ports) if (port >= 0 && column[port] > worst) worst = column[port];
    return worst;
  }

  sent(ports, use) {
    let sum = 0;
    if (use) for (const port of ports) if (port >= 0 && use[port] > 0) sum += use[port] * this.lab.ports.rate_bps[port] / 1000;
    return sum;
  }

  // Finds how each half is to be drawn, as one number; returns whether one of them has changed.
  update({shown, measure}) {
    if (this.last && this.last.shown === shown && this.last.measure === measure) return false;
    const columns = (shown && shown.columns) || {}, column = columns[measure], use = columns.use, links = shown && shown.state ? shown.state.links : null;
    const looks = new Int16Array(this.all.length * 2);
    for (let at = 0; at < this.all.length; at++) {
      const one = this.all[at];
      for (let half = 0; half < 2; half++) {
        const ports = half ? one.far : one.near, step = stepOf(measure, this.worst(ports, column));
        let down = 0;
        if (links) for (const port of ports) if (port >= 0 && links[port] !== 1) down |= links[port] === DOWN ? 1 : 2;
        looks[at * 2 + half] = (step + 1) * 32 + (step > 0 ? widthOf(this.sent(ports, use), this.most) : 0) * 4 + down;
      }
    }
    const before = this.last && this.last.looks;
    this.last = {shown, measure, looks};
    return !before || before.some((look, at) => look !== looks[at]);
  }

  // Draws all halves: `lit` tells which lines are (null: all), `chosen` which ports are selected.
  draw(paint, {shown, measure, theme, wire, bad, warn, focus, lit, chosen, zoom}) {
    this.update({shown, measure});
    const {looks} = this.last, links = shown && shown.state ? shown.state.links : null;
    const colours = ramp(theme), batches = new Map(), scale = 1 / Math.max(.35, Math.min(1.6, zoom)), marks = [], selected = [];
    const batch = key => { if (!batches.has(key)) batches.set(key, new Path2D()); return batches.get(key); };
    for (let at = 0; at < this.all.length; at++) {
      const one = this.all[at];
      if (one.hidden) continue;
      const on = lit === null || lit(one), faint = on ? (one.under && lit === null ? 1 : 0) : 2;
      for (const near of [true, false]) {
        const ports = near ? one.near : one.far, look = looks[at * 2 + (near ? 0 : 1)], step = (look >> 5) - 1, width = look >> 2 & 7;
        const down = look & 1 && ports.length > 0 && ports.every(port => port >= 0 && links[port] === DOWN);
        Lines.trace(batch(`${faint} ${down ? "d" : step < 0 ? "-" : step} ${width}`), one.at, near);
        if (links && near && (down || ports.some(port => port >= 0 && (links[port] === DOWN || links[port] === CHANGED)))) marks.push([one, down || ports.some(port => links[port] === DOWN)]);
        if (chosen.size && ports.some(port => chosen.has(port))) selected.push([one, near]);
      }
    }
    paint.lineCap = "butt";
    const rank = key => { const [faint, step, width] = key.split(" "); return (2 - faint) * 100 + (step === "d" ? 50 : step === "-" ? 0 : Number(step) * 5) + Number(width) / 10; };
    if (selected.length) {
      const path = new Path2D();
      for (const [one, near] of selected) Lines.trace(path, one.at, near);
      paint.strokeStyle = focus;
      paint.lineWidth = 9 * scale;
      paint.globalAlpha = .35;
      paint.stroke(path);
    }
    for (const [key, path] of [...batches].sort(([one], [other]) => rank(one) - rank(other))) {
      const [faint, step, width] = key.split(" ");
      const idle = step === "-" || step === "0";
      paint.globalAlpha = faint === "2" ? (idle ? FAINT : FAINT + .1) : faint === "1" ? (idle ? .12 : .35) : idle ? (this.all.length > MANY ? .55 : .85) : .97;
      paint.strokeStyle = step === "d" ? bad : step === "-" ? wire : colours[Number(step)];
      paint.lineWidth = (step === "-" ? THIN : idle ? THIN : WIDTHS[Number(width)] + (Number(step) >= STEPS - 2 ? .4 : 0)) * scale;
      paint.setLineDash(step === "d" ? [5 * scale, 4 * scale] : step === "-" ? [2 * scale, 3 * scale] : []);
      paint.stroke(path);
    }
    paint.setLineDash([]);
    paint.globalAlpha = 1;
    for (const [one, down] of marks) {
      const {mx, my} = one.at, r = 4.5 * scale;
      paint.fillStyle = down ? bad : warn;
      paint.beginPath();
      if (down) { paint.rect(mx - r, my - r, 2 * r, 2 * r); } else { paint.moveTo(mx, my - r * 1.3); paint.lineTo(mx + r * 1.3, my); paint.lineTo(mx, my + r * 1.3); paint.lineTo(mx - r * 1.3, my); }
      paint.fill();
    }
  }

  // The line nearest to a point of the picture, and the half of it; null where none is near.
  nearest(x, y, zoom) {
    let best = null, least = NEAR / zoom;
    for (const one of this.all) {
      if (one.hidden) continue;
      const {x1, y1, x2, y2, bend, straight} = one.at;
      if (y < Math.min(y1, y2, bend) - least || y > Math.max(y1, y2, bend) + least || x < Math.min(x1, x2) - least || x > Math.max(x1, x2) + least) continue;
      let px = x1, py = y1;
      const parts = straight ? 1 : 10;
      for (let part = 1; part <= parts; part++) {
        const t = part / parts, s = 1 - t;
        const qx = straight ? x2 : x1 * (s * s * s + 3 * s * s * t) + x2 * (3 * s * t * t + t * t * t);
        const qy = straight ? y2 : s * s * s * y1 + 3 * s * t * bend + t * t * t * y2;
        const dx = qx - px, dy = qy - py, along = Math.max(0, Math.min(1, ((x - px) * dx + (y - py) * dy) / (dx * dx + dy * dy || 1)));
        const away = Math.hypot(x - px - along * dx, y - py - along * dy);
        if (away < least) { least = away; best = {one, near: (part - 1 + along) / parts < .5}; }
        px = qx; py = qy;
      }
    }
    return best;
  }
}
