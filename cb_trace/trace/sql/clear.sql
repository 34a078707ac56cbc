-- All but raw_total, which the report needs.
DROP VIEW IF EXISTS numbered_step;
DETACH DATABASE IF EXISTS stage;
DROP TABLE IF EXISTS raw_track;
DROP TABLE IF EXISTS raw_meta;
DROP TABLE IF EXISTS raw_launch;
DROP TABLE IF EXISTS raw_device;
DROP TABLE IF EXISTS raw_frame;
DROP TABLE IF EXISTS raw_summary;
DROP TABLE IF EXISTS raw_choice;
DROP TABLE IF EXISTS raw_link;
DROP TABLE IF EXISTS raw_step;
DROP TABLE IF EXISTS raw_stretch;
DROP TABLE IF EXISTS raw_module;
DROP TABLE IF EXISTS launch_op;
