// Whether figures of this machine are worth anything now: a band across the page where they are not, and three numbers in
// the bar always.
import {html, useEffect, useState} from "../core/lib.js";
import {useStore} from "../core/store.js";
import {Button} from "../core/ui.js";
import {shareText} from "../core/format.js";

const Band = ({app}) => {
  const {trust, lab} = useStore(app.live), [hidden, setHidden] = useState("");
  useEffect(() => { if (trust && trust.ok) setHidden(""); }, [trust]);
  if (lab && !lab.live) return html`<${RecordBand} lab=${lab} />`;
  if (!trust || trust.ok) return null;
  const why = trust.why.join("; "), kinds = trust.why.length;
  if (hidden === String(kinds)) return null;
  return html`<div class="trust-band" role="alert"><strong>Figures are worth nothing now:</strong> <span>${why}</span>
    <button type="button" class="button small" onClick=${() => setHidden(String(kinds))}>Hide</button></div>`;
};

const RecordBand = ({lab}) => {
  const {record} = lab;
  if (!record || record.verdict !== "invalid") return null;
  return html`<div class="trust-band" role="alert"><strong>This record is invalid:</strong> <span>its figures are not to be trusted. Job says why.</span></div>`;
};

const Gauge = ({app}) => {
  const trust = useStore(app.live, live => live.trust), lab = useStore(app.live, live => live.lab);
  if (!trust || (lab && !lab.live)) return null;
  const late = trust.late_ms == null || trust.late_ms < 0 ? null : trust.late_ms;
  const words = `busy ${shareText(trust.busy)}, stolen ${shareText(trust.steal)}${late === null ? "" : `, a thread woke ${late.toFixed(1)} ms late`}, ${trust.cpus} CPUs`;
  return html`<span class=${`trust-gauge ${trust.ok ? "" : "bad"}`} role="img" aria-label=${`This machine: ${words}`} title=${`This machine: ${words}`}>
    <span><b>${shareText(trust.busy)}</b> busy</span><span class="more"><b>${shareText(trust.steal)}</b> stolen</span>${late !== null && html`<span class="more"><b>${late < 10 ? late.toFixed(1) : Math.round(late)}</b> ms late</span>`}</span>`;
};

export default {name: "trust", title: "Trust", order: 90, slots: {band: Band, bar: Gauge}};
