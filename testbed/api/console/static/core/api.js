// Questions to the server, and its refusals as errors that can be shown.
import {takeAhead} from "./early.js";

export class ApiError extends Error {
  constructor(status, {message, hint = "", code = "", problems = []}) {
    super(message);
    this.status = status;
    this.hint = hint;
    this.code = code;
    this.problems = problems;
  }
}

export const LOGGED_OUT = "console-logged-out";  // an event of the window: this console does not know this browser

// Logs this browser in with the token of a link, or with a whole link that holds one; whether that was right.
export const logIn = async text => {
  const token = /[?&]token=([\w-]+)/.exec(text);
  const answer = await fetch("/login", {method: "POST", redirect: "manual", credentials: "same-origin", body: new URLSearchParams({token: token ? token[1] : text.trim()})});
  return answer.type === "opaqueredirect" || answer.ok;
};

export const ask = async (method, path, body, signal) => {
  const options = {method, signal, headers: {Accept: "application/json"}, credentials: "same-origin"};
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await ((method === "GET" && takeAhead(path)) || fetch(path, options));
    if (signal) signal.throwIfAborted();  // what was asked for ahead knows nothing of it
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, {message: "the console does not answer", hint: "Is `lab console` still running? It is asked again."});
  }
  if (answer.status === 401) dispatchEvent(new Event(LOGGED_OUT));
  const text = await answer.text();
  let found = null;
  try { found = text ? JSON.parse(text) : null; } catch { /* not JSON: below */ }
  if (answer.ok) return found;
  throw new ApiError(answer.status, (found && found.error) || {message: `${answer.status} ${answer.statusText}`});
};
