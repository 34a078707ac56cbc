INSERT INTO trace BY NAME
SELECT
  $trace_id AS trace_id,
  $run_id AS run_id,
  $role AS role,
  $path AS path,
  $sha256 AS sha256,
  $rank AS rank,
  $world_size AS world_size,
  $origin_ns AS origin_ns,
  $first_ns AS first_ns,
  $span_ns AS span_ns,
  $resolution_ns AS resolution_ns,
  $slices AS slices,
  $repaired AS repaired,
  $dropped AS dropped,
  $kernels_without_launch AS kernels_without_launch;
