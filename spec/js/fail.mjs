// The error of a check: its name is one of errors.md. It is not an Error, since a stack trace would cost more than the check.

export class Fail {
  constructor(name) {
    this.name = name;
  }
}

export function fail(name) {
  throw new Fail(name);
}

/** Runs `f`; returns null, or the name of its failure. Other exceptions pass. */
export function failureOf(f) {
  try {
    f();
    return null;
  } catch (e) {
    if (e instanceof Fail) return e.name;
    throw e;
  }
}
