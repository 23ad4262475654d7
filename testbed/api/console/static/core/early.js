// Asks for what the first picture needs as soon as there is an address, while the other parts of the page are still read. What was
// asked for ahead is given out once.
import {parse} from "./address.js";

const LIFE_MS = 10e3;
const asked = new Map();

export const askAhead = paths => {
  for (const path of paths) {
    if (asked.has(path)) continue;
    const answer = fetch(path, {headers: {Accept: "application/json"}, credentials: "same-origin"});
    answer.catch(() => {});  // told to who takes it
    asked.set(path, answer);
    setTimeout(() => { if (asked.get(path) === answer) asked.delete(path); }, LIFE_MS);
  }
};

// The answer that was asked for ahead; undefined where none was.
export const takeAhead = path => {
  const answer = asked.get(path);
  asked.delete(path);
  return answer;
};

// Forgets what nobody took: it is of another base, of a lab as it was, or for who was not logged in.
export const forgetAhead = () => asked.clear();

// What a page asks for that looks at a base.
export const neededOf = (base, view) => [base, ...((view || "map") === "map" ? [`${base}/map`, `${base}/positions`] : [])];

const {base, view} = parse(location.hash), first = base || (view ? "" : document.documentElement.dataset.opens);
askAhead(["/api/console", "/api/labs", ...(first ? neededOf(first, view) : [])]);
