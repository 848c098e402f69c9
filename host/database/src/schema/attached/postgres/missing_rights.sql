-- Why the current user cannot replace a table ($1). Renaming and dropping need the rights of its owner.
WITH t AS (
    SELECT c.*
    FROM pg_catalog.pg_class c
    WHERE c.relname = $1
        AND c.relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema())
)
SELECT format('the user %I does not have the rights of its owner (`GRANT %I TO %I`)', current_user,
    pg_get_userbyid(t.relowner), current_user)
FROM t WHERE NOT pg_has_role(t.relowner, 'USAGE')
UNION ALL
SELECT format('the user %I may not create tables beside it (`GRANT CREATE ON SCHEMA %I TO %I`)', r.name, current_schema(),
    r.name)
FROM (SELECT current_user AS name UNION SELECT pg_get_userbyid(t.relowner) FROM t) r
WHERE NOT has_schema_privilege(r.name, current_schema(), 'CREATE')
UNION ALL
SELECT format('the user %I does not have the rights of the owner of its publication %I (`GRANT %I TO %I`)', current_user,
    p.pubname, pg_get_userbyid(p.pubowner), current_user)
FROM t
JOIN pg_catalog.pg_publication_rel l ON l.prrelid = t.oid
JOIN pg_catalog.pg_publication p ON p.oid = l.prpubid
WHERE NOT pg_has_role(p.pubowner, 'USAGE')
