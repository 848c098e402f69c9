-- Everything that depends on a table ($1) or on the type of its rows, whatever its kind. Left out is what the layout describes
-- (columns, indexes, keys), what the server makes for itself, and what belongings.sql carries over. With each object are the
-- columns whose types it keeps from being changed, one a line, and whether it is a part of the table that ends with it.
WITH t AS (
    SELECT c.oid, c.reltype, y.typarray
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_type y ON y.oid = c.reltype
    WHERE c.relname = $1
        AND c.relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema())
),
dependency AS (
    SELECT
        -- Before version 15, a generated column itself depends on others, and not its expression.
        CASE WHEN g.oid IS NULL THEN d.classid ELSE 'pg_catalog.pg_attrdef'::regclass::oid END AS classid,
        coalesce(g.oid, d.objid) AS objid,
        CASE WHEN g.oid IS NULL THEN d.objsubid ELSE 0 END AS objsubid,
        d.refclassid = 'pg_catalog.pg_type'::regclass AS is_on_rows,
        u.attname::text AS used
    FROM t
    JOIN pg_catalog.pg_depend d
        ON (d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = t.oid)
            OR (d.refclassid = 'pg_catalog.pg_type'::regclass AND d.refobjid IN (t.reltype, t.typarray))
    LEFT JOIN pg_catalog.pg_attrdef g
        ON d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = t.oid
            AND g.adrelid = t.oid AND g.adnum = d.objsubid
    LEFT JOIN pg_catalog.pg_attribute u
        ON d.refclassid = 'pg_catalog.pg_class'::regclass AND u.attrelid = t.oid
            AND u.attnum = d.refobjsubid AND u.attnum > 0
),
dependent AS (
    SELECT classid, objid, objsubid, bool_or(is_on_rows) AS is_on_rows, string_agg(used, E'\n') AS used
    FROM dependency
    GROUP BY classid, objid, objsubid
)
SELECT
    CASE
        WHEN v.oid IS NOT NULL THEN pg_catalog.pg_describe_object('pg_catalog.pg_class'::regclass, v.oid, 0)
        WHEN e.attnum IS NOT NULL THEN pg_catalog.pg_describe_object('pg_catalog.pg_class'::regclass, t.oid, e.attnum)
        ELSE pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid)
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
        WHEN e.attnum IS NOT NULL THEN format('ALTER TABLE %s DROP COLUMN %I', t.oid::regclass, e.attname)
        WHEN i.type = 'statistics object' THEN format('DROP STATISTICS %s', i.identity)
        WHEN p.oid IS NOT NULL
            THEN format('ALTER PUBLICATION %I DROP TABLE %s',
                (SELECT pubname FROM pg_catalog.pg_publication b WHERE b.oid = p.prpubid), t.oid::regclass)
        ELSE format('DROP %s %s', upper(i.type), i.identity)
    END AS removal,
    CASE
        -- Columns of the type of its rows.
        WHEN d.is_on_rows AND c.oid IS NOT NULL
            THEN (SELECT string_agg(o.attname::text, E'\n') FROM pg_catalog.pg_attribute o WHERE o.attrelid = t.oid)
        -- Views and rules, publications of columns or rows, generated columns, functions whose body is parsed.
        WHEN r.oid IS NOT NULL OR p.oid IS NOT NULL OR e.attnum IS NOT NULL OR i.type IN ('trigger', 'policy')
            OR d.classid = 'pg_catalog.pg_proc'::regclass
            THEN d.used
    END AS keeps_types_of,
    -- Sequences that a column owns, and a deferrable key.
    (c.relkind = 'S' OR (k.contype = 'p' AND k.conrelid = t.oid)) IS TRUE AS ends_with_table
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
LEFT JOIN pg_catalog.pg_attribute e
    ON f.adrelid = t.oid AND e.attrelid = t.oid AND e.attnum = f.adnum AND e.attgenerated <> ''
LEFT JOIN pg_catalog.pg_publication_rel p
    ON d.classid = 'pg_catalog.pg_publication_rel'::regclass AND p.oid = d.objid
CROSS JOIN LATERAL pg_catalog.pg_identify_object(d.classid, d.objid, 0) i
WHERE NOT (d.classid = 'pg_catalog.pg_type'::regclass AND d.objid IN (t.reltype, t.typarray))
    AND c.relkind IS DISTINCT FROM 't'
    AND c.relkind IS DISTINCT FROM 'i'
    -- A key, unless it is deferrable, and columns that are not null.
    AND (k.conrelid IS DISTINCT FROM t.oid OR k.contype NOT IN ('p', 'n') OR k.condeferrable)
    AND g.tgisinternal IS NOT TRUE
    -- The default of a column that is not generated.
    AND (f.adrelid IS DISTINCT FROM t.oid OR e.attnum IS NOT NULL)
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
    NULL,
    TRUE
FROM t
JOIN pg_catalog.pg_index i ON i.indrelid = t.oid
JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
JOIN pg_catalog.pg_tablespace s ON s.oid = x.reltablespace
WHERE s.spcname <> current_setting('default_tablespace')
UNION ALL
SELECT
    format('subscription %s', s.subname),
    format('ALTER SUBSCRIPTION %I REFRESH PUBLICATION', s.subname),
    NULL,
    FALSE
FROM t
JOIN pg_catalog.pg_subscription_rel l ON l.srrelid = t.oid
JOIN pg_catalog.pg_subscription s ON s.oid = l.srsubid
UNION ALL
SELECT
    format('security label of %s', l.provider),
    format('SECURITY LABEL FOR %I ON TABLE %s IS NULL', l.provider, t.oid::regclass),
    NULL,
    FALSE
FROM t JOIN pg_catalog.pg_seclabel l ON l.classoid = 'pg_catalog.pg_class'::regclass AND l.objoid = t.oid
ORDER BY 1
