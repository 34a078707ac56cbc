-- Stretches of a stream in which a module's kernels run one after another, for kernels that no call
-- of a module in this trace launched: compiled code, replayed graphs, the optimizer. One row a
-- module at every depth; its own kernels with the module's share. A kernel of very many modules is
-- shown at those that hold all of it.
-- $trace_id, $run_id, $deployment, $most
WITH owned AS (
  SELECT
    kernel.kernel_id,
    kernel.step,
    kernel.thread,
    kernel.start_ns,
    kernel.dur_ns,
    share.module_id,
    share.phase,
    sum(share.share) AS share
  FROM kernel
  JOIN kernel_module AS share ON share.kernel_id = kernel.kernel_id
  LEFT JOIN module_call AS call ON call.call_id = share.call_id AND call.trace_id = kernel.trace_id
  WHERE kernel.trace_id = $trace_id
    AND kernel.kind <> 'cpu'
    AND share.module_id IS NOT NULL
    AND call.call_id IS NULL
  GROUP BY ALL
),
owners AS (
  SELECT kernel_id, count(DISTINCT module_id) AS modules FROM owned GROUP BY kernel_id
),
place AS (
  SELECT
    kernel_id,
    row_number() OVER (PARTITION BY thread ORDER BY start_ns, kernel_id) AS place
  FROM kernel
  WHERE trace_id = $trace_id AND kind <> 'cpu'
),
held AS (
  SELECT
    owned.kernel_id, owned.step, owned.thread, owned.start_ns, owned.dur_ns, owned.phase,
    tree.ancestor_id AS module_id,
    sum(owned.share) AS share,
    bool_or(owned.module_id = tree.ancestor_id) AS is_own
  FROM owned
  JOIN _descendant AS tree ON tree.module_id = owned.module_id
  JOIN owners ON owners.kernel_id = owned.kernel_id
  GROUP BY ALL
  HAVING any_value(owners.modules) <= $most OR sum(owned.share) > 0.999
),
island AS (
  SELECT
    held.*,
    place.place - row_number() OVER (
      PARTITION BY held.module_id, held.phase, held.step, held.thread ORDER BY place.place
    ) AS island
  FROM held
  JOIN place ON place.kernel_id = held.kernel_id
),
stretch AS (
  SELECT
    module_id, phase, step, thread,
    min(start_ns) AS start_ns,
    max(start_ns + dur_ns) - min(start_ns) AS dur_ns,
    list({'kernel_id': kernel_id, 'start_ns': start_ns, 'share': share} ORDER BY start_ns)
      FILTER (WHERE is_own) AS own_kernels
  FROM island
  GROUP BY module_id, phase, step, thread, island
)
SELECT
  stretch.step, stretch.phase, stretch.start_ns, stretch.dur_ns, stretch.own_kernels,
  thread.pid, thread.tid,
  module.path, module.class, module.depth,
  figures.* EXCLUDE (run_id, deployment, path, class, phase, ts_ns, dur_ns)
FROM stretch
JOIN module ON module.module_id = stretch.module_id
JOIN thread ON thread.thread = stretch.thread
LEFT JOIN compare AS figures
  ON figures.run_id = $run_id
  AND figures.deployment = $deployment
  AND figures.path = module.path
  AND figures.phase = stretch.phase
ORDER BY module.depth, stretch.start_ns, stretch.dur_ns DESC, module.ordinal
