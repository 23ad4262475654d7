// Terminals under a content security policy that allows no inline style: what xterm.js would write into <style> elements
// (here <xterm-style>, see ../vendor/list.json) is adopted as style sheets of the document.
import {Terminal} from "../vendor/xterm-6.0.0/xterm.mjs";
import {FitAddon} from "../vendor/xterm-addon-fit-0.11.0/addon-fit.mjs";

const THEMES = {
  dark: {background: "#11161d", foreground: "#e7ecf3", cursor: "#9dbdff", selectionBackground: "#41609f88"},
  light: {background: "#ffffff", foreground: "#1b2430", cursor: "#2458d3", selectionBackground: "#9db4e688", black: "#1b2430", white: "#5d6a7a", brightBlack: "#5d6a7a", brightWhite: "#1b2430", yellow: "#8a5a00", brightYellow: "#8a5a00", green: "#1a7a45", brightGreen: "#1a7a45", cyan: "#0b7285", brightCyan: "#0b7285"},
};

// Opens a terminal in an element. `fit()` makes it as large as that; `dispose()` ends it.
export const openTerminal = (element, {theme = "dark", ...options} = {}) => {
  const terminal = new Terminal({fontFamily: 'ui-monospace, "DejaVu Sans Mono", monospace', fontSize: 13, scrollback: 5000, theme: THEMES[theme], ...options});
  const addon = new FitAddon(), sheets = new Map();
  terminal.loadAddon(addon);
  const adopt = () => {
    for (const style of element.querySelectorAll("xterm-style")) {
      if (!sheets.has(style)) sheets.set(style, new CSSStyleSheet());
      const text = style.textContent;
      if (style.adopted !== text) { style.adopted = text; sheets.get(style).replaceSync(text); }
    }
    const others = [...document.adoptedStyleSheets].filter(one => ![...sheets.values()].includes(one));
    document.adoptedStyleSheets = [...others, ...sheets.values()];
  };
  const watch = new MutationObserver(records => {
    if (records.some(one => one.target.nodeName === "XTERM-STYLE" || [...one.addedNodes].some(node => node.nodeName === "XTERM-STYLE"))) adopt();
  });
  watch.observe(element, {childList: true, subtree: true});
  terminal.open(element);
  adopt();
  const dispose = terminal.dispose.bind(terminal);
  return Object.assign(terminal, {
    fit: () => addon.fit(),
    setTheme: name => { terminal.options.theme = THEMES[name]; },
    dispose: () => {
      watch.disconnect();
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter(one => ![...sheets.values()].includes(one));
      dispose();
    },
  });
};
