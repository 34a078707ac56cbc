-- What a reader of the figures must know.
-- $run_id
SELECT note.reason, coalesce(note.detail, '') AS detail, module.path, note.count
FROM note
LEFT JOIN module ON module.module_id = note.module_id
WHERE note.run_id = $run_id
ORDER BY module.path NULLS FIRST, note.reason, note.detail
