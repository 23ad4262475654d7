// A text with numbers beside its lines, and what is wrong at the lines that it is about. It is a textarea: what one knows of
// those works here, and a screen reader reads it.
import {html, useLayoutEffect, useRef} from "../core/lib.js";

const TAB = "  ";

export const Editor = ({value, onInput, problems = [], label, readOnly = false, rows = 22}) => {
  const area = useRef(null), gutter = useRef(null);
  const count = value.split("\n").length, at = new Map();
  for (const one of problems) if (one.line) at.set(one.line, [...(at.get(one.line) || []), one]);
  useLayoutEffect(() => { if (gutter.current && area.current) gutter.current.scrollTop = area.current.scrollTop; });
  const keys = event => {
    if (event.key !== "Tab" || event.shiftKey || readOnly) return;
    event.preventDefault();
    const {selectionStart: from, selectionEnd: to} = area.current;
    area.current.setRangeText(TAB, from, to, "end");
    onInput(area.current.value);
  };
  return html`<div class="editor">
    <div class="editor-gutter" ref=${gutter} aria-hidden="true"><div>${Array.from({length: count}, (_, line) => html`<span key=${line} class=${at.has(line + 1) ? "wrong" : ""}
      title=${at.has(line + 1) ? at.get(line + 1).map(one => one.message).join("\n") : undefined}>${line + 1}</span>`)}</div></div>
    <textarea ref=${area} class="mono" aria-label=${label} spellcheck=${false} autocomplete="off" wrap="off" rows=${rows} readOnly=${readOnly} value=${value}
      onInput=${event => onInput(event.target.value)} onKeyDown=${keys} onScroll=${() => { gutter.current.scrollTop = area.current.scrollTop; }}></textarea>
  </div>`;
};

// Puts the caret at a place of a text, and shows it.
export const goTo = (root, line, column) => {
  const area = root && root.querySelector(".editor textarea");
  if (!area || !line) return;
  const lines = area.value.split("\n").slice(0, line - 1);
  const at = lines.reduce((sum, one) => sum + one.length + 1, 0) + Math.max(0, (column || 1) - 1);
  area.focus();
  area.setSelectionRange(at, at);
  area.scrollTop = Math.max(0, (line - 6) * parseFloat(getComputedStyle(area).lineHeight));
};

export const Problems = ({problems, warnings = [], onChoose}) => html`<ul class="problems" aria-label="What is wrong">
  ${problems.map((one, at) => html`<li key=${`p${at}`} class="bad"><button type="button" onClick=${() => onChoose(one)}>
    ${one.line ? html`<b class="mono">${one.line}:${one.column}</b>` : null}<span>${one.path ? `${one.path}: ` : ""}${one.message}</span></button>${one.hint && html`<em>${one.hint}</em>`}</li>`)}
  ${warnings.map((one, at) => html`<li key=${`w${at}`} class="warn"><button type="button" onClick=${() => onChoose(one)}>
    ${one.line ? html`<b class="mono">${one.line}:${one.column}</b>` : null}<span>${one.message}</span></button>${one.hint && html`<em>${one.hint}</em>`}</li>`)}
</ul>`;
