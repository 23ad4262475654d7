// Numbers as people read them. Times of a lab are seconds since 1970, or since the begin of a run.
const scaled = (value, units, base = 1000) => {
  let at = 0;
  while (at < units.length - 1 && Math.abs(value) >= base * .9995) { value /= base; at += 1; }
  return `${+value.toPrecision(3)} ${units[at]}`;
};
export const rateText = bps => scaled(bps, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s", "Pbit/s"]);
export const bytesText = bytes => scaled(bytes, ["B", "kB", "MB", "GB", "TB"]);
export const countText = count => {
  const [whole, part] = String(+count.toFixed(3)).split(".");  // toLocaleString loads tables that take longer than the rest of a page
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (part ? `.${part}` : "");
};
export const shareText = permille => permille > 0 && permille < 10 ? `${permille / 10} %` : `${Math.round(permille / 10)} %`;
export const plural = (count, one, many = one + "s") => `${countText(count)} ${count === 1 ? one : many}`;

const two = number => String(number).padStart(2, "0");
export const spanText = seconds => {
  const s = Math.round(Math.abs(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
  return s < 172800 ? `${Math.floor(s / 3600)} h ${two(Math.floor(s % 3600 / 60))} min` : `${Math.floor(s / 86400)} days`;
};
// A moment: by the wall, or by the clock of a run, which begins at 0.
export const timeText = (seconds, clock = "wall", digits = 0) => {
  if (clock === "run") {
    const s = seconds;
    if (s > 0 && s < .1) return s < 1e-3 ? `${+(s * 1e6).toPrecision(4)} µs` : `${+(s * 1e3).toPrecision(4)} ms`;
    return s < 60 ? `${s.toFixed(Math.max(digits, 2))} s` : `${Math.floor(s / 60)}:${two(Math.floor(s % 60))}`;
  }
  const at = new Date(seconds * 1000), text = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return digits ? `${text}.${String(at.getMilliseconds()).padStart(3, "0").slice(0, digits)}` : text;
};

// What the metrics of a port are: a name, what a value says, and how it is written.
export const METRICS = {
  use: {title: "Use", text: shareText, axis: shareText, about: "share of the port's rate that it sends at"},
  queue: {title: "Queue", text: bytesText, axis: bytesText, about: "bytes that wait to be sent"},
  marks: {title: "CE marks", text: shareText, axis: shareText, about: "share of packets that were marked for congestion here"},
  pauses: {title: "Pauses", text: shareText, axis: shareText, about: "share of the time in which its peer had it paused (PFC)"},
  losses: {title: "Losses", text: value => `${countText(value)}/s`, axis: countText, about: "packets dropped at its queues or lost on its wire, per second"},
  errors: {title: "Errors", text: value => `${countText(value)}/s`, axis: countText, about: "packets corrupted or malformed, per second"},
};
export const measureText = (metric, value) => value === undefined || value < 0 ? "–" : METRICS[metric] ? METRICS[metric].text(value) : String(value);
