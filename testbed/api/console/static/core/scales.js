// The colours of values: near inferno of matplotlib, from its end that is like the paper to the one that is not. Lightness changes
// with each step, so that who sees no red, green or blue, or prints it grey, reads the same order (tests/unit/api/console/test_colours.py).
import {METRICS} from "./format.js";

const RAMPS = {
  light: ["#ccd4de", "#ecb82e", "#f0880d", "#dd5830", "#c23a4d", "#8f2569", "#4a0c6b"],
  dark: ["#3d4959", "#7b3fa0", "#b9487e", "#e0605c", "#f58d3a", "#fbbf3a", "#fcf5a0"],
};
export const STEPS = 7;
export const ramp = theme => RAMPS[theme === "dark" ? "dark" : "light"];

// The upper bound of each step of a metric: a value belongs to the first that it does not exceed. Step 0 is "nothing".
const BOUNDS = {
  use: [4, 150, 300, 500, 700, 900],
  queue: [0, 1e3, 1e4, 5e4, 2e5, 1e6],
  marks: [0, 10, 50, 150, 300, 600],
  pauses: [0, 10, 50, 150, 300, 600],
  losses: [0, 1, 10, 100, 1e3, 1e4],
  errors: [0, 1, 10, 100, 1e3, 1e4],
};

// The step of a value, from 0; -1 where it is not known.
export const stepOf = (metric, value) => {
  if (value === undefined || value < 0) return -1;
  const bounds = BOUNDS[metric] || BOUNDS.use;
  let step = 0;
  while (step < bounds.length && value > bounds[step]) step += 1;
  return step;
};
export const colourOf = (metric, value, theme) => {
  const step = stepOf(metric, value);
  return step < 0 ? null : ramp(theme)[step];
};
// What the steps of a metric are called in the legend.
export const stepTexts = metric => {
  const bounds = BOUNDS[metric] || BOUNDS.use, {axis} = METRICS[metric] || METRICS.use;
  return Array.from({length: STEPS}, (_, step) => {
    if (step === 0) return bounds[0] === 0 ? "none" : "idle";
    return step < bounds.length ? `≤ ${axis(bounds[step])}` : `> ${axis(bounds[bounds.length - 1])}`;
  });
};
export const themeNow = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
};
