// The stream of a lab or run: snapshots, differences, events. Closed while nobody sees the page, resumed from where it was.
const EVENTS = ["snapshot", "tick", "state", "event", "shape", "gone", "trust", "labs", "task", "view", "failing", "machines"];
const AGAIN_MS = 1500;
const MOST = 5;  // a browser has six connections to a server (HTTP/1.1): with a stream on each, no page of it could ask for anything

// One of the places for the streams of this browser's pages: a function that gives it back; null while all are taken.
const takePlace = async () => {
  if (!navigator.locks) return () => {};  // it has them where nobody listens on the way: at this machine, or by TLS
  for (let number = 0; number < MOST; number++) {
    const leave = await new Promise(taken => {
      navigator.locks.request(`console-stream-${number}`, {ifAvailable: true}, lock => lock && new Promise(release => taken(release)))
        .then(() => taken(null), () => taken(null));
    });
    if (leave) return leave;
  }
  return null;
};

export class Stream {
  constructor(tell, connected, refused, crowded) {
    this.tell = tell;
    this.crowded = crowded;  // told whether other pages of this browser have all the places
    this.leave = null;
    this.asked = 0;
    this.refused = refused;  // asked whether this browser is known to the console, when the stream is refused
    this.connected = connected;
    this.path = null;
    this.last = "";
    this.source = null;
    this.timer = 0;
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.hide(); else this.open(); });
  }

  // Makes room for the stream of another page.
  hide() {
    this.close();
    if (this.leave) this.leave();
    this.leave = null;
  }

  // Follows another base from now on.
  follow(path) {
    if (path === this.path) return;
    this.close();
    this.path = path;
    this.last = "";
    this.open();
  }

  async open() {
    if (this.source || !this.path || document.hidden) return;
    clearTimeout(this.timer);
    const mine = ++this.asked;
    if (!this.leave) {
      const leave = await takePlace();
      if (mine !== this.asked) { if (leave) leave(); return; }
      this.crowded(!leave);
      if (!leave) { this.timer = setTimeout(() => this.open(), AGAIN_MS); return; }
      this.leave = leave;
    }
    const source = this.source = new EventSource(this.path + (this.last ? "?last=" + encodeURIComponent(this.last) : ""));
    source.onopen = () => this.connected(true);
    source.onerror = () => {
      this.connected(false);
      if (source.readyState !== EventSource.CLOSED || this.source !== source) return;  // else the browser tries by itself
      this.close();
      this.refused();
      this.timer = setTimeout(() => this.open(), AGAIN_MS);
    };
    for (const name of EVENTS) {
      source.addEventListener(name, event => {
        if (this.source !== source) return;
        if (event.lastEventId) this.last = event.lastEventId;
        this.tell(name, JSON.parse(event.data));
      });
    }
  }

  close() {
    clearTimeout(this.timer);
    this.asked += 1;
    if (this.source) this.source.close();
    this.source = null;
  }
}
