-- Statements that store a new, empty table ($2) as another one ($1) is.
WITH t AS (
    SELECT c.*
    FROM pg_catalog.pg_class c
    WHERE c.relname = $1
        AND c.relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema())
)
SELECT format('ALTER TABLE %I SET TABLESPACE %I', $2::text, s.spcname)
FROM t JOIN pg_catalog.pg_tablespace s ON s.oid = t.reltablespace
UNION ALL
SELECT format('ALTER TABLE %I SET UNLOGGED', $2::text) FROM t WHERE t.relpersistence = 'u'
UNION ALL
SELECT format('ALTER TABLE %I SET (%s)', $2::text, array_to_string(t.reloptions, ', '))
FROM t WHERE t.reloptions IS NOT NULL
UNION ALL
SELECT format('ALTER TABLE %I SET (toast.%s)', $2::text, array_to_string(o.reloptions, ', toast.'))
FROM t JOIN pg_catalog.pg_class o ON o.oid = t.reltoastrelid WHERE o.reloptions IS NOT NULL
