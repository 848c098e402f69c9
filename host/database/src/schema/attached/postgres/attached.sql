-- Everything that depends on a table ($1) or on the type of its rows, whatever its kind. Left out is what the layout describes
-- (columns, indexes, keys), what the server makes for itself, and what belongings.sql carries over.
WITH t AS (
    SELECT c.oid, c.reltype, y.typarray
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_type y ON y.oid = c.reltype
    WHERE c.relname = $1
        AND c.relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema())
),
dependent AS (
    SELECT
        d.classid, d.objid, d.objsubid,
        bool_or(d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjsubid > 0) AS names_a_column
    FROM pg_catalog.pg_depend d, t
    WHERE (d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = t.oid)
        OR (d.refclassid = 'pg_catalog.pg_type'::regclass AND d.refobjid IN (t.reltype, t.typarray))
    GROUP BY d.classid, d.objid, d.objsubid
)
SELECT
    CASE
        WHEN v.oid IS NULL THEN pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid)
        ELSE pg_catalog.pg_describe_object('pg_catalog.pg_class'::regclass, v.oid, 0)
    END AS description,
    CASE
        WHEN v.relkind = 'm' THEN format('DROP MATERIALIZED VIEW %s', v.oid::regclass)
        WHEN v.oid IS NOT NULL THEN format('DROP VIEW %s', v.oid::regclass)
        WHEN k.contype = 'p' AND k.conrelid = t.oid
            THEN format('ALTER TABLE %s DROP CONSTRAINT %I, ADD CONSTRAINT %I %s', t.oid::regclass, k.conname, k.conname,
                split_part(pg_get_constraintdef(k.oid), ' DEFERRABLE', 1))
        WHEN k.conrelid <> 0 THEN format('ALTER TABLE %s DROP CONSTRAINT %I', k.conrelid::regclass, k.conname)
        WHEN h.inhparent = t.oid THEN format('ALTER TABLE %s NO INHERIT %s', c.oid::regclass, t.oid::regclass)
        WHEN q.deptype = 'i'
            THEN format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', t.oid::regclass,
                (SELECT o.attname FROM pg_catalog.pg_attribute o WHERE o.attrelid = t.oid AND o.attnum = q.refobjsubid))
        WHEN c.relkind = 'S' THEN format('ALTER SEQUENCE %s OWNED BY NONE', c.oid::regclass)
        WHEN c.oid IS NOT NULL THEN format('ALTER TABLE %s DROP COLUMN %I', c.oid::regclass, a.attname)
        WHEN i.type = 'statistics object' THEN format('DROP STATISTICS %s', i.identity)
        WHEN p.oid IS NOT NULL
            THEN format('ALTER PUBLICATION %I DROP TABLE %s',
                (SELECT pubname FROM pg_catalog.pg_publication b WHERE b.oid = p.prpubid), t.oid::regclass)
        ELSE format('DROP %s %s', upper(i.type), i.identity)
    END AS removal,
    -- Views and rules, publications of columns or rows, columns of the type of its rows, functions whose body is parsed.
    r.oid IS NOT NULL OR p.oid IS NOT NULL OR (c.oid IS NOT NULL AND c.relkind <> 'S' AND h.inhrelid IS NULL)
        OR i.type IN ('trigger', 'policy')
        OR (d.classid = 'pg_catalog.pg_proc'::regclass AND d.names_a_column) AS blocks_widening
FROM t
CROSS JOIN dependent d
LEFT JOIN pg_catalog.pg_class c ON d.classid = 'pg_catalog.pg_class'::regclass AND c.oid = d.objid
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.objsubid
LEFT JOIN pg_catalog.pg_inherits h ON h.inhrelid = c.oid AND h.inhparent = t.oid
-- The column that owns a sequence.
LEFT JOIN pg_catalog.pg_depend q
    ON c.relkind = 'S' AND q.classid = d.classid AND q.objid = d.objid AND q.deptype IN ('a', 'i')
        AND q.refclassid = 'pg_catalog.pg_class'::regclass AND q.refobjid = t.oid
LEFT JOIN pg_catalog.pg_constraint k ON d.classid = 'pg_catalog.pg_constraint'::regclass AND k.oid = d.objid
LEFT JOIN pg_catalog.pg_rewrite r ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND r.oid = d.objid
LEFT JOIN pg_catalog.pg_class v ON v.oid = r.ev_class AND v.relkind IN ('v', 'm')
LEFT JOIN pg_catalog.pg_trigger g ON d.classid = 'pg_catalog.pg_trigger'::regclass AND g.oid = d.objid
LEFT JOIN pg_catalog.pg_attrdef f ON d.classid = 'pg_catalog.pg_attrdef'::regclass AND f.oid = d.objid
LEFT JOIN pg_catalog.pg_publication_rel p
    ON d.classid = 'pg_catalog.pg_publication_rel'::regclass AND p.oid = d.objid
CROSS JOIN LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, 0) i
WHERE NOT (d.classid = 'pg_catalog.pg_type'::regclass AND d.objid IN (t.reltype, t.typarray))
    AND c.relkind IS DISTINCT FROM 't'
    AND c.relkind IS DISTINCT FROM 'i'
    -- A key, unless it is deferrable, and columns that are not null.
    AND (k.conrelid IS DISTINCT FROM t.oid OR k.contype NOT IN ('p', 'n') OR k.condeferrable)
    AND g.tgisinternal IS NOT TRUE
    AND f.adrelid IS DISTINCT FROM t.oid
    -- Publications with a list of columns or a condition, which servers before version 15 do not have.
    AND (p.oid IS NULL OR to_jsonb(p) ->> 'prqual' IS NOT NULL OR to_jsonb(p) ->> 'prattrs' IS NOT NULL)
UNION ALL
-- The indexes of a new table are in the tablespace by default.
SELECT
    format('tablespace %I of index %I', s.spcname, x.relname),
    format('ALTER INDEX %s SET TABLESPACE %I', x.oid::regclass, (
        SELECT b.spcname
        FROM pg_catalog.pg_tablespace b JOIN pg_catalog.pg_database l ON l.dattablespace = b.oid
        WHERE l.datname = current_database()
    )),
    FALSE
FROM t
JOIN pg_catalog.pg_index i ON i.indrelid = t.oid
JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
JOIN pg_catalog.pg_tablespace s ON s.oid = x.reltablespace
WHERE s.spcname <> current_setting('default_tablespace')
UNION ALL
SELECT
    format('subscription %s', s.subname),
    format('ALTER SUBSCRIPTION %I REFRESH PUBLICATION', s.subname),
    FALSE
FROM t
JOIN pg_catalog.pg_subscription_rel l ON l.srrelid = t.oid
JOIN pg_catalog.pg_subscription s ON s.oid = l.srsubid
UNION ALL
SELECT
    format('security label of %s', l.provider),
    format('SECURITY LABEL FOR %I ON TABLE %s IS NULL', l.provider, t.oid::regclass),
    FALSE
FROM t JOIN pg_catalog.pg_seclabel l ON l.classoid = 'pg_catalog.pg_class'::regclass AND l.objoid = t.oid
ORDER BY 1
