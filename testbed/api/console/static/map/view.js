// Panning and zooming of layers that lie above each other. While it moves, layers are moved as they are; when it rests, they are
// drawn anew for the new place: the canvas once for each frame, however much has changed.
const LEAST = .08, MOST = 6, REST_MS = 140, OVERSCAN = .25, TOOLS = 120;

export class View {
  // `layers` are elements in the picture's pixels, `canvas` is drawn by `draw(paint, transform)` for what is seen of `box`.
  constructor(box, layers, canvas, draw) {
    Object.assign(this, {box, layers, canvas, draw, x: 0, y: 0, zoom: 1, drawn: null, untouched: true, frame: 0, due: 0, timer: 0, moving: false});
    this.size = {width: 1, height: 1, top: 0};
  }

  // What is seen has another size.
  resize(box) {
    this.box = box;
    if (this.untouched) this.fit(); else this.redraw();
  }

  // Shows all of a picture of this size.
  fit(size = this.size, most = 1.6) {
    this.size = size;
    const {width, height} = this.box;
    if (!width || !height) return;
    const room = width > 600 ? width - TOOLS : width;  // beside the tools
    this.zoom = Math.min(room / size.width, height / size.height, most);
    this.x = Math.max(width - room, (width - size.width * this.zoom) / 2);
    this.y = (height - size.height * this.zoom) / 2 - size.top * this.zoom;
    this.untouched = true;
    this.rest();
  }

  panBy(dx, dy) {
    this.x += dx;
    this.y += dy;
    this.move();
  }

  // Zooms about a point of the stage.
  zoomBy(factor, px = this.box.width / 2, py = this.box.height / 2) {
    const zoom = Math.min(MOST, Math.max(LEAST, this.zoom * factor)), by = zoom / this.zoom;
    this.x = px - (px - this.x) * by;
    this.y = py - (py - this.y) * by;
    this.zoom = zoom;
    this.move();
  }

  // Brings a box of the picture into what is seen.
  reveal({left, right, top, bottom}) {
    const {width, height} = this.box, pad = 24, l = left * this.zoom + this.x, r = right * this.zoom + this.x, t = top * this.zoom + this.y, b = bottom * this.zoom + this.y;
    const dx = l < pad ? pad - l : r > width - pad ? width - pad - r : 0, dy = t < pad ? pad - t : b > height - pad ? height - pad - b : 0;
    if (dx || dy) this.panBy(dx, dy);
  }

  toPicture(px, py) { return [(px - this.x) / this.zoom, (py - this.y) / this.zoom]; }

  move() {
    this.untouched = false;
    if (!this.moving) {
      this.moving = true;
      for (const layer of this.layers) layer.style.willChange = "transform";
      this.canvas.style.willChange = "transform";
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.rest(), REST_MS);
    if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = 0; this.place(); });
  }

  rest() {
    clearTimeout(this.timer);
    this.moving = false;
    for (const layer of this.layers) layer.style.willChange = "";
    this.canvas.style.willChange = "";
    this.place();
    this.redraw();
  }

  place() {
    for (const layer of this.layers) layer.style.transform = `translate(${this.x}px, ${this.y}px) scale(${this.zoom})`;
    if (!this.drawn) return;
    const by = this.zoom / this.drawn.zoom, {width, height} = this.box;
    const x = this.x - this.drawn.x * by - this.drawn.left * by, y = this.y - this.drawn.y * by - this.drawn.top * by;
    this.canvas.style.transform = `translate(${x}px, ${y}px) scale(${by})`;
    const beyond = x > 0 || y > 0 || x + this.drawn.width * by < width || y + this.drawn.height * by < height;
    if (this.moving && beyond && (Math.abs(x + this.drawn.left) > this.drawn.left * 1.6 || Math.abs(y + this.drawn.top) > this.drawn.top * 1.6)) this.drawNow();
  }

  redraw() { if (!this.due) this.due = requestAnimationFrame(() => this.drawNow()); }

  // Draws the canvas for what is seen now, and some of what is around it.
  drawNow() {
    cancelAnimationFrame(this.due);
    this.due = 0;
    const {width, height} = this.box;
    if (!width || !height) return;
    const ratio = Math.min(2, devicePixelRatio || 1), left = Math.round(width * OVERSCAN), top = Math.round(height * OVERSCAN);
    const whole = {width: width + 2 * left, height: height + 2 * top};
    if (this.canvas.width !== Math.round(whole.width * ratio) || this.canvas.height !== Math.round(whole.height * ratio)) {
      this.canvas.width = Math.round(whole.width * ratio);
      this.canvas.height = Math.round(whole.height * ratio);
      this.canvas.style.width = `${whole.width}px`;
      this.canvas.style.height = `${whole.height}px`;
    }
    const paint = this.canvas.getContext("2d");
    paint.setTransform(1, 0, 0, 1, 0, 0);
    paint.clearRect(0, 0, this.canvas.width, this.canvas.height);
    paint.setTransform(ratio * this.zoom, 0, 0, ratio * this.zoom, ratio * (this.x + left), ratio * (this.y + top));
    this.drawn = {x: this.x, y: this.y, zoom: this.zoom, left, top, ...whole};
    this.canvas.style.transform = `translate(${-left}px, ${-top}px)`;
    this.draw(paint, this.zoom);
  }

  close() {
    clearTimeout(this.timer);
    cancelAnimationFrame(this.frame);
    cancelAnimationFrame(this.due);
  }
}
