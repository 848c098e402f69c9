-- The columns of a table ($1) whose collations are not those of their types, with these as SQL.
SELECT a.attname::text, format('%I.%I', n.nspname, l.collname)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_type y ON y.oid = a.atttypid AND y.typcollation <> a.attcollation
JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
JOIN pg_catalog.pg_namespace n ON n.oid = l.collnamespace
WHERE c.relname = $1
    AND c.relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema())
