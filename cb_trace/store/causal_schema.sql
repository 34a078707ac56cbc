-- What the step would lose without a module: measured by knock-out, predicted by the simulator.

CREATE TABLE knockout (
    run_id VARCHAR, module_id INTEGER, phase VARCHAR, deployment VARCHAR, marginal_ns BIGINT,
    low_ns BIGINT, high_ns BIGINT, samples INTEGER, base_ns BIGINT, skipped VARCHAR
);
COMMENT ON TABLE knockout IS
    'One knock-out: the bare step with a module''s output replaced by its recorded one, timed in '
    'turn with the step as it is';
COMMENT ON COLUMN knockout.run_id IS 'Recording';
COMMENT ON COLUMN knockout.module_id IS 'Module, knocked out with all that it holds';
COMMENT ON COLUMN knockout.phase IS 'Work that was missing: forward, or step (all phases)';
COMMENT ON COLUMN knockout.deployment IS 'eager or graph';
COMMENT ON COLUMN knockout.marginal_ns IS
    'What the step lost: median of the paired differences, ns; NULL where skipped';
COMMENT ON COLUMN knockout.low_ns IS 'Lower bound (95 % bootstrap), ns';
COMMENT ON COLUMN knockout.high_ns IS 'Upper bound (95 % bootstrap), ns';
COMMENT ON COLUMN knockout.samples IS 'Pairs';
COMMENT ON COLUMN knockout.base_ns IS 'Median of the step as it is, among the pairs, ns';
COMMENT ON COLUMN knockout.skipped IS 'Why it was not measured; NULL where it was';

CREATE TABLE speedup (
    run_id VARCHAR, module_id INTEGER, phase VARCHAR, deployment VARCHAR, factor INTEGER,
    saved_ns BIGINT, low_ns BIGINT, high_ns BIGINT, samples INTEGER, base_ns BIGINT,
    predicted_ns BIGINT, predicted_low_ns BIGINT, predicted_high_ns BIGINT, skipped VARCHAR
);
COMMENT ON TABLE speedup IS
    'One faster module: the bare step with a module run on a part of its batch, timed in turn with '
    'the step as it is; beside it what the simulator says';
COMMENT ON COLUMN speedup.run_id IS 'Recording';
COMMENT ON COLUMN speedup.module_id IS 'Module, run with all that it holds on a part of its batch';
COMMENT ON COLUMN speedup.phase IS 'forward';
COMMENT ON COLUMN speedup.deployment IS 'eager or graph';
COMMENT ON COLUMN speedup.factor IS 'The module ran on one factor-th of its batch';
COMMENT ON COLUMN speedup.saved_ns IS
    'What the step lost: median of the paired differences, ns; NULL where skipped';
COMMENT ON COLUMN speedup.low_ns IS 'Lower bound (95 % bootstrap), ns';
COMMENT ON COLUMN speedup.high_ns IS 'Upper bound (95 % bootstrap), ns';
COMMENT ON COLUMN speedup.samples IS 'Pairs';
COMMENT ON COLUMN speedup.base_ns IS 'Median of the step as it is, among the pairs, ns';
COMMENT ON COLUMN speedup.predicted_ns IS
    'What the simulator says the step loses where the module takes one factor-th of its time, ns';
COMMENT ON COLUMN speedup.predicted_low_ns IS 'Lower bound of the prediction, ns';
COMMENT ON COLUMN speedup.predicted_high_ns IS 'Upper bound of the prediction, ns';
COMMENT ON COLUMN speedup.skipped IS 'Why it was not measured; NULL where it was';

CREATE TABLE marginal (
    run_id VARCHAR, module_id INTEGER, phase VARCHAR, deployment VARCHAR, kind VARCHAR,
    ns BIGINT, low_ns BIGINT, high_ns BIGINT
);
COMMENT ON TABLE marginal IS
    'Predictions of the simulator: what the step would lose without a module, children included, '
    'and how long the whole step takes';
COMMENT ON COLUMN marginal.run_id IS 'Recording';
COMMENT ON COLUMN marginal.module_id IS 'Module; NULL for the whole step';
COMMENT ON COLUMN marginal.phase IS 'Phase; NULL for the whole step';
COMMENT ON COLUMN marginal.deployment IS 'eager or graph';
COMMENT ON COLUMN marginal.kind IS
    'marginal; of the whole step: predicted (from the parts), kernel_sum, isolation_sum';
COMMENT ON COLUMN marginal.ns IS 'Time a step, ns';
COMMENT ON COLUMN marginal.low_ns IS 'Lower bound, ns';
COMMENT ON COLUMN marginal.high_ns IS 'Upper bound, ns';
