// Where the page's data comes from: the server it was loaded from, or the file it is part of.

export interface Subject {
  id: number;
  kind: string;
  title: string;
  last_step: number | null;
}

type OnGrown = (subject: number, lastStep: number) => void;
type OnState = (connected: boolean) => void;

export interface Source {
  /** Whether there is a server to ask for more than the file holds. */
  readonly live: boolean;
  subjects(): Promise<Subject[]>;
  data<T>(subject: Subject, query?: Record<string, string | number>): Promise<T>;
  /** The same as bytes of JSON, for two to read at once; a file has it as data already. */
  bytes<T>(subject: Subject): Promise<ArrayBuffer | T>;
  /** A part of a subject that the server has: "details", "series", "changes", … */
  part<T>(subject: Subject, name: string, query: Record<string, string | number>): Promise<T>;
  /** Call back whenever a run has grown; returns what ends it. */
  follow(onGrown: OnGrown, onState: OnState): () => void;
}

/** What a server says instead of an answer: message and remedy. */
export class RefusedError extends Error {
  constructor(
    message: string,
    readonly hint: string,
  ) {
    super(message);
  }
}

export function openSource(): Promise<Source> {
  const embedded = document.getElementById("data");
  return embedded?.textContent ? EmbeddedSource.open(embedded.textContent) : Promise.resolve(new ServerSource());
}

class ServerSource implements Source {
  readonly live = true;
  private readonly listeners = new Set<{ onGrown: OnGrown; onState: OnState }>();
  private events: EventSource | null = null;

  async subjects(): Promise<Subject[]> {
    return (await ask<{ subjects: Subject[] }>("api")).subjects;
  }

  data<T>(subject: Subject, query: Record<string, string | number> = {}): Promise<T> {
    return ask<T>(`api/subjects/${subject.id}${queryText(query)}`);
  }

  async bytes(subject: Subject): Promise<ArrayBuffer> {
    return (await answered(`api/subjects/${subject.id}`)).arrayBuffer();
  }

  part<T>(subject: Subject, name: string, query: Record<string, string | number>): Promise<T> {
    return ask<T>(`api/subjects/${subject.id}/${name}${queryText(query)}`);
  }

  follow(onGrown: OnGrown, onState: OnState): () => void {
    const listener = { onGrown, onState };
    this.listeners.add(listener);
    this.events ??= this.listen();
    return () => {
      this.listeners.delete(listener);
      if (this.listeners.size) return;
      this.events?.close();
      this.events = null;
    };
  }

  /** One stream for all of the page. */
  private listen(): EventSource {
    const events = new EventSource("api/events"); // reconnects by itself
    events.onopen = () => this.listeners.forEach(({ onState }) => onState(true));
    events.onerror = () => this.listeners.forEach(({ onState }) => onState(false));
    events.onmessage = (event) => {
      const told = JSON.parse(event.data) as { subject: number; last_step: number };
      this.listeners.forEach(({ onGrown }) => onGrown(told.subject, told.last_step));
    };
    return events;
  }
}

class EmbeddedSource implements Source {
  readonly live = false;

  constructor(private readonly shown: Record<string, unknown>) {}

  static async open(text: string): Promise<EmbeddedSource> {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const unzipped = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new EmbeddedSource(await new Response(unzipped).json());
  }

  async subjects(): Promise<Subject[]> {
    return Object.keys(this.shown).map((kind, id) => ({ id, kind, title: titleOf(this.shown[kind], kind), last_step: null }));
  }

  async data<T>(subject: Subject): Promise<T> {
    return this.shown[subject.kind] as T;
  }

  bytes<T>(subject: Subject): Promise<T> {
    return this.data<T>(subject);
  }

  async part<T>(): Promise<T> {
    throw new RefusedError("A page in a file has only what was put into it.", "Open what it was made of: torcheer.explore(…)");
  }

  follow(): () => void {
    return () => {};
  }
}

function titleOf(data: unknown, kind: string): string {
  const some = data as { title?: string; model?: string; names?: string[]; run?: { model?: string } };
  return some.title ?? some.run?.model ?? some.model ?? some.names?.join(" / ") ?? kind;
}

function queryText(query: Record<string, string | number>): string {
  const text = new URLSearchParams(Object.entries(query).map(([name, value]) => [name, String(value)])).toString();
  return text ? `?${text}` : "";
}

async function ask<T>(path: string): Promise<T> {
  return (await answered(path)).json();
}

async function answered(path: string): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path);
  } catch {
    throw new RefusedError("The server does not answer.", "It may have ended: start it again, then reload this page.");
  }
  if (response.ok) return response;
  const { error } = await response.json();
  throw new RefusedError(error.message, error.hint);
}
