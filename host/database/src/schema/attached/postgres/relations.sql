-- The uses of names in the current schema.
SELECT
    c.relname::text,
    CASE c.relkind
        WHEN 'r' THEN CASE
            WHEN c.relispartition THEN 'a partition'
            WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_inherits h WHERE h.inhrelid = c.oid) THEN 'a table that inherits'
            WHEN (SELECT a.amname FROM pg_catalog.pg_am a WHERE a.oid = c.relam) <> 'heap' THEN 'a table of another access method than heap'
            ELSE 'a table'
        END
        WHEN 'p' THEN 'a partitioned table'
        WHEN 'v' THEN 'a view'
        WHEN 'm' THEN 'a materialized view'
        WHEN 'f' THEN 'a foreign table'
        WHEN 'S' THEN 'a sequence'
        WHEN 'i' THEN 'an index'
        ELSE 'no table'
    END
FROM pg_catalog.pg_class c
WHERE c.relname IN (?)
    AND c.relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema())
