// SPDX-License-Identifier: Apache-2.0
// The state of the view in the URL: #/systems/<id>/<view>?name=value

/** The part of the URL that is shown, null for none: `place`. */
export const shown = {place: null};

/** Return {path: [segments], params: URLSearchParams} of the present URL. */
export function here() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  return {
    path: path.split('/').filter(Boolean).map(decode),
    params: new URLSearchParams(query || ''),
  };
}

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

/** Return the URL of a view. */
export function link(...path) {
  return '#/' + path.map(encodeURIComponent).join('/');
}

/** Change a parameter of the present view, without opening it again. */
export function setParam(name, value) {
  const {path, params} = here();
  if (value) {
    params.set(name, value);
  } else {
    params.delete(name);
  }
  const query = params.toString();
  history.replaceState(null, '', link(...path) + (query ? `?${query}` : ''));
  shown.place = location.hash;
}
