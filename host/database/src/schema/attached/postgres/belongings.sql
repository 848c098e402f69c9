-- The rest of a statement whose CTE `pairs` has tables (`staged`), which will have a final `name`, and those that they replace.
-- Returns, for each `number` of a pair in their order, the statements that give the table what belongs to the replaced one. Those
-- about an index name it, since not every index has a successor.
here AS (
    SELECT c.*
    FROM pg_catalog.pg_class c
    WHERE c.relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema())
),
t AS (
    SELECT c.*, p.number, p.name
    FROM pairs p
    JOIN here c ON c.relname = p.replaced
),
n AS (
    SELECT c.*, p.number
    FROM pairs p
    JOIN here c ON c.relname = p.staged
),
kept AS (
    SELECT a.*, t.number, t.name
    FROM t
    JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN n USING (number)
    JOIN pg_catalog.pg_attribute b ON b.attrelid = n.oid AND b.attname = a.attname AND NOT b.attisdropped
),
indexes AS (
    SELECT i.*, c.relname AS index_name, c.reloptions, t.number, t.name
    FROM t
    JOIN pg_catalog.pg_index i ON i.indrelid = t.oid
    JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
),
grants AS (
    SELECT
        t.number,
        t.name,
        g.privilege_type,
        NULL::name AS attname,
        CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END AS grantee,
        CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END AS option
    FROM t CROSS JOIN LATERAL aclexplode(t.relacl) g
    UNION ALL
    SELECT
        a.number,
        a.name,
        g.privilege_type,
        a.attname,
        CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END,
        CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
    FROM kept a CROSS JOIN LATERAL aclexplode(a.attacl) g
),
-- What the privileges by default gave to the new tables.
given AS (
    SELECT DISTINCT
        n.number,
        CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END AS grantee
    FROM n CROSS JOIN LATERAL aclexplode(n.relacl) g
    WHERE g.grantee <> n.relowner
),
statements AS (
    SELECT t.number, 1 AS place, NULL::name AS index_name, format('REVOKE ALL ON %I FROM %s', t.name, g.grantee) AS text
    FROM t JOIN given g USING (number)
    UNION ALL
    SELECT t.number, 2, NULL, format('ALTER TABLE %I OWNER TO %I', t.name, pg_get_userbyid(t.relowner))
    FROM t JOIN n USING (number) WHERE n.relowner <> t.relowner
    UNION ALL
    SELECT t.number, 3, NULL, format('REVOKE ALL ON %I FROM %I', t.name, pg_get_userbyid(t.relowner))
    FROM t WHERE t.relacl IS NOT NULL
    UNION ALL
    SELECT g.number, 4, NULL, format('GRANT %s%s ON %I TO %s%s', g.privilege_type, ' (' || quote_ident(g.attname) || ')',
        g.name, g.grantee, g.option)
    FROM grants g
    UNION ALL
    SELECT t.number, 5, NULL, format('COMMENT ON TABLE %I IS %L', t.name, s.description)
    FROM t
    JOIN pg_catalog.pg_description s
        ON s.classoid = 'pg_catalog.pg_class'::regclass AND s.objoid = t.oid AND s.objsubid = 0
    UNION ALL
    SELECT a.number, 5, NULL, format('COMMENT ON COLUMN %I.%I IS %L', a.name, a.attname, s.description)
    FROM kept a
    JOIN pg_catalog.pg_description s
        ON s.classoid = 'pg_catalog.pg_class'::regclass AND s.objoid = a.attrelid AND s.objsubid = a.attnum
    UNION ALL
    SELECT i.number, 5, i.index_name, format('COMMENT ON INDEX %I IS %L', i.index_name, s.description)
    FROM indexes i
    JOIN pg_catalog.pg_description s ON s.classoid = 'pg_catalog.pg_class'::regclass AND s.objoid = i.indexrelid
    UNION ALL
    SELECT i.number, 5, i.index_name, format('COMMENT ON CONSTRAINT %I ON %I IS %L', i.index_name, i.name, s.description)
    FROM indexes i
    JOIN pg_catalog.pg_constraint k ON k.conrelid = i.indrelid AND k.conindid = i.indexrelid
    JOIN pg_catalog.pg_description s ON s.classoid = 'pg_catalog.pg_constraint'::regclass AND s.objoid = k.oid
    UNION ALL
    SELECT t.number, 6, NULL, format('ALTER TABLE %I REPLICA IDENTITY %s', t.name,
        CASE t.relreplident WHEN 'f' THEN 'FULL' ELSE 'NOTHING' END)
    FROM t WHERE t.relreplident IN ('f', 'n')
    UNION ALL
    SELECT i.number, 6, i.index_name, format('ALTER TABLE %I REPLICA IDENTITY USING INDEX %I', i.name, i.index_name)
    FROM indexes i WHERE i.indisreplident
    UNION ALL
    SELECT i.number, 6, i.index_name, format('ALTER TABLE %I CLUSTER ON %I', i.name, i.index_name)
    FROM indexes i WHERE i.indisclustered
    UNION ALL
    SELECT i.number, 6, i.index_name, format('ALTER INDEX %I SET (%s)', i.index_name, array_to_string(i.reloptions, ', '))
    FROM indexes i WHERE i.reloptions IS NOT NULL
    UNION ALL
    SELECT t.number, 6, NULL, format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t.name) FROM t WHERE t.relrowsecurity
    UNION ALL
    SELECT t.number, 6, NULL, format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t.name) FROM t WHERE t.relforcerowsecurity
    UNION ALL
    SELECT a.number, 7, NULL, format('ALTER TABLE %I ALTER COLUMN %I SET STATISTICS %s', a.name, a.attname, a.attstattarget)
    FROM kept a WHERE a.attstattarget >= 0
    UNION ALL
    SELECT a.number, 7, NULL, format('ALTER TABLE %I ALTER COLUMN %I SET (%s)', a.name, a.attname,
        array_to_string(a.attoptions, ', '))
    FROM kept a WHERE a.attoptions IS NOT NULL
    UNION ALL
    SELECT a.number, 7, NULL, format('ALTER TABLE %I ALTER COLUMN %I SET STORAGE %s', a.name, a.attname,
        CASE a.attstorage WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' ELSE 'EXTENDED' END)
    FROM kept a JOIN pg_catalog.pg_type y ON y.oid = a.atttypid WHERE a.attstorage <> y.typstorage
    UNION ALL
    -- Servers before version 14 do not have it.
    SELECT a.number, 7, NULL, format('ALTER TABLE %I ALTER COLUMN %I SET COMPRESSION %s', a.name, a.attname,
        CASE to_jsonb(a) ->> 'attcompression' WHEN 'p' THEN 'pglz' ELSE 'lz4' END)
    FROM kept a WHERE to_jsonb(a) ->> 'attcompression' IN ('p', 'l')
    UNION ALL
    SELECT t.number, 8, NULL, format('ALTER PUBLICATION %I ADD TABLE %I', p.pubname, t.name)
    FROM t
    JOIN pg_catalog.pg_publication_rel l ON l.prrelid = t.oid
    JOIN pg_catalog.pg_publication p ON p.oid = l.prpubid
)
SELECT text, index_name::text, number::bigint FROM statements ORDER BY number, place, text
