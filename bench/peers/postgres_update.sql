-- Budgets that are updated in place, a row for each hold.
DROP SCHEMA IF EXISTS peer CASCADE;
CREATE SCHEMA peer;
SET search_path = peer;

-- Room in each page, so that a new version of a hot row stays on it and touches no index.
CREATE TABLE budget (
    node integer PRIMARY KEY,
    max_micros bigint NOT NULL,
    used_micros bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

CREATE TABLE hold (
    id bigint PRIMARY KEY,
    held_micros bigint NOT NULL,
    actual_micros bigint
) WITH (fillfactor = 50);

-- 0 admitted, 1 the team's limit, 2 the tenant's. A known id is an error of the primary key and changes nothing.
CREATE FUNCTION reserve(p_id bigint, p_tenant integer, p_team integer, p_micros bigint) RETURNS integer
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE budget SET used_micros = used_micros + p_micros WHERE node = p_team AND used_micros + p_micros <= max_micros;
    IF NOT FOUND THEN
        RETURN 1;
    END IF;
    UPDATE budget SET used_micros = used_micros + p_micros WHERE node = p_tenant AND used_micros + p_micros <= max_micros;
    IF NOT FOUND THEN
        UPDATE budget SET used_micros = used_micros - p_micros WHERE node = p_team;
        RETURN 2;
    END IF;
    INSERT INTO hold (id, held_micros) VALUES (p_id, p_micros);
    RETURN 0;
END $$;

-- 0 settled, 1 not known or settled before.
CREATE FUNCTION settle(p_id bigint, p_tenant integer, p_team integer, p_micros bigint) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    difference bigint;
BEGIN
    UPDATE hold SET actual_micros = p_micros WHERE id = p_id AND actual_micros IS NULL
        RETURNING p_micros - held_micros INTO difference;
    IF NOT FOUND THEN
        RETURN 1;
    END IF;
    UPDATE budget SET used_micros = used_micros + difference WHERE node = p_team;
    UPDATE budget SET used_micros = used_micros + difference WHERE node = p_tenant;
    RETURN 0;
END $$;

CREATE VIEW totals AS
SELECT (SELECT used_micros FROM budget WHERE node = 1) AS tenant_micros,
       (SELECT used_micros FROM budget WHERE node = 2) AS team_micros,
       (SELECT count(*) FROM hold WHERE actual_micros IS NOT NULL) AS record_cnt;
