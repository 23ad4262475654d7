// The stream of a lab or run: snapshots, differences, events. Closed while nobody sees the page, resumed from where it was.
const EVENTS = ["snapshot", "tick", "state", "event", "shape", "gone", "trust", "labs", "task", "view", "failing", "machines"];
const AGAIN_MS = 1500;

export class Stream {
  constructor(tell, connected, refused) {
    this.tell = tell;
    this.refused = refused;  // asked whether this browser is known to the console, when the stream is refused
    this.connected = connected;
    this.path = null;
    this.last = "";
    this.source = null;
    this.timer = 0;
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.close(); else this.open(); });
  }

  // Follows another base from now on.
  follow(path) {
    if (path === this.path) return;
    this.close();
    this.path = path;
    this.last = "";
    this.open();
  }

  open() {
    if (this.source || !this.path || document.hidden) return;
    clearTimeout(this.timer);
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
    if (this.source) this.source.close();
    this.source = null;
  }
}
