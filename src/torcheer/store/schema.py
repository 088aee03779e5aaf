"""The tables of one process's file, and what a row of statistics holds. Changing either is a new format version."""

from __future__ import annotations

FORMAT = "torcheer-run"
FORMAT_VERSION = 1
MANIFEST = "run.json"

# What is kept of one tensor at one step beside its histogram: float32 each, NaN where it does not apply.
STATISTICS = (
    "count",  # values the histogram and the sampled statistics are made of
    "mean",  # of the finite values among them, as min and max are
    "std",
    "min",
    "max",
    "norm",  # L2 norm of the whole tensor
    "zeros",  # share of values that are exactly 0
    "nan",  # NaNs in the whole tensor
    "inf",  # infinities in the whole tensor
    "update",  # norm of the change an optimizer step made ÷ norm of the parameter
    "dead",  # share of units that were 0 for the whole batch
    "saturated",  # share of values within 3 % of a bound of a tanh or sigmoid
    "low",  # lower edge of the histogram
    "high",  # upper edge of it
    "below",  # values rejected as outliers below the lower edge
    "above",  # the same above the upper edge
    "flags",  # FLAG_… added up
)
COLUMN = {name: place for place, name in enumerate(STATISTICS)}

FLAG_SAMPLED = 1  # mean, std, min, max, zeros are of a sample, not of the whole tensor
FLAG_AT_LEAST = 2  # nan and inf were counted in the sample only
FLAG_SCALED = 4  # a gradient under a GradScaler whose scale is not known

# Rows of statistics that come before they are written per series, and how many of these make a coarser one.
CHUNK_STEPS = 64
PYRAMID = 8

TABLES = """
CREATE TABLE facts(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sessions(
    session INTEGER PRIMARY KEY, started REAL NOT NULL, first_step INTEGER NOT NULL, facts TEXT NOT NULL);
CREATE TABLE structure(
    version INTEGER PRIMARY KEY, model TEXT NOT NULL, step INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE series(id INTEGER PRIMARY KEY, lane TEXT NOT NULL, name TEXT NOT NULL, facts TEXT NOT NULL);
CREATE TABLE steps(
    seq INTEGER PRIMARY KEY AUTOINCREMENT, lane TEXT NOT NULL, step INTEGER NOT NULL, time REAL NOT NULL,
    body BLOB NOT NULL, UNIQUE(lane, step));
CREATE TABLE chunks(
    id INTEGER PRIMARY KEY, series INTEGER NOT NULL, level INTEGER NOT NULL, first_step INTEGER NOT NULL,
    last_step INTEGER NOT NULL, num_rows INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX chunks_by_series ON chunks(series, level, first_step);
CREATE TABLE windows(
    lane TEXT NOT NULL, level INTEGER NOT NULL, first_step INTEGER NOT NULL, last_step INTEGER NOT NULL,
    num_rows INTEGER NOT NULL, kept INTEGER NOT NULL, PRIMARY KEY(lane, level, first_step)) WITHOUT ROWID;
CREATE TABLE scalar_names(id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL);
CREATE TABLE scalars(
    seq INTEGER PRIMARY KEY AUTOINCREMENT, name INTEGER NOT NULL, step INTEGER NOT NULL, value REAL,
    time REAL NOT NULL);
CREATE INDEX scalars_by_name ON scalars(name, step);
CREATE TABLE alerts(
    seq INTEGER PRIMARY KEY AUTOINCREMENT, step INTEGER NOT NULL, rule TEXT NOT NULL, series INTEGER,
    message TEXT NOT NULL, time REAL NOT NULL);
CREATE TABLE notes(
    seq INTEGER PRIMARY KEY AUTOINCREMENT, step INTEGER NOT NULL, code TEXT NOT NULL, message TEXT NOT NULL);
"""
