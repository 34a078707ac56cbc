-- Every row of compare for one recording and deployment, with its place in the module tree.
-- $run_id, $deployment
SELECT
  figures.*,
  parent.path AS parent_path
FROM compare AS figures
JOIN module ON module.run_id = figures.run_id AND module.path = figures.path
LEFT JOIN module AS parent ON parent.module_id = module.parent_id
WHERE figures.run_id = $run_id AND figures.deployment = $deployment
ORDER BY module.ordinal, figures.phase
