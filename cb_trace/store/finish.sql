-- What is stored when a profile is whole, so that the views need not work it out at each question:
-- planning it took longer than answering.

INSERT INTO _descendant
WITH RECURSIVE descendant AS (
    SELECT module_id AS ancestor_id, module_id FROM module
    UNION ALL
    SELECT descendant.ancestor_id, module.module_id
    FROM descendant
    JOIN module ON module.parent_id = descendant.module_id
)
SELECT ancestor_id, module_id FROM descendant;

-- A module that ran without owning a part of the step costs 0; without a partition, NULL.
-- Phase step holds all phases of a module together; its rows in ran say where there is one.
INSERT INTO _cost
WITH active AS (
    SELECT module_id, phase FROM module_context
    UNION
    SELECT module_id, phase FROM partition WHERE module_id IS NOT NULL
), ran AS ( -- and every module that holds something that ran
    SELECT DISTINCT _descendant.ancestor_id AS module_id, active.phase
    FROM active
    JOIN _descendant USING (module_id)
), part AS (
    SELECT deployment, module_id, phase, ns FROM partition
    UNION ALL
    SELECT deployment, module_id, 'step' AS phase, ns FROM partition WHERE phase <> 'step'
), inclusive AS (
    SELECT
        part.deployment,
        _descendant.ancestor_id AS module_id,
        part.phase,
        sum(part.ns) AS ns
    FROM part
    JOIN _descendant USING (module_id)
    GROUP BY ALL
)
SELECT
    _deployment.deployment,
    ran.module_id,
    ran.phase,
    coalesce(inclusive.ns, CASE WHEN _deployment.is_split THEN 0 END) AS ns
FROM ran
JOIN module USING (module_id)
JOIN _deployment ON _deployment.run_id = module.run_id
LEFT JOIN inclusive
    ON inclusive.module_id = ran.module_id
    AND inclusive.phase = ran.phase
    AND inclusive.deployment = _deployment.deployment;
