// Requests to the server that sent this page.

let key = "";

/** An error in the words of the server. */
export class ServerError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** Later requests carry this API key. It is forgotten with the page. */
export function useKey(value) {
  key = value;
}

/**
 * The answer of a route to a body, or to GET if there is none.
 *
 * @param {string} path without a slash at its start: the page may be below a prefix of a proxy.
 * @param {object} [body]
 * @param {AbortSignal} [signal]
 * @returns {Promise<{content: any, cut: number}>} the JSON, and how many texts were cut.
 * @throws {ServerError}
 */
export async function ask(path, body, signal) {
  const headers = { Accept: "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body) headers["Content-Type"] = "application/json";
  const request = { headers, signal, ...(body && { method: "POST", body: JSON.stringify(body) }) };
  let response;
  try {
    response = await fetch(path, request);
  } catch {
    throw new ServerError("The server cannot be reached.");
  }
  const content = await response.json().catch(() => null);
  if (content === null || !response.ok) {
    const message = content?.error ?? `The answer is no JSON, status ${response.status}.`;
    throw new ServerError(message, response.status);
  }
  return { content, cut: Number(response.headers.get("X-Texts-Cut") ?? 0) };
}
