-- Statements that give a table ($2), once it has its final name ($3), what belongs to the one that it replaces ($1); in their
-- order. Those about an index name it, since not every index has a successor.
WITH t AS (
    SELECT c.*
    FROM pg_catalog.pg_class c
    WHERE c.relname = $1
        AND c.relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema())
),
n AS (
    SELECT c.*
    FROM pg_catalog.pg_class c
    WHERE c.relname = $2
        AND c.relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema())
),
kept AS (
    SELECT a.*
    FROM t
    JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN n ON TRUE
    JOIN pg_catalog.pg_attribute b ON b.attrelid = n.oid AND b.attname = a.attname AND NOT b.attisdropped
),
indexes AS (
    SELECT i.*, c.relname AS name
    FROM t
    JOIN pg_catalog.pg_index i ON i.indrelid = t.oid
    JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
),
grants AS (
    SELECT
        g.privilege_type,
        NULL::name AS attname,
        CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END AS grantee,
        CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END AS option
    FROM t CROSS JOIN LATERAL aclexplode(t.relacl) g
    UNION ALL
    SELECT
        g.privilege_type,
        a.attname,
        CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END,
        CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
    FROM kept a CROSS JOIN LATERAL aclexplode(a.attacl) g
),
-- What the privileges by default gave to the new table.
given AS (
    SELECT DISTINCT CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END AS grantee
    FROM n CROSS JOIN LATERAL aclexplode(n.relacl) g
    WHERE g.grantee <> n.relowner
),
statements AS (
    SELECT 1 AS place, NULL::name AS index_name, format('REVOKE ALL ON %I FROM %s', $3::text, g.grantee) AS text
    FROM t, given g
    UNION ALL
    SELECT 2, NULL, format('ALTER TABLE %I OWNER TO %I', $3::text, pg_get_userbyid(t.relowner))
    FROM t, n WHERE n.relowner <> t.relowner
    UNION ALL
    SELECT 3, NULL, format('REVOKE ALL ON %I FROM %I', $3::text, pg_get_userbyid(t.relowner))
    FROM t WHERE t.relacl IS NOT NULL
    UNION ALL
    SELECT 4, NULL, format('GRANT %s%s ON %I TO %s%s', g.privilege_type, ' (' || quote_ident(g.attname) || ')',
        $3::text, g.grantee, g.option)
    FROM t, grants g
    UNION ALL
    SELECT 5, NULL, format('COMMENT ON TABLE %I IS %L', $3::text, s.description)
    FROM t
    JOIN pg_catalog.pg_description s
        ON s.classoid = 'pg_catalog.pg_class'::regclass AND s.objoid = t.oid AND s.objsubid = 0
    UNION ALL
    SELECT 5, NULL, format('COMMENT ON COLUMN %I.%I IS %L', $3::text, a.attname, s.description)
    FROM t, kept a
    JOIN pg_catalog.pg_description s
        ON s.classoid = 'pg_catalog.pg_class'::regclass AND s.objoid = a.attrelid AND s.objsubid = a.attnum
    UNION ALL
    SELECT 5, i.name, format('COMMENT ON INDEX %I IS %L', i.name, s.description)
    FROM indexes i
    JOIN pg_catalog.pg_description s ON s.classoid = 'pg_catalog.pg_class'::regclass AND s.objoid = i.indexrelid
    UNION ALL
    SELECT 6, NULL, format('ALTER TABLE %I REPLICA IDENTITY %s', $3::text,
        CASE t.relreplident WHEN 'f' THEN 'FULL' ELSE 'NOTHING' END)
    FROM t WHERE t.relreplident IN ('f', 'n')
    UNION ALL
    SELECT 6, i.name, format('ALTER TABLE %I REPLICA IDENTITY USING INDEX %I', $3::text, i.name)
    FROM t, indexes i WHERE i.indisreplident
    UNION ALL
    SELECT 6, i.name, format('ALTER TABLE %I CLUSTER ON %I', $3::text, i.name) FROM t, indexes i WHERE i.indisclustered
    UNION ALL
    SELECT 6, i.name, format('ALTER INDEX %I SET (%s)', i.name, array_to_string(c.reloptions, ', '))
    FROM indexes i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid WHERE c.reloptions IS NOT NULL
    UNION ALL
    SELECT 6, NULL, format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', $3::text) FROM t WHERE t.relrowsecurity
    UNION ALL
    SELECT 6, NULL, format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', $3::text) FROM t WHERE t.relforcerowsecurity
    UNION ALL
    SELECT 7, NULL, format('ALTER TABLE %I ALTER COLUMN %I SET STATISTICS %s', $3::text, a.attname, a.attstattarget)
    FROM t, kept a WHERE a.attstattarget >= 0
    UNION ALL
    SELECT 7, NULL, format('ALTER TABLE %I ALTER COLUMN %I SET (%s)', $3::text, a.attname,
        array_to_string(a.attoptions, ', '))
    FROM t, kept a WHERE a.attoptions IS NOT NULL
    UNION ALL
    SELECT 7, NULL, format('ALTER TABLE %I ALTER COLUMN %I SET STORAGE %s', $3::text, a.attname,
        CASE a.attstorage WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' ELSE 'EXTENDED' END)
    FROM t, kept a JOIN pg_catalog.pg_type y ON y.oid = a.atttypid WHERE a.attstorage <> y.typstorage
    UNION ALL
    SELECT 8, NULL, format('ALTER PUBLICATION %I ADD TABLE %I', p.pubname, $3::text)
    FROM t
    JOIN pg_catalog.pg_publication_rel l ON l.prrelid = t.oid
    JOIN pg_catalog.pg_publication p ON p.oid = l.prpubid
)
SELECT text, index_name::text FROM statements ORDER BY place, text
