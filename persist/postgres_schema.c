/* The store in PostgreSQL: is what keeps it append-only still in force? Each question's rows are sentences. */
#include "persist/postgres_impl.h"

#include <string.h>

#define TABLES                                                                                   \
    " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'holdfast' " \
    "WHERE c.relkind IN ('r', 'p') "

static const char *const questions[] = {
    /* 58: before, delete, update, truncate, for each statement. A partition has triggers of its own. */
    "SELECT format('table %s has no trigger append_only that is always on: it was removed, changed or disabled', "
    "c.relname)" TABLES
    "AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = 'append_only' "
    "AND t.tgenabled = 'A' AND t.tgtype = 58 AND t.tgqual IS NULL AND t.tgattr = '' "
    "AND t.tgfoid = to_regprocedure('holdfast.refuse_change()')) ORDER BY c.relname",

    "SELECT format('table %s has a trigger %s, which is none of holdfast''s', c.relname, t.tgname)"
    " FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = 'holdfast' AND NOT t.tgisinternal AND t.tgname <> 'append_only' ORDER BY 1",

    "SELECT format('table %s has a rule %s, which is none of holdfast''s', c.relname, r.rulename)"
    " FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE n.nspname = 'holdfast' AND r.rulename <> '_RETURN' ORDER BY 1",

    "SELECT format('table %s has row security, which hides rows', c.relname)" TABLES
    "AND (c.relrowsecurity OR c.relforcerowsecurity) ORDER BY c.relname",

    "SELECT format('table %s is unlogged: a crash of the server empties it', c.relname)" TABLES
    "AND c.relpersistence <> 'p' ORDER BY c.relname",

    "SELECT format('table %s has no primary key: it was removed', c.relname)" TABLES
    "AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype = 'p') ORDER BY c.relname",

    /* Partitions of our own are in the schema; anything else that inherits brings or takes rows past the triggers. */
    "SELECT format('table %s inherits from table %s', i.inhrelid::regclass, i.inhparent::regclass)"
    " FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent "
    "JOIN pg_namespace cn ON cn.oid = c.relnamespace JOIN pg_namespace pn ON pn.oid = p.relnamespace "
    "WHERE 'holdfast' IN (cn.nspname, pn.nspname) AND p.relkind IN ('r', 'p') "
    "AND (p.relkind = 'r' OR cn.nspname <> 'holdfast' OR pn.nspname <> 'holdfast') ORDER BY 1",

    "SELECT format('partition %s of receipts is a foreign table or has partitions itself', c.relname)"
    " FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
    "WHERE i.inhparent = to_regclass('holdfast.receipt') AND c.relkind <> 'r' ORDER BY 1",

    "SELECT format('partition %s of receipts has no index of ids: it was removed', c.relname)"
    " FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
    "WHERE i.inhparent = to_regclass('holdfast.receipt') AND c.relkind = 'r' AND NOT EXISTS ("
    "SELECT FROM pg_index x JOIN pg_class n ON n.oid = x.indexrelid WHERE x.indrelid = c.oid AND x.indisvalid "
    "AND n.relname IN (c.relname || '_once', c.relname || '_ids')) ORDER BY 1",

    "SELECT format('%s may %s on table %s', CASE a.grantee WHEN 0 THEN 'everybody' ELSE 'role ' || "
    "pg_get_userbyid(a.grantee) END, a.privilege_type, c.relname)"
    " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'holdfast', "
    "aclexplode(c.relacl) a WHERE a.grantee <> c.relowner AND "
    "(a.privilege_type IN ('UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER') OR a.grantee = 0) ORDER BY 1",

    "SELECT format('%s may %s on column %s of table %s', CASE a.grantee WHEN 0 THEN 'everybody' ELSE 'role ' || "
    "pg_get_userbyid(a.grantee) END, a.privilege_type, t.attname, c.relname)"
    " FROM pg_attribute t JOIN pg_class c ON c.oid = t.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
    "AND n.nspname = 'holdfast', aclexplode(t.attacl) a WHERE a.grantee <> c.relowner ORDER BY 1",

    "SELECT 'every session begins with holdfast.retention on: the triggers refuse nothing' "
    "WHERE current_setting('holdfast.retention', true) = 'on'",

    "SELECT format('holdfast.retention is set for %s: its sessions may change rows', "
    "CASE s.setrole WHEN 0 THEN 'the database' ELSE 'role ' || pg_get_userbyid(s.setrole) END)"
    " FROM pg_db_role_setting s, unnest(s.setconfig) AS one WHERE one LIKE 'holdfast.retention=%' AND s.setdatabase IN "
    "(0, (SELECT oid FROM pg_database WHERE datname = current_database())) ORDER BY 1",

    /* The view that recovery reads from: nothing but the columns of both tables. */
    "SELECT 'view every_receipt is not as holdfast made it: it was changed' "
    "WHERE to_regclass('holdfast.every_receipt') IS NULL OR "
    "pg_get_viewdef('holdfast.every_receipt'::regclass) ~* '[(+*]|::|\\m(where|limit|offset|join|case|group|distinct)\\M'",
};

struct schema {
    hf_schema_fn *fn;
    void *ctx;
};

static enum hf_store_status tell(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    const struct schema *schema = ctx;

    (void)cnt;
    schema->fn(schema->ctx, columns[0].bytes == NULL ? "?" : columns[0].bytes);
    return HF_STORE_OK;
}

/* The functions of the schema, as they begin in its files. */
static const struct {
    const char *name;
    const char *begins;
} functions[] = {{"refuse_change", "FUNCTION holdfast.refuse_change()"},
                 {"ensure_partition", "FUNCTION holdfast.ensure_partition(seq bigint"},
                 {"index_ids", "FUNCTION holdfast.index_ids(child text"}};

/* The body of a function as the newest schema file has it: between the $$ after its name. False: no file has one. */
static bool body_of(const char *begins, const char **body, size_t *len)
{
    bool found = false;

    for (const struct hf_schema_file *file = hf_schema_files; file->name != NULL; file++) {
        const char *at =
            strstr(file->name, hf_postgres_ops.schema_suffix) == NULL ? NULL : strstr(file->text, begins);
        const char *end = NULL;

        at = at == NULL ? NULL : strstr(at, "$$");
        end = at == NULL ? NULL : strstr(at + 2, "$$");
        if (end != NULL) {
            *body = at + 2;
            *len = (size_t)(end - *body);
            found = true;
        }
    }
    return found;
}

enum hf_store_status hf_postgres_schema(struct hf_store *store, hf_schema_fn *fn, void *ctx,
                                        struct hf_store_error *error)
{
    struct schema schema = {.fn = fn, .ctx = ctx};
    enum hf_store_status status = HF_STORE_OK;

    for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]) && status == HF_STORE_OK; i++) {
        status = hf_pg_query(store, questions[i], NULL, 0, tell, &schema, error);
    }
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]) && status == HF_STORE_OK; i++) {
        struct hf_param params[2] = {{.type = HF_PARAM_TEXT}, hf_param_text(functions[i].name)};

        if (body_of(functions[i].begins, &params[0].bytes, &params[0].len)) {
            status = hf_pg_query(
                store,
                "SELECT format('function %s is not as holdfast made it: it was changed', $2) "
                "WHERE NOT EXISTS (SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
                "WHERE n.nspname = 'holdfast' AND p.proname = $2 AND p.prosrc = $1)",
                params, 2, tell, &schema, error);
        }
    }
    return status;
}
