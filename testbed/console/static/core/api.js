// Questions to the server, and its refusals as errors that can be shown.
export class ApiError extends Error {
  constructor(status, {message, hint = "", code = "", problems = []}) {
    super(message);
    this.status = status;
    this.hint = hint;
    this.code = code;
    this.problems = problems;
  }
}

export const ask = async (method, path, body, signal) => {
  const options = {method, signal, headers: {Accept: "application/json"}, credentials: "same-origin"};
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, {message: "the console does not answer", hint: "is `lab console` still running?"});
  }
  if (answer.status === 401) location.reload();  // the login page
  const text = await answer.text();
  let found = null;
  try { found = text ? JSON.parse(text) : null; } catch { /* not JSON: below */ }
  if (answer.ok) return found;
  throw new ApiError(answer.status, (found && found.error) || {message: `${answer.status} ${answer.statusText}`});
};
