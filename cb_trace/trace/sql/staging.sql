-- Temporary tables between decoding and linking. pid and tid are text in a tenth of real events.
CREATE OR REPLACE TEMP TABLE raw_track (thread INTEGER, pid VARCHAR, tid VARCHAR);
CREATE OR REPLACE TEMP TABLE raw_meta (name VARCHAR, pid VARCHAR, tid VARCHAR, label VARCHAR);
CREATE OR REPLACE TEMP TABLE raw_launch (
  launch_id BIGINT, category VARCHAR, name VARCHAR, thread INTEGER,
  start_ns BIGINT, dur_ns BIGINT, correlation BIGINT, kernel_name VARCHAR, grid VARCHAR,
  block VARCHAR
);
CREATE OR REPLACE TEMP TABLE raw_device (
  kernel_id BIGINT, category VARCHAR, name VARCHAR, device INTEGER, stream BIGINT, thread INTEGER,
  start_ns BIGINT, dur_ns BIGINT, correlation BIGINT, graph_id BIGINT, graph_node_id BIGINT,
  grid VARCHAR, block VARCHAR, registers INTEGER, shared_memory BIGINT, bytes BIGINT,
  external_id BIGINT, flaw VARCHAR
);
CREATE OR REPLACE TEMP TABLE raw_frame (
  thread INTEGER, python_id BIGINT, python_parent_id BIGINT, start_ns BIGINT, dur_ns BIGINT,
  name VARCHAR
);
CREATE OR REPLACE TEMP TABLE raw_total (
  kind VARCHAR, events BIGINT, ns BIGINT, no_dur BIGINT, odd_dur BIGINT, zero_ts BIGINT,
  first_ns BIGINT, last_start_ns BIGINT, last_end_ns BIGINT, fractions BIGINT,
  unusable BIGINT
);
