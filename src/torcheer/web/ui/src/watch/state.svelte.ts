// A run as the page follows it: asks for what it lacks, adds what is new, and for long runs reads coarser rows.

import { RefusedError, type Source, type Subject } from "../data/source";
import { withRows, withScalars, type Changes, type Overview, type Rows, type Scalars } from "./run";

const COLUMNS = 200;
const MOST_ROWS = 480; // beyond, rows are read again, coarser
const POINTS = 500; // stretches of a curve, two or three points each
const MOST_POINTS = 3000; // beyond, curves are read again

export class RunState {
  overview = $state.raw<Overview | null>(null);
  rows = $state.raw<Map<number, Rows>>(new Map());
  scalars = $state.raw<Map<string, Scalars>>(new Map());
  lastStep = $state(0);
  isLive = $state(false);
  isPaused = $state(false);
  fault = $state.raw<RefusedError | null>(null);
  /** Series whose rows somebody looks at, and by how many panels. */
  private wanted = new Map<number, number>();
  private cursor = "";
  private isBusy = false;
  private isBehind = false;

  constructor(
    private readonly source: Source,
    readonly subject: Subject,
  ) {}

  async open(): Promise<void> {
    try {
      this.take(await this.source.data<Overview>(this.subject));
      await this.readScalars(-1);
    } catch (error) {
      this.fault = error instanceof RefusedError ? error : new RefusedError(String(error), "Reload the page.");
    }
  }

  private take(overview: Overview): void {
    this.overview = overview;
    this.cursor = overview.cursor;
    this.lastStep = overview.last_step ?? 0;
    this.isLive = overview.is_live && this.source.live;
    if (overview.rows) this.rows = new Map(Object.values(overview.rows).map((rows) => [rows.series, rows]));
    if (overview.scalars) this.scalars = new Map(Object.entries(overview.scalars));
  }

  /** Have the rows of some series read and kept up to date; returns what ends it. */
  want(series: readonly number[]): () => void {
    for (const id of series) this.wanted.set(id, (this.wanted.get(id) ?? 0) + 1);
    void this.readRows(series.filter((id) => !this.rows.has(id)));
    return () => {
      for (const id of series) {
        const count = (this.wanted.get(id) ?? 1) - 1;
        if (count > 0) this.wanted.set(id, count);
        else {
          this.wanted.delete(id);
          if (this.source.live) this.rows.delete(id); // it would go out of date
        }
      }
    };
  }

  /** The server says that there is something new. Changes that come meanwhile are read in one go afterwards. */
  async grown(): Promise<void> {
    if (this.isPaused || !this.overview) return;
    if (this.isBusy) {
      this.isBehind = true;
      return;
    }
    this.isBusy = true;
    try {
      do {
        this.isBehind = false;
        await this.catchUp();
      } while (this.isBehind);
    } catch (error) {
      // The next event tries again; what is shown stays.
      if (!(error instanceof RefusedError)) throw error;
    } finally {
      this.isBusy = false;
    }
  }

  resume(): void {
    this.isPaused = false;
    void this.grown();
  }

  private async catchUp(): Promise<void> {
    const overview = this.overview!;
    const alert = overview.alerts.at(-1)?.seq ?? 0;
    const note = overview.notes.at(-1)?.seq ?? 0;
    const changes = await this.source.part<Changes>(this.subject, "changes", { cursor: this.cursor, alert, note });
    if (changes.series || changes.structure) {
      const { rows, scalars } = this;
      this.take(await this.source.data<Overview>(this.subject));
      [this.rows, this.scalars] = [rows, scalars];
    } else if (changes.alerts.length || changes.notes.length) {
      this.overview = { ...overview, alerts: [...overview.alerts, ...changes.alerts], notes: [...overview.notes, ...changes.notes] };
    }
    const lanes = Object.values(changes.steps);
    if (lanes.length) await this.readRows([...this.wanted.keys()], Math.min(...lanes));
    if (changes.scalars) await this.readScalars(this.lastScalarStep());
    this.cursor = changes.cursor;
    this.lastStep = changes.last_step ?? this.lastStep;
    this.isLive = changes.is_live;
  }

  private lastScalarStep(): number {
    return Math.max(-1, ...[...this.scalars.values()].map(({ steps }) => steps.at(-1) ?? -1));
  }

  private async readRows(series: readonly number[], since = -1): Promise<void> {
    if (!series.length || !this.source.live) return;
    const grown = series.filter((id) => since >= 0 && (this.rows.get(id)?.steps.length ?? 0) < MOST_ROWS && this.rows.has(id));
    const whole = series.filter((id) => !grown.includes(id));
    const parts = [
      ...(grown.length ? [this.ask(grown, { since, columns: COLUMNS })] : []),
      ...(whole.length ? [this.ask(whole, { columns: COLUMNS })] : []),
    ];
    const found = (await Promise.all(parts)).flat();
    const now = new Map(this.rows); // only now: another answer may have come meanwhile
    for (const rows of found) {
      now.set(rows.series, grown.includes(rows.series) ? withRows(now.get(rows.series), rows) : rows);
    }
    this.rows = now;
  }

  private async ask(series: readonly number[], query: Record<string, number>): Promise<Rows[]> {
    const answer = await this.source.part<{ rows: Rows[] }>(this.subject, "series", { series: series.join(","), ...query });
    return answer.rows;
  }

  private async readScalars(since: number): Promise<void> {
    if (!this.source.live) return;
    const isMuch = [...this.scalars.values()].some(({ steps }) => steps.length > MOST_POINTS);
    const from = isMuch ? -1 : since;
    const found = await this.source.part<Record<string, Scalars>>(this.subject, "scalars", { since: from, columns: POINTS });
    const now = new Map(isMuch ? [] : this.scalars);
    for (const [name, scalars] of Object.entries(found)) now.set(name, withScalars(now.get(name), scalars));
    this.scalars = now;
  }
}
